//! Listeners at the wildcard or a loopback address, which serve all devices of a program.
//!
//! One listens at one device and has the port. At each of the others a listener stands in for it. All requests for the
//! port come to the first. It hands those for addresses of another device to the stand-in there. If its device is
//! removed, the first of the others has the port from then on.

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

/// The listeners here that serve together with others, by service.
#[derive(Default)]
pub(super) struct StandIns(HashMap<ServiceId, Together>);

/// A listener, and the others with their devices.
struct Together {
    listener: CommId,
    others: Vec<(CommId, Weak<Device>)>,
}

impl StandIns {
    /// A listener ends.
    pub(super) fn forget(&mut self, listener: CommId) {
        self.0.retain(|_, it| it.listener != listener);
    }

    /// The slot of the stand-in that takes a request for an address.
    fn taker(&self, service: ServiceId, gid: &[u8; 16]) -> Option<u8> {
        let mut devices =
            self.0.get(&service)?.others.iter().filter_map(|(_, device)| device.upgrade());
        let device = devices.find(|device| device.port().has(gid))?;
        Some(device.process().announcer().slot)
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
        let others = others.iter().map(|(id, device)| (*id, Arc::downgrade(device)));
        let together = Together { listener, others: others.collect() };
        self.stand_ins.0.extend(what.what.service().map(|service| (service, together)));
    }

    /// Whether an id is a listener that serves together with others.
    pub fn serves_with_others(&self, id: CommId) -> bool {
        self.stand_ins.0.values().any(|it| it.listener == id)
    }

    /// The device goes. The port of each listener here that has one goes to the first of those that stand in for it.
    pub(super) fn leave_to_stand_ins(&mut self) {
        for (_, Together { listener, others }) in self.stand_ins.0.drain() {
            let mut there = others.iter().filter_map(|(id, device)| Some((*id, device.upgrade()?)));
            let heir = there.find(|(_, device)| device.check().is_ok());
            let Some((id, device)) = heir else { continue };
            let Some(claim) = self.engine.leave_port(listener) else { continue };
            // If they cannot be locked, requests find nobody until the program makes another listener.
            if let Ok(mut table) = self.ports.table.lock() {
                table.hand_over(&claim, id, device.process().announcer());
            }
        }
    }

    /// Has an id listen for which these others stand in at their devices. Those of them that a request waits for already get
    /// it. If the id may not listen, nothing has changed for a listener that has its port.
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

    /// All devices fail. A stand-in that has got the port meanwhile is the listener that the program knows.
    pub(super) fn tell_heirs(&mut self) {
        for (service, Together { listener, .. }) in &self.stand_ins.0 {
            let (Some((space, port)), Ok(mut table)) = (service.port(), self.ports.table.lock())
            else {
                continue;
            };
            if table.ports(space, port).iter().any(|it| it.claim.id == *listener) {
                self.files.is_no_stand_in(*listener);
            }
        }
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
