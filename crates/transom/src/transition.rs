//! State changes of windows.

use crate::created_queue_pair::CreatedQueuePair;
use crate::error::{check, unsupported};
use crate::keep::{Held, Keep};
use crate::post::post_send;
use crate::region::Registered;
use crate::window::{AllocatedWindow, Bound, Free, Type1, Type2, Window, WindowState, WindowType};
use crate::{
    Completion, Error, Grant, Operation, Posted, QueuePair, Refused, Result, Rights, Slice,
};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use transom_abi::*;

/// A free window that is being bound.
pub type Binding<T> = Transition<T, Free, Bound>;

/// A bound window that is being bound to other memory.
pub type Rebinding = Transition<Type1, Bound, Bound>;

/// A bound window that is being freed.
pub type Invalidating<T> = Transition<T, Bound, Free>;

/// The result of a [`Transition`]: the window in its new state. On failure, the error, with the window in its old state
/// if that state is certain.
pub type TransitionResult<T, From, To> = Result<Window<T, To>, Refused<Option<Window<T, From>>>>;

/// A window whose change of state is posted.
///
/// Wait for it ([`wait`](Self::wait)), poll it ([`try_wait`](Self::try_wait)), or await it, as with a [`Posted`]. You
/// get the window in its new state or, if the request failed, in the old one. Dropping this drops the window, which
/// revokes it when the request has completed, or with the queue pair.
///
/// # Panics
/// If you ask for anything after it has given the window or an error.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// # let builder = transom::QueuePair::builder(&pd, &cq);
/// # let (a, b) = (builder.build()?, builder.build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// # use transom::{Access, MemoryRegion, Rights, Type2, Window};
/// # let region = MemoryRegion::register(&pd, vec![0; 8], Access::MW_BIND)?;
/// # let inbox = MemoryRegion::register(&pd, vec![0; 24], Access::LOCAL_WRITE)?;
/// # let received = b.receive(&[inbox.all()])?;
/// let binding = Window::<Type2>::alloc(&pd)?.bind(&a, &region.all(), Rights::READ)?;
/// // The message follows the bind, so you need not wait for the bind first.
/// a.send(&binding.grant().to_bytes())?.wait()?;
/// let window = binding.wait()?;
/// # received.wait()?;
/// # Ok::<(), transom::Error>(())
/// ```
#[must_use = "the window is lost, and revoked, unless you wait for it"]
pub struct Transition<T: WindowType, From: WindowState, To: WindowState> {
    posted: Posted,
    /// `None` once it is given back.
    change: Option<Change<From, To>>,
    window_type: PhantomData<T>,
}

struct Change<From, To> {
    /// Declared before the states, so that the window is freed before its regions and its queue pair are released.
    mw: Arc<AllocatedWindow>,
    /// The key before the change.
    rkey: u32,
    from: From,
    to: To,
}

impl<T: WindowType, From: WindowState, To: WindowState> Transition<T, From, To> {
    /// Waits until the window has changed its state.
    ///
    /// # Errors
    /// Gives the window back in its old state with [`Error::Work`] if the request failed. The queue pair is
    /// then in error.
    ///
    /// Gives no window back with [`Error::Verb`], if waiting itself failed. Its state is then unknown, and the window
    /// has been dropped.
    pub fn wait(mut self) -> TransitionResult<T, From, To> {
        let outcome = self.posted.outcome();
        self.settle(outcome)
    }

