//! Memory that a program asks the device for: device memory, and buffers.

use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags};

use super::room;

/// Pages of zeros, in shared memory where there is any.
#[derive(Debug)]
pub struct Allocation {
    first: NonNull<u8>,
    length: usize,
    is_shared: bool,
}

// SAFETY: this value owns the memory, as a box would.
unsafe impl Send for Allocation {}
// SAFETY: as above; nothing here reads or writes it.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Takes memory for `length` bytes, from the beginning of a page on.
    ///
    /// # Errors
    ///
    /// That of `mmap(2)`.
    pub fn new(length: usize) -> io::Result<Self> {
        let (rights, length) = (ProtFlags::READ | ProtFlags::WRITE, length.max(1));
        if let Some(first) = room::take_zeros(length as u64) {
            return Ok(Self { first, length, is_shared: true });
        }
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let first =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), length, rights, MapFlags::PRIVATE)? };
        let first = NonNull::new(first.cast::<u8>()).expect("a mapping is never at zero");
        Ok(Self { first, length, is_shared: false })
    }

    /// The first byte, which is mapped until this is dropped.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.is_shared {
            // A forked child has it as private memory, and gives that back here.
            room::give(self.first.as_ptr() as u64);
            return;
        }
        // SAFETY: mapped by `new` with this length, and nobody uses it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}
