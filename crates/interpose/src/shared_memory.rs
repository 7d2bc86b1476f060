//! What `libtransom_malloc.so` and the device of its process tell each other: the one stands before the C library's
//! allocator, the other has shared memory to give out.

use std::ffi::{CStr, c_int, c_void};

/// The number of this layout: both ends are to have the same.
pub const VERSION: usize = 1;

/// The name of the function, a [`Serve`], by which a device offers its shared memory.
pub const SERVE: &CStr = c"transom_malloc_serve";

/// How a device offers its shared memory. All functions may be called by any thread until the process ends.
pub type Serve = unsafe extern "C" fn(&'static Server) -> Served;

/// What a device does for the allocator.
#[derive(Debug)]
#[repr(C)]
pub struct Server {
    /// [`VERSION`].
    pub version: usize,
    /// Memory of so many bytes, aligned to so many, which is a page or more; null if it is to be the C library's.
    pub take: unsafe extern "C" fn(align: usize, size: usize) -> *mut c_void,
    /// Takes back what `take` gave.
    pub give: unsafe extern "C" fn(*mut c_void) -> Given,
    /// How many bytes there are of what `take` gave; zero if it did not.
    pub bytes_of: unsafe extern "C" fn(*const c_void) -> usize,
    /// Whether all of some bytes are shared memory now.
    pub is_shared: unsafe extern "C" fn(*const c_void, usize) -> bool,
    /// Lets go of what is shared memory of some pages: zero, or an errno.
    pub empty: unsafe extern "C" fn(*mut c_void, usize) -> c_int,
    /// The program is about to change the rights to some bytes, which need not be of the device.
    pub protected: unsafe extern "C" fn(*const c_void, usize),
    /// To be called before a fork, behind all that the program has called then.
    pub before_fork: unsafe extern "C" fn(),
    /// To be called in the parent, before all that the program has called then.
    pub in_parent: unsafe extern "C" fn(),
    /// To be called in the child, before all that the program has called then.
    pub in_child: unsafe extern "C" fn(),
}

/// What comes of memory that is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Given {
    /// It was of this device.
    pub is_ours: bool,
    /// So many bytes stay as they are until the regions of them end; zero if there are none.
    pub held: usize,
}

/// What becomes of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Served {
    /// What the program allocates aligned to a page comes from there.
    Allocations,
    /// The program has another allocator than the C library's.
    OtherAllocator,
    /// A sanitizer watches what the program allocates.
    Sanitizer,
    /// There is no room for another device, or it is of another version; nothing is called.
    Nothing,
}
