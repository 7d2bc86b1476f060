//! The packets that a network would have carried for the segments of a link without packets.
//!
//! A link hands over a message in a few large segments and numbers messages. A network has packets of the path MTU and
//! numbers packets. So each connection's packets are counted here from its first message, which both sides number
//! alike. A message is remembered until it is answered, so that it has the same PSNs when it is sent again.

use std::collections::{HashMap, VecDeque};

use transom_device::execution::{MAX_DATAGRAM, Reply, Request, packets};
use transom_device::operation::Data;
use transom_device::qp::{QpNumber, Service};
use transom_device::queue::{Body, Remote};
use transom_device::transport::ResponseBurst;
use transom_device::transport::burst::Burst;
use transom_net::Path;
use transom_system::addresses::LOOPBACK;
use transom_wire::packet::{Aeth, Operation, Packet, Transport};
use transom_wire::{Psn, Syndrome};

use crate::device::Answered;

/// The most messages of a queue pair that are remembered: more than a send queue holds.
const MOST_BEGUN: usize = 1 << 16;

/// The packets of every queue pair that sends, by its number.
#[derive(Debug, Default)]
pub(super) struct Streams(HashMap<u32, Stream>);

/// The packets of one queue pair that sends, and the answers to them.
#[derive(Debug)]
struct Stream {
    path: Path,
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
    attempt: u64,
    first: Psn,
    body: Body,
    /// It is one of XRC.
    xrc: bool,
    /// The length of each of its segments but the last, in bytes.
    segment: u64,
    total: u64,
    /// How many bytes are answered, in whole segments.
    answered: u64,
}

impl Streams {
    /// The queue pair of this number has been connected anew, by this path.
    pub(super) fn connect(&mut self, from: QpNumber, path: Path) {
        self.0.insert(from.bits(), Stream::new(path));
    }

