//! Transom's own memory.

use std::alloc::{GlobalAlloc, Layout, System};

use super::have_written;

/// The system's allocator. It marks all memory as written for MemorySanitizer, which does not see Transom's writes.
/// Programs read objects in this memory.
pub struct Allocator;

/// Marks memory as written.
fn written(memory: *mut u8, size: usize) -> *mut u8 {
    if !memory.is_null() {
        have_written(memory as u64, size as u64);
    }
    memory
}

// SAFETY: all functions are those of the system's allocator.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        written(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        written(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(memory, layout) }
    }
}
