//! Sends datagrams, each to the address of its own handle.

use std::sync::Arc;

use arrayvec::ArrayVec;
use transom_device::execution::{MAX_DATAGRAM, Request, Sent, Source};
use transom_device::protection::PROCESSES;
use transom_device::qp::QpNumber;
use transom_device::queue::{Address, Remote};
use transom_net::{Path, Peer, RingBytes, Where};
use transom_system::addresses::leaves_host;
use transom_system::traffic::Way;

use super::{At, Outgoing};
use crate::device::{Direction, Interface};
use crate::objects::{Adapter, Deferred, Link};

impl At<'_> {
    /// The link to the queue pair that a datagram is for. A datagram for an address that is not here is lost, as on a
    /// network.
    pub(super) fn link_of_datagram(&self, to: &Address, number: QpNumber) -> Link {
        let (device, slot) = (&self.qp.device, number.slot());
        let port = device.port();
        if port.is_over_wire(to, slot) {
            return self.link_over_wire(to);
        }
        if slot == self.qp.number.slot() {
            return Link::Loopback;
        }
        if let Some(peer) = device.peer(slot) {
            return Link::Local(peer);
        }
        if port.was_nobodys(slot) {
            return Link::None;
        }
        if port.is_another_users(slot) {
            return self.link_over_wire(to);
        }
        let _ = port.check_same_registry(slot);
        self.qp.adapter.queue_pairs.note_none(self.qp.number.bits(), number.bits());
        Link::None
    }

    fn link_over_wire(&self, to: &Address) -> Link {
        let port = self.qp.device.port();
        match port.open_wire_for_datagram() {
            true => Link::Wire(port.path(to, self.qp.number, MAX_DATAGRAM)),
            false => Link::None,
        }
    }

    /// Sends to the group's network and to all members on this host except this queue pair itself, in all processes.
    /// Before it begins, it waits for room at each member that the local link leads to, so that none gets a datagram
    /// twice.
    pub(super) fn send_to_group(
        &self,
        to: &Address,
        outgoing: Outgoing<'_>,
        deferred: &mut Deferred,
    ) -> Sent {
        let Outgoing { request, payload, .. } = outgoing;
        let device = &self.qp.device;
        let gid = &to.gid;
        let me = device.process().announcer().slot;
        let registry = device.process().registry();
        let others = || registry.taken().filter(|slot| *slot != me);
        let near = others().filter(|slot| !registry.needs_packets(*slot));
        let near = near.filter_map(|slot| device.peer(slot)).filter(|peer| peer.has_groups());
        let peers: ArrayVec<_, PROCESSES> = near.collect();
        let index = self.qp.number.index();
        let ready = |peer: &Arc<Peer>| {
            peer.takes_datagram(device.process().segment(), request.length, index)
        };
        if !peers.iter().all(ready) {
            return Sent::Busy;
        }
        let apart = others().any(|slot| registry.needs_packets(slot));
        match self.send_to_network(to, apart, outgoing) {
            Sent::Queued | Sent::Unreachable => {}
            sent => return sent,
        }
        if let Some(observer) = device.observer() {
            // Once, however many receive it.
            let mut data = self.gather(payload, request.offset, Where::Here);
            observer.request(Interface::Local, Direction::Outbound, request, &mut data);
        }
        let members = self.qp.adapter.groups.members(gid);
        for member in members.filter(|qp| qp.number != self.qp.number) {
            let mut data = self.gather(payload, request.offset, Where::Here);
            let mut nothing = RingBytes::none(device.process().copier());
            let _ = member.execute(request, &mut data, &mut nothing, None, deferred);
            if let Some(refusal) = data.failed {
                return Sent::Near(refusal);
            }
        }
        for peer in &peers {
            // Another queue pair may have taken the room since. Then this one copy is lost.
            if let near @ Sent::Near(_) = self.send_to_peer(peer, outgoing) {
                return near;
            }
        }
        Sent::Queued
    }

    /// Sends a datagram for a group to the network of its source address. Also sends it as packets to processes of this
    /// host that the local link does not lead to, if there are any.
    fn send_to_network(&self, to: &Address, apart: bool, outgoing: Outgoing<'_>) -> Sent {
        let device = &self.qp.device;
        let network =
            device.port().addresses().network_of(&to.source).filter(|_| leaves_host(&to.gid));
        let interface =
            network.or(apart.then_some(0)).filter(|_| device.port().open_wire_for_datagram());
        let Some(interface) = interface else { return Sent::Queued };
        let path = Path { interface, ..Path::new(to, self.qp.number, MAX_DATAGRAM) };
        let sent = self.send_packets(&path, outgoing);
        if let Sent::Queued = sent {
            // It counts as the packet that leaves.
            self.way.set(Way::Wire);
        }
        sent
    }
}

impl Adapter {
    /// Hands a datagram from another process to each member of its group.
    pub(crate) fn deliver_to_group(
        &self,
        request: &Request,
        payload: &mut dyn Source,
        deferred: &mut Deferred,
    ) {
        let Remote::Datagram(datagram) = &request.remote else { return };
        let mut nothing = RingBytes::none(self.device().process().copier());
        for member in self.groups.members(&datagram.address.gid) {
            let _ = member.execute(request, payload, &mut nothing, None, deferred);
        }
    }
}
