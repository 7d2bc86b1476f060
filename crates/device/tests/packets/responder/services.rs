//! Packets of the services other than RC: UC, UD and XRC.

use transom_device::execution::{Context, CopyError, QpEvent, Reply, Request, Sink, Source};
use transom_device::protection::{Grant, Key};
use transom_device::qp::{Peering, QpNumber, QpState, Service};
use transom_device::queue::{Body, Flags, Remote, Status};
use transom_simulation::endpoint::{Endpoint, Io};
use transom_simulation::environment::Environment;
use transom_simulation::host::Host;
use transom_wire::grh::GRH_BYTES;
use transom_wire::packet::{Ending, Operation as Op, Packet, Transport};
use transom_wire::{Psn, RnrTimer};

use crate::target::*;

const AT: u64 = BASE + 0x2000;
const FULL: [u8; MTU] = [0xee; MTU];
const LAST: Op = Op::SendLast(Ending::Plain);

fn uc(ahead: u32, operation: Op, payload: &[u8]) -> Packet<'_> {
    Packet { transport: Transport::Uc, ..unasked(ahead, operation, payload) }
}

fn ud(operation: Op, payload: &[u8]) -> Packet<'_> {
    Packet {
        transport: Transport::Ud { qkey: QKEY, source: 0x99 },
        ..unasked(0, operation, payload)
    }
}

fn xrc(ahead: u32, srq: u32, operation: Op, payload: &[u8]) -> Packet<'_> {
    Packet { transport: Transport::Xrc { srq }, ..packet(ahead, operation, payload) }
}

/// A queue pair of UC with receives posted.
fn unreliable() -> Host {
    let mut target = target_of(Service::Uc);
    for wr_id in 0..8 {
        target.post_receive(wr_id, AT + 0x400 * wr_id, 0x400);
    }
    target
}

/// The ids and lengths received; nothing has been answered.
fn received(target: &Host) -> Vec<(u64, u32)> {
    assert_eq!(target.env.sent(), []);
    let done = target.env.completed();
    assert!(done.iter().all(|done| done.status == Status::Success));
    done.iter().map(|done| (done.wr_id, done.byte_length)).collect()
}

/// Nothing is acknowledged, even if asked for.
/// Rules: UC-02, PSN-10
#[test]
fn messages_of_uc_are_not_acknowledged() {
    let mut target = unreliable();
    let key = target.env.region;
    target.take_requests(&[
        Packet { ack_request: true, ..uc(0, SEND, b"one") },
        uc(1, Op::SendFirst, &FULL),
        uc(2, LAST, b"two"),
        uc(3, Op::WriteFirst(reth(AT + 0x4000, key, MTU + 1)), &FULL),
        uc(4, Op::WriteLast { immediate: Some(9) }, b"3"),
    ]);
    assert_eq!(received(&target), [(0, 3), (1, MTU as u32 + 3), (2, MTU as u32 + 1)]);
    assert_eq!(target.env.bytes(AT + 0x4000, MTU), FULL);
}

/// What is lost takes its message with it and no more.
/// Rules: UC-01
#[test]
fn a_lost_packet_loses_its_message_only() {
    for lost in 0..3 {
        let mut target = unreliable();
        let mut packets = vec![
            uc(0, Op::SendFirst, &FULL),
            uc(1, Op::SendMiddle, &FULL),
            uc(2, LAST, b"last"),
            uc(3, SEND, b"next"),
        ];
        packets.remove(lost);
        target.take_requests(&packets);
        assert_eq!(received(&target), [(0, 4)]);
        let mut target = unreliable();
        for packet in packets {
            target.take_requests(&[packet]);
        }
        assert_eq!(received(&target), [(0, 4)]);
        assert_eq!(target.env.state(), QpState::Rts);
    }
    // The last packet of one message and the first of the next.
    let mut target = unreliable();
    target.take_requests(&[uc(0, Op::SendFirst, &FULL), uc(3, LAST, b"x"), uc(4, SEND, b"next")]);
    assert_eq!(received(&target), [(0, 4)]);
}

