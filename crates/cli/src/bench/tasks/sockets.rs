//! What the kernel's own protocols do between the same two processes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;

use super::time;
use crate::bench::end::spin;
use crate::bench::process::Process;
use crate::bench::setup::Side;
use crate::bench::wire;
use crate::failure::{Failure, Result};

/// A WRITE of 8 bytes is a UDP datagram of so many: BTH, RETH, the bytes and the ICRC.
const WRITE: usize = 12 + 16 + 8 + 4;
/// And its acknowledgement one of so many: BTH, AETH and the ICRC.
const ACKNOWLEDGEMENT: usize = 12 + 4 + 4;

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
    let start = std::time::Instant::now();
    for _ in 0..count {
        stream.write_all(&bytes).map_err(trouble)?;
    }
    stream.read_exact(&mut [0]).map_err(trouble)?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

pub(super) fn udp_and_back(process: &mut Process, count: usize) -> Result<f64> {
    let socket = UdpSocket::bind(here(process)).map_err(trouble)?;
    let port = socket.local_addr().map_err(trouble)?.port();
    process.talk.tell(&port)?;
    let there = SocketAddr::new(wire::addresses(process.side)[1].into(), process.talk.hear()?);
    socket.connect(there).map_err(trouble)?;
    // The kernel cuts what is sent into two datagrams, and hands out together what arrives together.
    set(&socket, libc::UDP_SEGMENT, WRITE as libc::c_int)?;
    set(&socket, libc::UDP_GRO, 1)?;
    socket.set_nonblocking(true).map_err(trouble)?;
    process.meet()?;
    let (sent, mut received) = ([0xA5; WRITE + ACKNOWLEDGEMENT], [0; WRITE + ACKNOWLEDGEMENT]);
    let is_near = process.is_near();
    let round_trip = time(count, |_| {
        if is_near {
            socket.send(&sent).map_err(trouble)?;
        }
        receive(&mut received, |room| socket.recv(room))?;
        if !is_near {
            socket.send(&sent).map_err(trouble)?;
        }
        Ok(())
    })?;
    Ok(round_trip / 2.0)
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

/// Asks again and again until the room is full.
fn receive(room: &mut [u8], mut some_of_it: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Result {
    let mut filled = 0;
    while filled < room.len() {
        filled += spin("bytes", || some(some_of_it(&mut room[filled..])))?;
    }
    Ok(())
}

/// What a socket has done, if it could.
fn some(done: io::Result<usize>) -> Result<Option<usize>> {
    match done {
        Ok(0) => Err(Failure::new("the other end has closed its socket")),
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(trouble(error)),
    }
}

/// Sets an option of UDP.
fn set(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) -> Result {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the socket is open, and the kernel reads the value, which has that length.
    let done = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, value, length)
    };
    if done == 0 { Ok(()) } else { Err(trouble(io::Error::last_os_error())) }
}

fn trouble(error: io::Error) -> Failure {
    Failure::new(format!("a socket: {error}"))
}
