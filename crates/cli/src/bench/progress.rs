//! What is being done, for whoever watches.

use std::io::{IsTerminal, Write, stderr};

/// Says on a terminal what is being done, in place of what was said before.
pub(super) fn say(what: &str) {
    let mut to = stderr();
    if to.is_terminal() {
        let dots = if what.is_empty() { "" } else { " …" };
        // It is only for whoever watches.
        let _ = write!(to, "\r\x1b[K{what}{dots}");
        let _ = to.flush();
    }
}
