//! Sending: datagrams of equal length, many in one call.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*};

use libc::{iovec, mmsghdr, msghdr};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use transom_system::descriptor;
use transom_wire::packet::PORT;

use super::control::{Control, Writer};
use super::socket::{self, retry};
use super::undelivered::{self, Notice, Undelivered};
use super::way::{Way, path_mtu};

/// Sockets for each family. Queue pairs share them, so this bounds descriptors, not queue pairs.
const FLOWS: usize = 16;

/// Datagrams in one call: the limit of the oldest kernel that has segmentation.
const MOST_SEGMENTS: usize = 64;

/// Bytes in one call. A GSO batch is one IPv4 packet until the kernel cuts it, so it must fit into one.
const MOST_BYTES: usize = 65_507;

/// Datagrams in one call, if the kernel does not cut GSO batches.
const ONE_BY_ONE: usize = 16;

/// Why datagrams were not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The socket or the interface has no room: try again in a moment.
    #[error("the socket or the interface has no room")]
    Busy,
    /// A datagram is longer than the way carries; see [`path_mtu`](super::path_mtu).
    #[error("a datagram is longer than the way carries")]
    TooLong,
    /// The kernel turns out not to cut GSO batches for this interface. From now on each datagram has identification 0.
    /// Make these again, because their ICRCs cover it.
    #[error("the kernel does not cut GSO batches for this interface")]
    Identification,
    /// There is no way: no route, no such source address any more, or a firewall.
    #[error("there is no way: {0}")]
    Unreachable(#[source] io::Error),
}

/// A socket that sends, and its port.
struct Flow {
    socket: OwnedFd,
    port: u16,
}

/// The sockets that send.
pub(crate) struct Sending {
    ipv4: [OnceLock<Flow>; FLOWS],
    ipv6: [OnceLock<Flow>; FLOWS],
    /// Readable when one of them has a report of a datagram that came to nobody.
    told: OwnedFd,
    /// The kernel cuts GSO batches (`UDP_SEGMENT`).
    cuts: AtomicBool,
}

