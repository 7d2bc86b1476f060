//! The path of packets from a queue pair to an address.

use std::net::IpAddr;

use transom_device::execution::Segmentation;
use transom_device::qp::QpNumber;
use transom_device::queue::Address;
use transom_system::addresses::{Addresses, ip};
use transom_wire::icrc;

use super::burst::{PACKETS, PAYLOAD, SENT_AT_ONCE};
use crate::udp::Way;

/// Source ports of RoCEv2 begin here (rule NET-02).
const FIRST_PORT: u16 = 0xc000;

/// The bits of a traffic class that are not for congestion control (rule NET-07).
const DSCP: u8 = 0xfc;

/// The path of packets from a queue pair to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where they come from.
    pub source: IpAddr,
    /// Where they go.
    pub destination: IpAddr,
    /// Traffic class, the TOS byte of IPv4 (rule NET-07).
    pub traffic_class: u8,
    /// Hop limit (rule NET-05).
    pub hop_limit: u8,
    /// The UDP source port that the flow prefers. It tells switches which packets belong together.
    pub port: u16,
    /// Bytes of payload of a packet.
    pub mtu: u64,
    /// Index of the interface by which packets leave to a group or between link-local addresses. Zero otherwise.
    pub interface: u32,
}

impl Path {
    /// The path of a queue pair's packets to an address.
    pub fn new(address: &Address, from: QpNumber, mtu: u64) -> Self {
        Self {
            source: ip(&address.source),
            destination: ip(&address.gid),
            traffic_class: address.traffic_class & DSCP,
            hop_limit: address.hop_limit,
            port: source_port(address.flow_label, from),
            mtu,
            interface: 0,
        }
    }

    /// The same, with the interface of link-local addresses, by this host's table.
    pub fn from_table(addresses: &Addresses, to: &Address, from: QpNumber, mtu: u64) -> Self {
        let interface = addresses.interface_between(&to.source, &to.gid);
        Self { interface: interface.unwrap_or(0), ..Self::new(to, from, mtu) }
    }

    /// The path of packets from the queue pair at the other end.
    pub fn back(&self, from: QpNumber) -> Self {
        let (source, destination) = (self.destination, self.source);
        Self { source, destination, port: source_port(0, from), ..*self }
    }

    /// The path as the sockets see it.
    pub fn way(&self) -> Way {
        Way {
            source: self.source,
            destination: self.destination,
            flow: self.port,
            tos: self.traffic_class,
            ttl: self.hop_limit,
            interface: self.interface,
        }
    }

    /// How much of a message goes in one burst: all of it if it fits, else as much as one send takes.
    pub fn segmentation(&self) -> Segmentation {
        let whole = |payload: u64| (payload / self.mtu).min(PACKETS as u64) * self.mtu;
        let (whole, part) = (whole(PAYLOAD), whole(SENT_AT_ONCE));
        Segmentation { mtu: Some(self.mtu), whole, part, copied: 0 }
    }

    /// The path as the ICRC sees it, if packets leave from `port`.
    pub fn icrc(&self, port: u16) -> Option<icrc::Path> {
        icrc::Path::new(self.source, port, self.destination)
    }

    /// Whether a packet from `source` to `destination` may be an answer to packets of this path, or a request of the
    /// same connection (rule NET-10). Link-local addresses are those of one interface: `interface` is the one that the
    /// packet came by, or zero if that is unknown.
    pub fn is_back(&self, source: IpAddr, destination: IpAddr, interface: u32) -> bool {
        let is_same = self.interface == 0 || interface == 0 || self.interface == interface;
        source == self.destination && destination == self.source && is_same
    }
}

/// The source port for a flow label, or for a queue pair without one (rules NET-01, NET-02).
fn source_port(flow_label: u32, from: QpNumber) -> u16 {
    let label = if flow_label != 0 { flow_label } else { from.bits() };
    FIRST_PORT | ((label ^ label >> 14) & 0x3fff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_takes_all_that_it_can_or_what_one_send_takes() {
        let path = |mtu| Path {
            source: IpAddr::from([10, 0, 0, 1]),
            destination: IpAddr::from([10, 0, 0, 2]),
            traffic_class: 0,
            hop_limit: 64,
            port: FIRST_PORT,
            mtu,
            interface: 0,
        };
        // BTH, XRCETH, ICRC.
        let headers = 12 + 4 + 4;
        for mtu in [256, 512, 1024, 2048, 4096] {
            let most = 64 * mtu.min(1024);
            assert_eq!(path(mtu).segmentation().segment_of(most), most, "{mtu}");
            let some = path(mtu).segmentation().segment_of(most + 1);
            assert_eq!(
                (path(mtu).segmentation().segment_of(u64::MAX), some % mtu),
                (some, 0),
                "{mtu}"
            );
            let sent = |packets: u64| packets * (mtu + headers);
            assert!(some / mtu <= 64 && sent(some / mtu) <= 65_507, "{mtu}");
            assert!(some / mtu == 64 || sent(some / mtu + 1) > 65_507, "{mtu}");
        }
    }

    /// Each link may have the same link-local addresses.
    /// Rules: NET-10
    #[test]
    fn packets_of_a_connection_come_by_its_interface() {
        let [near, far, other] = ["fe80::1", "fe80::2", "fe80::3"]
            .map(|address| address.parse::<IpAddr>().expect("an address"));
        let gid = transom_system::addresses::gid;
        let (gid, source) = (gid(far), gid(near));
        let to = Address { gid, source, traffic_class: 0, hop_limit: 1, flow_label: 0 };
        let path = Path::new(&to, QpNumber::from_bits(0x12_3456), 256);
        assert!(path.is_back(far, near, 4), "any");
        let path = Path { interface: 3, ..path };
        assert!(path.is_back(far, near, 3));
        assert!(path.is_back(far, near, 0), "it is unknown");
        assert!(!path.is_back(far, near, 4));
        assert!(!path.is_back(other, near, 3) && !path.is_back(far, other, 3));
    }

    /// Rules: NET-07
    #[test]
    fn the_congestion_bits_are_not_the_programs() {
        let from = QpNumber::from_bits(0x12_3456);
        for (class, tos) in [(0, 0), (0x68, 0x68), (0x69, 0x68), (0xff, 0xfc)] {
            let (gid, source) = ([0; 16], [0; 16]);
            let to = Address { gid, source, traffic_class: class, hop_limit: 1, flow_label: 0 };
            assert_eq!(Path::new(&to, from, 256).way().tos, tos);
        }
    }

    /// Rules: NET-02
    #[test]
    fn the_flow_label_chooses_the_source_port() {
        let from = QpNumber::from_bits(0x12_3456);
        assert_eq!(source_port(0x0_0001, from), 0xc001);
        assert_eq!(source_port(0xf_ffff, from), 0xc000 | (0x3fff ^ 0x3f));
        assert_eq!(source_port(0, from), source_port(0x12_3456, from));
    }
}
