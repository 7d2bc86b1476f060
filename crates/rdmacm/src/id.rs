//! Ids: `rdma_create_id(3)`, `rdma_destroy_id(3)`.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use transom_abi::*;

use crate::addrinfo::Answer;
use crate::channel::Channel;
use crate::check::{self, Owner};
use crate::device::Device;
use crate::entry::zero_of;
use crate::event::{Acknowledged, Event, Waits};
use crate::file::File;
use crate::provider::{Provider, Source, provider};
use crate::sanitized;
use crate::wrong::Wrong;

/// An id.
#[repr(C)]
pub(crate) struct Id {
    /// The first field, because the program has a pointer to it. The lock of `own` protects it. The program reads it
    /// when no call on the id is running.
    public: UnsafeCell<rdma_cm_id>,
    pub(crate) provider: &'static Provider,
    /// Its number in the file.
    pub(crate) handle: u32,
    /// Its events.
    pub(crate) acknowledged: Arc<Acknowledged>,
    /// It is locked before `own`, and while the id ends or moves to another file.
    pub(crate) lookup: Arc<Mutex<Lookup>>,
    own: Mutex<Own>,
}

// SAFETY: everything that is not safe to share is under a lock, except the program's own pointers, which are never
// followed.
unsafe impl Send for Id {}
// SAFETY: as for `Send`.
unsafe impl Sync for Id {}

/// The part of an id that programs do not see.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Whether its calls wait for their events, which come on a channel of its own.
    pub(crate) synchronous: bool,
    pub(crate) device: Option<&'static Device>,
    /// Whether its device is gone, so that no event comes any more.
    pub(crate) removed: bool,
    /// Whether the program has had CONNECT_ERROR of it. No other end of its connection is told.
    pub(crate) failed: bool,
    /// Whether its shared receive queue uses its own completion queue for receives.
    pub(crate) srq_uses_cq: bool,
    /// For a request: the responder resources and the initiator depth that the peer asks for.
    pub(crate) asked: (u8, u8),
    /// For a listener with queue pair attributes: the arguments for the queue pairs of its requests.
    pub(crate) endpoint: Option<(*mut ibv_pd, ibv_qp_init_attr)>,
    /// Private data to connect with, before that of the program.
    pub(crate) connect_data: Vec<u8>,
    /// Enhanced connection establishment: the offer of a program that has its own queue pair.
    pub(crate) local_ece: ibv_ece,
    /// The offer of the peer.
    pub(crate) remote_ece: ibv_ece,
    /// The paths that the program sees.
    pub(crate) paths: Vec<ibv_sa_path_rec>,
    pub(crate) groups: Vec<Arc<Group>>,
}

/// The state of `rdma_resolve_addrinfo` for an id. The thread that looks up shares this state, and not the id, because
/// the program may destroy the id meanwhile.
#[derive(Debug, Default)]
pub(crate) enum Lookup {
    /// No look-up, or the id has ended.
    #[default]
    None,
    /// A thread is looking up. It will report to the id by this file.
    UnderWay(File),
    /// The answer, which the program has not fetched yet.
    Found(Answer),
}

impl Lookup {
    /// Takes the answer, once.
    pub(crate) fn take_found(&mut self) -> Option<Answer> {
        match std::mem::take(self) {
            Self::Found(answer) => Some(answer),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// A multicast group that an id has joined or is joining.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: *const Id,
    /// The program's own pointer.
    pub(crate) context: *mut c_void,
    pub(crate) address: sockaddr_storage,
    /// Whether the id only sends to the group, and does not receive from it.
    pub(crate) send_only: bool,
    pub(crate) acknowledged: Arc<Acknowledged>,
    pub(crate) state: Mutex<Joined>,
}

// SAFETY: one pointer is the program's own, and is never followed. The other one is the id, which lives longer and can
// be shared.
unsafe impl Send for Group {}
// SAFETY: as for `Send`.
unsafe impl Sync for Group {}

/// The progress of a join.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// Its number in the file.
    pub(crate) handle: u32,
    /// The GID and LID that the queue pair is attached to.
    pub(crate) attached: Option<([u8; 16], u16)>,
    /// Whether the group is being left. Then the queue pair must not be attached any more, even if the event of the
    /// join is just being fetched.
    pub(crate) left: bool,
}

/// The arguments for a new id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) ps: rdma_port_space,
    pub(crate) qp_type: ibv_qp_type,
    pub(crate) synchronous: bool,
}