/// What comes late, or again, is lost.
/// Rules: UC-01
#[test]
fn a_late_packet_of_uc_is_lost() {
    let mut target = unreliable();
    target.take_requests(&[
        uc(0, SEND, b"0"),
        uc(2, SEND, b"two"),
        uc(1, SEND, b"1"),
        uc(0, SEND, b"0"),
    ]);
    assert_eq!(received(&target), [(0, 1), (1, 3)]);
    // Within a message it changes nothing.
    target.take_requests(&[
        uc(3, Op::SendFirst, &FULL),
        uc(3, Op::SendFirst, &FULL),
        uc(4, LAST, b"x"),
    ]);
    assert_eq!(received(&target), [(2, MTU as u32 + 1)]);
}

/// A message that begins far behind is of a sender that counts anew: it is taken, and what follows.
/// Rules: UC-01, OP-31
#[test]
fn a_sender_of_uc_that_counts_anew_is_heard() {
    let mut target = unreliable();
    target.take_requests(&[uc(5000, SEND, b"old"), uc(1, LAST, b"no beginning")]);
    target.take_requests(&[uc(0, SEND, b"new"), uc(1, SEND, b"er"), uc(5001, SEND, b"on")]);
    assert_eq!(received(&target), [(0, 3), (1, 3), (2, 2), (3, 2)]);
}

/// However often its sender counts anew, from as far behind as there is: the number that it begins with is what comes
/// next.
/// Rules: UC-01, NET-16
#[test]
fn a_sender_of_uc_that_counts_anew_again_and_again_is_heard() {
    let mut target = unreliable();
    let mut psn = Psn::new(0);
    for _ in 0..2000 {
        psn = psn.plus(1 << 23);
        target.take_requests(&[uc(psn.value(), Op::SendFirst, &FULL)]);
        psn = psn.plus(1);
    }
    target.take_requests(&[uc(psn.value(), LAST, b"x")]);
    assert_eq!(received(&target), [(0, MTU as u32 + 1)]);
}

/// A packet in the wrong place, of the wrong length or kind drops the message silently.
/// Rules: OP-31, PK-09, RA-07, RA-48, RA-09
#[test]
fn a_violation_of_uc_drops_the_message() {
    let key = unreliable().env.region;
    let far = reth(AT + 0x4000, key, MTU + 1);
    let invalidate = Op::SendOnly(Ending::Invalidate(5));
    let wrong: [&[(Op, &[u8])]; 11] = [
        &[(Op::SendMiddle, &FULL)],
        &[(LAST, b"x")],
        &[(Op::SendFirst, &FULL), (Op::WriteMiddle, &FULL), (LAST, b"x")],
        &[(Op::SendFirst, &FULL), (Op::Reserved(0x15), b""), (LAST, b"x")],
        &[(Op::SendFirst, b"short"), (LAST, b"x")],
        &[(Op::SendFirst, &FULL), (LAST, b"")],
        &[(Op::WriteFirst(far), &FULL), (Op::WriteLast { immediate: Some(1) }, b"too long")],
        &[(Op::WriteOnly { reth: reth(AT, Key(5), 1), immediate: Some(1) }, b"x")],
        &[(Op::ReadRequest(far), b"")],
        &[(Op::FetchAdd { address: AT, key: key.0, add: 1 }, b"")],
        &[(invalidate, b"x")],
    ];
    for packets in wrong {
        for together in [false, true] {
            let mut target = unreliable();
            let made = |index: usize| uc(index as u32, packets[index].0, packets[index].1);
            let mut all: Vec<_> = (0..packets.len()).map(made).collect();
            all.push(uc(all.len() as u32, SEND, b"next"));
            if together {
                target.take_requests(&all);
            } else {
                all.iter().for_each(|packet| target.take_requests(&[*packet]));
            }
            assert_eq!(received(&target), [(0, 4)], "{packets:?}");
            assert_eq!((target.env.state(), target.env.events()), (QpState::Rts, vec![]));
        }
    }
    // A new message within one begins anew.
    let mut target = unreliable();
    target.take_requests(&[
        uc(0, Op::SendFirst, &FULL),
        uc(1, Op::SendFirst, &FULL),
        uc(2, LAST, b"x"),
    ]);
    assert_eq!(received(&target), [(0, MTU as u32 + 1)]);
}

