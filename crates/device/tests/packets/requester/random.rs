//! Any packets in any order, and an honest target over a bad network.

use std::collections::VecDeque;

use proptest::prelude::*;
use transom_device::qp::{QpState, Service};
use transom_device::queue::{SendFlags, SendOp, Status};
use transom_simulation::faults::{FaultInjector, Faults};
use transom_simulation::host::Host;
use transom_simulation::network::Network;
use transom_simulation::packet::encode;
use transom_simulation::random::Random;
use transom_wire::Psn;
use transom_wire::packet::{Operation, Packet, Transport};

use crate::origin::*;

/// A work request of a kind, and how long it is.
fn work() -> impl Strategy<Value = (SendOp, u64, SendFlags)> {
    let flags = prop_oneof![9 => Just(SendFlags::empty()), 1 => Just(SendFlags::FENCE)];
    let packets = prop_oneof![4 => 0..4 * MTU, 1 => 0..80 * MTU, 1 => Just(300 * MTU + 5)];
    let op = prop_oneof![3 => Just(SEND), 3 => Just(WRITE), 3 => Just(READ), 1 => Just(ADD)];
    (op, packets, flags).prop_map(|(op, length, flags)| {
        let length = if op == ADD { 8 } else { length };
        (op, length, flags)
    })
}

/// How many numbers a work request takes.
fn numbers(length: u64) -> u32 {
    (length.div_ceil(MTU) as u32).max(1)
}

/// What happens next to the origin.
#[derive(Clone, Debug)]
enum Step {
    Post(SendOp, u64, SendFlags),
    /// A packet comes: how far its number is behind the first, its kind, a byte of its AETH, and how
    /// long it is.
    Packet(i32, u8, u8, usize),
    /// The answer to a READ comes, or a part of it: the number it begins with, packets, and those of
    /// it that are lost.
    Answer(u32, usize, u64),
    Pass(u64),
    Busy(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let byte = prop_oneof![8 => Just(0x1f), 2 => Just(0x60), 2 => Just(0x21), 1 => any::<u8>()];
    let length = prop_oneof![4 => Just(MTU as usize), 2 => Just(0), 1 => 0..=MTU as usize];
    let near = prop_oneof![9 => -4..200, 1 => any::<i32>()];
    prop_oneof![
        3 => work().prop_map(|(op, length, flags)| Step::Post(op, length, flags)),
        6 => (near, 0..8_u8, byte, length).prop_map(|(n, k, b, l)| Step::Packet(n, k, b, l)),
        3 => (0..200_u32, 1..80_usize, any::<u64>()).prop_map(|(f, c, l)| Step::Answer(f, c, l)),
        1 => (0..3 * TIMEOUT).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Busy),
    ]
}

const DATA: [u8; MTU as usize] = [7; MTU as usize];

fn packet(first: u32, step: &Step) -> Option<Packet<'static>> {
    let Step::Packet(behind, kind, byte, length) = step else { return None };
    let aeth = aeth(*byte);
    let operation = match kind {
        0 => Operation::ReadResponseFirst(aeth),
        1 => Operation::ReadResponseMiddle,
        2 => Operation::ReadResponseLast(aeth),
        3 => Operation::ReadResponseOnly(aeth),
        4 => Operation::AtomicAcknowledge { aeth, old: 5 },
        5 => Operation::Congestion,
        _ => Operation::Acknowledge(aeth),
    };
    let psn = first.wrapping_add(*behind as u32);
    let payload = if *kind < 4 { &DATA[..*length] } else { &[] };
    Some(Packet { payload, ..answer(psn, operation) })
}

/// A work request.
#[derive(Clone, Copy)]
struct Posted {
    op: SendOp,
    /// Its first number, and how many.
    number: u32,
    count: u32,
    /// Bytes.
    length: u64,
}

impl Posted {
    fn returns_data(&self) -> bool {
        self.op == READ || self.op == ADD
    }

    /// The number behind it.
    fn end(&self) -> u32 {
        self.number + self.count
    }
}

/// What the origin was given to do, and what of it came back.
#[derive(Default)]
struct Ledger {
    posted: Vec<Posted>,
    done: usize,
    failed: bool,
    /// How much data has come in order: all of that of so many work requests, and of the next one so many
    /// packets.
    came: (usize, u32),
}

