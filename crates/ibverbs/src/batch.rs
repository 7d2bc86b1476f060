//! A batch of send work requests that a program is building. No request is posted before the batch is complete (rules
//! PS-14, PS-15). Its memory is allocated when the queue pair is created.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;
use transom_check::ledger::Posted;
use transom_check::ledger::posting::Requests;
use transom_device::queue::{
    Body, LocalOp, PostError, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use transom_host::Limits;
use transom_host::objects::{PostOne, QueuePair};
use transom_system::registry::CallFault;
use transom_system::sanitizers::{self, Half};

use crate::answers::By;
use crate::wrong::Wrong;
use crate::{check, profile, rehearse};

/// A send work request that is being built.
struct Built {
    wr_id: u64,
    flags: SendFlags,
    op: SendOp,
    remote: Remote,
    data: Data,
    /// The window to be bound, or null.
    window: *mut ibv_mw,
}

/// The local data of a request: a range of the batch's SGEs or inline bytes.
#[derive(Clone, Copy)]
enum Data {
    /// No setter was called.
    None,
    Sges {
        start: usize,
        count: usize,
    },
    Inline {
        start: usize,
        length: usize,
    },
}

/// The batch of a queue pair. It is empty unless the program is building one.
pub(crate) struct Batch {
    kind: ibv_qp_type,
    /// Bits of `ibv_qp_create_send_ops_flags`.
    enabled: u64,
    cap: ibv_qp_cap,
    requests: Vec<Built>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// The first fault. The program gets it when it completes the batch.
    error: Option<Wrong>,
}

// SAFETY: the windows are only written for the program, which named them for that.
unsafe impl Send for Batch {}

impl Batch {
    /// An empty batch with room for as many requests as the send queue holds. `ENOMEM` if there is no memory for it.
    pub(crate) fn new(kind: ibv_qp_type, enabled: u64, cap: ibv_qp_cap) -> Result<Self, c_int> {
        let size = cap.max_send_wr as usize;
        Ok(Self {
            kind,
            enabled,
            cap,
            requests: room_for(size)?,
            sges: room_for(size * cap.max_send_sge as usize)?,
            inline: room_for(size * cap.max_inline_data as usize)?,
            error: None,
        })
    }

    /// Begins a request. `operation` is its bit of `ibv_qp_create_send_ops_flags`.
    pub(crate) fn begin(
        &mut self,
        operation: ibv_qp_create_send_ops_flags,
        wr_id: u64,
        flags: u32,
        op: SendOp,
    ) {
        if self.error.is_some() {
            return;
        }
        if self.enabled & u64::from(operation) == 0 {
            let bit = operation.into();
            return self.fail(Wrong::with(libc::EINVAL, CallFault::NotCreatedFor, bit, "PS-14"));
        }
        let most = u64::from(self.cap.max_send_wr);
        if self.requests.len() as u64 == most {
            let device = Limits::here().work_requests.into();
            let field = "the length of the batch";
            let wrong = Wrong::beyond_own(field, most + 1, most, device, "PS-14");
            return self.fail(wrong.answering(libc::ENOMEM));
        }
        self.requests.push(Built {
            wr_id,
            flags: SendFlags::from_bits_truncate(flags),
            op,
            remote: Remote::Connected,
            data: Data::None,
            window: null_mut(),
        });
    }

    /// Sets the window that the last request binds.
    pub(crate) fn set_window(&mut self, window: *mut ibv_mw) {
        if let Some(request) = self.last() {
            request.window = window;
        }
    }

    /// Sets the destination of the last request, if the queue pair has this type.
    pub(crate) fn set_remote(&mut self, kind: ibv_qp_type, remote: Result<Remote, c_int>) {
        let right_type = self.kind == kind;
        match (self.last(), remote) {
            (Some(request), Ok(remote)) if right_type => request.remote = remote,
            (Some(_), Err(errno)) if right_type => {
                self.fail(Wrong::unknown("ah", errno, "PS-14"));
            }
            _ => self.fail(Wrong::invalid("qp_type, for this setter", self.kind.into(), "PS-14")),
        }
    }

    /// Gives the last request its local buffers.
    pub(crate) fn set_sges(&mut self, sges: &[Sge]) {
        let (count, most) = (sges.len() as u64, u64::from(self.cap.max_send_sge));
        let start = self.sges.len();
        match self.last() {
            Some(_) if count > most => {
                self.fail(Wrong::too_many_sges(sges.len(), most as usize, By::Batch));
            }
            Some(request) if takes_sges(request) => {
                request.data = Data::Sges { start, count: sges.len() };
                self.sges.extend_from_slice(sges);
            }
            _ => self.fail(Wrong::invalid("num_sge for this request", count, "PS-14")),
        }
    }

    /// Gives the last request its data, as it is now (rule LA-21).
    ///
    /// # Safety
    /// The buffers are readable memory, unless their lengths alone are refused.
    pub(crate) unsafe fn set_inline(&mut self, buffers: &[ibv_data_buf]) {
        let total = buffers.iter().try_fold(0_usize, |sum, buffer| sum.checked_add(buffer.length));
        let (total, most) = (total.unwrap_or(usize::MAX) as u64, self.cap.max_inline_data.into());
        if total > most {
            let is_datagram = self.kind == IBV_QPT_UD;
            return self.fail(Wrong::inline_too_long(total, most, is_datagram, By::Batch));
        }
        if buffers.iter().any(|buffer| buffer.addr.is_null() && buffer.length > 0) {
            return self.fail(Wrong::invalid("buf_list->addr", 0, "PS-14"));
        }
        if !self.last().is_some_and(|request| takes_inline(request)) {
            return self.fail(Wrong::invalid("IBV_SEND_INLINE", total, "PS-05"));
        }
        let start = self.inline.len();
        for buffer in buffers.iter().filter(|buffer| buffer.length > 0) {
            // SAFETY: by the contract of this function.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.addr.cast(), buffer.length) };
            self.inline.extend_from_slice(bytes);
        }
        self.note_inline(start);
    }

    /// Gives the last request, an ATOMIC WRITE, its 8 bytes.
    pub(crate) fn set_word(&mut self, word: [u8; 8]) {
        let start = self.inline.len();
        if self.last().is_some() {
            self.inline.extend_from_slice(&word);
            self.note_inline(start);
        }
    }

    /// The inline bytes from `start` on belong to the last request.
    fn note_inline(&mut self, start: usize) {
        let length = self.inline.len() - start;
        if let Some(request) = self.last() {
            request.data = Data::Inline { start, length };
        }
    }

    /// Marks the batch as refused. The first reason counts.
    pub(crate) fn fail(&mut self, wrong: Wrong) {
        self.error.get_or_insert(wrong);
    }

    /// The request that setters fill in. `None` after a fault.
    fn last(&mut self) -> Option<&mut Built> {
        if self.error.is_some() { None } else { self.requests.last_mut() }
    }

    /// Posts all requests or none.
    pub(crate) fn post(
        &self,
        pair: &QueuePair,
        refused: impl FnOnce(PostError) -> Wrong,
    ) -> Result<(), Wrong> {
        if let Some(wrong) = self.error {
            return Err(wrong);
        }
        if self.requests.iter().any(|request| self.lacks_remote(request)) {
            return Err(Wrong::unknown("ah or remote_srqn", libc::EINVAL, "PS-14"));
        }
        let count = self.requests.len();
        pair.post_send_batch(count, |post_one| self.each(post_one)).map_err(refused)?;
        for request in &self.requests {
            if let SendOp::Local(LocalOp::BindType2(bind)) = request.op
                // SAFETY: the program named the window, and its memory stays readable.
                && let Some(window) = unsafe { request.window.as_mut() }
                && !rehearse::keeps_window_key()
            {
                // As in `ibv_post_send` (rule KEY-10).
                window.rkey = bind.window.0;
            }
        }
        Ok(())
    }

    /// Whether the program has not called a setter that this type of queue pair needs.
    fn lacks_remote(&self, request: &Built) -> bool {
        let local = matches!(request.op, SendOp::Local(_));
        let demands = matches!(self.kind, IBV_QPT_UD | IBV_QPT_XRC_SEND) && !local;
        demands && request.remote == Remote::Connected
    }

    /// Hands each request to `post_one`.
    fn each(&self, post_one: PostOne<'_>) -> Result<(), PostError> {
        for &Built { wr_id, flags, op, remote, data, .. } in &self.requests {
            let request = SendRequest { wr_id, op, flags, sges: &[], inline: None, remote };
            match data {
                Data::None => post_one(&request)?,
                Data::Sges { start, count } => {
                    let sges = &self.sges[start..start + count];
                    post_one(&SendRequest { sges, ..request })?;
                }
                Data::Inline { start, length } => {
                    let bytes = [&self.inline[start..start + length]];
                    post_one(&SendRequest { inline: Some(&bytes), ..request })?;
                }
            }
        }
        Ok(())
    }

    /// Tells sanitizers about the requests, which are posted now.
    pub(crate) fn note(&self) {
        for request in &self.requests {
            let Data::Sges { start, count } = request.data else { continue };
            let buffer = |sge: &Sge| sanitizers::Posted {
                half: Half::Send,
                wr_id: request.wr_id,
                name: check::called(&request.op),
                address: sge.address,
                length: sge.length.into(),
            };
            sanitizers::note_post(self.sges[start..start + count].iter().map(buffer));
        }
    }

    /// The requests, which write themselves down for `transom check`.
    pub(crate) fn described(&self, device: usize) -> impl Requests {
        self.requests.iter().map(move |request| {
            move |posted: &mut Posted| {
                let sges = match request.data {
                    Data::Sges { start, count } => &self.sges[start..start + count],
                    Data::None | Data::Inline { .. } => &[],
                };
                posted.buffers.set(sges.iter().map(check::buffer));
                posted.sges = sges.len() as u32;
                posted.bytes = match request.data {
                    Data::Inline { length, .. } => length as u64,
                    _ => sges.iter().map(|sge| u64::from(sge.length)).sum(),
                };
                posted.wr_id = request.wr_id;
                posted.what = check::called(&request.op);
                posted.is_target =
                    matches!(request.op, SendOp::Message(body) if body.returns_data());
                posted.is_receive = false;
                posted.remote = match request.op {
                    SendOp::Message(
                        Body::Read { address, key } | Body::Write { address, key, .. },
                    ) => Some((key.0, address)),
                    _ => None,
                };
                posted.adds = match request.op {
                    SendOp::Message(Body::FetchAdd { add, .. }) => Some(add),
                    _ => None,
                };
                posted.is_inline = matches!(request.data, Data::Inline { .. });
                posted.is_signaled = request.flags.contains(SendFlags::SIGNALED);
                posted.binds = check::bind_of(device, &request.op);
            }
        })
    }

    /// Whether the adapter that the device stands for refuses one of its requests.
    pub(crate) fn is_refused(&self, signals_all: bool) -> bool {
        self.requests.iter().any(|request| {
            let is_read = matches!(request.op, SendOp::Message(Body::Read { .. }));
            let sges = match request.data {
                Data::Sges { count, .. } => count as c_int,
                Data::None | Data::Inline { .. } => 0,
            };
            profile::refuses_shape(is_read, sges, request.flags.bits(), signals_all)
        })
    }

    /// How many requests it has.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Empties the batch.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.error = None;
    }
}

fn room_for<T>(count: usize) -> Result<Vec<T>, c_int> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| libc::ENOMEM)?;
    Ok(room)
}

/// Whether a request can still get local buffers. It gets data only once.
fn takes_sges(request: &Built) -> bool {
    let returns = matches!(request.op, SendOp::Message(body) if body.returns_data());
    takes_inline(request) || (returns && matches!(request.data, Data::None))
}

/// Whether a request can still get data, and may get it inline (rule PS-05).
fn takes_inline(request: &Built) -> bool {
    let carries = matches!(request.op, SendOp::Message(body) if body.carries_data());
    carries && matches!(request.data, Data::None)
}
