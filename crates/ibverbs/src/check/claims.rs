//! The program's calls of the functions of `transom.h`, and the writes of peers to claimed memory.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use transom_device::protection::Attempt;
use transom_device::qp::QpNumber;
use transom_host::device::Device;
use transom_interpose::given_back::Said;
use transom_system::watch_writes;

use super::names::called_by_name;
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
        if self.watches_writes.swap(true, Relaxed) {
            return;
        }
        watch_writes(written);
        for pair in self.pairs.lock().values().filter_map(std::sync::Weak::upgrade) {
            pair.ask_by_message();
        }
    }
}

/// From now on peers ask these queue pairs of a device for each write with a message. One of them is at work on this
/// thread, so nothing may be dropped here that ends a queue pair.
pub(super) fn watch_writes_of(device: &Device, pairs: &[u32]) {
    watch_writes(written);
    let table = device.process().segment().qps();
    let indices = pairs.iter().map(|number| QpNumber::from_bits(*number).index());
    indices.filter_map(|index| table.summary(index)).for_each(|it| it.ask_by_message());
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
