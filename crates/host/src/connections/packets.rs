//! Messages as packets (rule CM-01), for the network and for processes of other users.

use std::collections::VecDeque;
use std::sync::Arc;

use transom_cm::Transmit;
use transom_device::qp::QpNumber;
use transom_device::queue::Address;
use transom_net::Path;
use transom_net::management::ManagementDatagram;
use transom_system::addresses::{Addresses, gid};
use transom_wire::Psn;
use transom_wire::cm::{GSI_QKEY, GSI_QPN, MAD_BYTES};
use transom_wire::packet::{Ending, Operation, Packet, Transport};

use super::farewells::Farewells;
use crate::device::{Device, Interface};

/// How many messages wait for room in the socket. More are lost, as on a network.
const UNSENT: usize = 1024;
/// How long until they are tried again, in nanoseconds.
const AGAIN: u64 = 100_000;
/// The source port of a request that is handed on to another user. Nobody looks at it.
const FROM: u16 = 0xc000;

/// Sends messages as packets. Keeps those that found no room in the socket, and those that are sent again.
pub(super) struct Packets {
    device: Arc<Device>,
    /// The oldest first.
    unsent: VecDeque<Transmit>,
    /// Messages that were sent for processes that have ended.
    farewells: Farewells,
    /// Numbers for packets. Nobody looks at them.
    psn: Psn,
}

impl Packets {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            unsent: VecDeque::new(),
            farewells: Farewells::default(),
            psn: Psn::default(),
        }
    }

    /// Sends a message, now or when there is room.
    pub(super) fn send(&mut self, transmit: Transmit) {
        if !self.try_send(&transmit) && self.unsent.len() < UNSENT {
            self.unsent.push_back(transmit);
        }
    }

    /// Sends a message for a process that has ended. It is repeated, because it may get lost.
    pub(super) fn send_last(&mut self, transmit: Transmit, now: u64) {
        self.farewells.said(transmit.clone(), now);
        self.send(transmit);
    }

    /// Sends messages that are due, and those that found no room earlier, as far as there is room now.
    pub(super) fn send_rest(&mut self, now: u64) {
        for farewell in self.farewells.take_due(now) {
            self.try_send(&farewell);
        }
        while let Some(transmit) = self.unsent.pop_front() {
            if !self.try_send(&transmit) {
                return self.unsent.push_front(transmit);
            }
        }
    }

    /// When to try again to send what found no room.
    pub(super) fn retry_at(&self, now: u64) -> Option<u64> {
        (!self.unsent.is_empty()).then(|| now + AGAIN)
    }

    /// When a message is to be repeated.
    pub(super) fn repeat_at(&self) -> Option<u64> {
        self.farewells.deadline()
    }

    /// Shows a message that stays on this host to the observer, as the packet that it would be.
    pub(super) fn show(&mut self, transmit: &Transmit, mad: &[u8; MAD_BYTES]) {
        let Some(observer) = self.device.observer() else { return };
        let packet = Packet { payload: mad, ..packet(self.psn) };
        let path = path(transmit, &self.device.port().addresses());
        observer.management(Interface::Local, &path, &packet);
        self.psn = self.psn.plus(1);
    }

    /// Hands a request from the network on to a process of another user. False if that process has gone.
    pub(super) fn give_to_guest(&self, slot: u8, datagram: &ManagementDatagram) -> bool {
        let ManagementDatagram { source, destination, mad } = datagram;
        let (source, destination, hop_limit) = (*source, *destination, 64);
        let path = Path {
            source,
            destination,
            traffic_class: 0,
            hop_limit,
            port: FROM,
            mtu: MAD_BYTES as u64,
            interface: 0,
        };
        let packet = Packet { payload: mad, ..packet(self.psn) };
        let wire = self.device.port().wire();
        wire.is_some_and(|wire| wire.hand_to_guest(slot, &path, &packet))
    }

    /// Sends a message to the network. False if the socket had no room. A message without a route is lost.
    fn try_send(&mut self, transmit: &Transmit) -> bool {
        let port = self.device.port();
        let Some(wire) = port.open_wire().ok().and_then(|()| port.wire()) else { return true };
        let path = path(transmit, &port.addresses());
        let mut burst = wire.take_buffer();
        burst.add(&packet(self.psn), MAD_BYTES as u64);
        burst.put(0, &transmit.mad.write());
        let sent = wire.send(&mut burst, &path);
        wire.give_back(burst);
        if sent {
            self.psn = self.psn.plus(1);
        }
        sent
    }
}

/// The packet that a message travels in (rule CM-01), without it.
pub(super) fn packet(psn: Psn) -> Packet<'static> {
    let transport = Transport::Ud { qkey: GSI_QKEY, source: GSI_QPN };
    Packet::new(transport, Operation::SendOnly(Ending::Plain), GSI_QPN, psn)
}

/// The route of a message's packet, between addresses of this host.
pub(super) fn path(transmit: &Transmit, addresses: &Addresses) -> Path {
    let address = Address {
        gid: gid(transmit.destination),
        source: gid(transmit.source),
        traffic_class: transmit.traffic_class,
        hop_limit: transmit.hop_limit,
        flow_label: 0,
    };
    Path::from_table(addresses, &address, QpNumber::from_bits(GSI_QPN), MAD_BYTES as u64)
}
