//! The memory of a dma-buf. It is mapped for as long as a region of it is registered (rule MR-37).

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};

use transom_system::memory::page_size;

/// Why a descriptor cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaBufError {
    /// Nothing has this descriptor: `EBADF`.
    #[error("nothing has this descriptor")]
    NotOpen,
    /// It is not a dma-buf, or the range is not within it: `EINVAL`.
    #[error("it is no dma-buf, or the range is not in it")]
    Invalid,
    /// Its owner does not let processors map it: `EOPNOTSUPP`.
    #[error("its owner does not let processors map it")]
    NotMappable,
    /// There is no room for the mapping: `ENOMEM`.
    #[error("there is no room for the mapping")]
    NoMemory,
}

/// The mapping of a part of a dma-buf.
#[derive(Debug)]
pub struct DmaBuf {
    start: NonNull<u8>,
    length: usize,
    /// The offset of the range in the mapping.
    skip: u64,
}

// SAFETY: the memory is only ever copied to and from by the kernel.
unsafe impl Send for DmaBuf {}
// SAFETY: as above.
unsafe impl Sync for DmaBuf {}

/// The kernel's number for the file system of dma-bufs: "DMAB".
const DMA_BUF_MAGIC: i64 = 0x444d_4142;

impl DmaBuf {
    /// Maps `length` bytes from `offset` on; writable if `writable`.
    pub fn map(
        fd: BorrowedFd<'_>,
        offset: u64,
        length: u64,
        writable: bool,
    ) -> Result<Self, DmaBufError> {
        let kind = rustix::fs::fstatfs(fd).map_err(|_| DmaBufError::NotOpen)?.f_type;
        if kind != DMA_BUF_MAGIC {
            return Err(DmaBufError::Invalid);
        }
        let size = rustix::fs::seek(fd, SeekFrom::End(0)).map_err(|_| DmaBufError::Invalid)?;
        let end = offset.checked_add(length).ok_or(DmaBufError::Invalid)?;
        if length == 0 || end > size {
            return Err(DmaBufError::Invalid);
        }
        Self::map_file(fd, offset, length, writable)
    }

    fn map_file(
        fd: BorrowedFd<'_>,
        offset: u64,
        length: u64,
        writable: bool,
    ) -> Result<Self, DmaBufError> {
        let skip = offset % page_size();
        let mapped = usize::try_from(skip + length).map_err(|_| DmaBufError::NoMemory)?;
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        // SAFETY: a fresh shared mapping at an address the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | write,
                MapFlags::SHARED,
                fd,
                offset - skip,
            )
        };
        let start = start.map_err(|error| match error {
            rustix::io::Errno::NOMEM => DmaBufError::NoMemory,
            _ => DmaBufError::NotMappable,
        })?;
        let start = NonNull::new(start.cast()).expect("a mapping is never at zero");
        Ok(Self { start, length: mapped, skip })
    }

    /// The address of the range in this process.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64 + self.skip
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_file` with this length; nobody has a reference into it.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::MemfdFlags;
    use transom_system::memory::{Copier, Destination, Source};

    use super::*;

    /// Any file can stand in for a dma-buf here, because both are mapped alike.
    #[test]
    fn a_mapping_begins_at_its_offset() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let page = page_size();
        let content: Vec<u8> = (0..3 * page as usize).map(|at| at as u8 ^ 0x5a).collect();
        rustix::io::write(&file, &content).unwrap();
        let mapping = DmaBuf::map_file(file.as_fd(), page + 17, 100, true).unwrap();
        let mut found = [0_u8; 100];
        let copier = Copier::best().unwrap();
        let there = mapping.address();
        copier.copy((&mut found[..]).into(), Source::Program(there), 100).unwrap();
        assert_eq!(found[..], content[page as usize + 17..][..100]);
        copier.copy(Destination::Program(there), [7_u8; 100][..].into(), 100).unwrap();
        let mut written = [0_u8; 102];
        rustix::io::pread(&file, &mut written, page + 16).unwrap();
        assert_eq!(written[1..101], [7; 100]);
        assert_eq!([written[0], written[101]], [content[16], content[117]]);
    }

    #[test]
    fn only_a_dma_buf_is_taken() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, page_size()).unwrap();
        let refused = DmaBuf::map(file.as_fd(), 0, page_size(), true);
        assert_eq!(refused.unwrap_err(), DmaBufError::Invalid);
    }

    #[test]
    fn what_does_not_fit_is_told_from_what_cannot_be_mapped() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let too_long = DmaBuf::map_file(file.as_fd(), 0, 1 << 48, false);
        assert_eq!(too_long.err(), Some(DmaBufError::NoMemory));
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let no_file = DmaBuf::map_file(read.as_fd(), 0, page_size(), false);
        assert_eq!(no_file.err(), Some(DmaBufError::NotMappable));
    }
}
