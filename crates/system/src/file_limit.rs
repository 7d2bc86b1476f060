//! Files that grow where their size is limited (`ulimit -f`, `RLIMIT_FSIZE`). The kernel answers an error
//! there and sends a signal besides, SIGXFSZ, which ends every program that does not expect it. An
//! error is enough: the program is not ours.

use std::io;

use crate::signals::without_signals;

/// Makes a file grow; without the signal if it must not.
///
/// # Errors
///
/// Those of `step`; [`io::ErrorKind::FileTooLarge`] with a sentence where the limit is in the way.
pub fn grow<T, E: Into<io::Error>>(step: impl FnOnce() -> Result<T, E>) -> io::Result<T> {
    without_signals(step).map_err(Into::into).map_err(|error: io::Error| {
        match error.raw_os_error() {
            Some(libc::EFBIG) => io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the limit of file sizes (ulimit -f) is too low for that",
            ),
            _ => error,
        }
    })
}
