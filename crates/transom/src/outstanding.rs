//! The outstanding requests of a completion queue.
//!
//! Each posted request has a slot, and its `wr_id` names the slot. The slot holds the objects that the request names
//! until its ticket takes the completion. So memory and windows stay even if you forget the ticket. Whoever has the
//! completion knows that this request holds them no more.

use crate::completion::judge;
use crate::keep::Keep;
use crate::moment::Moment;
use crate::panics::outlive;
use crate::{Completion, Operation, WorkError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::SystemTime;
use transom_abi::ibv_wc;

/// How many completions one call takes from the device. Each poll makes room for them, and most polls find
/// one or none.
pub(crate) const BATCH: usize = 4;

/// The slots, and the number of requests that are not yet completed.
#[derive(Default)]
pub(crate) struct Outstanding {
    now: Moment,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Requests whose completion is not yet taken from the device.
    pub(crate) count: usize,
}

/// The name of a slot for one request: its index, and how often the slot was used before. The count keeps a late
/// completion of an earlier request from being taken for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    pub(crate) fn wr_id(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn from_wr_id(wr_id: u64) -> Self {
        Self { index: wr_id as u32, generation: (wr_id >> 32) as u32 }
    }
}

/// A queue pair or shared receive queue that requests are posted to. Each has a name that is never reused, unlike their
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poster(u64);

impl Poster {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

struct Slot {
    generation: u32,
    /// The poster of its request.
    poster: Poster,
    state: State,
}

enum State {
    Free,
    /// Posted. `waker` belongs to the task that awaits it.
    Posted {
        operation: Operation,
        keep: Keep,
        waker: Option<Waker>,
    },
    /// Posted, and nobody waits for it.
    Detached {
        keep: Keep,
    },
    /// Its completion is here. The objects go with it: if they were released by the thread that delivers it, the one
    /// that waits for it could be first.
    Done {
        result: Result<Completion, WorkError>,
        keep: Keep,
    },
}

/// The work that is left for after the lock: release memory, which may run any destructor, and wake a task, which may
/// run any code.
pub(crate) struct Leftover {
    keep: Keep,
    waker: Option<Waker>,
}

impl Leftover {
    pub(crate) const NOTHING: Self = Self { keep: Keep::Nothing, waker: None };

