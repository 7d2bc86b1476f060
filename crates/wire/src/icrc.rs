//! The invariant CRC (rules H.6). It covers a packet, and those parts of its IP and UDP headers that no router changes.
//!
//! It also covers the identification of IPv4, which a UDP socket neither sets nor shows. For a packet that we send, it
//! is known: 0 for a packet alone, and the position in the burst if segmentation makes several packets of one send. For
//! a packet that arrives, [`Series::check`] solves for it. CRC-32 is linear. So if everything else arrived as it was
//! sent, the received value differs from the one for an assumed identification only by 16 bits at a known offset. If
//! the identification is not known by other means, 16 bits of the check are left, otherwise all 32.

mod field;
mod usual;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;

use crate::packet::{ICRC_BYTES, PORT};
use usual::Changes;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const BTH_BYTES: usize = 12;
/// Stands for InfiniBand's local route header (rule CRC-02).
const LOCAL_ROUTE_BYTES: usize = 8;
/// From the identification of the IPv4 header up to the BTH.
const FROM_IDENTIFICATION: usize = IPV4_BYTES - 4 + UDP_BYTES;
const UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
/// The offset of FECN, BECN and six reserved bits in the BTH (rule CRC-06).
const CONGESTION_AT: usize = 4;
/// The CRC takes this byte for a field that changes on the way.
const MASKED: u8 = 0xff;

/// The way of packets between two addresses: everything that the ICRC covers of IP and UDP, except lengths.
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

/// The result of checking a packet's ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All 32 bits are right.
    Right,
    /// Right if the packet's IPv4 header has this identification. If that is not known, only 16 bits have been checked.
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

    /// The ICRC bytes that end a packet. `packet` reaches from its BTH to its pad.
    ///
    /// `identification` is that of the IPv4 header. IPv6 has none.
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

    /// As [`Series::check`], for one packet.
    pub fn check(&self, identification: u16, datagram: &[u8]) -> Verdict {
        Series::new(*self).check(identification, datagram)
    }
}

/// The change of the identification that makes this difference in the ICRC of a packet of `length` bytes. `None` if no
/// change does.
fn solve(difference: u32, length: usize) -> Option<u16> {
    if !length.is_multiple_of(4) {
        return None;
    }
    // Take the register back over the identification and everything after it. Then it holds nothing but those two
    // bytes, the first one lowest.
    let change = field::back(difference, (FROM_IDENTIFICATION + length) / 4);
    u16::try_from(change).ok().map(u16::swap_bytes)
}

/// The ICRCs of packets that go one way.
///
/// Most packets of long messages have one of five lengths. Packets of one such length in a row have the same headers
/// before the BTH, so that part of the CRC is computed once. The rest of each packet takes one pass. Where the CRC
/// covers other bytes than those in the packet, a table gives the difference.
#[derive(Debug)]
pub struct Series {
    path: Path,
    /// The length of the last packet.
    length: usize,
    /// If it is a usual one: the CRC of the headers before the BTH, with identification 0.
    usual: Option<(u32, &'static Changes)>,
}

impl Series {
    /// The packets of a path, none yet.
    pub fn new(path: Path) -> Self {
        Self { path, length: 0, usual: None }
    }

    /// As [`Path::icrc`].
    ///
    /// # Panics
    ///
    /// If the packet is shorter than a BTH.
    pub fn icrc(&mut self, identification: u16, packet: &[u8]) -> [u8; ICRC_BYTES] {
        if packet.len() != self.length {
            self.length = packet.len();
            self.usual = Changes::of(packet.len()).map(|changes| {
                let headers = Headers::new(&self.path, 0, packet.len() + ICRC_BYTES);
                (crc32fast::hash(headers.bytes()), changes)
            });
        }
        let Some((headers, changes)) = self.usual else {
            return self.path.icrc(identification, packet);
        };
        let mut hasher = Hasher::new_with_initial(headers);
        hasher.update(packet);
        let identification = match self.path.addresses {
            Addresses::V4 { .. } => identification,
            Addresses::V6 { .. } => 0,
        };
        let changed = changes.identification(identification)
            ^ changes.congestion(packet[CONGESTION_AT] ^ MASKED);
        (hasher.finalize() ^ changed).to_le_bytes()
    }

    /// Checks the ICRC at the end of a UDP payload.
    ///
    /// `identification` is the likeliest one of the IPv4 header. If it is right, the check is over at once.
    pub fn check(&mut self, identification: u16, datagram: &[u8]) -> Verdict {
        let Some((packet, icrc)) = datagram.split_last_chunk::<ICRC_BYTES>() else {
            return Verdict::Wrong;
        };
        if packet.len() < BTH_BYTES || packet.len() > usize::from(u16::MAX) {
            return Verdict::Wrong;
        }
        let expected = self.icrc(identification, packet);
        let difference = u32::from_le_bytes(expected) ^ u32::from_le_bytes(*icrc);
        match self.path.addresses {
            _ if difference == 0 => Verdict::Right,
            Addresses::V6 { .. } => Verdict::Wrong,
            Addresses::V4 { .. } => solve(difference, packet.len())
                .map_or(Verdict::Wrong, |change| Verdict::Identified(identification ^ change)),
        }
    }
}

/// An ICRC over a packet that is not in one piece.
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins with the headers up to the BTH. `length` is that of the UDP payload, the ICRC included (rule CRC-07).
    pub fn new(path: &Path, identification: u16, length: usize, bth: &[u8; BTH_BYTES]) -> Self {
        let mut bth = *bth;
        bth[CONGESTION_AT] = MASKED;
        let mut headers = Headers::new(path, identification, length);
        headers.put(bth);
        let mut hasher = Hasher::new();
        hasher.update(headers.bytes());
        Self(hasher)
    }

    /// Goes on with the following bytes, up to the pad.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The ICRC bytes that end the packet (rule CRC-08).
    pub fn finish(self) -> [u8; ICRC_BYTES] {
        self.0.finalize().to_le_bytes()
    }
}

/// Headers in a row, behind the eight bytes that stand for InfiniBand's local route header (rule
/// CRC-02).
struct Headers {
    bytes: [u8; LOCAL_ROUTE_BYTES + IPV6_BYTES + UDP_BYTES + BTH_BYTES],
    length: usize,
}

impl Headers {
    /// The headers of IP and UDP. `length` is that of the UDP payload.
    fn new(path: &Path, identification: u16, length: usize) -> Self {
        let mut headers = Self { bytes: [MASKED; _], length: LOCAL_ROUTE_BYTES };
        let udp_length = (length + UDP_BYTES) as u16;
        match path.addresses {
            Addresses::V4 { source, destination } => {
                headers.put([0x45, MASKED]);
                headers.put((udp_length.wrapping_add(IPV4_BYTES as u16)).to_be_bytes());
                headers.put(identification.to_be_bytes());
                headers.put(DONT_FRAGMENT.to_be_bytes());
                headers.put([MASKED, UDP, MASKED, MASKED]);
                headers.put(source.octets());
                headers.put(destination.octets());
            }
            Addresses::V6 { source, destination } => {
                headers.put([0x6f, MASKED, MASKED, MASKED]);
                headers.put(udp_length.to_be_bytes());
                headers.put([UDP, MASKED]);
                headers.put(source.octets());
                headers.put(destination.octets());
            }
        }
        headers.put(path.port.to_be_bytes());
        headers.put(PORT.to_be_bytes());
        headers.put(udp_length.to_be_bytes());
        headers.put([MASKED; 2]);
        headers
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.length..][..N].copy_from_slice(&bytes);
        self.length += N;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests;
