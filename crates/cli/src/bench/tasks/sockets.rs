//! The kernel's own protocols between the same two processes.

use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::slice::ChunksMut;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::ancillary::{self, Ancillary, set, trouble};
use super::{LIST, time};
use crate::bench::end::{TIMEOUT, spin};
use crate::bench::process::Process;
use crate::bench::setup::{Mtu, Side};
use crate::bench::wire;
use crate::failure::{Failure, Result};

/// The UDP payload of a WRITE of 8 bytes, in bytes: BTH, RETH, the 8 bytes and the ICRC.
const WRITE: usize = 12 + 16 + 8 + 4;
/// The UDP payload of its acknowledgement: BTH, AETH and the ICRC.
const ACKNOWLEDGEMENT: usize = 12 + 4 + 4;
/// The bytes of the ICRC.
const ICRC: usize = 4;
/// The bytes around the payload of a packet in the middle of a WRITE: BTH and ICRC.
const AROUND: usize = 12 + ICRC;
/// The RETH, which the first packet has too.
const RETH: usize = 16;
/// The most payload that one call takes: a burst of the device.
const AT_ONCE: usize = 62 << 10;

pub(super) fn tcp_and_back(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    let mut stream = connect(process)?;
    stream.set_nonblocking(true).map_err(trouble)?;
    let mut bytes = vec![0; size];
    let is_near = process.is_near();
    let round_trip = time(count, |_| {
        if is_near {
            send(&mut stream, &bytes)?;
        }
        receive(&mut bytes, |room| stream.read(room))?;
        if is_near { Ok(()) } else { send(&mut stream, &bytes) }
    })?;
    Ok(round_trip / 2.0)
}

pub(super) fn tcp_stream(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    let mut stream = connect(process)?;
    let mut bytes = vec![0; size];
    if !process.is_near() {
        for _ in 0..count {
            stream.read_exact(&mut bytes).map_err(trouble)?;
        }
        stream.write_all(&[0]).map_err(trouble)?;
        return Ok(0.0);
    }
    let start = Instant::now();
    for _ in 0..count {
        stream.write_all(&bytes).map_err(trouble)?;
    }
    stream.read_exact(&mut [0]).map_err(trouble)?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

/// The sockets of an echo.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::bench) enum Echo {
    /// One, connected to the other end's.
    Connected,
    /// As RoCEv2 packets travel: the source port is not the port that they arrive at, and one socket serves any number
    /// of machines.
    Unconnected,
    /// These, and each packet's addresses, traffic class and hop limit are said to the kernel, and asked of it. RoCEv2
    /// needs them for GIDs and check values.
    Told,
}

/// Datagrams to and fro.
pub(super) fn udp_and_back(process: &mut Process, echo: Echo, count: usize) -> Result<f64> {
    let peer = echo == Echo::Connected;
    let inbound = match echo {
        Echo::Told => ancillary::inbound()?,
        Echo::Connected | Echo::Unconnected => UdpSocket::bind(here(process)).map_err(trouble)?,
    };
    let there = exchange(process, &inbound)?;
    let outbound = if peer { inbound.try_clone() } else { UdpSocket::bind(here(process)) };
    let outbound = outbound.map_err(trouble)?;
    if peer {
        inbound.connect(there).map_err(trouble)?;
    }
    let way = Ancillary::new(here(process).0, there);
    // The kernel splits a send into two datagrams, and joins datagrams that arrive together.
    set(&outbound, libc::SOL_UDP, libc::UDP_SEGMENT, WRITE as libc::c_int)?;
    set(&inbound, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    inbound.set_nonblocking(true).map_err(trouble)?;
    process.meet()?;
    let (sent, mut received) = ([0xA5; WRITE + ACKNOWLEDGEMENT], [0; WRITE + ACKNOWLEDGEMENT]);
    let send = || {
        let sent = match echo {
            Echo::Connected => outbound.send(&sent),
            Echo::Unconnected => outbound.send_to(&sent, there),
            Echo::Told => way.send(&outbound, &sent),
        };
        sent.map(drop).map_err(trouble)
    };
    let is_near = process.is_near();
    let round_trip = time(count, |_| {
        if is_near {
            send()?;
        }
        receive(&mut received, |room| match echo {
            Echo::Connected => inbound.recv(room),
            Echo::Unconnected => inbound.recv_from(room).map(|(length, _)| length),
            Echo::Told => ancillary::receive(&inbound, room),
        })?;
        if is_near { Ok(()) } else { send() }
    })?;
    Ok(round_trip / 2.0)
}

/// The most answers that are awaited.
const WINDOW: usize = 4;

/// The datagrams of WRITEs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::bench) struct Stream {
    /// The bytes of a WRITE.
    pub(in crate::bench) size: usize,
    pub(in crate::bench) mtu: Mtu,
    /// Both ends copy the data and compute the CRC of each datagram, as RoCEv2 wants it. Otherwise nobody reads it.
    pub(in crate::bench) copied: bool,
}

