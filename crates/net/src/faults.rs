//! Faults that a user asks for, to see how a program copes: `transom run --fault`.
//!
//! ```text
//! loss=1%,delay=2ms,reorder=5%,duplicate=1%,corrupt=0.1%,rate=100mbit,seed=7   the network
//! nak=remote-access,op=read,nth=3      the third READ is refused
//! rnr,op=send,nth=1                    the first SEND finds no receive
//! drop,op=write,nth=2..                every WRITE from the second on is lost
//! port-down=2s,at=5s                   the port is down for a while
//! device-removal,at=5s                 the device is gone
//! address-change,at=5s                 its addresses belong to other hardware
//! device-removal,at=5s,device=1        the second device of a program is gone
//! reject=28,nth=1                      the first request for a connection is refused
//! drop,op=rtu                          no RTU arrives
//! delay=3s,op=rep                      every REP arrives late
//! ```
//!
//! Each line is a [`Fault`]; a process has [`Faults`]. Texts are parsed once, here. Everything else works with values
//! that cannot be wrong.

mod grammar;
mod injector;
mod network;
mod outages;
mod quantity;
mod random;

use std::num::NonZeroU64;

use transom_device::execution::Injection;
use transom_device::operation::Operation;
use transom_device::queue::Body;
use transom_wire::cm::Message;

pub use grammar::FaultError;
pub use injector::Injector;
pub use network::FaultyNetwork;
pub use outages::Outages;
pub use quantity::{Rate, Share, Time};

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The network treats packets badly.
    Network(NetworkFaults),
    /// How some requests are answered.
    Rule(InjectionRule),
    /// The port is down for a while.
    Outage(PortOutage),
    /// Some messages of connections are refused, lost or late.
    Message(MessageRule),
    /// Something happens to the device.
    Incident(Incident),
}

/// All faults of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The faults of the network.
    pub network: Option<NetworkFaults>,
    /// The rules for answers to requests. The first rule that matches decides.
    pub rules: Vec<InjectionRule>,
    /// When the port is down.
    pub outages: Vec<PortOutage>,
    /// The rules for messages of connections. The first rule that matches decides.
    pub messages: Vec<MessageRule>,
    /// The incidents of the device.
    pub incidents: Vec<Incident>,
}

/// What the network does to the packets that a process sends. An absent field does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkFaults {
    /// How many are lost.
    pub loss: Option<Share>,
    /// How long each is under way.
    pub delay: Option<Time>,
    /// The share of packets that are held back while later ones pass.
    pub reorder: Option<Share>,
    /// How many arrive twice.
    pub duplicate: Option<Share>,
    /// The share of packets that arrive with one bit changed.
    pub corrupt: Option<Share>,
    /// How much passes in a second.
    pub rate: Option<Rate>,
    /// The seed of the random numbers. The same seed treats a device's packets the same way.
    pub seed: Option<u64>,
}

/// A rule: which requests get which answer, without being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectionRule {
    /// The answer.
    pub answer: Injection,
    /// The operation to answer, with all that have the same label. `None` for any.
    pub operation: Option<Operation>,
    /// Which of them to answer, counted as they arrive at this process over any queue pair.
    pub nth: Nth,
}

impl InjectionRule {
    /// Whether it is about messages like this one.
    pub fn concerns(&self, body: &Body) -> bool {
        let label = |operation: Operation| operation.needs().label;
        self.operation.is_none_or(|operation| label(operation) == label(body.operation()))
    }
}

/// A rule: what happens to which messages of connections, as they arrive at this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRule {
    /// Their fate.
    pub fate: MessageFate,
    /// Of which kind they are.
    pub kind: MessageKind,
    /// Which of them.
    pub nth: Nth,
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFate {
    /// It is refused with the reason of this number, and its listener does not get it.
    Refused(u16),
    /// It is lost.
    Lost,
    /// It arrives so much later.
    Late(Time),
}

/// The kinds of connection messages that faults name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the messages")]
pub enum MessageKind {
    Req,
    Rep,
    Rtu,
    Dreq,
}

impl MessageKind {
    /// The kind of a message, if faults can name it.
    pub fn of(message: &Message) -> Option<Self> {
        Some(match message {
            Message::Req(_) => Self::Req,
            Message::Rep(_) => Self::Rep,
            Message::Rtu(_) => Self::Rtu,
            Message::Dreq(_) => Self::Dreq,
            _ => return None,
        })
    }
}

/// Which of the matching requests, counted from one. A repeated request counts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nth {
    /// This one.
    Only(NonZeroU64),
    /// This one and all after it.
    From(NonZeroU64),
}

impl Nth {
    /// Every request that matches.
    pub const ALL: Self = Self::From(NonZeroU64::MIN);

    /// Whether the request with this count is meant.
    pub const fn includes(self, count: u64) -> bool {
        match self {
            Self::Only(nth) => count == nth.get(),
            Self::From(first) => count >= first.get(),
        }
    }
}

/// When the port is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOutage {
    /// For how long.
    pub lasts: Time,
    /// When it begins, counted from the opening of the device.
    pub at: Time,
    /// Only at the device of this number of a program.
    pub device: Option<u8>,
}

/// Something that happens to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The kind of incident.
    pub kind: IncidentKind,
    /// When it happens, counted from the opening of the device.
    pub at: Time,
    /// Only to the device of this number of a program.
    pub device: Option<u8>,
}

/// Incidents of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IncidentKind {
    /// The device is gone, as if unplugged.
    DeviceRemoval,
    /// The addresses belong to other hardware, as after a fail-over. Programs are told.
    AddressChange,
}

impl Faults {
    /// Combines faults. You may give the network's faults in several pieces, each kind once. A seed alone is no fault.
    pub fn new(faults: impl IntoIterator<Item = Fault>) -> Result<Self, FaultError> {
        let mut all = Self::default();
        for fault in faults {
            match fault {
                Fault::Network(more) => match &mut all.network {
                    Some(network) => network.add(&more)?,
                    None => all.network = Some(more),
                },
                Fault::Rule(rule) => all.rules.push(rule),
                Fault::Outage(outage) => all.outages.push(outage),
                Fault::Message(message) => all.messages.push(message),
                Fault::Incident(incident) => all.incidents.push(incident),
            }
        }
        all.network.as_ref().map_or(Ok(()), NetworkFaults::check)?;
        Ok(all)
    }

    /// Checks that those of one device are of one that a program with this many devices has.
    ///
    /// # Errors
    /// The number is too large.
    pub fn check_devices(&self, count: usize) -> Result<(), FaultError> {
        let of_outages = self.outages.iter().map(|it| it.device);
        let mut numbers = of_outages.chain(self.incidents.iter().map(|it| it.device)).flatten();
        let wrong = numbers.find(|number| usize::from(*number) >= count);
        wrong.map_or(Ok(()), |number| Err(FaultError::no_device(number, count)))
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether they show only on a link that has packets and a port. Processes of one host must then use such a link
    /// too.
    pub fn need_wire(&self) -> bool {
        self.network.is_some() || !self.outages.is_empty()
    }
}
