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
//! What comes from the peer has been matched before it gets here: by ids and address it belongs to this
//! connection (rules CM-20, CM-45). Linux tells an id whose program thinks from one that has just got the
//! message, for the moment that takes; here they are one phase.

use std::net::IpAddr;

use transom_wire::Psn;
use transom_wire::cm::message::Answered;
use transom_wire::cm::{
    Bits, CommId, Drep, Dreq, Ece, Information, Mad, Message, Mra, Path, PathMtu, Qpn, Rej,
    RejectReason, Rejected, Rep, Req, Rtu, TimeCode, Transport,
};

use crate::attributes::{Access, AddressVector, Attributes, HOP_LIMIT, QpState, Retries};
use crate::event::{Happened, Offer};
use crate::refused::Refused;
use crate::shared::{Shared, Transmit, padded};
use crate::timing::{MILLISECOND, ack_timeout, twice};

/// Where a connection is.
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

/// The same, with what is sent again in it.
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
    /// Its id is gone, and nobody is to hear of it any more but the peer, that it has ended.
    Lingering(Retransmission),
    Over,
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Active,
    Passive,
}

/// The other end, from the moment that its ids are known and until they are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) guid: u64,
    pub(crate) id: CommId,
    pub(crate) qpn: Qpn,
}

/// A message that is sent again until it is answered.
#[derive(Debug)]
pub(crate) struct Retransmission {
    mad: Box<Mad>,
    /// Nanoseconds until it is sent again.
    wait: u64,
    left: u32,
    give_up: Option<u64>,
    /// An MRA has come.
    mra_received: bool,
}

impl Retransmission {
    pub(crate) fn new(mad: Mad, wait: u64, left: Bits<4>, now: u64, shared: &Shared) -> Self {
        let give_up = shared.config.timing.give_up.map(|timeout| now.saturating_add(timeout));
        Self { mad: Box::new(mad), wait, left: left.get(), give_up, mra_received: false }
    }

    pub(crate) fn mad(&self) -> Mad {
        (*self.mad).clone()
    }

    /// When to look at it again.
    pub(crate) fn deadline(&self, now: u64) -> u64 {
        let next = now.saturating_add(self.wait);
        self.give_up.map_or(next, |give_up| next.min(give_up))
    }

    /// Its time has come: the message, if it is to be sent once more.
    pub(crate) fn again(&mut self, now: u64) -> Option<Mad> {
        if self.give_up.is_some_and(|give_up| now >= give_up) {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        Some(self.mad())
    }
}

/// What a program says of a connection that it accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyParameters<'a> {
    pub(crate) qpn: Qpn,
    pub(crate) srq: bool,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) rnr_retry_count: Bits<3>,
    pub(crate) ece: Ece,
    pub(crate) private_data: &'a [u8],
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    id: CommId,
    role: Role,
    transport: Transport,
    /// Of the messages that answer.
    transaction: u64,
    address: AddressVector,
    peer: Option<Peer>,
    /// What those called the connection whose REP was refused (rule CM-19).
    refused: Vec<CommId>,
    /// The peer's, once it is forgotten too.
    peer_qpn: Qpn,
    peer_id: CommId,
    qpn: Qpn,
    /// RQ_PSN and SQ_PSN.
    psn: Psn,
    peer_psn: Psn,
    mtu: PathMtu,
    responder_resources: u8,
    initiator_depth: u8,
    retry_count: Bits<3>,
    rnr_retry_count: Bits<3>,
    ack_timeout: TimeCode,
    life_time: TimeCode,
    /// Nanoseconds until its messages are sent again, and how often.
    wait: u64,
    retries: Bits<4>,
    /// DISCONNECTED was said.
    disconnected: bool,
    state: State,
}

/// What is left of a connection whose process has died, for whoever notices to tell the peer, which would
/// wait for ever otherwise. A host keeps these where other processes find them, and takes them away when
/// an id is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the dead end called the connection.
    pub id: CommId,
    /// What the peer calls it.
    pub peer_id: CommId,
    /// The peer's queue pair.
    pub peer_qpn: Qpn,
    /// The transaction of its final message.
    pub transaction: u64,
    /// What that refuses; if nothing, it is a DREQ.
    pub rejected: Option<Rejected>,
    /// The address here.
    pub source: IpAddr,
    /// The peer's.
    pub destination: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
}

