//! Queue pairs for datagrams (UD).

use crate::created_queue_pair::CreatedQueuePair;
use crate::error::check;
use crate::post::post_receive;
use crate::received::Receiving;
use crate::request::Toward;
use crate::{
    CompletionQueue, Datagram, Destination, Gid, Operation, Payload, Posted, ProtectionDomain,
    QueuePair, QueuePairBuilder, Request, Result, Slice,
};
use std::fmt;
use std::sync::{Arc, PoisonError};
use transom_abi::ibv_gid;

/// A queue pair that sends datagrams to any peer and receives them from any peer. A datagram is a message of at most
/// one packet. It arrives whole or not at all, and nobody tells the sender (rules UD-03 to UD-05).
///
/// ```
/// use transom::{
///     Access, AddressHandle, CompletionQueue, Destination, MemoryRegion, ProtectionDomain,
///     Provider, QueuePair, ReceivedDatagram,
/// };
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 16)?;
/// let builder = QueuePair::datagram(&pd, &cq).qkey(0x1234);
/// let (a, b) = (builder.build()?, builder.build()?);
///
/// // Before its payload, every datagram has a header of 40 bytes in the buffer.
/// let inbox = MemoryRegion::register(&pd, vec![0; 2 * 104], Access::LOCAL_WRITE)?;
/// let at_a = a.receive(&inbox.slice(0..104)?)?;
/// let at_b = b.receive(&inbox.slice(104..208)?)?;
///
/// // Endpoints are plain values that the peers tell each other.
/// let address = AddressHandle::new(&pd, b.endpoint())?;
/// let to_b = Destination { address, queue_pair: b.number(), qkey: 0x1234 };
/// a.send(&to_b, b"ping")?.wait()?;
///
/// // The receiver of a datagram can answer it.
/// let ping: ReceivedDatagram = at_b.wait()?;
/// assert_eq!(ping.to_vec(), b"ping");
/// assert_eq!(ping.source().queue_pair, a.number());
/// b.send(&ping.sender(&b, 0x1234)?, b"pong")?.wait()?;
/// assert_eq!(at_a.wait()?.to_vec(), b"pong");
/// # Ok::<(), transom::Error>(())
/// ```
///
/// A call that datagrams do not support does not compile:
///
/// ```compile_fail,E0599
/// # use transom::{Datagram, Grant, QueuePair};
/// fn write(queue_pair: QueuePair<Datagram>, grant: Grant) {
///     queue_pair.write(b"eight by", grant); // datagrams write nobody's memory
/// }
/// ```
impl QueuePair<Datagram> {
    /// Begins a queue pair for datagrams. All its completions go to one queue.
    pub fn datagram(
        pd: &ProtectionDomain,
        completions: &CompletionQueue,
    ) -> QueuePairBuilder<Datagram> {
        QueuePairBuilder::datagram(pd, completions)
    }

    /// Posts a receive. The next datagram goes into the slice: its header into the first 40 bytes, and its payload
    /// after that (rule UD-01). A datagram that does not fit is dropped, and the receive waits for the next (rule
    /// UD-04).
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the slice has no room for the header;
    /// [`Error::Verb`](crate::Error::Verb), ENOMEM if the receive queue is full;
    /// [`Error::CompletionQueueFull`](crate::Error::CompletionQueueFull);
    /// [`Error::SharedReceives`](crate::Error::SharedReceives) if it was built with a shared receive queue;
    /// [`Error::OtherContext`](crate::Error::OtherContext) if the slice belongs to another opened device.
    pub fn receive(&self, buffer: &Slice) -> Result<Receiving> {
        Receiving::post(buffer, |local| {
            post_receive(&self.inner, Operation::ReceiveDatagram, local)
        })
    }