    /// Waits until the window has changed its state or the request has failed, up to a timeout. `None` when the time is
    /// up; you may wait again.
    ///
    /// ```
    /// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
    /// # let pd = transom::ProtectionDomain::new(&context)?;
    /// # let cq = transom::CompletionQueue::new(&context, 16)?;
    /// # let builder = transom::QueuePair::builder(&pd, &cq);
    /// # let (a, b) = (builder.build()?, builder.build()?);
    /// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
    /// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
    /// # use transom::{Access, MemoryRegion, Rights, Type2, Window};
    /// # let region = MemoryRegion::register(&pd, vec![0; 8], Access::MW_BIND)?;
    /// use std::time::Duration;
    ///
    /// let mut binding = Window::<Type2>::alloc(&pd)?.bind(&a, &region.all(), Rights::READ)?;
    /// let window = loop {
    ///     match binding.wait_timeout(Duration::from_secs(1)) {
    ///         Some(outcome) => break outcome?,
    ///         None => println!("not yet"),
    ///     }
    /// };
    /// # drop(window);
    /// # Ok::<(), transom::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<TransitionResult<T, From, To>> {
        let outcome = self.posted.wait_timeout(timeout).transpose();
        outcome.map(|outcome| self.settle(outcome))
    }

    /// Polls the queue once. `None` if the window has not changed its state, and the request has not failed.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Option<TransitionResult<T, From, To>> {
        let outcome = self.posted.try_wait().transpose();
        outcome.map(|outcome| self.settle(outcome))
    }

    fn settle(&mut self, outcome: Result<Completion>) -> TransitionResult<T, From, To> {
        let Change { mw, rkey, from, to } = self.change.take().expect(DONE);
        let window_type = PhantomData;
        match outcome {
            Ok(_) => Ok(Window { mw, state: to, window_type }),
            Err(error @ Error::Work(_)) => {
                // The device still has the old key, so the struct must have it too (rule KEY-08).
                mw.set_rkey(rkey);
                let returned = Window { mw, state: from, window_type };
                Err(Refused { returned: Some(returned), error })
            }
            Err(error) => {
                // The request may have been carried out anyway. First the window, as in a `Change`.
                drop(mw);
                Err(Refused { returned: None, error })
            }
        }
    }
}

/// The panic message for a caller that asks after the window was given.
const DONE: &str = "a transition is not used after it is done";

impl<T: WindowType, From: WindowState> Transition<T, From, Bound> {
    /// The grant of the window once it is bound. You may send it to the peer at once, with a later request on the same
    /// queue pair (rules T1-56, T1-57).
    pub fn grant(&self) -> Grant {
        self.change.as_ref().expect(DONE).to.grant()
    }
}

impl<T, From, To> Future for Transition<T, From, To>
where
    T: WindowType,
    From: WindowState,
    To: WindowState,
{
    type Output = TransitionResult<T, From, To>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Nothing in it is pinned.
        let this = self.get_mut();
        Pin::new(&mut this.posted).poll(context).map(|outcome| this.settle(outcome))
    }
}

impl<T: WindowType, From: WindowState, To: WindowState> Unpin for Transition<T, From, To> {}

impl<T: WindowType, From: WindowState, To: WindowState> fmt::Debug for Transition<T, From, To> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transition").field("type", &T::TYPE).finish_non_exhaustive()
    }
}

impl<T: WindowType> Window<T, Free> {
    /// Binds the window to a part of a region, through a connected queue pair.
    ///
    /// The region needs [`Access::MW_BIND`](crate::Access::MW_BIND), and also
    /// [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE) if the window grants writes or atomics. If a later send on
    /// the same queue pair tells the peer of the grant, the peer finds the window bound (rule T1-56).
    ///
    /// # Errors
    /// Gives the window back with [`Error::EmptyWindow`]; [`Error::OtherContext`]; or [`Error::Verb`]: EPERM if the
    /// region and the window are of different domains, ENOMEM if the send queue is full. The binding gives the window
    /// back if it ends with [`Status::WindowBind`](crate::Status::WindowBind) (rules T1-20 to T1-30, T2-26 to T2-28).
    /// The queue pair is then in error.
    pub fn bind(
        self,
        queue_pair: &QueuePair,
        memory: &Slice,
        rights: Rights,
    ) -> Result<Binding<T>, Refused<Self>> {
        bind(self, &queue_pair.inner, memory, rights.access_flags(), memory.address)
    }
}

impl Window<Type2, Free> {
    /// Binds the window like [`bind`](Window::bind), with remote addresses that count from the start of the window. So
    /// the peer does not learn this side's addresses (rules T2-29, T2-30).
    ///
    /// # Errors
    /// As [`bind`](Window::bind).
    pub fn bind_zero_based(
        self,
        queue_pair: &QueuePair,
        memory: &Slice,
        rights: Rights,
    ) -> Result<Binding<Type2>, Refused<Self>> {
        let flags = rights.access_flags() | IBV_ACCESS_ZERO_BASED;
        bind(self, &queue_pair.inner, memory, flags, 0)
    }
}

impl<T: WindowType> Window<T, Bound> {
    /// Revokes the window. When this has completed, no access through the key touches memory any more, not even an
    /// access that had begun (rules INV-23, ORD-14).
    ///
    /// For a type 2 window, use the queue pair that bound it. For a type 1 window, use any queue pair of its domain
    /// (rules INV-01, T1-45). If that queue pair has failed, this fails too. Then [`revoke`](Window::revoke) ends the
    /// grant.
    ///
    /// # Errors
    /// Gives the window back, still bound, with [`Error::OtherQueuePair`];
    /// [`Error::OtherContext`]; or [`Error::Verb`], ENOMEM if the send queue is full.
    pub fn invalidate(self, queue_pair: &QueuePair) -> Result<Invalidating<T>, Refused<Self>> {
        invalidate(self, &queue_pair.inner)
    }
}

