//! The service that a request asks for, and the IP addresses it is about (rules CM-06, CM-07).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A port space. Ports of different port spaces are independent of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum PortSpace {
    /// Datagrams of IP over InfiniBand.
    Ipoib = 0x0002,
    /// Connections.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
    /// Any service, with native addresses.
    Ib = 0x013f,
}

impl PortSpace {
    /// The port space of a number.
    pub const fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            0x0002 => Self::Ipoib,
            0x0106 => Self::Tcp,
            0x0111 => Self::Udp,
            0x013f => Self::Ib,
            _ => return None,
        })
    }

    /// The number.
    pub const fn code(self) -> u16 {
        self as u16
    }
}

/// A service: 64 bits, in which IP services have port space and port (rule CM-06).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service of a port.
    pub const fn of(space: PortSpace, port: u16) -> Self {
        Self((space.code() as u64) << 16 | port as u64)
    }

    /// Port space and port, if it is an IP service.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        match PortSpace::from_code((self.0 >> 16) as u16) {
            Some(space) if self.0 >> 32 == 0 => Some((space, self.0 as u16)),
            _ => None,
        }
    }
}

/// The header at the beginning of the private data of a REQ or SIDR_REQ for an IP service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpHeader {
    /// The port that the request comes from.
    pub source_port: u16,
    /// The addresses.
    pub addresses: Addresses,
}

/// A source and a destination of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Addresses {
    V4 { source: Ipv4Addr, destination: Ipv4Addr },
    V6 { source: Ipv6Addr, destination: Ipv6Addr },
}

impl Addresses {
    /// These two; `None` if they are of different families.
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// The source.
    pub const fn source(&self) -> IpAddr {
        match *self {
            Self::V4 { source, .. } => IpAddr::V4(source),
            Self::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// The destination.
    pub const fn destination(&self) -> IpAddr {
        match *self {
            Self::V4 { destination, .. } => IpAddr::V4(destination),
            Self::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }
}

impl IpHeader {
    /// Bytes of it.
    pub const BYTES: usize = 36;

    /// Reads one; `None` if it is of another version, or of another version of IP. The low half of the second byte is
    /// reserved. So are the 12 bytes before an IPv4 address.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let [version, ip, p0, p1, addresses @ ..] = bytes;
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        let destination: &[u8; 16] = destination.try_into().ok()?;
        let addresses = match (version, ip >> 4) {
            (0, 4) => {
                let source = Ipv4Addr::from(*source.last_chunk::<4>()?);
                let destination = Ipv4Addr::from(*destination.last_chunk::<4>()?);
                Addresses::V4 { source, destination }
            }
            (0, 6) => {
                Addresses::V6 { source: (*source).into(), destination: (*destination).into() }
            }
            _ => return None,
        };
        Some(Self { source_port: u16::from_be_bytes([*p0, *p1]), addresses })
    }

    /// The bytes of it. IPv4 addresses take the last 4 of 16 bytes, and the rest is zero.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        match self.addresses {
            Addresses::V4 { source, destination } => {
                bytes[1] = 0x40;
                bytes[16..20].copy_from_slice(&source.octets());
                bytes[32..36].copy_from_slice(&destination.octets());
            }
            Addresses::V6 { source, destination } => {
                bytes[1] = 0x60;
                bytes[4..20].copy_from_slice(&source.octets());
                bytes[20..36].copy_from_slice(&destination.octets());
            }
        }
        bytes
    }
}
