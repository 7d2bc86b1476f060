//! Tells the ledger of requests and completions.

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use transom_abi::*;
use transom_check::Call;
use transom_check::ledger::posting::Requests;
use transom_check::ledger::{Bind, Buffer, Completed, Posted};
use transom_device::qp::QpState;
use transom_device::queue::{LocalOp, SendOp, Sge};
use transom_host::device::Device;
use transom_host::objects::QueuePair;
use transom_system::rehearsal;

use super::end::PATIENCE;
use super::names::called_by_name;
use super::{Checker, events, id_of};
use crate::site;

impl Checker {
    /// Requests are about to be posted to the send queue of a queue pair. Returns whether [`Checker::posted`] must hear
    /// of them even if the queue pair takes them all.
    pub(crate) fn sends(&self, device: usize, address: usize, requests: impl Requests) -> bool {
        self.tell_of_call(|ledger, call| ledger.sends_posted(device, address, requests, call, self))
    }

    /// A queue pair took the first `taken` of these requests. The ledger knows all of them already.
    pub(crate) fn posted(
        &self,
        device: &Arc<Device>,
        address: usize,
        requests: &mut [Posted],
        taken: usize,
        answer: c_int,
    ) {
        let (taken, refused) = requests.split_at_mut(taken);
        self.tell(|ledger| {
            ledger.sends_refused(address, refused);
            ledger.sends_taken(address, taken);
        });
        if answer == libc::ENOMEM {
            self.send_queue_full(address);
        }
        if taken.iter().any(|it| it.is_target) {
            self.returned(device, address, taken);
        }
    }

    /// A post had no room. In ERR and SQE each request has a completion, so that no queue stays full.
    fn send_queue_full(&self, address: usize) {
        let pair = self.pairs.lock().get(&address).and_then(Weak::upgrade);
        let ends = |pair: &Arc<QueuePair>| {
            matches!(pair.summary().gate().state, QpState::Error | QpState::Sqe)
        };
        if let Some(pair) = pair.filter(|pair| !ends(pair)) {
            let places = pair.send_places();
            self.tell_of_call(|ledger, call| ledger.send_queue_full(address, places, call));
        }
    }

    /// These requests were posted to a queue pair, and some return data. If the device has carried out all by now, what
    /// they have returned may not change any more.
    fn returned(&self, device: &Arc<Device>, address: usize, taken: &mut [Posted]) {
        let pair = self.pairs.lock().get(&address).and_then(Weak::upgrade);
        if pair.is_some_and(|pair| pair.sends_under_way() == 0) {
            self.tell(|ledger| {
                taken.iter_mut().for_each(|it| ledger.locate(id_of(device), it));
                ledger.returned(address, taken, |at, bytes| self.read(at, bytes));
            });
        }
    }

    /// Receives are about to be posted to a queue pair. If it has none, messages may have waited for them.
    pub(crate) fn receives(&self, device: usize, address: usize, requests: impl Requests) {
        let late = self.tell_of_call(|ledger, call| {
            let are_first = ledger.receives_posted(device, address, requests, call, self);
            are_first.then_some(*call)
        });
        let Some(call) = late else { return };
        let pair = self.pairs.lock().get(&address).and_then(Weak::upgrade);
        if let Some(times @ 1..) = pair.and_then(|pair| Some(pair.ran_dry(PATIENCE)?.times)) {
            self.tell(|ledger| ledger.receive_was_late(address, times, &call));
        }
    }

    /// Receives are about to be posted to a shared receive queue.
    pub(crate) fn shared_receives(&self, device: usize, address: usize, requests: impl Requests) {
        self.tell_of_call(|ledger, call| {
            ledger.shared_receives_posted(device, address, requests, call, self);
        });
    }

    /// Adds a tagged buffer, which is a receive.
    pub(crate) fn adding(
        &self,
        device: usize,
        address: usize,
        request: impl FnOnce(&mut Posted),
        add: impl FnOnce() -> Option<u32>,
    ) {
        let number =
            self.tell_of_call(|ledger, call| ledger.tag_added(device, address, request, call));
        let handle = add();
        self.tell(|ledger| ledger.tag_answered(address, number, handle));
    }

    /// Posts these requests, all or none, to a queue pair on a device.
    pub(crate) fn posting<E: Copy + Into<c_int>, R: Requests>(
        &self,
        device: &Arc<Device>,
        address: usize,
        requests: impl Fn() -> R,
        post: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let is_told = self.sends(id_of(device), address, requests());
        let answer = post();
        if is_told || answer.is_err() {
            let mut requests = written(requests(), &self.call());
            let taken = if answer.is_ok() { requests.len() } else { 0 };
            let errno = answer.err().map_or(0, E::into);
            self.posted(device, address, &mut requests, taken, errno);
        }
        answer
    }

