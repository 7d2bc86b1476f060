//! Protection domains.

use crate::context::OpenDevice;
use crate::error::non_null;
use crate::{Context, Result};
use std::sync::Arc;
use transom_abi::ibv_pd;

/// A protection domain; see `ibv_alloc_pd(3)`.
///
/// Queue pairs reach only regions and windows of their own domain. Clones refer to the same domain. It is freed when
/// the last clone and the last object in it are gone (rules PD-02 to PD-04).
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// use transom::{Access, MemoryRegion, ProtectionDomain};
///
/// // Objects of one domain can be used together.
/// let pd = ProtectionDomain::new(&context)?;
/// let region = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE)?;
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<AllocatedDomain>,
}

impl ProtectionDomain {
    /// Allocates a domain (rule PD-01).
    ///
    /// # Errors
    /// [`crate::Error::Verb`], ENOMEM if the device has no more domains.
    pub fn new(context: &Context) -> Result<Self> {
        let device = context.inner.clone();
        // SAFETY: the context is open.
        let pd = unsafe { (device.provider.verbs.ibv_alloc_pd)(device.context) };
        let subject = format_args!("allocating a protection domain on {}", context.name());
        let pd = non_null("ibv_alloc_pd", subject, pd)?.as_ptr();
        Ok(Self { inner: Arc::new(AllocatedDomain { pd, device }) })
    }

    /// The device it belongs to.
    pub fn context(&self) -> Context {
        Context { inner: self.inner.device.clone() }
    }
}

/// The domain itself. Every object in it holds it.
#[derive(Debug)]
pub(crate) struct AllocatedDomain {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) device: Arc<OpenDevice>,
}

// SAFETY: libibverbs is thread-safe. Any thread may use and free a domain.
unsafe impl Send for AllocatedDomain {}
// SAFETY: as for `Send`.
unsafe impl Sync for AllocatedDomain {}

impl Drop for AllocatedDomain {
    fn drop(&mut self) {
        if self.device.is_inherited() {
            return;
        }
        // SAFETY: every object in the domain holds this, so none is left.
        if unsafe { (self.device.provider.verbs.ibv_dealloc_pd)(self.pd) } != 0 {
            // The domain stays, so its device must stay open.
            std::mem::forget(self.device.clone());
        }
    }
}
