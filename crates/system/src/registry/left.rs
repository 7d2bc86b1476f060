//! What ended processes have counted, by device.

use super::counters::Counters;
use crate::traffic::ProcessTraffic;

/// The values that ended processes have left, added up.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Left {
    /// What they carried.
    pub(crate) carried: ProcessTraffic,
    /// Their packets.
    pub(crate) packets: Counters,
}

impl Left {
    /// Takes the packets of a process that has ended, whose slot is locked for a change.
    pub(super) fn take_packets(&self, counters: &Counters) {
        self.carried.moves.carry_out(|| {
            self.packets.collect(counters);
            counters.clear();
        });
    }
}
