//! Work requests.

use crate::address::Destination;
use crate::copy::check_range;
use crate::created_queue_pair::CreatedQueuePair;
use crate::keep::Keep;
use crate::post::{check_regions, post_send, regions, sge_length, with_sges};
use crate::{Error, Operation, Posted, RemoteSlice, Result, Slice};
use std::ffi::c_int;
use std::sync::Arc;
use transom_abi::*;

/// The source of a send's or a write's bytes.
///
/// The device reads slices of regions when it carries out the request. Plain bytes are copied while you post (inline).
/// They may not be longer than the queue pair's inline size.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Slices of memory regions, one after the other.
    Slices(&'a [Slice]),
    /// Bytes to be copied while posting.
    Inline(&'a [u8]),
}

impl Payload<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Slices(slices) => total(slices),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

impl<'a> From<&'a [Slice]> for Payload<'a> {
    fn from(slices: &'a [Slice]) -> Self {
        Self::Slices(slices)
    }
}

impl<'a, const N: usize> From<&'a [Slice; N]> for Payload<'a> {
    fn from(slices: &'a [Slice; N]) -> Self {
        Self::Slices(slices)
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Inline(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Inline(bytes)
    }
}

/// A request for the send queue; see `ibv_post_send(3)`.
///
/// The methods of [`QueuePair`](crate::QueuePair) make and post one. Make it yourself to fence it, and give it to
/// [`QueuePair::post`](crate::QueuePair::post).
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// # let builder = transom::QueuePair::builder(&pd, &cq);
/// # let (a, b) = (builder.build()?, builder.build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// use transom::{Access, MemoryRegion, Request};
///
/// # let local = MemoryRegion::register(&pd, vec![0; 4], Access::LOCAL_WRITE)?;
/// # let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
/// # let region = MemoryRegion::register(&pd, vec![0; 4], access)?;
/// # let grant = region.grant();
/// // The fence makes the write wait until the read has brought its bytes.
/// let here = [local.all()];
/// let read = a.post(Request::read(&here, grant))?;
/// let written = a.post(Request::write(b"next", grant).fence())?;
/// read.wait()?;
/// written.wait()?;
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub(crate) operation: Operation,
    pub(crate) payload: Payload<'a>,
    remote: Option<RemoteSlice>,
    /// The verbs' form of the operation, with its other arguments.
    pub(crate) wr: ibv_send_wr,
}

// SAFETY: the pointers in `wr` are null until `post`, which takes the request.
unsafe impl Send for Request<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Request<'_> {}

/// The destination of a request.
#[derive(Clone, Debug)]
pub(crate) enum Toward {
    /// To the peer the queue pair is connected to.
    Peer,
    /// To a queue pair that takes datagrams.
    Datagram(Destination),
    /// To the peer's shared receive queue of this number (XRC).
    Shared(u32),
}

impl<'a> Request<'a> {
    /// Sends a message, which consumes a receive of the peer. If the peer has posted none, the message waits for one, on
    /// a reliable connection without end unless you set
    /// [`receiver_not_ready_retries`](crate::QueuePairBuilder::receiver_not_ready_retries). On an unreliable one it is
    /// lost.
    pub fn send(payload: impl Into<Payload<'a>>) -> Self {
        Self::new(Operation::Send, IBV_WR_SEND, payload.into(), None)
    }

    /// Sends a message with immediate data.
    pub fn send_immediate(payload: impl Into<Payload<'a>>, immediate: u32) -> Self {
        let mut request = Self::new(Operation::Send, IBV_WR_SEND_WITH_IMM, payload.into(), None);
        request.wr.imm.imm_data = immediate.to_be();
        request
    }

    /// Sends a message. Before the peer sees it, the send invalidates a type 2 window of the peer (rules
    /// INV-30 to INV-48).
    pub fn send_invalidate(payload: impl Into<Payload<'a>>, rkey: u32) -> Self {
        let mut request = Self::new(Operation::Send, IBV_WR_SEND_WITH_INV, payload.into(), None);
        request.wr.imm.invalidate_rkey = rkey;
        request
    }

    /// Writes to the start of the peer's slice.
    pub fn write(payload: impl Into<Payload<'a>>, remote: impl Into<RemoteSlice>) -> Self {
        Self::new(Operation::Write, IBV_WR_RDMA_WRITE, payload.into(), Some(remote.into()))
    }

    /// Writes to the start of the peer's slice, then consumes a receive of the peer. That receive gets the
    /// immediate data. If the peer has posted none, it waits as a [`send`](Self::send) does.
    pub fn write_immediate(
        payload: impl Into<Payload<'a>>,
        remote: impl Into<RemoteSlice>,
        immediate: u32,
    ) -> Self {
        let opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        let mut request = Self::new(Operation::Write, opcode, payload.into(), Some(remote.into()));
        request.wr.imm.imm_data = immediate.to_be();
        request
    }

    /// Reads as many bytes as the local slices have, from the start of the peer's slice.
    pub fn read(local: &'a [Slice], remote: impl Into<RemoteSlice>) -> Self {
        let payload = Payload::Slices(local);
        Self::new(Operation::Read, IBV_WR_RDMA_READ, payload, Some(remote.into()))
    }

    /// Replaces the peer's 8-byte word at the start of its slice by `swap` if it equals `compare`. The local slice of 8
    /// bytes gets the old value, in this machine's byte order.
    pub fn compare_swap(
        local: &'a Slice,
        remote: impl Into<RemoteSlice>,
        compare: u64,
        swap: u64,
    ) -> Self {
        let opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        Self::atomic(Operation::CompareSwap, opcode, local, remote.into(), compare, swap)
    }