/// Without a receive a message is gone; the next one is not.
/// Rules: UC-03
#[test]
fn without_a_receive_a_message_of_uc_is_gone() {
    let mut target = target_of(Service::Uc);
    target.take_requests(&[uc(0, SEND, b"gone"), uc(1, Op::SendFirst, &FULL)]);
    target.post_receive(1, AT, 0x400);
    target.take_requests(&[uc(2, Op::SendMiddle, &FULL), uc(3, LAST, b"x"), uc(4, SEND, b"here")]);
    assert_eq!(received(&target), [(1, 4)]);
}

/// A datagram lands behind the header of the packet that brought it.
/// Rules: UD-01, UD-02, UD-07, UD-09
#[test]
fn a_datagram_brings_its_header() {
    let mut target = target_of(Service::Ud);
    target.post_receive(1, AT, 140);
    let bytes: Vec<u8> = (0..100).collect();
    let operation = Op::SendOnly(Ending::Immediate(0x0a0b_0c0d));
    target.take_requests(&[Packet { solicited: true, ..ud(operation, &bytes) }]);
    assert_eq!(target.env.sent(), []);
    let done = target.env.completed();
    let [done] = done[..] else { panic!("{done:?}") };
    assert_eq!((done.wr_id, done.status, done.byte_length), (1, Status::Success, 140));
    assert_eq!((done.source_qp, done.immediate.to_ne_bytes()), (0x99, [10, 11, 12, 13]));
    assert_eq!(done.flags, Flags::GRH | Flags::IMMEDIATE | Flags::IPV4);
    let area = target.env.bytes(AT, GRH_BYTES);
    assert_eq!((area[20..][1], area[20..][8]), (ROUTE.traffic_class, ROUTE.hop_limit));
    assert_eq!((&area[32..36], &area[36..40]), (&[10, 1, 2, 3][..], &[10, 1, 2, 4][..]));
    assert_eq!(target.env.bytes(AT + 40, 100), bytes);
}

/// Datagrams have no order; what does not fit the queue pair is dropped.
/// Rules: UD-04, UD-05, OP-32, PK-09, PK-14
#[test]
fn a_datagram_that_does_not_fit_is_dropped() {
    let mut target = target_of(Service::Ud);
    target.take_requests(&[ud(SEND, b"no receive")]);
    target.post_receive(1, AT, 40 + 8);
    let wrong_key = Transport::Ud { qkey: QKEY + 1, source: 0x99 };
    let key = target.env.region;
    target.take_requests(&[
        Packet { transport: wrong_key, ..ud(SEND, b"x") },
        Packet { pkey: 5, ..ud(SEND, b"x") },
        Packet { transport: Transport::Rc, ..ud(SEND, b"x") },
        ud(SEND, b"too long!"),
        ud(SEND, &[0; MTU + 1]),
        ud(Op::SendFirst, &FULL),
        ud(Op::SendOnly(Ending::Invalidate(5)), b"x"),
        ud(Op::WriteOnly { reth: reth(AT, key, 1), immediate: None }, b"x"),
        ud(Op::ReadRequest(reth(AT, key, 1)), b""),
        ud(Op::Reserved(0x1f), b""),
    ]);
    assert_eq!(received(&target), []);
    assert_eq!((target.env.state(), target.env.events()), (QpState::Rts, vec![]));
    target.post_receive(2, AT, 40);
    target.take_requests(&[ud(SEND, b"eight..."), ud(SEND, b"")]);
    assert_eq!(received(&target), [(1, 48), (2, 40)]);
}

