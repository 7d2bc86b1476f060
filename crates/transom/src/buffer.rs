//! Memory that can be registered.

use crate::allocation::Allocation;
use crate::copy::Extent;
use crate::{Error, Result};
use std::sync::Arc;

/// Memory that a region can own.
///
/// While it is registered, the device and the peer may write it at any time. So nobody may hold a reference to its
/// bytes. The region owns it, and you can only copy.
///
/// # Safety
/// - The `len()` bytes from `as_mut_ptr()` are initialised, and may be read and written until the value is dropped,
///   even after the value itself has moved.
/// - Only this value reaches them, or other values that copy them in and out as [`Pages`] does. Such values use atomic
///   accesses, and access each aligned 8-byte word within the value only as a whole word. No reference to the bytes
///   exists while the value is registered.
/// - `as_mut_ptr()` and `len()` return the same each time.
pub unsafe trait Buffer: Send + 'static {
    /// The first byte.
    fn as_mut_ptr(&mut self) -> *mut u8;

    /// The number of bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// SAFETY: a vector owns its heap memory alone, and a move of the vector does not move it.
unsafe impl Buffer for Vec<u8> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

// SAFETY: a box owns its heap memory alone. `MemoryRegion` takes the pointer from the box in its final place. So no
// later move of the box takes away the pointer's right to the bytes.
unsafe impl Buffer for Box<[u8]> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut().as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }
}

/// Whole pages of zeroed memory, aligned to a page.
///
/// With the software device they are shared memory, if you make them while a device is open. Peers on the host then
/// reach them without the kernel. Other buffers are private memory, which the kernel copies.
///
/// You can register an `Arc` of them several times, for example with different rights:
///
/// ```
/// use std::sync::Arc;
/// let pages = Arc::new(transom::Pages::new(10_000)?);
/// assert_eq!(pages.len(), 10_000);
/// pages.write_at(9_998, b"ok")?;
/// let mut end = [0; 3];
/// pages.read_at(9_997, &mut end)?;
/// assert_eq!(&end, b"\0ok");
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Debug)]
pub struct Pages {
    extent: Extent,
    _memory: Allocation,
}

impl Pages {
    /// Maps memory for `length` bytes.
    ///
    /// # Errors
    /// [`Error::Verb`] of `mmap(2)`, ENOMEM if there is not enough memory.
    pub fn new(length: usize) -> Result<Self> {
        let memory = Allocation::new(length).map_err(|error| Error::Verb {
            verb: "mmap",
            subject: format!("mapping {length} bytes"),
            errno: error.raw_os_error().unwrap_or_default(),
        })?;
        // SAFETY: the memory is readable, writable and zero, and stays until this is dropped.
        let extent = unsafe { Extent::new(memory.first().as_ptr(), length, "the pages") };
        Ok(Self { extent, _memory: memory })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.extent.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out, from `offset` on. Each aligned 8-byte word is read whole.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they are not all within the pages.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.extent.read_at(offset, bytes)
    }

    /// Copies bytes in, from `offset` on. Each aligned 8-byte word is written whole.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not all fit into the pages.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.extent.write_at(offset, bytes)
    }

    /// The bytes themselves. Nobody else can reach them during the borrow.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are initialised. Only this value reaches them. It is borrowed mutably, so no region
        // contains it, and no `Arc` that a region holds.
        unsafe { std::slice::from_raw_parts_mut(self.extent.as_ptr(), self.len()) }
    }
}

// SAFETY: the mapping belongs to this value until it is dropped; a move does not move it.
unsafe impl Buffer for Pages {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.extent.as_ptr()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

// SAFETY: as for `Pages`. The other owners of the `Arc` copy with atomic accesses. A reference to the bytes needs the
// only `Arc`, which the region has.
unsafe impl Buffer for Arc<Pages> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.extent.as_ptr()
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }
}
