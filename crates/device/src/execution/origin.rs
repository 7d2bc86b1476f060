//! What a requester needs of its link.

use super::{MAX_DATAGRAM, Reply, Request, Services};
use crate::protection::{Refusal, RemoteAddress};
use crate::queue::{Address, Sge};

/// The local data of a send work request.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// Captured when posted.
    Inline(&'a [u8]),
    /// Read from, or written to, when carried out.
    Buffers(&'a [Sge]),
}

/// What became of a one-sided operation on the direct way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// Carried out.
    Done,
    /// Not possible or not allowed: ask the responder.
    Declined,
    /// The local buffers are refused or gone.
    Near(Refusal),
}

/// What became of a segment handed to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// On its way; a reply will come.
    Queued,
    /// No room now; the link will have the queue pair advanced when there is.
    Busy,
    /// Carried out at once.
    Answered(Reply),
    /// The local buffers are refused or gone.
    Near(Refusal),
    /// Nobody is there.
    Unreachable,
}

/// What a requester needs beside [`Services`]: its link.
pub trait Origin: Services {
    /// The queue pair at the other end.
    fn peer(&self) -> crate::qp::QpNumber;
    /// RDMA WRITE straight into the target's memory.
    fn write_direct(&self, to: RemoteAddress, payload: Payload<'_>, length: u64) -> Direct;
    /// RDMA READ straight from the target's memory.
    fn read_direct(&self, from: RemoteAddress, buffers: &[Sge], length: u64) -> Direct;
    /// The path MTU in bytes, if the link carries packets: messages are numbered by them then, else
    /// one by one. Answers come back by [`Requester::on_packets`](super::Requester::on_packets) then.
    fn path_mtu(&self) -> Option<u64>;
    /// The longest datagram that gets to an address, in bytes (rule UD-03).
    fn datagram_limit(&self, _to: &Address) -> u64 {
        self.path_mtu().map_or(MAX_DATAGRAM, |mtu| mtu.min(MAX_DATAGRAM))
    }
    /// How many of the `rest` bytes of a message [`Origin::send`] takes as one segment: all of them, or
    /// a multiple of the path MTU, if there is one.
    fn segment_of(&self, rest: u64) -> u64;
    /// How many bytes may be on their way in packets now, as far as other queue pairs go: what those of
    /// one device send together must find room at the other end.
    fn window_share(&self) -> u64 {
        u64::MAX
    }
    /// Hands a segment to the link. Of a READ or atomic, `payload` is where the data goes if the
    /// link carries it out at once. A link that carries packets sends the segment as a
    /// train of them, and answers nothing at once.
    fn send(&self, request: &Request, payload: Payload<'_>) -> Sent;
}
