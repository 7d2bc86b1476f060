//! The invariant CRC (rules H.6): it covers a packet and what no router changes of the IP and UDP
//! headers around it.
//!
//! It also covers the identification of IPv4, which a UDP socket neither sets nor shows. What a
//! socket sends is known: 0 for a packet alone, and the place in the train for each that
//! segmentation makes of one send. What a packet was sent with, [`Path::check`] solves for: CRC-32 is
//! linear, so if all else arrived as it was sent, the difference between the value that came and
//! the value for identification 0 is that of 16 bits at a known place. 16 bits of the check are left
//! for a packet whose identification is not known by other means, and all 32 for one whose is.

mod field;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;

use crate::packet::{ICRC_BYTES, PORT};

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const BTH_BYTES: usize = 12;
const UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
/// Where FECN, BECN and six reserved bits are in the BTH (rule CRC-06).
const CONGESTION_AT: usize = 4;
/// What stands for a field that changes on the way.
const MASKED: u8 = 0xff;

/// The way of packets between two addresses: what the ICRC covers of IP and UDP beside lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    addresses: Addresses,
    /// Source port; the destination port is [`PORT`].
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Addresses {
    V4 { source: Ipv4Addr, destination: Ipv4Addr },
    V6 { source: Ipv6Addr, destination: Ipv6Addr },
}

/// What a packet's ICRC says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All 32 bits are right.
    Right,
    /// Right if this is the identification of the packet's IPv4 header; only 16 bits have been
    /// checked unless it is known to be.
    Identified(u16),
    /// Wrong: the packet is dropped (rule CRC-09).
    Wrong,
}

impl Path {
    /// The path from `source` and its UDP port; an IPv4 address that IPv6 maps is IPv4 (rule NET-08).
    /// `None` if one address is IPv4 and the other is not.
    pub fn new(source: IpAddr, port: u16, destination: IpAddr) -> Option<Self> {
        let addresses = match (source.to_canonical(), destination.to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
            _ => return None,
        };
        Some(Self { addresses, port })
    }

    /// The ICRC of a packet, given from its BTH to its pad, as it stands behind it.
    ///
    /// `identification` is what the IPv4 header will have; IPv6 has none.
    ///
    /// # Panics
    ///
    /// If the packet is shorter than a BTH.
    pub fn icrc(&self, identification: u16, packet: &[u8]) -> [u8; ICRC_BYTES] {
        let (bth, rest) = packet.split_first_chunk().expect("a packet begins with a BTH");
        let mut icrc = Icrc::new(self, identification, packet.len() + ICRC_BYTES, bth);
        icrc.update(rest);
        icrc.finish()
    }

    /// Checks the ICRC of what a UDP datagram carried, which ends with it.
    ///
    /// `identification` is the likeliest of the IPv4 header: if it is that, the check is over at
    /// once.
    pub fn check(&self, identification: u16, datagram: &[u8]) -> Verdict {
        let Some((packet, icrc)) = datagram.split_last_chunk::<ICRC_BYTES>() else {
            return Verdict::Wrong;
        };
        if packet.len() < BTH_BYTES || packet.len() > usize::from(u16::MAX) {
            return Verdict::Wrong;
        }
        let expected = self.icrc(identification, packet);
        let difference = u32::from_le_bytes(expected) ^ u32::from_le_bytes(*icrc);
        match self.addresses {
            _ if difference == 0 => Verdict::Right,
            Addresses::V6 { .. } => Verdict::Wrong,
            Addresses::V4 { .. } => solve(difference, packet.len())
                .map_or(Verdict::Wrong, |change| Verdict::Identified(identification ^ change)),
        }
    }
}

/// The change of the identification that makes this difference in the ICRC of a packet with
/// `length` bytes, if one does.
fn solve(difference: u32, length: usize) -> Option<u16> {
    const IDENTIFICATION_AT: usize = 4;
    if !length.is_multiple_of(4) {
        return None;
    }
    // The register goes back over all that comes after the identification, and over itself: then it
    // holds those two bytes, first one lowest, and nothing else.
    let bytes = IPV4_BYTES - IDENTIFICATION_AT + UDP_BYTES + length;
    let change = field::back(difference, bytes / 4);
    u16::try_from(change).ok().map(u16::swap_bytes)
}

/// An ICRC over a packet that is not in one piece.
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins with the headers up to the BTH. `length` is what UDP carries, the ICRC included (rule
    /// CRC-07).
    pub fn new(path: &Path, identification: u16, length: usize, bth: &[u8; BTH_BYTES]) -> Self {
        let udp_length = (length + UDP_BYTES) as u16;
        let mut bth = *bth;
        bth[CONGESTION_AT] = MASKED;
        let mut hasher = Hasher::new();
        match path.addresses {
            Addresses::V4 { source, destination } => {
                let mut headers = Headers::<{ 8 + IPV4_BYTES + UDP_BYTES + BTH_BYTES }>::new();
                headers.put([0x45, MASKED]);
                headers.put((udp_length.wrapping_add(IPV4_BYTES as u16)).to_be_bytes());
                headers.put(identification.to_be_bytes());
                headers.put(DONT_FRAGMENT.to_be_bytes());
                headers.put([MASKED, UDP, MASKED, MASKED]);
                headers.put(source.octets());
                headers.put(destination.octets());
                headers.udp(path.port, udp_length);
                headers.put(bth);
                hasher.update(&headers.bytes);
            }
            Addresses::V6 { source, destination } => {
                let mut headers = Headers::<{ 8 + IPV6_BYTES + UDP_BYTES + BTH_BYTES }>::new();
                headers.put([0x6f, MASKED, MASKED, MASKED]);
                headers.put(udp_length.to_be_bytes());
                headers.put([UDP, MASKED]);
                headers.put(source.octets());
                headers.put(destination.octets());
                headers.udp(path.port, udp_length);
                headers.put(bth);
                hasher.update(&headers.bytes);
            }
        }
        Self(hasher)
    }

    /// Goes on with what follows, the pad included.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The ICRC as it stands behind the packet (rule CRC-08).
    pub fn finish(self) -> [u8; ICRC_BYTES] {
        self.0.finalize().to_le_bytes()
    }
}

/// Headers in a row, behind the eight bytes that stand for InfiniBand's local route header (rule
/// CRC-02).
struct Headers<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Headers<N> {
    fn new() -> Self {
        Self { bytes: [MASKED; N], at: 8 }
    }

    fn put<const M: usize>(&mut self, bytes: [u8; M]) {
        self.bytes[self.at..][..M].copy_from_slice(&bytes);
        self.at += M;
    }

    fn udp(&mut self, port: u16, length: u16) {
        self.put(port.to_be_bytes());
        self.put(PORT.to_be_bytes());
        self.put(length.to_be_bytes());
        self.put([MASKED; 2]);
    }
}

#[cfg(test)]
mod tests;
