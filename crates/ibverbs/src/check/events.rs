//! Events that the program gets, acknowledges and waits for.

use std::ffi::CStr;

use transom_abi::ibv_wc_status;
use transom_check::ledger::{ConnectionEvent, Owner, Thing, Unread, Waits};
use transom_device::queue::Status;
use transom_host::events::AsyncEvent;
use transom_thread::uncancelled;

use super::Checker;
use super::threads::is_alone;
use crate::strings::ibv_wc_status_str;

impl Checker {
    /// The program gets an event.
    pub(crate) fn got(&self, owner: Owner) {
        let call = self.call();
        self.tell(|ledger| {
            if owner.event == transom_check::ledger::Event::Completion {
                ledger.queue_told(owner.address, &call);
            }
            ledger.event_got(owner, &call);
        });
    }

    /// The program acknowledges `count` events.
    pub(crate) fn acknowledged(&self, owner: Owner, count: u64) {
        let call = self.call();
        self.tell(|ledger| ledger.events_acknowledged(owner, count, &call));
    }

    /// The program gets an event of rdma_cm.
    pub(crate) fn connection_event_got(&self, event: ConnectionEvent) {
        let call = self.call();
        self.tell(|ledger| ledger.connection_event_got(event, &call));
    }

    /// By an event that the program gets, a queue pair is not connected.
    pub(crate) fn pair_unconnected(&self, address: usize, event: &'static str) {
        let call = self.call();
        self.tell(|ledger| ledger.pair_unconnected(address, event, &call));
    }

    /// The program acknowledges an event of rdma_cm.
    pub(crate) fn connection_event_acknowledged(&self, address: usize) {
        let call = self.call();
        self.tell(|ledger| ledger.connection_event_acknowledged(address, &call));
    }

    /// The memory of such an event, or of an id, is about to be freed.
    pub(crate) fn connection_memory_freed(&self, address: usize) {
        self.tell(|ledger| ledger.connection_memory_freed(address));
    }

    /// Returns whether this address is in an id or an event that has ended.
    pub(crate) fn has_ended(&self, address: usize) -> bool {
        self.tell(|ledger| ledger.has_ended(address))
    }

    /// A function of librdmacm got a pointer into something that has ended.
    pub(crate) fn given_to_connections(&self, function: &str, address: usize) {
        let call = self.call();
        self.tell(|ledger| ledger.given_to_connections(function, address, &call));
    }

    /// A verb waits until the program acknowledges events. `is_late` says that it has waited for long; otherwise it
    /// begins to wait. Returns whether the ledger reports it.
    pub(crate) fn waits(&self, verb: &str, owner: Owner, is_late: bool) -> bool {
        let waits = match (self.attempt(|| uncancelled(is_alone)), is_late) {
            (true, _) => Waits::Alone,
            (false, false) => Waits::Begins,
            (false, true) => Waits::Long,
        };
        let call = self.call();
        self.tell(|ledger| ledger.waits_for_ack(verb, owner, waits, &call))
    }

    /// An object ends, or a context closes, and the program has not read these events of it.
    pub(crate) fn events_unread(&self, thing: Option<Thing>, address: usize, events: &[&str]) {
        if !events.is_empty() {
            let call = self.call();
            self.tell(|ledger| ledger.events_unread(thing, address, events, Some(&call)));
        }
    }
}

/// The kind of object that has failed, if it is not the device, and the event's name in C. None of another event.
pub(crate) fn fatal(event: AsyncEvent) -> Option<(Option<Thing>, &'static str)> {
    Some(match event {
        AsyncEvent::CqError => (Some(Thing::CompletionQueue), "IBV_EVENT_CQ_ERR"),
        AsyncEvent::QpFatal => (Some(Thing::QueuePair), "IBV_EVENT_QP_FATAL"),
        AsyncEvent::QpRequestError => (Some(Thing::QueuePair), "IBV_EVENT_QP_REQ_ERR"),
        AsyncEvent::QpAccessError => (Some(Thing::QueuePair), "IBV_EVENT_QP_ACCESS_ERR"),
        AsyncEvent::DeviceFatal => (None, "IBV_EVENT_DEVICE_FATAL"),
        _ => return None,
    })
}

/// An error that nobody has polled.
pub(super) fn unread((wr_id, status): (u64, Status)) -> Unread {
    Unread { wr_id, status: name_of(status as _) }
}

/// The name of a status in C.
pub(super) fn name_of(status: ibv_wc_status) -> &'static str {
    // SAFETY: a static string.
    let text = unsafe { CStr::from_ptr(ibv_wc_status_str(status)) };
    text.to_str().unwrap_or_default()
}
