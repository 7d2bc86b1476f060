//! Listeners at the wildcard address, which serve all devices of a program.
//!
//! One listens at one device and has the port. At each of the others a listener stands in for it. All requests for the
//! port come to the first. It hands those for addresses of another device to the stand-in there.

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

/// The listeners here for which others stand in, and the devices of those, by service.
#[derive(Default)]
pub(super) struct StandIns(HashMap<ServiceId, (CommId, Vec<Weak<Device>>)>);

impl StandIns {
    /// A listener ends.
    pub(super) fn forget(&mut self, listener: CommId) {
        self.0.retain(|_, (of, _)| *of != listener);
    }

    /// The slot of the stand-in that takes a request for an address.
    fn taker(&self, service: ServiceId, gid: &[u8; 16]) -> Option<u8> {
        let (_, devices) = self.0.get(&service)?;
        let mut devices = devices.iter().filter_map(Weak::upgrade);
        let device = devices.find(|device| device.port().has(gid))?;
        Some(device.process().announcer().slot)
    }
}

impl Manager {
    /// What an id is that is about to listen at the wildcard address. It gets a port if it has none. `None` if it has
    /// an address.
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
        self.device.port().expect_datagrams();
        Ok(id)
    }

    /// Has an id listen for which others stand in, at these devices. Those of them that a request waits for already get
    /// it. If the id may not listen, nothing has changed for a listener that has its port.
    ///
    /// # Errors
    ///
    /// As [`Manager::listen`].
    pub fn listen_with(
        &mut self,
        (file, id, backlog): (RawFd, CommId, i32),
        what: Unbound,
        devices: &[Arc<Device>],
    ) -> Result<(), Refused> {
        let Some(service) = what.what.service().filter(|_| !devices.is_empty()) else {
            return self.listen(file, id, backlog);
        };
        let early = self.engine.take_early(service);
        let listened = self.listen(file, id, backlog);
        if listened.is_ok() {
            let devices = devices.iter().map(Arc::downgrade).collect();
            self.stand_ins.0.insert(service, (id, devices));
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
