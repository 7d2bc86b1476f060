//! A script of arbitrary bytes: what is posted to two queue pairs, of which one sends, and what happens
//! to the packets between them. A fuzzer writes it.

use transom_device::Access;
use transom_device::execution::{QueueSide, Receives, RequesterLimits};
use transom_device::protection::Key;
use transom_device::qp::{QpNumber, QpState, Service};
use transom_device::queue::{
    Address, Body, Datagram, Placement, Remote, SendFlags, SendOp, SendRequest, Sge, Status,
};
use transom_wire::packet::{Packet, Transport};

use crate::endpoint::Attributes;
use crate::host::{Host, ROUTE};
use crate::packet::{OwnedPacket, encode};
use crate::pair::Pair;

/// Bytes of each host's memory.
const MEMORY: usize = 1 << 16;
/// The path MTU.
const MTU: u64 = 256;
/// Work requests and receives of each queue.
const SIZE: usize = 16;
const NUMBERS: [u32; 2] = [0x2_0007, 0x1_0003];
const PD: u32 = 7;
const QKEY: u32 = 0x1111_1111;
/// The host that sends, and the one that receives.
const ORIGIN: usize = 0;
const TARGET: usize = 1;

/// What a script of arbitrary bytes does to two queue pairs and the packets between them breaks
/// nothing: nothing is written outside of all rights, every work request completes once and in order,
/// behind the first that fails nothing but flushed ones, and none is left waiting when the network is
/// whole again. Packets of another service do nothing.
pub fn feed(script: &[u8]) {
    let mut script = Script(script);
    let service = match script.byte() % 8 {
        0 => Service::Uc,
        1 => Service::Ud,
        _ => Service::Rc,
    };
    let mut run = Run::new(service);
    while !script.0.is_empty() {
        run.act(&mut script);
        run.check();
        if run.pair.hosts.iter().any(|host| host.env.state() != QpState::Rts) {
            run.finish();
            run = Run::new(service);
        }
    }
    run.finish();
}

/// Bytes that say what happens.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(count.min(self.0.len()));
        self.0 = later;
        now
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    fn number(&mut self) -> u64 {
        u64::from(self.byte()) << 8 | u64::from(self.byte())
    }
}

/// Two queue pairs, from their connection to the fall of one.
struct Run {
    pair: Pair,
    service: Service,
    /// How many sends and receives have been posted, and how many completions have been seen.
    posted: [u64; 2],
    ended: [u64; 2],
    /// What was the first in each queue not to end with success.
    failed: [Option<Status>; 2],
    /// What comes to the end that sends may be a request, which may break it.
    forged: bool,
    /// A window at the target.
    window: Key,
    /// The memory of both that no key grants, as it was.
    outside: [[Vec<u8>; 2]; 2],
}

fn attributes(service: Service, host: usize) -> Attributes {
    // Close to where numbers wrap.
    const FIRST: u32 = 0xff_fffc;
    let [qp_num, dest_qp_num] = [NUMBERS[host], NUMBERS[1 - host]].map(QpNumber::from_bits);
    Attributes {
        service,
        qp_num,
        dest_qp_num,
        path_mtu: MTU,
        sq_psn: FIRST,
        rq_psn: FIRST,
        timeout: 1,
        retry_cnt: 3,
        rnr_retry: 3,
        min_rnr_timer: 12,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        qp_access_flags: Access::REMOTE | Access::FLUSH_GLOBAL,
        pd: PD,
        qkey: QKEY,
        send: RequesterLimits { size: SIZE, max_sge: 2, inline_room: 0, signal_all: true },
        receives: Receives::Own { size: SIZE, max_sge: 2 },
        max_recv_sge: 2,
        burst: 64,
        window: 1 << 16,
    }
}

impl Run {
    fn new(service: Service) -> Self {
        let attributes = [ORIGIN, TARGET].map(|host| attributes(service, host));
        let pair = Pair::new(&attributes, MEMORY);
        let target = &pair.hosts[TARGET].env;
        let start = target.range().start;
        let window = target.window(start..start + 0x1000, Access::REMOTE);
        let outside = [ORIGIN, TARGET].map(|host| pair.hosts[host].env.outside());
        Self {
            pair,
            service,
            posted: [0; 2],
            ended: [0; 2],
            failed: [None; 2],
            forged: false,
            window,
            outside,
        }
    }

