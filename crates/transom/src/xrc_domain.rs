//! XRC domains: the shared receive queues that an extended reliable connection reaches.

use crate::context::OpenDevice;
use crate::error::{non_null, unsupported};
use crate::extended::extended;
use crate::{Context, Result};
use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use transom_abi::*;

/// An XRC domain: the shared receive queues that the [`XrcTarget`](crate::XrcTarget)s in it reach; see
/// `ibv_open_xrcd(3)`.
///
/// Clones refer to the same domain. It is closed when the last clone and the last object in it are gone.
///
/// ```
/// use transom::{
///     Access, CompletionQueue, MemoryRegion, ProtectionDomain, Provider, QueuePair,
///     SharedReceiveQueue, XrcDomain,
/// };
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 16)?;
///
/// // The receiving side: one target, and any number of shared receive queues.
/// let domain = XrcDomain::private(&context)?;
/// let shared = SharedReceiveQueue::xrc(&pd, &cq, &domain, 8, 1)?;
/// let target = QueuePair::xrc_target(&domain).build()?;
///
/// // The sending side.
/// let initiator = QueuePair::xrc_initiator(&pd, &cq).build()?;
/// target.connect(&initiator.endpoint())?;
/// let initiator = initiator.connect(&target.endpoint())?;
///
/// let inbox = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE)?;
/// let received = shared.receive(&[inbox.all()])?;
/// initiator.send(shared.number()?, b"to this one")?.wait()?;
/// assert_eq!(received.wait()?.length(), 11);
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct XrcDomain {
    pub(crate) inner: Arc<OpenedXrcDomain>,
}

impl XrcDomain {
    /// Opens a domain that nobody else can open.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): EOPNOTSUPP if the device has no XRC, ENOMEM if it has no more
    /// domains.
    pub fn private(context: &Context) -> Result<Self> {
        Self::open(context, -1)
    }

    /// Opens the domain of a file. All processes that open the same file with the same device get the same domain. The
    /// file need not stay open.
    ///
    /// # Errors
    /// As [`private`](Self::private).
    pub fn of_file(context: &Context, file: impl AsFd) -> Result<Self> {
        Self::open(context, file.as_fd().as_raw_fd())
    }

    fn open(context: &Context, fd: c_int) -> Result<Self> {
        const VERB: &str = "ibv_open_xrcd";
        let device = context.inner.clone();
        let open_xrcd = extended!(device, open_xrcd).ok_or_else(|| unsupported(VERB))?;
        let mut attributes = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd,
            oflags: rustix::fs::OFlags::CREATE.bits() as c_int,
        };
        // SAFETY: the context is open and the attributes are valid.
        let xrcd = unsafe { open_xrcd(device.context, &raw mut attributes) };
        let subject = format_args!("opening an XRC domain on {}", context.name());
        let xrcd = non_null(VERB, subject, xrcd)?.as_ptr();
        Ok(Self { inner: Arc::new(OpenedXrcDomain { xrcd, device }) })
    }
}

/// The domain itself. Every object in it holds it.
pub(crate) struct OpenedXrcDomain {
    pub(crate) xrcd: *mut ibv_xrcd,
    pub(crate) device: Arc<OpenDevice>,
}

// SAFETY: libibverbs is thread-safe. Any thread may use and close a domain.
unsafe impl Send for OpenedXrcDomain {}
// SAFETY: as for `Send`.
unsafe impl Sync for OpenedXrcDomain {}

impl Drop for OpenedXrcDomain {
    fn drop(&mut self) {
        if self.device.is_inherited() {
            return;
        }
        let close_xrcd = extended!(self.device, close_xrcd);
        // SAFETY: every object in the domain holds this, so none is left.
        let closed = close_xrcd.is_some_and(|close_xrcd| unsafe { close_xrcd(self.xrcd) } == 0);
        if !closed {
            // The domain stays, so its device must stay open.
            std::mem::forget(self.device.clone());
        }
    }
}

impl fmt::Debug for OpenedXrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedXrcDomain").field(&self.xrcd).finish()
    }
}
