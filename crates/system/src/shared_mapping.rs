//! Mappings of files that processes share.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

/// Maps a part of a file of that length for reading and writing, at an address the kernel chooses. It takes memory only
/// as far as it is used.
///
/// A program may have all future mappings locked (`mlockall(2)`). For a file that is mostly holes, this would take
/// memory for all of it, or be refused for its length. So only one page is mapped that way. That page is then unlocked,
/// and the mapping grows to full size in that state.
///
/// # Errors
///
/// Those of `mmap(2)` and `mremap(2)`.
pub(crate) fn map_shared(file: impl AsFd, offset: u64, length: usize) -> io::Result<NonNull<u8>> {
    let (page, rights) = (rustix::param::page_size(), ProtFlags::READ | ProtFlags::WRITE);
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a fresh mapping at an address that the kernel chooses, which nobody else knows, and which goes
    // where it finds room for more.
    let mapped = unsafe {
        let first = rustix::mm::mmap(null_mut(), page, rights, flags, file, offset)?;
        // If it cannot be unlocked, it stays locked, and takes memory.
        let _ = rustix::mm::munlock(first, page);
        rustix::mm::mremap(first, page, length, MremapFlags::MAYMOVE).inspect_err(|_| {
            let _ = rustix::mm::munmap(first, page);
        })?
    };
    Ok(NonNull::new(mapped.cast()).expect("a mapping is never at zero"))
}
