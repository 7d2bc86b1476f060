//! Memory that is Transom's from the start: what a program has asked for by it.

use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags};

use super::mapped;
use crate::fork::Owner;

/// Pages of zeros. Where registered memory is mapped they lie in the address-space file from the start, so
/// they are reached without the kernel, and nothing of the program's has to be moved for that.
#[derive(Debug)]
pub struct Allocation {
    first: NonNull<u8>,
    length: usize,
    /// Whose file they lie in.
    mapped_by: Option<Owner>,
}

// SAFETY: the memory is this value's as that of a box would be.
unsafe impl Send for Allocation {}
// SAFETY: as above; nothing here reads or writes it.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Maps memory for `length` bytes, from a page on.
    ///
    /// # Errors
    ///
    /// That of `mmap(2)`.
    pub fn new(length: usize) -> io::Result<Self> {
        let (rights, length) = (ProtFlags::READ | ProtFlags::WRITE, length.max(1));
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let first =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), length, rights, MapFlags::PRIVATE)? };
        let first = NonNull::new(first.cast::<u8>()).expect("a mapping is never at zero");
        // SAFETY: just mapped, and nobody else knows it.
        let is_mapped = unsafe { mapped::adopt(first.as_ptr() as u64, length as u64) };
        Ok(Self { first, length, mapped_by: is_mapped.then(Owner::this) })
    }

    /// The first byte, which is mapped until this is dropped.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nobody uses it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
        // A forked child has it as memory of its own.
        if self.mapped_by.is_some_and(|owner| !owner.is_another()) {
            mapped::leave(self.first.as_ptr() as u64, self.length as u64);
        }
    }
}
