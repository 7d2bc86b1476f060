//! Two queue pairs, one that sends and one that receives, over a wire on which everything may happen
//! to packets.

use std::collections::VecDeque;

use transom_device::execution::{
    Context, Effects, LocalBuffers, MAX_BURST, Payload, Process, Request, Requester,
    RequesterLimits, Segmentation, Sent,
};
use transom_device::protection::{Key, Operation};
use transom_device::qp::{QpNumber, QpState, Service};
use transom_device::queue::{
    Address, Body, Datagram, Placement, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use transom_device::transport::burst::Burst;
use transom_wire::Psn;
use transom_wire::packet::Packet;

use super::{
    Answered, BASE, FIRST, HERE, MEMORY, MTU, PD, QKEY, REGION, ROUTE, Stage, THERE, Target,
    unasked,
};

/// A packet with a payload of its own.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    packet: Packet<'static>,
    payload: Vec<u8>,
}

impl Carried {
    fn packet(&self) -> Packet<'_> {
        Packet { payload: &self.payload, ..self.packet }
    }
}

impl Stage {
    fn send(&self, request: &Request, payload: Payload<'_>) -> Sent {
        let mut bytes = Vec::new();
        if let (Payload::Buffers(sges), true) = (payload, request.body.carries_data()) {
            let local = LocalBuffers {
                sges,
                keys: self.keys(),
                announcer: self.announcer(),
                waiter: self.waiter(),
                qp: HERE,
                pd: PD,
            };
            let gathered =
                local.each(Operation::LocalRead, request.offset, request.length, |_, at| {
                    bytes.extend(&self.memory.borrow()[self.range(at)]);
                    Ok(())
                });
            gathered.expect("the send queue has checked it");
        }
        let mut requests = self.requests.borrow_mut();
        requests.extend(Burst::new(request, MTU as u64).map(|part| Carried {
            packet: part.packet,
            payload: bytes.get(part.payload).unwrap_or_default().to_vec(),
        }));
        Sent::Queued
    }
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

/// The two queue pairs, and the wire between them.
struct Pair {
    /// Around the one that sends.
    origin: Stage,
    requester: Requester,
    effects: Effects,
    /// The one that receives.
    target: Target,
    service: Service,
    requests: VecDeque<Carried>,
    answers: VecDeque<Carried>,
    /// How many sends and receives have been posted, and how many completions have been seen.
    posted: [u64; 2],
    ended: [u64; 2],
    window: Key,
    /// The memory that no key grants, as it was.
    outside: Vec<u8>,
}

/// What a script of arbitrary bytes does to two queue pairs and the packets between them breaks
/// nothing: nothing is written outside of all rights, every work request completes once and in order, and none is
/// left waiting when the wire is whole again.
pub fn feed(script: &[u8]) {
    let mut script = Script(script);
    let service = match script.byte() % 8 {
        0 => Service::Uc,
        1 => Service::Ud,
        _ => Service::Rc,
    };
    let mut pair = Pair::new(service);
    while !script.0.is_empty() {
        pair.act(&mut script);
        pair.settle();
        if pair.target.stage.state() == QpState::Error || pair.origin.state() != QpState::Rts {
            pair.finish();
            pair = Pair::new(service);
        }
    }
    pair.finish();
}

impl Pair {
    fn new(service: Service) -> Self {
        let target = Target::new(service);
        let limits = RequesterLimits { size: 16, max_sge: 2, inline_room: 0, signal_all: true };
        let mut requester = Requester::new(service, &limits).expect("there is memory");
        requester.max_rd_atomic = 4;
        requester.window_limit = 1 << 16;
        (requester.retry.timeout, requester.retry.count, requester.retry.rnr_count) = (1, 3, 3);
        requester.peer = QpNumber::from_bits(THERE);
        let most = MAX_BURST * MTU as u64;
        requester.link = Segmentation { mtu: Some(MTU as u64), whole: most, part: most };
        requester.start(Psn::new(FIRST));
        let rights = transom_device::Access::REMOTE;
        let window = target.stage.window(REGION.start..REGION.start + 0x1000, rights);
        let outside = outside(&target.stage);
        Self {
            origin: Stage::new(service),
            effects: requester.effects().expect("there is memory"),
            requester,
            target,
            service,
            requests: VecDeque::new(),
            answers: VecDeque::new(),
            posted: [0; 2],
            ended: [0; 2],
            window,
            outside,
        }
    }

