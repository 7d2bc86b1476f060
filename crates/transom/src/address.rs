//! The destinations of datagrams.

use crate::context::OpenDevice;
use crate::domain::AllocatedDomain;
use crate::error::non_null;
use crate::keep::Held;
use crate::{Endpoint, Gid, ProtectionDomain, Result};
use std::fmt;
use std::sync::Arc;
use transom_abi::*;

/// The address of a port or a multicast group, and the way there.
///
/// It is a plain value. An [`Endpoint`] or a [`Gid`] converts into one. It then uses port 1 with GID 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The GID of the port or group.
    pub gid: Gid,
    /// The LID of the port. 0 on Ethernet.
    pub lid: u16,
    /// The port of this side to send from.
    pub port: u8,
    /// The sender's GID, as an index into that port's GID table.
    pub gid_index: u8,
    /// The traffic class. On Ethernet (RoCE) it becomes that of IP (rule UD-09).
    pub traffic_class: u8,
}

impl From<Gid> for Address {
    fn from(gid: Gid) -> Self {
        Self { gid, lid: 0, port: 1, gid_index: 0, traffic_class: 0 }
    }
}

impl From<Endpoint> for Address {
    fn from(endpoint: Endpoint) -> Self {
        Self { lid: endpoint.lid, ..endpoint.gid.into() }
    }
}

/// An address handle; see `ibv_create_ah(3)`.
///
/// It belongs to a protection domain. Only queue pairs of that domain can send to it. Clones refer to the same handle.
/// Posted datagrams hold it too. It is destroyed when the last of them is gone.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// use transom::{Address, AddressHandle, Gid};
///
/// // A port by its GID: here the device's own.
/// let gid: Gid = context.gid(1, 0)?;
/// let handle = AddressHandle::new(&pd, gid)?;
///
/// // The same port, with all parts of the address.
/// let handle = AddressHandle::new(&pd, Address { traffic_class: 32, ..Address::from(gid) })?;
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone)]
pub struct AddressHandle {
    inner: Arc<CreatedAddress>,
}

impl AddressHandle {
    /// Makes a handle.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): EINVAL if there is no such port or GID index here,
    /// ENOMEM if the device has no more handles.
    pub fn new(pd: &ProtectionDomain, to: impl Into<Address>) -> Result<Self> {
        let Address { gid, lid, port, gid_index, traffic_class } = to.into();
        let mut attributes = ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: gid.0 },
                sgid_index: gid_index,
                hop_limit: 64,
                traffic_class,
                ..ibv_global_route::default()
            },
            is_global: 1,
            dlid: lid,
            port_num: port,
            ..ibv_ah_attr::default()
        };
        let domain = pd.inner.clone();
        // SAFETY: the domain is allocated and the attributes are valid.
        let ah =
            unsafe { (domain.device.provider.verbs.ibv_create_ah)(domain.pd, &raw mut attributes) };
        let subject = format_args!("making an address handle for {gid}");
        let ah = non_null("ibv_create_ah", subject, ah)?.as_ptr();
        Ok(Self { inner: Arc::new(CreatedAddress { ah, domain }) })
    }

    /// # Safety
    /// The handle was made just now, in this domain, and nobody else has it.
    pub(crate) unsafe fn from_raw(ah: *mut ibv_ah, domain: Arc<AllocatedDomain>) -> Self {
        Self { inner: Arc::new(CreatedAddress { ah, domain }) }
    }

    pub(crate) fn ah(&self) -> *mut ibv_ah {
        self.inner.ah
    }

    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.inner.domain.device
    }

    /// The object that a posted datagram keeps.
    pub(crate) fn held(&self) -> Arc<dyn Held> {
        self.inner.clone()
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressHandle").field(&self.inner.ah).finish()
    }
}

/// The destination of a datagram.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// use transom::{AddressHandle, Destination, QueuePair};
///
/// let builder = QueuePair::datagram(&pd, &cq).qkey(7);
/// let (a, b) = (builder.build()?, builder.build()?);
/// let address = AddressHandle::new(&pd, b.endpoint())?;
/// let to_b = Destination { address, queue_pair: b.number(), qkey: 7 };
/// a.send(&to_b, b"to whom it may concern")?.wait()?;
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Destination {
    /// The port, or the multicast group.
    pub address: AddressHandle,
    /// The number of the queue pair there, or [`Destination::GROUP`] for a multicast group.
    pub queue_pair: u32,
    /// The key that its queue pairs require. If the highest bit is set, the sender's own key is used (rule
    /// UD-06).
    pub qkey: u32,
}

impl Destination {
    /// The queue pair number for all members of a multicast group.
    pub const GROUP: u32 = 0xff_ffff;
}

/// The handle itself. Outstanding requests that name it hold it.
struct CreatedAddress {
    ah: *mut ibv_ah,
    domain: Arc<AllocatedDomain>,
}

// SAFETY: libibverbs is thread-safe. Any thread may use and destroy a handle.
unsafe impl Send for CreatedAddress {}
// SAFETY: as for `Send`.
unsafe impl Sync for CreatedAddress {}

impl Held for CreatedAddress {}

impl Drop for CreatedAddress {
    fn drop(&mut self) {
        if self.domain.device.is_inherited() {
            return;
        }
        // SAFETY: nobody else has the handle, and no request names it any more.
        if unsafe { (self.domain.device.provider.verbs.ibv_destroy_ah)(self.ah) } != 0 {
            // The handle stays, so its domain must stay.
            std::mem::forget(self.domain.clone());
        }
    }
}
