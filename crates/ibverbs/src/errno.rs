//! The errnos of what the device refuses.

use std::ffi::c_int;

use transom_device::queue::PostError;
use transom_host::objects::RegisterError;

/// Of a refused registration, or of another object that takes room on the device.
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

/// Of a refused post.
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
