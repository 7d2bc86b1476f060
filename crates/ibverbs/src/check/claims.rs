//! The program's calls of the functions of `transom.h`, and the writes of peers to claimed memory.

use std::ffi::c_void;
use std::ops::Range;

use transom_device::protection::Attempt;
use transom_interpose::given_back::Said;
use transom_system::{watch_writes, writes_are_watched};

use super::work::called_by_name;
use super::{Checker, on_outside};

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

    /// From now on peers ask for each write with a message, so the check sees it.
    pub(super) fn watch_writes(&self) {
        if writes_are_watched() {
            return;
        }
        watch_writes(written);
        for pair in self.pairs.lock().values().filter_map(std::sync::Weak::upgrade) {
            pair.ask_by_message();
        }
    }
}

/// A peer has written.
fn written(write: &Attempt) {
    if let Some(checker) = on_outside() {
        let what = called_by_name(write.operation);
        checker.tell(|ledger| {
            ledger.written(what, write.qp, write.key.0, write.address, write.length)
        });
    }
}
