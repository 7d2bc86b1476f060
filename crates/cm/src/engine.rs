//! The ids of a process, the calls of its programs, and the messages of its peers.

mod addresses;
mod backlog;
mod calls;
mod early;
mod elsewhere;
mod endings;
mod groups;
mod messages;
mod undelivered;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use transom_wire::Psn;
use transom_wire::cm::{Bits, CommId, Ece, Ignored, Qpn, RejectReason, ServiceId, SidrStatus};

use crate::attributes::{AddressVector, Path};
use crate::connection::{Connection, ConnectionState, Record};
use crate::datagram::Resolution;
use crate::event::{Event, Group};
use crate::host::{Claim, Route};
use crate::options::{Options, Service};
use crate::refused::Refused;
use crate::retransmission::Unanswered;
use crate::shared::{Config, Shared, Transmit};
use backlog::Backlog;
pub use early::Answered;
use early::Early;
pub use elsewhere::Unbound;

/// The connection manager of one process.
#[derive(Debug)]
pub struct Engine {
    ids: BTreeMap<CommId, Entry>,
    /// The listeners, by service.
    listeners: BTreeMap<ServiceId, Vec<CommId>>,
    /// The number of connections at each port that came by a listener, even if the listener is gone.
    served: BTreeMap<u16, usize>,
    /// Connections whose ids are gone, and whose peers have not confirmed the end yet.
    lingering: BTreeMap<CommId, Box<Connection>>,
    /// Requests that wait for a listener, the oldest first.
    early: VecDeque<Early>,
    /// The outcomes of these requests.
    answered: VecDeque<Answered>,
    /// See [`Engine::has_refused_early`].
    has_refused_early: bool,
    /// Requests that waited for a program and were displaced by others.
    displaced: Vec<CommId>,
    shared: Shared,
}

/// The most lingering connections. Beyond that, the end of a connection is sent to the peer only once.
const MAX_LINGERING: usize = 4096;

/// An id of a program.
#[derive(Debug)]
struct Entry {
    service: Service,
    options: Options,
    /// Its RQ_PSN: the starting PSN in its messages.
    psn: Psn,
    ece: Ece,
    /// The port that it owns. An id that came with a request uses its listener's.
    claim: Option<Claim>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    /// The listener whose backlog it is in, and the source of its request.
    waits_for: Option<(CommId, IpAddr)>,
    groups: Vec<Group>,
    state: State,
}

/// The state of an id.
#[derive(Debug)]
enum State {
    /// New, or bound only.
    Idle,
    /// The host is looking for the route to its destination.
    ResolvingAddress,
    AddressResolved(Route),
    RouteResolved(Route),
    /// Listening. CONNECT_REQUESTs that no program has fetched wait in the backlog.
    Listening(Backlog),
    Connection(Box<Connection>),
    Resolution(Box<Resolution>),
    /// The device is gone.
    Removed,
}

impl State {
    /// Refuses a call in this state. `takes` says which ids the call takes.
    fn not_now(&self, takes: &'static str) -> Refused {
        let is = match self {
            Self::Idle => "has no address resolved and does not listen",
            Self::ResolvingAddress => "is resolving its address",
            Self::AddressResolved(_) => "has its address resolved, and no route yet",
            Self::RouteResolved(_) => "has its route resolved, and is not connected",
            Self::Listening(_) => "listens",
            Self::Connection(connection) => connection.is(),
            Self::Resolution(_) => "is resolving a datagram service, or was asked for one",
            Self::Removed => "has no device any more",
        };
        Refused::State { is, takes }
    }
}

/// A program's parameters for a connection that it asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connect<'a> {
    /// Its queue pair.
    pub qpn: Qpn,
    /// Whether the queue pair has a shared receive queue.
    pub srq: bool,
    /// The number of READs and atomics that it can answer at once.
    pub responder_resources: u8,
    /// The number of READs and atomics that it wants to have under way.
    pub initiator_depth: u8,
    /// It is sent to the peer, and has no other effect.
    pub flow_control: bool,
    /// The number of retries of a packet.
    pub retry_count: Bits<3>,
    /// The number of retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// Private data: up to 56 bytes; for a datagram service, up to 180.
    pub private_data: &'a [u8],
}

