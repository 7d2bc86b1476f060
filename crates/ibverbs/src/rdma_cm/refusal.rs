//! Why a command is refused.

use std::borrow::Cow;
use std::ffi::c_int;

use transom_cm::Refused;

/// The reason why a command is refused: the errno, and a sentence that librdmacm's function passes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    errno: c_int,
    said: Cow<'static, str>,
}

impl Refusal {
    pub(super) const fn new(errno: c_int, said: &'static str) -> Self {
        Self { errno, said: Cow::Borrowed(said) }
    }

    /// An argument is invalid.
    pub(super) const fn invalid(said: &'static str) -> Self {
        Self::new(libc::EINVAL, said)
    }

    pub(super) const fn errno(&self) -> c_int {
        self.errno
    }

    pub(super) fn said(&self) -> &str {
        &self.said
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self { errno: refused.errno().0, said: refused.to_string().into() }
    }
}
