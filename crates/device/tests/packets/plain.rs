//! Plain SENDs, for which both ends have a function of their own: whatever else happens, they come to what
//! the general way comes to.

use proptest::prelude::*;
use transom_device::Access;
use transom_device::execution::{PlainSend, Reply, Request};
use transom_device::protection::Key;
use transom_device::qp::{QpNumber, QpState, Service};
use transom_device::queue::{Completion, SendFlags, Status};
use transom_simulation::host::Host;
use transom_wire::{Psn, RnrTimer};

use crate::origin::{READ, SEND, origin_over_messages};
use crate::target::{FIRST, REGION, target_of};

/// Something that happens to a target.
#[derive(Clone, Debug)]
enum AtTarget {
    Post { length: u32, known: bool },
    Send { length: usize, ahead: u32, known: bool, solicited: bool },
    State(QpState),
    Grant(Access),
}

fn at_target() -> impl Strategy<Value = AtTarget> {
    let often = prop::bool::weighted(0.9);
    let rights = prop_oneof![Just(Access::LOCAL_WRITE), Just(Access::REMOTE_READ)];
    let states = prop::sample::select(vec![QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe]);
    prop_oneof![
        5 => (prop_oneof![Just(0_u32), 1..40_u32], often)
            .prop_map(|(length, known)| AtTarget::Post { length, known }),
        8 => (1..40_usize, prop_oneof![9 => Just(0_u32), 1 => 1..3_u32], often, any::<bool>())
            .prop_map(|(length, ahead, known, solicited)| {
                AtTarget::Send { length, ahead, known, solicited }
            }),
        1 => states.prop_map(AtTarget::State),
        1 => rights.prop_map(AtTarget::Grant),
    ]
}

/// A target, and the number that comes next there.
struct Target {
    host: Host,
    next: Psn,
    posted: u64,
}

impl Target {
    fn new() -> Self {
        Self { host: target_of(Service::Rc), next: Psn::new(FIRST), posted: 0 }
    }

    /// Has something happen, with plain SENDs received in this way.
    fn take(
        &mut self,
        what: &AtTarget,
        receive: impl Fn(&mut Host, &PlainSend, &[u8]) -> Reply,
    ) -> Option<Reply> {
        let host = &mut self.host;
        match *what {
            AtTarget::Post { length, known } => {
                // Each has a place of its own.
                let address = REGION.start + self.posted % 100 * 40;
                let key = if known { host.env.region } else { Key(!host.env.region.0) };
                self.posted += 1;
                let has_room = self.posted <= 16;
                if has_room {
                    host.post_receive_with(self.posted, address, length, key);
                }
            }
            AtTarget::Send { length, ahead, known, solicited } => {
                let from = QpNumber::from_bits(if known { 0x2_0007 } else { 0x2_0008 });
                let send = PlainSend {
                    to: QpNumber::from_bits(0x1_0003),
                    from,
                    message: self.next.plus(ahead),
                    attempt: 3,
                    length: length as u64,
                    solicited,
                };
                let data: Vec<u8> = (0..length).map(|at| at as u8 ^ 0x5a).collect();
                let reply = receive(host, &send, &data);
                if reply == Reply::Ack {
                    self.next = self.next.plus(1);
                }
                return Some(reply);
            }
            AtTarget::State(state) if host.env.state() != QpState::Error => {
                host.env.gate(|gate| gate.state = state);
            }
            AtTarget::Grant(access) => host.env.grant(access),
            AtTarget::State(_) => {}
        }
        None
    }
}

/// Something that happens to an origin.
#[derive(Clone, Debug)]
enum AtOrigin {
    Post {
        read: bool,
        length: u64,
        flags: SendFlags,
    },
    /// The oldest message is answered so.
    Answer(Reply),
    /// The link has so much room.
    Room(usize),
    Pass(u64),
    State(QpState),
}