impl Window<Type1, Bound> {
    /// Binds the window to other memory, in one step (rules T1-50, T1-51, DR-09). Afterwards the old key opens nothing.
    /// If this fails, the old binding stays as it was (rules T1-35, KEY-08).
    ///
    /// # Errors
    /// As [`bind`](Window::bind).
    pub fn rebind(
        self,
        queue_pair: &QueuePair,
        memory: &Slice,
        rights: Rights,
    ) -> Result<Rebinding, Refused<Self>> {
        bind(self, &queue_pair.inner, memory, rights.access_flags(), memory.address)
    }
}

/// Posts the bind of a window. `addr` is the remote address of its first byte.
fn bind<T: WindowType, From: WindowState + Holds>(
    window: Window<T, From>,
    queue_pair: &Arc<CreatedQueuePair>,
    memory: &Slice,
    flags: ibv_access_flags,
    addr: u64,
) -> Result<Transition<T, From, Bound>, Refused<Window<T, From>>> {
    let Window { mw, state: from, .. } = window;
    let saved = mw.rkey();
    let info = ibv_mw_bind_info {
        mr: memory.region.mr(),
        addr: memory.address,
        length: memory.len() as u64,
        mw_access_flags: flags,
    };
    let keep = held(&mw, [Some(&memory.region), from.region()]);
    let posted = check_bind(&mw, queue_pair, memory).and_then(|()| match T::TYPE {
        IBV_MW_TYPE_1 => bind_mw(&mw, queue_pair, info, keep),
        _ => {
            // The key may be that of an earlier binding. Completions that report the end of that binding must be taken
            // before this binding begins.
            mw.bind_after(queue_pair.drain_receives()?);
            post_bind(&mw, queue_pair, info, keep)
        }
    });
    let posted = match posted {
        Ok(posted) => posted,
        Err(error) => {
            mw.set_rkey(saved);
            let returned = Window { mw, state: from, window_type: PhantomData };
            return Err(Refused { returned, error });
        }
    };
    let (rkey, length) = (mw.rkey(), memory.len() as u64);
    let grant = Grant { addr, rkey, length, rights: Rights::from_access_flags(flags) };
    let to = Bound::new::<T>(grant, queue_pair, memory.region.clone());
    let change = Some(Change { mw, rkey: saved, from, to });
    Ok(Transition { posted, change, window_type: PhantomData })
}

/// Posts the request that ends a window's binding.
fn invalidate<T: WindowType>(
    window: Window<T, Bound>,
    queue_pair: &Arc<CreatedQueuePair>,
) -> Result<Invalidating<T>, Refused<Window<T, Bound>>> {
    let Window { mw, state: from, .. } = window;
    let saved = mw.rkey();
    let keep = held(&mw, [Some(&from.region), None]);
    let posted = same_context("window", &mw, queue_pair).and_then(|()| match T::TYPE {
        IBV_MW_TYPE_1 => {
            // A bind of no bytes unbinds. It needs no region, but some libraries look at one.
            let (mr, addr) = (from.region.mr(), from.grant().addr);
            let info = ibv_mw_bind_info { mr, addr, ..ibv_mw_bind_info::default() };
            bind_mw(&mw, queue_pair, info, keep)
        }
        _ => {
            from.check_owner(queue_pair)?;
            let imm = ibv_send_wr_imm { invalidate_rkey: saved };
            let wr = ibv_send_wr { opcode: IBV_WR_LOCAL_INV, imm, ..ibv_send_wr::default() };
            // SAFETY: the request names nothing by address.
            unsafe { post_send(queue_pair, Operation::LocalInvalidate, wr, keep) }
        }
    });
    match posted {
        Ok(posted) => {
            let to = Free::new();
            let change = Some(Change { mw, rkey: saved, from, to });
            Ok(Transition { posted, change, window_type: PhantomData })
        }
        Err(error) => {
            mw.set_rkey(saved);
            Err(Refused { returned: Window { mw, state: from, window_type: PhantomData }, error })
        }
    }
}

