//! A connection, from the REQ to the end of its time wait.
//!
//! ```text
//!   active                                      passive
//!   RequestSent ──── REQ ─────────────────────► RequestReceived      CONNECT_REQUEST
//!        │ ◄── MRA, while the program thinks ────────┤
//!   ReplyReceived ◄─────────────────── REP ──── ReplySent            accept
//!        │ CONNECT_RESPONSE                          │
//!   Established ──── RTU ─────────────────────► Established          ESTABLISHED
//!        │ disconnect                                │
//!   DisconnectSent ─ DREQ ────────────────────► DisconnectReceived   DISCONNECTED
//!   TimeWait ◄──────────────────────── DREP ─── TimeWait             disconnect
//!   Over                                        Over                 TIMEWAIT_EXIT
//! ```
//!
//! Messages of the peer have been matched before they get here: by ids and address they belong to this connection
//! (rules CM-20, CM-45). Linux has two states for an id that has just received a message and for one whose program is
//! deciding. Here they are one.

mod agreed;
mod calls;
mod messages;
mod peer;
mod record;

use transom_wire::Psn;
use transom_wire::cm::message::Answered;
use transom_wire::cm::{
    Bits, CommId, Drep, Dreq, Information, Mad, Message, Mra, Path, Qpn, Rej, RejectReason,
    Rejected, Req, Rtu, TimeCode, Transport,
};

use crate::attributes::{self, AddressVector, Attributes, QpState};
use crate::event::Happened;
use crate::refused::Refused;
use crate::retransmission::Retransmission;
use crate::shared::{Arrival, Shared};
use crate::timing::MILLISECOND;
use agreed::Agreed;
pub(crate) use calls::ReplyParameters;
pub(crate) use messages::Outcome;
use peer::{Patience, Peer};
pub use record::Record;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the messages; see the module")]
pub enum ConnectionState {
    RequestSent,
    RequestReceived,
    ReplySent,
    ReplyReceived,
    Established,
    DisconnectSent,
    DisconnectReceived,
    TimeWait,
    Over,
}

/// The same states, with the messages that are repeated in them.
#[derive(Debug)]
enum State {
    RequestSent(Retransmission),
    RequestReceived,
    ReplySent(Retransmission),
    ReplyReceived,
    Established,
    DisconnectSent(Retransmission),
    DisconnectReceived,
    TimeWait,
    /// Its id is gone, and only the peer must still learn that it has ended.
    Lingering(Retransmission),
    Over,
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Active,
    Passive,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    id: CommId,
    role: Role,
    transport: Transport,
    qpn: Qpn,
    /// RQ_PSN.
    psn: Psn,
    peer: Peer,
    /// The peer ids of the connection in refused REPs (rule CM-19).
    refused: Vec<CommId>,
    agreed: Agreed,
    /// Whether the program has had DISCONNECTED.
    disconnected: bool,
    state: State,
}

impl Connection {
    // Beginning.

    /// Sends a REQ.
    pub(crate) fn request(
        id: CommId,
        mut req: Req,
        address: AddressVector,
        life_time: TimeCode,
        now: u64,
        shared: &mut Shared,
    ) -> Self {
        let (timing, transport) = (shared.config.timing, req.transport);
        let (transaction, wait) = (shared.transaction(id), timing.request(life_time));
        if transport == Transport::Xrc {
            // The active queue pair of XRC only sends (rule CM-42).
            (req.responder_resources, req.srq) = (0, false);
            (req.retry_count, req.rnr_retry_count) = (Bits::low(0), Bits::low(0));
        }
        let mut connection = Self {
            id,
            role: Role::Active,
            transport,
            qpn: req.qpn,
            psn: req.starting_psn,
            peer: Peer::asked(address, transaction, Patience { wait, retries: timing.retries }),
            refused: Vec::new(),
            agreed: Agreed::asked(&req, life_time),
            disconnected: false,
            state: State::Over,
        };
        let mad = Mad { transaction, message: Message::Req(req) };
        connection.state = State::RequestSent(connection.begin(mad, now, shared));
        connection
    }