/// A message of XRC goes to the shared receive queue that it names.
/// Rules: OP-00
#[test]
fn a_message_of_xrc_names_its_queue() {
    let mut target = target_of(Service::XrcTarget);
    target.post_receive(1, AT, 0x400);
    target.take_requests(&[xrc(0, SRQ, Op::SendFirst, &FULL), xrc(1, SRQ, LAST, b"x")]);
    let key = target.env.region;
    target.take_requests(&[
        xrc(2, SRQ, Op::WriteOnly { reth: reth(AT, key, 3), immediate: None }, b"abc"),
        xrc(3, SRQ, Op::ReadRequest(reth(AT, key, 3)), &[]),
        xrc(4, SRQ, Op::FetchAdd { address: AT, key: key.0, add: 0 }, &[]),
        xrc(4, SRQ, Op::FetchAdd { address: AT, key: key.0, add: 0 }, &[]),
    ]);
    let sent = target.env.sent();
    let bytes: Vec<_> = sent.iter().map(|sent| sent.payload.as_slice()).collect();
    assert_eq!(bytes, [&b""[..], b"abc", b"", b""]);
    assert_eq!(sent[2], sent[3]);
    assert_eq!(target.env.completed()[0].byte_length, MTU as u32 + 1);
    // Another queue in the middle of a message, and one that is not there.
    target.post_receive(2, AT, 0x400);
    target.take_requests(&[xrc(5, SRQ, Op::SendFirst, &FULL), xrc(6, SRQ + 1, LAST, b"x")]);
    let sent = target.env.sent();
    assert!(matches!(sent[0].operation, Op::Acknowledge(aeth) if aeth.byte == 0x61), "{sent:?}");
    let mut target = target_of(Service::XrcTarget);
    target.take_requests(&[xrc(0, SRQ + 1, SEND, b"x")]);
    let sent = target.env.sent();
    assert!(matches!(sent[0].operation, Op::Acknowledge(aeth) if aeth.byte == 0x61), "{sent:?}");
}

/// What a message does while its receiving end is connected anew, as it may be in another process than
/// the message is carried out in.
struct ConnectedAnew<'a>(&'a Environment, Peering);

impl ConnectedAnew<'_> {
    const FIRST: Psn = Psn::new(77);
}

impl Source for ConnectedAnew<'_> {
    fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), CopyError> {
        unreachable!("no tag is looked for")
    }

    fn copy_to(&mut self, _: u64, _: &Grant<'_>) -> Result<(), CopyError> {
        self.0.summary().set_peering(self.1);
        self.0.summary().set_reception(Self::FIRST, RnrTimer::new(12).expect("a code"));
        Ok(())
    }
}

impl Sink for ConnectedAnew<'_> {
    fn copy_from(&mut self, _: u64, _: &Grant<'_>) -> Result<(), CopyError> {
        unreachable!("nobody asks for data")
    }
}

/// A SEND of five bytes that a queue pair sends to the receiving end of XRC.
fn message_of_xrc(from: QpNumber, message: Psn) -> Request {
    Request {
        to: QpNumber::from_bits(0x1_0003),
        from,
        service: Service::XrcInitiator,
        remote: Remote::Srq(SRQ),
        message,
        attempt: 0,
        body: Body::Send,
        offset: 0,
        length: 5,
        total: 5,
        solicited: false,
    }
}

/// Has a queue pair carry out a message, with data from there and to there.
fn execute(
    qp: &mut Endpoint,
    env: &Environment,
    request: &Request,
    source: &mut dyn Source,
    sink: &mut dyn Sink,
) -> Reply {
    let mut effects = qp.responder.effects().expect("there is memory");
    let (number, summary) = (request.to, env.summary());
    let mut cx = Context { process: env, number, summary, effects: &mut effects };
    qp.responder.execute(request, source, sink, &mut cx)
}

