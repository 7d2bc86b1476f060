//! Functions that are not supported yet: `repoll_*`, which rdma-core has from version 65 on. They fail with `ENOSYS`,
//! so that a program can do without them.

use std::ffi::{c_int, c_void};

use crate::entry::zero_of;
use crate::wrong::Wrong;

/// Declares functions that fail.
macro_rules! absent {
    ($(fn $name:ident($($type:ty),*) -> $result:ty = $function:literal $errno:ident;)*) => {
        $(
            /// Not supported yet.
            pub extern "C" fn $name($(_: $type),*) -> $result {
                const SAID: Wrong =
                    Wrong::new(libc::$errno, "rdma-core has it since version 65; it is not supported here yet");
                zero_of($function, || Err(SAID)) as $result
            }
        )*
    };
}

absent! {
    fn repoll_create(c_int) -> c_int = c"repoll_create" ENOSYS;
    fn repoll_ctl(c_int, c_int, c_int, *mut c_void) -> c_int = c"repoll_ctl" ENOSYS;
    fn repoll_wait(c_int, *mut c_void, c_int, c_int) -> c_int = c"repoll_wait" ENOSYS;
}
