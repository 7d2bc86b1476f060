//! A datagram socket. It has a queue pair for each of its local addresses, and a UDP socket. Peers learn of the queue
//! pairs by the UDP socket. Until they do, datagrams go by UDP. Datagrams longer than a message always go by UDP.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use transom_abi::{ibv_ah, sockaddr_storage};

use super::datagram_pair::{self, DatagramPair};
use super::datagram_protocol::{Introduction, Kind, write_source};
use super::destination::Destination;
use super::iovec::{Sink, Source};
use super::names;
use super::settings::{Options, Settings};
use super::wait::{self, of_call};
use crate::provider::Provider;
use crate::wrong::Wrong;

/// The most peers that are known at a time.
const PEERS: usize = 4096;
/// The most local addresses with a queue pair.
const PAIRS: usize = 64;
/// The most waiting datagrams. With this many, further UDP datagrams stay in the UDP socket, which drops them when it
/// is full.
const WAITING: usize = 1024;
/// The length of the longest UDP message, in bytes.
const LONGEST: usize = 1 << 16;

/// The UDP socket has no address.
const NO_ADDRESS: Wrong =
    Wrong::new(libc::EIO, "the kernel does not tell the address of the UDP socket");
/// The device is gone, and no datagram comes any more.
pub(crate) const DEVICE_GONE: Wrong = Wrong::new(libc::ENODEV, "the device of the socket is gone");

/// A datagram socket.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    provider: &'static Provider,
    udp: UdpSocket,
    /// Declared before the queue pairs, because the address handles belong to their protection domains.
    destinations: HashMap<SocketAddr, Destination>,
    pairs: Vec<DatagramPair>,
    arrived: VecDeque<Arrived>,
    connected: Option<SocketAddr>,
    /// Whether the UDP socket had no room for a datagram. Waiting threads are woken when it has.
    lacks_room: bool,
    /// The buffer for UDP messages.
    room: Vec<u8>,
    pub(crate) settings: Settings,
    pub(crate) options: Options,
}

/// A datagram that waits for the program.
#[derive(Debug)]
enum Arrived {
    /// In a slot of a queue pair.
    Held(usize, datagram_pair::Waiting),
    Copied(SocketAddr, Vec<u8>),
}

/// A datagram that was read: its whole length, the length that there was room for, and its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) whole: usize,
    pub(crate) length: usize,
    pub(crate) from: SocketAddr,
}

/// A call on the UDP socket has failed.
fn of_udp(call: &str, error: &std::io::Error) -> Wrong {
    Wrong::of_system(call, error.raw_os_error().unwrap_or(libc::EIO))
}

