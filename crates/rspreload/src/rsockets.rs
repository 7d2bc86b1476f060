//! The functions of rsockets, and the test whether the libraries of RDMA themselves make a socket.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use libc::{iovec, msghdr, nfds_t, pollfd, sockaddr, socklen_t};

use crate::table;

/// Declares the table of functions and the function that fills it.
macro_rules! functions {
    ($(fn $name:ident($($type:ty),*) -> $result:ty;)*) => {
        /// The functions of rsockets, under their C names.
        pub(crate) struct Rsockets {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> $result,)*
            /// The first addresses of the libraries that implement rsockets. Their own sockets are the system's.
            libraries: [*mut c_void; 2],
        }

        impl Rsockets {
            fn load() -> Option<Self> {
                let library = open(c"librdmacm.so.1")?;
                let verbs = open(c"libibverbs.so.1")?;
                Some(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        let found = find(library, CStr::from_bytes_with_nul(name).ok()?)?;
                        // SAFETY: the function of this name has this type in every librdmacm.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) -> $result,
                            >(found)
                        }
                    },)*
                    libraries: [
                        beginning(find(library, c"rsocket")?)?,
                        beginning(find(verbs, c"ibv_get_device_list")?)?,
                    ],
                })
            }
        }
    };
}

functions! {
    fn rsocket(c_int, c_int, c_int) -> c_int;
    fn rbind(c_int, *const sockaddr, socklen_t) -> c_int;
    fn rlisten(c_int, c_int) -> c_int;
    fn raccept(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    fn rconnect(c_int, *const sockaddr, socklen_t) -> c_int;
    fn rshutdown(c_int, c_int) -> c_int;
    fn rclose(c_int) -> c_int;
    fn rrecv(c_int, *mut c_void, usize, c_int) -> isize;
    fn rrecvfrom(c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> isize;
    fn rrecvmsg(c_int, *mut msghdr, c_int) -> isize;
    fn rsend(c_int, *const c_void, usize, c_int) -> isize;
    fn rsendmsg(c_int, *const msghdr, c_int) -> isize;
    fn rread(c_int, *mut c_void, usize) -> isize;
    fn rreadv(c_int, *const iovec, c_int) -> isize;
    fn rwrite(c_int, *const c_void, usize) -> isize;
    fn rwritev(c_int, *const iovec, c_int) -> isize;
    fn rpoll(*mut pollfd, nfds_t, c_int) -> c_int;
    fn rgetpeername(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    fn rgetsockname(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    fn rsetsockopt(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    fn rgetsockopt(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    fn rfcntl(c_int, c_int, c_long) -> c_int;
}

// SAFETY: functions and addresses of libraries are the same for every thread.
unsafe impl Send for Rsockets {}
// SAFETY: as for `Send`.
unsafe impl Sync for Rsockets {}

fn open(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends in zero. The library is never unloaded.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    (!library.is_null()).then_some(library)
}

fn find(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is open, and the name ends in zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The first address of the library that has this code.
fn beginning(code: *mut c_void) -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `info` is filled if the result is not zero.
    unsafe {
        let found = libc::dladdr(code, info.as_mut_ptr()) != 0;
        found.then(|| info.assume_init().dli_fbase)
    }
}

/// The functions, if this process has a librdmacm with all of them.
pub(crate) fn rsockets() -> Option<&'static Rsockets> {
    static RSOCKETS: OnceLock<Option<Rsockets>> = OnceLock::new();
    RSOCKETS.get_or_init(Rsockets::load).as_ref()
}

impl Rsockets {
    /// Whether the libraries of RDMA themselves make this call.
    pub(crate) fn is_their_own(&self, caller: *mut c_void) -> bool {
        beginning(caller).is_some_and(|begin| self.libraries.contains(&begin))
    }
}

/// The rsocket that a descriptor stands for, with the functions.
#[inline]
pub(crate) fn rsocket(fd: c_int) -> Option<(c_int, &'static Rsockets)> {
    table::rsocket(fd).zip(rsockets())
}
