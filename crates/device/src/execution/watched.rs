//! Work requests that somebody watches: what has become of one, and what the next one waits for.

use transom_wire::Psn;

use crate::numbered::numbered;
use crate::operation::Operation;
use crate::queue::Status;

/// A watched work request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its position in the send queue.
    pub position: u64,
    /// The consumer's number.
    pub wr_id: u64,
    /// Its operation. `None` if the service does not have it.
    pub operation: Option<Operation>,
    /// How it ended.
    pub status: Status,
    /// The bytes it moved.
    pub length: u64,
}

/// What has become of a work request that was just posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It has ended.
    Ended,
    /// It waits for its turn.
    Waits,
    /// It was handed to the link, as the message of this number.
    Sent(Psn),
}

numbered! {
    /// What the next work request waits for.
    pub enum Awaited {
        /// A time: the peer has no receive, or something was lost.
        Time = 1,
        /// The queue pair is in a state that sends nothing.
        State = 2,
        /// It has a fence, and READs or atomics before it are under way.
        Fence = 3,
        /// As many READs and atomics are under way as may be.
        Reads = 4,
        /// Those before it have to end first.
        Turn = 5,
        /// So much is unanswered already.
        Window = 6,
        /// The link has no room.
        Room = 7,
    }
}
