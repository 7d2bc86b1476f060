//! Rendezvous of a queue pair whose shared receive queue matches tags. A request has matched a tagged buffer, so the
//! device itself reads the data from the sender, and tells the sender when it is done. Both go through the queue pair's
//! own send queue, in room beside the program's.

use transom_wire::tmh::TagHeader;

use crate::protection::Key;
use crate::queue::{Sge, TAG_MAX_SGE};

/// How many rendezvous of a queue pair wait at most, and how many are under way at most. A request
/// that finds no room is answered "not ready".
pub(super) const MAX_RENDEZVOUS: usize = 16;

/// A rendezvous to carry out.
#[derive(Clone, Copy, Debug)]
pub struct Rendezvous {
    /// The consumer's number of the tagged buffer.
    pub wr_id: u64,
    /// The header of the request; that of the answer has its tag and context too.
    pub header: TagHeader,
    /// First remote address.
    pub address: u64,
    /// R_Key.
    pub key: Key,
    /// Bytes to read.
    pub length: u32,
    /// Raise a solicited event when the data is there.
    pub solicited: bool,
    /// How many scatter/gather entries the buffer has.
    pub num_sge: usize,
    /// The buffer.
    pub sges: [Sge; TAG_MAX_SGE],
}
