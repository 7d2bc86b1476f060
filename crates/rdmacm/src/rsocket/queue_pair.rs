//! The queue pair of a socket, with one completion queue, whose channel reports completions.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;

use crate::id::Id;
use crate::qp;
use crate::sanitized;
use crate::verbs::{Verbs, done, made};
use crate::wrong::Wrong;

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) inline: u32,
    pub(crate) sges: u32,
}

/// A queue pair. It belongs to its id: call [`QueuePair::end`] before the id ends.
#[derive(Debug)]
pub(crate) struct QueuePair {
    verbs: &'static Verbs,
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    /// The number of events taken and not acknowledged.
    taken: u32,
    /// The number of bytes that can be sent inline.
    pub(crate) inline: u32,
}

/// The provider lacks a verb that every provider has.
const NO_VERB: Wrong = Wrong::new(libc::EOPNOTSUPP, "the provider does not have a verb for it");

// SAFETY: its objects belong to it, and any thread may call verbs.
unsafe impl Send for QueuePair {}
// SAFETY: as for `Send`.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes the queue pair of an id that is bound to a device.
    pub(crate) fn create(id: &Id, sizes: Sizes) -> Result<Self, Wrong> {
        let verbs = &id.provider.verbs;
        let seen = id.seen();
        let entries = sizes.sends.saturating_add(sizes.receives);
        let entries = c_int::try_from(entries);
        let entries = entries.map_err(|_| Wrong::invalid("the queues are too long"))?;
        // SAFETY: the device of an id is open.
        let channel = unsafe { (verbs.ibv_create_comp_channel)(seen.verbs) };
        let channel = made("ibv_create_comp_channel", channel)?;
        let mut this =
            Self { verbs, qp: null_mut(), cq: null_mut(), channel, taken: 0, inline: sizes.inline };
        this.create_queues(id, sizes, entries).inspect_err(|_| this.end(id))?;
        Ok(this)
    }

    fn create_queues(&mut self, id: &Id, sizes: Sizes, entries: c_int) -> Result<(), Wrong> {
        let (verbs, seen) = (self.verbs, id.seen());
        // SAFETY: the descriptor is open.
        unsafe {
            let descriptor = (*self.channel).fd;
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        // SAFETY: the device and the channel are open.
        self.cq = made("ibv_create_cq", unsafe {
            (verbs.ibv_create_cq)(seen.verbs, entries, null_mut(), self.channel, 0)
        })?;
        let mut attr = ibv_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
            cap: ibv_qp_cap {
                max_send_wr: sizes.sends,
                max_recv_wr: sizes.receives,
                max_send_sge: sizes.sges,
                max_recv_sge: 1,
                max_inline_data: sizes.inline,
            },
            qp_type: seen.qp_type,
            sq_sig_all: 1,
            ..Default::default()
        };
        qp::create_plain(id, null_mut(), &mut attr)?;
        self.inline = attr.cap.max_inline_data;
        self.qp = id.seen().qp;
        Ok(())
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is live.
        unsafe { (*self.qp).qp_num }
    }

    /// A descriptor that is readable while there are events.
    pub(crate) fn descriptor(&self) -> c_int {
        // SAFETY: the channel is open.
        unsafe { (*self.channel).fd }
    }

    /// Takes completions. Returns how many were written.
    pub(crate) fn poll(&self, to: &mut [ibv_wc]) -> Result<usize, Wrong> {
        let room = c_int::try_from(to.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is live, and there is room for `room` completions.
        let count = unsafe {
            let poll = (*(*self.cq).context).ops.poll_cq.ok_or(NO_VERB)?;
            poll(self.cq, room, to.as_mut_ptr())
        };
        usize::try_from(count).map_err(|_| Wrong::of_verb("ibv_poll_cq", libc::EIO))
    }

    /// Makes the next completion raise an event. The caller must look once more for earlier completions.
    pub(crate) fn arm(&mut self) -> Result<(), Wrong> {
        // SAFETY: the queue is live.
        unsafe {
            let arm = (*(*self.cq).context).ops.req_notify_cq.ok_or(NO_VERB)?;
            done("ibv_req_notify_cq", arm(self.cq, 0))
        }
    }

    /// Takes all events. Returns whether there were any.
    pub(crate) fn take_events(&mut self) -> bool {
        let (mut cq, mut context) = (null_mut(), null_mut());
        let before = self.taken;
        // SAFETY: the channel is open, and does not wait.
        while unsafe { (self.verbs.ibv_get_cq_event)(self.channel, &mut cq, &mut context) } == 0 {
            self.taken += 1;
        }
        let any = self.taken > before;
        // An acknowledgement takes a lock, so acknowledge many events at a time.
        if self.taken > 1000 {
            self.acknowledge();
        }
        any
    }

    fn acknowledge(&mut self) {
        // SAFETY: `taken` events of the queue have been taken.
        unsafe { (self.verbs.ibv_ack_cq_events)(self.cq, self.taken) };
        self.taken = 0;
    }

    /// Posts receives.
    ///
    /// # Safety
    /// The memory that they name stays while they are posted.
    pub(crate) unsafe fn post_receives(&self, list: &mut [ibv_recv_wr]) -> Result<(), Wrong> {
        let mut next = null_mut();
        for request in list.iter_mut().rev() {
            request.next = next;
            next = request;
        }
        if next.is_null() {
            return Ok(());
        }
        let mut bad = null_mut();
        // SAFETY: by the contract of this function. The queue pair is live.
        unsafe {
            let post = (*(*self.qp).context).ops.post_recv.ok_or(NO_VERB)?;
            done("ibv_post_recv", post(self.qp, next, &mut bad))
        }
    }

    /// Posts a request.
    ///
    /// # Safety
    /// The memory that it names stays while it is posted; inline data stays until this returns.
    pub(crate) unsafe fn post(&self, request: &mut ibv_send_wr) -> Result<(), Wrong> {
        for at in 0..usize::try_from(request.num_sge).unwrap_or(0) {
            // SAFETY: the request has `num_sge` of them.
            let ibv_sge { addr, length, .. } = unsafe { *request.sg_list.add(at) };
            // Bytes of the program were looked at when they were taken. All others are this library's.
            sanitized::bytes_written(std::ptr::without_provenance(addr as usize), length as usize);
        }
        let mut bad = null_mut();
        // SAFETY: by the contract of this function. The queue pair is live.
        unsafe {
            let post = (*(*self.qp).context).ops.post_send.ok_or(NO_VERB)?;
            done("ibv_post_send", post(self.qp, request, &mut bad))
        }
    }

    /// Ends it, with its queue and channel.
    pub(crate) fn end(&mut self, id: &Id) {
        if !self.qp.is_null() {
            qp::destroy(id);
            self.qp = null_mut();
        }
        if !self.cq.is_null() {
            self.acknowledge();
            // SAFETY: nothing uses the queue any more, and it ends once.
            unsafe { (self.verbs.ibv_destroy_cq)(self.cq) };
            self.cq = null_mut();
        }
        if !self.channel.is_null() {
            // SAFETY: as for the queue.
            unsafe { (self.verbs.ibv_destroy_comp_channel)(self.channel) };
            self.channel = null_mut();
        }
    }
}
