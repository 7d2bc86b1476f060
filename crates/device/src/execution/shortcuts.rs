//! Shortcuts: requests that a process carries out as they are posted, for speed alone.

use super::one_sided::Admission;
use super::{Direct, OneSided, Payload, PlainSend};
use crate::queue::{Body, Remote};

/// Ways around the ring and the responder. A process may decline each, and needs none. A declined request goes the long
/// way, as segments to the responder ([`Requester::next_segment`](super::Requester::next_segment)), with the same
/// result.
pub trait Shortcuts {
    /// Carries out a WRITE, READ or atomic on the direct path if it is plain: one buffer or inline data, no more than a
    /// chunk, and everything is allowed. True if it is done. Otherwise [`Shortcuts::carry_out_direct`] decides again,
    /// and tells why. Part of a WRITE or READ may have been done, but nothing of an atomic. `kept` is the target's
    /// previous answer, if there was one since the queue pair was connected.
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
    /// [`Direct::Declined`], also where the old value may not be stored (rule LA-08). `position` is that of the request
    /// in its queue.
    fn carry_out_direct(
        &self,
        position: u64,
        operation: OneSided<'_>,
        srq: Option<u32>,
        length: u64,
    ) -> Direct {
        let _ = (position, operation, srq, length);
        Direct::Declined
    }

    /// Hands a SEND to the link, with its data: one buffer or inline data. False if that is impossible, because there
    /// is no room or because the data may not be read; the long way tells which.
    fn send_at_once(&self, send: &PlainSend, data: Payload<'_>) -> bool {
        let _ = (send, data);
        false
    }
}