/// A message that is carried out while the receiving end of XRC is connected anew does not count as one of
/// the new connection, whose first message is served.
/// Rules: PSN-02, ST-11
#[test]
fn a_message_of_xrc_counts_on_its_own_connection() {
    let mut target = target_of(Service::XrcTarget);
    target.post_receive(1, AT, 8);
    target.post_receive(2, AT, 8);
    let before = target.env.summary().peering();
    let anew = Peering { from: QpNumber::from_bits(0x2_0009), ..before };
    let old = message_of_xrc(before.from, Psn::new(FIRST));
    let (mut source, mut sink) =
        (ConnectedAnew(&target.env, anew), ConnectedAnew(&target.env, anew));
    let reply = execute(&mut target.qp, &target.env, &old, &mut source, &mut sink);
    assert_eq!(reply, Reply::Ack);
    let summary = target.env.summary();
    assert_eq!((summary.peering(), summary.reception().0), (anew, ConnectedAnew::FIRST));
    let first = message_of_xrc(anew.from, ConnectedAnew::FIRST);
    assert_eq!(target.qp.take_message(&target.env, &first, b"first"), Reply::Ack);
    assert_eq!(target.env.bytes(AT, 5), b"first");
    assert_eq!(target.env.summary().reception().0, ConnectedAnew::FIRST.plus(1));
}

/// Memory that is found gone at the moment when the receiving end of XRC is connected anew, to the same peer.
struct GoneAndConnectedAnew<'a>(&'a Environment);

impl Source for GoneAndConnectedAnew<'_> {
    fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), CopyError> {
        unreachable!("no tag is looked for")
    }

    fn copy_to(&mut self, _: u64, _: &Grant<'_>) -> Result<(), CopyError> {
        let Self(env) = self;
        let peering = env.summary().peering();
        env.gate(|gate| gate.state = QpState::Reset);
        let first = Psn::new(FIRST);
        env.summary().set_peering(Peering { first, established: false, ..peering });
        env.summary().set_reception(first, RnrTimer::new(12).expect("a code"));
        env.gate(|gate| gate.state = QpState::Rtr);
        Err(CopyError::Far)
    }
}

/// A message that another process refuses, while the receiving end of XRC is connected anew, fails the connection
/// that it came by, and not the new one, be that with the same peer and numbers.
/// Rules: RA-43, ST-11
#[test]
fn a_refused_message_of_xrc_fails_its_own_connection() {
    let mut target = target_of(Service::XrcTarget);
    target.post_receive(1, AT, 8);
    target.post_receive(2, AT, 8);
    let peering = target.env.summary().peering();
    let request = message_of_xrc(peering.from, Psn::new(FIRST));
    let look = target.env.summary().look();
    target.env.looked.set(look).expect("it was not looked at");
    let mut source = GoneAndConnectedAnew(&target.env);
    let mut sink = ConnectedAnew(&target.env, peering);
    let reply = execute(&mut target.qp, &target.env, &request, &mut source, &mut sink);
    assert!(matches!(reply, Reply::Nak { .. }), "{reply:?}");
    assert_eq!(target.env.state(), QpState::Rtr);
    // What was seen of the connection before is not of this one.
    assert_eq!(target.qp.take_message(&target.env, &request, b"old"), Reply::Dropped);
    let look = target.env.summary().look();
    target.env.looked = look.into();
    assert_eq!(target.qp.take_message(&target.env, &request, b"first"), Reply::Ack);
    assert_eq!(target.env.bytes(AT, 5), b"first");
    assert_eq!(target.env.summary().reception().0, Psn::new(FIRST).plus(1));
    // One of its own that is refused has it fall.
    let next = Request { message: Psn::new(FIRST).plus(1), length: 9, total: 9, ..request };
    target.post_receive(3, AT, 8);
    let reply = target.qp.take_message(&target.env, &next, b"too long.");
    assert!(matches!(reply, Reply::Nak { .. }), "{reply:?}");
    assert_eq!(target.env.state(), QpState::Error);
}

/// The first request in RTR is told of, once.
/// Rules: RA-04, RA-05
#[test]
fn the_first_request_in_rtr_is_told_of() {
    let mut target = target_of(Service::Rc);
    target.env.gate(|gate| gate.state = QpState::Rtr);
    let key = target.env.region;
    assert_eq!(target.answer_to(packet(1, SEND, b"early")).len(), 1);
    assert_eq!(target.env.events(), []);
    for ahead in 0..2 {
        let read = packet(ahead, Op::ReadRequest(reth(AT, key, 1)), &[]);
        assert_eq!(target.answer_to(read).len(), 1);
    }
    assert_eq!(target.env.events(), [QpEvent::Established]);
}
