//! A queue pair that receives packets, on its stage, and the packets it gets.

use transom_device::execution::{Effects, Receives, Responder, Segmentation};
use transom_device::protection::Key;
use transom_device::qp::Service;
use transom_device::queue::{ReceiveRequest, Sge};
use transom_device::transport::responder::PacketResponder;
use transom_wire::grh::{Route, map_ipv4};
use transom_wire::packet::{Ending, Operation as Op, Packet, Reth, Transport};
use transom_wire::{Psn, RnrTimer};

use super::{Answered, FIRST, HERE, MTU, QKEY, Stage};

/// A queue pair on its stage.
pub struct Target {
    /// What is around it.
    pub stage: Stage,
    /// What carries out segments.
    pub responder: Responder,
    /// What takes packets.
    pub packets: PacketResponder,
    effects: Effects,
    service: Service,
}

impl Target {
    /// A queue pair of this service that expects [`FIRST`].
    pub fn new(service: Service) -> Self {
        let stage = Stage::new(service);
        let receives = match service {
            Service::XrcTarget => Receives::Named,
            _ => Receives::Own { size: 16, max_sge: 2 },
        };
        let mut responder = Responder::new(service, receives, 2).expect("there is memory");
        responder.qkey = QKEY;
        responder.min_rnr_timer = RnrTimer::new(12).expect("a code");
        responder.start(Psn::new(FIRST), stage.summary());
        let mut packets = PacketResponder::new(service);
        packets.start(Psn::new(FIRST), 4).expect("there is memory");
        let effects = responder.effects().expect("there is memory");
        Self { stage, responder, packets, effects, service }
    }

    /// Posts a receive of `length` bytes at `address`, by this key.
    pub fn post_with(&mut self, wr_id: u64, address: u64, length: u32, key: Key) {
        let sges = [Sge { address, length, key: key.0 }];
        let request = ReceiveRequest { wr_id, sges: &sges };
        match self.service {
            Service::XrcTarget => self.stage.shared.borrow_mut().post(&request),
            _ => self.responder.post(&request, &mut self.stage.context(&mut self.effects)),
        }
        .expect("there is room");
        self.stage.settle(&mut self.effects);
    }

    /// Posts a receive of `length` bytes at `address`.
    pub fn post(&mut self, wr_id: u64, address: u64, length: u32) {
        self.post_with(wr_id, address, length, self.stage.region);
    }

    /// A burst of packets comes.
    pub fn receive(&mut self, packets: &[Packet<'_>]) {
        let mut rest = packets;
        while !rest.is_empty() {
            self.answer();
            let mut cx = self.stage.context(&mut self.effects);
            let taken = self.packets.take(&mut self.responder, rest, &ROUTE, &mut cx);
            self.stage.settle(&mut self.effects);
            rest = &rest[taken..];
        }
        self.advance();
    }

    /// Answers READs, atomics and others like them, as far as there is room.
    fn answer(&mut self) {
        let Self { stage, responder, packets, effects, .. } = self;
        let mtu = Some(MTU as u64);
        let most = stage.burst.get() * MTU as u64;
        packets.link = Segmentation { mtu, whole: most, part: most };
        loop {
            let next = packets.next_answer(stage.room.get(), &mut stage.context(effects));
            stage.settle(effects);
            let Some(answer) = next else { return };
            let reply = stage.send_answer(&answer, responder, effects);
            let more = packets.sent(&answer, reply, &mut stage.context(effects));
            stage.settle(effects);
            if !more {
                return;
            }
        }
    }

    /// Goes on with what waited for room.
    fn advance(&mut self) {
        self.answer();
        self.packets.acknowledge(&mut self.stage.context(&mut self.effects));
        self.stage.settle(&mut self.effects);
    }

    /// A packet comes by itself; what is answered to it.
    pub fn take(&mut self, packet: Packet<'_>) -> Vec<Answered> {
        self.receive(&[packet]);
        self.stage.sent()
    }

    /// The link has room for so many packets again.
    pub fn make_room(&mut self, room: usize) {
        self.stage.room.set(room);
        self.advance();
    }
}

/// The way that packets come.
pub const ROUTE: Route = Route {
    source: map_ipv4([10, 1, 2, 3]),
    destination: map_ipv4([10, 1, 2, 4]),
    traffic_class: 0x68,
    hop_limit: 63,
    flow_label: 0,
};

/// A packet of a reliable connection, the one `ahead` of the first; it asks for an acknowledgement.
pub fn packet(ahead: u32, operation: Op, payload: &[u8]) -> Packet<'_> {
    let psn = Psn::new(FIRST).plus(ahead);
    Packet { ack_request: true, payload, ..Packet::new(Transport::Rc, operation, HERE, psn) }
}

/// The same without asking for an acknowledgement.
pub fn unasked(ahead: u32, operation: Op, payload: &[u8]) -> Packet<'_> {
    Packet { ack_request: false, ..packet(ahead, operation, payload) }
}

/// A range for a WRITE, READ or FLUSH.
pub fn reth(address: u64, key: Key, length: usize) -> Reth {
    Reth { address, key: key.0, length: length as u32 }
}

/// A SEND of one packet.
pub const SEND: Op = Op::SendOnly(Ending::Plain);
