//! Batches: several requests posted at once, all or none.

use crate::created_queue_pair::CreatedQueuePair;
use crate::error::{check, unsupported};
use crate::post::{sge_length, with_sges};
use crate::request::Toward;
use crate::{
    Connected, Datagram, Destination, Error, Operation, Payload, Posted, QueuePair, QueuePairState,
    Request, Result, XrcInitiator,
};
use std::marker::PhantomData;
use std::sync::Arc;
use transom_abi::*;

/// Requests that are posted at once, all of them or none; see `ibv_wr_post(3)` and rule PS-14. From
/// [`QueuePair::batch`].
///
/// Nothing is posted before [`post`](Self::post). If you drop the batch instead, nothing is posted at all. You can use
/// the queue pair for other requests meanwhile, because `post` hands over the whole batch at once.
///
/// ```
/// # use transom::{CompletionQueue, ProtectionDomain, Provider};
/// use transom::{Access, MemoryRegion, QueuePair, Request};
///
/// # let context = transom::devices(&Provider::software())?[0].open()?;
/// # let pd = ProtectionDomain::new(&context)?;
/// # let cq = CompletionQueue::new(&context, 16)?;
/// let builder = QueuePair::builder(&pd, &cq).batches();
/// let (a, b) = (builder.build()?, builder.build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// let region = MemoryRegion::register(&pd, vec![0; 16], access)?;
/// let told = b.receive(&[])?;
///
/// // Two writes, then a message that says that they are there.
/// let posted = a
///     .batch()
///     .push(Request::write(b"12345678", region.grant().slice(0..8)?))
///     .push(Request::write(b"abcdefgh", region.grant().slice(8..16)?))
///     .push(Request::send(b""))
///     .post()?;
/// told.wait()?;
/// let mut bytes = [0; 16];
/// region.read_at(0, &mut bytes)?;
/// assert_eq!(&bytes, b"12345678abcdefgh");
/// for request in posted {
///     request.wait()?;
/// }
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a batch is posted by its method post"]
pub struct Batch<'a, S: QueuePairState = Connected> {
    queue_pair: QueuePair<S>,
    requests: Vec<(Request<'a>, Toward)>,
}

impl QueuePair<Connected> {
    /// Begins a batch. The queue pair must have been built for
    /// [`batches`](crate::QueuePairBuilder::batches).
    pub fn batch<'a>(&self) -> Batch<'a, Connected> {
        Batch::new(self)
    }
}

impl QueuePair<Datagram> {
    /// Begins a batch. The queue pair must have been built for
    /// [`batches`](crate::QueuePairBuilder::batches).
    pub fn batch<'a>(&self) -> Batch<'a, Datagram> {
        Batch::new(self)
    }
}

impl QueuePair<XrcInitiator> {
    /// Begins a batch. The queue pair must have been built for
    /// [`batches`](crate::QueuePairBuilder::batches).
    pub fn batch<'a>(&self) -> Batch<'a, XrcInitiator> {
        Batch::new(self)
    }
}

impl<'a> Batch<'a, Connected> {
    /// Adds a request.
    pub fn push(self, request: Request<'a>) -> Self {
        self.with(request, Toward::Peer)
    }
}

impl<'a> Batch<'a, Datagram> {
    /// Adds a datagram.
    pub fn send(self, to: &Destination, payload: impl Into<Payload<'a>>) -> Self {
        self.with(Request::send(payload), Toward::Datagram(to.clone()))
    }

    /// Adds a datagram with immediate data.
    pub fn send_immediate(
        self,
        to: &Destination,
        payload: impl Into<Payload<'a>>,
        immediate: u32,
    ) -> Self {
        self.with(Request::send_immediate(payload, immediate), Toward::Datagram(to.clone()))
    }
}

impl<'a> Batch<'a, XrcInitiator> {
    /// Adds a request for the peer's shared receive queue of this number.
    pub fn push(self, shared: u32, request: Request<'a>) -> Self {
        self.with(request, Toward::Shared(shared))
    }
}

impl<'a, S: QueuePairState> Batch<'a, S> {
    fn new(queue_pair: &QueuePair<S>) -> Self {
        let queue_pair = QueuePair { inner: queue_pair.inner.clone(), state: PhantomData };
        Self { queue_pair, requests: Vec::new() }
    }

    fn with(mut self, request: Request<'a>, toward: Toward) -> Self {
        self.requests.push((request, toward));
        self
    }

    /// How many requests it has.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Posts all requests in this order and returns their tickets. If that fails, it posts none.
    ///
    /// # Errors
    /// [`Error::NotForBatches`]; or as posting them one by one: [`Error::Verb`], ENOMEM if the send queue has no room
    /// for all, EINVAL or EOPNOTSUPP if this queue pair does not support one of them; [`Error::CompletionQueueFull`];
    /// [`Error::OutOfRange`]; [`Error::OtherContext`].
    pub fn post(self) -> Result<Vec<Posted>> {
        let created = &self.queue_pair.inner;
        if created.extended.is_null() {
            return Err(Error::NotForBatches);
        }
        for (request, toward) in &self.requests {
            request.check(created, toward)?;
        }
        let kept = |(request, toward): &(Request<'a>, _)| (request.operation, request.keep(toward));
        let kept = self.requests.iter().map(kept).collect();
        Posted::post_all(created.send_queue(), created, kept, |wr_ids| {
            let begun = Begun::new(created)?;
            for ((request, toward), wr_id) in self.requests.iter().zip(wr_ids) {
                // SAFETY: the slots keep what the requests name.
                unsafe { begun.add(request, toward, *wr_id) }?;
            }
            begun.complete()
        })
    }
}

/// A batch that the verbs are building. Other threads that begin one must wait.
struct Begun<'q> {
    created: &'q Arc<CreatedQueuePair>,
}