    /// Takes a REQ. No other connection may have its peer.
    pub(crate) fn requested(
        id: CommId,
        transaction: u64,
        req: &Req,
        address: AddressVector,
        psn: Psn,
        shared: &mut Shared,
    ) -> Self {
        Self {
            id,
            role: Role::Passive,
            transport: req.transport,
            qpn: Qpn::default(),
            psn,
            peer: Peer::asking(address, transaction, req, id, shared),
            refused: Vec::new(),
            agreed: Agreed::offered(req),
            disconnected: false,
            state: State::RequestReceived,
        }
    }

    // Queries.

    pub(crate) fn connection_state(&self) -> ConnectionState {
        match self.state {
            State::RequestSent(_) => ConnectionState::RequestSent,
            State::RequestReceived => ConnectionState::RequestReceived,
            State::ReplySent(_) => ConnectionState::ReplySent,
            State::ReplyReceived => ConnectionState::ReplyReceived,
            State::Established => ConnectionState::Established,
            State::DisconnectSent(_) | State::Lingering(_) => ConnectionState::DisconnectSent,
            State::DisconnectReceived => ConnectionState::DisconnectReceived,
            State::TimeWait => ConnectionState::TimeWait,
            State::Over => ConnectionState::Over,
        }
    }

    /// The address vector to the peer. The peer's messages come by the same route.
    pub(crate) fn address(&self) -> &AddressVector {
        &self.peer.address
    }

    /// The path to the peer.
    pub(crate) fn path(&self) -> attributes::Path {
        let Agreed { mtu, life_time, .. } = self.agreed;
        attributes::Path { address: self.peer.address, mtu, life_time }
    }

    /// Whether a message has come by the route that leads to the peer.
    pub(crate) fn is_from(&self, arrival: Arrival) -> bool {
        arrival.is_by(&self.peer.address)
    }

    /// The peer's id of it. Zero until it is known.
    pub(crate) fn peer_id(&self) -> CommId {
        self.peer.id
    }

