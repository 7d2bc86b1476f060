//! The READs, atomics and similar requests that a responder has carried out recently: which of them still have to be
//! answered, and the data to answer them again (rules PSN-13 to PSN-16, AT-10).

use std::collections::VecDeque;

use transom_wire::packet::{self, Reth};

use crate::operation::{Data, Operation};
use crate::protection::RemoteAddress;
use crate::queue::SizeError;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The data of a READ, fetched when it is sent.
    Data {
        /// From where, as the request named it (rule PSN-22).
        from: RemoteAddress,
        /// Bytes.
        length: u64,
    },
    /// The old value of an atomic.
    Old(u64),
    /// Nothing but that it is done: ATOMIC WRITE and FLUSH.
    Done,
}

/// Which packets of the answer to a READ are to go out: those from `next` on, which begin the answer
/// at `first` and end it after `end` bytes of the READ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) next: u32,
    pub(super) end: u64,
}

/// A request that has been carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    /// Its extended PSN in the stream of requests.
    pub(super) at: u64,
    /// How many numbers it takes.
    pub(super) packets: u32,
    /// Messages completed with it, for its answer (rule PSN-20).
    pub(super) msn: u32,
    /// XRC: the shared receive queue that it named.
    pub(super) srq: u32,
    pub(super) answer: Answer,
    /// The part of a READ's answer that has to go out.
    pub(super) range: Range,
    /// An answer is to go out.
    pub(super) pending: bool,
    /// It has been answered in full once.
    pub(super) answered: bool,
}

impl Resource {
    /// A new request, whose answer is pending; `packets` is more than one for a READ only.
    pub(super) fn new(at: u64, packets: u32, msn: u32, srq: u32, answer: Answer) -> Self {
        let end = if let Answer::Data { length, .. } = answer { length } else { 0 };
        let range = Range { first: 0, next: 0, end };
        Self { at, packets, msn, srq, answer, range, pending: true, answered: false }
    }

    /// The extended PSN behind it.
    fn end(&self) -> u64 {
        self.at + u64::from(self.packets)
    }

    /// The part of this READ that another one, packet number `at`, asks for again: all of it, or the part that its
    /// number says.
    fn again(&self, at: u64, reth: &Reth, mtu: u64) -> Option<Range> {
        let Answer::Data { from, length } = self.answer else { return None };
        let first = u32::try_from(at.checked_sub(self.at)?).ok()?;
        let skipped = u64::from(first).checked_mul(mtu)?;
        let end = skipped.checked_add(u64::from(reth.length))?;
        let same = first < self.packets
            && reth.key == from.key.0
            && reth.address == from.address.wrapping_add(skipped)
            && end <= length;
        same.then_some(Range { first, next: first, end })
    }

    /// Whether a request of this operation, other than a READ, is this one again.
    fn is_again(&self, packet: &packet::Operation) -> bool {
        let asked = packet.opcode().and_then(Operation::of_packet);
        match asked.map(|operation| operation.needs().data) {
            Some(Data::OldValue) => matches!(self.answer, Answer::Old(_)),
            Some(Data::None | Data::Sent) => self.answer == Answer::Done,
            Some(Data::Fetched) | None => false,
        }
    }
}

/// The requests that are kept, oldest first. The oldest make room for new ones.
///
/// There may be many, and those that matter are the newest: everything but the search for one that
/// came again goes from the back.
#[derive(Default)]
pub(super) struct ResponderResources {
    ring: VecDeque<Resource>,
    capacity: usize,
    /// How many answers are pending.
    pending: usize,
    /// Older ones have made room.
    forgot: bool,
}

impl ResponderResources {
    /// Keeps as many as this from now on.
    pub(super) fn keep(&mut self, capacity: usize) -> Result<(), SizeError> {
        let more = capacity.saturating_sub(self.ring.len());
        self.ring.try_reserve_exact(more).map_err(|_| SizeError::NoMemory)?;
        self.capacity = capacity;
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.ring.clear();
        (self.pending, self.forgot) = (0, false);
    }

    /// How many are kept at most.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Keeps one more, whose answer is pending.
    pub(super) fn push(&mut self, resource: Resource) {
        if self.ring.len() >= self.capacity
            && let Some(oldest) = self.ring.pop_front()
        {
            self.pending -= usize::from(oldest.pending);
            self.forgot = true;
        }
        self.ring.push_back(resource);
        self.pending += 1;
    }

    /// How many the origin has not been answered yet.
    pub(super) fn outstanding(&self) -> usize {
        self.ring.iter().rev().take_while(|resource| !resource.answered).count()
    }

    pub(super) fn has_pending(&self) -> bool {
        self.pending > 0
    }

    /// The oldest whose answer is pending.
    pub(super) fn oldest_pending(&self) -> Option<&Resource> {
        let pending = self.ring.iter().rev().filter(|resource| resource.pending);
        pending.take(self.pending).last()
    }

    /// So many packets of the answer of the oldest that is pending have been sent, be they the last.
    pub(super) fn answered(&mut self, packets: u32, ends: bool) {
        let pending = self.ring.iter_mut().rev().filter(|resource| resource.pending);
        let Some(resource) = pending.take(self.pending).last() else { return };
        resource.range.next += packets;
        if ends {
            (resource.pending, resource.answered) = (false, true);
            self.pending -= 1;
        }
    }

    /// Whether an answer is pending that goes before the acknowledgement of `extended_psn`.
    pub(super) fn has_pending_before(&self, extended_psn: u64) -> bool {
        self.oldest_pending().is_some_and(|resource| resource.at <= extended_psn)
    }

    /// Owes nothing any more: the queue pair is in error.
    pub(super) fn forget_pending(&mut self) {
        for resource in &mut self.ring {
            resource.pending = false;
        }
        self.pending = 0;
    }

    /// How far an acknowledgement of `extended_psn` may go without covering one of them. `expected` is the next number.
    /// There may have been others before the oldest.
    pub(super) fn end_from(&self, extended_psn: u64, expected: u64) -> u64 {
        let after = self.ring.iter().rev().take_while(|resource| resource.at > extended_psn);
        let (count, next) =
            after.fold((0, expected), |(count, _), resource| (count + 1, resource.at));
        let known = count < self.ring.len() || !self.forgot;
        if known { next - 1 } else { extended_psn }
    }

    /// Whether an extended PSN is of one of them.
    pub(super) fn holds(&self, extended_psn: u64) -> bool {
        self.ring
            .iter()
            .rev()
            .take_while(|resource| resource.end() > extended_psn)
            .any(|resource| resource.at <= extended_psn)
    }

    /// Schedules the answer to a repeated request, if it is one of these. The part that is still to come anyway is not
    /// sent twice.
    pub(super) fn answer_again(&mut self, at: u64, operation: &packet::Operation, mtu: u64) {
        let holds = |resource: &&mut Resource| (resource.at..resource.end()).contains(&at);
        let Some(resource) = self.ring.iter_mut().find(holds) else { return };
        if let packet::Operation::ReadRequest(reth) = operation {
            let Some(range) = resource.again(at, reth, mtu) else { return };
            let to_come = resource.pending
                && range.first >= resource.range.next
                && range.end == resource.range.end;
            if !to_come {
                resource.range = range;
            }
        } else if !resource.is_again(operation) {
            return;
        }
        self.pending += usize::from(!resource.pending);
        resource.pending = true;
    }
}
