//! Listeners at the wildcard or a loopback address, which serve all devices of a program.
//!
//! One listens at one device and has the port. At each of the others a listener stands in for it. All requests for the
//! port come to the first. It hands those for addresses of another device to the stand-in there. If its device is
//! removed, the first of the others has the port from then on. If there is none, the program is told.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use transom_cm::{Arrival, Refused};
use transom_net::management::ManagementDatagram;
use transom_system::addresses::gid;
use transom_system::clock;
use transom_wire::cm::{CommId, Mad, Receiver, ServiceId};

use super::{Manager, Unbound};
use crate::device::Device;

/// The listeners here that serve together with others. Several may have one service, each for a family of addresses.
#[derive(Default)]
pub(super) struct StandIns(HashMap<CommId, Together>);

/// The service of a listener, and the others with their devices.
struct Together {
    service: ServiceId,
    others: Vec<(CommId, Weak<Device>)>,
}

impl StandIns {
    /// A listener ends.
    pub(super) fn forget(&mut self, listener: CommId) {
        self.0.remove(&listener);
    }

    /// The slot of the device that takes a request for an address: the first that has it and is there.
    fn taker(&self, service: ServiceId, gid: &[u8; 16]) -> Option<u8> {
        let of_service = self.0.values().filter(|it| it.service == service);
        let devices = of_service.flat_map(|it| &it.others).filter_map(|(_, it)| it.upgrade());
        let takes = devices.filter(|device| device.check().is_ok() && device.port().has(gid));
        let first = takes.min_by_key(|device| device.options().number)?;
        Some(first.process().announcer().slot)
    }
}

impl Manager {
    /// What an id is that is about to listen at the wildcard or a loopback address. It gets a port if it has none.
    /// `None` if it has an address.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn about_to_listen(&mut self, file: RawFd, id: CommId) -> Result<Option<Unbound>, Refused> {
        if self.unbound(file, id)?.is_some_and(|id| !id.has_port()) {
            self.bind(file, id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        self.unbound(file, id)
    }

    /// Makes a listener that stands in for one of another device.
    ///
    /// # Errors
    ///
    /// As [`Manager::create_like`].
    pub fn stand_in(
        &mut self,
        file: RawFd,
        other: Unbound,
        backlog: i32,
    ) -> Result<CommId, Refused> {
        if !self.files.has(file) {
            return Err(Refused::NoFile);
        }
        self.device.check().map_err(|_| Refused::DeviceFailed)?;
        let id = self.engine.stand_in(other.what, backlog)?;
        self.files.add_stand_in(id, file, other.uid);
        self.expect_requests(id);
        Ok(id)
    }

    /// A listener, which may be a stand-in, serves together with these others.
    pub fn serve_with(
        &mut self,
        listener: CommId,
        what: Unbound,
        others: &[(CommId, Arc<Device>)],
    ) {
        let Some(service) = what.what.service() else { return };
        let others = others.iter().map(|(id, device)| (*id, Arc::downgrade(device)));
        self.stand_ins.0.insert(listener, Together { service, others: others.collect() });
    }

    /// The listeners of a file that belong to no device, also those that stand in for others. Each with what it is, and
    /// how many requests may wait there.
    pub fn unbound_listeners(&self, file: RawFd) -> Vec<(CommId, Unbound, i32)> {
        let ids = self.files.ids_of(file).into_iter();
        let listeners = ids.filter_map(|id| {
            let (what, backlog) = self.engine.unbound_listener(id)?;
            let (_, uid) = self.files.file_of(id)?;
            Some((id, Unbound { uid, what }, backlog))
        });
        listeners.collect()
    }

    /// Whether an id is a listener that serves together with others.
    pub fn serves_with_others(&self, id: CommId) -> bool {
        self.stand_ins.0.contains_key(&id)
    }

    /// The device goes. The port of each listener here that has one goes to the first of those that stand in for it, if
    /// any device is left. Without such an heir, the listener is told, also one that stood in for another before.
    pub(super) fn leave_to_stand_ins(&mut self, any_is_left: bool) {
        for (listener, Together { service, others }) in std::mem::take(&mut self.stand_ins.0) {
            let others = others.iter().filter_map(|(id, it)| Some((*id, it.upgrade()?)));
            let there: Vec<_> = others.filter(|_| any_is_left).collect();
            // If they cannot be locked, nobody gets the port, and the listener is told.
            let Ok(mut table) = self.ports.table.lock() else { continue };
            let claims = service.port().map(|(space, port)| table.ports(space, port));
            let has_port = claims.unwrap_or_default().iter().any(|it| it.claim.id == listener);
            // An heir that goes after this check finds the port here, because it needs the lock too.
            let heir = there.iter().find(|(_, device)| device.check().is_ok());
            match heir {
                None if has_port => self.files.tell_of_removal(listener),
                _ => {
                    let claim = self.engine.leave_port(listener);
                    self.files.tell_nothing(listener);
                    if let Some(((id, device), claim)) = heir.zip(claim) {
                        table.hand_over(&claim, *id, device.process().announcer());
                    }
                }
            }
        }
    }

    /// Makes an id listen. These others stand in for it at their devices. Requests that wait already go to them. If the
    /// id may not listen, nothing has changed for a listener that has its port.
    ///
    /// # Errors
    ///
    /// As [`Manager::listen`].
    pub fn listen_with(
        &mut self,
        (file, id, backlog): (RawFd, CommId, i32),
        what: Unbound,
        others: &[(CommId, Arc<Device>)],
    ) -> Result<(), Refused> {
        let Some(service) = what.what.service().filter(|_| !others.is_empty()) else {
            return self.listen(file, id, backlog);
        };
        let early = self.engine.take_early(service);
        let listened = self.listen(file, id, backlog);
        if listened.is_ok() {
            self.serve_with(id, what, others);
        }
        for (Arrival { source, destination }, request) in early {
            let datagram = ManagementDatagram { source, destination, mad: request.write() };
            if !self.hand_to_stand_in(&datagram) {
                self.handle_in_time(&datagram, clock::steady());
            }
        }
        listened
    }

    /// Hands a request for an address of another device to the stand-in there. False if there is none.
    pub(super) fn hand_to_stand_in(&mut self, datagram: &ManagementDatagram) -> bool {
        let to = gid(datagram.destination);
        if self.stand_ins.0.is_empty() || self.device.port().has(&to) {
            return false;
        }
        let receiver = Mad::parse(&datagram.mad).map(|mad| mad.receiver());
        let Ok(Receiver::Service(service)) = receiver else { return false };
        let slot = self.stand_ins.taker(service, &to);
        slot.is_some_and(|slot| self.exchange.give(slot, datagram))
    }
}
