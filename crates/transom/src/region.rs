//! Memory regions, and slices of them.

use crate::buffer::Buffer;
use crate::copy::{Extent, check_range};
use crate::domain::AllocatedDomain;
use crate::error::{check, non_null};
use crate::keep::Held;
use crate::{Error, Grant, ProtectionDomain, Refused, Result, Rights};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use transom_abi::*;

bitflags::bitflags! {
    /// The uses of a memory region; see `ibv_reg_mr(3)` and rules MR-01 to MR-07.
    ///
    /// This side may always read it. The flags allow more: to this side, to the peer with the region's own key, and to
    /// windows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// This side's device may write it: for receives, and for the results of reads and atomics.
        const LOCAL_WRITE = IBV_ACCESS_LOCAL_WRITE;
        /// The peer may write it. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = IBV_ACCESS_REMOTE_WRITE;
        /// The peer may read it.
        const REMOTE_READ = IBV_ACCESS_REMOTE_READ;
        /// The peer may do atomic operations on it. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = IBV_ACCESS_REMOTE_ATOMIC;
        /// You may bind windows to it. Windows that grant writes or atomics also need `LOCAL_WRITE`, but none of the
        /// `REMOTE` flags.
        const MW_BIND = IBV_ACCESS_MW_BIND;
    }
}

/// A memory region that owns its buffer; see `ibv_reg_mr(3)`.
///
/// While the buffer is registered, the device may write it, and through the device the peer. So you copy bytes in and
/// out, and get no reference before [`deregister`](Self::deregister) gives the buffer back.
///
/// Clones refer to the same region. Slices, bound windows and outstanding requests hold it too. It is deregistered when
/// the last of them is gone.
///
/// ```
/// use transom::{Access, MemoryRegion, ProtectionDomain, Provider};
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let region = MemoryRegion::register(&pd, vec![0; 4096], Access::LOCAL_WRITE)?;
/// region.write_at(7, b"hello")?;
/// let buffer = region.deregister()?;
/// assert_eq!(&buffer[7..12], b"hello");
/// # Ok::<(), transom::Error>(())
/// ```
pub struct MemoryRegion<B: Buffer> {
    registration: Arc<Registration<B>>,
}

impl<B: Buffer> MemoryRegion<B> {
    /// Registers a buffer (rule MR-14).
    ///
    /// # Errors
    /// Gives the buffer back with [`Error::Verb`]: EINVAL if the peer may write or do atomics but
    /// `LOCAL_WRITE` is missing (rules MR-04, MR-05), ENOMEM if there are too many regions or too much locked memory.
    pub fn register(pd: &ProtectionDomain, buffer: B, access: Access) -> Result<Self, Refused<B>> {
        // The buffer stays in this box until it is deregistered. So the pointer taken from it keeps its right
        // to the bytes.
        let mut buffer = Box::new(UnsafeCell::new(buffer));
        let length = buffer.get_mut().len();
        let address = match length {
            // The pointer of an empty buffer may point to no page, and a driver that pins its page would fail. The box
            // has a page, and nobody touches it through a region without bytes.
            0 => buffer.get().cast(),
            _ => buffer.get_mut().as_mut_ptr(),
        };
        let domain = pd.inner.clone();
        let flags = access.bits() as c_int;
        // SAFETY: the domain is allocated. The buffer's memory stays as long as this region does,
        // and nobody has references to it, by the contract of `Buffer`.
        let mr = unsafe {
            (domain.device.provider.verbs.ibv_reg_mr)(domain.pd, address.cast(), length, flags)
        };
        let subject = format_args!("registering {length} bytes at {address:p} with {access:?}");
        let mr = match non_null("ibv_reg_mr", subject, mr) {
            Ok(mr) => mr.as_ptr(),
            Err(error) => return Err(Refused { returned: buffer.into_inner(), error }),
        };
        // SAFETY: as for the registration; `Buffer` says the memory is initialised.
        let extent = unsafe { Extent::new(address, length, "the memory region") };
        let registration = Registration { mr, extent, access, buffer: Some(buffer), domain };
        Ok(Self { registration: Arc::new(registration) })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.registration.extent.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out, from `offset` on. Each aligned 8-byte word is read whole.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they are not all within the region.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.registration.extent.read_at(offset, bytes)
    }

