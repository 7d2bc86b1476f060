//! The program's calls of the functions of `transom.h`, and the writes of peers.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};

use transom_check::Ledger;
use transom_device::execution::{AccessLog, Logged};
use transom_device::protection::{Attempt, Operation};
use transom_device::qp::{Bypass, QpNumber};
use transom_host::device::Device;
use transom_interpose::given_back::Said;
use transom_system::{ThisProcess, watch_writes, watch_writes_at_once, watched_bypass};

use super::names::called_by_name;
use super::{Checker, Telling, on_outside};

pub(super) unsafe extern "C" fn says(said: Said, what: *mut c_void, length: usize) {
    let Some(checker) = on_outside() else { return };
    let (start, length) = (what.addr() as u64, length as u64);
    let range = start..start.saturating_add(length);
    checker.attempt(|| match said {
        Said::Claims => checker.claimed(&range),
        Said::Releases => checker.tell(|ledger| ledger.releases(&range)),
        Said::Waits => checker.waits_for(what.addr()),
        Said::Woke => checker.is_awake(),
    });
}

impl Checker {
    fn claimed(&self, range: &Range<u64>) {
        let call = self.call();
        self.tell(|ledger| ledger.claims(range, &call));
        let pairs = self.tell(|ledger| ledger.pairs_at(range));
        let under_way = self.under_way(pairs);
        self.tell(|ledger| ledger.claimed_in_flight(range, &under_way, &call));
        self.watch_writes();
    }

    /// From now on peers ask for each write with a message, so the check sees it at once.
    pub(super) fn watch_writes(&self) {
        if self.watches_writes.swap(true, Relaxed) {
            return;
        }
        watch_writes_at_once(written);
        for pair in self.pairs.lock().values().filter_map(Weak::upgrade) {
            pair.summary().restrict(Bypass::Forbidden);
        }
    }

    /// From now on peers log each access to a device by these queue pairs of it. Without memory for the log they do not:
    /// then some notes are missing. One of the queue pairs is at work on this thread, so nothing may be dropped here
    /// that ends a queue pair.
    pub(super) fn log_writes_of(&self, device: &Device, pairs: &[u32]) {
        let (process, segment) = (device.process(), device.process().segment());
        watch_writes(written);
        if segment.open_access_log().is_err() {
            return;
        }
        {
            // While this thread has the lock, its signal handlers tell the ledger nothing.
            let _telling = Telling::begin();
            self.logging.lock().push(Arc::downgrade(process));
            self.has_logs.store(true, Release);
        }
        let bypass = watched_bypass(segment);
        let indices = pairs.iter().map(|number| QpNumber::from_bits(*number).index());
        let summaries = indices.filter_map(|index| segment.qps().summary(index));
        summaries.for_each(|it| it.restrict(bypass));
    }

    /// The processes whose logs may hold accesses that the ledger does not know of yet: one for each device.
    pub(super) fn logging(&self) -> Vec<Arc<ThisProcess>> {
        // Most processes have none, and an empty list takes no memory. In a forked child they are its parent's.
        if !self.has_logs.load(Acquire) || self.owner.is_another() {
            return Vec::new();
        }
        let mut logging = self.logging.lock();
        logging.retain(|process| process.strong_count() > 0);
        logging.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Tells the ledger what peers have logged.
pub(super) fn take_logged(ledger: &mut Ledger, log: &AccessLog) {
    log.drain(|logged| match logged {
        Logged::Access(it) if it.operation == Operation::Read => ledger.peers_may_know(),
        Logged::Access(it) => tell_written(ledger, &it),
        Logged::Gap => ledger.peers_may_know(),
    });
}

/// A peer has written.
fn written(write: &Attempt) {
    if let Some(checker) = on_outside() {
        checker.tell(|ledger| tell_written(ledger, write));
    }
}

fn tell_written(ledger: &mut Ledger, write: &Attempt) {
    let what = called_by_name(write.operation);
    ledger.written(what, write.qp, write.key.0, write.address, write.length);
}