impl Sending {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            ipv4: [const { OnceLock::new() }; FLOWS],
            ipv6: [const { OnceLock::new() }; FLOWS],
            told: descriptor::high(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            cuts: AtomicBool::new(true),
        })
    }

    pub(super) fn undelivered_descriptor(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }

    /// Hands out the reports that the sockets have.
    pub(super) fn undelivered(&self, mut each: impl FnMut(&Undelivered<'_>)) {
        let flows = self.ipv4.iter().chain(&self.ipv6).filter_map(OnceLock::get);
        flows.for_each(|flow| undelivered::take(&flow.socket, &mut each));
    }

    /// Tells the sender of a packet for an address of this host that nobody is there. A notice that cannot be sent is
    /// lost.
    pub(super) fn tell(&self, here: IpAddr, sender: SocketAddr, notice: &Notice) {
        let (source, destination) = (here, sender.ip());
        let way = Way { source, destination, flow: 0, tos: 0, ttl: 64, interface: 0 };
        let Ok(flow) = self.flow(&way) else { return };
        let bytes = notice.as_bytes();
        let _ = send_message(flow, &way, sender.port(), bytes, None);
    }

    /// How many datagrams of `segment` bytes go into one call.
    pub(crate) fn most(&self, segment: usize) -> usize {
        match self.cuts.load(Relaxed) {
            true => (MOST_BYTES / segment.max(1)).clamp(1, MOST_SEGMENTS),
            false => ONE_BY_ONE,
        }
    }

    /// The IPv4 identification that a datagram will have, by its number in the call.
    ///
    /// A GSO batch is one packet with identification 0. When the kernel cuts it, the identifications count up.
    pub(crate) fn identification(&self, index: usize) -> u16 {
        if self.cuts.load(Relaxed) { index as u16 } else { 0 }
    }

    pub(crate) fn send(&self, way: &Way, bytes: &[u8], segment: usize) -> Result<usize, SendError> {
        let segment = segment.max(1);
        let bytes = &bytes[..bytes.len().min(segment * self.most(segment))];
        let count = bytes.len().div_ceil(segment);
        if count == 0 {
            return Ok(0);
        }
        let flow = self.flow(way).map_err(SendError::Unreachable)?;
        let cut = count > 1 && self.cuts.load(Relaxed);
        if cut || count == 1 {
            let cut_at = cut.then_some(segment as u16);
            return match send_message(flow, way, PORT, bytes, cut_at) {
                Ok(()) => Ok(count),
                Err(error) => self.refused(way, error, cut, segment, count),
            };
        }
        let (mut address, length) = socket::encode(SocketAddr::new(way.destination, PORT));
        let mut control = Control::EMPTY;
        let mut writer = Writer::new(&mut control);
        writer.add_way(way);
        let controls = writer.len();
        let mut message = |bytes: &mut iovec| {
            // SAFETY: all zeros is a valid `msghdr`.
            let mut message: msghdr = unsafe { std::mem::zeroed() };
            message.msg_name = (&raw mut address).cast();
            message.msg_namelen = length;
            message.msg_iov = bytes;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr();
            message.msg_controllen = controls;
            message
        };
        let mut parts = [part(&[]); ONE_BY_ONE];
        let datagrams = bytes.chunks(segment).take(ONE_BY_ONE);
        let count = datagrams.len();
        parts.iter_mut().zip(datagrams).for_each(|(entry, datagram)| *entry = part(datagram));
        let mut messages =
            parts.each_mut().map(|part| mmsghdr { msg_hdr: message(part), msg_len: 0 });
        match retry(|| {
            let messages = messages.as_mut_ptr();
            // SAFETY: each message points to an address, a part and control messages that live until the call
            // has returned. The kernel reads them, and writes the length of each that it sent.
            unsafe {
                let fd = flow.socket.as_raw_fd();
                libc::syscall(libc::SYS_sendmmsg, fd, messages, count as u32, FLAGS) as isize
            }
        }) {
            Ok(sent) => Ok(sent as usize),
            Err(error) => self.refused(way, error, false, segment, 1),
        }
    }

    /// The UDP source port of datagrams that go this way.
    pub(crate) fn source_port(&self, way: &Way) -> io::Result<u16> {
        Ok(self.flow(way)?.port)
    }

    /// The socket of a flow; made when it is first used.
    fn flow(&self, way: &Way) -> io::Result<&Flow> {
        let (flows, family) = match way.source {
            IpAddr::V4(_) => (&self.ipv4, AddressFamily::INET),
            IpAddr::V6(_) => (&self.ipv6, AddressFamily::INET6),
        };
        let flow = &flows[usize::from(way.flow) % FLOWS];
        match flow.get() {
            Some(flow) => Ok(flow),
            None => {
                let (socket, port) = open_socket(family, way.flow)?;
                let (data, ready) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
                epoll::add(&self.told, &socket, data, ready)?;
                // Another thread may have been faster; then its socket is used.
                Ok(flow.get_or_init(|| Flow { socket, port }))
            }
        }
    }

    fn refused(
        &self,
        way: &Way,
        error: io::Error,
        cut: bool,
        segment: usize,
        count: usize,
    ) -> Result<usize, SendError> {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOMEM) => return Err(SendError::Busy),
            // The interface has dropped it, as a network may drop any datagram. Its queue may let nothing pass at all,
            // so we do not try again without end.
            Some(libc::ENOBUFS) => return Ok(count),
            Some(libc::EMSGSIZE) if !cut => return Err(SendError::TooLong),
            // The kernel answers these for datagrams that are too long, and for interfaces for which it does not cut.
            Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE) if cut => {}
            _ => return Err(SendError::Unreachable(error)),
        }
        let mtu = path_mtu(way).map_err(SendError::Unreachable)?;
        let headers = if way.source.is_ipv4() { 28 } else { 48 };
        if segment + headers > mtu as usize {
            return Err(SendError::TooLong);
        }
        self.cuts.store(false, Relaxed);
        Err(SendError::Identification)
    }
}

