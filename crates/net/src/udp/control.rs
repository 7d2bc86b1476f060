//! Control messages, which go with a datagram besides its bytes.

use std::net::IpAddr;

use libc::{c_int, cmsghdr};

use super::way::Way;

/// Bytes for the control messages of one call, aligned as they must be.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control {
    bytes: [u8; CONTROL],
}

/// Messages begin at multiples of this.
const ALIGN: usize = size_of::<usize>();

/// More than all messages of one datagram together: destination, TOS, TTL, segment size, losses.
pub(super) const CONTROL: usize = 256;

impl Control {
    pub(super) const EMPTY: Self = Self { bytes: [0; CONTROL] };

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }
}

/// Writes control messages one after the other.
pub(super) struct Writer<'a> {
    control: &'a mut Control,
    written: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(control: &'a mut Control) -> Self {
        Self { control, written: 0 }
    }

    /// Bytes written.
    pub(super) fn len(&self) -> usize {
        self.written
    }

    /// Adds a message.
    pub(super) fn add(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let head = size_of::<cmsghdr>();
        let length = head + value.len();
        let message = &mut self.control.bytes[self.written..][..length.next_multiple_of(ALIGN)];
        // `struct cmsghdr`: length, level, type.
        message[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
        message[head - 8..head - 4].copy_from_slice(&level.to_ne_bytes());
        message[head - 4..head].copy_from_slice(&kind.to_ne_bytes());
        message[head..length].copy_from_slice(value);
        self.written += message.len();
    }

    /// Adds a datagram's source address, interface, traffic class and hop limit.
    pub(super) fn add_way(&mut self, way: &Way) {
        let [tos, ttl] = [way.tos, way.ttl].map(|byte| c_int::from(byte).to_ne_bytes());
        match way.source {
            IpAddr::V4(source) => {
                // `struct in_pktinfo`: interface, source, and the destination, which only receiving fills in.
                let mut information = [0; 12];
                information[..4].copy_from_slice(&way.interface.to_ne_bytes());
                information[4..8].copy_from_slice(&source.octets());
                self.add(libc::IPPROTO_IP, libc::IP_PKTINFO, &information);
                self.add(libc::IPPROTO_IP, libc::IP_TOS, &tos);
                self.add(libc::IPPROTO_IP, libc::IP_TTL, &ttl);
            }
            IpAddr::V6(source) => {
                // `struct in6_pktinfo`: source, interface.
                let mut information = [0; 20];
                information[..16].copy_from_slice(&source.octets());
                information[16..].copy_from_slice(&way.interface.to_ne_bytes());
                self.add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &information);
                self.add(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos);
                self.add(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &ttl);
            }
        }
    }

    /// Asks the kernel to cut the bytes into datagrams of `segment` bytes.
    pub(super) fn add_segment(&mut self, segment: u16) {
        self.add(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
    }
}

/// The content of a received datagram's control messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    pub(super) to: Option<IpAddr>,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    /// Bytes of each datagram, if several came as one.
    pub(super) segment: Option<usize>,
    /// Datagrams that the socket has lost so far for lack of room.
    pub(super) lost: Option<u32>,
    /// Why a datagram that was sent has not arrived.
    pub(super) error: Option<ExtendedError>,
}

/// The fields of a `struct sock_extended_err` about a datagram that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtendedError {
    pub(super) errno: i32,
    pub(super) origin: u8,
    pub(super) information: u32,
}

impl ExtendedError {
    fn read(value: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_ne_bytes(*value.get(at..)?.first_chunk()?));
        Some(Self { errno: number(0)? as i32, origin: *value.get(4)?, information: number(8)? })
    }
}

impl Received {
    pub(super) fn read(control: &Control, length: usize) -> Self {
        let mut received = Self::default();
        let mut rest = &control.bytes[..length.min(CONTROL)];
        while let Some((level, kind, value, after)) = message(rest) {
            received.take(level, kind, value);
            rest = after;
        }
        received
    }

    fn take(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let number = value.first_chunk().map_or(0, |number| c_int::from_ne_bytes(*number));
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let to = value.get(8..).and_then(|rest| rest.first_chunk::<4>());
                self.to = to.map(|to| IpAddr::from(*to)).or(self.to);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let to = value.first_chunk::<16>().map(|to| IpAddr::from(*to).to_canonical());
                self.to = to.or(self.to);
            }
            // A single byte. The others are of type `int`.
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.tos = value.first().copied().unwrap_or_default();
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.tos = number as u8,
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.ttl = number as u8;
            }
            (libc::SOL_UDP, libc::UDP_GRO) => self.segment = usize::try_from(number).ok(),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.lost = Some(number as u32),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                self.error = ExtendedError::read(value);
            }
            _ => {}
        }
    }
}

/// Level, type and value of the first message, and the bytes after it.
fn message(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let head = size_of::<cmsghdr>();
    let length = usize::from_ne_bytes(*bytes.first_chunk()?);
    let number = |at: usize| Some(c_int::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let (level, kind) = (number(head - 8)?, number(head - 4)?);
    let value = bytes.get(head..length)?;
    Some((level, kind, value, bytes.get(length.next_multiple_of(ALIGN)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(source: IpAddr, tos: u8, ttl: u8) -> Way {
        Way { source, destination: source, flow: 0, tos, ttl, interface: 0 }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut control = Control::EMPTY;
        let mut writer = Writer::new(&mut control);
        let source = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        writer.add_way(&way(source, 0x68, 7));
        writer.add(libc::SOL_UDP, libc::UDP_GRO, &1048_i32.to_ne_bytes());
        writer.add(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &3_u32.to_ne_bytes());
        let length = writer.len();
        let received = Received::read(&control, length);
        assert_eq!((received.to, received.tos, received.ttl), (Some(source), 0x68, 7));
        assert_eq!((received.segment, received.lost), (Some(1048), Some(3)));
    }

    #[test]
    fn what_the_kernel_says_of_a_datagram_is_read() {
        // Errno, origin, type, code and padding, information, data.
        let mut value = [0; 16];
        value[..4].copy_from_slice(&libc::EMSGSIZE.to_ne_bytes());
        value[4] = libc::SO_EE_ORIGIN_ICMP;
        value[8..12].copy_from_slice(&1400_u32.to_ne_bytes());
        let mut control = Control::EMPTY;
        let mut writer = Writer::new(&mut control);
        writer.add(libc::IPPROTO_IP, libc::IP_RECVERR, &value);
        let length = writer.len();
        let (errno, origin) = (libc::EMSGSIZE, libc::SO_EE_ORIGIN_ICMP);
        let error = ExtendedError { errno, origin, information: 1400 };
        assert_eq!(Received::read(&control, length).error, Some(error));
        assert_eq!(ExtendedError::read(&value[..11]), None);
    }

    #[test]
    fn a_cut_message_ends_the_list() {
        let mut control = Control::EMPTY;
        let mut writer = Writer::new(&mut control);
        writer.add_way(&way([10, 0, 0, 1].into(), 4, 5));
        let length = writer.len();
        for length in 0..length {
            Received::read(&control, length);
        }
        control.bytes[..8].fill(0xff);
        assert_eq!(Received::read(&control, length).to, None);
    }
}