impl Record {
    /// What the dead end would have said, had its program destroyed the id (rule CM-28).
    pub fn final_message(&self) -> Transmit {
        let (local_id, remote_id) = (self.id, self.peer_id);
        let message = match self.rejected {
            Some(rejected) => Message::Rej(Rej {
                local_id,
                remote_id,
                rejected,
                reason: RejectReason::Consumer,
                information: Information::NONE,
                private_data: [0; _],
            }),
            None => {
                let (remote_qpn, private_data) = (self.peer_qpn, [0; _]);
                Message::Dreq(Dreq { local_id, remote_id, remote_qpn, private_data })
            }
        };
        Transmit {
            source: self.source,
            destination: self.destination,
            traffic_class: self.traffic_class,
            hop_limit: HOP_LIMIT,
            mad: Mad { transaction: self.transaction, message },
        }
    }
}

/// What became of a message for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    /// Of no meaning any more, or in this phase.
    Ignored,
}

use Outcome::{Ignored, Taken};

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
            // Its queue pair only sends (rule CM-42).
            (req.responder_resources, req.srq) = (0, false);
            (req.retry_count, req.rnr_retry_count) = (Bits::low(0), Bits::low(0));
        }
        let mut connection = Self {
            id,
            role: Role::Active,
            transport,
            transaction,
            address,
            peer: None,
            refused: Vec::new(),
            peer_qpn: Qpn::default(),
            peer_id: CommId(0),
            qpn: req.qpn,
            psn: req.starting_psn,
            peer_psn: Psn::default(),
            mtu: req.mtu,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: twice(life_time),
            life_time,
            wait,
            retries: timing.retries,
            disconnected: false,
            state: State::Over,
        };
        let mad = Mad { transaction, message: Message::Req(req) };
        connection.state = State::RequestSent(connection.begin(mad, now, shared));
        connection
    }

    /// Takes a REQ, whose peer nobody else is connected with.
    pub(crate) fn requested(
        id: CommId,
        transaction: u64,
        req: &Req,
        address: AddressVector,
        psn: Psn,
        shared: &mut Shared,
    ) -> Self {
        let peer = Peer { guid: req.ca_guid, id: req.local_id, qpn: req.qpn };
        shared.remote_ids.insert((peer.guid, peer.id), id);
        shared.remote_qpns.insert((peer.guid, peer.qpn), id);
        // None is shorter than that of a packet's life time 0.
        let ack_timeout = req.primary.local_ack_timeout.max(TimeCode::of(Bits::low(1)));
        Self {
            id,
            role: Role::Passive,
            transport: req.transport,
            transaction,
            address,
            peer: Some(peer),
            refused: Vec::new(),
            peer_qpn: peer.qpn,
            peer_id: peer.id,
            qpn: Qpn::default(),
            psn,
            peer_psn: req.starting_psn,
            mtu: req.mtu,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout,
            life_time: ack_timeout,
            wait: req.local_response_timeout.milliseconds() * MILLISECOND,
            retries: req.max_cm_retries,
            disconnected: false,
            state: State::RequestReceived,
        }
    }

    // What is asked of it.

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

    /// The way, by which its messages come too.
    pub(crate) fn address(&self) -> &AddressVector {
        &self.address
    }

    /// What the peer calls it; zero until that is known.
    pub(crate) fn peer_id(&self) -> CommId {
        self.peer_id
    }

    /// What is left of it, should its process die: nothing where the peer waits for no more than its
    /// retries last.
    pub(crate) fn record(&self) -> Option<Record> {
        let rejected = match self.state {
            State::RequestReceived => Some(Rejected::Req),
            State::ReplyReceived => Some(Rejected::Rep),
            State::ReplySent(_) => Some(Rejected::Other),
            State::Established => None,
            _ => return None,
        };
        let AddressVector { route, traffic_class, .. } = self.address;
        Some(Record {
            id: self.id,
            peer_id: self.peer_id,
            peer_qpn: self.peer_qpn,
            transaction: self.transaction,
            rejected,
            source: route.source,
            destination: route.destination,
            traffic_class,
        })
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
            return Err(Refused::State);
        }
        let receives = self.transport == Transport::Rc
            || self.transport == Transport::Xrc && self.role == Role::Passive;
        let sends = self.transport == Transport::Rc
            || self.transport == Transport::Xrc && self.role == Role::Active;
        Ok(match state {
            QpState::Init => {
                let reads = self.responder_resources > 0;
                Attributes::Init {
                    access: Access {
                        remote_write: true,
                        remote_read: reads,
                        remote_atomic: reads,
                        flush_global: reads && flush,
                    },
                }
            }
            QpState::ReadyToReceive => Attributes::ReadyToReceive {
                address: self.address,
                mtu: self.mtu,
                destination: self.peer_qpn,
                psn: self.psn,
                responder_resources: receives.then_some(self.responder_resources),
            },
            QpState::ReadyToSend => Attributes::ReadyToSend {
                psn: self.peer_psn,
                timeout: (sends || receives).then_some(self.ack_timeout),
                retries: sends.then_some(Retries {
                    retry_count: self.retry_count,
                    rnr_retry_count: self.rnr_retry_count,
                    initiator_depth: self.initiator_depth,
                }),
            },
        })
    }

    // Calls of the program.

    /// Sends a REP.
    pub(crate) fn accept(
        &mut self,
        parameters: &ReplyParameters<'_>,
        now: u64,
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        if !matches!(self.state, State::RequestReceived) {
            return Err(Refused::State);
        }
        let private_data = padded(parameters.private_data)?;
        let receives_only = self.transport == Transport::Xrc;
        let none = Qpn::default();
        let rep = Rep {
            local_id: self.id,
            remote_id: self.peer_id,
            ece: parameters.ece,
            qkey: 0,
            qpn: if receives_only { none } else { parameters.qpn },
            eecn: if receives_only { parameters.qpn } else { none },
            starting_psn: self.psn,
            responder_resources: parameters.responder_resources,
            initiator_depth: if receives_only { 0 } else { parameters.initiator_depth },
            target_ack_delay: shared.config.ack_delay,
            failover: Bits::low(0),
            flow_control: parameters.flow_control && !receives_only,
            rnr_retry_count: parameters.rnr_retry_count,
            srq: parameters.srq || receives_only,
            ca_guid: shared.config.node_guid,
            private_data,
        };
        self.qpn = parameters.qpn;
        self.responder_resources = parameters.responder_resources;
        self.initiator_depth = parameters.initiator_depth;
        let mad = Mad { transaction: self.transaction, message: Message::Rep(rep) };
        self.state = State::ReplySent(self.begin(mad, now, shared));
        Ok(())
    }

    /// Sends a REJ.
    pub(crate) fn reject(
        &mut self,
        reason: RejectReason,
        private_data: &[u8],
        now: u64,
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        let rejected = match self.state {
            State::RequestReceived => Rejected::Req,
            State::ReplyReceived => Rejected::Rep,
            State::RequestSent(_) | State::ReplySent(_) => Rejected::Other,
            _ => return Err(Refused::State),
        };
        let private_data = padded(private_data)?;
        self.send_rej(rejected, reason, Information::NONE, private_data, shared);
        match self.state {
            State::ReplySent(_) => self.enter_time_wait(now, shared),
            _ => self.end(shared),
        }
        Ok(())
    }

    /// Sends an RTU: the queue pair is up.
    pub(crate) fn establish(&mut self, shared: &mut Shared) -> Result<(), Refused> {
        if !matches!(self.state, State::ReplyReceived) {
            return Err(Refused::State);
        }
        self.state = State::Established;
        self.send_rtu(shared);
        Ok(())
    }

    /// The peer's data has come, so it has the REP (rule CM-47).
    pub(crate) fn notify(&mut self, shared: &mut Shared) -> Result<(), Refused> {
        match self.state {
            State::ReplySent(_) => self.established(shared),
            State::Established => return Err(Refused::Connected),
            _ => return Err(Refused::State),
        }
        Ok(())
    }

    /// Ends it, or confirms that the peer has; in other phases there is nothing to say.
    pub(crate) fn disconnect(&mut self, now: u64, shared: &mut Shared) {
        match self.state {
            State::Established => {
                let mad = self.dreq(shared);
                self.state = State::DisconnectSent(self.begin(mad, now, shared));
            }
            State::DisconnectReceived => {
                self.send_drep(self.transaction, shared);
                self.enter_time_wait(now, shared);
            }
            _ => {}
        }
    }

    /// The id is destroyed (rule CM-28). A DREQ is sent again until it is confirmed, without the
    /// program's waiting for that, so that one that is lost does not leave the peer connected with nobody.
    pub(crate) fn destroy(&mut self, now: u64, shared: &mut Shared) {
        let rejected = match std::mem::replace(&mut self.state, State::Over) {
            State::RequestSent(_) => {
                let guid = shared.guid();
                self.send_rej(Rejected::Other, RejectReason::Timeout, guid, [0; _], shared);
                None
            }
            State::RequestReceived => Some(Rejected::Req),
            State::ReplyReceived => Some(Rejected::Rep),
            State::ReplySent(_) => Some(Rejected::Other),
            // Its queue pair may belong to others too.
            State::Established
                if self.transport == Transport::Xrc && self.role == Role::Passive =>
            {
                None
            }
            State::Established => {
                let mad = self.dreq(shared);
                return self.linger(self.begin(mad, now, shared), shared);
            }
            State::DisconnectSent(retransmission) => return self.linger(retransmission, shared),
            State::DisconnectReceived => {
                self.send_drep(self.transaction, shared);
                None
            }
            State::TimeWait | State::Lingering(_) | State::Over => None,
        };
        if let Some(rejected) = rejected {
            let reason = RejectReason::Consumer;
            self.send_rej(rejected, reason, Information::NONE, [0; _], shared);
        }
        self.end(shared);
    }

    fn linger(&mut self, retransmission: Retransmission, shared: &mut Shared) {
        self.forget_peer(shared);
        self.state = State::Lingering(retransmission);
    }

    /// Whether it outlives its id.
    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.state, State::Lingering(_))
    }

    // Messages of the peer.

    /// The REQ again (rules CM-16, CM-17).
    pub(crate) fn on_req_again(&self, shared: &mut Shared) {
        if matches!(self.state, State::RequestReceived) {
            self.send_mra(Answered::Req, shared);
        }
    }

    /// A first REP, of a peer that nobody else is connected with.
    pub(crate) fn on_rep(&mut self, rep: &Rep, shared: &mut Shared) -> Outcome {
        if !matches!(self.state, State::RequestSent(_)) {
            return Ignored;
        }
        let peer = Peer { guid: rep.ca_guid, id: rep.local_id, qpn: self.qpn_of(rep) };
        shared.remote_ids.insert((peer.guid, peer.id), self.id);
        shared.remote_qpns.insert((peer.guid, peer.qpn), self.id);
        shared.sleep(self.id);
        (self.peer, self.peer_id, self.peer_qpn) = (Some(peer), peer.id, peer.qpn);
        self.peer_psn = rep.starting_psn;
        self.responder_resources = rep.initiator_depth;
        self.initiator_depth = rep.responder_resources;
        self.rnr_retry_count = rep.rnr_retry_count;
        self.ack_timeout = ack_timeout(rep.target_ack_delay, self.life_time);
        self.state = State::ReplyReceived;
        let offer = Offer {
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            retry_count: self.retry_count,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            qpn: peer.qpn,
            ece: rep.ece,
        };
        let private_data = Box::new(rep.private_data);
        shared.happened(self.id, Happened::ConnectResponse { offer, private_data });
        Taken
    }

    pub(crate) fn has_refused(&self, peer: CommId) -> bool {
        self.refused.contains(&peer)
    }

    /// Remembers that this REP was refused. One REQ brings one, each time it is sent.
    pub(crate) fn refuse(&mut self, peer: CommId) {
        if !self.has_refused(peer) && self.refused.len() <= Bits::<4>::MAX.get() as usize {
            self.refused.push(peer);
        }
    }

    /// The REP again (rules CM-16, CM-18).
    pub(crate) fn on_rep_again(&self, shared: &mut Shared) {
        match self.state {
            State::Established => self.send_rtu(shared),
            State::ReplyReceived => self.send_mra(Answered::Rep, shared),
            _ => {}
        }
    }

    /// The peer's queue pair, which stands elsewhere if it is of XRC.
    pub(crate) fn qpn_of(&self, rep: &Rep) -> Qpn {
        if self.transport == Transport::Xrc { rep.eecn } else { rep.qpn }
    }

    pub(crate) fn on_rtu(&mut self, shared: &mut Shared) -> Outcome {
        match self.state {
            State::ReplySent(_) => self.established(shared),
            // It has not heard that it was refused (rule CM-49).
            State::TimeWait | State::Over if !self.disconnected => {
                let (reason, none) = (RejectReason::InvalidCommId, Information::NONE);
                self.send_rej(Rejected::Other, reason, none, [0; _], shared);
            }
            _ => return Ignored,
        }
        Taken
    }

    pub(crate) fn on_mra(&mut self, mra: &Mra, now: u64, shared: &mut Shared) -> Outcome {
        let retransmission = match (&mut self.state, mra.answered) {
            (State::RequestSent(retransmission), Answered::Req) => retransmission,
            (State::ReplySent(retransmission), Answered::Rep) => retransmission,
            _ => return Ignored,
        };
        if retransmission.mra_received {
            return Ignored;
        }
        retransmission.mra_received = true;
        let milliseconds = mra.service_timeout.milliseconds() + self.ack_timeout.milliseconds();
        retransmission.wait = milliseconds * MILLISECOND;
        shared.wake(self.id, retransmission.deadline(now));
        Taken
    }

    pub(crate) fn on_rej(&mut self, rej: &Rej, now: u64, shared: &mut Shared) -> Outcome {
        match self.state {
            State::RequestSent(_) | State::ReplySent(_) | State::RequestReceived
                if rej.reason != RejectReason::StaleConnection =>
            {
                self.end(shared);
            }
            State::RequestSent(_) | State::ReplySent(_) | State::RequestReceived => {
                self.enter_time_wait(now, shared);
            }
            State::DisconnectSent(_) | State::ReplyReceived | State::Established => {
                self.enter_time_wait(now, shared);
            }
            State::Lingering(_) => {
                self.end(shared);
                return Taken;
            }
            State::DisconnectReceived | State::TimeWait | State::Over => return Ignored,
        }
        let private_data = Box::new(rej.private_data);
        shared.happened(self.id, Happened::Rejected { reason: rej.reason, private_data });
        Taken
    }

    pub(crate) fn on_dreq(
        &mut self,
        dreq: &Dreq,
        transaction: u64,
        shared: &mut Shared,
    ) -> Outcome {
        if dreq.remote_qpn != self.qpn {
            return Ignored;
        }
        match self.state {
            State::ReplySent(_) | State::DisconnectSent(_) | State::Established => {
                shared.sleep(self.id);
                self.transaction = transaction;
                self.state = State::DisconnectReceived;
                self.ended(false, shared);
                Taken
            }
            State::TimeWait | State::Over => {
                self.send_drep(transaction, shared);
                Taken
            }
            State::Lingering(_) => {
                self.send_drep(transaction, shared);
                self.end(shared);
                Taken
            }
            _ => Ignored,
        }
    }

    pub(crate) fn on_drep(&mut self, now: u64, shared: &mut Shared) -> Outcome {
        match self.state {
            State::DisconnectSent(_) | State::DisconnectReceived => {
                self.enter_time_wait(now, shared);
                self.ended(false, shared);
            }
            State::Lingering(_) => self.end(shared),
            _ => return Ignored,
        }
        Taken
    }

    /// The timer has ended.
    pub(crate) fn on_timeout(&mut self, now: u64, shared: &mut Shared) {
        let again = match &mut self.state {
            State::RequestSent(retransmission)
            | State::ReplySent(retransmission)
            | State::Lingering(retransmission)
            | State::DisconnectSent(retransmission) => {
                retransmission.again(now).map(|mad| (mad, retransmission.deadline(now)))
            }
            State::TimeWait => {
                self.state = State::Over;
                if self.disconnected {
                    shared.happened(self.id, Happened::TimewaitExit);
                }
                return;
            }
            _ => return,
        };
        if let Some((mad, deadline)) = again {
            shared.transmit(&self.address, mad);
            shared.wake(self.id, deadline);
            return;
        }
        match self.state {
            State::DisconnectSent(_) => {
                self.enter_time_wait(now, shared);
                return self.ended(true, shared);
            }
            State::Lingering(_) => return self.end(shared),
            _ => {}
        }
        // The peer, if it is still there, is not to wait for what does not come (rule CM-27).
        let guid = shared.guid();
        self.send_rej(Rejected::Other, RejectReason::Timeout, guid, [0; _], shared);
        self.end(shared);
        shared.happened(self.id, Happened::Unreachable);
    }

    // Steps.

    /// Sends what is sent again until it is answered.
    fn begin(&self, mad: Mad, now: u64, shared: &mut Shared) -> Retransmission {
        let retransmission = Retransmission::new(mad, self.wait, self.retries, now, shared);
        shared.transmit(&self.address, retransmission.mad());
        shared.wake(self.id, retransmission.deadline(now));
        retransmission
    }

    fn established(&mut self, shared: &mut Shared) {
        shared.sleep(self.id);
        self.state = State::Established;
        shared.happened(self.id, Happened::Established);
    }

    /// Says DISCONNECTED, if that was not said.
    fn ended(&mut self, timed_out: bool, shared: &mut Shared) {
        if !self.disconnected {
            self.disconnected = true;
            shared.happened(self.id, Happened::Disconnected { timed_out });
        }
    }

    fn enter_time_wait(&mut self, now: u64, shared: &mut Shared) {
        self.forget_peer(shared);
        self.state = State::TimeWait;
        let wait = self.ack_timeout.milliseconds() * MILLISECOND;
        shared.wake(self.id, now.saturating_add(wait));
    }

    /// Is over, at once.
    fn end(&mut self, shared: &mut Shared) {
        self.forget_peer(shared);
        shared.sleep(self.id);
        self.state = State::Over;
    }

    /// The device is gone: is over without a word.
    pub(crate) fn abandon(&mut self, shared: &mut Shared) {
        self.end(shared);
    }

    /// The peer may connect the same queue pair again.
    fn forget_peer(&mut self, shared: &mut Shared) {
        if let Some(peer) = self.peer.take() {
            shared.remote_ids.remove(&(peer.guid, peer.id));
            shared.remote_qpns.remove(&(peer.guid, peer.qpn));
        }
    }

    // Messages to the peer.

    fn send(&self, transaction: u64, message: Message, shared: &mut Shared) {
        shared.transmit(&self.address, Mad { transaction, message });
    }

    fn send_rtu(&self, shared: &mut Shared) {
        let (local_id, remote_id) = (self.id, self.peer_id);
        let rtu = Rtu { local_id, remote_id, private_data: [0; _] };
        self.send(self.transaction, Message::Rtu(rtu), shared);
    }

    fn send_mra(&self, answered: Answered, shared: &mut Shared) {
        let (local_id, remote_id) = (self.id, self.peer_id);
        let service_timeout = shared.config.timing.service;
        let mra = Mra { local_id, remote_id, answered, service_timeout, private_data: [0; _] };
        self.send(self.transaction, Message::Mra(mra), shared);
    }

    fn send_rej(
        &self,
        rejected: Rejected,
        reason: RejectReason,
        information: Information,
        private_data: [u8; Rej::PRIVATE],
        shared: &mut Shared,
    ) {
        let (local_id, remote_id) = (self.id, self.peer_id);
        let rej = Rej { local_id, remote_id, rejected, reason, information, private_data };
        self.send(self.transaction, Message::Rej(rej), shared);
    }

    fn dreq(&self, shared: &Shared) -> Mad {
        let (local_id, remote_id, remote_qpn) = (self.id, self.peer_id, self.peer_qpn);
        let dreq = Dreq { local_id, remote_id, remote_qpn, private_data: [0; _] };
        Mad { transaction: shared.transaction(self.id), message: Message::Dreq(dreq) }
    }

    fn send_drep(&self, transaction: u64, shared: &mut Shared) {
        let (local_id, remote_id) = (self.id, self.peer_id);
        let drep = Drep { local_id, remote_id, private_data: [0; _] };
        self.send(transaction, Message::Drep(drep), shared);
    }
}

/// The primary path of a REQ.
pub(crate) fn path(address: &AddressVector, ack_timeout: TimeCode) -> Path {
    Path {
        // Permissive LIDs: the way is one of routers (rule CM-05).
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
