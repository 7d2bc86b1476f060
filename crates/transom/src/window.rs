//! Memory windows. Their types follow their life.

use crate::created_queue_pair::CreatedQueuePair;
use crate::domain::AllocatedDomain;
use crate::error::{check, non_null, unsupported};
use crate::keep::Held;
use crate::moment::Moment;
use crate::region::Registered;
use crate::{Completion, Error, Grant, ProtectionDomain, Refused, Result};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use transom_abi::*;

/// A memory window: a key to a part of a region, with rights of its own. You can grant and revoke it without touching
/// the region; see `ibv_alloc_mw(3)` and rules sections B to D.
///
/// Its type says which state it is in. It begins [`Free`]. [`bind`](Window::bind) makes it [`Bound`], with a
/// [`grant`](Window::grant) for the peer. [`invalidate`](Window::invalidate) on this side, or a peer's send with
/// invalidate ([`revoked_by`](Window::revoked_by)), makes it free again. From then on the old key opens nothing. Each
/// step takes the window and gives it back in its new state, or in the old state if the step failed.
///
/// A grant ends in one of four ways:
///
/// | | needs | leaves |
/// |---|---|---|
/// | [`invalidate`](Window::invalidate) | a queue pair that works | a free window |
/// | the peer, then [`revoked_by`](Window::revoked_by) | the peer's will | a free window |
/// | [`revoke`](Window::revoke) | nothing | nothing, or an error if the device refuses |
/// | dropping it | nothing | nothing |
///
/// The two types differ in who may use the key and in how you revoke it:
///
/// | | [`Type1`] | [`Type2`] |
/// |---|---|---|
/// | the peer may use the key through | every queue pair of the domain | the one that bound it |
/// | bound again without being freed | yes: [`rebind`](Window::rebind) | no |
/// | invalidated by the peer | no | yes |
/// | addresses may count from 0 | no | yes: [`bind_zero_based`](Window::bind_zero_based) |
///
/// A bound window holds its region, so you cannot deregister the region (rules DR-03, DR-04). A bound window of type 2
/// also holds the queue pair that bound it: the queue pair is not destroyed before the binding ends, and until then it
/// serves the peer (rules T2-05, T2-06).
///
/// ```
/// # use transom::{CompletionQueue, Provider, QueuePair};
/// use transom::{Access, MemoryRegion, ProtectionDomain, Rights, Type2, Window};
///
/// # let context = transom::devices(&Provider::software())?[0].open()?;
/// # let pd = ProtectionDomain::new(&context)?;
/// # let cq = CompletionQueue::new(&context, 16)?;
/// # let builder = QueuePair::builder(&pd, &cq);
/// # let (owner, peer) = (builder.build()?, builder.build()?);
/// # let (at_owner, at_peer) = (owner.endpoint(), peer.endpoint());
/// # let (owner, peer) = (owner.connect(&at_peer)?, peer.connect(&at_owner)?);
/// # let local = MemoryRegion::register(&pd, vec![0; 8], Access::LOCAL_WRITE)?;
/// let region = MemoryRegion::register(&pd, b"-- secret --".to_vec(), Access::MW_BIND)?;
///
/// let window = Window::<Type2>::alloc(&pd)?;
/// let window = window.bind(&owner, &region.slice(3..9)?, Rights::READ)?.wait()?;
/// let grant = window.grant();
///
/// // The peer, which has received the grant, reads.
/// peer.read(&[local.slice(0..6)?], grant)?.wait()?;
/// let mut bytes = [0; 6];
/// local.read_at(0, &mut bytes)?;
/// assert_eq!(&bytes, b"secret");
///
/// // The owner revokes; the peer's next read is refused.
/// let window = window.invalidate(&owner)?.wait()?;
/// assert!(peer.read(&[local.slice(0..6)?], grant)?.wait().is_err());
/// # drop(window);
/// # Ok::<(), transom::Error>(())
/// ```
///
/// A call that a state does not allow does not compile:
///
/// ```compile_fail,E0599
/// # use transom::{Free, Type2, Window};
/// fn grant_of(window: Window<Type2, Free>) -> transom::Grant {
///     window.grant() // a free window grants nothing
/// }
/// ```
pub struct Window<T: WindowType, S: WindowState = Free> {
    /// Declared before the state, so that the window is freed before its region and its queue pair are released.
    pub(crate) mw: Arc<AllocatedWindow>,
    pub(crate) state: S,
    pub(crate) window_type: PhantomData<T>,
}

/// The state of a window that grants nothing.
#[derive(Debug)]
pub struct Free(());

/// The state of a window that grants a part of a region.
pub struct Bound {
    grant: Grant,
    /// The queue pair that bound it, for type 2. A device may refuse to destroy that queue pair before the binding ends
    /// (rule T2-06). As long as it exists, no other has its number.
    queue_pair: Option<Arc<CreatedQueuePair>>,
    pub(crate) region: Arc<dyn Registered>,
}

/// The type of a window that `ibv_bind_mw(3)` binds. It belongs to a protection domain.
#[derive(Clone, Copy, Debug)]
pub enum Type1 {}