/// Type 1: `ibv_bind_mw(3)` chooses the new key and puts it into the window (KEY-06).
fn bind_mw(
    mw: &Arc<AllocatedWindow>,
    queue_pair: &Arc<CreatedQueuePair>,
    bind_info: ibv_mw_bind_info,
    keep: Keep,
) -> Result<Posted> {
    // SAFETY: the context is open.
    let bind_mw = unsafe { (*mw.domain.device.context).ops.bind_mw };
    let bind_mw = bind_mw.ok_or_else(|| unsupported("ibv_bind_mw"))?;
    Posted::post(queue_pair.send_queue(), queue_pair, Operation::BindWindow, keep, |wr_id| {
        let mut bind = ibv_mw_bind { wr_id, send_flags: IBV_SEND_SIGNALED, bind_info };
        // SAFETY: queue pair, window and region exist and are of one context. The slot holds window and region until
        // the completion.
        let result = unsafe { bind_mw(queue_pair.qp, mw.mw, &raw mut bind) };
        let subject = format_args!("binding a window to {} bytes", bind_info.length);
        check("ibv_bind_mw", subject, result)
    })
}

/// Type 2: a work request, with the next key of the window.
fn post_bind(
    mw: &Arc<AllocatedWindow>,
    queue_pair: &Arc<CreatedQueuePair>,
    bind_info: ibv_mw_bind_info,
    keep: Keep,
) -> Result<Posted> {
    let rkey = next_rkey(mw.rkey());
    let bind_mw = ibv_send_wr_bind_mw { mw: mw.mw, rkey, bind_info };
    let op = ibv_send_wr_op { bind_mw };
    let wr = ibv_send_wr { opcode: IBV_WR_BIND_MW, op, ..ibv_send_wr::default() };
    // SAFETY: `keep` holds the window and the region, which are of the queue pair's context.
    let posted = unsafe { post_send(queue_pair, Operation::BindWindow, wr, keep) }?;
    // Some providers do this while posting, and some leave it to the caller (rule KEY-10).
    mw.set_rkey(rkey);
    Ok(posted)
}

/// Checks that the header's `ibv_bind_mw` makes, and those that the verbs leave to the caller.
fn check_bind(mw: &AllocatedWindow, queue_pair: &CreatedQueuePair, memory: &Slice) -> Result<()> {
    if memory.is_empty() {
        return Err(Error::EmptyWindow);
    }
    same_context("window", mw, queue_pair)?;
    // SAFETY: the slice holds its region, so it is registered.
    let (context, pd) = unsafe { ((*memory.region.mr()).context, (*memory.region.mr()).pd) };
    if context != mw.domain.device.context {
        return Err(Error::OtherContext { what: "memory region" });
    }
    let same_domain = pd == mw.domain.pd;
    let errno = if same_domain { 0 } else { rustix::io::Errno::PERM.raw_os_error() };
    check("ibv_bind_mw", "the window and the region are of different domains", errno)
}

fn same_context(
    what: &'static str,
    mw: &AllocatedWindow,
    queue_pair: &CreatedQueuePair,
) -> Result<()> {
    if Arc::ptr_eq(&mw.domain.device, queue_pair.device()) {
        Ok(())
    } else {
        Err(Error::OtherContext { what })
    }
}

/// The key with its low byte raised by one, as `ibv_inc_rkey(3)` does (rule KEY-02).
fn next_rkey(rkey: u32) -> u32 {
    rkey & !0xff | u32::from((rkey as u8).wrapping_add(1))
}

/// The objects that a request on a window keeps: the window, then the regions.
fn held(mw: &Arc<AllocatedWindow>, regions: [Option<&Arc<dyn Registered>>; 2]) -> Keep {
    let regions = regions.into_iter().flatten().map(|region| region.clone() as Arc<dyn Held>);
    std::iter::once(mw.clone() as Arc<dyn Held>).chain(regions).collect()
}

/// A state and the region it holds.
trait Holds {
    fn region(&self) -> Option<&Arc<dyn Registered>>;
}

impl Holds for Free {
    fn region(&self) -> Option<&Arc<dyn Registered>> {
        None
    }
}

impl Holds for Bound {
    fn region(&self) -> Option<&Arc<dyn Registered>> {
        Some(&self.region)
    }
}

#[cfg(test)]
mod tests {
    use super::next_rkey;

    /// Rules: KEY-02
    #[test]
    fn only_the_low_byte_of_a_key_is_raised_and_it_wraps() {
        assert_eq!(next_rkey(0x1234_56ff), 0x1234_5600);
        assert_eq!(next_rkey(0x1234_5600), 0x1234_5601);
    }
}