impl Ledger {
    fn post(&mut self, origin: &mut Host, first: u32, work: (SendOp, u64, SendFlags)) {
        if self.posted.len() - self.done == 64 {
            return;
        }
        let (op, length, flags) = work;
        let number = self.posted.last().map_or(first, Posted::end);
        origin.post_send_with(self.posted.len() as u64, op, length, flags);
        self.posted.push(Posted { op, number, count: numbers(length), length });
    }

    /// Takes what has completed, and says how much: in order, each once, and with success only what
    /// `is_answered` to its last number.
    fn settle(&mut self, origin: &Host, is_answered: impl Fn(&Posted) -> bool) -> usize {
        let before = self.done;
        for (wr_id, status) in origin.env.statuses() {
            assert_eq!(wr_id, self.done as u64, "out of order");
            let posted = self.posted[self.done];
            match status {
                Status::Success => {
                    assert!(!self.failed, "success behind a failure");
                    let Posted { op, number, .. } = posted;
                    assert!(is_answered(&posted), "{op:?} at {number} was not answered");
                }
                Status::Flushed => assert!(self.failed, "flushed by nothing"),
                _ => assert!(!std::mem::replace(&mut self.failed, true), "a second failure"),
            }
            self.done += 1;
        }
        assert_eq!(self.failed, origin.env.state() == QpState::Error);
        self.done - before
    }

    /// Notes an answer that reaches the origin: what brings data has to come in order.
    fn hear(&mut self, answer: &Packet<'_>) {
        let (done, part) = self.came;
        let waits = (done..self.posted.len()).find(|at| self.posted[*at].returns_data());
        let Some(at) = waits else { return };
        let Posted { number, count, .. } = self.posted[at];
        let brings = !matches!(answer.operation, Operation::Acknowledge(_));
        if brings && answer.psn == Psn::new(number + part) {
            self.came = if part + 1 == count { (at + 1, 0) } else { (at, part + 1) };
        }
    }

    /// The number of the work request that waits for data and has not all of it, and of the packet that
    /// brings it what is missing first: behind all if there is none.
    fn awaited(&self) -> (u32, u32) {
        let next = self.posted[self.came.0..].iter().find(|posted| posted.returns_data());
        next.map_or((u32::MAX, u32::MAX), |next| (next.number, next.number + self.came.1))
    }