    /// The program polls, and gets these completions. `is_empty` says that it sees that there are no more, and `waiting`
    /// how many there are.
    pub(crate) fn polled(
        &self,
        queue: usize,
        completions: &[ibv_wc],
        is_empty: bool,
        waiting: impl FnOnce() -> usize,
    ) {
        let has_channels = self.sleepers.has_channels();
        let is_error = completions.iter().any(has_failed);
        if is_error {
            self.has_errors.store(true, Relaxed);
        } else if completions.is_empty() && !has_channels && !self.has_errors.load(Relaxed) {
            // Programs poll in loops. Nobody sleeps for a queue, and no error waits to be handled.
            return;
        }
        let is_named = is_error || (is_empty && has_channels);
        self.attempt(|| {
            let call = if is_named { site::call() } else { site::thread_only() };
            let (got, left) = (completions.len(), if is_empty { 0 } else { waiting() });
            let watched = self.told(
                |_| true,
                |ledger| {
                    ledger.queue_polled(queue, got, is_empty, &call);
                    ledger.queue_holds(queue, got + left);
                    let of_requests = completions.iter().filter(|wc| is_of_request(wc));
                    let completed = of_requests.map(|wc| completed(queue, wc));
                    ledger.polled(completed, &call, self)
                },
            );
            self.compare(&watched);
        });
    }

    /// Polls while no other thread polls.
    pub(crate) fn polling<T>(&self, poll: impl FnOnce() -> T) -> T {
        let _turn = self.polling.lock();
        poll()
    }
}

/// The requests of a call, beside the ledger's own.
pub(crate) fn written(requests: impl Requests, call: &Call) -> Vec<Posted> {
    let written = requests.map(|request| {
        let mut posted = Posted::default();
        request(&mut posted);
        Posted { call: *call, ..posted }
    });
    written.collect()
}

/// The statuses of a request that asked for something that is not allowed.
const REFUSED: [ibv_wc_status; 5] = [
    IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_PROT_ERR,
    IBV_WC_MW_BIND_ERR,
    IBV_WC_REM_INV_REQ_ERR,
    IBV_WC_REM_ACCESS_ERR,
];

/// Whether a request failed for its own reason.
fn has_failed(wc: &ibv_wc) -> bool {
    !matches!(wc.status, IBV_WC_SUCCESS | IBV_WC_WR_FLUSH_ERR)
}

/// Whether it ends a request: it is not that of a list operation, nor of a tagged message whose data is still to come.
fn is_of_request(wc: &ibv_wc) -> bool {
    match wc.opcode {
        IBV_WC_TM_ADD | IBV_WC_TM_DEL | IBV_WC_TM_SYNC => false,
        IBV_WC_TM_RECV if wc.status == IBV_WC_SUCCESS => {
            wc.wc_flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID) != IBV_WC_TM_MATCH
        }
        _ => true,
    }
}

fn completed(queue: usize, wc: &ibv_wc) -> Completed {
    let has_tagged_data = wc.status != IBV_WC_SUCCESS || wc.wc_flags & IBV_WC_TM_DATA_VALID != 0;
    Completed {
        is_tagged: wc.opcode == IBV_WC_TM_RECV && has_tagged_data,
        queue,
        number: wc.qp_num,
        wr_id: wc.wr_id,
        is_receive: wc.opcode & IBV_WC_RECV != 0,
        bytes: wc.byte_len.into(),
        is_success: wc.status == IBV_WC_SUCCESS,
        has_failed: has_failed(wc),
        refused: REFUSED.contains(&wc.status).then(|| events::name_of(wc.status)),
    }
}

/// The bind of a type 2 window in a request, if it is one.
pub(crate) fn bind_of(device: usize, op: &SendOp) -> Option<Bind> {
    let SendOp::Local(LocalOp::BindType2(bind)) = op else { return None };
    let rights = super::rights(bind.access);
    Some(Bind { device, key: bind.window.0, rights, is_type1: false })
}

/// The buffer that an SGE names, by its region's key.
pub(crate) fn buffer(sge: &Sge) -> Buffer {
    Buffer::new(rehearsal::l_key(sge.key), sge.address, sge.length.into())
}

/// The name of a request's operation.
pub(crate) fn called(op: &SendOp) -> &'static str {
    op.operation().map_or("request", called_by_name)
}