    /// Posts a datagram; see `ibv_post_send(3)`. Its completion says that it was sent, not that it arrived.
    ///
    /// The completion fails with [`Status::LocalLength`](crate::Status::LocalLength) if the payload does not fit in one
    /// packet to its destination (rule UD-03). A payload of [`active_mtu`](crate::PortAttributes::active_mtu) bytes
    /// always fits; within a host, up to 4096 bytes fit. After such a failure the queue pair sends no more until you
    /// [`resume`](Self::resume) it.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): ENOMEM if the send queue is full, EINVAL for too many
    /// slices or inline bytes; [`Error::CompletionQueueFull`](crate::Error::CompletionQueueFull);
    /// [`Error::OtherContext`](crate::Error::OtherContext) if the address handle or a slice belongs to another opened
    /// device.
    pub fn send<'a>(&self, to: &Destination, payload: impl Into<Payload<'a>>) -> Result<Posted> {
        Request::send(payload).post(&self.inner, Toward::Datagram(to.clone()))
    }

    /// Posts a datagram with immediate data.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_immediate<'a>(
        &self,
        to: &Destination,
        payload: impl Into<Payload<'a>>,
        immediate: u32,
    ) -> Result<Posted> {
        Request::send_immediate(payload, immediate).post(&self.inner, Toward::Datagram(to.clone()))
    }

    /// Lets it send again after a datagram that failed (rule ST-18). It received datagrams all the time.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb), EINVAL if it is in the error state.
    pub fn resume(&self) -> Result<()> {
        self.inner.resume()
    }

    /// Joins a multicast group; see `ibv_attach_mcast(3)`. While the membership lives, datagrams to the group's GID
    /// arrive here, if they name the right key and come from another queue pair.
    ///
    /// ```
    /// # use transom::{
    /// #     Access, AddressHandle, CompletionQueue, Destination, Gid, MemoryRegion,
    /// #     ProtectionDomain, Provider, QueuePair,
    /// # };
    /// # let context = transom::devices(&Provider::software())?[0].open()?;
    /// # let pd = ProtectionDomain::new(&context)?;
    /// # let cq = CompletionQueue::new(&context, 16)?;
    /// # let builder = QueuePair::datagram(&pd, &cq).qkey(0x1234);
    /// # let (a, b) = (builder.build()?, builder.build()?);
    /// # let inbox = MemoryRegion::register(&pd, vec![0; 104], Access::LOCAL_WRITE)?;
    /// let group = Gid("ff0e::1:2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    /// let received = b.receive(&inbox.all())?;
    /// let membership = b.join(group)?;
    ///
    /// let address = AddressHandle::new(&pd, group)?;
    /// let everybody = Destination { address, queue_pair: Destination::GROUP, qkey: 0x1234 };
    /// a.send(&everybody, b"hear, hear")?.wait()?;
    /// assert_eq!(received.wait()?.to_vec(), b"hear, hear");
    /// drop(membership);
    /// # Ok::<(), transom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): EINVAL if the GID is not that of a multicast group, ENOMEM if the device
    /// has no more groups or members.
    pub fn join(&self, group: Gid) -> Result<Membership> {
        let mut groups = self.inner.groups.lock().unwrap_or_else(PoisonError::into_inner);
        // The verbs do not count memberships.
        if !groups.contains(&group) {
            let verbs = self.inner.device().provider.verbs;
            let raw = ibv_gid { raw: group.0 };
            // SAFETY: the queue pair exists and the GID is valid.
            let result = unsafe { (verbs.ibv_attach_mcast)(self.inner.qp, &raw const raw, 0) };
            check("ibv_attach_mcast", format_args!("joining {group}, {}", self.inner), result)?;
        }
        groups.push(group);
        Ok(Membership { group, queue_pair: self.inner.clone() })
    }
}

/// The membership of a queue pair in a multicast group. From [`QueuePair::join`].
///
/// Dropping it leaves the group, unless the queue pair has joined it more than once. While it lives, the queue pair is
/// not destroyed.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// use transom::{Gid, QueuePair};
///
/// let queue_pair = QueuePair::datagram(&pd, &cq).qkey(7).build()?;
/// let mut group = Gid([0; 16]);
/// (group.0[0], group.0[1], group.0[15]) = (0xff, 0x01, 0x77); // ff01::77
/// let membership = queue_pair.join(group)?;
/// drop(membership); // datagrams to the group do not arrive any more
/// # Ok::<(), transom::Error>(())
/// ```
#[must_use = "the queue pair leaves the group when this is dropped"]
pub struct Membership {
    group: Gid,
    queue_pair: Arc<CreatedQueuePair>,
}

impl Membership {
    /// The group.
    pub fn group(&self) -> Gid {
        self.group
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.queue_pair.device().is_inherited() {
            return;
        }
        let mut groups = self.queue_pair.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = groups.iter().position(|group| *group == self.group) {
            groups.swap_remove(at);
        }
        if !groups.contains(&self.group) {
            let verbs = self.queue_pair.device().provider.verbs;
            let raw = ibv_gid { raw: self.group.0 };
            // SAFETY: the queue pair exists. If the device refuses, it stays a member, so the queue pair
            // stays too.
            unsafe { (verbs.ibv_detach_mcast)(self.queue_pair.qp, &raw const raw, 0) };
        }
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Membership").field(&self.group).finish()
    }
}