fn at_origin() -> impl Strategy<Value = AtOrigin> {
    let flags = prop::sample::select(vec![
        SendFlags::empty(),
        SendFlags::SIGNALED,
        SendFlags::SOLICITED,
        SendFlags::FENCE,
    ]);
    let timer = RnrTimer::new(1).expect("a code");
    let replies = prop_oneof![
        8 => Just(Reply::Ack),
        1 => Just(Reply::NotReady(timer)),
        1 => Just(Reply::Dropped),
    ];
    prop_oneof![
        6 => (prop::bool::weighted(0.1), 0..40_u64, flags)
            .prop_map(|(read, length, flags)| AtOrigin::Post { read, length, flags }),
        6 => replies.prop_map(AtOrigin::Answer),
        1 => (0..4_usize).prop_map(AtOrigin::Room),
        1 => (1..100_000_000_u64).prop_map(AtOrigin::Pass),
        1 => prop_oneof![Just(QpState::Rts), Just(QpState::Sqd)].prop_map(AtOrigin::State),
    ]
}

/// An origin, and what it has sent that is not answered.
struct Origin {
    host: Host,
    sent: Vec<Request>,
    posted: u64,
}

impl Origin {
    fn new(at_once: bool) -> Self {
        let mut host = origin_over_messages();
        host.qp.requester.connection.link.copied = 4095;
        host.env.at_once.set(at_once);
        Self { host, sent: Vec::new(), posted: 0 }
    }

    /// Has something happen; what is sent and what completes by that.
    fn take(&mut self, what: &AtOrigin) -> (Vec<Request>, Vec<(u64, Status)>, QpState) {
        let host = &mut self.host;
        match *what {
            AtOrigin::Post { read, length, flags } if self.posted < 64 => {
                self.posted += 1;
                let op = if read { READ } else { SEND };
                host.post_send_with(self.posted, op, length.min(15), flags);
            }
            AtOrigin::Answer(reply) if !self.sent.is_empty() => {
                let oldest = self.sent.remove(0);
                let fetches = oldest.body.uses_read_resources();
                let reply = match reply {
                    Reply::Ack if fetches => Reply::Data { length: oldest.length },
                    other => other,
                };
                host.reply(&oldest, reply);
            }
            AtOrigin::Room(room) => host.make_room(room),
            AtOrigin::Pass(time) => host.pass(time),
            AtOrigin::State(state) if host.env.state() != QpState::Error => {
                host.env.gate(|gate| gate.state = state);
                host.advance();
            }
            AtOrigin::Post { .. } | AtOrigin::Answer(_) | AtOrigin::State(_) => {}
        }
        let sent = host.env.messages();
        self.sent.extend(&sent);
        (sent, host.env.statuses(), host.env.state())
    }
}

proptest! {
    #[test]
    fn a_plain_send_is_received_as_any_other(steps in prop::collection::vec(at_target(), 1..40)) {
        let (mut general, mut plain) = (Target::new(), Target::new());
        for step in &steps {
            let wanted = general.take(step, |host, send, data| {
                host.qp.take_message(&host.env, &send.request(), data)
            });
            let got = plain.take(step, |host, send, data| {
                host.qp.take_plain_send(&host.env, send, data)
            });
            prop_assert_eq!(got, wanted, "{:?}", step);
            let seen = |target: &Target| -> (Vec<(Completion, bool)>, _, _, _) {
                let env = &target.host.env;
                let ended = env.ended().into_iter();
                let ended = ended.map(|(_, done, solicited)| (done, solicited)).collect();
                (ended, env.events(), env.reasons(), env.state())
            };
            let memory = |target: &Target| target.host.env.memory();
            prop_assert!(memory(&plain) == memory(&general), "memory differs: {:?}", step);
            prop_assert_eq!(seen(&plain), seen(&general), "{:?}", step);
        }
    }

    #[test]
    fn a_plain_send_is_posted_as_any_other(steps in prop::collection::vec(at_origin(), 1..60)) {
        let (mut general, mut plain) = (Origin::new(false), Origin::new(true));
        for step in &steps {
            let wanted = general.take(step);
            prop_assert_eq!(plain.take(step), wanted, "{:?}", step);
            let next = |origin: &Origin| origin.host.qp.requester.deadline();
            prop_assert_eq!(next(&plain), next(&general), "{:?}", step);
        }
    }
}