impl Id {
    /// An id that the file already has.
    pub(crate) fn of_request(provider: &'static Provider, new: New, handle: u32) -> Box<Self> {
        let New { channel, context, ps, qp_type, synchronous } = new;
        let public = rdma_cm_id { channel, context, ps, qp_type, ..Default::default() };
        Box::new(Self {
            public: UnsafeCell::new(public),
            provider,
            handle,
            acknowledged: Arc::default(),
            lookup: Arc::default(),
            own: Mutex::new(Own { synchronous, ..Own::default() }),
        })
    }

    /// Makes an id, in the file too.
    ///
    /// # Safety
    /// The channel is live.
    pub(crate) unsafe fn create(
        provider: &'static Provider,
        new: New,
    ) -> Result<*mut rdma_cm_id, Wrong> {
        let mut id = Self::of_request(provider, new, 0);
        let uid = (&raw const *id).expose_provenance() as u64;
        // SAFETY: by the contract of this function.
        let file = unsafe { Channel::of(new.channel) }?.file();
        let port_space = u16::try_from(new.ps);
        let port_space = port_space.map_err(|_| Wrong::invalid("ps is no port space"))?;
        let made: rdma_ucm_create_id_resp =
            file.ask(RDMA_USER_CM_CMD_CREATE_ID, |response| rdma_ucm_create_id {
                uid,
                response,
                ps: port_space,
                qp_type: new.qp_type as u8,
                reserved: [0; 5],
            })?;
        id.handle = made.id;
        Ok(id.given())
    }

    /// Gives it to the program.
    pub(crate) fn given(self: Box<Self>) -> *mut rdma_cm_id {
        sanitized::written(self.public.get());
        let id = Box::into_raw(self).cast();
        check::id_made(id);
        id
    }

    /// Makes an id with a channel of its own, whose calls wait.
    pub(crate) fn synchronous(
        provider: &'static Provider,
        context: *mut c_void,
        ps: rdma_port_space,
        qp_type: ibv_qp_type,
    ) -> Result<*mut rdma_cm_id, Wrong> {
        let channel = Channel::open(provider)?;
        let new = New { channel, context, ps, qp_type, synchronous: true };
        // SAFETY: the channel was just made, and nobody else has it.
        unsafe { Self::create(provider, new).inspect_err(|_| Channel::close(channel)) }
    }

    /// The id that a program's pointer points to.
    ///
    /// # Safety
    /// It is null, or an id that is not destroyed while the result is used.
    pub(crate) unsafe fn of<'a>(id: *mut rdma_cm_id) -> Result<&'a Self, Wrong> {
        check::used(id.cast::<Self>(), "the id was destroyed before")?;
        // SAFETY: by the contract of this function.
        unsafe { id.cast::<Self>().as_ref() }.ok_or(Wrong::invalid("id is null"))
    }

    /// The number that stands for it in the file.
    pub(crate) fn uid(&self) -> u64 {
        (&raw const *self).expose_provenance() as u64
    }

    /// The program's pointer to it.
    pub(crate) fn pointer(&self) -> *mut rdma_cm_id {
        self.public.get()
    }

    /// The part that the program sees.
    pub(crate) fn seen(&self) -> rdma_cm_id {
        let _locked = self.own.lock();
        // SAFETY: it is under its lock, and all of it can be copied.
        unsafe { *self.public.get() }
    }

