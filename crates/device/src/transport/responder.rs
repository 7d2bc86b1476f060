//! The responder of a link that carries packets: stands between the packets and the
//! [`Responder`], which carries out segments.
//!
//! It puts packets in order and into messages, merges packets that came together into segments, and answers:
//! acknowledgements, READ responses, NAKs. Nothing is carried out twice. For a repeated atomic the kept result is sent
//! again; a repeated SEND or WRITE is acknowledged again.
//!
//! READs are checked when they come. Their data goes out as the link has room, before later requests are carried out if
//! there is room enough (rule ORD-09). If not, later SENDs, WRITEs and atomics are carried out meanwhile (rule ORD-08),
//! and their answers wait. A request that invalidates a key waits itself (rule ORD-19).

mod acks;
mod answer;
mod carry_out;
mod resources;
mod segment;
mod unreliable;

use transom_wire::Psn;
use transom_wire::grh::Route;
use transom_wire::packet::{DEFAULT_PKEY, Packet};

use self::acks::AckState;
use self::resources::ResponderResources;
use self::segment::Message;
use crate::execution::{
    Context, CopyError, MAX_DATAGRAM, Process, Responder, Segmentation, Sink, Tally, Unheard,
};
use crate::protection::Grant;
use crate::qp::{QpSummary, Service};
use crate::queue::SizeError;

/// The part of a partition key that both ends share: all but the bit for full members (rule PK-14).
const MEMBERS: u16 = 0x7fff;

/// The responder's half of what packets need, beside the [`Responder`].
pub struct PacketResponder {
    service: Service,
    /// How much the link takes.
    pub link: Segmentation,
    /// The extended PSN of the packet that comes next in the stream of all requests: a packet sequence
    /// number that does not wrap. Its low 24 bits are the PSN.
    expected_psn: u64,
    /// The extended PSN of the first packet: nothing has come before it.
    first: u64,
    /// The SEND or WRITE under way.
    message: Option<Message>,
    /// Messages completed (rule PSN-20).
    msn: u32,
    resources: ResponderResources,
    acks: AckState,
}

/// The extended PSN of the first packet: high enough that packets from before the beginning have numbers too.
fn beginning(psn: Psn) -> u64 {
    1 << 32 | u64::from(psn.value())
}

impl PacketResponder {
    /// For a queue pair of this service, which receives nothing before it is started.
    pub fn new(service: Service) -> Self {
        Self {
            service,
            link: Segmentation::default(),
            expected_psn: 0,
            first: 0,
            message: None,
            msn: 0,
            resources: ResponderResources::default(),
            acks: AckState::default(),
        }
    }

    /// Begins to receive: the first packet will carry `first`.
    pub fn start(&mut self, first: Psn) {
        self.reset();
        self.first = beginning(first);
        self.expected_psn = self.first;
    }

    /// Keeps the last `resources` READs and atomics from now on, as many as `max_dest_rd_atomic` can become
    /// (rule PSN-16). They take some kilobytes, which only a link that carries packets needs.
    pub fn keep(&mut self, resources: u8) -> Result<(), SizeError> {
        self.resources.keep(usize::from(resources))
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.message = None;
        self.msn = 0;
        self.resources.clear();
        self.acks = AckState::default();
    }

    /// Whether no answer waits for the link.
    pub fn is_idle(&self) -> bool {
        !self.resources.has_pending()
    }

