//! The state that all ids of an engine share: the tables by which messages find them, their timers, and the outgoing
//! messages.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use transom_wire::cm::{
    CommId, Drep, Information, Mad, Message, Rej, RejectReason, Rejected, TimeCode,
};

use crate::attributes::{AddressVector, HOP_LIMIT};
use crate::cause::Cause;
use crate::event::{Event, Happened};
use crate::nodes::Nodes;
use crate::secret::Numbers;
use crate::timers::Timers;
use crate::timing::Timing;

/// What an engine is told once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The process among those of its node GUID: the upper byte of its communication ids (rule CM-41).
    pub slot: u8,
    /// The adapter, by which peers know connections: the same in all processes that share it, and in no
    /// others.
    pub node_guid: u64,
    /// What ids and PSNs come of, which nobody is to foresee.
    pub seed: u128,
    /// How long the adapter may take for an acknowledgement.
    pub ack_delay: TimeCode,
    /// How long is waited.
    pub timing: Timing,
    /// How many requests wait for a program at most, whatever backlog it asks for.
    pub max_backlog: u32,
    /// The adapter has FLUSH.
    pub flush: bool,
}

impl Config {
    /// With Linux's values, of an adapter that takes 2^15 · 4.096 µs for an acknowledgement, as rxe says.
    pub const fn new(slot: u8, node_guid: u64, seed: u128) -> Self {
        let ack_delay = match TimeCode::new(15) {
            Some(delay) => delay,
            None => TimeCode::MAX,
        };
        let timing = Timing::LINUX;
        Self { slot, node_guid, seed, ack_delay, timing, max_backlog: 1024, flush: false }
    }
}

/// Where a message came from, and which address of this host it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Where from.
    pub source: IpAddr,
    /// What for.
    pub destination: IpAddr,
}

impl Arrival {
    /// Whether it came by this way, from its other end.
    pub(crate) fn is_by(self, way: &AddressVector) -> bool {
        (self.source, self.destination) == (way.route.destination, way.route.source)
    }
}

/// A message that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From this address.
    pub source: IpAddr,
    /// To this one.
    pub destination: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The message.
    pub mad: Mad,
}

/// How many answers wait to be sent that belong to no id. More are dropped, as a network would.
const ANSWERS: usize = 256;

/// What all ids have in common.
#[derive(Debug)]
pub struct Shared {
    pub(crate) config: Config,
    /// By what their peers call them.
    pub(crate) nodes: Nodes,
    /// By source and request id (rule CM-31).
    pub(crate) asked: BTreeMap<(IpAddr, CommId), CommId>,
    pub(crate) timers: Timers,
    pub(crate) transmits: VecDeque<Transmit>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) numbers: Numbers,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            nodes: Nodes::default(),
            asked: BTreeMap::new(),
            timers: Timers::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            numbers: Numbers::new(config.seed),
        }
    }

    /// An id that nobody has, and that was not given for as long as possible; `None` if there is none.
    pub(crate) fn new_id(&mut self, taken: impl Fn(CommId) -> bool) -> Option<CommId> {
        let slot = u32::from(self.config.slot) << 24;
        let mut all = self.numbers.ids().map(|low| CommId(slot | low));
        all.find(|id| *id != CommId(0) && !taken(*id))
    }

    /// The transaction of an id's own messages (rule CM-11).
    pub(crate) fn transaction(&self, id: CommId) -> u64 {
        (u64::from(self.config.slot) + 1) << 32 | u64::from(id.0)
    }

    /// What a REJ says whose sender has waited long enough.
    pub(crate) fn guid(&self) -> Information {
        Information::new(&self.config.node_guid.to_be_bytes()).unwrap_or(Information::NONE)
    }

    pub(crate) fn happened(&mut self, id: CommId, happened: Happened) {
        self.events.push_back(Event { id, happened });
    }

    /// Has a message go where an id leads.
    pub(crate) fn transmit(&mut self, address: &AddressVector, mad: Mad) {
        self.transmits.push_back(Transmit {
            source: address.route.source,
            destination: address.route.destination,
            traffic_class: address.traffic_class,
            hop_limit: HOP_LIMIT,
            mad,
        });
    }

    /// Answers a message that belongs to no id.
    pub(crate) fn answer(&mut self, arrival: Arrival, transaction: u64, message: Message) {
        if self.transmits.len() >= ANSWERS {
            return;
        }
        self.transmits.push_back(Transmit {
            source: arrival.destination,
            destination: arrival.source,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            mad: Mad { transaction, message },
        });
    }

    /// Refuses a message that belongs to no id.
    pub(crate) fn refuse(
        &mut self,
        arrival: Arrival,
        transaction: u64,
        (local_id, remote_id): (CommId, CommId),
        rejected: Rejected,
        reason: RejectReason,
    ) {
        let information = match reason {
            RejectReason::InvalidGid => Information::new(&gid(arrival.destination)),
            // No id has it: no listener has taken it.
            RejectReason::Consumer => Some(Cause::NotTaken.information()),
            _ => None,
        };
        let information = information.unwrap_or(Information::NONE);
        let private_data = [0; Rej::PRIVATE];
        let rej = Rej { local_id, remote_id, rejected, reason, information, private_data };
        self.answer(arrival, transaction, Message::Rej(rej));
    }

    /// Confirms the end of a connection that nobody knows (rule CM-26).
    pub(crate) fn confirm_end(
        &mut self,
        arrival: Arrival,
        transaction: u64,
        local_id: CommId,
        remote_id: CommId,
    ) {
        let drep = Drep { local_id, remote_id, private_data: [0; Drep::PRIVATE] };
        self.answer(arrival, transaction, Message::Drep(drep));
    }

    /// Whether nothing is left of any id.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.asked.is_empty() && self.timers.is_empty()
    }
}

/// The GID of an address.
pub(crate) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// `given` with zeroes behind, if there is room.
pub(crate) fn padded<const N: usize>(given: &[u8]) -> Result<[u8; N], crate::Refused> {
    let too_long = crate::Refused::PrivateData { given: given.len(), room: N };
    let mut bytes = [0; N];
    bytes.get_mut(..given.len()).ok_or(too_long)?.copy_from_slice(given);
    Ok(bytes)
}
