//! The responder of a link that carries packets: stands between the packets and the
//! [`Responder`](crate::execution::Responder), which carries out segments.
//!
//! It puts packets in order and in messages, merges what came together into segments, and answers:
//! acknowledgements, READ responses, NAKs. What has been carried out is carried out once: of an
//! atomic that comes again the kept result is sent again, a SEND or WRITE is acknowledged again.
//!
//! READs are checked when they come; their data goes out as the link has room, before anything that
//! comes later is carried out if there is room enough. If not, later SENDs, WRITEs and atomics are
//! carried out meanwhile (rule ORD-08), and their answers wait; one that invalidates a key waits
//! itself (rule ORD-19).

mod answer;
mod arrival;
mod kept;
mod segment;
mod unreliable;

use core::cell::Cell;

use transom_wire::grh::Route;
use transom_wire::packet::{Operation as Op, Packet, Reth, Transport};
use transom_wire::{NakCode, Psn};

use self::arrival::Arrival;
use self::kept::{Answer, Kept, KeptRequests};
use self::segment::{Message, Payloads, Segment};
use super::Outlet;
use crate::execution::{Bytes, CopyError, MAX_MESSAGE, Reply, Request, Responder, Sink};
use crate::protection::{Grant, Key, Operation, Reason};
use crate::qp::Service;
use crate::queue::{Body, Placement, Remote, SizeError};

/// The partition that every queue pair is a full member of; the top bit says so (rule PK-14).
const PKEY: u16 = 0xffff;

/// The bit of FLUSH's selectivity that asks for the whole region.
const WHOLE_REGION: u8 = 1;

/// The responder's half of what packets need, beside the [`Responder`].
pub struct PacketResponder {
    service: Service,
    /// The place of the packet that comes next in the stream of all requests: a packet sequence
    /// number that does not wrap. Its low 24 bits are the PSN.
    expected: u64,
    /// The SEND or WRITE under way.
    message: Option<Message>,
    /// Messages completed (rule PSN-20).
    msn: u32,
    kept: KeptRequests,
    /// The packet up to which an acknowledgement is due.
    due: Option<u64>,
    /// The last packet that was dropped though it was in the future: it is to be sent again.
    lost: Option<u64>,
    /// The origin has been told to go back: nothing more is said until it does (rule PSN-11).
    silent: bool,
}

impl PacketResponder {
    /// For a queue pair of this service, which receives nothing before it is started.
    pub fn new(service: Service) -> Self {
        Self {
            service,
            expected: 0,
            message: None,
            msn: 0,
            kept: KeptRequests::default(),
            due: None,
            lost: None,
            silent: false,
        }
    }

    /// Begins to receive: the first packet will carry `first`. It keeps the last `resources` READs
    /// and atomics, as many as `max_dest_rd_atomic` can become (rule PSN-16).
    pub fn start(&mut self, first: Psn, resources: u8) -> Result<(), SizeError> {
        self.reset();
        // High enough that packets from before the beginning have places too.
        self.expected = 1 << 32 | u64::from(first.value());
        self.kept.start(usize::from(resources))
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.message = None;
        self.msn = 0;
        self.kept.clear();
        (self.due, self.lost, self.silent) = (None, None, false);
    }

    /// Whether it owes no answer that waits for the link.
    pub fn is_idle(&self) -> bool {
        !self.kept.owes()
    }

