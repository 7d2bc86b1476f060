//! The packets that a network would have carried for the segments of a link without packets.
//!
//! A link hands over a message in a few large segments and numbers messages; a network has packets of
//! the path MTU and numbers those. So each connection's packets are counted here from its first
//! message on, which both sides number alike. Messages are remembered until they are answered: one
//! that is sent again has the PSNs that it had.

use std::collections::{HashMap, VecDeque};

use super::Answered;
use transom_device::execution::{Reply, Request};
use transom_device::qp::{QpNumber, Service};
use transom_device::queue::{Body, Remote};
use transom_wire::packet::{Aeth, Ending, Operation, Packet, Reth, Transport};
use transom_wire::{Psn, Syndrome};

/// Path MTU where none was set: that of the port, which datagrams have.
const PORT_MTU: u64 = 4096;
/// The partition that everybody is in.
const PKEY: u16 = 0xffff;

/// The packets of every queue pair that sends, by its number.
#[derive(Debug, Default)]
pub(super) struct Streams(HashMap<u32, Stream>);

/// The packets of one queue pair that sends, and the answers to them.
#[derive(Debug)]
struct Stream {
    mtu: u64,
    /// The number of the message that comes next, and its first PSN.
    next: Option<(Psn, Psn)>,
    /// Messages that have begun and are not answered, in order.
    begun: VecDeque<Message>,
    /// Messages that the responder has completed.
    completed: u32,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    number: Psn,
    attempt: u16,
    first: Psn,
    body: Body,
    transport: Transport,
    /// Bytes of all its segments but the last.
    segment: u64,
    total: u64,
    /// Bytes whose segments are answered.
    answered: u64,
}

impl Streams {
    /// The queue pair of this number is connected anew, with this path MTU in bytes.
    pub(super) fn connect(&mut self, from: QpNumber, mtu: u64) {
        self.0.insert(from.bits(), Stream::new(mtu));
    }