/// The type of a window that a work request binds. It belongs to a queue pair.
#[derive(Clone, Copy, Debug)]
pub enum Type2 {}

/// A state of a [`Window`]: [`Free`] or [`Bound`].
pub trait WindowState: sealed::Sealed {}

impl WindowState for Free {}
impl WindowState for Bound {}

/// A type of [`Window`]: [`Type1`] or [`Type2`].
pub trait WindowType: sealed::Sealed {
    #[doc(hidden)]
    const TYPE: ibv_mw_type;
}

impl WindowType for Type1 {
    const TYPE: ibv_mw_type = IBV_MW_TYPE_1;
}

impl WindowType for Type2 {
    const TYPE: ibv_mw_type = IBV_MW_TYPE_2;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Free {}
    impl Sealed for super::Bound {}
    impl Sealed for super::Type1 {}
    impl Sealed for super::Type2 {}
}

impl<T: WindowType> Window<T, Free> {
    /// Allocates a window (rules MWA-01, MWA-02, MWA-08).
    ///
    /// # Errors
    /// [`Error::Verb`]: EOPNOTSUPP if the device has no windows of this type, ENOMEM if it has no more
    /// windows.
    pub fn alloc(pd: &ProtectionDomain) -> Result<Self> {
        let domain = pd.inner.clone();
        // SAFETY: the domain's context is open.
        let alloc_mw = unsafe { (*domain.device.context).ops.alloc_mw };
        let alloc_mw = alloc_mw.ok_or_else(|| unsupported("ibv_alloc_mw"))?;
        // SAFETY: the domain is allocated.
        let mw = unsafe { alloc_mw(domain.pd, T::TYPE) };
        let subject = format_args!("allocating a window of type {}", T::TYPE);
        let mw = non_null("ibv_alloc_mw", subject, mw)?.as_ptr();
        let (freed, before_bind) = (AtomicBool::new(false), Mutex::default());
        let mw = AllocatedWindow { mw, freed, before_bind, domain };
        Ok(Self { mw: Arc::new(mw), state: Free(()), window_type: PhantomData })
    }
}

impl<T: WindowType> Window<T, Bound> {
    /// The grant to send to the peer, so that it can use the window. It is valid as long as this window lives: dropping
    /// the window revokes it.
    pub fn grant(&self) -> Grant {
        self.state.grant()
    }

    /// Ends the grant by freeing the window, whatever the state of the queue pair that bound it. When this
    /// returns, no access through the key touches memory any more, not even an access that had begun (rules MWA-13,
    /// MWA-14).
    ///
    /// [`invalidate`](Window::invalidate) leaves a window that you can bind again. But it is a request like others:
    /// once the queue pair has failed, it ends with [`Status::Flushed`](crate::Status::Flushed), and the grant remains.
    /// A peer that oversteps its grant makes the queue pair fail. Then a type 1 window is still usable through the
    /// other queue pairs of its domain, and a window of either type prevents deregistering its region. `revoke` ends
    /// the grant even then. Dropping the window does so too, but does not tell you whether the device agreed.
    ///
    /// ```
    /// # use transom::{CompletionQueue, Provider, QueuePair};
    /// use transom::{Access, MemoryRegion, ProtectionDomain, Rights, Status, Type2, Window};
    ///
    /// # let context = transom::devices(&Provider::software())?[0].open()?;
    /// # let pd = ProtectionDomain::new(&context)?;
    /// # let cq = CompletionQueue::new(&context, 16)?;
    /// # let builder = QueuePair::builder(&pd, &cq);
    /// # let (owner, peer) = (builder.build()?, builder.build()?);
    /// # let (at_owner, at_peer) = (owner.endpoint(), peer.endpoint());
    /// # let (owner, peer) = (owner.connect(&at_peer)?, peer.connect(&at_owner)?);
    /// let region = MemoryRegion::register(&pd, vec![0; 8], Access::LOCAL_WRITE | Access::MW_BIND)?;
    /// let window = Window::<Type2>::alloc(&pd)?;
    /// let window = window.bind(&owner, &region.all(), Rights::READ)?.wait()?;
    ///
    /// // The peer oversteps, and both queue pairs fail.
    /// assert!(peer.write(b"mine now", window.grant())?.wait().is_err());
    ///
    /// // The request to revoke the grant is not carried out any more.
    /// let refused = window.invalidate(&owner)?.wait().unwrap_err();
    /// let window = refused.returned.expect("it is as it was");
    /// window.revoke()?;
    /// assert_eq!(region.deregister()?, [0; 8]);
    /// # Ok::<(), transom::Error>(())
    /// ```
    ///
    /// # Errors
    /// Gives the window back, still bound, with [`Error::Verb`] if the device refuses. It refuses only if it has failed
    /// itself.
    pub fn revoke(self) -> Result<(), Refused<Self>> {
        self.mw.free().map_err(|error| Refused { returned: self, error })
    }
}

