//! The interface between `libtransom_malloc.so` and the device of its process. The library stands before the C
//! library's allocator, and the device offers shared memory.

use std::ffi::{CStr, c_int, c_void};

/// The number of this layout. Both sides must have the same.
pub const VERSION: usize = 1;

/// The name of the function, a [`Serve`], that a device calls to offer its shared memory.
pub const SERVE: &CStr = c"transom_malloc_serve";

/// A device offers its shared memory. Any thread may call the functions of the offer until the process ends.
pub type Serve = unsafe extern "C" fn(&'static Server) -> Served;

/// The functions of a device for the allocator.
#[derive(Debug)]
#[repr(C)]
pub struct Server {
    /// [`VERSION`].
    pub version: usize,
    /// Allocates `size` bytes, aligned to `align`, which is a page or more. Null if the C library must allocate them, for
    /// example while another thread forks.
    pub take: unsafe extern "C" fn(align: usize, size: usize) -> *mut c_void,
    /// Takes back a block that `take` returned.
    pub give: unsafe extern "C" fn(*mut c_void) -> Given,
    /// The length in bytes of a block that `take` returned. Zero for any other address.
    pub bytes_of: unsafe extern "C" fn(*const c_void) -> usize,
    /// Whether a whole range is shared memory now.
    pub is_shared: unsafe extern "C" fn(*const c_void, usize) -> bool,
    /// Empties the part of a range of pages that is shared memory. Zero, or an errno.
    pub empty: unsafe extern "C" fn(*mut c_void, usize) -> c_int,
    /// The program is about to change the rights of a range, which may belong to anyone. It takes no lock.
    pub protected: unsafe extern "C" fn(*const c_void, usize),
    /// Must be called before a fork, after all fork handlers of the program.
    pub before_fork: unsafe extern "C" fn(),
    /// Must be called in the parent, before all fork handlers of the program.
    pub in_parent: unsafe extern "C" fn(),
    /// Must be called in the child, before all fork handlers of the program.
    pub in_child: unsafe extern "C" fn(),
}

/// The answer to a block that is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Given {
    /// It belonged to this device.
    pub is_ours: bool,
    /// How many bytes stay unchanged until their regions end. Zero if there are none.
    pub held: usize,
}

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Served {
    /// Page-aligned allocations of the program come from this device.
    Allocations,
    /// The program does not use the C library's allocator.
    OtherAllocator,
    /// A sanitizer watches the program's allocations.
    Sanitizer,
    /// There is no room for another device, or its version differs. Nothing of it will be called.
    Nothing,
}