/// The datagrams of WRITEs, in as many calls as the device makes: two datagrams, the first of which is the longest, and
/// then as many as one call takes. Each is answered.
pub(super) fn udp_stream(process: &mut Process, stream: Stream, count: usize) -> Result<f64> {
    let Stream { size, mtu, copied } = stream;
    let (_, payload) = mtu.path();
    let middle = payload + AROUND;
    let long = middle + RETH;
    let at_once = AT_ONCE / payload * middle;
    let inbound = UdpSocket::bind(here(process)).map_err(trouble)?;
    let there = exchange(process, &inbound)?;
    set(&inbound, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    // A datagram without room is lost, and nobody sends it again.
    set(&inbound, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20)?;
    inbound.set_read_timeout(Some(TIMEOUT)).map_err(trouble)?;
    let outbound = |segment: usize| -> Result<UdpSocket> {
        let socket = UdpSocket::bind(here(process)).map_err(trouble)?;
        socket.connect(there).map_err(trouble)?;
        set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, segment as libc::c_int)?;
        Ok(socket)
    };
    let [begins, goes_on] = [outbound(long)?, outbound(middle)?];
    let rest = size / payload * middle - 2 * middle;
    process.meet()?;
    if !process.is_near() {
        let mut room = vec![0; 1 << 16];
        let mut memory = vec![0; size];
        let mut take = |places: &mut ChunksMut<'_, u8>, mut length: usize| -> Result {
            while length > 0 {
                let received = inbound.recv(&mut room).map_err(trouble)?;
                if copied {
                    for datagram in room[..received].chunks_exact(middle) {
                        black_box(check(datagram));
                        let Some(place) = places.next() else { break };
                        place.copy_from_slice(&datagram[AROUND - ICRC..][..payload]);
                    }
                }
                length -= received;
            }
            Ok(())
        };
        for _ in 0..count {
            let mut places = memory.chunks_mut(payload);
            take(&mut places, long + middle)?;
            for at in (0..rest).step_by(at_once) {
                take(&mut places, at_once.min(rest - at))?;
                goes_on.send(&[0; ACKNOWLEDGEMENT]).map_err(trouble)?;
            }
        }
        return Ok(0.0);
    }
    inbound.set_nonblocking(true).map_err(trouble)?;
    let mut bytes = vec![0xA5; long + middle + rest];
    let memory = vec![0xA5; size];
    let (mut awaited, mut answer) = (0, [0; ACKNOWLEDGEMENT]);
    let start = Instant::now();
    for _ in 0..count {
        let mut data = memory.chunks(payload);
        let (first, rest) = bytes.split_at_mut(long + middle);
        let mut make = |bytes: &mut [u8]| {
            if !copied {
                return;
            }
            for (datagram, data) in bytes.chunks_exact_mut(middle).zip(&mut data) {
                datagram[AROUND - ICRC..][..payload].copy_from_slice(data);
                let icrc = check(datagram);
                datagram[middle - ICRC..].copy_from_slice(&icrc.to_le_bytes());
            }
        };
        make(first);
        begins.send(first).map_err(trouble)?;
        for part in rest.chunks_mut(at_once) {
            if awaited == WINDOW {
                receive(&mut answer, |room| inbound.recv(room))?;
                awaited -= 1;
            }
            make(part);
            goes_on.send(part).map_err(trouble)?;
            awaited += 1;
        }
    }
    while awaited > 0 {
        receive(&mut answer, |room| inbound.recv(room))?;
        awaited -= 1;
    }
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

/// The CRC of a datagram but for its last bytes, which hold it.
fn check(datagram: &[u8]) -> u32 {
    crc32fast::hash(&datagram[..datagram.len() - ICRC])
}

