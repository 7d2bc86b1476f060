//! The errnos of the device's refusals.

use std::ffi::c_int;

use transom_device::queue::PostError;
use transom_host::objects::RegisterError;

/// The errno of a refused registration, or of another refused object of the device.
pub(crate) fn of_register(error: RegisterError) -> c_int {
    match error {
        RegisterError::Rights
        | RegisterError::Range
        | RegisterError::PageOffset
        | RegisterError::OtherDevice => libc::EINVAL,
        RegisterError::Fault => libc::EFAULT,
        RegisterError::Exhausted => libc::ENOMEM,
        RegisterError::Busy => libc::EBUSY,
        RegisterError::Inherited => libc::EIO,
    }
}

/// The errno of a refused post.
pub(crate) fn of_post(error: PostError) -> c_int {
    match error {
        PostError::Full => libc::ENOMEM,
        PostError::TooManySges
        | PostError::InlineTooLong
        | PostError::InlineNotAllowed
        | PostError::WrongState
        | PostError::WrongService => libc::EINVAL,
    }
}
