//! Packets that no device has sent, on the port that all devices share: two connected ends, and a forger that sends
//! them datagrams.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_host::Options;
use transom_system::registry::{Counters, Dropped, Registry};
use transom_wire::Psn;
use transom_wire::icrc::{Path, Verdict};
use transom_wire::packet::{Operation, PORT, Packet, Reth, Transport};

use crate::harness::*;

/// The address of both ends, which is also the peer of each.
pub const PEER: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// An address that neither end is connected to.
pub const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The number of bytes in forged and in honest packets.
pub const LENGTH: usize = 64;
/// The byte that forged packets contain.
pub const FORGED: u8 = 0xEE;
/// The byte that fills the memory under attack.
pub const UNTOUCHED: u8 = 0xA5;
/// How many datagrams are sent before a look at their effect: as many as any socket holds.
const BURST: usize = 64;
/// If a burst has not arrived by then, it is sent again.
const AGAIN: Duration = Duration::from_millis(250);

/// If an honest datagram has not arrived by then, it is lost.
const LOST: Duration = Duration::from_secs(5);

/// A sender that uses an address of this host.
pub struct Forger {
    socket: UdpSocket,
    path: Path,
    to: Ipv4Addr,
}

impl Forger {
    /// A forger that sends from this address.
    pub fn at(address: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((address, 0)).expect("an address of this host");
        // Without fragments, and with no peer, each datagram has identification 0.
        set(&socket, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO);
        Self { path: path(&socket, PEER), socket, to: PEER }
    }

    /// Makes it send to a group instead, on the network of its address.
    pub fn to_group(self, group: Ipv4Addr) -> Self {
        Self { path: path(&self.socket, group), to: group, ..self }
    }

    /// Sets the TOS byte of its packets.
    pub fn marked(self, tos: u8) -> Self {
        set(&self.socket, libc::IP_TOS, tos.into());
        self
    }

    /// The datagram of a packet, with its ICRC.
    pub fn seal(&self, packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = vec![0; packet.length()];
        let end = packet.write(&mut bytes);
        self.seal_bytes(&bytes[..end])
    }

    /// The datagram of bytes that begin like a packet, with their ICRC.
    pub fn seal_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        [bytes, &self.path.icrc(0, bytes)].concat()
    }

    /// Whether the ICRC of a datagram is wrong for every possible header.
    pub fn is_wrong(&self, datagram: &[u8]) -> bool {
        self.path.check(0, datagram) == Verdict::Wrong
    }

    /// Sends a datagram. If there is no room for it, it is lost.
    pub fn send(&self, datagram: &[u8]) {
        let _ = self.socket.send_to(datagram, SocketAddr::from((self.to, PORT)));
    }

    /// Sends datagrams until as many have been counted. Some are lost if they pass through a process that
    /// ends just then.
    pub fn send_until_counted(&self, datagrams: &[Vec<u8>], count: impl Fn() -> u64) {
        let enough = count() + datagrams.len() as u64;
        let mut since: Option<Instant> = None;
        until("forged packets are counted", || {
            if since.is_none_or(|since| since.elapsed() > AGAIN) {
                datagrams.iter().for_each(|datagram| self.send(datagram));
                since = Some(Instant::now());
            }
            (count() >= enough).then_some(())
        });
    }
}

/// The path from a socket to an address.
fn path(socket: &UdpSocket, to: Ipv4Addr) -> Path {
    let from = socket.local_addr().expect("it is bound");
    Path::new(from.ip(), from.port(), to.into()).expect("one family")
}

fn set(socket: &UdpSocket, option: i32, value: i32) {
    let (fd, length) = (socket.as_raw_fd(), size_of::<i32>() as u32);
    let value = (&raw const value).cast();
    // SAFETY: the kernel reads four bytes, which live until the call returns.
    let done = unsafe { libc::setsockopt(fd, libc::IPPROTO_IP, option, value, length) };
    assert_eq!(done, 0, "setsockopt: {}", std::io::Error::last_os_error());
}

/// The packet counters of the device that has a queue pair.
pub fn counters(qp: *mut ibv_qp) -> &'static Counters {
    // SAFETY: the queue pair is live.
    let slot = unsafe { (*qp).qp_num } >> 16;
    Registry::open().expect("devices are open").counters(slot as u8)
}

/// Two ends that send each other packets, with memory of `b` that `a` may reach.
pub struct WirePair {
    /// The ends.
    pub pair: Pair,
    /// Memory of `b`, with all rights, and its region.
    pub to: (Buffer, *mut ibv_mr),
    /// Memory of `a`, and its region.
    pub from: (Buffer, *mut ibv_mr),
    /// The number of honest WRITEs, each of one packet.
    writes: Cell<u32>,
}

