//! What is recorded of the regions, windows and queue pairs of this process, for those who want its events.

use transom_device::protection::Snapshot;
use transom_device::qp::QpNumber;
use transom_system::trace::{Event, What};

use super::{Device, Door};

impl Device {
    /// A region or window is about to be open.
    #[cold]
    pub(super) fn trace_opened(&self, slot: u32, region: Option<u32>, object: &Snapshot) {
        let key = self.process().segment().keys().key_of(slot, object.byte).0;
        let region = region.map_or(0, |slot| u64::from(slot) + 1);
        self.process().record(Event {
            code: object.kind as u8,
            qp: object.qp,
            key,
            number: slot.into(),
            address: object.base,
            length: object.length,
            detail: u64::from(object.access.bits()) | region << 32,
            ..Event::of(What::Opened)
        });
    }

    /// It is closed. The event says by what.
    #[cold]
    pub(super) fn trace_closed(&self, slot: u32, event: Event) {
        let keys = self.process().segment().keys();
        // Its entry still says what it was.
        let object = keys.entry(slot).snapshot();
        self.process().record(Event {
            code: object.kind as u8,
            key: keys.key_of(slot, object.byte).0,
            number: slot.into(),
            address: object.base,
            length: object.length,
            detail: object.access.bits().into(),
            ..event
        });
    }

    /// A queue pair may have changed.
    #[cold]
    pub(super) fn trace_changed(&self, pair: QpNumber, door: &Door) {
        self.process().record(Event {
            code: door.gate.state as u8,
            qp: pair.bits(),
            peer: door.peer.bits(),
            ..Event::of(What::Changed)
        });
    }
}