    /// Takes the first of these packets, which came together by the way `from`, and with it those that go
    /// with it; says how many. Before that and after the last of them, what
    /// [`PacketResponder::next_answer`] has goes out, and [`PacketResponder::acknowledge`] comes last.
    pub fn take<P: Process>(
        &mut self,
        responder: &mut Responder,
        packets: &[Packet<'_>],
        from: &Route,
        cx: &mut Context<'_, P>,
    ) -> usize {
        let Some(packet) = packets.first() else { return 0 };
        match self.service {
            _ if !self.admits(packet, cx.summary) => {
                let gate = cx.summary.gate();
                if !gate.receives() {
                    cx.process.note_unheard(cx.summary.peering().from, Unheard::Deaf(gate.state));
                }
                1
            }
            Service::Ud => self.receive_datagram(responder, packet, from, cx),
            Service::Uc => self.receive_unreliable(responder, packets, cx),
            _ => self.receive_reliable(responder, packets, cx),
        }
    }

    /// The path MTU, or how long a datagram may be.
    fn mtu(&self) -> u64 {
        self.link.mtu.unwrap_or(MAX_DATAGRAM)
    }

    /// Whether a packet is a request for this queue pair, now (rules RA-03, OP-32, PK-14). Others
    /// are dropped without a trace.
    fn admits(&self, packet: &Packet<'_>, summary: &QpSummary) -> bool {
        self.service.serves(&packet.transport)
            && self.service != Service::XrcInitiator
            && !packet.operation.is_for_requester()
            && packet.pkey & MEMBERS == DEFAULT_PKEY & MEMBERS
            && summary.gate().receives()
    }

    /// The extended PSN of a packet: the one with its number that is closest to the expected one.
    fn extend(&self, psn: Psn) -> u64 {
        let ahead = u64::from(psn.value()).wrapping_sub(self.expected_psn) & 0xff_ffff;
        if ahead < 1 << 23 {
            self.expected_psn + ahead
        } else {
            self.expected_psn + ahead - (1 << 24)
        }
    }

    /// Takes the first of these packets of a reliable connection, and with it what goes with it;
    /// answers how many.
    fn receive_reliable<P: Process>(
        &mut self,
        responder: &mut Responder,
        packets: &[Packet<'_>],
        cx: &mut Context<'_, P>,
    ) -> usize {
        let packet = &packets[0];
        let extended_psn = self.extend(packet.psn);
        // Nothing came before the first, so its sender counts in another way (rule PSN-02).
        if extended_psn < self.first {
            self.note_other_psn(packet, cx);
            return 1;
        }
        if extended_psn < self.expected_psn {
            cx.process.tally(Tally::Duplicate, 1);
            self.take_again(extended_psn, packet);
            return 1;
        }
        if extended_psn > self.expected_psn {
            cx.process.tally(Tally::OutOfSequence, 1);
            if self.expected_psn == self.first {
                self.note_other_psn(packet, cx);
            }
            if self.acks.note_early(extended_psn) {
                // The NAK says as much, but to rxe only an acknowledgement is progress: without
                // one it takes no second NAK and counts its retries on. Of a READ or an atomic it
                // would take one for the answer, and for the data whatever lies there.
                let before = self.expected_psn - 1;
                if before >= self.first && !self.resources.holds(before) {
                    self.acks.owe(before);
                }
            }
            return 1;
        }
        self.acks.resume();
        if segment::carries_data(&packet.operation) {
            return self.take_segment(responder, packets, cx);
        }
        self.take_other(responder, packet, cx);
        1
    }

    /// Nothing that came has had the number of the first packet.
    #[cold]
    fn note_other_psn<P: Process>(&self, packet: &Packet<'_>, cx: &Context<'_, P>) {
        let (awaited, came) = (self.first as u32 & 0xff_ffff, packet.psn.value());
        cx.process.note_unheard(cx.summary.peering().from, Unheard::OtherPsn { awaited, came });
    }

    /// A packet that has come before (rules PSN-12 to PSN-15).
    fn take_again(&mut self, extended_psn: u64, packet: &Packet<'_>) {
        if segment::carries_data(&packet.operation) {
            // Under the number of a READ or an atomic it cannot have come before.
            if !self.resources.holds(extended_psn) {
                self.acks.owe(extended_psn);
            }
        } else {
            self.resources.answer_again(extended_psn, &packet.operation, self.mtu());
        }
    }
}

/// A sink for requests that return no data.
struct Nowhere;

impl Sink for Nowhere {
    fn copy_from(&mut self, _offset: u64, _at: &Grant<'_>) -> Result<(), CopyError> {
        Err(CopyError::Far)
    }
}
