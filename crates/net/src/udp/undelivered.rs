//! Datagrams that came to nobody, by the reports that the sending sockets get.
//!
//! The kernel reports ICMP messages, and errors that it has found itself, with the beginning of the datagram
//! (`IP_RECVERR`, see `ip(7)`). While one process has the port, no ICMP message comes for another one that has ended.
//! So a process with the port says the same by a [`Notice`], to the socket that the packet came from.
//!
//! Anybody can send either. So a receiver believes a report only about a datagram that it waits for.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{iovec, msghdr, sockaddr_storage};

use super::control::{CONTROL, Control, ExtendedError, Received};
use super::socket::{self, retry};

/// More bytes than the kernel reports of a datagram, and than a notice has.
const ROOM: usize = 2048;

/// Reports that are taken from one socket at a time.
const MOST: usize = 64;

/// Bytes of the header that a packet begins with.
const BTH: usize = 12;

/// Why a datagram has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nobody has the port at the other end.
    NoPort,
    /// Somebody has it, but the packet's process has ended.
    NoProcess,
    /// There is no way to the other end, for this errno.
    NoWay(i32),
    /// A network on the way carries no IP packets longer than this many bytes.
    TooLong(u32),
}

impl Obstacle {
    /// The obstacle that a network or the other end has reported. If the kernel itself refuses a datagram, its sender
    /// learns that from the call.
    fn of(said: &ExtendedError) -> Option<Self> {
        if !matches!(said.origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6) {
            return None;
        }
        Some(match said.errno {
            libc::ECONNREFUSED => Self::NoPort,
            libc::EMSGSIZE => Self::TooLong(said.information),
            errno => Self::NoWay(errno),
        })
    }
}

/// A datagram that has come to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undelivered<'a> {
    /// Where it was sent to.
    pub destination: IpAddr,
    /// Why.
    pub why: Obstacle,
    /// The beginning of its UDP payload, as much as the report has.
    pub datagram: &'a [u8],
}

impl<'a> Undelivered<'a> {
    /// The queue pair number and the packet sequence number of a request of a reliable connection.
    pub fn request(&self) -> Option<(u32, u32)> {
        let header = self.datagram.get(..BTH)?;
        let number =
            |at: usize| u32::from_be_bytes([0, header[at], header[at + 1], header[at + 2]]);
        is_reliable_request(header[0]).then(|| (number(5), number(9)))
    }

    /// The payload of a UD datagram, if it is for this queue pair.
    pub fn datagram_for(&self, qpn: u32) -> Option<&'a [u8]> {
        let to = self.datagram.get(4..8)?;
        let payload = self.datagram.get(BTH + 8..)?;
        (to[1..] == qpn.to_be_bytes()[1..]).then_some(payload)
    }
}

/// Whether an opcode is that of a request of RC or XRC, which gets an answer.
fn is_reliable_request(opcode: u8) -> bool {
    const RC: u8 = 0x00;
    const XRC: u8 = 0xa0;
    const RESPONSES: std::ops::RangeInclusive<u8> = 0x0d..=0x12;
    matches!(opcode & 0xe0, RC | XRC) && !RESPONSES.contains(&(opcode & 0x1f))
}

/// Tells a sender that its packet's process has ended. It is a mark, followed by the packet's first header. Adapters
/// neither send nor understand it, and everything works without it.
pub(super) struct Notice {
    bytes: [u8; Self::BYTES],
}

impl Notice {
    const MARK: [u8; 8] = *b"Transom0";
    pub(super) const BYTES: usize = Self::MARK.len() + BTH;

    /// The notice about a datagram, if its sender waits for an answer.
    pub(super) fn of(datagram: &[u8]) -> Option<Self> {
        let header = datagram.get(..BTH)?;
        is_reliable_request(header[0]).then(|| {
            let mut bytes = [0; Self::BYTES];
            let (mark, rest) = bytes.split_at_mut(Self::MARK.len());
            mark.copy_from_slice(&Self::MARK);
            rest.copy_from_slice(header);
            Self { bytes }
        })
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The header in it.
    fn parse(bytes: &[u8]) -> Option<&[u8]> {
        let header = bytes.strip_prefix(&Self::MARK)?;
        (header.len() == BTH).then_some(header)
    }

    /// A BPF program that lets only notices into a socket. It sees datagrams from their UDP header on.
    pub(super) fn filter() -> [libc::sock_filter; 8] {
        use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W};
        const UDP_HEADER: u32 = 8;
        let [first, second] = [0, 4].map(|at: usize| {
            u32::from_be_bytes(*Self::MARK[at..].first_chunk().expect("four bytes each"))
        });
        let code = socket::instruction;
        let load = |at| code(BPF_LD | BPF_W | BPF_ABS, 0, 0, at);
        let or_drop = |value, over| code(BPF_JMP | BPF_JEQ | BPF_K, 0, over, value);
        [
            code(BPF_LD | BPF_W | BPF_LEN, 0, 0, 0),
            or_drop(UDP_HEADER + Self::BYTES as u32, 5),
            load(UDP_HEADER),
            or_drop(first, 3),
            load(UDP_HEADER + 4),
            or_drop(second, 1),
            code(BPF_RET | BPF_K, 0, 0, u32::MAX),
            code(BPF_RET | BPF_K, 0, 0, 0),
        ]
    }
}

