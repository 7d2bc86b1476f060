//! Mappings of files that processes share.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

/// Maps a part of a file, which is as long, to be read and written, where the kernel finds room. It takes memory as
/// far as it is used.
///
/// A program may have the kernel lock all that it maps from now on (`mlockall(2)`). Of a file that is mostly holes
/// that would take memory for all of it, or be refused for its length. So only a page is mapped so, which then is not
/// locked any more, and grows to all of it as it is.
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
        // What cannot be let go of is locked then, and takes memory.
        let _ = rustix::mm::munlock(first, page);
        rustix::mm::mremap(first, page, length, MremapFlags::MAYMOVE).inspect_err(|_| {
            let _ = rustix::mm::munmap(first, page);
        })?
    };
    Ok(NonNull::new(mapped.cast()).expect("a mapping is never at zero"))
}
