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

/// The configuration of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The number of the process among those with its node GUID. It is the upper byte of its communication ids (rule
    /// CM-41).
    pub slot: u8,
    /// The GUID of the adapter, by which peers identify connections. All processes that share the adapter have the
    /// same, and no others.
    pub node_guid: u64,
    /// The seed of ids and PSNs. It must be unpredictable.
    pub seed: u128,
    /// How long the adapter may take for an acknowledgement.
    pub ack_delay: TimeCode,
    /// The timeouts.
    pub timing: Timing,
    /// The largest backlog, whatever a program asks for.
    pub max_backlog: u32,
    /// Whether the adapter has FLUSH.
    pub flush: bool,
    /// Whether a request may wait for its listener (rule CM-56).
    pub waits: bool,
}

impl Config {
    /// Linux's values, for an adapter that takes 2^15 · 4.096 µs for an acknowledgement, as rxe reports.
    pub const fn new(slot: u8, node_guid: u64, seed: u128) -> Self {
        let ack_delay = match TimeCode::new(15) {
            Some(delay) => delay,
            None => TimeCode::MAX,
        };
        let timing = Timing::LINUX;
        let (max_backlog, flush, waits) = (1024, false, true);
        Self { slot, node_guid, seed, ack_delay, timing, max_backlog, flush, waits }
    }
}

/// The addresses of an arriving message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The address that it came from.
    pub source: IpAddr,
    /// The address of this host that it was sent to.
    pub destination: IpAddr,
}

impl Arrival {
    /// Whether it came from the other end of this route.
    pub(crate) fn is_by(self, way: &AddressVector) -> bool {
        (self.source, self.destination) == (way.route.destination, way.route.source)
    }
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The address to send it from.
    pub source: IpAddr,
    /// The address to send it to.
    pub destination: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The message.
    pub mad: Mad,
}

/// The most outgoing messages with which answers that belong to no id are still added. Beyond that they are dropped, as
/// a network would drop them.
const ANSWERS: usize = 256;

/// The state that all ids share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) config: Config,
    /// The connections, by their peers' ids.
    pub(crate) nodes: Nodes,
    /// The resolutions of datagram services, by source and request id (rule CM-31).
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

    /// A free id: the least recently given one. `None` if there is none.
    pub(crate) fn new_id(&mut self, taken: impl Fn(CommId) -> bool) -> Option<CommId> {
        let slot = u32::from(self.config.slot) << 24;
        let mut all = self.numbers.ids().map(|low| CommId(slot | low));
        all.find(|id| *id != CommId(0) && !taken(*id))
    }

    /// The transaction of an id's own messages (rule CM-11).
    pub(crate) fn transaction(&self, id: CommId) -> u64 {
        (u64::from(self.config.slot) + 1) << 32 | u64::from(id.0)
    }

    /// The information in a REJ whose sender has given up.
    pub(crate) fn guid(&self) -> Information {
        Information::new(&self.config.node_guid.to_be_bytes()).unwrap_or(Information::NONE)
    }

    pub(crate) fn happened(&mut self, id: CommId, happened: Happened) {
        self.events.push_back(Event { id, happened });
    }

    /// Sends a message by an address vector.
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
            // No id has the request, so no listener has taken it.
            RejectReason::Consumer => Some(Cause::NotTaken.information()),
            _ => None,
        };
        let information = information.unwrap_or(Information::NONE);
        let private_data = [0; Rej::PRIVATE];
        let rej = Rej { local_id, remote_id, rejected, reason, information, private_data };
        self.answer(arrival, transaction, Message::Rej(rej));
    }

    /// Confirms the end of an unknown connection (rule CM-26).
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

/// `given`, padded with zeros, if there is room.
pub(crate) fn padded<const N: usize>(given: &[u8]) -> Result<[u8; N], crate::Refused> {
    let too_long = crate::Refused::PrivateData { given: given.len(), room: N };
    let mut bytes = [0; N];
    bytes.get_mut(..given.len()).ok_or(too_long)?.copy_from_slice(given);
    Ok(bytes)
}