    /// Takes the requests of one train that are for this queue pair, in the order they came;
    /// `from` is their way here.
    pub fn receive<S: Outlet>(
        &mut self,
        responder: &mut Responder,
        packets: &[Packet<'_>],
        from: &Route,
        outlet: &S,
    ) {
        let mut rest = packets;
        while let Some(packet) = rest.first() {
            let taken = match self.service {
                _ if !self.admits(packet, outlet) => 1,
                Service::Ud => self.receive_datagram(responder, packet, from, outlet),
                Service::Uc => self.receive_unreliable(responder, rest, from, outlet),
                _ => self.receive_reliable(responder, rest, from, outlet),
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.advance(responder, outlet);
    }

    /// Whether a packet is a request for this queue pair, now (rules RA-03, OP-32, PK-14). Others
    /// are dropped without a trace.
    fn admits<S: Outlet>(&self, packet: &Packet<'_>, outlet: &S) -> bool {
        let service = match packet.transport {
            Transport::Rc => Service::Rc,
            Transport::Uc => Service::Uc,
            Transport::Ud { .. } => Service::Ud,
            Transport::Xrc { .. } => Service::XrcTarget,
        };
        let request = !matches!(
            packet.operation,
            Op::ReadResponseFirst(_)
                | Op::ReadResponseMiddle
                | Op::ReadResponseLast(_)
                | Op::ReadResponseOnly(_)
                | Op::Acknowledge(_)
                | Op::AtomicAcknowledge { .. }
                | Op::Congestion
        );
        service == self.service
            && request
            && packet.pkey & 0x7fff == PKEY & 0x7fff
            && outlet.summary().gate().receives()
    }

    /// The place of a packet: the one with its number that is closest to what is expected.
    fn place_of(&self, psn: Psn) -> u64 {
        let ahead = u64::from(psn.value()).wrapping_sub(self.expected) & 0xff_ffff;
        if ahead < 1 << 23 { self.expected + ahead } else { self.expected + ahead - (1 << 24) }
    }

    /// Takes the first of these packets of a reliable connection, and with it what goes with it;
    /// answers how many.
    fn receive_reliable<S: Outlet>(
        &mut self,
        responder: &mut Responder,
        packets: &[Packet<'_>],
        from: &Route,
        outlet: &S,
    ) -> usize {
        let packet = &packets[0];
        let place = self.place_of(packet.psn);
        if place < self.expected {
            self.take_again(place, packet, outlet);
            return 1;
        }
        if place > self.expected {
            if !self.silent {
                self.lost = self.lost.max(Some(place));
            }
            return 1;
        }
        self.silent = false;
        if segment::carries_data(&packet.operation) {
            return self.take_segment(responder, packets, from, outlet);
        }
        self.take_other(responder, packet, outlet);
        // Before anything later is carried out, as far as there is room (rule ORD-09).
        self.answer(responder, outlet);
        1
    }

    /// A packet that has come before (rules PSN-12 to PSN-15).
    fn take_again<S: Outlet>(&mut self, place: u64, packet: &Packet<'_>, outlet: &S) {
        if segment::carries_data(&packet.operation) {
            self.due = self.due.max(Some(place));
        } else {
            self.kept.answer_again(place, &packet.operation, outlet.response_mtu());
        }
    }

    /// Takes the next packets of a SEND or WRITE; answers how many.
    fn take_segment<S: Outlet>(
        &mut self,
        responder: &mut Responder,
        packets: &[Packet<'_>],
        from: &Route,
        outlet: &S,
    ) -> usize {
        let admits = |packet: &Packet<'_>| self.admits(packet, outlet);
        let mtu = outlet.response_mtu();
        let segment = match Segment::gather(self.message, packets, mtu, admits) {
            Ok(segment) => segment,
            Err(reason) => {
                self.reject(responder, &packets[0], reason, outlet);
                return 1;
            }
        };
        let count = segment.packets as usize;
        if matches!(segment.body, Body::SendInvalidate(_)) && self.kept.owes() {
            self.hold_back();
            return count;
        }
        let last = self.expected + u64::from(segment.packets) - 1;
        let acknowledgement = segment.asked && !self.kept.owes();
        let arrival = Arrival {
            outlet,
            acknowledgement: Cell::new(
                acknowledgement.then(|| self.acknowledgement(last, self.msn + 1, outlet)),
            ),
        };
        let mut payloads = Payloads { packets: &packets[..count], services: outlet };
        let request = self.segment_request(responder, &packets[0], &segment, outlet);
        match responder.execute(&request, &mut payloads, &mut Nowhere, &arrival) {
            Reply::Ack => {
                self.message = None;
                self.msn = next_msn(self.msn);
            }
            Reply::Silence => self.message = Some(segment.message),
            other => {
                self.turn_down(other, outlet);
                return count;
            }
        }
        let sent = acknowledgement && arrival.acknowledgement.take().is_none();
        self.expected = last + 1;
        if segment.asked {
            self.due = if sent { None } else { Some(last) };
        }
        count
    }

    /// A segment, as execution names it.
    fn segment_request<S: Outlet>(
        &self,
        responder: &Responder,
        packet: &Packet<'_>,
        segment: &Segment,
        outlet: &S,
    ) -> Request {
        let open = if segment.ends { segment.message.length } else { Request::OPEN };
        Request {
            offset: segment.offset,
            length: segment.length(),
            total: segment.message.total().unwrap_or(open),
            solicited: segment.solicited,
            ..self.request(responder, remote(packet.transport), segment.body, outlet)
        }
    }

    /// A request of no bytes.
    fn request<S: Outlet>(
        &self,
        responder: &Responder,
        remote: Remote,
        body: Body,
        outlet: &S,
    ) -> Request {
        Request {
            to: outlet.number(),
            from: outlet.summary().peering().from,
            service: match self.service {
                Service::XrcTarget => Service::XrcInitiator,
                other => other,
            },
            remote,
            message: responder.expected(outlet),
            attempt: 0,
            body,
            offset: 0,
            length: 0,
            total: 0,
            solicited: false,
        }
    }

    /// Takes the next packet if it is a request that is one packet always: READ, atomics, FLUSH.
    fn take_other<S: Outlet>(
        &mut self,
        responder: &mut Responder,
        packet: &Packet<'_>,
        outlet: &S,
    ) {
        let (body, total) = match packet.operation {
            Op::ReadRequest(Reth { address, key, length }) => {
                (Body::Read { address, key: Key(key) }, u64::from(length))
            }
            Op::CompareSwap { address, key, swap, compare } => {
                (Body::CompareSwap { address, key: Key(key), swap, compare }, 8)
            }
            Op::FetchAdd { address, key, add } => {
                (Body::FetchAdd { address, key: Key(key), add }, 8)
            }
            Op::AtomicWrite(Reth { address, key, length }) => {
                (Body::AtomicWrite { address, key: Key(key) }, u64::from(length))
            }
            Op::Flush { placement, selectivity, reth: Reth { address, key, length } } => {
                let placement = Placement::from_bits_truncate(placement);
                let whole = selectivity & WHOLE_REGION != 0;
                (Body::Flush { address, key: Key(key), length, placement, whole }, 0)
            }
            _ => return self.reject(responder, packet, Reason::PacketOrder, outlet),
        };
        if self.message.is_some() {
            return self.reject(responder, packet, Reason::PacketOrder, outlet);
        }
        // More than the origin was told it may have under way; that it may have none is seen when
        // the request is carried out (rules RA-09, RA-10).
        let resources = usize::from(outlet.summary().gate().read_resources);
        if resources > 0 && self.kept.outstanding() >= resources.min(self.kept.capacity()) {
            return self.reject(responder, packet, Reason::NoReadResources, outlet);
        }
        let carried = if matches!(body, Body::AtomicWrite { .. }) { 8 } else { 0 };
        if packet.payload.len() != carried {
            return self.reject(responder, packet, Reason::PacketLength, outlet);
        }
        let remote = remote(packet.transport);
        let request = Request { total, ..self.request(responder, remote, body, outlet) };
        let reply = match body {
            Body::Read { address, key } => responder.accept_read(&request, address, key, outlet),
            _ => {
                let mut bytes = Bytes { bytes: packet.payload, services: outlet };
                responder.execute(&request, &mut bytes, &mut Nowhere, outlet)
            }
        };
        let answer = match (reply, body) {
            (Reply::Ack, Body::Read { address, key }) => {
                Answer::Data { address, key, length: total }
            }
            (Reply::Ack, _) => Answer::Done,
            (Reply::Atomic(old), _) => Answer::Old(old),
            (other, _) => return self.turn_down(other, outlet),
        };
        let packets = match answer {
            Answer::Data { length, .. } => packets_of(length, outlet.response_mtu()),
            _ => 1,
        };
        let srq = if let Remote::Srq(number) = remote { number } else { 0 };
        self.msn = next_msn(self.msn);
        self.kept.push(Kept::new(self.expected, packets, self.msn, srq, answer));
        self.expected += u64::from(packets);
    }

    /// Answers a packet that is wrong in itself or in its place.
    fn reject<S: Outlet>(
        &mut self,
        responder: &mut Responder,
        packet: &Packet<'_>,
        reason: Reason,
        outlet: &S,
    ) {
        let operation = match packet.operation {
            Op::WriteFirst(_) | Op::WriteMiddle | Op::WriteLast { .. } | Op::WriteOnly { .. } => {
                Operation::Write
            }
            Op::ReadRequest(_) => Operation::Read,
            Op::CompareSwap { .. } | Op::FetchAdd { .. } => Operation::Atomic,
            Op::AtomicWrite(_) => Operation::AtomicWrite,
            Op::Flush { .. } => Operation::Flush,
            _ => Operation::Send,
        };
        let reply = if operation == Operation::Send && reason == Reason::PacketLength {
            let request = self.request(responder, remote(packet.transport), Body::Send, outlet);
            let length = packet.payload.len() as u64;
            let request = Request { length, total: length, ..request };
            responder.reject_send(&request, outlet)
        } else {
            responder.reject(operation, reason, outlet)
        };
        self.turn_down(reply, outlet);
    }

    /// The next packet has not been carried out.
    fn turn_down<S: Outlet>(&mut self, reply: Reply, outlet: &S) {
        match reply {
            // The origin would take it for the loss of what it still waits for.
            Reply::NotReady(_) if self.kept.owes() => self.hold_back(),
            Reply::NotReady(timer) => self.answer_not_ready(timer, outlet),
            Reply::Nak { code, .. } => self.refuse(self.expected, code, outlet),
            _ => {}
        }
    }

    /// The next packet is to come again, when what is owed has gone out.
    fn hold_back(&mut self) {
        self.lost = self.lost.max(Some(self.expected));
    }

    /// The packet at this place is refused, and the queue pair in error.
    fn refuse<S: Outlet>(&mut self, place: u64, code: NakCode, outlet: &S) {
        self.message = None;
        (self.due, self.lost) = (None, None);
        self.kept.forget_owed();
        self.answer_refused(place, code, outlet);
    }
}

/// How many numbers a READ takes, which is how many packets its answer has (rule PSN-03).
fn packets_of(length: u64, mtu: u64) -> u32 {
    // Refused if longer, so 2^31 bytes are 2^23 packets of 256 bytes at most.
    length.min(MAX_MESSAGE).div_ceil(mtu.max(1)).max(1) as u32
}

fn next_msn(msn: u32) -> u32 {
    (msn + 1) & 0xff_ffff
}

/// Whom a request of this transport service is for.
fn remote(transport: Transport) -> Remote {
    match transport {
        Transport::Xrc { srq } => Remote::Srq(srq),
        _ => Remote::Connected,
    }
}

/// A sink for requests that return no data.
struct Nowhere;

impl Sink for Nowhere {
    fn copy_from(&mut self, _offset: u64, _at: &Grant<'_>) -> Result<(), CopyError> {
        Err(CopyError::Far)
    }
}