    pub(crate) fn settle(self) {
        let Self { keep, waker } = self;
        outlive(|| drop(keep));
        if let Some(waker) = waker {
            outlive(|| waker.wake());
        }
    }
}

impl Outstanding {
    /// Reserves a slot for a request that is about to be posted.
    pub(crate) fn insert(&mut self, poster: Poster, operation: Operation, keep: Keep) -> Ticket {
        self.count += 1;
        let state = State::Posted { operation, keep, waker: None };
        match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.poster = poster;
                slot.state = state;
                Ticket { index, generation: slot.generation }
            }
            None => {
                let index = u32::try_from(self.slots.len()).expect("fewer slots than CQ entries");
                self.slots.push(Slot { generation: 0, poster, state });
                Ticket { index, generation: 0 }
            }
        }
    }

    /// Takes back a slot whose request was not posted after all.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Keep {
        self.count -= 1;
        match self.release(ticket.index) {
            State::Posted { keep, .. } => keep,
            _ => unreachable!("a request that was not posted has no completion"),
        }
    }

    /// The present. Completions that are delivered from now on come after it.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Hands a completion that was just taken from the queue to its request.
    pub(crate) fn deliver(&mut self, wc: &ibv_wc, time: Option<SystemTime>) -> Leftover {
        self.now = self.now.next();
        let ticket = Ticket::from_wr_id(wc.wr_id);
        let Some(slot) = self.slots.get_mut(ticket.index as usize) else {
            return Leftover::NOTHING;
        };
        if slot.generation != ticket.generation {
            return Leftover::NOTHING;
        }
        match std::mem::replace(&mut slot.state, State::Free) {
            State::Posted { operation, keep, waker } => {
                self.count -= 1;
                slot.state = State::Done { result: judge(wc, operation, time, self.now), keep };
                Leftover { keep: Keep::Nothing, waker }
            }
            State::Detached { keep } => {
                self.count -= 1;
                self.release(ticket.index);
                Leftover { keep, waker: None }
            }
            other => {
                slot.state = other;
                Leftover::NOTHING
            }
        }
    }

    /// Takes the result of a request, once. Its slot is free afterwards. Release the objects without the lock, before
    /// you hand the result on.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<(Result<Completion, WorkError>, Keep)> {
        let slot = &self.slots[ticket.index as usize];
        if slot.generation != ticket.generation || !matches!(slot.state, State::Done { .. }) {
            return None;
        }
        match self.release(ticket.index) {
            State::Done { result, keep } => Some((result, keep)),
            _ => unreachable!("the state was looked at above"),
        }
    }

    /// Stores the waker of the task. Returns a waker to drop without the lock.
    pub(crate) fn set_waker(&mut self, ticket: Ticket, new: Waker) -> Option<Waker> {
        match &mut self.slots[ticket.index as usize].state {
            State::Posted { waker, .. } => waker.replace(new),
            _ => Some(new),
        }
    }

    /// Takes the wakers of all tasks that await a request. Wake them without the lock.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        let waker = |slot: &mut Slot| match &mut slot.state {
            State::Posted { waker, .. } => waker.take(),
            _ => None,
        };
        self.slots.iter_mut().filter_map(waker).collect()
    }

    /// Records that nobody waits for this request any more. Returns what to drop without the lock.
    pub(crate) fn detach(&mut self, ticket: Ticket) -> (Keep, Option<Waker>) {
        let nothing = (Keep::Nothing, None);
        let slot = &mut self.slots[ticket.index as usize];
        if slot.generation != ticket.generation {
            return nothing;
        }
        match std::mem::replace(&mut slot.state, State::Free) {
            State::Posted { keep, waker, .. } => {
                slot.state = State::Detached { keep };
                (Keep::Nothing, waker)
            }
            State::Done { keep, .. } => {
                self.release(ticket.index);
                (keep, None)
            }
            other => {
                slot.state = other;
                nothing
            }
        }
    }

    /// Forgets the requests of a poster that is destroyed: their completions will not come. Nobody waits for them,
    /// since a ticket would hold the poster.
    pub(crate) fn abandon(&mut self, poster: Poster) -> Vec<Keep> {
        let mut abandoned = Vec::new();
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.poster == poster && matches!(slot.state, State::Detached { .. }) {
                self.count -= 1;
                if let State::Detached { keep } = self.release(index as u32) {
                    abandoned.push(keep);
                }
            }
        }
        abandoned
    }

    fn release(&mut self, index: u32) -> State {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        std::mem::replace(&mut slot.state, State::Free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_abi::{IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS};

    fn insert(outstanding: &mut Outstanding) -> Ticket {
        outstanding.insert(Poster(7), Operation::Read, Keep::Nothing)
    }

    fn completion(ticket: Ticket) -> ibv_wc {
        ibv_wc { wr_id: ticket.wr_id(), status: IBV_WC_SUCCESS, qp_num: 7, ..ibv_wc::default() }
    }

    #[test]
    fn a_completion_finds_its_request() {
        let mut outstanding = Outstanding::default();
        let (a, b) = (insert(&mut outstanding), insert(&mut outstanding));
        let failed = ibv_wc { status: IBV_WC_REM_ACCESS_ERR, ..completion(b) };
        outstanding.deliver(&failed, None);
        assert!(outstanding.take(a).is_none());
        assert!(outstanding.take(b).unwrap().0.is_err());
        assert!(outstanding.take(b).is_none());
        outstanding.deliver(&completion(a), None);
        assert!(outstanding.take(a).unwrap().0.is_ok());
        assert_eq!(outstanding.count, 0);
    }

    #[test]
    fn a_completion_knows_when_it_was_taken_from_which_queue() {
        let mut outstanding = Outstanding::default();
        let deliver = |outstanding: &mut Outstanding| {
            let ticket = insert(outstanding);
            outstanding.deliver(&completion(ticket), None);
            outstanding.take(ticket).unwrap().0.unwrap().taken()
        };
        let begin = outstanding.now();
        let first = deliver(&mut outstanding);
        let between = outstanding.now();
        let second = deliver(&mut outstanding);
        assert!(first.is_after(begin) && second.is_after(begin));
        assert!(!first.is_after(between) && second.is_after(between));
        let of_another = deliver(&mut Outstanding::default());
        assert!(!of_another.is_after(begin));
    }

    #[test]
    fn a_late_completion_is_not_mistaken_for_a_new_request() {
        let mut outstanding = Outstanding::default();
        let old = insert(&mut outstanding);
        outstanding.detach(old);
        assert_eq!(outstanding.abandon(Poster(7)).len(), 1);
        let new = insert(&mut outstanding);
        assert_eq!(old.index, new.index);
        outstanding.deliver(&completion(old), None);
        assert!(outstanding.take(new).is_none());
        assert_eq!(outstanding.count, 1);
    }

    #[test]
    fn a_detached_request_frees_its_slot_by_itself() {
        let mut outstanding = Outstanding::default();
        let ticket = insert(&mut outstanding);
        outstanding.detach(ticket);
        assert_eq!(outstanding.count, 1);
        outstanding.deliver(&completion(ticket), None);
        assert_eq!(outstanding.count, 0);
        assert_eq!(outstanding.free.len(), 1);
    }
}