/// A program's parameters for a connection that it accepts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accept<'a> {
    /// Its queue pair.
    pub qpn: Qpn,
    /// Whether the queue pair has a shared receive queue.
    pub srq: bool,
    /// The number of READs and atomics that it can answer at once.
    pub responder_resources: u8,
    /// The number of READs and atomics that it will have under way.
    pub initiator_depth: u8,
    /// It is sent to the peer, and has no other effect.
    pub flow_control: bool,
    /// The number of retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// The Q_Key of a datagram service, if it is not the default one.
    pub qkey: Option<u32>,
    /// Private data: up to 196 bytes; for a datagram service, up to 136.
    pub private_data: &'a [u8],
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It was handled, for this id.
    Taken(CommId),
    /// It is a duplicate. If its sender waits for an answer, the answer was sent again.
    Duplicate(CommId),
    /// A request waits for its listener. See [`Engine::poll_answered`].
    Waits,
    /// There is no such connection, or not with this peer and address, or not in this phase.
    Unknown,
    /// A request was refused.
    Refused(RejectReason),
    /// A datagram service's request was refused.
    NotServed(SidrStatus),
    /// A request found this listener's backlog full.
    BacklogFull(CommId),
    /// It is no valid message.
    Ignored(Ignored),
}

impl Engine {
    /// An engine without ids.
    pub fn new(config: Config) -> Self {
        Self {
            ids: BTreeMap::new(),
            listeners: BTreeMap::new(),
            served: BTreeMap::new(),
            lingering: BTreeMap::new(),
            early: VecDeque::new(),
            answered: VecDeque::new(),
            has_refused_early: false,
            displaced: Vec::new(),
            shared: Shared::new(config),
        }
    }