/// The most lists that are not answered yet.
const LISTS: usize = 8;

/// Lists of datagrams, each list in one `sendmmsg`, taken by `recvmmsg`. Each list is answered.
pub(super) fn udp_lists(process: &mut Process, count: usize) -> Result<f64> {
    let inbound = UdpSocket::bind(here(process)).map_err(trouble)?;
    let there = exchange(process, &inbound)?;
    set(&inbound, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20)?;
    inbound.connect(there).map_err(trouble)?;
    inbound.set_nonblocking(true).map_err(trouble)?;
    process.meet()?;
    let mut room = [[0xA5; WRITE]; LIST];
    let mut parts = room
        .each_mut()
        .map(|room| libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: WRITE });
    let mut messages = parts.each_mut().map(|part| {
        // SAFETY: all zeros is a valid `mmsghdr`.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
        message
    });
    let (lists, mut answer) = (count.div_ceil(LIST), [0; ACKNOWLEDGEMENT]);
    let mut mmsg = |number: libc::c_long, first: usize| {
        let fd = inbound.as_raw_fd();
        // SAFETY: each message has one part, which points to room of its own; all live as long as the call.
        let done = unsafe {
            let none = std::ptr::null_mut::<libc::timespec>();
            libc::syscall(number, fd, messages.as_mut_ptr().add(first), LIST - first, 0, none)
        };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    };
    let mut whole_list = |number| -> Result {
        let mut done = 0;
        while done < LIST {
            done += spin("a list of datagrams", || some(mmsg(number, done)))?;
        }
        Ok(())
    };
    if !process.is_near() {
        for _ in 0..lists {
            whole_list(libc::SYS_recvmmsg)?;
            inbound.send(&[0; ACKNOWLEDGEMENT]).map_err(trouble)?;
        }
        return Ok(0.0);
    }
    let mut awaited = 0;
    let start = Instant::now();
    for _ in 0..lists {
        if awaited == LISTS {
            receive(&mut answer, |room| inbound.recv(room))?;
            awaited -= 1;
        }
        whole_list(libc::SYS_sendmmsg)?;
        awaited += 1;
    }
    while awaited > 0 {
        receive(&mut answer, |room| inbound.recv(room))?;
        awaited -= 1;
    }
    Ok(start.elapsed().as_nanos() as f64 / (lists * LIST) as f64)
}

/// Tells the other end this socket's port, and learns its port.
fn exchange(process: &mut Process, socket: &UdpSocket) -> Result<SocketAddr> {
    let port = socket.local_addr().map_err(trouble)?.port();
    process.talk.tell(&port)?;
    Ok((wire::addresses(process.side)[1], process.talk.hear()?).into())
}

/// One connection between the two, without delays.
fn connect(process: &mut Process) -> Result<TcpStream> {
    let stream = match process.side {
        Side::Near => {
            let port: u16 = process.talk.hear()?;
            TcpStream::connect((wire::addresses(Side::Near)[1], port))
        }
        Side::Far => {
            let listener = TcpListener::bind(here(process)).map_err(trouble)?;
            let port = listener.local_addr().map_err(trouble)?.port();
            process.talk.tell(&port)?;
            listener.accept().map(|(stream, _)| stream)
        }
    };
    let stream = stream.map_err(trouble)?;
    stream.set_nodelay(true).map_err(trouble)?;
    process.meet()?;
    Ok(stream)
}

/// Any port of this end's address.
fn here(process: &Process) -> (Ipv4Addr, u16) {
    (wire::addresses(process.side)[0], 0)
}

fn send(stream: &mut TcpStream, mut bytes: &[u8]) -> Result {
    while !bytes.is_empty() {
        let sent = spin("room in a connection", || some(stream.write(bytes)))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Polls until the buffer is full.
fn receive(room: &mut [u8], mut some_of_it: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Result {
    let mut filled = 0;
    while filled < room.len() {
        filled += spin("bytes", || some(some_of_it(&mut room[filled..])))?;
    }
    Ok(())
}

/// The result of a socket call, or `None` if it would block.
fn some(done: io::Result<usize>) -> Result<Option<usize>> {
    match done {
        Ok(0) => Err(Failure::new("the other end has closed its socket")),
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(trouble(error)),
    }
}
