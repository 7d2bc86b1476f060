//! Keeps requests for ports that nobody has, while a program is just starting.
//!
//! You may start both ends of a connection at once, and the client may be ready first. Over a network its request would
//! still travel while the server opens its device and binds its port. Within a host it arrives at once. So a request
//! waits for somebody to bind the port if a device was opened a moment ago (rule CM-56).

use transom_net::management::ManagementDatagram;
use transom_wire::cm::{Mad, Message};

use crate::device::Interface;

/// How long after the opening of a device programs may still be starting, in nanoseconds.
const MOMENT: u64 = 100_000_000;
/// How long until waiting requests are tried again, in nanoseconds.
const AGAIN: u64 = 1_000_000;
/// How many wait at most. More are refused at once.
const AT_MOST: usize = 64;

/// A request that waits.
pub(super) struct Waiting {
    pub(super) request: ManagementDatagram,
    /// How it has come.
    pub(super) by: Interface,
    /// Until then.
    pub(super) until: u64,
}

/// Those that do.
#[derive(Default)]
pub(super) struct Starting(Vec<Waiting>);

impl Starting {
    /// Lets a request wait if a device was opened a moment ago, at `opened`. Otherwise gives it back. A repeated
    /// request waits already.
    pub(super) fn wait(
        &mut self,
        request: ManagementDatagram,
        by: Interface,
        opened: u64,
        now: u64,
    ) -> Option<ManagementDatagram> {
        if self.0.iter().any(|it| it.request == request) {
            return None;
        }
        let until = opened.saturating_add(MOMENT);
        // The clock of another time namespace may be ahead.
        if !(opened..until).contains(&now) || self.0.len() >= AT_MOST {
            return Some(request);
        }
        self.0.push(Waiting { request, by, until });
        None
    }

    /// Takes them all, to try them again.
    pub(super) fn take(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.0)
    }

    /// Lets one wait on.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.0.push(waiting);
    }

    /// Forgets the requests whose sender says that it waits no longer.
    pub(super) fn forget(&mut self, told: &ManagementDatagram) {
        let Ok(Mad { message: Message::Rej(rej), .. }) = Mad::parse(&told.mad) else { return };
        let sender = rej.timed_out().map(|guid| (guid, rej.local_id));
        self.0.retain(|Waiting { request, .. }| {
            let ends = (request.source, request.destination);
            let of_it = ends == (told.source, told.destination)
                && matches!(Mad::parse(&request.mad), Ok(Mad { message: Message::Req(req), .. })
                    if Some((req.ca_guid, req.local_id)) == sender);
            !of_it
        });
    }

    /// When they are tried again.
    pub(super) fn deadline(&self, now: u64) -> Option<u64> {
        (!self.0.is_empty()).then(|| now.saturating_add(AGAIN))
    }
}
