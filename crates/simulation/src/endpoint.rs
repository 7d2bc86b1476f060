//! A queue pair at work: how it is called, what is sent for it, and in which order. What is around it,
//! a process and a link, it has by the trait [`Io`].

use std::cell::Cell;

use transom_device::Access;
use transom_device::execution::{
    Bytes, Context, CopyError, Effect, Effects, LocalBuffers, MAX_BURST, Payload, PlainSend,
    Process, QueueSide, Receives, Reply, Request, Requester, RequesterLimits, Responder,
    Segmentation, Sent, Sink,
};
use transom_device::protection::{Grant, Operation, Refusal};
use transom_device::qp::{Bypass, Gate, Peering, QpNumber, QpState, QpSummary, Service};
use transom_device::queue::{PostError, ReceiveRequest, SendRequest};
use transom_device::transport::burst::Burst;
use transom_device::transport::responder::PacketResponder;
use transom_device::transport::{NextAnswer, ReadAnswer};
use transom_wire::grh::Route;
use transom_wire::packet::{Packet, Transport};
use transom_wire::{Psn, RnrTimer};

use crate::packet::OwnedPacket;

/// What is around a queue pair: its process, and a link that takes packets.
pub trait Io: Process {
    /// The queue pair's summary.
    fn summary(&self) -> &QpSummary;
    /// The queue pair wants something done, or says that it has happened. What is for its other half is
    /// done without this.
    fn happened(&self, effect: &Effect);
    /// The places of the send queue, and those of the receive queue, that completions have given back: here the
    /// program polls each at once.
    fn given_back(&self) -> &[Cell<u32>; 2];
    /// Bytes of granted memory; `None` if they are gone.
    fn load(&self, at: &Grant<'_>) -> Option<Vec<u8>>;
    /// The same for the answer to a READ: what comes `offset` bytes behind the beginning of the burst
    /// whose first packet has this number.
    fn read(&self, first: Psn, offset: u64, at: &Grant<'_>) -> Option<Vec<u8>> {
        let _ = (first, offset);
        self.load(at)
    }
    /// How many packets the link takes now.
    fn room(&self) -> usize;
    /// The packets of a request leave; there is room for them.
    fn send(&self, packets: &[Packet<'_>]);
    /// How many packets of requests leave together: messages wait until there are so many, or no more to send.
    /// Zero for a link that takes each message by itself.
    fn joins(&self) -> usize {
        0
    }
    /// The packets of requests that have waited leave. False if there is room for the first of them only, or
    /// for none.
    fn send_joined(&self, packets: &[Packet<'_>]) -> bool {
        self.send(packets);
        true
    }
    /// The packets of an answer to a READ leave, for which there was room. False if there is none after
    /// all.
    fn send_answer(&self, packets: &[Packet<'_>]) -> bool;
    /// A request leaves as a message; there is room for it.
    fn send_message(&self, request: &Request) {
        panic!("{request:?} leaves over a link that carries packets");
    }
}

/// What a queue pair is created and connected with, by the names that verbs have for it.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Attributes {
    pub service: Service,
    pub qp_num: QpNumber,
    pub dest_qp_num: QpNumber,
    pub path_mtu: u64,
    pub sq_psn: u32,
    pub rq_psn: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub qp_access_flags: Access,
    pub pd: u32,
    pub qkey: u32,
    pub send: RequesterLimits,
    pub receives: Receives,
    pub max_recv_sge: usize,
    /// Most packets of a burst.
    pub burst: u64,
    /// Most bytes on their way.
    pub window: u64,
}

/// A queue pair: both halves, and what they want done.
pub struct Endpoint {
    number: QpNumber,
    service: Service,
    /// The half that sends.
    pub requester: Requester,
    /// The half that receives: what carries requests out.
    pub responder: Responder,
    /// What makes requests of packets.
    pub packets: PacketResponder,
    /// What each half wants done.
    effects: [Effects; 2],
    /// The send queue, the receive queue is to be flushed.
    flush: [bool; 2],
}

const MEMORY: &str = "there is memory";

/// Where data goes of which there is none.
struct Nowhere;

impl Sink for Nowhere {
    fn copy_from(&mut self, _: u64, _: &Grant<'_>) -> Result<(), CopyError> {
        panic!("nobody asked for data");
    }
}

impl Endpoint {
    /// A queue pair in RTS.
    pub fn new(attributes: &Attributes, summary: &QpSummary) -> Self {
        let Attributes { service, path_mtu, pd, .. } = *attributes;
        let max_recv_sge = attributes.max_recv_sge;
        let mut requester = Requester::new(service, &attributes.send).expect(MEMORY);
        let mut responder =
            Responder::new(service, attributes.receives, max_recv_sge).expect(MEMORY);
        let mut packets = PacketResponder::new(service);
        summary.set_gate(Gate {
            state: QpState::Rts,
            service,
            access: attributes.qp_access_flags,
            read_resources: attributes.max_dest_rd_atomic,
            pd,
            bypass: Bypass::Free,
        });
        let [sq_psn, rq_psn] = [attributes.sq_psn, attributes.rq_psn].map(Psn::new);
        let mtu_code = (path_mtu / 128).ilog2() as u8;
        let from = attributes.dest_qp_num;
        summary.set_peering(Peering { from, first: rq_psn, mtu_code, established: false });
        requester.connection.peer = from;
        requester.connection.max_rd_atomic = attributes.max_rd_atomic;
        requester.connection.window_limit = attributes.window;
        requester.connection.qkey = attributes.qkey;
        requester.retry.timeout = attributes.timeout;
        requester.retry.count = attributes.retry_cnt;
        requester.retry.rnr_count = attributes.rnr_retry;
        requester.connection.link = bursts(path_mtu, attributes.burst);
        requester.start(sq_psn);
        responder.qkey = attributes.qkey;
        responder.min_rnr_timer = RnrTimer::new(attributes.min_rnr_timer).expect("a code below 32");
        responder.start(rq_psn, summary);
        packets.link = requester.connection.link;
        packets.start(rq_psn);
        packets.keep(attributes.max_dest_rd_atomic).expect(MEMORY);
        Self {
            number: attributes.qp_num,
            service,
            effects: [requester.effects().expect(MEMORY), responder.effects().expect(MEMORY)],
            requester,
            responder,
            packets,
            flush: [false; 2],
        }
    }

    /// The send queue does something, and then what it can.
    pub fn drive<I: Io, T>(
        &mut self,
        io: &I,
        step: impl FnOnce(&mut Requester, &mut Context<'_, I>) -> T,
    ) -> T {
        let Self { requester, effects: [effects, _], flush, .. } = self;
        let mut cx = context(self.number, io, effects);
        let result = step(requester, &mut cx);
        let mut joined = Joined::default();
        while let Some(request) = requester.next_segment(&mut cx) {
            settle(io, cx.effects, flush);
            let mtu = requester.connection.link.mtu;
            let outcome = joined.send(io, mtu, &request, requester.payload());
            if !requester.sent(&request, outcome, &mut cx) {
                break;
            }
        }
        if let Err(first) = joined.leave(io) {
            requester.take_back(first);
        }
        settle(io, cx.effects, flush);
        result
    }

    /// The receiving half does something.
    fn respond<I: Io, T>(
        &mut self,
        io: &I,
        step: impl FnOnce(&mut Responder, &mut PacketResponder, &mut Context<'_, I>) -> T,
    ) -> T {
        let Self { responder, packets, effects: [_, effects], flush, .. } = self;
        let result = step(responder, packets, &mut context(self.number, io, effects));
        settle(io, effects, flush);
        result
    }

    /// A message arrives by itself, without packets, and asks for no data.
    pub fn take_message<I: Io>(&mut self, io: &I, request: &Request, data: &[u8]) -> Reply {
        self.respond(io, |responder, _, cx| {
            let mut source = Bytes { bytes: data, process: io };
            responder.execute(request, &mut source, &mut Nowhere, cx)
        })
    }

    /// A plain SEND does, and is received at once if it can be.
    pub fn take_plain_send<I: Io>(&mut self, io: &I, send: &PlainSend, data: &[u8]) -> Reply {
        let received = self.respond(io, |responder, _, cx| {
            let mut source = Bytes { bytes: data, process: io };
            responder.receive_at_once(send, &mut source, cx)
        });
        let Some(completion) = received else {
            return self.take_message(io, &send.request(), data);
        };
        io.happened(&Effect::Complete { completion, solicited: send.solicited });
        Reply::Ack
    }

    /// Posts a work request to the send queue, which then does what it can.
    pub fn post_send<I: Io>(&mut self, io: &I, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.requester.returned().add(io.given_back()[0].take());
        self.drive(io, |requester, cx| requester.post(request, cx))
    }

    /// Posts a receive.
    pub fn post_receive<I: Io>(
        &mut self,
        io: &I,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        if let Some(returned) = self.responder.returned() {
            returned.add(io.given_back()[1].take());
        }
        self.respond(io, |responder, _, cx| responder.post(request, cx))
    }

    /// Takes answers that came together.
    pub fn take_answers<I: Io>(&mut self, io: &I, packets: &[Packet<'_>]) {
        self.drive(io, |requester, cx| requester.on_packets(packets, cx));
    }

    /// Takes requests that came together by the way `from`, and answers them.
    pub fn take_requests<I: Io>(&mut self, io: &I, requests: &[Packet<'_>], from: &Route) {
        let mut rest = requests;
        while !rest.is_empty() {
            self.answer_reads(io);
            let taken =
                self.respond(io, |responder, packets, cx| packets.take(responder, rest, from, cx));
            rest = &rest[taken..];
        }
        self.answer(io);
    }

    /// Sends all answers for which there is room.
    fn answer<I: Io>(&mut self, io: &I) {
        self.answer_reads(io);
        self.respond(io, |_, packets, cx| packets.acknowledge(cx));
    }

    /// Answers READs, atomics and others like them.
    fn answer_reads<I: Io>(&mut self, io: &I) {
        while !self.packets.is_idle() {
            let room = io.room();
            let next = self.respond(io, |_, packets, cx| packets.next_answer(room, cx));
            let answer = match next {
                NextAnswer::Nothing => return,
                NextAnswer::Packet => continue,
                NextAnswer::Data(answer) => answer,
            };
            let service = self.service;
            let more = self.respond(io, |responder, packets, cx| {
                let reply = send_part(&answer, responder, service, &packets.link, cx);
                packets.sent(&answer, reply, cx)
            });
            if !more {
                return;
            }
        }
    }

    /// Its deadline has come. Does what it can.
    pub fn look_at_clock<I: Io>(&mut self, io: &I) {
        self.drive(io, |requester, cx| requester.check_timeout(cx));
        self.advance(io);
    }

    /// Does what it can, whatever it waited for: room on the link, the fall of its other half.
    pub fn advance<I: Io>(&mut self, io: &I) {
        loop {
            self.answer(io);
            self.drive(io, |_, _| ());
            let fallen = std::mem::take(&mut self.flush);
            if fallen == [false; 2] {
                return;
            }
            self.flush_queues(io, fallen);
        }
    }

    /// Ends what is posted; the queue pair is in error.
    pub fn flush<I: Io>(&mut self, io: &I) {
        let mut fallen = [true; 2];
        while fallen != [false; 2] {
            self.flush_queues(io, fallen);
            fallen = std::mem::take(&mut self.flush);
        }
    }

    fn flush_queues<I: Io>(&mut self, io: &I, [send, receive]: [bool; 2]) {
        if send {
            self.drive(io, |requester, cx| requester.flush(cx));
        }
        if receive {
            self.respond(io, |responder, _, cx| responder.flush(cx));
        }
    }
}

/// Bursts of so many packets at most.
fn bursts(mtu: u64, packets: u64) -> Segmentation {
    let most = mtu * packets.min(MAX_BURST);
    Segmentation { mtu: Some(mtu), ..Segmentation::of_messages(most) }
}

/// What the device is called with.
fn context<'a, I: Io>(number: QpNumber, io: &'a I, effects: &'a mut Effects) -> Context<'a, I> {
    Context { process: io, number, summary: io.summary(), effects }
}

/// Has done what the device wants done, in order; the other half of the queue pair is flushed later.
fn settle(io: &impl Io, effects: &mut Effects, flush: &mut [bool; 2]) {
    for effect in effects.all() {
        match effect {
            Effect::Flush(side) => flush[usize::from(*side == QueueSide::Receive)] = true,
            effect => io.happened(effect),
        }
    }
    effects.clear();
}

/// Messages that leave together.
#[derive(Default)]
struct Joined {
    packets: Vec<OwnedPacket>,
    first: Psn,
    is_refused: bool,
}

impl Joined {
    /// Hands a segment of a request to the link, or has it wait for others.
    fn send<I: Io>(
        &mut self,
        io: &I,
        mtu: Option<u64>,
        request: &Request,
        payload: Payload<'_>,
    ) -> Sent {
        let most = io.joins();
        let joinable = mtu.filter(|_| most > 0 && request.may_be_joined());
        let Some(mtu) = joinable else {
            return if self.leave(io).is_ok() {
                send(io, mtu, request, payload)
            } else {
                Sent::Busy
            };
        };
        let carried = request.body.carries_data();
        let count = if carried { request.length.div_ceil(mtu).max(1) } else { 1 };
        if self.packets.len() + count as usize > most && self.leave(io).is_err() {
            return Sent::Busy;
        }
        let data = if carried { gather(io, request, payload) } else { Ok(Vec::new()) };
        let data = match data {
            Ok(data) => data,
            Err(refusal) => return Sent::Near(refusal),
        };
        if self.packets.is_empty() {
            self.first = request.message;
        }
        self.packets.extend(Burst::new(request, mtu).map(|part| {
            OwnedPacket::from(&Packet { payload: &data[part.payload], ..part.packet })
        }));
        Sent::Queued
    }

    /// All leave; on an error the number of the first of those that go again.
    fn leave<I: Io>(&mut self, io: &I) -> Result<(), Psn> {
        let packets = std::mem::take(&mut self.packets);
        if !packets.is_empty() {
            let packets: Vec<_> = packets.iter().map(OwnedPacket::packet).collect();
            self.is_refused = !io.send_joined(&packets);
        }
        if self.is_refused { Err(self.first) } else { Ok(()) }
    }
}

/// Hands a segment of a request to the link.
fn send<I: Io>(io: &I, mtu: Option<u64>, request: &Request, payload: Payload<'_>) -> Sent {
    let carried = request.body.carries_data();
    let length = if carried { request.length } else { 0 };
    let count = mtu.map_or(1, |mtu| length.div_ceil(mtu).max(1));
    if (io.room() as u64) < count {
        return Sent::Busy;
    }
    let data = if carried { gather(io, request, payload) } else { Ok(Vec::new()) };
    let data = match data {
        Ok(data) => data,
        Err(refusal) => return Sent::Near(refusal),
    };
    let Some(mtu) = mtu else {
        io.send_message(request);
        return Sent::Queued;
    };
    let packets: Vec<_> = Burst::new(request, mtu)
        .map(|part| Packet { payload: &data[part.payload], ..part.packet })
        .collect();
    io.send(&packets);
    Sent::Queued
}

/// The bytes that a segment carries.
fn gather<I: Io>(io: &I, request: &Request, payload: Payload<'_>) -> Result<Vec<u8>, Refusal> {
    let Request { offset, length, .. } = *request;
    let sges = match payload {
        Payload::Inline(bytes) => return Ok(bytes[offset as usize..][..length as usize].to_vec()),
        Payload::Buffers(sges) => sges,
    };
    let local = LocalBuffers {
        sges,
        keys: io.keys(),
        announcer: io.announcer(),
        waiter: io.waiter(),
        qp: request.from.bits(),
        pd: io.summary().gate().pd,
    };
    let mut bytes = Vec::new();
    let gathered = local.each(Operation::LocalRead, offset, length, |_, grant| {
        bytes.extend(io.load(grant).ok_or(CopyError::Far)?);
        Ok(())
    });
    match gathered {
        Ok(()) => Ok(bytes),
        Err(CopyError::Near(refusal)) => Err(refusal),
        Err(CopyError::Far) => Err(local.gone(Operation::LocalRead)),
    }
}

/// Fetches and sends a part of the answer to a READ.
fn send_part<I: Io>(
    answer: &ReadAnswer,
    responder: &mut Responder,
    service: Service,
    link: &Segmentation,
    cx: &mut Context<'_, I>,
) -> Reply {
    let (io, burst) = (cx.process, answer.burst);
    assert!(burst.length <= link.part, "a burst is as long as the link takes, or shorter");
    let mtu = link.mtu.expect("the link carries packets");
    let mut data = Fetched { io, first: burst.psn, bytes: Vec::new() };
    let reply = answer.fetch(responder, &mut data, cx);
    if !matches!(reply, Reply::Data { .. }) {
        return reply;
    }
    let transport = match service {
        Service::XrcTarget => Transport::Xrc { srq: 0 },
        _ => Transport::Rc,
    };
    let to = cx.summary.peering().from.bits();
    let mut rest = &data.bytes[..];
    let mut packets = Vec::new();
    for (packet, length) in burst.packets(transport, to, mtu) {
        let (payload, behind) = rest.split_at(length as usize);
        rest = behind;
        packets.push(Packet { payload, ..packet });
    }
    assert!(rest.is_empty(), "more data than the burst carries");
    if io.send_answer(&packets) { reply } else { Reply::Silence }
}

/// What a READ brings, in the order of its bytes.
struct Fetched<'a, I> {
    io: &'a I,
    first: Psn,
    bytes: Vec<u8>,
}

impl<I: Io> Sink for Fetched<'_, I> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let bytes = self.io.read(self.first, offset, at).ok_or(CopyError::Far)?;
        self.bytes.resize(offset as usize, 0);
        self.bytes.extend(bytes);
        Ok(())
    }
}