impl DatagramSocket {
    pub(crate) fn new(
        provider: &'static Provider,
        family: c_int,
        waiting: &wait::Waiting,
    ) -> Result<Self, Wrong> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes any arguments.
        let made = of_call("socket", unsafe { libc::socket(family, kind, 0) })?;
        // SAFETY: it was just made, and nobody else has it.
        let udp = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(made) });
        waiting.watch(udp.as_raw_fd())?;
        Ok(Self {
            provider,
            udp,
            destinations: HashMap::new(),
            pairs: Vec::new(),
            arrived: VecDeque::new(),
            connected: None,
            lacks_room: false,
            room: Vec::new(),
            settings: Settings::new(),
            options: Options::default(),
        })
    }

    /// The UDP socket. Options of this socket are set there.
    pub(crate) fn descriptor(&self) -> c_int {
        self.udp.as_raw_fd()
    }

    pub(crate) fn bind(
        &mut self,
        address: (sockaddr_storage, u16),
        waiting: &wait::Waiting,
    ) -> Result<(), Wrong> {
        self.bind_udp(address)?;
        // If no device has the address, everything goes by UDP.
        if let Ok(own) = self.udp.local_addr()
            && !own.ip().is_unspecified()
        {
            self.pair_of(own.ip(), waiting);
        }
        Ok(())
    }

    /// Connects to a peer: it sends to this one, and receives from no other. Without a peer, it receives from all.
    pub(crate) fn connect(&mut self, to: Option<SocketAddr>) -> Result<(), Wrong> {
        match to {
            Some(to) => self.udp.connect(to).map_err(|error| of_udp("connect", &error))?,
            None => self.disconnect()?,
        }
        self.connected = to;
        Ok(())
    }

    fn disconnect(&mut self) -> Result<(), Wrong> {
        let udp = self.udp.as_raw_fd();
        let before = self.address();
        // SAFETY: all zeros are an address of no family.
        let nobody: libc::sockaddr = unsafe { std::mem::zeroed() };
        // SAFETY: the address is as long as the call says.
        of_call("connect", unsafe { libc::connect(udp, &nobody, size_of_val(&nobody) as u32) })?;
        let Some((before, mut now)) = before.zip(self.address()) else { return Ok(()) };
        if now.port() != before.port() {
            // The kernel takes a port that it has chosen back. Peers know that port, so bind to it again.
            now.set_port(before.port());
            self.bind_udp(names::storage(now))?;
        }
        Ok(())
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.connected
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.udp.local_addr().ok()
    }

    /// Its address, with a port. The kernel gives a socket a port only when it first sends, but peers must get the port
    /// in the first datagram.
    fn bound(&self) -> Result<SocketAddr, Wrong> {
        let own = self.address().ok_or(NO_ADDRESS)?;
        if own.port() > 0 {
            return Ok(own);
        }
        self.bind_udp(names::storage(own))?;
        self.address().ok_or(NO_ADDRESS)
    }

    fn bind_udp(&self, (address, length): (sockaddr_storage, u16)) -> Result<(), Wrong> {
        let at = (&raw const address).cast();
        // SAFETY: the address has `length` bytes.
        of_call("bind", unsafe { libc::bind(self.udp.as_raw_fd(), at, length.into()) })?;
        Ok(())
    }

    /// The queue pair of a local address. It is made if there is none yet.
    fn pair_of(&mut self, ip: IpAddr, waiting: &wait::Waiting) -> Option<usize> {
        let ip = ip.to_canonical();
        if let Some(at) = self.pairs.iter().position(|pair| pair.address.ip() == ip) {
            return Some(at);
        }
        let own = self.bound().ok()?;
        let is_bound = !own.ip().is_unspecified() && own.ip().to_canonical() != ip;
        if is_bound || self.pairs.len() >= PAIRS {
            return None;
        }
        let address = SocketAddr::new(ip, own.port());
        let pair = DatagramPair::create(self.provider, address, &self.settings).ok()?;
        waiting.watch(pair.descriptor()).ok()?;
        self.pairs.push(pair);
        Some(self.pairs.len() - 1)
    }

    /// From now on, arriving datagrams wake waiting threads.
    pub(crate) fn arm(&mut self) -> Result<(), Wrong> {
        self.pairs.iter_mut().try_for_each(DatagramPair::arm)
    }

    /// Takes the events that have woken a thread, and wakes the others.
    pub(crate) fn woken(&mut self, waiting: &wait::Waiting) {
        let mut taken = self.look_for_room(waiting);
        for pair in &mut self.pairs {
            taken |= pair.take_events();
        }
        self.destinations.values_mut().for_each(Destination::advance);
        if taken {
            waiting.nudge();
        }
        self.progress(waiting);
    }

    /// Takes arrived datagrams, by queue pairs and by UDP.
    pub(crate) fn progress(&mut self, waiting: &wait::Waiting) {
        self.take_messages();
        self.take_udp(waiting);
    }

    fn take_messages(&mut self) {
        let Self { pairs, arrived, connected, destinations, .. } = self;
        for (at, pair) in pairs.iter_mut().enumerate() {
            let mut dropped = Vec::new();
            pair.progress(|datagram| {
                if let Some(destination) = destinations.get_mut(&datagram.from) {
                    destination.heard_again();
                }
                if connected.is_none_or(|peer| is_same(peer, datagram.from)) {
                    arrived.push_back(Arrived::Held(at, datagram));
                } else {
                    dropped.push(datagram);
                }
            });
            dropped.into_iter().for_each(|datagram| pair.finish(datagram));
        }
    }

    fn take_udp(&mut self, waiting: &wait::Waiting) {
        let mut bytes = std::mem::take(&mut self.room);
        bytes.resize(LONGEST, 0);
        let before = self.arrived.len();
        // Messages that are not of this protocol count too, so that they do not keep the caller longer.
        for _ in self.arrived.len()..WAITING {
            let Ok((length, from)) = self.udp.recv_from(&mut bytes) else { break };
            let Some((introduction, data)) = Introduction::read(&bytes[..length]) else { continue };
            let known = self.destinations.contains_key(&from);
            if introduction.kind == Kind::Data && !known && self.destinations.len() < PEERS {
                self.destinations.insert(from, Destination::default());
            }
            if let Some(destination) = self.destinations.get_mut(&from) {
                destination.heard(introduction.qpn);
            }
            if introduction.kind == Kind::Data {
                self.arrived.push_back(Arrived::Copied(from, data.to_vec()));
                if let Some(at) = self.pair_of(introduction.to, waiting) {
                    let answer = self.introduction(Kind::Answer, Some(at), from.ip());
                    // If the answer is lost, the peer's next datagram asks again.
                    let _ = self.udp.send_to(&answer, from);
                }
            }
        }
        self.room = bytes;
        if self.arrived.len() > before {
            // Other threads may wait for them, and the UDP socket does not wake those any more.
            waiting.nudge();
        }
    }

    fn introduction(&self, kind: Kind, pair: Option<usize>, to: IpAddr) -> Vec<u8> {
        let qpn = pair.map_or(0, |at| self.pairs[at].number());
        let mut bytes = Vec::new();
        Introduction { kind, qpn, to: to.to_canonical() }.write(&mut bytes);
        bytes
    }

    /// Whether a datagram waits.
    pub(crate) fn is_readable(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Whether the device is gone, so that nothing arrives at its queue pairs any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.pairs.iter().any(DatagramPair::is_gone)
    }

    /// Whether a datagram can be sent at once.
    pub(crate) fn is_writable(&self) -> bool {
        !self.lacks_room && self.pairs.iter().all(DatagramPair::can_send)
    }

    /// Reads the oldest datagram. With `peek` it stays.
    pub(crate) fn read(
        &mut self,
        to: &mut Sink<'_>,
        peek: bool,
        waiting: &wait::Waiting,
    ) -> Option<Read> {
        self.take_messages();
        if self.arrived.is_empty() {
            self.take_udp(waiting);
        }
        let read = match self.arrived.front()? {
            Arrived::Held(at, datagram) => {
                let length = self.pairs[*at].read(datagram, to);
                Read { whole: datagram.length, length, from: datagram.from }
            }
            Arrived::Copied(from, bytes) => {
                let length = bytes.len().min(to.left());
                // SAFETY: the sink has room, and the datagram has that many bytes.
                to.each(length, |offset, to, length| unsafe {
                    to.copy_from(bytes.as_ptr().add(offset), length);
                });
                Read { whole: bytes.len(), length, from: *from }
            }
        };
        if !peek && let Some(Arrived::Held(at, datagram)) = self.arrived.pop_front() {
            self.pairs[at].finish(datagram);
        }
        Some(read)
    }

    /// Sends a datagram. `None` if there is no room at the moment.
    pub(crate) fn send(
        &mut self,
        from: &mut Source<'_>,
        to: Option<SocketAddr>,
        waiting: &wait::Waiting,
    ) -> Result<Option<usize>, Wrong> {
        let to = to.or(self.connected).ok_or(Wrong::new(
            libc::EDESTADDRREQ,
            "no address is given, and the socket is not connected to any",
        ))?;
        if self.is_gone() {
            return Err(DEVICE_GONE);
        }
        let length = from.left();
        let (pair, reached) = self.reach(to, waiting)?;
        if let Some((at, (target, mtu))) = pair.zip(reached) {
            let mut header = Vec::with_capacity(24);
            write_source(self.pairs[at].address, &mut header);
            if self.pairs[at].takes(header.len() + length, mtu) {
                if !self.pairs[at].can_send() {
                    self.take_messages();
                }
                if !self.pairs[at].can_send() {
                    return Ok(None);
                }
                self.pairs[at].send(target, &header, from)?;
                return Ok(Some(length));
            }
        }
        if length > LONGEST {
            return Err(Wrong::new(libc::EMSGSIZE, "a datagram has at most 65507 bytes"));
        }
        let mut message = self.introduction(Kind::Data, pair, to.ip());
        // Work on a copy: if there is no room, the datagram is sent again.
        let mut data = from.clone();
        data.each(length, |_, from, length| {
            // SAFETY: the source has `length` bytes there.
            message.extend_from_slice(unsafe { std::slice::from_raw_parts(from, length) });
        });
        let sent = match self.connected {
            Some(peer) if peer == to => self.udp.send(&message),
            _ => self.udp.send_to(&message, to),
        };
        match sent {
            Ok(_) => {
                *from = data;
                Ok(Some(length))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.lacks_room = true;
                waiting.watch_room(self.udp.as_raw_fd(), true)?;
                Ok(None)
            }
            Err(error) => Err(of_udp("sendto", &error)),
        }
    }

    /// Whether the UDP socket has room again after it had none.
    fn look_for_room(&mut self, waiting: &wait::Waiting) -> bool {
        let udp = self.udp.as_raw_fd();
        let there_is =
            self.lacks_room && wait::is_writable(udp) && waiting.watch_room(udp, false).is_ok();
        self.lacks_room &= !there_is;
        there_is
    }

    /// The known part of the route to a peer: the queue pair here, and its destination.
    #[expect(clippy::type_complexity, reason = "both are used at once by the only caller")]
    fn reach(
        &mut self,
        to: SocketAddr,
        waiting: &wait::Waiting,
    ) -> Result<(Option<usize>, Option<((*mut ibv_ah, u32), usize)>), Wrong> {
        if let Some(known) = self.destinations.get(&to)
            && let (Some(Some(at)), Some(reached)) = (known.pair, known.reached())
        {
            return Ok((Some(at), Some(reached)));
        }
        // The answer to an earlier datagram may have arrived.
        self.take_udp(waiting);
        if self.destinations.len() >= PEERS && !self.destinations.contains_key(&to) {
            self.destinations.clear();
        }
        let looked_for = self.destinations.get(&to).and_then(|known| known.pair);
        let pair = match looked_for {
            Some(pair) => pair,
            None => self.source_of(to).and_then(|ip| self.pair_of(ip, waiting)),
        };
        let from = pair.map(|at| self.pairs[at].address);
        let destination = self.destinations.entry(to).or_default();
        destination.pair = Some(pair);
        if let Some(from) = from
            && let Some(descriptor) = destination.resolve(self.provider, from, to)
        {
            waiting.watch(descriptor)?;
        }
        Ok((pair, destination.reached()))
    }

    /// The local address that leads to a peer.
    fn source_of(&self, to: SocketAddr) -> Option<IpAddr> {
        let own = self.udp.local_addr().ok()?.ip();
        if !own.is_unspecified() {
            return Some(own);
        }
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let probe = UdpSocket::bind((any, 0)).ok()?;
        probe.connect(to).ok()?;
        Some(probe.local_addr().ok()?.ip())
    }
}

/// Whether two addresses are the same. An IPv4 address may be mapped into IPv6.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip().to_canonical() == other.ip().to_canonical() && one.port() == other.port()
}