    /// The packets of a segment, whose bytes are `data`, in order.
    pub(super) fn request(
        &mut self,
        request: &Request,
        data: &[u8],
        each: &mut dyn FnMut(&Packet<'_>),
    ) {
        let stream = self.0.entry(request.from.bits()).or_insert_with(|| Stream::new(PORT_MTU));
        stream.request(request, data, each);
    }

    /// The packets of an answer; `data` is what a READ returns.
    pub(super) fn answer(
        &mut self,
        answer: &Answered,
        data: &[u8],
        each: &mut dyn FnMut(&Packet<'_>),
    ) {
        if let Some(stream) = self.0.get_mut(&answer.from.bits()) {
            stream.answer(answer, data, each);
        }
    }
}

impl Stream {
    fn new(mtu: u64) -> Self {
        Self { mtu, next: None, begun: VecDeque::new(), completed: 0 }
    }

    fn request(&mut self, request: &Request, data: &[u8], each: &mut dyn FnMut(&Packet<'_>)) {
        let message = self.message(request);
        let (reliable, last) = (request.service.is_reliable(), request.is_last());
        let packet = Packet {
            transport: message.transport,
            operation: Operation::SendMiddle,
            solicited: false,
            migrated: true,
            pkey: PKEY,
            fecn: false,
            becn: false,
            to: request.to.bits(),
            ack_request: false,
            psn: message.first,
            payload: &[],
        };
        let whole = |operation, payload| Packet { operation, payload, ack_request: true, ..packet };
        let reth = |address, key: transom_device::protection::Key, length| Reth {
            address,
            key: key.0,
            length,
        };
        let all = message.total as u32;
        match request.body {
            // Asked for at once, whatever the link's segments.
            Body::Read { .. } if request.offset > 0 => {}
            Body::Read { address, key } => {
                each(&whole(Operation::ReadRequest(reth(address, key, all)), &[]));
            }
            Body::CompareSwap { address, key, swap, compare } => {
                each(&whole(Operation::CompareSwap { address, key: key.0, swap, compare }, &[]));
            }
            Body::FetchAdd { address, key, add } => {
                each(&whole(Operation::FetchAdd { address, key: key.0, add }, &[]));
            }
            Body::AtomicWrite { address, key } => {
                each(&whole(Operation::AtomicWrite(reth(address, key, all)), data));
            }
            Body::Flush { address, key, length, placement, whole: all } => {
                let (placement, selectivity) = (placement.bits(), u8::from(all));
                let reth = reth(address, key, length);
                each(&whole(Operation::Flush { placement, selectivity, reth }, &[]));
            }
            Body::Send | Body::SendImmediate(_) | Body::SendInvalidate(_) | Body::Write { .. } => {
                for (at, payload) in self.pieces(request.offset, data) {
                    let ends =
                        last && at + payload.len() as u64 == request.offset + data.len() as u64;
                    let tells = !matches!(request.body, Body::Write { immediate: None, .. });
                    each(&Packet {
                        operation: operation(&request.body, all, at == 0, ends),
                        solicited: request.solicited && ends && tells,
                        ack_request: reliable && ends,
                        psn: self.psn(&message, at),
                        payload,
                        ..packet
                    });
                }
            }
        }
        if !reliable && last {
            self.begun.clear();
        }
    }

    /// The message of a segment: begun with it, or known.
    fn message(&mut self, request: &Request) -> Message {
        let known = self.begun.iter_mut().find(|message| message.number == request.message);
        if let Some(message) = known {
            if message.attempt != request.attempt {
                message.attempt = request.attempt;
                message.answered = 0;
            }
            return *message;
        }
        let (_, first) = self.next.filter(|(number, _)| *number == request.message).unwrap_or((
            request.message,
            // The first PSN is the number of the first message. Messages that were not seen in
            // between count as one packet each.
            self.next.map_or(request.message, |(number, psn)| {
                psn.plus(request.message.value().wrapping_sub(number.value()))
            }),
        ));
        let transport = match request.remote {
            Remote::Datagram(datagram) => {
                Transport::Ud { qkey: datagram.qkey, source: request.from.bits() }
            }
            Remote::Srq(srq) => Transport::Xrc { srq },
            Remote::Connected if request.service == Service::Uc => Transport::Uc,
            Remote::Connected => Transport::Rc,
        };
        let message = Message {
            number: request.message,
            attempt: request.attempt,
            first,
            body: request.body,
            transport,
            segment: request.length,
            total: request.total,
            answered: 0,
        };
        let packets = match request.body {
            Body::Send
            | Body::SendImmediate(_)
            | Body::SendInvalidate(_)
            | Body::Write { .. }
            | Body::Read { .. } => request.total.div_ceil(self.mtu).max(1),
            _ => 1,
        };
        self.next = Some((request.message.plus(1), first.plus(packets as u32)));
        self.begun.push_back(message);
        message
    }

    /// The payloads of packets with the bytes of a segment, and where in the message each begins.
    fn pieces<'a>(&self, offset: u64, data: &'a [u8]) -> impl Iterator<Item = (u64, &'a [u8])> {
        let mtu = self.mtu as usize;
        // Nothing at all is one packet too.
        let count = data.len().div_ceil(mtu).max(1);
        (0..count).map(move |index| {
            let (start, end) = (index * mtu, ((index + 1) * mtu).min(data.len()));
            (offset + start as u64, &data[start..end])
        })
    }

    /// The PSN of the packet that has the byte at `at`.
    fn psn(&self, message: &Message, at: u64) -> Psn {
        message.first.plus((at / self.mtu) as u32)
    }

    fn answer(&mut self, answer: &Answered, data: &[u8], each: &mut dyn FnMut(&Packet<'_>)) {
        let of = (answer.message, answer.attempt);
        let known = |message: &Message| (message.number, message.attempt) == of;
        let Some(place) = self.begun.iter().position(known) else { return };
        let message = self.begun[place];
        let reply = answer.reply;
        let answered = match reply {
            Reply::Silence => message.answered + message.segment,
            Reply::Data { length } => message.answered + length,
            _ => message.answered,
        };
        let done = match reply {
            Reply::Ack | Reply::Atomic(_) => true,
            Reply::Data { .. } => answered >= message.total,
            _ => false,
        };
        // A READ counts when it is accepted (rule PSN-20).
        let counts = done && !matches!(reply, Reply::Data { .. })
            || matches!(reply, Reply::Data { .. }) && message.answered == 0;
        self.completed = (self.completed + u32::from(counts)) & 0xff_ffff;
        self.packets(answer.from, &message, reply, data, each);
        self.begun[place].answered = answered.min(message.total);
        if done {
            self.begun.drain(..=place);
        }
    }

    /// The packets of an answer to a message.
    fn packets(
        &self,
        from: QpNumber,
        message: &Message,
        reply: Reply,
        data: &[u8],
        each: &mut dyn FnMut(&Packet<'_>),
    ) {
        let aeth = |syndrome: Syndrome| Aeth { byte: syndrome.to_byte(), msn: self.completed };
        let accepted = aeth(Syndrome::Ack { credits: 0x1f });
        let transport = match message.transport {
            Transport::Xrc { .. } => Transport::Xrc { srq: 0 },
            other => other,
        };
        let packet = |operation, psn, payload| Packet {
            transport,
            operation,
            solicited: false,
            migrated: true,
            pkey: PKEY,
            fecn: false,
            becn: false,
            to: from.bits(),
            ack_request: false,
            psn,
            payload,
        };
        let here = self.psn(message, message.answered);
        let end = self.psn(message, message.total.saturating_sub(1));
        match reply {
            Reply::Ack => each(&packet(Operation::Acknowledge(accepted), end, &[])),
            Reply::Atomic(old) => {
                let answer = Operation::AtomicAcknowledge { aeth: accepted, old };
                each(&packet(answer, message.first, &[]));
            }
            Reply::Data { .. } => {
                for (at, payload) in self.pieces(message.answered, data) {
                    let last = at + payload.len() as u64 >= message.total;
                    let operation = match (at == 0, last) {
                        (true, true) => Operation::ReadResponseOnly(accepted),
                        (true, false) => Operation::ReadResponseFirst(accepted),
                        (false, true) => Operation::ReadResponseLast(accepted),
                        (false, false) => Operation::ReadResponseMiddle,
                    };
                    each(&packet(operation, self.psn(message, at), payload));
                }
            }
            Reply::NotReady(timer) => {
                // A WRITE with immediate data wants its receive with its last packet.
                let write = matches!(message.body, Body::Write { .. });
                let psn = if write { end } else { here };
                let syndrome = Syndrome::RnrNak(timer);
                each(&packet(Operation::Acknowledge(aeth(syndrome)), psn, &[]));
            }
            Reply::Nak { code, .. } => {
                let syndrome = Syndrome::Nak(code);
                each(&packet(Operation::Acknowledge(aeth(syndrome)), here, &[]));
            }
            Reply::Silence | Reply::Dropped | Reply::OriginFailed => {}
        }
    }
}

/// The operation of a packet of a SEND or WRITE.
fn operation(body: &Body, total: u32, first: bool, last: bool) -> Operation {
    // Immediate data is kept as it is in memory; its bytes in that order are those on the wire.
    let network = |immediate: u32| u32::from_be_bytes(immediate.to_ne_bytes());
    match *body {
        Body::Write { address, key, immediate } => {
            let reth = Reth { address, key: key.0, length: total };
            let immediate = immediate.map(network);
            match (first, last) {
                (true, true) => Operation::WriteOnly { reth, immediate },
                (true, false) => Operation::WriteFirst(reth),
                (false, true) => Operation::WriteLast { immediate },
                (false, false) => Operation::WriteMiddle,
            }
        }
        body => {
            let ending = match body {
                Body::SendImmediate(immediate) => Ending::Immediate(network(immediate)),
                Body::SendInvalidate(key) => Ending::Invalidate(key.0),
                _ => Ending::Plain,
            };
            match (first, last) {
                (true, true) => Operation::SendOnly(ending),
                (true, false) => Operation::SendFirst,
                (false, true) => Operation::SendLast(ending),
                (false, false) => Operation::SendMiddle,
            }
        }
    }
}