impl WirePair {
    /// Two connected ends, with traffic between them.
    pub fn new(kind: ibv_qp_type, options: Options) -> Self {
        let (a, b) = ends(Link::Wire, options);
        let (qa, qb) = (a.qp(kind), b.qp(kind));
        for (qp, peer) in [(qa, qb), (qb, qa)] {
            bring_up(qp, &ibv_qp_attr { retry_cnt: 7, timeout: 16, ..usual_attr(peer) });
        }
        let memory = |end: &End, byte| {
            let buffer = Buffer::new(4096);
            buffer.fill(byte);
            let region = end.reg(&buffer, ALL);
            (buffer, region)
        };
        let (from, to) = (memory(&a, 0), memory(&b, UNTOUCHED));
        let writes = Cell::new(0);
        let both = Self { pair: Pair { a, b, qa, qb }, to, from, writes };
        both.write(1);
        both
    }

    /// Carries out an honest WRITE, and then restores the memory.
    pub fn write(&self, seed: u8) {
        let Self { pair, to, from, writes } = self;
        let data: Vec<u8> = (0..LENGTH).map(|at| pattern(at, seed)).collect();
        from.0.write(0, &data);
        let mut sges = [sge(from.0.addr(), LENGTH as u32, from.1)];
        let mut since: Option<Instant> = None;
        until("the data", || {
            // Without acknowledgements it may arrive later, or be lost if a process ends.
            if since.is_none_or(|since| since.elapsed() > LOST) {
                let (address, key) = (to.0.addr(), keys(to.1).1);
                post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, address, key));
                let status = pair.a.wait().status;
                let came = [pair.qa, pair.qb].map(counters);
                assert_eq!(status, IBV_WC_SUCCESS, "{came:#?}");
                since = Some(Instant::now());
            }
            (to.0.read(0, LENGTH) == data).then_some(())
        });
        to.0.fill_part(0, LENGTH, UNTOUCHED);
        writes.set(writes.get() + 1);
        // SAFETY: the queue pair is live.
        if unsafe { (*pair.qb).qp_type } == IBV_QPT_RC {
            // Its acknowledgement may arrive before it is counted as sent.
            let of = counters(pair.qb);
            let all = |count: &AtomicU64| count.load(Relaxed) >= writes.get().into();
            until("both are counted", || (all(&of.sent) && all(&of.received)).then_some(()));
        }
    }

    /// The number that `b` expects.
    pub fn psn(&self) -> Psn {
        Psn::new(usual_attr(self.pair.qb).rq_psn + self.writes.get())
    }

    /// A forgery of the next packet that `a` would send, with the right number and key.
    pub fn packet(&self, transport: Transport) -> Packet<'static> {
        let (address, key) = (self.to.0.addr(), keys(self.to.1).1);
        let reth = Reth { address, key, length: LENGTH as u32 };
        let operation = Operation::WriteOnly { reth, immediate: None };
        // SAFETY: the queue pair is live.
        let to = unsafe { (*self.pair.qb).qp_num };
        Packet {
            solicited: true,
            ack_request: true,
            payload: &[FORGED; LENGTH],
            ..Packet::new(transport, operation, to, self.psn())
        }
    }

    /// Sends datagrams to `b`, which drops them for this reason and does nothing else.
    pub fn is_dropped(&self, forger: &Forger, datagrams: &[Vec<u8>], why: Dropped) {
        let counters = counters(self.pair.qb);
        let before = self.unasked();
        for burst in datagrams.chunks(BURST) {
            forger.send_until_counted(burst, || counters.dropped(why));
            self.pair.b.expect_nothing();
        }
        self.is_unchanged();
        self.expect_silence(before);
    }

    /// The number of packets that `b` has sent and that answer no request it has taken, as far as they are counted. `b`
    /// answers an honest request twice if it comes twice.
    pub fn unasked(&self) -> i64 {
        let counters = counters(self.pair.qb);
        let requests = counters.received.load(Relaxed) as i64
            - counters.notifications_received.load(Relaxed) as i64;
        counters.sent.load(Relaxed) as i64 - requests
    }

    /// The number of such packets is at most `before`.
    pub fn expect_silence(&self, before: i64) {
        until("no answer to a forged packet", || (self.unasked() <= before).then_some(()));
    }

    /// The forgeries have written, completed and reported nothing, and both ends still work.
    pub fn is_unchanged(&self) {
        let Self { pair, to, .. } = self;
        assert!(to.0.is_all(UNTOUCHED), "a forged packet was written");
        for (end, qp) in [(&pair.a, pair.qa), (&pair.b, pair.qb)] {
            end.expect_nothing();
            assert_eq!(state(qp), IBV_QPS_RTS);
            assert!(!end.has_event());
        }
    }
}