    /// The next thing that the script says.
    fn act(&mut self, script: &mut Script<'_>) {
        match script.byte() % 21 {
            0 | 16 | 17 => self.post_receive(script),
            1..=3 => self.post_send(script),
            4..=6 | 18 => self.pair.deliver(TARGET, usize::from(script.byte() % 16)),
            7 | 8 | 19 => self.pair.deliver(ORIGIN, usize::from(script.byte() % 16)),
            9 => self.mangle(script, TARGET),
            10 => self.mangle(script, ORIGIN),
            11 => self.deliver_bytes(script),
            20 => self.deliver_as_another(script),
            12 => self.pair.pass(1 << (script.byte() % 40)),
            13 => self.pair.hosts[TARGET].make_room(usize::from(script.byte() % 16)),
            14 => {
                let _ = self.pair.hosts[TARGET].env.invalidate(self.window);
            }
            _ => self.pair.hosts[TARGET].make_room(usize::MAX),
        }
    }

    fn post_receive(&mut self, script: &mut Script<'_>) {
        let length = (script.number() as u32 % 0x4000).min(2048);
        if self.posted[1] - self.ended[1] < SIZE as u64 {
            let target = &mut self.pair.hosts[TARGET];
            let address = target.env.range().start + 0x8000;
            target.post_receive(self.posted[1], address, length);
            self.posted[1] += 1;
        }
    }

    fn post_send(&mut self, script: &mut Script<'_>) {
        let target = &self.pair.hosts[TARGET].env;
        let (range, number) = (target.range(), script.number());
        // Some reach behind the region.
        let address = match number >> 13 {
            7 => range.end - number % 0x800,
            _ => range.start + number % 0x2000,
        };
        let key = match script.byte() % 8 {
            0 if script.byte() < 64 => Key(u32::from(script.byte())),
            1..=3 => self.window,
            _ => target.region,
        };
        let mut length = script.number() % (6 * MTU);
        let number = script.number();
        let body = match script.byte() % 16 {
            0 => Body::SendImmediate(number as u32),
            1 => Body::SendInvalidate(key),
            2 | 3 => Body::Write { address, key, immediate: None },
            4 => Body::Write { address, key, immediate: Some(number as u32) },
            5..=7 => Body::Read { address, key },
            8 => Body::FetchAdd { address: address & !7, key, add: number },
            9 => Body::CompareSwap { address: address & !7, key, swap: number, compare: 0 },
            10 => Body::AtomicWrite { address: address & !7, key },
            11 => {
                length = 0;
                let placement = Placement::GLOBAL;
                Body::Flush { address, key, length: 8, placement, whole: number.is_multiple_of(2) }
            }
            _ => Body::Send,
        };
        if body.uses_read_resources() && !matches!(body, Body::Read { .. } | Body::Flush { .. }) {
            length = 8;
        }
        let address = Address {
            gid: ROUTE.destination,
            source: ROUTE.source,
            traffic_class: 0,
            hop_limit: 1,
            flow_label: 0,
        };
        let remote = match self.service {
            Service::Ud => {
                Remote::Datagram(Datagram { pd: PD, address, qp: NUMBERS[TARGET], qkey: QKEY })
            }
            _ => Remote::Connected,
        };
        let origin = &mut self.pair.hosts[ORIGIN];
        let (address, lkey) = (origin.env.range().start + 0xa000, origin.env.region.0);
        let sges = [Sge { address, length: length as u32, key: lkey }];
        let (wr_id, op) = (self.posted[0], SendOp::Message(body));
        let flags = SendFlags::from_bits_truncate(u32::from(script.byte()) & 5);
        let request = SendRequest { wr_id, op, flags, sges: &sges, inline: None, remote };
        if origin.qp.post_send(&origin.env, &request).is_ok() {
            self.posted[0] += 1;
        }
        origin.advance();
    }

    /// Something happens to the next packet on its way to a host.
    fn mangle(&mut self, script: &mut Script<'_>, to: usize) {
        let Pair { hosts, network } = &mut self.pair;
        let Some(place) = network.next(to) else { return };
        let now = hosts[1 - to].env.time.get();
        let change: &mut dyn FnMut(&mut OwnedPacket) = match script.byte() % 8 {
            0 | 1 => return network.lose(to, place),
            2 => return network.duplicate(to, place, now),
            3 => return network.delay(to, place, now),
            4 => &mut |packet| {
                let skew = script.byte();
                packet.psn = packet.psn.plus(i32::from(skew as i8) as u32);
            },
            5 => &mut |packet| packet.payload.truncate(usize::from(script.byte())),
            6 => &mut |packet| packet.ack_request = false,
            _ => {
                self.forged |= to == ORIGIN;
                &mut |packet| {
                    if let Ok(other) = Packet::parse(script.take(64)) {
                        packet.operation = other.operation;
                    }
                }
            }
        };
        // Damage that the ICRC does not show: somebody has forged it.
        network.damage(to, place, |bytes| {
            let Ok(packet) = Packet::parse(bytes) else { return };
            let mut packet = OwnedPacket::from(&packet);
            change(&mut packet);
            *bytes = encode(&packet.packet());
        });
    }

