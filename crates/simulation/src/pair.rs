//! Two hosts and the network between them.

use transom_wire::packet::Packet;

use crate::endpoint::Attributes;
use crate::host::Host;
use crate::network::Network;
use crate::packet::encode;

/// Two hosts, each with a queue pair that is connected to the other's, and what is on its way between
/// them.
pub struct Pair {
    /// The hosts.
    pub hosts: [Host; 2],
    /// The network.
    pub network: Network,
}

impl Pair {
    /// Two hosts with so many bytes of memory each.
    pub fn new(attributes: &[Attributes; 2], memory: usize) -> Self {
        let hosts = [0, 1].map(|host: usize| Host::new(&attributes[host], memory));
        Self { hosts, network: Network::new(2, 1) }
    }

    /// What both have sent is on its way, behind what was before.
    pub fn transmit(&mut self) {
        for (from, host) in self.hosts.iter().enumerate() {
            for packet in host.env.sent() {
                self.network.send(from, 1 - from, host.env.time.get(), encode(&packet.packet()));
            }
        }
    }

    /// Up to so many packets arrive at a host together.
    pub fn deliver(&mut self, to: usize, count: usize) {
        let arrived: Vec<_> = (0..count).map_while(|_| self.network.arrive(to)).collect();
        let packets: Vec<_> =
            arrived.iter().filter_map(|one| Packet::parse(&one.bytes).ok()).collect();
        let host = &mut self.hosts[to];
        let answers = |packet: &Packet<'_>| packet.operation.is_for_requester();
        for packets in packets.chunk_by(|one, next| answers(one) == answers(next)) {
            match answers(&packets[0]) {
                true => host.take_answers(packets),
                false => host.take_requests(packets),
            }
        }
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        [0, 1].iter().all(|to| self.network.next(*to).is_none())
    }

    /// Lets the time pass on both.
    pub fn pass(&mut self, nanoseconds: u64) {
        for host in &mut self.hosts {
            host.pass(nanoseconds);
        }
    }
}
