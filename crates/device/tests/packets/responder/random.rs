//! Any packets at all at a responder: it writes where it may and nowhere else, says nothing twice
//! after it has fallen, and what it answers is what it was asked.
//!
//! `TRANSOM_LONG=1` runs 50,000 sequences, otherwise 250.

use std::collections::HashSet;
use std::ops::Range;

use proptest::prelude::*;
use transom_device::Access;
use transom_device::protection::Key;
use transom_device::qp::{QpState, Service};
use transom_simulation::host::Host;
use transom_wire::Psn;
use transom_wire::packet::{Aeth, Ending, Operation as Op, Packet, Reth, Transport};

use crate::target::*;

/// A packet before it knows the keys.
#[derive(Clone, Debug)]
struct Plan {
    kind: u8,
    /// How far from what is next in order.
    skew: i8,
    key: u8,
    offset: i32,
    length: u32,
    payload: usize,
    number: u32,
    transport: u8,
    asked: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// A burst comes.
    Burst(Vec<Plan>),
    /// The link has so much room.
    Room(usize),
    /// Receives of this length are posted.
    Post(u32),
    /// The window goes.
    Invalidate,
}

fn plan() -> impl Strategy<Value = Plan> {
    let skew = prop_oneof![12 => Just(0_i8), 1 => -6..6_i8, 1 => any::<i8>()];
    let key = prop_oneof![6 => Just(0_u8), 3 => Just(1), 1 => any::<u8>()];
    let offset = prop_oneof![8 => 0..0x400_i32, 1 => -64..64_i32, 1 => any::<i32>()];
    let mtu = MTU as u32;
    let length = prop_oneof![
        4 => 0..4 * mtu, 2 => Just(8_u32), 2 => Just(2 * mtu), 1 => Just(mtu), 1 => any::<u32>()
    ];
    let payload = prop_oneof![3 => Just(MTU), 2 => 0..MTU + 2, 2 => Just(8_usize), 2 => Just(0)];
    let transport = prop_oneof![30 => Just(0_u8), 1 => any::<u8>()];
    (0..24_u8, skew, key, offset, length, payload, any::<u32>(), transport, any::<bool>()).prop_map(
        |(kind, skew, key, offset, length, payload, number, transport, asked)| Plan {
            kind,
            skew,
            key,
            offset,
            length,
            payload,
            number,
            transport,
            asked,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => prop::collection::vec(plan(), 1..8).prop_map(Step::Burst),
        2 => (0..6_usize).prop_map(Step::Room),
        2 => (0..4 * MTU as u32).prop_map(Step::Post),
        1 => Just(Step::Invalidate),
    ];
    prop::collection::vec(step, 1..40)
}

/// Memory for receives.
const RECEIVES: Range<u64> = REGION.start + 0x1000..REGION.start + 0x1000 + 4 * MTU as u64;

static BYTES: [u8; MTU + 2] = [0xab; MTU + 2];

impl Plan {
    fn packet(&self, service: Service, next: u32, keys: [Key; 2]) -> Packet<'static> {
        let key = keys.get(usize::from(self.key)).copied().unwrap_or(Key(self.number));
        let address = REGION.start.wrapping_add_signed(i64::from(self.offset));
        let mut reth = Reth { address, key: key.0, length: self.length };
        let (Reth { address, key, .. }, number) = (reth, u64::from(self.number));
        let immediate = self.number.is_multiple_of(2).then_some(self.number);
        let ending = match self.number % 5 {
            0 => Ending::Immediate(self.number),
            1 => Ending::Invalidate(keys[1].0),
            _ => Ending::Plain,
        };
        let (mut payload, whole) = (&BYTES[..self.payload], &BYTES[..MTU]);
        let operation = match self.kind {
            0 => Op::SendFirst,
            1 => Op::SendMiddle,
            2 => Op::SendLast(ending),
            3 | 4 => Op::SendOnly(ending),
            5 | 6 => Op::WriteFirst(reth),
            7 => Op::WriteMiddle,
            8 => Op::WriteLast { immediate },
            9..=11 => {
                // Of the right length, for once.
                reth.length = self.payload as u32;
                Op::WriteOnly { reth, immediate }
            }
            12..=15 => {
                payload = &[];
                Op::ReadRequest(reth)
            }
            16 | 17 => {
                payload = &[];
                Op::FetchAdd { address: address & !7, key, add: number }
            }
            18 => {
                payload = &[];
                Op::CompareSwap { address, key, swap: number, compare: number }
            }
            19 => Op::AtomicWrite(reth),
            20 => Op::Flush { placement: 1, selectivity: self.number as u8, reth },
            21 => Op::Reserved(self.number as u8 & 0x1f),
            22 => {
                payload = whole;
                Op::SendFirst
            }
            _ => Op::Congestion,
        };
        let own = match service {
            Service::Rc => Transport::Rc,
            Service::Uc => Transport::Uc,
            Service::Ud => Transport::Ud { qkey: QKEY, source: 0x99 },
            _ => Transport::Xrc { srq: SRQ },
        };
        let transport = match self.transport {
            0 => own,
            1..64 => Transport::Rc,
            64..128 => Transport::Uc,
            128..192 => Transport::Xrc { srq: self.number },
            _ => Transport::Ud { qkey: self.number, source: 1 },
        };
        let psn = Psn::new(next.wrapping_add_signed(i32::from(self.skew)));
        let base = Packet { transport, psn, ..packet(0, operation, payload) };
        Packet { solicited: self.asked, ack_request: self.asked, ..base }
    }
}

