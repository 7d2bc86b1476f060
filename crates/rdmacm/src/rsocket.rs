//! `rsocket(7)`: not there yet. No such socket can be had, so no number is one.

use std::ffi::{c_int, c_void};

use transom_abi::sockaddr;

use crate::entry::zero_of;

/// Declares functions of sockets that do not exist.
macro_rules! absent {
    ($(fn $name:ident($($type:ty),*) -> $result:ty = $errno:ident;)*) => {
        $(
            /// Not there yet.
            pub extern "C" fn $name($(_: $type),*) -> $result {
                zero_of(|| Err(libc::$errno)) as $result
            }
        )*
    };
}

absent! {
    fn rsocket(c_int, c_int, c_int) -> c_int = EPROTONOSUPPORT;
    fn rbind(c_int, *const sockaddr, u32) -> c_int = EBADF;
    fn rlisten(c_int, c_int) -> c_int = EBADF;
    fn raccept(c_int, *mut sockaddr, *mut u32) -> c_int = EBADF;
    fn rconnect(c_int, *const sockaddr, u32) -> c_int = EBADF;
    fn rshutdown(c_int, c_int) -> c_int = EBADF;
    fn rclose(c_int) -> c_int = EBADF;
    fn rrecv(c_int, *mut c_void, usize, c_int) -> isize = EBADF;
    fn rrecvfrom(c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut u32) -> isize = EBADF;
    fn rrecvmsg(c_int, *mut c_void, c_int) -> isize = EBADF;
    fn rsend(c_int, *const c_void, usize, c_int) -> isize = EBADF;
    fn rsendto(c_int, *const c_void, usize, c_int, *const sockaddr, u32) -> isize = EBADF;
    fn rsendmsg(c_int, *const c_void, c_int) -> isize = EBADF;
    fn rread(c_int, *mut c_void, usize) -> isize = EBADF;
    fn rreadv(c_int, *const c_void, c_int) -> isize = EBADF;
    fn rwrite(c_int, *const c_void, usize) -> isize = EBADF;
    fn rwritev(c_int, *const c_void, c_int) -> isize = EBADF;
    fn rpoll(*mut c_void, u64, c_int) -> c_int = ENOSYS;
    fn rselect(c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int = ENOSYS;
    fn rgetpeername(c_int, *mut sockaddr, *mut u32) -> c_int = EBADF;
    fn rgetsockname(c_int, *mut sockaddr, *mut u32) -> c_int = EBADF;
    fn rsetsockopt(c_int, c_int, c_int, *const c_void, u32) -> c_int = EBADF;
    fn rgetsockopt(c_int, c_int, c_int, *mut c_void, *mut u32) -> c_int = EBADF;
    fn rfcntl(c_int, c_int) -> c_int = EBADF;
    fn riomap(c_int, *mut c_void, usize, c_int, c_int, i64) -> i64 = EBADF;
    fn riounmap(c_int, *mut c_void, usize) -> c_int = EBADF;
    fn riowrite(c_int, *const c_void, usize, i64, c_int) -> isize = EBADF;
    fn repoll_create(c_int) -> c_int = ENOSYS;
    fn repoll_ctl(c_int, c_int, c_int, *mut c_void) -> c_int = ENOSYS;
    fn repoll_wait(c_int, *mut c_void, c_int, c_int) -> c_int = ENOSYS;
}
