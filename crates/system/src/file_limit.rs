//! Files that grow although their size is limited (`ulimit -f`, `RLIMIT_FSIZE`). At the limit the kernel returns an
//! error and also sends SIGXFSZ, which ends every program that does not expect it. The error is enough, because the
//! program is not ours.

use std::io;

use crate::signals::without_signals;

/// Makes a file grow. At the limit there is an error but no signal.
///
/// # Errors
///
/// The errors of `step`; [`io::ErrorKind::FileTooLarge`] with a message at the limit.
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