    /// The sending queue pair does something, and then what it can.
    fn drive<T>(&mut self, step: impl FnOnce(&mut Requester, &mut Context<'_, Stage>) -> T) -> T {
        let Self { origin, requester, effects, .. } = self;
        let mut cx = origin.context(effects);
        let result = step(requester, &mut cx);
        requester.check_timeout(&mut cx);
        while let Some(request) = requester.next_segment(&mut cx) {
            origin.settle(cx.effects);
            let outcome = origin.send(&request, requester.payload());
            if !requester.sent(&request, outcome, &mut cx) {
                break;
            }
        }
        origin.settle(cx.effects);
        result
    }

    /// The next thing that the script says.
    fn act(&mut self, script: &mut Script<'_>) {
        match script.byte() % 20 {
            0 | 16 | 17 => self.post_receive(script),
            1..=3 => self.post_send(script),
            4..=6 | 18 => self.deliver_requests(usize::from(script.byte() % 16)),
            7 | 8 | 19 => self.deliver_answers(usize::from(script.byte() % 16)),
            9 => self.mangle(script, true),
            10 => self.mangle(script, false),
            11 => self.deliver_bytes(script),
            12 => self.pass(1 << (script.byte() % 40)),
            13 => self.target.make_room(usize::from(script.byte() % 16)),
            14 => {
                let _ = self.target.stage.invalidate(self.window);
            }
            _ => self.target.make_room(usize::MAX),
        }
    }

    fn post_receive(&mut self, script: &mut Script<'_>) {
        let length = (script.number() as u32 % 0x4000).min(2048);
        if self.posted[1] - self.ended[1] < 16 {
            self.target.post(self.posted[1], REGION.start + 0x8000, length);
            self.posted[1] += 1;
        }
    }

    fn post_send(&mut self, script: &mut Script<'_>) {
        let address = REGION.start + script.number() % 0x2000;
        let key = match script.byte() % 8 {
            0 if script.byte() < 64 => Key(u32::from(script.byte())),
            1..=3 => self.window,
            _ => self.target.stage.region,
        };
        let mut length = script.number() % (6 * MTU as u64);
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
            Service::Ud => Remote::Datagram(Datagram { pd: PD, address, qp: HERE, qkey: QKEY }),
            _ => Remote::Connected,
        };
        let lkey = self.origin.region.0;
        let sges = [Sge { address: REGION.start + 0xa000, length: length as u32, key: lkey }];
        let (wr_id, op) = (self.posted[0], SendOp::Message(body));
        let flags = SendFlags::from_bits_truncate(u32::from(script.byte()) & 5);
        let request = SendRequest { wr_id, op, flags, sges: &sges, inline: None, remote };
        if self.drive(|requester, cx| requester.post(&request, cx)).is_ok() {
            self.posted[0] += 1;
        }
    }

    fn deliver_requests(&mut self, count: usize) {
        let burst: Vec<_> = self.requests.drain(..count.min(self.requests.len())).collect();
        let packets: Vec<_> = burst.iter().map(Carried::packet).collect();
        self.target.receive(&packets);
    }

    fn deliver_answers(&mut self, count: usize) {
        let burst: Vec<_> = self.answers.drain(..count.min(self.answers.len())).collect();
        let packets: Vec<_> = burst.iter().map(Carried::packet).collect();
        self.drive(|requester, cx| requester.on_packets(&packets, cx));
    }

    /// Something happens to a packet on the wire.
    fn mangle(&mut self, script: &mut Script<'_>, requests: bool) {
        let wire = if requests { &mut self.requests } else { &mut self.answers };
        let Some(mut carried) = wire.pop_front() else { return };
        match script.byte() % 8 {
            0 | 1 => return,
            2 => wire.push_back(carried.clone()),
            3 => return wire.push_back(carried),
            4 => {
                let skew = script.byte();
                carried.packet.psn = carried.packet.psn.plus(i32::from(skew as i8) as u32);
            }
            5 => carried.payload.truncate(usize::from(script.byte())),
            6 => carried.packet.ack_request = false,
            _ => {
                let bytes = script.take(64);
                if let Ok(other) = Packet::parse(bytes) {
                    carried.packet.operation = other.operation;
                }
            }
        }
        wire.push_front(carried);
    }

    /// Bytes come, of which some are packets.
    fn deliver_bytes(&mut self, script: &mut Script<'_>) {
        let length = usize::from(script.byte());
        let Ok(packet) = Packet::parse(script.take(length)) else { return };
        self.target.receive(&[packet]);
        self.drive(|requester, cx| requester.on_packets(&[packet], cx));
    }

    fn pass(&mut self, nanoseconds: u64) {
        let time = &self.origin.time;
        time.set(time.get().saturating_add(nanoseconds));
        self.drive(|_, _| ());
    }

    /// Takes what has been sent and completed, and checks it.
    fn settle(&mut self) {
        // The other halves of both hold no work.
        let (origin, stage) = (&self.origin, &self.target.stage);
        self.requests.extend(origin.requests.take());
        let answers = stage.sent();
        assert!(self.service == Service::Rc || answers.is_empty(), "{answers:?}");
        self.answers.extend(answers.into_iter().map(answer));
        stage.forget();
        let done = [origin.done.take(), stage.completed()];
        for (ended, done) in self.ended.iter_mut().zip(done) {
            for done in done {
                assert_eq!(done.wr_id, *ended, "completions are in order, one for each");
                *ended += 1;
            }
        }
        for stage in [origin, stage] {
            assert!(self.outside == outside(stage), "written outside of all rights");
        }
    }

    /// The wire is whole again: everything that was posted comes to an end.
    fn finish(&mut self) {
        self.target.make_room(usize::MAX);
        for _ in 0..10_000 {
            self.settle();
            let idle = self.requests.is_empty() && self.answers.is_empty();
            if idle && self.posted[0] == self.ended[0] {
                break;
            }
            if idle {
                let deadline = self.requester.deadline().expect("what is not done has a time");
                let now = self.origin.time.get();
                self.pass(deadline.saturating_sub(now));
            }
            self.deliver_requests(64);
            self.settle();
            self.deliver_answers(64);
        }
        assert_eq!(self.posted[0], self.ended[0], "work is left waiting");
        assert!(self.target.packets.is_idle());
        if self.target.stage.state() == QpState::Error {
            assert_eq!(self.posted[1], self.ended[1], "receives are left in a queue pair in error");
        }
    }
}

fn answer(answered: Answered) -> Carried {
    let Answered { operation, psn, payload } = answered;
    let packet = Packet { psn, ..unasked(0, operation, &[]) };
    Carried { packet, payload }
}

/// The memory that no key grants.
fn outside(stage: &Stage) -> Vec<u8> {
    let mut bytes = stage.bytes(BASE, (REGION.start - BASE) as usize);
    let end = BASE + MEMORY as u64;
    bytes.extend(stage.bytes(REGION.end, (end - REGION.end) as usize));
    bytes
}