fn cases() -> ProptestConfig {
    let long = std::env::var_os("TRANSOM_LONG").is_some();
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if long { 50_000 } else { 250 })
    }
}

/// Whether an answer is something that may be said at all.
fn check(answer: &OwnedPacket) {
    match answer.operation {
        Op::Acknowledge(aeth) => {
            assert!(matches!(aeth.byte, 0x1f | 0x2c | 0x60..=0x63), "{aeth:?}");
            assert!(answer.payload.is_empty());
        }
        Op::ReadResponseFirst(_) | Op::ReadResponseMiddle => assert_eq!(answer.payload.len(), MTU),
        Op::ReadResponseLast(_) => assert!((1..=MTU).contains(&answer.payload.len())),
        Op::ReadResponseOnly(_) => assert!(answer.payload.len() <= MTU),
        Op::AtomicAcknowledge { .. } => assert!(answer.payload.is_empty()),
        ref other => panic!("{other:?} is no answer"),
    }
}

proptest! {
    #![proptest_config(cases())]

    /// Packets of another service change nothing at all. Where all keys that are known are a window's,
    /// nothing but its part of memory is written, and once it is invalidated, not even that, nor read.
    /// Rules: NET-16, RA-44, RA-54, UC-02, INV-23
    #[test]
    fn any_packets_stay_within_their_rights(
        service in prop::sample::select(vec![
            Service::Rc, Service::Rc, Service::Uc, Service::Ud, Service::XrcTarget,
        ]),
        by_window: bool,
        steps in steps(),
    ) {
        let mut target = target_of(service);
        let window = REGION.start..REGION.start + 0x200;
        let key = target.env.window(window.clone(), Access::REMOTE_READ | Access::REMOTE_WRITE);
        let keys = [if by_window { key } else { target.env.region }, key];
        // Where nobody may write: receives are in memory of their own.
        let outside = |target: &Host, is_bound: bool| {
            let end = BASE + MEMORY as u64;
            let mut ranges = vec![BASE..REGION.start, REGION.end..end];
            if by_window {
                ranges.extend([window.end..RECEIVES.start, RECEIVES.end..REGION.end]);
            }
            if by_window && !is_bound {
                ranges.push(window.clone());
            }
            let bytes = |range: Range<u64>| target.env.bytes(range.start, (range.end - range.start) as usize);
            ranges.into_iter().map(bytes).collect::<Vec<_>>()
        };
        let (mut before, mut is_bound) = (outside(&target, true), true);
        let (mut posted, mut wr_id) = (0, 0);
        let (mut next, mut with_data) = (FIRST, HashSet::new());
        for step in &steps {
            let (state, was_bound) = (target.env.state(), is_bound);
            let (mut done, mut sent) = (0, Vec::new());
            match step {
                Step::Burst(plans) => {
                    for plan in plans {
                        let packet = plan.packet(service, next, keys);
                        next = next.wrapping_add(u32::from(plan.skew == 0));
                        if service.serves(&packet.transport) {
                            target.take_requests(&[packet]);
                            continue;
                        }
                        done += target.env.completed().len();
                        sent.extend(target.env.sent());
                        let all = |target: &Host| (target.env.state(), target.env.memory());
                        let untouched = all(&target);
                        target.take_requests(&[packet]);
                        let silent = target.env.completed().is_empty() && target.env.sent().is_empty();
                        prop_assert!(silent && all(&target) == untouched, "{packet:?} does something");
                    }
                }
                Step::Room(room) => target.make_room(*room),
                Step::Post(length) => {
                    if posted < 16 && state == QpState::Rts {
                        target.post_receive(wr_id, RECEIVES.start, *length);
                        wr_id += 1;
                        posted += 1;
                    }
                }
                Step::Invalidate => {
                    let _ = target.env.invalidate(key);
                    if std::mem::take(&mut is_bound) {
                        before = outside(&target, is_bound);
                    }
                }
            }
            posted -= done + target.env.completed().len();
            sent.extend(target.env.sent());
            sent.iter().for_each(check);
            for answer in &sent {
                // The origin of a READ or an atomic might take an acknowledgement for its answer.
                let number = answer.psn.value();
                match answer.operation {
                    Op::Acknowledge(Aeth { byte: 0x1f, .. }) => {
                        prop_assert!(!with_data.contains(&number), "{answer:?}");
                    }
                    Op::Acknowledge(_) => {}
                    _ => drop(with_data.insert(number)),
                }
            }
            prop_assert!(service != Service::Uc && service != Service::Ud || sent.is_empty());
            prop_assert!(state == QpState::Rts || sent.is_empty(), "{state:?}, yet {sent:?}");
            let data = sent.iter().find(|answer| !answer.payload.is_empty());
            prop_assert!(!by_window || was_bound || data.is_none(), "{data:?} is read");
            prop_assert!(outside(&target, is_bound) == before, "written outside");
        }
    }

    /// The same packets, together or one by one, do the same.
    /// Rules: RA-36
    #[test]
    fn a_burst_does_what_its_packets_do(plans in prop::collection::vec(plan(), 1..24)) {
        let run = |together: bool| {
            let mut target = target_of(Service::Rc);
            for wr_id in 0..8 {
                target.post_receive(wr_id, REGION.start + 0x1000 + 0x400 * wr_id, 24 * MTU as u32);
            }
            let keys = [target.env.region; 2];
            let mut next = FIRST;
            let packets: Vec<_> = plans.iter().map(|plan| {
                let packet = plan.packet(Service::Rc, next, keys);
                next = next.wrapping_add(u32::from(plan.skew == 0));
                packet
            }).collect();
            if together {
                target.take_requests(&packets);
            } else {
                packets.iter().for_each(|packet| target.take_requests(&[*packet]));
            }
            let data: Vec<_> = target.env.sent().into_iter()
                .filter(|answer| !matches!(answer.operation, Op::Acknowledge(_))).collect();
            let said = (target.env.completed(), target.env.state(), data);
            (target.env.bytes(BASE, MEMORY), said)
        };
        let (together, alone) = (run(true), run(false));
        prop_assert_eq!(together.1, alone.1);
        prop_assert!(together.0 == alone.0, "not the same is written");
    }
}

proptest! {
    #![proptest_config(cases())]

    /// Two queue pairs, with everything that may happen to packets between them.
    /// Rules: NET-16, RA-44, ORD-02, ORD-28, RN-07
    #[test]
    fn any_wire_leaves_two_queue_pairs_whole(script in prop::collection::vec(any::<u8>(), 1..600)) {
        transom_simulation::script::feed(&script);
    }
}