    /// Copies bytes in, from `offset` on. Each aligned 8-byte word is written whole.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not all fit into the region.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.registration.extent.write_at(offset, bytes)
    }

    /// A part of the region, for a request or a window.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it is not all within the region.
    pub fn slice(&self, range: Range<usize>) -> Result<Slice> {
        let (start, end) = (range.start as u64, range.end as u64);
        check_range("the memory region", start..end, self.len() as u64)?;
        let address = self.registration.extent.as_ptr().addr() + range.start;
        Ok(Slice {
            address: address as u64,
            length: range.len(),
            region: self.registration.clone(),
        })
    }

    /// The whole region as a slice.
    pub fn all(&self) -> Slice {
        let address = self.registration.extent.as_ptr().addr() as u64;
        Slice { address, length: self.len(), region: self.registration.clone() }
    }

    /// The rights of a peer that has the region's own key, without any window.
    ///
    /// Such a grant ends only with the region. To revoke a grant earlier, use a [`Window`](crate::Window).
    pub fn grant(&self) -> Grant {
        let rights = Rights::from_access_flags(self.registration.access.bits());
        let addr = self.registration.extent.as_ptr().addr() as u64;
        // SAFETY: the region is registered.
        let rkey = unsafe { (*self.registration.mr).rkey };
        Grant { addr, rkey, length: self.len() as u64, rights }
    }

    /// Deregisters the region and gives its buffer back; see `ibv_dereg_mr(3)`. Afterwards no peer and no device
    /// touches it (rules DR-01, DR-15).
    ///
    /// # Errors
    /// Gives the region back with [`Error::InUse`] while a clone, a slice, a bound window or a request refers to it, or
    /// with [`Error::Verb`] if the device refuses. A request does so until you have its completion or, if you have
    /// dropped its ticket, until its completion is taken from the queue.
    pub fn deregister(self) -> Result<B, Refused<Self>> {
        let mut registration = match Arc::try_unwrap(self.registration) {
            Ok(registration) => registration,
            Err(registration) => {
                let users = Arc::strong_count(&registration).saturating_sub(1);
                let error = Error::InUse { users };
                return Err(Refused { returned: Self { registration }, error });
            }
        };
        match registration.deregister() {
            Ok(buffer) => Ok(buffer.into_inner()),
            Err(error) => {
                let registration = Arc::new(registration);
                Err(Refused { returned: Self { registration }, error })
            }
        }
    }
}

impl<B: Buffer> Clone for MemoryRegion<B> {
    fn clone(&self) -> Self {
        Self { registration: self.registration.clone() }
    }
}

impl<B: Buffer> fmt::Debug for MemoryRegion<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("address", &self.registration.extent.as_ptr())
            .field("length", &self.len())
            .field("access", &self.registration.access)
            .finish()
    }
}

/// A part of a memory region. It holds the region, and so does each request that is posted with it.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// use transom::{Access, MemoryRegion};
///
/// let region = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE)?;
/// let page = region.slice(16..48)?;
/// page.slice(8..16)?.write_at(0, b"8 bytes.")?;
/// let mut bytes = [0; 8];
/// region.read_at(24, &mut bytes)?;
/// assert_eq!(&bytes, b"8 bytes.");
/// assert!(page.slice(30..40).is_err());
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone)]
pub struct Slice {
    pub(crate) address: u64,
    length: usize,
    pub(crate) region: Arc<dyn Registered>,
}

impl Slice {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part of it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it is not all within the slice.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        let (start, end) = (range.start as u64, range.end as u64);
        check_range("the slice", start..end, self.length as u64)?;
        let address = self.address + start;
        Ok(Self { address, length: range.len(), region: self.region.clone() })
    }

    /// Copies bytes out, as [`MemoryRegion::read_at`] does.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they are not all within the slice.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let at = self.offset(offset, bytes.len())?;
        self.region.extent().read_at(at, bytes)
    }

    /// Copies bytes in, as [`MemoryRegion::write_at`] does.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not all fit into the slice.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let at = self.offset(offset, bytes.len())?;
        self.region.extent().write_at(at, bytes)
    }

    /// The offset in the region of these bytes of the slice.
    fn offset(&self, offset: usize, length: usize) -> Result<usize> {
        let range = offset as u64..(offset as u64).saturating_add(length as u64);
        check_range("the slice", range, self.length as u64)?;
        Ok(self.address as usize - self.region.extent().as_ptr().addr() + offset)
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes at {:#x})", self.length, self.address)
    }
}

/// A registered region with any buffer.
pub(crate) trait Registered: Held {
    /// The region, valid as long as this is held.
    fn mr(&self) -> *mut ibv_mr;

    /// Its bytes.
    fn extent(&self) -> &Extent;
}

/// The registration itself.
struct Registration<B> {
    mr: *mut ibv_mr,
    extent: Extent,
    access: Access,
    /// `None` once it is deregistered. Nothing touches the buffer before.
    buffer: Option<Box<UnsafeCell<B>>>,
    domain: Arc<AllocatedDomain>,
}

// SAFETY: libibverbs is thread-safe, and a `Buffer` is `Send`.
unsafe impl<B: Buffer> Send for Registration<B> {}
// SAFETY: as for `Send`. Threads share only the extent, never the buffer itself.
unsafe impl<B: Buffer> Sync for Registration<B> {}

impl<B> Registration<B> {
    fn deregister(&mut self) -> Result<Box<UnsafeCell<B>>> {
        // SAFETY: the region is registered, because the buffer is still here. `self` is borrowed mutably, so nobody
        // else uses it.
        let result = unsafe { (self.domain.device.provider.verbs.ibv_dereg_mr)(self.mr) };
        let subject = format_args!("deregistering {} bytes", self.extent.len());
        check("ibv_dereg_mr", subject, result)?;
        Ok(self.buffer.take().expect("a region is deregistered once"))
    }
}

impl<B: Buffer> Held for Registration<B> {}

impl<B: Buffer> Registered for Registration<B> {
    fn mr(&self) -> *mut ibv_mr {
        self.mr
    }

    fn extent(&self) -> &Extent {
        &self.extent
    }
}

impl<B> Drop for Registration<B> {
    fn drop(&mut self) {
        if self.buffer.is_none() {
            return;
        }
        if self.domain.device.is_inherited() || self.deregister().is_err() {
            // The device may go on using the memory and the domain, so both must stay. A forked child may not even have
            // the memory (`ibv_fork_init(3)`).
            std::mem::forget(self.buffer.take());
            std::mem::forget(self.domain.clone());
        }
    }
}
