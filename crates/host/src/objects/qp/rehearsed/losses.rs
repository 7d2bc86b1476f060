//! Messages of UC and UD that are lost in a rehearsal, as by a network.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use transom_device::execution::{Request, Requester};
use transom_device::qp::Service;
use transom_rehearse::Provocation;
use transom_system::clock;

use super::super::QueuePair;

/// What a rehearsal knows of the messages of an unreliable service.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// How many were sent.
    sent: AtomicU64,
    /// The one that is being sent is lost.
    loses: AtomicBool,
}

impl QueuePair {
    /// Whether a segment is lost on its way. All segments of a message share its fate.
    #[inline]
    pub(in super::super) fn loses(&self, request: &Request) -> bool {
        let Some(rehearsed) = self.rehearsed() else { return false };
        if request.service.is_reliable() {
            return false;
        }
        let Losses { sent, loses } = &rehearsed.losses;
        if request.offset == 0 {
            let nth = sent.fetch_add(1, Relaxed);
            let number = rehearsed.provokes(Provocation::LostMessages, nth);
            loses.store(number.is_some(), Relaxed);
        }
        loses.load(Relaxed)
    }

    /// A request is about to be posted. One of UC goes as a message, so that it can be lost.
    pub(super) fn expose(&self, requester: &mut Requester) {
        if self.config.service == Service::Uc {
            requester.hold(clock::steady());
        }
    }

    /// Whether the direct way is closed.
    pub(in super::super) fn goes_by_message(&self) -> bool {
        self.config.service == Service::Uc
    }
}