    /// The next message to send. After every call, take messages until there are none.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.shared.transmits.pop_front()
    }

    /// The next event. After every call, take events until there are none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// The id of a request that another one has displaced from the backlog. The id is gone, so drop its
    /// CONNECT_REQUEST. After every call, take these ids until there are none.
    pub fn poll_displaced(&mut self) -> Option<CommId> {
        self.displaced.pop()
    }

    /// The time to call [`Engine::handle_timeout`], if nothing happens before.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.shared.timers.first().into_iter().chain(self.first_early()).min()
    }

    /// Handles expired timers. Returns their ids.
    pub fn handle_timeout(&mut self, now: u64) -> Vec<CommId> {
        let mut due = Vec::new();
        self.refuse_early(now);
        while let Some(id) = self.shared.timers.take_expired(now) {
            due.push(id);
            match self.ids.get_mut(&id).map(|entry| &mut entry.state) {
                Some(State::Connection(connection)) => {
                    connection.on_timeout(now, &mut self.shared);
                }
                Some(State::Resolution(resolution)) => {
                    resolution.on_timeout(now, &mut self.shared);
                }
                Some(_) => {}
                None => {
                    if let Some(connection) = self.lingering.get_mut(&id) {
                        connection.on_timeout(now, &mut self.shared);
                    }
                    self.forget_lingered(id);
                }
            }
        }
        due
    }

    /// Whether this id exists. Drop the events of an id that is gone.
    pub fn has(&self, id: CommId) -> bool {
        self.ids.contains_key(&id)
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = CommId> {
        self.ids.keys().copied()
    }

    /// Ids that are gone, and whose peers have not confirmed the end of their connections yet.
    pub fn lingering(&self) -> impl Iterator<Item = CommId> {
        self.lingering.keys().copied()
    }

    /// The state of an id's connection, if it has one.
    pub fn connection_state(&self, id: CommId) -> Option<ConnectionState> {
        match &self.ids.get(&id)?.state {
            State::Connection(connection) => Some(connection.connection_state()),
            _ => None,
        }
    }

    /// The address of the peer of an id's connection, and the peer's own id, which is zero until it is known.
    pub fn peer(&self, id: CommId) -> Option<(IpAddr, CommId)> {
        match &self.ids.get(&id)?.state {
            State::Connection(connection) => {
                Some((connection.address().route.destination, connection.peer_id()))
            }
            _ => None,
        }
    }

    /// An id's own address and port, once it is bound.
    pub fn source(&self, id: CommId) -> Option<SocketAddr> {
        self.ids.get(&id)?.source
    }

    /// Its peer's address and port.
    pub fn destination(&self, id: CommId) -> Option<SocketAddr> {
        self.ids.get(&id)?.destination
    }

    /// The service of an id.
    pub fn service(&self, id: CommId) -> Option<Service> {
        Some(self.ids.get(&id)?.service)
    }

    /// The route to an id's peer, once its address is resolved.
    pub fn route(&self, id: CommId) -> Option<Route> {
        match &self.ids.get(&id)?.state {
            State::AddressResolved(route) | State::RouteResolved(route) => Some(*route),
            State::Connection(connection) => Some(connection.address().route),
            State::Resolution(resolution) => Some(resolution.address().route),
            _ => None,
        }
    }

    /// The path of that route, once it is known with all that a connection needs: before the connection as the id's
    /// options say, then as the ends have agreed.
    pub fn path(&self, id: CommId) -> Option<Path> {
        let entry = self.ids.get(&id)?;
        let by = |address: AddressVector| {
            Some(Path { address, mtu: address.route.mtu, life_time: entry.options.life_time() })
        };
        match &entry.state {
            State::RouteResolved(route) => by(entry.way(*route)),
            State::Connection(connection) => Some(connection.path()),
            State::Resolution(resolution) => by(*resolution.address()),
            _ => None,
        }
    }

    /// The number of requests that wait at a listener. `None` if the id does not listen.
    pub fn waiting(&self, id: CommId) -> Option<usize> {
        match &self.ids.get(&id)?.state {
            State::Listening(backlog) => Some(backlog.len()),
            _ => None,
        }
    }

    /// The record that another process needs to end an id's connection if this process dies.
    pub fn record(&self, id: CommId) -> Option<Record> {
        match &self.ids.get(&id)?.state {
            State::Connection(connection) => connection.record(),
            _ => None,
        }
    }

    /// An id's request, if that waits for an answer and was repeated.
    pub fn unanswered(&self, id: CommId) -> Option<Unanswered> {
        match &self.ids.get(&id)?.state {
            State::Connection(connection) => connection.unanswered(),
            State::Resolution(resolution) => resolution.unanswered(),
            _ => None,
        }
    }

    /// Whether nothing is left of any id: no entry in any table, and no timer.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
            && self.listeners.is_empty()
            && self.served.is_empty()
            && self.lingering.is_empty()
            && self.early.is_empty()
            && self.shared.is_empty()
    }

    fn entry(&mut self, id: CommId) -> Result<&mut Entry, Refused> {
        self.ids.get_mut(&id).ok_or(Refused::NoSuchId)
    }

    fn forget_lingered(&mut self, id: CommId) {
        if self.lingering.get(&id).is_some_and(|connection| !connection.is_lingering()) {
            self.lingering.remove(&id);
        }
    }

    /// An id that nobody has.
    fn new_id(&mut self) -> Option<CommId> {
        let Self { ids, lingering, shared, .. } = self;
        shared.new_id(|id| ids.contains_key(&id) || lingering.contains_key(&id))
    }

    /// The ids that listen on a service.
    fn listeners_of(&self, service: ServiceId) -> &[CommId] {
        self.listeners.get(&service).map_or(&[], Vec::as_slice)
    }
}
