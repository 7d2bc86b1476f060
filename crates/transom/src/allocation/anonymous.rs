//! Pages from the kernel, for adapters, which need no special ones.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};

/// Pages of zeros.
#[derive(Debug)]
pub(crate) struct Allocation {
    first: NonNull<u8>,
    length: usize,
}

// SAFETY: this value owns the memory, as a box would.
unsafe impl Send for Allocation {}
// SAFETY: as above; nothing here reads or writes it.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Maps at least `length` bytes, aligned to a page.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let (rights, length) = (ProtFlags::READ | ProtFlags::WRITE, length.max(1));
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let first = unsafe { mmap_anonymous(null_mut(), length, rights, MapFlags::PRIVATE)? };
        Ok(Self { first: NonNull::new(first.cast()).expect("a mapping is never at zero"), length })
    }

    /// The first byte. It is mapped until this is dropped.
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it with this length, and nobody uses it any more.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}
