//! Memory of a socket that its adapter reads and writes, and perhaps the peer too.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};

use transom_abi::*;

use crate::verbs::{Verbs, made};
use crate::wrong::Wrong;

/// Memory of this library, registered while this value lives.
///
/// A peer may write to it at any time. So there are no references into it; data is copied in and out.
#[derive(Debug)]
pub(crate) struct Region {
    verbs: &'static Verbs,
    memory: *mut u8,
    layout: Layout,
    mr: *mut ibv_mr,
}

// SAFETY: memory and region belong to this value, and only its methods use them.
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

/// Memory of the program, registered while this value lives.
#[derive(Debug)]
pub(crate) struct Registration {
    verbs: &'static Verbs,
    mr: *mut ibv_mr,
}

// SAFETY: the region belongs to this value, and any thread may call verbs.
unsafe impl Send for Registration {}
// SAFETY: as for `Send`.
unsafe impl Sync for Registration {}

impl Registration {
    /// # Safety
    /// The memory has `length` bytes while this value lives, and the domain is live.
    pub(crate) unsafe fn new(
        verbs: &'static Verbs,
        pd: *mut ibv_pd,
        memory: *mut c_void,
        length: usize,
        remote: bool,
    ) -> Result<Self, Wrong> {
        let access = IBV_ACCESS_LOCAL_WRITE | if remote { IBV_ACCESS_REMOTE_WRITE } else { 0 };
        // SAFETY: by the contract of this function.
        let mr =
            made("ibv_reg_mr", unsafe { (verbs.ibv_reg_mr)(pd, memory, length, access as c_int) })?;
        Ok(Self { verbs, mr })
    }

    /// The key for a peer's writes.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: the region is live.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the region belongs to this value, and ends once.
        unsafe { (self.verbs.ibv_dereg_mr)(self.mr) };
    }
}

/// Regions have whole pages, to separate memory that a peer may write from all other memory of the process.
const PAGE: usize = 4096;

impl Region {
    pub(crate) fn new(
        verbs: &'static Verbs,
        pd: *mut ibv_pd,
        size: usize,
        access: ibv_access_flags,
    ) -> Result<Self, Wrong> {
        let size = size.max(1).checked_next_multiple_of(PAGE).ok_or(Wrong::no_memory())?;
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| Wrong::no_memory())?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(Wrong::no_memory());
        }
        // SAFETY: the memory was just allocated, and the domain is live.
        let mr = made("ibv_reg_mr", unsafe {
            (verbs.ibv_reg_mr)(pd, memory.cast(), size, access as c_int)
        });
        match mr {
            Ok(mr) => Ok(Self { verbs, memory, layout, mr }),
            Err(wrong) => {
                // SAFETY: it was allocated with this layout, and is not in use.
                unsafe { dealloc(memory, layout) };
                Err(wrong)
            }
        }
    }

    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.layout.size()));
        self.memory.wrapping_add(offset)
    }

    /// A part of it, as an SGE of work requests.
    pub(crate) fn sge(&self, offset: usize, length: u32) -> ibv_sge {
        let addr = self.at(offset, length as usize).expose_provenance() as u64;
        // SAFETY: the region is live.
        ibv_sge { addr, length, lkey: unsafe { (*self.mr).lkey } }
    }

    /// The address and the key for a peer's writes.
    pub(crate) fn remote(&self, offset: usize) -> (u64, u32) {
        // SAFETY: the region is live.
        (self.at(offset, 0).expose_provenance() as u64, unsafe { (*self.mr).rkey })
    }

    /// Copies to it.
    ///
    /// # Safety
    /// `from` has `length` bytes.
    pub(crate) unsafe fn put(&self, offset: usize, from: *const u8, length: usize) {
        // SAFETY: by the contract of this function. `at` has checked the room.
        unsafe { self.at(offset, length).copy_from(from, length) };
    }

    /// Copies from it.
    ///
    /// # Safety
    /// `to` has room for `length` bytes.
    pub(crate) unsafe fn get(&self, offset: usize, to: *mut u8, length: usize) {
        // SAFETY: by the contract of this function. `at` has checked the range.
        unsafe { to.copy_from(self.at(offset, length), length) };
    }

    /// Reads a word that the peer may be writing.
    pub(crate) fn word<T: Copy>(&self, offset: usize) -> T {
        let at = self.at(offset, size_of::<T>()).cast::<T>();
        assert!(at.is_aligned());
        // SAFETY: `at` has checked that it lies in the memory.
        unsafe { at.read_volatile() }
    }

    /// Writes a word.
    pub(crate) fn set_word<T: Copy>(&self, offset: usize, word: T) {
        let at = self.at(offset, size_of::<T>()).cast::<T>();
        assert!(at.is_aligned());
        // SAFETY: `at` has checked that it lies in the memory.
        unsafe { at.write_volatile(word) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the queue pair that used it is gone, and both are freed once. If the region stays registered, as in a
        // forked child, the memory is not freed either.
        unsafe {
            if (self.verbs.ibv_dereg_mr)(self.mr) == 0 {
                dealloc(self.memory, self.layout);
            }
        }
    }
}
