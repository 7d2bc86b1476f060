//! The surroundings of a queue pair at work: its process, for everything that must be done or known at once, and a
//! buffer for everything else.

use super::{
    CopyError, Counted, Effects, Ended, Failure, Injection, MAX_DATAGRAM, Pieces, QueueSide,
    Request, Shortcuts, Source, Tally, Unheard,
};
use crate::operation::Operation;
use crate::protection::{Announcer, Attempt, Grant, KeyTable, Refusal, Waiter, Witness};
use crate::qp::{Look, QpNumber, QpSummary, QpTable};
use crate::queue::{Address, Completion, Datagram, Receive, Take};

/// Memory that cannot be reached any more, or not in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory cannot be reached any more")]
pub struct MemoryGone;

/// The result of taking a receive from a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeShared {
    /// The queue's answer.
    Found(Take),
    /// There is no such shared queue for this queue pair.
    Unknown,
}

/// The services of its process that a queue pair needs at once, because its next step depends on them. [`Shortcuts`]
/// are for speed. Everything else goes by [`Effects`].
pub trait Process: Shortcuts {
    /// Its key table.
    fn keys(&self) -> KeyTable<'_>;
    /// Its queue pairs.
    fn qps(&self) -> QpTable<'_>;
    /// The name under which it announces.
    fn announcer(&self) -> Announcer;
    /// How to wait.
    fn waiter(&self) -> &dyn Waiter;
    /// Nanoseconds of a steady clock. It is asked, and not told, because most calls need no time, and
    /// reading a clock costs as much as a small post.
    fn now(&self) -> u64;
    /// The time has come until which a send queue was to wait. In a rehearsal it may have to wait on: then until when.
    fn waits_on(&self) -> Option<u64> {
        None
    }
    /// Writes pieces one after the other from `at` on, in one step if it can; together they are as long as
    /// it.
    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone>;
    /// Replaces the eight bytes at `at` by what `update` makes of them, as one step among all
    /// atomics of this device; answers the old value (rule AT-09).
    fn atomic(&self, at: &Grant<'_>, update: &mut dyn FnMut(u64) -> u64)
    -> Result<u64, MemoryGone>;
    /// Takes a receive for a message from the shared queue that the queue pair was created with. For XRC, from the
    /// queue of its domain that the message names by `srq`. `tag` is the tag to match, if the queue matches tags.
    fn take_shared(
        &self,
        srq: Option<u32>,
        tag: Option<u64>,
        least: u64,
        receive: &mut Receive,
    ) -> TakeShared;
    /// The state of the queue pair before the call, if another process has it; then it is the receiving end of XRC. It
    /// may be connected again meanwhile. Decisions here are about the connection that it had.
    fn connection(&self) -> Option<&Look> {
        None
    }
    /// The protection domain of a shared receive queue of the queue pair's XRC domain, by number.
    fn shared_pd(&self, srq: u32) -> Option<u32>;
    /// A work request of the send queue has ended: its completion is seen. That of a receive is among the
    /// [`Effects`], for an answer leaves before it.
    fn complete(&self, completion: &Completion);
    /// Something is refused. This notes the reason, before a completion or an answer tells of it.
    fn note_refusal(&self, refusal: &Refusal);
    /// Fills bytes that come to the program and mean nothing. They are zero before.
    fn fill_undefined(&self, bytes: &mut [u8]) {
        let _ = bytes;
    }
    /// A receive is taken for a message. In a rehearsal that may spoil it.
    #[inline]
    fn has_taken(&self, receive: &mut Receive, request: &Request) {
        let _ = (receive, request);
    }
    /// How so many bytes of a segment land that has arrived, if they do not as a whole.
    #[inline]
    fn lands_in_pieces(&self, request: &Request, length: u64) -> Option<Pieces> {
        let _ = (request, length);
        None
    }
    /// What lands early has landed. This may wait a moment.
    fn wait_between_pieces(&self) {}
    /// Whether a rehearsal decides when WRITEs get to memory: by [`Process::place`], and [`Process::reads`].
    #[inline]
    fn decides_when(&self) -> bool {
        false
    }
    /// Gets bytes of a WRITE to memory, those of `source` from `offset` on. It may be later.
    fn place(
        &self,
        request: &Request,
        at: &Grant<'_>,
        offset: u64,
        source: &mut dyn Source,
    ) -> Result<(), CopyError> {
        let _ = request;
        source.copy_to(offset, at)
    }
    /// A READ is about to read memory. What came before it must be there.
    fn reads(&self, at: &Grant<'_>) {
        let _ = at;
    }
    /// A peer has written somewhere.
    fn note_write(&self, write: &Attempt) {
        let _ = write;
    }
    /// Who hears of what is opened to peers, and of what they touch.
    #[inline]
    fn witness(&self) -> Option<&dyn Witness> {
        None
    }
    /// A work request of the send queue ends in error though nothing is refused here: the same for that.
    fn note_failure(&self, failure: &Failure) {
        let _ = failure;
    }
    /// So many work requests of a queue pair in error are flushed, sends or receives. If one call does not flush all of
    /// them, the next one says how many are left.
    fn note_flushed(&self, side: QueueSide, count: u64) {
        let _ = (side, count);
    }
    /// A message of this queue pair is dropped.
    fn note_unheard(&self, from: QpNumber, why: Unheard) {
        let _ = (from, why);
    }
    /// An operation has ended that completion counters may count: well, with so many bytes, or in error, with `None`.
    /// Its completion, if any, comes after this call.
    fn count(&self, operation: Counted, bytes: Option<u64>) {
        let _ = (operation, bytes);
    }
    /// A work request of the send queue has ended well, with so many bytes. [`Shortcuts::try_at_once`] tells of no one
    /// that it carries out.
    #[inline]
    fn has_carried(&self, operation: Operation, bytes: u64) {
        let _ = (operation, bytes);
    }
    /// A work request of the send queue has ended that is [watched](super::Requester::watch). Its completion, if any,
    /// comes after this call.
    fn has_ended(&self, ended: &Ended) {
        let _ = ended;
    }
    /// A peer's request has been carried out here, with so many bytes.
    #[inline]
    fn has_served(&self, operation: Operation, bytes: u64) {
        let _ = (operation, bytes);
    }
    /// A datagram has found its receive, and is in it.
    fn has_delivered(&self, datagram: &Datagram) {
        let _ = datagram;
    }
    /// So many work requests wait in the send queue now that another was posted.
    #[inline]
    fn sends_wait(&self, count: usize) {
        let _ = count;
    }
    /// So many receives wait in the receive queue now that another was posted.
    #[inline]
    fn receives_wait(&self, count: usize) {
        let _ = count;
    }
    /// Something is to be counted so often.
    fn tally(&self, tally: Tally, count: u64) {
        let _ = (tally, count);
    }
    /// The longest datagram that gets to an address, in bytes (rule UD-03).
    fn datagram_limit(&self, to: &Address) -> u64 {
        let _ = to;
        MAX_DATAGRAM
    }
    /// A segment is about to be carried out here.
    #[inline]
    fn carries_out(&self, request: &Request) {
        let _ = request;
    }
    /// A peer asks for memory. Nothing is decided yet.
    #[inline]
    fn is_asked(&self, request: &Request) {
        let _ = request;
    }
    /// The answer to a request that has just arrived, if somebody wants it not to be carried out.
    fn injected(&self, request: &Request) -> Option<Injection> {
        let _ = request;
        None
    }
}

/// A queue pair at work.
pub struct Context<'a, P> {
    /// Its process.
    pub process: &'a P,
    /// Its number.
    pub number: QpNumber,
    /// Its summary.
    pub summary: &'a QpSummary,
    /// The effects for its caller.
    pub effects: &'a mut Effects,
}