    /// Adds to the peer's 8-byte word at the start of its slice, wrapping around. The local slice of 8 bytes gets the
    /// old value, in this machine's byte order.
    pub fn fetch_add(local: &'a Slice, remote: impl Into<RemoteSlice>, add: u64) -> Self {
        let opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        Self::atomic(Operation::FetchAdd, opcode, local, remote.into(), add, 0)
    }

    /// Writes 8 bytes to the start of the peer's slice, which must be aligned to 8 bytes. A reader there sees all of
    /// them or none. The bytes are copied while you post. The grant must have the right to write.
    ///
    /// Only newer devices support it, and only on a reliable connection.
    pub fn atomic_write(word: &'a [u8; 8], remote: impl Into<RemoteSlice>) -> Self {
        let opcode = IBV_WR_ATOMIC_WRITE;
        Self::new(Operation::AtomicWrite, opcode, word.into(), Some(remote.into()))
    }

    /// Delays the request until all earlier reads and atomics of its queue pair are done (rule ORD-10).
    pub fn fence(mut self) -> Self {
        self.wr.send_flags |= IBV_SEND_FENCE;
        self
    }

    fn new(
        operation: Operation,
        opcode: ibv_wr_opcode,
        payload: Payload<'a>,
        remote: Option<RemoteSlice>,
    ) -> Self {
        let mut wr = ibv_send_wr { opcode, ..ibv_send_wr::default() };
        if let Some(RemoteSlice { addr, rkey, .. }) = remote {
            wr.wr.rdma = ibv_send_wr_rdma { remote_addr: addr, rkey };
        }
        Self { operation, payload, remote, wr }
    }

    fn atomic(
        operation: Operation,
        opcode: ibv_wr_opcode,
        local: &'a Slice,
        remote: RemoteSlice,
        compare_add: u64,
        swap: u64,
    ) -> Self {
        let payload = Payload::Slices(std::slice::from_ref(local));
        let mut request = Self::new(operation, opcode, payload, Some(remote));
        let (remote_addr, rkey) = (remote.addr, remote.rkey);
        request.wr.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey };
        request
    }

    /// Checks that its lengths agree, and that its slices and its destination belong to the queue pair's
    /// context.
    pub(crate) fn check(&self, queue_pair: &CreatedQueuePair, toward: &Toward) -> Result<()> {
        if let Toward::Datagram(to) = toward
            && !Arc::ptr_eq(to.address.device(), queue_pair.device())
        {
            return Err(Error::OtherContext { what: "address handle" });
        }
        if let Payload::Slices(slices) = self.payload {
            check_regions(slices, queue_pair.device())?;
        }
        if matches!(self.operation, Operation::CompareSwap | Operation::FetchAdd) {
            check_range("the local slice", 0..8, self.payload.len())?;
        }
        if let Some(remote) = self.remote {
            check_range("the peer's slice", 0..self.payload.len(), remote.length)?;
        }
        Ok(())
    }

    /// The objects that it keeps alive.
    pub(crate) fn keep(&self, toward: &Toward) -> Keep {
        let address = match toward {
            Toward::Datagram(to) => Some(to.address.held()),
            Toward::Peer | Toward::Shared(_) => None,
        };
        match self.payload {
            Payload::Slices(slices) => regions(slices).chain(address).collect(),
            Payload::Inline(_) => address.into_iter().collect(),
        }
    }

    /// Posts it.
    ///
    /// # Errors
    /// As [`QueuePair::post`](crate::QueuePair::post).
    pub(crate) fn post(
        mut self,
        queue_pair: &Arc<CreatedQueuePair>,
        toward: Toward,
    ) -> Result<Posted> {
        self.check(queue_pair, &toward)?;
        let keep = self.keep(&toward);
        match toward {
            Toward::Peer => {}
            Toward::Datagram(to) => {
                self.wr.wr.ud = ibv_send_wr_ud {
                    ah: to.address.ah(),
                    remote_qpn: to.queue_pair,
                    remote_qkey: to.qkey,
                };
            }
            Toward::Shared(remote_srqn) => self.wr.qp_type.xrc = ibv_send_wr_xrc { remote_srqn },
        }
        match self.payload {
            Payload::Slices(slices) => {
                with_sges(slices, |sg_list, num_sge| {
                    (self.wr.sg_list, self.wr.num_sge) = (sg_list, num_sge);
                    // SAFETY: the entries are slices of registered regions. `keep` holds the regions and the
                    // address handle.
                    unsafe { post_send(queue_pair, self.operation, self.wr, keep) }
                })
            }
            Payload::Inline(bytes) => {
                let length = sge_length(bytes.len())?;
                let mut sge = ibv_sge { addr: bytes.as_ptr().addr() as u64, length, lkey: 0 };
                (self.wr.sg_list, self.wr.num_sge) = (&raw mut sge, c_int::from(length > 0));
                self.wr.send_flags |= IBV_SEND_INLINE;
                // SAFETY: the bytes are readable while posting, and not needed afterwards. `keep` holds an
                // address handle.
                unsafe { post_send(queue_pair, self.operation, self.wr, keep) }
            }
        }
    }
}

fn total(slices: &[Slice]) -> u64 {
    slices.iter().map(|slice| slice.len() as u64).sum()
}
