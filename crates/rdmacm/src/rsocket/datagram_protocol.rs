//! The protocol between datagram sockets: the header of messages by UDP, from which sockets learn each other's queue
//! pairs, and the header of messages between queue pairs.
//!
//! The layouts are those of rdma-core's rsockets. All data read here may come from anybody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kind of a message by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It carries a datagram.
    Data,
    /// It only introduces the sender's queue pair.
    Answer,
}

/// The header of a message by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Introduction {
    pub(crate) kind: Kind,
    /// The number of the sender's queue pair.
    pub(crate) qpn: u32,
    /// The address that the message was sent to.
    pub(crate) to: IpAddr,
}

const TAG: [u8; 4] = [0x55; 4];
const DATA: u8 = 0;
const ANSWER: u8 = 7;
const QPN: u32 = 0xFF_FFFF;

/// The length of the longest header of either kind, in bytes.
pub(crate) const LONGEST: usize = 28;

impl Introduction {
    /// Appends the header.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        let version = if self.to.is_ipv4() { 4 } else { 6 };
        let kind = if self.kind == Kind::Data { DATA } else { ANSWER };
        let length = if self.to.is_ipv4() { 16 } else { 28 };
        bytes.extend(TAG);
        bytes.extend([version, kind, length, 0]);
        bytes.extend((self.qpn & QPN).to_be_bytes());
        match self.to {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }

    /// Reads the header, and returns the data after it. `None` if it is no such header.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (tag, rest) = bytes.split_first_chunk()?;
        let ([version, kind, length, _], rest) = rest.split_first_chunk()?;
        let (qpn, rest) = rest.split_first_chunk()?;
        let (to, data) = match (version, length) {
            (4, 16) => {
                let (address, data) = rest.split_first_chunk::<4>()?;
                (IpAddr::V4(Ipv4Addr::from(*address)), data)
            }
            (6, 28) => {
                let (address, data) = rest.split_first_chunk::<16>()?;
                (IpAddr::V6(Ipv6Addr::from(*address)), data)
            }
            _ => return None,
        };
        let kind = match *kind {
            DATA => Kind::Data,
            ANSWER => Kind::Answer,
            _ => return None,
        };
        let qpn = u32::from_be_bytes(*qpn) & QPN;
        (*tag == TAG).then_some((Self { kind, qpn, to }, data))
    }
}

/// Appends the header of a datagram between queue pairs: its source address.
pub(crate) fn write_source(from: SocketAddr, bytes: &mut Vec<u8>) {
    let (version, length) = if from.is_ipv4() { (4, 8) } else { (6, 24) };
    bytes.extend([version, length]);
    bytes.extend(from.port().to_be_bytes());
    match from {
        SocketAddr::V4(from) => bytes.extend(from.ip().octets()),
        SocketAddr::V6(from) => {
            bytes.extend(from.flowinfo().to_be_bytes());
            bytes.extend(from.ip().octets());
        }
    }
}

/// Reads such a header, with its length. `None` if it is no such header.
pub(crate) fn read_source(bytes: &[u8]) -> Option<(SocketAddr, usize)> {
    let ([version, length], rest) = bytes.split_first_chunk()?;
    let (port, rest) = rest.split_first_chunk()?;
    let port = u16::from_be_bytes(*port);
    let from = match (version, length) {
        (4, 8) => SocketAddr::from((*rest.first_chunk::<4>()?, port)),
        (6, 24) => {
            let (_, rest) = rest.split_first_chunk::<4>()?;
            SocketAddr::from((*rest.first_chunk::<16>()?, port))
        }
        _ => return None,
    };
    Some((from, (*length).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: CM-63
    #[test]
    fn a_message_by_udp_is_as_it_was_seen() {
        let seen = [0x55, 0x55, 0x55, 0x55, 4, 0, 0x10, 0, 0, 3, 0x20, 0xF8, 127, 0, 0, 1, 9, 9];
        let (read, data) = Introduction::read(&seen).unwrap();
        let to = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(read, Introduction { kind: Kind::Data, qpn: 0x320F8, to });
        assert_eq!(data, [9, 9]);
        let mut written = Vec::new();
        read.write(&mut written);
        assert_eq!(written, seen[..16]);
        assert_eq!(Introduction::read(&seen[..15]), None);
    }

    /// Rules: CM-64
    #[test]
    fn headers_are_read_as_written_and_others_not_at_all() {
        for from in ["10.1.2.3:80", "[2001:db8::7]:65535"] {
            let from: SocketAddr = from.parse().unwrap();
            let mut bytes = Vec::new();
            write_source(from, &mut bytes);
            assert_eq!(read_source(&bytes), Some((from, bytes.len())));
            assert_eq!(read_source(&bytes[..bytes.len() - 1]), None);
            let introduction = Introduction { kind: Kind::Answer, qpn: 5, to: from.ip() };
            let mut bytes = Vec::new();
            introduction.write(&mut bytes);
            assert_eq!(Introduction::read(&bytes), Some((introduction, &[][..])));
        }
        let mut state = 3_u64;
        for length in 0..2000 {
            let mut bytes = vec![0; length % 40];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 60) as u8;
            }
            let source = read_source(&bytes);
            assert!(source.is_none_or(|(_, header)| header <= bytes.len()));
            let _ = Introduction::read(&bytes);
        }
    }
}
