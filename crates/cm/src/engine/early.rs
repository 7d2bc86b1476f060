//! Requests for a port that has an id, but no listener yet.
//!
//! Some programs tell their peers a port before they listen there. Others close the listener of one connection before
//! they make the listener of the next. Over a network, the request takes longer than these calls. Within a host, it may
//! come first. So it waits a little for its listener (rule CM-56).

use transom_wire::cm::{Mad, Message, Rej, ServiceId};

use super::{Engine, Entry, Handled, State};
use crate::host::Host;
use crate::shared::Arrival;

/// How long a request waits, in nanoseconds. It is enough for a program that is about to listen, on a busy machine.
const WAIT: u64 = 100_000_000;
/// The most requests that wait. More are refused at once.
const AT_MOST: usize = 64;

/// A request that waits for its listener.
#[derive(Debug)]
pub(super) struct Early {
    until: u64,
    pub(super) service: ServiceId,
    pub(super) arrival: Arrival,
    pub(super) request: Box<Mad>,
}

/// The outcome of a request that had to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its addresses.
    pub arrival: Arrival,
    /// The request.
    pub request: Mad,
    /// The outcome.
    pub handled: Handled,
}

impl Engine {
    /// The outcome of a request that had to wait for its listener. After [`Engine::listen`] and
    /// [`Engine::handle_timeout`], take outcomes until there are none.
    pub fn poll_answered(&mut self) -> Option<Answered> {
        self.answered.pop_front()
    }

    /// Whether a request was refused that would have waited, if requests did.
    pub fn has_refused_early(&self) -> bool {
        self.has_refused_early
    }

    /// Nobody listens on the service of a request. It waits if somebody may listen soon; otherwise it is refused.
    pub(super) fn nobody_listens(
        &mut self,
        now: u64,
        service: ServiceId,
        arrival: Arrival,
        request: Mad,
        host: &mut impl Host,
    ) -> Handled {
        let is_same = |it: &Early| it.arrival == arrival && *it.request == request;
        if self.early.iter().any(is_same) {
            return Handled::Waits;
        }
        if !self.may_listen(service, host) {
            return self.refuse_service(arrival, &request);
        }
        self.has_refused_early |= !self.shared.config.waits;
        if !self.shared.config.waits || self.early.len() >= AT_MOST {
            return self.refuse_service(arrival, &request);
        }
        let until = now.saturating_add(WAIT);
        self.early.push_back(Early { until, service, arrival, request: Box::new(request) });
        Handled::Waits
    }

    /// Whether somebody may listen on the service soon: an idle id of this process has the port, or a connection of an
    /// earlier listener is there. A connection counts in any port space, because some programs agree on datagrams over
    /// a connection.
    fn may_listen(&self, service: ServiceId, host: &mut impl Host) -> bool {
        let Some((space, port)) = service.port() else { return false };
        let is_idle = |id| self.ids.get(&id).is_some_and(|it| matches!(it.state, State::Idle));
        host.ids_at(space, port).into_iter().any(is_idle) || self.served.contains_key(&port)
    }

    /// An id has come by a listener.
    pub(super) fn count_served(&mut self, entry: &Entry) {
        if let Some(port) = entry.port_served() {
            *self.served.entry(port).or_default() += 1;
        }
    }

    /// An id that may have come by a listener is gone.
    pub(super) fn uncount_served(&mut self, entry: &Entry) {
        let Some(port) = entry.port_served() else { return };
        let Some(count) = self.served.get_mut(&port) else { return };
        *count -= 1;
        if *count == 0 {
            self.served.remove(&port);
        }
    }

    /// A service has a listener now. Handles the requests that waited for it.
    pub(super) fn admit_early(&mut self, now: u64, service: ServiceId, host: &mut impl Host) {
        for (arrival, request) in self.take_early(service) {
            let handled = self.on_message(now, arrival, request.clone(), host);
            self.answered.push_back(Answered { arrival, request, handled });
        }
    }

    /// The time when the first request has waited long enough.
    pub(super) fn first_early(&self) -> Option<u64> {
        self.early.front().map(|it| it.until)
    }

    /// Refuses the requests that have waited long enough.
    pub(super) fn refuse_early(&mut self, now: u64) {
        while self.first_early().is_some_and(|until| until <= now)
            && let Some(Early { arrival, request, .. }) = self.early.pop_front()
        {
            let handled = self.refuse_service(arrival, &request);
            self.answered.push_back(Answered { arrival, request: *request, handled });
        }
    }

    /// The sender of a request has given up. Drops the request.
    pub(super) fn forget_early(&mut self, arrival: Arrival, rej: &Rej) {
        let Some(guid) = rej.timed_out() else { return };
        let is_that = |request: &Mad| matches!(&request.message, Message::Req(req) if (req.ca_guid, req.local_id) == (guid, rej.local_id));
        self.early.retain(|it| it.arrival != arrival || !is_that(&it.request));
    }
}

impl Entry {
    /// The port of its listener, if it is a connection that came by a listener.
    fn port_served(&self) -> Option<u16> {
        let came = self.claim.is_none() && matches!(self.state, State::Connection(_));
        self.source.filter(|_| came).map(|source| source.port())
    }
}