impl Window<Type2, Bound> {
    /// Frees the window, because the peer has invalidated it. The completion of a receive on the queue pair that bound
    /// it proves this (rules INV-30, INV-32).
    ///
    /// Keys repeat after some binds, and so do numbers of queue pairs. So a completion counts only if it was taken from
    /// its queue after this bind. A completion that has freed a window once frees none again.
    ///
    /// # Errors
    /// Gives the window back, still bound, with [`Error::NotRevoked`] if the completion does not name it, or belongs to
    /// another bind.
    pub fn revoked_by(self, completion: &Completion) -> Result<Window<Type2, Free>, Refused<Self>> {
        let rkey = self.state.grant.rkey;
        let invalidated = completion.invalidated_rkey();
        let bound_by = self.state.queue_pair.as_ref().map(|bound_by| bound_by.local.qpn);
        let named = invalidated == Some(rkey) && bound_by == Some(completion.queue_pair());
        if named && self.mw.was_bound_before(completion.taken()) {
            Ok(Window { mw: self.mw, state: Free(()), window_type: PhantomData })
        } else {
            Err(Refused { returned: self, error: Error::NotRevoked { rkey, invalidated } })
        }
    }
}

impl Free {
    pub(crate) fn new() -> Self {
        Self(())
    }
}

impl Bound {
    /// The state of a window of this type that this queue pair has bound.
    pub(crate) fn new<T: WindowType>(
        grant: Grant,
        by: &Arc<CreatedQueuePair>,
        region: Arc<dyn Registered>,
    ) -> Self {
        Self { grant, queue_pair: (T::TYPE == IBV_MW_TYPE_2).then(|| by.clone()), region }
    }

    pub(crate) fn grant(&self) -> Grant {
        self.grant
    }

    /// Checks that this queue pair may invalidate a type 2 window with this binding.
    pub(crate) fn check_owner(&self, given: &Arc<CreatedQueuePair>) -> Result<()> {
        match &self.queue_pair {
            Some(bound_by) if !Arc::ptr_eq(bound_by, given) => {
                Err(Error::OtherQueuePair { bound_by: bound_by.local.qpn, given: given.local.qpn })
            }
            _ => Ok(()),
        }
    }
}

impl<T: WindowType, S: WindowState + fmt::Debug> fmt::Debug for Window<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("type", &T::TYPE).field("state", &self.state).finish()
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bound").field(&self.grant).finish()
    }
}

/// The window itself. Outstanding requests that name it hold it.
pub(crate) struct AllocatedWindow {
    pub(crate) mw: *mut ibv_mw,
    /// The verbs no longer have it.
    freed: AtomicBool,
    /// The moment before its last bind, on the queue into which the receives of the binding queue pair complete. `None`
    /// if that queue pair has no receives, and for a window that no peer can invalidate.
    before_bind: Mutex<Option<Moment>>,
    pub(crate) domain: Arc<AllocatedDomain>,
}

// SAFETY: libibverbs is thread-safe. Only a bind and the holder of the `Window` change the key in the struct, and a
// bind takes the `Window`.
unsafe impl Send for AllocatedWindow {}
// SAFETY: as for `Send`.
unsafe impl Sync for AllocatedWindow {}

impl Held for AllocatedWindow {}

impl AllocatedWindow {
    /// The key that the verbs have.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the window is allocated, and the caller holds the `Window`.
        unsafe { (*self.mw).rkey }
    }

    /// Records that it is bound after this moment.
    pub(crate) fn bind_after(&self, moment: Option<Moment>) {
        *self.before_bind.lock().unwrap_or_else(PoisonError::into_inner) = moment;
    }

    /// Whether its last bind was before this moment.
    fn was_bound_before(&self, moment: Moment) -> bool {
        let before = *self.before_bind.lock().unwrap_or_else(PoisonError::into_inner);
        before.is_some_and(|before| moment.is_after(before))
    }

    /// Tells the verbs which key is valid.
    pub(crate) fn set_rkey(&self, rkey: u32) {
        // SAFETY: as for `rkey`.
        unsafe { (*self.mw).rkey = rkey }
    }
}

impl AllocatedWindow {
    /// Frees it, once. If it is bound, this unbinds it (rule MWA-13). The caller owns the window, and asks nothing else
    /// of it afterwards.
    fn free(&self) -> Result<()> {
        if self.freed.load(Relaxed) {
            return Ok(());
        }
        // SAFETY: the context is open.
        let dealloc_mw = unsafe { (*self.domain.device.context).ops.dealloc_mw };
        let dealloc_mw = dealloc_mw.ok_or_else(|| unsupported("ibv_dealloc_mw"))?;
        // SAFETY: the window is allocated, and no outstanding request names it.
        check("ibv_dealloc_mw", "freeing a window", unsafe { dealloc_mw(self.mw) })?;
        self.freed.store(true, Relaxed);
        Ok(())
    }
}

impl Drop for AllocatedWindow {
    fn drop(&mut self) {
        if !self.domain.device.is_inherited() && self.free().is_err() {
            // The window stays, so its domain must stay. Its region will be busy and stay as well.
            std::mem::forget(self.domain.clone());
        }
    }
}
