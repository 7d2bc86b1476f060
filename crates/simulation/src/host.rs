//! A queue pair and what is around it, for a test that plays its peer, the network and the clock.

use transom_device::execution::{Reply, Request};
use transom_device::protection::Key;
use transom_device::qp::Service;
use transom_device::queue::{ReceiveRequest, Remote, SendFlags, SendOp, SendRequest, Sge};
use transom_wire::Psn;
use transom_wire::grh::{Route, map_ipv4};
use transom_wire::packet::{Aeth, Operation, Packet, Transport};

use crate::endpoint::{Attributes, Endpoint, Io as _};
use crate::environment::Environment;
use crate::packet::OwnedPacket;

/// The way that packets come.
pub const ROUTE: Route = Route {
    source: map_ipv4([10, 1, 2, 3]),
    destination: map_ipv4([10, 1, 2, 4]),
    traffic_class: 0x68,
    hop_limit: 63,
    flow_label: 0,
};

/// A queue pair and what is around it. It does nothing but when it is called.
pub struct Host {
    /// What is around it.
    pub env: Environment,
    /// The queue pair.
    pub qp: Endpoint,
    service: Service,
    number: u32,
}

impl Host {
    /// A queue pair in RTS, on a host with so many bytes of memory.
    pub fn new(attributes: &Attributes, memory: usize) -> Self {
        let env = Environment::new(attributes, memory);
        let qp = Endpoint::new(attributes, env.summary());
        let Attributes { service, qp_num, .. } = *attributes;
        Self { env, qp, service, number: qp_num.bits() }
    }

    /// Posts a receive of `length` bytes at `address`.
    pub fn post_receive(&mut self, wr_id: u64, address: u64, length: u32) {
        self.post_receive_with(wr_id, address, length, self.env.region);
    }

    /// The same, by this key.
    pub fn post_receive_with(&mut self, wr_id: u64, address: u64, length: u32, key: Key) {
        let sges = [Sge { address, length, key: key.0 }];
        let request = ReceiveRequest { wr_id, sges: &sges };
        match self.service {
            Service::XrcTarget => self.env.shared.borrow_mut().post(&request),
            _ => self.qp.post_receive(&self.env, &request),
        }
        .expect("there is room");
    }

    /// Posts a work request of `length` bytes.
    pub fn post_send(&mut self, wr_id: u64, op: SendOp, length: u64) {
        self.post_send_with(wr_id, op, length, SendFlags::empty());
    }

    /// The same, with flags.
    pub fn post_send_with(&mut self, wr_id: u64, op: SendOp, length: u64, flags: SendFlags) {
        self.post_send_to(wr_id, op, length, flags, Remote::Connected);
    }

    /// The same, to somebody.
    pub fn post_send_to(
        &mut self,
        wr_id: u64,
        op: SendOp,
        length: u64,
        flags: SendFlags,
        remote: Remote,
    ) {
        // Of odd length where it can be, so that buffers and packets end in different places.
        let first = (length / 2) | 1;
        let (address, key) = (self.env.range().start, self.env.region.0);
        let sges = match length {
            0 => vec![],
            1..16 => vec![Sge { address, length: length as u32, key }],
            _ => vec![
                Sge { address, length: first as u32, key },
                Sge { address: address + first, length: (length - first) as u32, key },
            ],
        };
        let request = SendRequest { wr_id, op, flags, sges: &sges, inline: None, remote };
        self.qp.post_send(&self.env, &request).expect("it fits");
    }

    /// These requests arrive together.
    pub fn take_requests(&mut self, packets: &[Packet<'_>]) {
        self.qp.take_requests(&self.env, packets, &ROUTE);
        self.advance();
    }

    /// A request arrives by itself; what is answered to it.
    pub fn answer_to(&mut self, packet: Packet<'_>) -> Vec<OwnedPacket> {
        self.take_requests(&[packet]);
        self.env.sent()
    }

    /// These answers arrive together.
    pub fn take_answers(&mut self, packets: &[Packet<'_>]) {
        self.qp.take_answers(&self.env, packets);
        self.advance();
    }

    /// The peer acknowledges everything up to this number.
    pub fn acknowledge(&mut self, psn: u32) {
        self.refuse(psn, 0x1f);
    }

    /// The peer answers this number with a syndrome.
    pub fn refuse(&mut self, psn: u32, byte: u8) {
        let operation = Operation::Acknowledge(Aeth { byte, msn: 0 });
        let psn = Psn::new(psn);
        self.take_answers(&[Packet::new(Transport::Rc, operation, self.number, psn)]);
    }

    /// The peer replies to a message.
    pub fn reply(&mut self, to: &Request, reply: Reply) {
        self.qp.drive(&self.env, |requester, cx| {
            requester.on_reply(to.message, to.attempt, reply, None, cx);
        });
        self.advance();
    }

    /// The network says that nobody is at the other end.
    pub fn nobody_there(&mut self) {
        self.qp.drive(&self.env, |requester, cx| requester.on_nobody_there(cx));
        self.advance();
    }

    /// The queue pair does what it can.
    pub fn advance(&mut self) {
        self.qp.advance(&self.env);
    }

    /// The link has room for so many packets again.
    pub fn make_room(&mut self, room: usize) {
        self.env.room.set(room);
        self.advance();
    }

    /// Lets the time pass.
    pub fn pass(&mut self, nanoseconds: u64) {
        self.env.time.set(self.env.time.get().saturating_add(nanoseconds));
        self.qp.look_at_clock(&self.env);
    }

    /// Lets the time pass and checks that nothing is sent until the last nanosecond of it, and that
    /// the host has been asked to come then or before.
    pub fn pass_in_silence(&mut self, nanoseconds: u64) {
        let end = self.env.time.get() + nanoseconds;
        while let Some(deadline) = self.qp.requester.deadline().filter(|at| *at < end) {
            assert!(deadline > self.env.time.get(), "the host is called without end");
            self.pass(deadline - self.env.time.get());
            self.is_silent();
        }
        assert_eq!(self.qp.requester.deadline(), Some(end));
        self.pass(end - 1 - self.env.time.get());
        self.is_silent();
        self.pass(1);
    }

    fn is_silent(&self) {
        assert_eq!((self.env.sent(), self.env.messages()), (vec![], vec![]));
        assert_eq!(self.env.completed(), []);
    }
}