    /// The state of its id, as the rest of a sentence.
    pub(crate) fn is(&self) -> &'static str {
        match self.state {
            State::RequestSent(_) => "has asked its peer, which has not answered yet",
            State::RequestReceived => "belongs to a request that is not answered yet",
            State::ReplySent(_) => "has accepted, and its peer has not confirmed yet",
            State::ReplyReceived => "has its peer's answer, which is not confirmed yet",
            State::Established => "is connected",
            State::DisconnectSent(_) => "has ended its connection",
            State::DisconnectReceived => "has a connection that its peer has ended",
            State::TimeWait | State::Lingering(_) | State::Over => {
                "has a connection that has ended"
            }
        }
    }

    /// Refuses a call in this state. `takes` says which ids the call takes.
    fn not_now(&self, takes: &'static str) -> Refused {
        Refused::State { is: self.is(), takes }
    }

    /// The attributes for a state of the queue pair.
    pub(crate) fn attributes(&self, state: QpState, flush: bool) -> Result<Attributes, Refused> {
        let exchanging = match self.state {
            State::RequestSent(_) => state == QpState::Init,
            State::RequestReceived | State::ReplySent(_) => true,
            State::ReplyReceived | State::Established => true,
            _ => false,
        };
        if !exchanging {
            return Err(
                self.not_now("RTR and RTS need the peer's answer, and a connection not ended")
            );
        }
        let receives = self.transport == Transport::Rc
            || self.transport == Transport::Xrc && self.role == Role::Passive;
        let sends = self.transport == Transport::Rc
            || self.transport == Transport::Xrc && self.role == Role::Active;
        Ok(match state {
            QpState::Init => Attributes::Init { access: self.agreed.access(flush) },
            QpState::ReadyToReceive => Attributes::ReadyToReceive {
                address: self.peer.address,
                mtu: self.agreed.mtu,
                destination: self.peer.qpn,
                psn: self.psn,
                responder_resources: receives.then_some(self.agreed.responder_resources),
            },
            QpState::ReadyToSend => Attributes::ReadyToSend {
                psn: self.peer.psn,
                timeout: (sends || receives).then_some(self.agreed.ack_timeout),
                retries: sends.then(|| self.agreed.retries()),
            },
        })
    }

    // Steps.

    /// Sends a message that is repeated until it is answered.
    fn begin(&self, mad: Mad, now: u64, shared: &mut Shared) -> Retransmission {
        let retransmission = self.peer.begin(mad, now, shared);
        shared.timers.set(self.id, retransmission.deadline(now));
        retransmission
    }

    fn established(&mut self, shared: &mut Shared) {
        shared.timers.cancel(self.id);
        self.state = State::Established;
        shared.happened(self.id, Happened::Established);
    }

    /// Gives the program DISCONNECTED, unless it has had it.
    fn ended(&mut self, timed_out: bool, shared: &mut Shared) {
        if !self.disconnected {
            self.disconnected = true;
            shared.happened(self.id, Happened::Disconnected { timed_out });
        }
    }

    fn enter_time_wait(&mut self, now: u64, shared: &mut Shared) {
        self.peer.forget(shared);
        self.state = State::TimeWait;
        let wait = self.agreed.ack_timeout.milliseconds() * MILLISECOND;
        shared.timers.set(self.id, now.saturating_add(wait));
    }

    /// Ends it at once.
    fn end(&mut self, shared: &mut Shared) {
        self.peer.forget(shared);
        shared.timers.cancel(self.id);
        self.state = State::Over;
    }

    /// Ends it without a message, for example because the device is gone.
    pub(crate) fn abandon(&mut self, shared: &mut Shared) {
        self.end(shared);
    }

    // Messages to the peer.

    fn send_rtu(&self, shared: &mut Shared) {
        let (local_id, remote_id) = (self.id, self.peer.id);
        let rtu = Rtu { local_id, remote_id, private_data: [0; _] };
        self.peer.answer(Message::Rtu(rtu), shared);
    }

    fn send_mra(&self, answered: Answered, shared: &mut Shared) {
        let (local_id, remote_id) = (self.id, self.peer.id);
        let service_timeout = shared.config.timing.service;
        let mra = Mra { local_id, remote_id, answered, service_timeout, private_data: [0; _] };
        self.peer.answer(Message::Mra(mra), shared);
    }

    fn send_rej(
        &self,
        rejected: Rejected,
        reason: RejectReason,
        information: Information,
        private_data: [u8; Rej::PRIVATE],
        shared: &mut Shared,
    ) {
        let (local_id, remote_id) = (self.id, self.peer.id);
        let rej = Rej { local_id, remote_id, rejected, reason, information, private_data };
        self.peer.answer(Message::Rej(rej), shared);
    }

    fn dreq(&self, shared: &Shared) -> Mad {
        let (local_id, remote_id, remote_qpn) = (self.id, self.peer.id, self.peer.qpn);
        let dreq = Dreq { local_id, remote_id, remote_qpn, private_data: [0; _] };
        Mad { transaction: shared.transaction(self.id), message: Message::Dreq(dreq) }
    }

    fn send_drep(&self, transaction: u64, shared: &mut Shared) {
        let (local_id, remote_id) = (self.id, self.peer.id);
        let drep = Drep { local_id, remote_id, private_data: [0; _] };
        self.peer.send(Mad { transaction, message: Message::Drep(drep) }, shared);
    }
}

/// The primary path of a REQ.
pub(crate) fn path(address: &AddressVector, ack_timeout: TimeCode) -> Path {
    Path {
        // Permissive LIDs: the route goes by routers (rule CM-05).
        local_lid: 0xffff,
        remote_lid: 0xffff,
        local_gid: crate::shared::gid(address.route.source),
        remote_gid: crate::shared::gid(address.route.destination),
        flow_label: address.flow_label,
        rate: Bits::low(0),
        traffic_class: address.traffic_class,
        hop_limit: address.hop_limit,
        sl: Bits::low(0),
        subnet_local: false,
        local_ack_timeout: ack_timeout,
    }
}
