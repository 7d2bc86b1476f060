//! What a rehearsal (`transom rehearse`) refuses when objects are made, how long that takes, and what it knows of
//! completion queues. A process without a rehearsal only looks whether there is one.

use std::ffi::c_int;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use transom_abi::*;
use transom_host::Limits;
use transom_host::objects::QueuePair;
use transom_rehearse::Provocation;
use transom_system::rehearsal::{self, Rehearsal};
use transom_thread::uncancelled;

use crate::told;

/// The shortest time that a slow verb takes. It may be doubled so often.
const SHORTEST: Duration = Duration::from_micros(400);
const DOUBLINGS: u64 = 8;

/// A verb is about to change a queue pair, or to make an object. In a rehearsal it may take long before it does.
#[inline]
pub(crate) fn take_time() {
    rehearsal::on().inspect(|rehearsal| take_time_in(rehearsal, told::verb()));
}

#[cold]
fn take_time_in(rehearsal: &Rehearsal, verb: &str) {
    if let Some(number) = rehearsal.provokes_next_in(Provocation::SlowVerbs, verb) {
        // A sleep is a cancellation point, and most verbs are none.
        uncancelled(|| thread::sleep(SHORTEST * (1 << (number % (DOUBLINGS + 1)))));
    }
}

/// A verb is about to make an object, or to give it another size. In a rehearsal that may fail: there is no memory, or
/// the adapter has no more of them.
#[inline]
pub(crate) fn may_make() -> Result<(), c_int> {
    let Some(rehearsal) = rehearsal::on() else { return Ok(()) };
    refuse(rehearsal, told::verb(), &[libc::ENOMEM, libc::EAGAIN])
}

/// `rdma_create_id` is about to make an id. The kernel has memory for it or has none.
pub(crate) fn may_make_id() -> Result<(), c_int> {
    may_make_by("rdma_create_id", &[libc::ENOMEM])
}

/// `rdma_create_event_channel` is about to open a file. There may be no memory, or no descriptor.
pub(crate) fn may_make_channel() -> Result<(), c_int> {
    may_make_by("rdma_create_event_channel", &[libc::ENOMEM, libc::EMFILE])
}

/// A function of librdmacm is about to make something. Its caller says who refuses it.
fn may_make_by(function: &str, errnos: &[c_int]) -> Result<(), c_int> {
    let Some(rehearsal) = rehearsal::on() else { return Ok(()) };
    refuse(rehearsal, function, errnos).inspect_err(|_| told::rehearsed(""))
}

/// A verb is about to register memory. The program may also have no right to lock memory.
pub(crate) fn may_register() -> Result<(), c_int> {
    let Some(rehearsal) = rehearsal::on() else { return Ok(()) };
    refuse(rehearsal, told::verb(), &[libc::ENOMEM, libc::EAGAIN, libc::EPERM])
}

fn refuse(rehearsal: &Rehearsal, verb: &str, errnos: &[c_int]) -> Result<(), c_int> {
    take_time_in(rehearsal, verb);
    match rehearsal.provokes_next_in(Provocation::RefusedObjects, verb) {
        Some(number) => {
            told::rehearsed("REH-30");
            Err(errnos[(number % errnos.len() as u64) as usize])
        }
        None => Ok(()),
    }
}

/// Whether a new queue pair or queue, or a new size of one, is only as large as was asked for.
pub(crate) fn is_exact() -> bool {
    rehearsal::on()
        .is_some_and(|rehearsal| rehearsal.provokes_next(Provocation::ExactSizes).is_some())
}

/// Whether the post of a type 2 bind leaves the window's key as it was.
pub(crate) fn keeps_window_key() -> bool {
    rehearsal::on()
        .is_some_and(|rehearsal| rehearsal.provokes_next(Provocation::KeptWindowKeys).is_some())
}

/// Whether a region of no bytes is refused.
pub(crate) fn refuses_empty() -> bool {
    rehearsal::on().is_some_and(|rehearsal| {
        rehearsal.provokes_next(Provocation::RefusedEmptyRegions).is_some()
    })
}

/// How many entries a completion queue or shared receive queue gets if the program asks for so many. It has at most
/// `most`.
pub(crate) fn shared_depth(asked: u32, most: u32) -> u32 {
    if is_exact() { asked } else { Limits::shared_depth(asked).min(most) }
}

/// Fills those of a queue pair's attributes with rubbish that the program has not asked for (`ibv_query_qp(3)`).
pub(crate) fn poison_attributes(pair: &QueuePair, attr: &mut ibv_qp_attr, mask: u32) {
    let Some(rubbish) = pair.poisons_query() else { return };
    let known = *attr;
    // SAFETY: it is a plain struct of C, and any bytes are one. With the upper bit they are no small number.
    unsafe { std::ptr::write_bytes(attr, rubbish as u8 | 0x81, 1) };
    macro_rules! keep {
        ($($bit:ident: $($field:ident)+;)+) => {
            $(if mask & $bit != 0 {
                $(attr.$field = known.$field;)+
            })+
        };
    }
    // Nobody asks for this one by a bit.
    attr.sq_draining = known.sq_draining;
    keep! {
        IBV_QP_STATE: qp_state;
        IBV_QP_CUR_STATE: cur_qp_state;
        IBV_QP_EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_QKEY: qkey;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_ALT_PATH: alt_ah_attr alt_pkey_index alt_port_num alt_timeout;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_PATH_MIG_STATE: path_mig_state;
        IBV_QP_CAP: cap;
        IBV_QP_DEST_QPN: dest_qp_num;
        IBV_QP_RATE_LIMIT: rate_limit;
    }
}

/// What a rehearsal knows of a completion queue.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    /// How many polls had something to find.
    pub(crate) finding: u64,
    /// How many completions were given.
    pub(crate) given: u64,
    /// How often it was armed with completions there.
    pub(crate) armed_late: u64,
    /// It was armed, and its event has not been taken.
    is_armed: bool,
    /// The program has been told of completions, or would be: they must not be hidden until a poll has found none.
    shows_all: bool,
    /// How often it was told.
    told: u64,
}

impl Polled {
    /// For a new queue, in a rehearsal.
    pub(crate) fn of_new() -> Option<Box<Mutex<Self>>> {
        rehearsal::on().map(|_| Box::default())
    }

    /// The program arms the queue, and an event will tell it of the next completion.
    pub(crate) fn armed(&mut self) {
        self.is_armed = true;
        self.promised();
    }

    /// The program takes an event of the queue, which promises it a completion.
    pub(crate) fn event_taken(&mut self) {
        self.is_armed = false;
        self.promised();
    }

    /// The program knows of completions by something else than a poll.
    pub(crate) fn promised(&mut self) {
        self.shows_all = true;
        self.told += 1;
    }

    /// Whether a poll may hide completions. If so, nobody has promised them.
    pub(crate) fn may_hide(&self) -> bool {
        !self.shows_all
    }

    /// How often the program was told of completions. Ask before a poll.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// A poll has found no more. Of completions of which the program was told since it began, it says nothing.
    pub(crate) fn found_none(&mut self, told_before: u64) {
        self.shows_all &= self.is_armed || self.told != told_before;
    }
}