    /// Bytes come, of which some are packets, to all halves there are.
    fn deliver_bytes(&mut self, script: &mut Script<'_>) {
        let length = usize::from(script.byte());
        let Ok(packet) = Packet::parse(script.take(length)) else { return };
        self.deliver_to_both(&packet);
    }

    /// The next packet that the target gets comes now too, as one of another service.
    fn deliver_as_another(&mut self, script: &mut Script<'_>) {
        let network = &self.pair.network;
        let next = network.next(TARGET).and_then(|place| network.packet(TARGET, place));
        let Some(bytes) = next.map(|packet| packet.bytes.clone()) else { return };
        let Ok(packet) = Packet::parse(&bytes) else { return };
        let transport = match script.byte() % 4 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            2 => Transport::Ud { qkey: QKEY, source: NUMBERS[ORIGIN] },
            _ => Transport::Xrc { srq: 0 },
        };
        if !self.service.serves(&transport) {
            self.deliver_to_both(&Packet { transport, ..packet });
        }
    }

    fn deliver_to_both(&mut self, packet: &Packet<'_>) {
        let all =
            |pair: &Pair| pair.hosts.each_ref().map(|host| (host.env.state(), host.env.memory()));
        let foreign = !self.service.serves(&packet.transport);
        let before = foreign.then(|| all(&self.pair));
        self.pair.hosts[TARGET].take_requests(&[*packet]);
        self.pair.hosts[ORIGIN].take_answers(&[*packet]);
        if let Some(before) = before {
            let silent = |host: &Host| host.env.ended().is_empty() && host.env.sent().is_empty();
            let untouched = self.pair.hosts.iter().all(silent) && all(&self.pair) == before;
            assert!(untouched, "{packet:?} is of another service and does something");
        }
    }

    /// Checks what has been sent and completed, and puts it on its way.
    fn check(&mut self) {
        self.pair.transmit();
        let reliable = self.service == Service::Rc;
        assert!(reliable || self.pair.network.next(ORIGIN).is_none(), "who answers?");
        for (index, host) in self.pair.hosts.iter().enumerate() {
            for (side, done, _) in host.env.ended() {
                let queue = match (index, side) {
                    (ORIGIN, QueueSide::Send) => 0,
                    (TARGET, QueueSide::Receive) => 1,
                    _ => panic!("nothing was posted for {done:?}"),
                };
                let ended = &mut self.ended[queue];
                assert_eq!(done.wr_id, *ended, "completions are in order, one for each");
                *ended += 1;
                let failed = &mut self.failed[queue];
                match (done.status, *failed) {
                    (Status::Flushed, None) if queue == 0 => {
                        assert!(self.forged, "{done:?} is flushed by nothing");
                    }
                    (Status::Flushed, _) | (_, None) => {}
                    (status, Some(first)) => panic!("{status:?} behind {first:?}"),
                }
                if done.status != Status::Success {
                    failed.get_or_insert(done.status);
                }
            }
            host.env.forget();
            assert!(self.outside[index] == host.env.outside(), "written outside of all rights");
        }
    }

    /// The network is whole again: everything that was posted comes to an end.
    fn finish(&mut self) {
        self.pair.hosts[TARGET].make_room(usize::MAX);
        for _ in 0..10_000 {
            self.check();
            let idle = self.pair.is_idle();
            if idle && self.posted[0] == self.ended[0] {
                break;
            }
            if idle {
                let origin = &self.pair.hosts[ORIGIN];
                let deadline = origin.qp.requester.deadline();
                let now = origin.env.time.get();
                let deadline = deadline.expect("what is not done has a time");
                self.pair.pass(deadline.saturating_sub(now));
            }
            self.pair.deliver(TARGET, 64);
            self.check();
            self.pair.deliver(ORIGIN, 64);
        }
        assert_eq!(self.posted[0], self.ended[0], "work is left waiting");
        let target = &self.pair.hosts[TARGET];
        assert!(target.qp.packets.is_idle());
        if target.env.state() == QpState::Error {
            assert_eq!(self.posted[1], self.ended[1], "receives are left in a queue pair in error");
        }
    }
}
