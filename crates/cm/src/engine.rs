//! The ids of a process, the calls of its programs, and the messages of its peers.

mod calls;
mod messages;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use transom_wire::Psn;
use transom_wire::cm::{
    Bits, CommId, Dreq, Ece, Ignored, Mad, Message, Qpn, RejectReason, ServiceId, SidrStatus,
};

use crate::attributes::HOP_LIMIT;
use crate::connection::{Connection, Phase};
use crate::datagram::Resolution;
use crate::event::{Event, Group};
use crate::host::{Claim, Route};
use crate::options::{Options, Service};
use crate::refused::Refused;
use crate::shared::{Config, Shared, Transmit};

/// The connection manager of one process.
#[derive(Debug)]
pub struct Engine {
    ids: BTreeMap<CommId, Entry>,
    /// Who listens, by service.
    listeners: BTreeMap<ServiceId, Vec<CommId>>,
    shared: Shared,
}

/// An id of a program.
#[derive(Debug)]
struct Entry {
    service: Service,
    options: Options,
    /// What its messages call RQ_PSN.
    psn: Psn,
    ece: Ece,
    /// Its port, of which it is the owner. An id that came with a request has its listener's.
    claim: Option<Claim>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    /// The listener whose backlog it is in.
    waits_for: Option<CommId>,
    groups: Vec<Group>,
    state: State,
}

/// What an id is doing.
#[derive(Debug)]
enum State {
    /// Nothing, bound or not.
    Idle,
    /// The host looks for the way to its destination.
    ResolvingAddress,
    AddressResolved(Route),
    RouteResolved(Route),
    Listening {
        backlog: usize,
        /// CONNECT_REQUESTs that no program has fetched.
        waiting: Vec<CommId>,
    },
    Connection(Box<Connection>),
    Resolution(Box<Resolution>),
    /// The device is gone.
    Removed,
}

/// What a program says of a connection that it asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connect<'a> {
    /// Its queue pair.
    pub qpn: Qpn,
    /// That has a shared receive queue.
    pub srq: bool,
    /// READs and atomics that it will answer at once.
    pub responder_resources: u8,
    /// READs and atomics that it wants to have under way.
    pub initiator_depth: u8,
    /// Carried, and of no effect.
    pub flow_control: bool,
    /// Retries of a packet.
    pub retry_count: Bits<3>,
    /// Retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// Private data, up to 56 bytes, of a datagram service 180.
    pub private_data: &'a [u8],
}

/// What a program says of a connection that it accepts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accept<'a> {
    /// Its queue pair.
    pub qpn: Qpn,
    /// That has a shared receive queue.
    pub srq: bool,
    /// READs and atomics that it will answer at once.
    pub responder_resources: u8,
    /// READs and atomics that it will have under way.
    pub initiator_depth: u8,
    /// Carried, and of no effect.
    pub flow_control: bool,
    /// Retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// The Q_Key of a datagram service, if it is not the usual one.
    pub qkey: Option<u32>,
    /// Private data, up to 196 bytes, of a datagram service 136.
    pub private_data: &'a [u8],
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Something came of it.
    Taken(CommId),
    /// It has come before; if its sender waits for an answer, that went out again.
    Duplicate(CommId),
    /// Nobody has this connection, or not with this peer and address, or not in this phase.
    Unknown,
    /// A request was refused.
    Refused(RejectReason),
    /// A datagram service's request was refused.
    NotServed(SidrStatus),
    /// A request found this listener's backlog full.
    BacklogFull(CommId),
    /// It is no message.
    Ignored(Ignored),
}

impl Engine {
    /// An engine without ids.
    pub fn new(config: Config) -> Self {
        Self { ids: BTreeMap::new(), listeners: BTreeMap::new(), shared: Shared::new(config) }
    }

    /// The next message to be sent. To be taken until there is none after every call.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.shared.transmits.pop_front()
    }

    /// The next event. To be taken until there is none after every call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// When [`Engine::handle_timeout`] is to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.shared.first_deadline()
    }

    /// Does what the time has come for.
    pub fn handle_timeout(&mut self, now: u64) {
        while let Some(id) = self.shared.due(now) {
            let Some(entry) = self.ids.get_mut(&id) else { continue };
            match &mut entry.state {
                State::Connection(connection) => connection.on_timeout(now, &mut self.shared),
                State::Resolution(resolution) => resolution.on_timeout(now, &mut self.shared),
                _ => {}
            }
        }
    }

    /// Whether there is such an id. Events of one that is gone are to be dropped.
    pub fn has(&self, id: CommId) -> bool {
        self.ids.contains_key(&id)
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = CommId> {
        self.ids.keys().copied()
    }

    /// Where an id's connection is, if it has one.
    pub fn phase(&self, id: CommId) -> Option<Phase> {
        match &self.ids.get(&id)?.state {
            State::Connection(connection) => Some(connection.phase()),
            _ => None,
        }
    }

    /// An id's own address and port, once it is bound.
    pub fn source(&self, id: CommId) -> Option<SocketAddr> {
        self.ids.get(&id)?.source
    }

    /// Its peer's.
    pub fn destination(&self, id: CommId) -> Option<SocketAddr> {
        self.ids.get(&id)?.destination
    }

    /// Whether an id is a listener, and how many requests wait there.
    pub fn waiting(&self, id: CommId) -> Option<usize> {
        match &self.ids.get(&id)?.state {
            State::Listening { waiting, .. } => Some(waiting.len()),
            _ => None,
        }
    }

    /// What an heir needs to end an id's connection, should this process die (see [`Estate`]).
    pub fn estate(&self, id: CommId) -> Option<Estate> {
        let State::Connection(connection) = &self.ids.get(&id)?.state else { return None };
        let phases = [Phase::Established, Phase::ReplySent, Phase::DisconnectReceived];
        let address = connection.address();
        phases.contains(&connection.phase()).then(|| Estate {
            id,
            peer_id: connection.peer_id(),
            peer_qpn: connection.peer_qpn(),
            source: address.route.source,
            destination: address.route.destination,
            traffic_class: address.traffic_class,
        })
    }

    /// Whether nothing is left of any id: no entry in any table, no timer.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.listeners.is_empty() && self.shared.is_empty()
    }

    fn entry(&mut self, id: CommId) -> Result<&mut Entry, Refused> {
        self.ids.get_mut(&id).ok_or(Refused::NoSuchId)
    }

    /// The ids that listen on a service.
    fn listeners_of(&self, service: ServiceId) -> &[CommId] {
        self.listeners.get(&service).map_or(&[], Vec::as_slice)
    }
}

/// What is left of a connection whose process has died, for whoever notices to tell the peer: it would
/// wait for ever otherwise. A host keeps these where other processes find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estate {
    /// What the dead end called the connection.
    pub id: CommId,
    /// What the peer calls it.
    pub peer_id: CommId,
    /// The peer's queue pair.
    pub peer_qpn: Qpn,
    /// The address here.
    pub source: IpAddr,
    /// The peer's.
    pub destination: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
}

impl Estate {
    /// The DREQ that the dead end would have sent, as if its program had destroyed the id.
    pub fn disconnect(&self) -> Transmit {
        let (local_id, remote_id, remote_qpn) = (self.id, self.peer_id, self.peer_qpn);
        let dreq = Dreq { local_id, remote_id, remote_qpn, private_data: [0; _] };
        Transmit {
            source: self.source,
            destination: self.destination,
            traffic_class: self.traffic_class,
            hop_limit: HOP_LIMIT,
            mad: Mad { transaction: u64::from(self.id.0), message: Message::Dreq(dreq) },
        }
    }
}
