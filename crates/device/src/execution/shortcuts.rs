//! Shortcuts: what a process carries out as it is posted, for speed alone.

use super::one_sided::Admission;
use super::{Direct, OneSided, Payload, PlainSend};
use crate::queue::{Body, Remote};

/// Ways past the ring and the responder. A process may decline each, and needs none: what it declines goes the long
/// way, as segments to the responder ([`Requester::next_segment`](super::Requester::next_segment)), and comes to the
/// same.
pub trait Shortcuts {
    /// Carries out a WRITE, READ or atomic on the direct way if it is plain: one buffer or inline data, no more
    /// than a chunk, and all is allowed. True if it is done. Else [`Shortcuts::carry_out_direct`] decides anew, and says
    /// why: part of a WRITE or READ may have been done, of an atomic nothing. `kept` is what the target answered
    /// before, if anything since the queue pair was connected.
    fn try_at_once(
        &self,
        kept: &mut Option<Admission>,
        body: &Body,
        remote: &Remote,
        data: Payload<'_>,
        length: u64,
    ) -> bool {
        let _ = (kept, body, remote, data, length);
        false
    }

    /// Carries out an operation of so many bytes straight on the peer's memory. With XRC, its key is in the
    /// protection domain of the shared receive queue `srq`. An atomic is done once the answer is not
    /// [`Direct::Declined`], also where the old value may not be stored (rule LA-08).
    fn carry_out_direct(&self, operation: OneSided<'_>, srq: Option<u32>, length: u64) -> Direct {
        let _ = (operation, srq, length);
        Direct::Declined
    }

    /// Hands a SEND to the link, with its data: one buffer or inline data. False if that cannot be done just
    /// so, be it that there is no room or that the data may not be read: the long way says which.
    fn send_at_once(&self, send: &PlainSend, data: Payload<'_>) -> bool {
        let _ = (send, data);
        false
    }
}
