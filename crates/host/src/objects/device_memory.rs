//! Device memory. A program reaches it only by copying to and from it, and through regions.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use transom_system::memory::{Allocation, Destination, Fault, Source};

use super::Busy;
use super::dependents::Dependents;
use crate::device::{Device, Limits};

/// Why device memory is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// No such length or alignment.
    #[error("there is no such length or alignment")]
    Invalid,
    /// The device has no more of it.
    #[error("the device has no more memory")]
    Exhausted,
}

/// A part of device memory. Its pages are the process's own, at an address that the program does not learn.
pub struct DeviceMemory {
    device: Arc<Device>,
    memory: Allocation,
    length: u64,
    regions: Dependents,
}

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceMemory").field("length", &self.length).finish_non_exhaustive()
    }
}

impl DeviceMemory {
    /// Copies start and end at multiples of so many bytes.
    pub const COPY_UNIT: u64 = 4;
    /// Every part begins at a page, so this is the largest alignment, as a power of two.
    pub const MAX_LOG_ALIGN: u32 = 12;

    /// Takes `length` bytes of the device's memory. All are zero.
    pub fn allocate(device: &Arc<Device>, length: u64) -> Result<Arc<Self>, AllocateError> {
        if length == 0 {
            return Err(AllocateError::Invalid);
        }
        let limit = Limits::DEVICE.device_memory;
        let with_more = |taken: u64| taken.checked_add(length).filter(|taken| *taken <= limit);
        let taken = device.resources.device_memory.fetch_update(AcqRel, Relaxed, with_more);
        taken.map_err(|_| AllocateError::Exhausted)?;
        match Allocation::new(length as usize) {
            Ok(memory) => {
                let (device, regions) = (device.clone(), Dependents::default());
                Ok(Arc::new(Self { device, memory, length, regions }))
            }
            Err(_) => {
                device.resources.device_memory.fetch_sub(length, AcqRel);
                Err(AllocateError::Exhausted)
            }
        }
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The address of a range in it. `None` if the range is not within it.
    pub(super) fn range(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then(|| self.memory.first().as_ptr() as u64 + offset)
    }

    /// Copies the program's bytes to `offset`.
    pub fn write(&self, offset: u64, from: u64, length: u64) -> io::Result<()> {
        let to = Destination::Program(self.copy_range(offset, length)?);
        self.copy(to, Source::Program(from), length)
    }

    /// Copies bytes from `offset` to the program.
    pub fn read(&self, offset: u64, to: u64, length: u64) -> io::Result<()> {
        let from = Source::Program(self.copy_range(offset, length)?);
        self.copy(Destination::Program(to), from, length)
    }

    fn copy(&self, to: Destination<'_>, from: Source<'_>, length: u64) -> io::Result<()> {
        let copied = self.device.process().copier().copy(to, from, length);
        copied.map_err(|_: Fault| fault())
    }

    fn copy_range(&self, offset: u64, length: u64) -> io::Result<u64> {
        let whole = |at: u64| at.is_multiple_of(Self::COPY_UNIT);
        if !whole(offset) || !whole(length) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.range(offset, length).ok_or_else(fault)
    }

    /// Counts a region of it. Fails once it is freed.
    pub(super) fn adopt(&self) -> Result<(), Busy> {
        self.regions.adopt()
    }

    /// Counts one less.
    pub(super) fn release(&self) {
        self.regions.release();
    }

    /// Checks that no region of it is registered.
    pub fn check_unused(&self) -> Result<(), Busy> {
        self.regions.check_unused()
    }

    /// Gives it back to the device unless a region of it is registered. Its pages stay until the last reference is
    /// gone.
    pub fn close(&self) -> Result<(), Busy> {
        self.regions.close()?;
        self.device.resources.device_memory.fetch_sub(self.length, AcqRel);
        Ok(())
    }

    /// Whether it has been given back.
    pub fn is_closed(&self) -> bool {
        self.regions.is_closed()
    }
}

fn fault() -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}