/// An operation of the extended queue pair.
macro_rules! operation {
    ($created:expr, $name:ident) => {
        // SAFETY: the queue pair exists, and has an extended form if a batch is posted.
        unsafe { (*$created.extended).$name }
            .ok_or_else(|| unsupported(concat!("ibv_", stringify!($name))))?
    };
}

/// Calls an operation that adds to the batch. The arguments must be as its manual page says.
macro_rules! build {
    ($created:expr, $name:ident($($argument:expr),*)) => {{
        let operation = operation!($created, $name);
        let created: &CreatedQueuePair = $created;
        // SAFETY: the queue pair exists, and the batch is open. Addresses and keys of the peer may be any. The other
        // arguments are valid during the call, and the caller of `add` promises that they stay as long as they must.
        unsafe { operation(created.extended, $($argument),*) }
    }};
}

impl<'q> Begun<'q> {
    fn new(created: &'q Arc<CreatedQueuePair>) -> Result<Self> {
        // Both ways to end it must exist before it begins.
        operation!(created, wr_complete);
        operation!(created, wr_abort);
        build!(created, wr_start());
        Ok(Self { created })
    }

    /// Adds a request. It always asks for a completion.
    ///
    /// # Safety
    /// If the request is posted, the objects that it and its destination name stay until its completion.
    unsafe fn add(&self, request: &Request<'_>, toward: &Toward, wr_id: u64) -> Result<()> {
        let created = self.created;
        let mut flags = request.wr.send_flags | IBV_SEND_SIGNALED;
        if matches!(request.payload, Payload::Inline(_)) {
            // The setter says it already, but rxe looks here.
            flags |= IBV_SEND_INLINE;
        }
        // SAFETY: the queue pair exists, and belongs to this batch until the batch ends.
        unsafe {
            (*created.extended).wr_id = wr_id;
            (*created.extended).wr_flags = flags;
        }
        self.begin(request)?;
        match toward {
            Toward::Peer => {}
            Toward::Datagram(Destination { address, queue_pair, qkey }) => {
                build!(created, wr_set_ud_addr(address.ah(), *queue_pair, *qkey));
            }
            Toward::Shared(number) => build!(created, wr_set_xrc_srqn(*number)),
        }
        match request.payload {
            // The operation has taken its 8 bytes already.
            _ if request.operation == Operation::AtomicWrite => Ok(()),
            Payload::Slices(slices) => with_sges(slices, |list, count| {
                build!(created, wr_set_sge_list(count as usize, list));
                Ok(())
            }),
            Payload::Inline(bytes) => {
                sge_length(bytes.len())?;
                // The library only reads them.
                let address = bytes.as_ptr().cast_mut().cast();
                build!(created, wr_set_inline_data(address, bytes.len()));
                Ok(())
            }
        }
    }

    /// Begins a request with its operation.
    fn begin(&self, Request { wr, payload, .. }: &Request<'_>) -> Result<()> {
        let created = self.created;
        // SAFETY: the members are plain integers, so any operation has a value here.
        let ibv_send_wr_rdma { remote_addr: addr, rkey } = unsafe { wr.wr.rdma };
        // SAFETY: likewise.
        let (immediate, invalidate) = unsafe { (wr.imm.imm_data, wr.imm.invalidate_rkey) };
        match (wr.opcode, payload) {
            (IBV_WR_SEND, _) => build!(created, wr_send()),
            (IBV_WR_SEND_WITH_IMM, _) => build!(created, wr_send_imm(immediate)),
            (IBV_WR_SEND_WITH_INV, _) => build!(created, wr_send_inv(invalidate)),
            (IBV_WR_RDMA_WRITE, _) => build!(created, wr_rdma_write(rkey, addr)),
            (IBV_WR_RDMA_WRITE_WITH_IMM, _) => {
                build!(created, wr_rdma_write_imm(rkey, addr, immediate));
            }
            (IBV_WR_RDMA_READ, _) => build!(created, wr_rdma_read(rkey, addr)),
            (IBV_WR_ATOMIC_CMP_AND_SWP, _) => {
                // SAFETY: the operation is an atomic, so this member is set.
                let ibv_send_wr_atomic { compare_add, swap, rkey, .. } = unsafe { wr.wr.atomic };
                build!(created, wr_atomic_cmp_swp(rkey, addr, compare_add, swap));
            }
            (IBV_WR_ATOMIC_FETCH_AND_ADD, _) => {
                // SAFETY: as above.
                let ibv_send_wr_atomic { compare_add, rkey, .. } = unsafe { wr.wr.atomic };
                build!(created, wr_atomic_fetch_add(rkey, addr, compare_add));
            }
            (IBV_WR_ATOMIC_WRITE, Payload::Inline(word)) => {
                build!(created, wr_atomic_write(rkey, addr, word.as_ptr().cast()));
            }
            _ => return Err(unsupported("ibv_wr_post")),
        }
        Ok(())
    }

    /// Posts the requests that were added.
    fn complete(self) -> Result<()> {
        let result = build!(self.created, wr_complete());
        let subject = format_args!("posting a batch to {}", self.created);
        // The batch has ended, so there is nothing to abort.
        let outcome = check("ibv_wr_complete", subject, result);
        std::mem::forget(self);
        outcome
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        // SAFETY: the queue pair exists, and has an extended form.
        if let Some(abort) = unsafe { (*self.created.extended).wr_abort } {
            // SAFETY: the batch was begun and not ended.
            unsafe { abort(self.created.extended) };
        }
    }
}