    /// The packets of a segment, whose bytes are `data`, in order.
    pub(super) fn request(
        &mut self,
        request: &Request,
        data: &[u8],
        each: &mut dyn FnMut(&Path, &Packet<'_>),
    ) {
        let stream = self
            .0
            .entry(request.from.bits())
            .or_insert_with(|| Stream::new(Path::new(&LOOPBACK, request.from, MAX_DATAGRAM)));
        stream.request(request, data, each);
    }

    /// The packets of an answer; `data` is what a READ returns.
    pub(super) fn answer(
        &mut self,
        answer: &Answered,
        data: &[u8],
        each: &mut dyn FnMut(&Path, &Packet<'_>),
    ) {
        if let Some(stream) = self.0.get_mut(&answer.from.bits()) {
            stream.answer(answer, data, each);
        }
    }
}

impl Stream {
    fn new(path: Path) -> Self {
        Self { path, next: None, begun: VecDeque::new(), completed: 0 }
    }

    fn request(
        &mut self,
        request: &Request,
        data: &[u8],
        each: &mut dyn FnMut(&Path, &Packet<'_>),
    ) {
        let message = self.message(request);
        let psn = self.psn(&message, request.offset);
        let segment = match request.body {
            // The packet network asks for all of it at once, whatever the link's segments are.
            Body::Read { .. } if request.offset > 0 => return,
            Body::Read { .. } => Request { message: psn, length: request.total, ..*request },
            _ => Request { message: psn, ..*request },
        };
        let path = match &request.remote {
            Remote::Datagram(to) => Path::new(&to.address, request.from, MAX_DATAGRAM),
            _ => self.path,
        };
        for part in Burst::new(&segment, path.mtu) {
            let packet = part.packet;
            let ack_request = packet.ack_request && request.is_last();
            each(&path, &Packet { payload: &data[part.payload], ack_request, ..packet });
        }
        if !request.service.is_reliable() && request.is_last() {
            self.begun.clear();
        }
    }

    /// The message of a segment: a new one if the segment begins it, else the one already known.
    fn message(&mut self, request: &Request) -> Message {
        let known = self.begun.iter_mut().find(|message| message.number == request.message);
        if let Some(message) = known {
            if message.attempt != request.attempt {
                message.attempt = request.attempt;
                message.answered = 0;
            }
            return *message;
        }
        // The first PSN is the number of the first message. Each message in between that was not seen counts as one
        // packet.
        let first = self.next.map_or(request.message, |(number, psn)| {
            psn.plus(request.message.value().wrapping_sub(number.value()))
        });
        let message = Message {
            number: request.message,
            attempt: request.attempt,
            first,
            body: request.body,
            xrc: request.service == Service::XrcInitiator,
            segment: request.length,
            total: request.total,
            answered: 0,
        };
        let packets = match request.body.operation().needs().data {
            Data::Sent | Data::Fetched => packets(request.total, self.path.mtu),
            Data::None | Data::OldValue => 1,
        };
        self.next = Some((request.message.plus(1), first.plus(packets)));
        if self.begun.len() == MOST_BEGUN {
            self.begun.pop_front();
        }
        self.begun.push_back(message);
        message
    }

    /// The PSN of the packet that has the byte at `at`.
    fn psn(&self, message: &Message, at: u64) -> Psn {
        message.first.plus((at / self.path.mtu) as u32)
    }

    fn answer(&mut self, answer: &Answered, data: &[u8], each: &mut dyn FnMut(&Path, &Packet<'_>)) {
        let of = (answer.message, answer.attempt);
        let known = |message: &Message| (message.number, message.attempt) == of;
        let Some(position) = self.begun.iter().position(known) else { return };
        let message = self.begun[position];
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
        self.packets(answer, &message, data, each);
        self.begun[position].answered = answered.min(message.total);
        if done {
            self.begun.drain(..=position);
        }
    }

    /// The packets of an answer to a message.
    fn packets(
        &self,
        answer: &Answered,
        message: &Message,
        data: &[u8],
        each: &mut dyn FnMut(&Path, &Packet<'_>),
    ) {
        let aeth = |syndrome: Syndrome| Aeth { byte: syndrome.to_byte(), msn: self.completed };
        let accepted = aeth(Syndrome::Ack { credits: 0x1f });
        let transport = if message.xrc { Transport::Xrc { srq: 0 } } else { Transport::Rc };
        let packet = |operation, psn| Packet::new(transport, operation, answer.from.bits(), psn);
        let path = self.path.back(answer.to);
        let here = self.psn(message, message.answered);
        let end = self.psn(message, message.total.saturating_sub(1));
        match answer.reply {
            Reply::Ack => each(&path, &packet(Operation::Acknowledge(accepted), end)),
            Reply::Atomic(old) => {
                let answer = Operation::AtomicAcknowledge { aeth: accepted, old };
                each(&path, &packet(answer, message.first));
            }
            Reply::Data { length } => {
                let burst = ResponseBurst {
                    psn: here,
                    length,
                    begins: message.answered == 0,
                    ends: message.answered + length >= message.total,
                    msn: self.completed,
                };
                let mut rest = data;
                for (packet, length) in burst.packets(transport, answer.from.bits(), self.path.mtu)
                {
                    let (payload, later) = rest.split_at(length as usize);
                    each(&path, &Packet { payload, ..packet });
                    rest = later;
                }
            }
            Reply::NotReady(timer) => {
                // A WRITE with immediate data takes its receive with its last packet.
                let write = matches!(message.body, Body::Write { .. });
                let psn = if write { end } else { here };
                let syndrome = Syndrome::RnrNak(timer);
                each(&path, &packet(Operation::Acknowledge(aeth(syndrome)), psn));
            }
            Reply::Nak { code, .. } => {
                let syndrome = Syndrome::Nak(code);
                each(&path, &packet(Operation::Acknowledge(aeth(syndrome)), here));
            }
            Reply::Silence | Reply::Dropped | Reply::OriginFailed => {}
        }
    }
}
