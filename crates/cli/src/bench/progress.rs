//! What is being measured now.

use std::io::{IsTerminal, Write, stderr};

/// Shows on a terminal what is being measured, in place of what it showed before.
pub(super) fn say(what: &str) {
    let mut to = stderr();
    if to.is_terminal() {
        let dots = if what.is_empty() { "" } else { " …" };
        // Nobody else reads it.
        let _ = write!(to, "\r\x1b[K{what}{dots}");
        let _ = to.flush();
    }
}