    /// Checks a request: where it begins, and with which bytes, of those that were `before` in the buffer
    /// and those that come with a READ.
    fn check(&self, request: &Packet<'_>, before: &[u8], read: &[u8]) {
        assert_eq!(request.transport, Transport::Rc);
        let first = Psn::new(self.posted[0].number);
        let number = self.posted[0].number + request.psn.since(first);
        let posted = self.posted.iter().find(|posted| number < posted.end()).expect("posted");
        let offset = u64::from(number - posted.number) * MTU;
        if let Operation::ReadRequest(reth) = request.operation {
            let (from, rest) = (0x1000 + offset, posted.length - offset);
            assert!(reth.address == from && u64::from(reth.length) <= rest, "{reth:x?}");
            // What of it has come is not asked for again.
            let (_, next) = self.awaited();
            assert!(number >= next, "{number} is asked for, and all before {next} has come");
            return;
        }
        let length = if posted.returns_data() { 0 } else { MTU.min(posted.length - offset) };
        assert_eq!(request.payload.len() as u64, length);
        for (byte, at) in request.payload.iter().zip(offset as usize..) {
            // An atomic puts its result over the first eight.
            let right = at < 8 || *byte == before[at] || *byte == read[at];
            assert!(right, "byte {at} of {:?} at {number} is sent wrong", posted.op);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, nothing panics, and no request is completed twice, out of order, or with
    /// success before its last number is answered. Answers to what has not been sent end nothing.
    /// Rules: PSN-24, ORD-02, NET-16
    #[test]
    fn no_packets_confuse_the_queue(
        first in prop_oneof![Just(100), Just(0xff_ffe0)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut origin = origin_of(Service::Rc, first);
        let mut ledger = Ledger::default();
        // How many numbers have been sent, the furthest acknowledged, and those that data came for.
        let (mut sent, mut furthest) = (0, 0);
        let mut data = Vec::new();
        for step in &steps {
            let parts;
            let arrived = match step {
                Step::Post(op, length, flags) => {
                    ledger.post(&mut origin, first, (*op, *length, *flags));
                    vec![]
                }
                Step::Packet(..) => packet(first, step).into_iter().collect(),
                Step::Answer(behind, count, lost) => {
                    parts = vec![9; count * MTU as usize];
                    let all = responses(first + behind, &parts).into_iter().zip(0..);
                    all.filter(|(_, at)| lost >> (at % 64) & 7 != 0).map(|(p, _)| p).collect()
                }
                Step::Pass(time) => {
                    origin.pass(*time);
                    vec![]
                }
                Step::Busy(busy) => {
                    origin.env.room.set(if *busy { 0 } else { usize::MAX });
                    vec![]
                }
            };
            // What was posted or waited for its time leaves, and what has waited too long ends.
            origin.advance();
            ledger.settle(&origin, |_| false);
            for request in origin.env.sent() {
                sent = sent.max(request.psn.since(Psn::new(first)) + asked(&request.packet()));
            }
            let mut awaited = false;
            for packet in &arrived {
                let behind = packet.psn.since(Psn::new(first));
                if behind < sent {
                    // A refusal says that the one before it has arrived, data that its own has.
                    furthest = furthest.max(behind + 1);
                    data.push(behind);
                    awaited = true;
                }
            }
            origin.take_answers(&arrived);
            let ended = ledger.settle(&origin, |posted| match posted.returns_data() {
                true => (posted.number..posted.end()).all(|at| data.contains(&(at - first))),
                false => posted.end() - first <= furthest,
            });
            prop_assert!(awaited || ended == 0, "{arrived:?} ends something");
        }
    }
}

/// How many numbers a request takes.
fn asked(request: &Packet<'_>) -> u32 {
    match request.operation {
        Operation::ReadRequest(reth) => numbers(reth.length.into()),
        _ => 1,
    }
}

/// The ends of the network.
const ORIGIN: usize = 0;
const TARGET: usize = 1;

/// A target that does what is asked in the order of the numbers.
struct Target {
    expected: Psn,
    /// It has told that `expected` is missing.
    told: bool,
    memory: Vec<u8>,
}

impl Target {
    /// Carries out a request, or repeats its answer.
    fn take(&mut self, request: &Packet<'_>, answers: &mut VecDeque<Answer>) {
        let psn = request.psn;
        let ahead = psn.compare(self.expected);
        if ahead.is_gt() {
            if !std::mem::replace(&mut self.told, true) {
                answers.push_back(Answer::Plain(self.expected, 0x60));
            }
            return;
        }
        let count = asked(request);
        if ahead.is_eq() {
            self.told = false;
            self.expected = psn.plus(count);
        }
        match request.operation {
            Operation::ReadRequest(reth) => {
                let start = (reth.address - 0x1000) as usize;
                let data = &self.memory[start..start + reth.length as usize];
                for at in 0..count {
                    let bytes = data.chunks(MTU as usize).nth(at as usize).unwrap_or_default();
                    answers.push_back(Answer::Read(psn, count, at, bytes.to_vec()));
                }
            }
            Operation::FetchAdd { .. } => answers.push_back(Answer::Atomic(psn)),
            _ if request.ack_request => {
                answers.push_back(Answer::Plain(self.expected.plus(0xff_ffff), 0x1f));
            }
            _ => {}
        }
    }
}

enum Answer {
    Plain(Psn, u8),
    Atomic(Psn),
    /// First number, packets, which of them, and its bytes.
    Read(Psn, u32, u32, Vec<u8>),
}

impl Answer {
    fn packet(&self) -> Packet<'_> {
        match self {
            Self::Plain(psn, byte) => answer(psn.value(), Operation::Acknowledge(aeth(*byte))),
            Self::Atomic(psn) => {
                let operation = Operation::AtomicAcknowledge { aeth: aeth(0x1f), old: 5 };
                answer(psn.value(), operation)
            }
            Self::Read(first, count, at, bytes) => {
                let operation = match (*at == 0, at + 1 == *count) {
                    (true, true) => Operation::ReadResponseOnly(aeth(0x1f)),
                    (true, false) => Operation::ReadResponseFirst(aeth(0x1f)),
                    (false, true) => Operation::ReadResponseLast(aeth(0x1f)),
                    (false, false) => Operation::ReadResponseMiddle,
                };
                Packet { payload: bytes, ..answer(first.plus(*at).value(), operation) }
            }
        }
    }
}

/// What the network does to packets: it loses some, repeats some, and has others overtake some.
fn faults() -> Faults {
    let latency = 1_000;
    Faults { loss: 30, duplication: 20, reordering: 20, latency, ..Faults::default() }
}

/// The packets that have arrived at an end by now.
fn arrived(network: &mut Network, to: usize, now: u64) -> Vec<Vec<u8>> {
    let mut arrived = Vec::new();
    while network.next(to).is_some_and(|(at, _)| at <= now)
        && let Some(packet) = network.arrive(to)
    {
        arrived.push(packet.bytes);
    }
    arrived
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// With an honest target everything is done in the end, in order and with the right data: a SEND or
    /// WRITE when the target has carried it out, a READ or an atomic when its data has come. What of a READ
    /// has come is not asked for again.
    /// Rules: PSN-23, PSN-25, RN-08, RN-09, ORD-02
    #[test]
    fn an_honest_target_is_served_over_a_bad_network(
        first in prop_oneof![Just(100), Just(0xff_ffe0)],
        limit in 1_u8..8,
        all in prop::collection::vec(work(), 1..40),
        seed: u64,
    ) {
        let mut random = Random::new(seed);
        let mut network = Network::new(2, 1);
        let mut faults = FaultInjector::new(2, faults(), Random::new(seed ^ 1));
        let mut origin = origin_of(Service::Rc, first);
        origin.qp.requester.connection.max_rd_atomic = limit;
        let before = origin.env.bytes(LOCAL, MEMORY as usize);
        let memory: Vec<u8> = before.iter().map(|byte| !byte).collect();
        let mut target = Target { expected: Psn::new(first), told: false, memory };
        let mut ledger = Ledger::default();
        let mut work = all.iter();
        let mut rounds = 0;
        while work.len() > 0 || ledger.done < ledger.posted.len() {
            rounds += 1;
            prop_assert!(rounds < 20_000, "it does not end");
            if random.below(3) == 0 && let Some(work) = work.next() {
                ledger.post(&mut origin, first, *work);
            }
            origin.env.room.set(random.below(8) * BURST);
            let now = origin.env.time.get();
            let leaving = |ledger: &Ledger, origin: &Host, read: &[u8]| -> Vec<Vec<u8>> {
                let sent = origin.env.sent();
                sent.iter().for_each(|request| ledger.check(&request.packet(), &before, read));
                sent.iter().map(|request| encode(&request.packet())).collect()
            };
            for request in leaving(&ledger, &origin, &target.memory) {
                faults.send(&mut network, ORIGIN, TARGET, now, &request);
            }
            let mut answers = VecDeque::new();
            for request in arrived(&mut network, TARGET, now) {
                target.take(&Packet::parse(&request).expect("a request"), &mut answers);
            }
            for answer in &answers {
                faults.send(&mut network, TARGET, ORIGIN, now, &encode(&answer.packet()));
            }
            let answers = arrived(&mut network, ORIGIN, now);
            let packets: Vec<_> =
                answers.iter().map(|bytes| Packet::parse(bytes).expect("an answer")).collect();
            for burst in packets.chunks(1 + random.below(64)) {
                burst.iter().for_each(|answer| ledger.hear(answer));
                origin.take_answers(burst);
                for request in leaving(&ledger, &origin, &target.memory) {
                    faults.send(&mut network, ORIGIN, TARGET, now, &request);
                }
            }
            let idle = [ORIGIN, TARGET].iter().all(|end| network.next(*end).is_none());
            origin.pass(if idle && packets.is_empty() { TIMEOUT / 2 } else { 1000 });
            let (waits, _) = ledger.awaited();
            ledger.settle(&origin, |posted| match posted.returns_data() {
                true => posted.number < waits,
                false => target.expected.compare(Psn::new(posted.end())).is_ge(),
            });
            prop_assert_eq!(origin.env.state(), QpState::Rts);
        }
        prop_assert!(origin.env.statuses().is_empty());
        let end = ledger.posted.last().map_or(first, Posted::end);
        prop_assert_eq!(target.expected, Psn::new(end));
        // All READs bring the same bytes; an atomic may have put its result over the first eight.
        let lengths = all.iter().filter(|(op, ..)| *op == READ).map(|(_, length, _)| *length as usize);
        let longest = lengths.max().unwrap_or(0).max(8);
        prop_assert_eq!(&origin.env.bytes(LOCAL, longest)[8..], &target.memory[8..longest]);
    }
}
