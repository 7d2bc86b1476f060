//! The observer of the links' traffic.

use transom_device::execution::{Reply, Request, Source};
use transom_device::qp::QpNumber;
use transom_net::Path;
use transom_wire::Psn;
use transom_wire::packet::Packet;

/// Links, as interfaces of a capture. The values are their numbers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// Within a process.
    Loopback = 0,
    /// Between processes, through rings.
    Local = 1,
    /// The direction of a packet, seen from the process that writes it down. The values are those of `epb_flags`.
    Wire = 2,
}

impl Interface {
    pub(crate) const ALL: [Self; 3] = [Self::Loopback, Self::Local, Self::Wire];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Local => "local",
            Self::Wire => "wire",
        }
    }
}

/// Which way a packet goes, seen from the process that writes it down; the values are those of
/// `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// It arrives.
    Inbound = 1,
    /// It leaves.
    Outbound = 2,
}

/// An answer, and the request it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// The registry slot of the process that gave it.
    pub(crate) by: u8,
    /// The requester.
    pub(crate) from: QpNumber,
    /// The responder.
    pub(crate) to: QpNumber,
    /// The number of the message.
    pub(crate) message: Psn,
    /// The attempt.
    pub(crate) attempt: u64,
    /// The answer.
    pub(crate) reply: Reply,
}

impl Answered {
    /// The answer of the process in a slot to a segment.
    pub(crate) fn to(request: &Request, reply: Reply, by: u8) -> Self {
        let &Request { from, to, message, attempt, .. } = request;
        Self { by, from, to, message, attempt, reply }
    }
}

/// Sees all traffic of the links, except packets that leave over the wire ([`transom_net::Observer`]).
pub(crate) trait Observer: Send + Sync {
    /// A queue pair has been connected anew, by this path.
    fn connects(&self, from: QpNumber, path: Path);

    /// A segment goes over a link without packets. Its bytes are in `data`.
    fn request(
        &self,
        link: Interface,
        direction: Direction,
        request: &Request,
        data: &mut dyn Source,
    );

    /// An answer goes over a link without packets. `data` has the bytes of a READ.
    fn answer(
        &self,
        link: Interface,
        direction: Direction,
        answer: &Answered,
        data: &mut dyn Source,
    );

    /// A management datagram goes to another queue pair 1 of this host.
    fn management(&self, link: Interface, path: &Path, packet: &Packet<'_>);

    /// A datagram has come over the wire. `dropped` says why it goes no further.
    fn arrives(&self, path: &Path, identification: u16, datagram: &[u8], dropped: Option<&str>);
}