/// A socket that only sends, from `port` or, if that is taken, from one of the next ports.
///
/// Its datagrams are never fragmented. It is not connected, so the kernel gives each datagram identification 0, which
/// the ICRC covers. Hardware does both too. Checksums stay on, because the kernel cuts no segments without them.
fn open_socket(family: AddressFamily, port: u16) -> io::Result<(OwnedFd, u16)> {
    let at = |port| match family {
        AddressFamily::INET6 => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
    };
    let socket = socket::open(at(port))?;
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
        sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
        // Members on this host are reached without packets.
        sockopt::set_ipv6_multicast_loop(&socket, false)?;
    } else {
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
        sockopt::set_ip_multicast_loop(&socket, false)?;
    }
    // The kernel reports datagrams that came to nobody.
    let (level, option) = match family {
        AddressFamily::INET6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        _ => (libc::IPPROTO_IP, libc::IP_RECVERR),
    };
    socket::set(&socket, level, option, &1_i32)?;
    // The socket receives only notices. All else is dropped before it takes room.
    socket::filter(&socket, libc::SO_ATTACH_FILTER, &Notice::filter())?;
    if sockopt::set_socket_send_buffer_size_force(&socket, socket::ROOM).is_err() {
        sockopt::set_socket_send_buffer_size(&socket, socket::ROOM)?;
    }
    let mut last = Errno::ADDRINUSE;
    for step in 0..256 {
        let port = 0xc000 | port.wrapping_add(step);
        match socket::bind(&socket, at(port)) {
            Err(Errno::ADDRINUSE) => {}
            Err(error) => {
                last = error;
                break;
            }
            Ok(()) => return Ok((socket, port)),
        }
    }
    Err(last.into())
}

/// Sends bytes to a port, as one datagram or as datagrams of `cut_at` bytes each.
fn send_message(
    flow: &Flow,
    way: &Way,
    port: u16,
    bytes: &[u8],
    cut_at: Option<u16>,
) -> io::Result<()> {
    let (mut address, length) = socket::encode(SocketAddr::new(way.destination, port));
    let mut control = Control::EMPTY;
    let mut writer = Writer::new(&mut control);
    writer.add_way(way);
    if let Some(segment) = cut_at {
        writer.add_segment(segment);
    }
    let controls = writer.len();
    let mut bytes = part(bytes);
    // SAFETY: all zeros is a valid `msghdr`.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut address).cast();
    message.msg_namelen = length;
    message.msg_iov = &raw mut bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr();
    message.msg_controllen = controls;
    retry(|| {
        // SAFETY: the message points to an address, a part and control messages that live until the call
        // has returned; the kernel reads them only.
        unsafe {
            let fd = flow.socket.as_raw_fd();
            libc::syscall(libc::SYS_sendmsg, fd, &raw const message, FLAGS) as isize
        }
    })
    .map(drop)
}

const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Bytes for the kernel, which only reads them.
fn part(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

#[cfg(test)]
#[expect(clippy::print_stdout, reason = "tests say what they skip")]
mod tests {
    use std::net::UdpSocket;
    use std::process::Command;
    use std::time::Duration;

    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::*;

    #[test]
    fn where_gso_batches_are_not_cut_each_datagram_goes_alone() {
        let alone = || {
            // Another process may have the port, but not in a namespace of this thread's own. SAFETY: this thread has
            // nothing that depends on its namespace.
            if unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.is_err() {
                return println!("skipped: only root makes a network namespace");
            }
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            if !up.is_ok_and(|status| status.success()) {
                return println!("skipped: there is no ip command");
            }
            let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT)).expect("nobody has it");
            receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("an option");
            let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let way =
                Way { source: here, destination: here, flow: 3, tos: 0, ttl: 64, interface: 0 };
            let sending = Sending::new().expect("a descriptor");
            sending.cuts.store(false, Relaxed);
            assert_eq!((sending.most(100), sending.identification(7)), (ONE_BY_ONE, 0));
            let bytes: Vec<u8> = (0..100 * ONE_BY_ONE + 50).map(|at| (at / 7) as u8).collect();
            // The last one is left for the next call.
            assert_eq!(sending.send(&way, &bytes, 100).expect("it is sent"), ONE_BY_ONE);
            let last = &bytes[100 * ONE_BY_ONE..];
            assert_eq!(sending.send(&way, last, 100).expect("it is sent"), 1);
            for datagram in bytes.chunks(100) {
                let mut room = [0; 200];
                let length = receiver.recv(&mut room).expect("it has arrived");
                assert_eq!(&room[..length], datagram);
            }
        };
        std::thread::spawn(alone).join().expect("it went well");
    }
}