/// Hands out the reports that a socket has.
pub(super) fn take(socket: &OwnedFd, each: &mut impl FnMut(&Undelivered<'_>)) {
    let mut room = [0; ROOM];
    for _ in 0..MOST {
        let Ok(told) = receive(socket, &mut room, libc::MSG_ERRQUEUE) else { break };
        let Told { from: to, said, length } = told;
        if let (Some(to), Some(why)) = (to, said.error.as_ref().and_then(Obstacle::of)) {
            let (destination, datagram) = (to.ip(), &room[..length]);
            each(&Undelivered { destination, why, datagram });
        }
    }
    for _ in 0..MOST {
        let Ok(told) = receive(socket, &mut room, 0) else { break };
        if let (Some(from), Some(datagram)) = (told.from, Notice::parse(&room[..told.length])) {
            let (destination, why) = (from.ip(), Obstacle::NoProcess);
            each(&Undelivered { destination, why, datagram });
        }
    }
    // Clear the error of a report for which the kernel had no memory.
    let _ = rustix::net::sockopt::socket_error(socket);
}

struct Told {
    from: Option<SocketAddr>,
    said: Received,
    length: usize,
}

fn receive(socket: &OwnedFd, room: &mut [u8], flags: libc::c_int) -> io::Result<Told> {
    // SAFETY: all zeros is a valid `sockaddr_storage`.
    let mut address: sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut control = Control::EMPTY;
    let mut part = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut message = msghdr {
        msg_name: (&raw mut address).cast(),
        msg_namelen: size_of::<sockaddr_storage>() as u32,
        msg_iov: &raw mut part,
        msg_iovlen: 1,
        msg_control: control.as_mut_ptr(),
        msg_controllen: CONTROL,
        // SAFETY: all zeros is a valid `msghdr`.
        ..unsafe { std::mem::zeroed() }
    };
    let flags = flags | libc::MSG_DONTWAIT;
    let length = retry(|| {
        // SAFETY: the message points to room that lives until the call has returned, and that nobody else
        // uses.
        unsafe {
            libc::syscall(libc::SYS_recvmsg, socket.as_raw_fd(), &raw mut message, flags) as isize
        }
    })?;
    Ok(Told {
        from: socket::address(&address),
        said: Received::read(&control, message.msg_controllen),
        length: (length as usize).min(room.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(opcode: u8) -> [u8; 16] {
        [opcode, 0, 0xff, 0xff, 0, 3, 0, 9, 0x80, 0, 1, 2, 0, 0, 0, 0]
    }

    #[test]
    fn only_who_waits_for_an_answer_is_told_that_none_comes() {
        for (opcode, waits) in [
            (0x04, true),  // RC SEND
            (0x0c, true),  // RC READ
            (0x11, false), // RC acknowledgement
            (0x24, false), // UC SEND
            (0x64, false), // UD SEND
            (0x81, false), // congestion
            (0xa4, true),  // XRC SEND
            (0xff, false), // a probe
        ] {
            let bytes = packet(opcode);
            let notice = Notice::of(&bytes);
            assert_eq!(notice.is_some(), waits, "{opcode:#x}");
            let header = notice.as_ref().and_then(|notice| Notice::parse(notice.as_bytes()));
            assert_eq!(header, waits.then_some(&bytes[..BTH]), "{opcode:#x}");
        }
    }

    #[test]
    fn what_the_network_says_is_told() {
        let (icmp, local) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_LOCAL);
        for (errno, origin, information, expected) in [
            (libc::ECONNREFUSED, icmp, 0, Some(Obstacle::NoPort)),
            (libc::EMSGSIZE, icmp, 1400, Some(Obstacle::TooLong(1400))),
            (libc::EHOSTUNREACH, icmp, 0, Some(Obstacle::NoWay(libc::EHOSTUNREACH))),
            (libc::EMSGSIZE, local, 1400, None),
        ] {
            assert_eq!(Obstacle::of(&ExtendedError { errno, origin, information }), expected);
        }
    }

    #[test]
    fn what_is_told_may_be_cut_anywhere() {
        let mut bytes = packet(0x04).to_vec();
        bytes.extend(*b"data");
        for length in 0..=bytes.len() {
            let destination = IpAddr::from([10, 0, 0, 1]);
            let datagram = &bytes[..length];
            let it = Undelivered { destination, why: Obstacle::NoPort, datagram };
            assert_eq!(it.request(), (length >= 12).then_some((0x03_0009, 0x00_0102)));
            assert_eq!(it.datagram_for(1), None);
            let whole = it.datagram_for(0x03_0009);
            assert_eq!(whole.is_some(), length >= 20, "{length}");
        }
    }
}
