//! An id that goes on at another device.
//!
//! An id belongs to no device until it has an address of one. Until then its service, its options and its port are all
//! that it is.

use std::collections::VecDeque;

use transom_wire::cm::{CommId, Mad, ServiceId};

use super::backlog::Backlog;
use super::{Engine, Entry, State};
use crate::host::{Claim, is_any};
use crate::options::{Options, Service};
use crate::refused::Refused;
use crate::shared::Arrival;

/// What an id is that belongs to no device yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbound {
    service: Service,
    options: Options,
    /// The port that it has at the wildcard or a loopback address, if it has one.
    pub claim: Option<Claim>,
}

impl Unbound {
    /// The service at its port, if it has one.
    pub fn service(&self) -> Option<ServiceId> {
        self.claim.map(|claim| ServiceId::of(claim.space, claim.address.port()))
    }
}

impl Engine {
    /// What an id is, if it belongs to no device yet: it is new, or has a port at the wildcard or a loopback address.
    /// `None` for any other.
    pub fn unbound(&self, id: CommId) -> Option<Unbound> {
        let entry = self.ids.get(&id)?;
        let Entry { service, options, claim, .. } = *entry;
        let is_free = matches!(entry.state, State::Idle) && entry.has_no_address();
        is_free.then_some(Unbound { service, options, claim })
    }

    /// A new id that is like one of another device. Its port is the other's until that one has moved away.
    pub fn create_like(&mut self, other: Unbound) -> Result<CommId, Refused> {
        let id = self.create(other.service)?;
        let entry = self.entry(id)?;
        entry.options = other.options;
        entry.claim = other.claim.map(|claim| Claim { id, ..claim });
        entry.source = entry.claim.map(|claim| claim.address);
        Ok(id)
    }

    /// An id goes on at another device, and its port with it. Here it is a number only.
    pub fn move_away(&mut self, id: CommId) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        (entry.claim, entry.source, entry.destination) = (None, None, None);
        Ok(())
    }

    /// The device of a listener goes, and the one that stands in for it has its port from now on.
    pub fn leave_port(&mut self, listener: CommId) -> Option<Claim> {
        self.ids.get_mut(&listener)?.claim.take()
    }

    /// A listener that stands in for one of another device, which has the port: it takes the requests for addresses of
    /// this device.
    pub fn stand_in(&mut self, other: Unbound, backlog: i32) -> Result<CommId, Refused> {
        let id = self.create_like(other)?;
        let backlog = Backlog::new(self.waiting_at_most(backlog));
        self.entry(id)?.state = State::Listening(backlog);
        if let Some(service) = other.service() {
            self.listeners.entry(service).or_default().push(id);
        }
        Ok(id)
    }

    /// What a listener is that belongs to no device, and how many requests may wait there. `None` for any other id.
    pub fn unbound_listener(&self, id: CommId) -> Option<(Unbound, i32)> {
        let entry = self.ids.get(&id)?;
        let Entry { service, options, claim, .. } = *entry;
        let State::Listening(backlog) = &entry.state else { return None };
        let room = i32::try_from(backlog.room()).unwrap_or(i32::MAX);
        let is_free = claim.is_some() && entry.has_no_address();
        is_free.then_some((Unbound { service, options, claim }, room))
    }

    /// Takes out the requests that wait for a listener of a service.
    pub fn take_early(&mut self, service: ServiceId) -> Vec<(Arrival, Mad)> {
        let (taken, others): (VecDeque<_>, _) =
            std::mem::take(&mut self.early).into_iter().partition(|it| it.service == service);
        self.early = others;
        taken.into_iter().map(|it| (it.arrival, *it.request)).collect()
    }
}

impl Entry {
    /// Whether it has no address of a device, and no group: it belongs to no device, unless it has a destination.
    pub(super) fn has_no_address(&self) -> bool {
        self.claim.is_none_or(|claim| is_any(claim.address.ip())) && self.groups.is_empty()
    }
}
