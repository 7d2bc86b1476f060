//! Shows the present measurement.

use std::io::{IsTerminal, Write, stderr};

/// Shows the present measurement on a terminal, in place of the last.
pub(super) fn say(what: &str) {
    let mut to = stderr();
    if to.is_terminal() {
        let dots = if what.is_empty() { "" } else { " …" };
        // If the terminal cannot be written, nobody misses it.
        let _ = write!(to, "\r\x1b[K{what}{dots}");
        let _ = to.flush();
    }
}