    /// Changes the part that the program sees.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut rdma_cm_id) -> T) -> T {
        let _locked = self.own.lock();
        // SAFETY: it is under its lock, and nothing else refers to it.
        let changed = change(unsafe { &mut *self.public.get() });
        sanitized::written(self.public.get());
        changed
    }

    /// Reads or changes the part that the program does not see.
    pub(crate) fn own<T>(&self, with: impl FnOnce(&mut Own) -> T) -> T {
        with(&mut self.own.lock())
    }

    /// The file of its channel.
    pub(crate) fn file(&self) -> Result<File, Wrong> {
        // SAFETY: the channel of an id lives as long as the id.
        Ok(unsafe { Channel::of(self.seen().channel) }?.file())
    }

    /// The device that it is bound to.
    pub(crate) fn device(&self) -> Result<&'static Device, Wrong> {
        self.own(|own| own.device).ok_or(Wrong::invalid(
            "the id has no device yet: rdma_resolve_addr, or rdma_bind_addr to an address of a device",
        ))
    }

    /// Whether it is for datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        self.seen().qp_type == IBV_QPT_UD
    }

    /// Binds it to a device. From then on it has a protection domain, because programs make objects in it.
    pub(crate) fn bind_to(&self, device: &'static Device, port: u8) -> Result<(), Wrong> {
        if self.own(|own| own.device.replace(device).is_none()) {
            device.taken();
        }
        let pd = device.pd()?;
        self.change(|seen| {
            seen.verbs = device.context;
            seen.port_num = port;
            if seen.pd.is_null() {
                seen.pd = pd;
            }
        });
        Ok(())
    }

    /// Shows the program these paths.
    pub(crate) fn show_paths(&self, paths: Vec<ibv_sa_path_rec>) {
        let (count, first) = self.own(|own| {
            own.paths = paths;
            sanitized::bytes_written(own.paths.as_ptr().cast(), size_of_val(&*own.paths));
            (own.paths.len(), own.paths.as_mut_ptr())
        });
        self.change(|seen| {
            seen.route.num_paths = c_int::try_from(count).unwrap_or(c_int::MAX);
            seen.route.path_rec = if count > 0 { first } else { std::ptr::null_mut() };
        });
    }

    /// Acknowledges the event that a synchronous id shows, if there is one.
    pub(crate) fn acknowledge_shown(&self) {
        let shown = self.change(|seen| std::mem::replace(&mut seen.event, std::ptr::null_mut()));
        // SAFETY: the event was shown here, and is taken once.
        if let Some(event) = unsafe { Event::back(shown) } {
            event.acknowledge();
        }
    }

    /// Ends an id in the file, and waits here until all its events are acknowledged.
    ///
    /// # Safety
    /// No other call on the id is running, and none follows if this succeeds.
    pub(crate) unsafe fn destroy(id: *mut rdma_cm_id) -> Result<(), Wrong> {
        // SAFETY: by the contract of this function.
        let this = unsafe { Self::of(id) }?;
        let handle = this.handle;
        let mut lookup = this.lookup.lock();
        let gone: rdma_ucm_destroy_id_resp =
            this.file()?.ask(RDMA_USER_CM_CMD_DESTROY_ID, |response| rdma_ucm_destroy_id {
                response,
                id: handle,
                reserved: 0,
            })?;
        *lookup = Lookup::None;
        drop(lookup);
        this.acknowledge_shown();
        let waits = Waits { function: c"rdma_destroy_id", owner: Owner::Id(id) };
        this.acknowledged.wait_for(gone.events_reported, &waits);
        check::id_ended(id);
        sanitized::ended(id);
        // SAFETY: the file does not have it any more, and the program does not use it.
        let this = unsafe { Box::from_raw(id.cast::<Self>()) };
        if let Some(device) = this.own(|own| own.device.take()) {
            device.left();
        }
        if this.own(|own| own.synchronous) {
            // SAFETY: the channel was its own.
            unsafe { Channel::close(this.seen().channel) };
        }
        check::free_id(this);
        Ok(())
    }
}

/// Makes an id. Without a channel its calls wait for their events (rule CM-51).
///
/// # Safety
/// The channel is null or live; `id` is null or writable.
pub unsafe extern "C" fn rdma_create_id<S: Source>(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    zero_of(c"rdma_create_id", || {
        if id.is_null() {
            return Err(Wrong::invalid("id is null"));
        }
        let datagrams = matches!(ps, RDMA_PS_UDP | RDMA_PS_IPOIB);
        let qp_type = if datagrams { IBV_QPT_UD } else { IBV_QPT_RC };
        let made = if channel.is_null() {
            Id::synchronous(provider::<S>()?, context, ps, qp_type)?
        } else {
            let new = New { channel, context, ps, qp_type, synchronous: false };
            // SAFETY: by the contract of this function.
            unsafe { Id::create(Channel::of(channel)?.provider, new) }?
        };
        // SAFETY: by the contract of this function.
        unsafe { sanitized::give(id, made) };
        Ok(())
    })
}

/// Ends an id. It waits until all fetched events of the id are acknowledged. Another thread may do that.
///
/// # Safety
/// The id is null or live, and no other call on it is running.
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: by the contract of this function.
    zero_of(c"rdma_destroy_id", || unsafe { Id::destroy(id) })
}
