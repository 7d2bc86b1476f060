//! Requests that are posted, and taken or refused.
//!
//! The ledger hears of a request before it is posted. It writes it down in the room of an earlier one, where it stays
//! until it has ended.

use std::iter;
use std::mem::take;
use std::ops::Range;

use super::pair::ErrorSeen;
use super::{Asked, Ledger, Pair, Posted, ProgramMemory, Ring, Thing};
use crate::{Call, Kind};

/// The most refused requests that are remembered.
const DROPPED: usize = 64;
/// The most receives of a shared receive queue that are remembered. No device takes as many.
const SHARED: usize = 1 << 16;

/// Requests that a call is about to post. Each writes itself down.
pub trait Requests: Iterator<Item: FnOnce(&mut Posted)> {}

impl<I: Iterator<Item: FnOnce(&mut Posted)>> Requests for I {}

impl Pair {
    /// Whether the ledger must hear that the last of its sends, which are about to be posted, were accepted.
    fn is_told_of(&self, sends: &Ring, new: &Range<usize>) -> bool {
        let Self { asked, .. } = self;
        let is_more = new.end > asked.sends as usize && self.one_send_more.is_none();
        let has_failed = self.has_error() || self.is_unconnected();
        let is_odd = new.end > self.most_sends || !self.dropped.is_empty() || has_failed;
        is_more || is_odd || sends.range(new.clone()).any(|it| is_beyond(it, asked, true))
    }

    fn drop_refused(&mut self, refused: &[Posted]) {
        let room = DROPPED.saturating_sub(self.dropped.len());
        self.dropped.extend(refused.iter().take(room).cloned());
    }

    fn take_again<'a>(&mut self, mut posted: impl Iterator<Item = &'a Posted>) {
        while let Some(posted) = posted.next().filter(|_| !self.dropped.is_empty()) {
            self.dropped.retain(|it| (posted.wr_id, posted.what) != (it.wr_id, it.what));
        }
    }
}

impl Ledger {
    /// Writes down requests that are about to be posted, and looks at their buffers. Returns their places.
    fn enter(
        &mut self,
        ring: &mut Ring,
        device: usize,
        requests: impl Requests,
        call: &Call,
        memory: &impl ProgramMemory,
    ) -> Range<usize> {
        let first = ring.len();
        for request in requests {
            let posted = ring.add();
            request(posted);
            posted.call = *call;
            self.locate(device, posted);
        }
        let new = first..ring.len();
        self.arrived.forget();
        self.tell_gone(ring.range(new.clone()));
        self.tell_claimed(ring.range(new.clone()));
        let mut are_read = true;
        for posted in ring.range_mut(new.clone()) {
            self.begin_sample(posted);
            are_read &= memory.read_at_once(posted);
        }
        if !are_read {
            memory.read(ring.range_mut(new.clone()).collect());
        }
        new
    }

    /// Reports a fetch-and-add that adds an address of the program.
    fn tell_added<'a>(
        &mut self,
        address: usize,
        mut posted: impl Iterator<Item = &'a Posted>,
        memory: &impl ProgramMemory,
    ) {
        let is_it = |it: &&Posted| it.adds.is_some_and(|adds| memory.has(adds));
        let Some(posted) = posted.find(is_it) else { return };
        let adds = posted.adds.unwrap_or_default();
        let says = format!(
            "A {} adds {adds:#x}, which is an address of this process: it should be the number there, most likely.",
            posted.what
        );
        let calls = iter::once(posted.here()).chain(self.made_by(Thing::QueuePair, address));
        self.found(Kind::AddressAdded, says, calls.collect());
    }

    /// Requests are about to be posted to the send queue of a queue pair. Returns whether the ledger must hear by
    /// [`Ledger::sends_taken`] that they were accepted, or something else is to be done when they are.
    pub fn sends_posted(
        &mut self,
        device: usize,
        address: usize,
        requests: impl Requests,
        call: &Call,
        memory: &impl ProgramMemory,
    ) -> bool {
        let mut sends =
            self.pairs.get_mut(&address).map(|pair| take(&mut pair.sends)).unwrap_or_default();
        let new = self.enter(&mut sends, device, requests, call, memory);
        self.tell_added(address, sends.range(new.clone()), memory);
        self.sends += new.len() as u64;
        let has_more = sends.range(new.clone()).any(|it| it.is_target || it.binds.is_some());
        let Some(pair) = self.pairs.get_mut(&address) else { return has_more };
        pair.posted += new.len() as u64;
        if pair.asked.signals_all {
            sends.range_mut(new.clone()).for_each(|it| it.is_signaled = true);
        }
        let (is_told, peer) = (pair.is_told_of(&sends, &new), pair.writes());
        if has_more {
            self.binds_posted(address, sends.range(new.clone()));
            self.aimed(sends.range(new.clone()));
        }
        self.writes_posted(address, peer, sends.range(new));
        if let Some(pair) = self.pairs.get_mut(&address) {
            pair.sends = sends;
        }
        has_more || is_told
    }

    /// The last of the posted requests were refused: the first of these for its own reason, the others after it.
    pub fn sends_refused(&mut self, address: usize, refused: &[Posted]) {
        if let Some(pair) = self.pairs.get_mut(&address) {
            let taken_back = take_back(&mut pair.sends, refused);
            pair.drop_refused(refused);
            self.writes.ended(address, pair.writes(), &taken_back);
            self.keys.take_back(&taken_back);
            self.memory.missed(&taken_back);
        }
    }

    /// The first of the posted requests were accepted.
    pub fn sends_taken(&mut self, address: usize, taken: &[Posted]) {
        let Some(pair) = self.pairs.get_mut(&address) else { return };
        pair.most_sends = pair.most_sends.max(pair.sends.len());
        if pair.sends.len() > pair.asked.sends as usize && pair.one_send_more.is_none() {
            pair.one_send_more = taken.last().cloned();
        }
        pair.take_again(taken.iter());
        self.check_asked(address, taken.iter(), true);
        self.check_error(address, taken.iter(), |_| true);
        self.check_connected(address, taken.iter());
    }

    /// Receives are about to be posted to a queue pair. Returns whether these are the first ones that it has.
    pub fn receives_posted(
        &mut self,
        device: usize,
        address: usize,
        requests: impl Requests,
        call: &Call,
        memory: &impl ProgramMemory,
    ) -> bool {
        let receives = self.pairs.get_mut(&address).map(|pair| take(&mut pair.receives));
        let mut receives = receives.unwrap_or_default();
        let new = self.enter(&mut receives, device, requests, call, memory);
        let Some(pair) = self.pairs.get_mut(&address) else { return false };
        let goes_well = pair.goes_well;
        pair.emptied = None;
        pair.receives_peak.holds(new.end);
        if new.end > pair.asked.receives as usize && pair.one_receive_more.is_none() {
            pair.one_receive_more = receives.range(new.clone()).next_back().cloned();
        }
        pair.take_again(receives.range(new.clone()));
        self.aimed(receives.range(new.clone()));
        self.check_asked(address, receives.range(new.clone()), false);
        // The program may still handle successful completions that came before the error, and post receives again.
        if !goes_well {
            let ends_receives = |error: &ErrorSeen| error.ends_receives;
            self.check_error(address, receives.range(new.clone()), ends_receives);
        }
        if let Some(pair) = self.pairs.get_mut(&address) {
            pair.receives = receives;
        }
        new.start == 0 && !new.is_empty()
    }

    /// The last of the posted receives were refused.
    pub fn receives_refused(&mut self, address: usize, refused: &[Posted]) {
        if let Some(pair) = self.pairs.get_mut(&address) {
            let taken_back = take_back(&mut pair.receives, refused);
            pair.receives_peak.holds_only(pair.receives.len());
            let is_it = |it: &Posted| refused.iter().any(|refused| refused.is_same(it));
            pair.one_receive_more = pair.one_receive_more.take().filter(|it| !is_it(it));
            pair.drop_refused(refused);
            self.memory.missed(&taken_back);
        }
    }

    /// Receives are about to be posted to a shared receive queue.
    pub fn shared_receives_posted(
        &mut self,
        device: usize,
        address: usize,
        requests: impl Requests,
        call: &Call,
        memory: &impl ProgramMemory,
    ) {
        let mut queue = take(self.shared.entry(address).or_default());
        let new = self.enter(&mut queue, device, requests, call, memory);
        let beyond = new.end.saturating_sub(SHARED).min(new.start);
        self.memory.landed(queue.range_mut(0..beyond));
        self.aimed(queue.range(new));
        queue.end(beyond);
        if let Some(shared) = self.shared_sizes.get_mut(&address) {
            shared.peak.holds(queue.len());
        }
        self.shared.insert(address, queue);
    }

    /// The last of the receives that were posted to a shared receive queue were refused.
    pub fn shared_receives_refused(&mut self, address: usize, refused: &[Posted]) {
        if let Some(queue) = self.shared.get_mut(&address) {
            let taken_back = take_back(queue, refused);
            self.memory.missed(&taken_back);
            if let Some(shared) = self.shared_sizes.get_mut(&address) {
                shared.peak.holds_only(queue.len());
            }
        }
    }

    /// Reports a request with more inline data or SGEs than the program had asked for.
    fn check_asked<'a>(
        &mut self,
        address: usize,
        mut posted: impl Iterator<Item = &'a Posted>,
        sends: bool,
    ) {
        let Some(pair) = self.pairs.get(&address) else { return };
        let (asked, number) = (pair.asked, pair.number);
        let Some(posted) = posted.find(|it| is_beyond(it, &asked, sends)) else { return };
        let (used, most, what) = match has_long_inline(posted, &asked) {
            true => (posted.bytes, asked.inline, "bytes of inline data"),
            false => (posted.sges.into(), most_sges(&asked, sends), "SGEs"),
        };
        let says = format!(
            "A {} has {used} {what}, and queue pair {number:#x} was asked for {most}.",
            posted.what
        );
        let mut calls = vec![posted.here()];
        calls.extend(self.made_by(Thing::QueuePair, address));
        self.found(Kind::BeyondAsked, says, calls);
    }

    /// Reports a thread that was told that a queue pair is not connected, and posts a request with data to it.
    fn check_connected<'a>(
        &mut self,
        address: usize,
        mut posted: impl Iterator<Item = &'a Posted>,
    ) {
        let Some(pair) = self.pairs.get_mut(&address) else { return };
        let number = pair.number;
        let Some(request) = posted.find(|it| it.bytes > 0) else { return };
        let Some((event, got)) = pair.unconnected_by(request.call.thread) else { return };
        pair.forget_unconnected();
        let says = format!(
            "A {} is posted to queue pair {number:#x} after {event}, so it is not connected: it can only be flushed.",
            request.what
        );
        let mut calls = vec![request.here(), ("the event was got here".to_owned(), got)];
        calls.extend(self.made_by(Thing::QueuePair, address));
        self.found(Kind::PostedAfterError, says, calls);
    }

    /// Reports a thread that polled an error and continues to post. A request without data does not count. It may be a
    /// marker that shows when all requests before it are flushed.
    fn check_error<'a>(
        &mut self,
        address: usize,
        mut posted: impl Iterator<Item = &'a Posted>,
        concerns: impl Fn(&ErrorSeen) -> bool,
    ) {
        let Some(pair) = self.pairs.get_mut(&address) else { return };
        let number = pair.number;
        let Some(request) = posted.find(|it| it.bytes > 0) else { return };
        let Some(error) = pair.error.as_mut().filter(|error| concerns(error)) else { return };
        let knows = error.is_past && error.call.thread == request.call.thread;
        if !knows || std::mem::replace(&mut error.is_told, true) {
            return;
        }
        let says = format!(
            "A {} is posted to queue pair {number:#x} after its error was polled: it can only be flushed.",
            request.what
        );
        let mut calls = vec![request.here(), ("the error was polled here".to_owned(), error.call)];
        calls.extend(self.made_by(Thing::QueuePair, address));
        self.found(Kind::PostedAfterError, says, calls);
    }
}

/// The most SGEs that the program asked for.
fn most_sges(asked: &Asked, sends: bool) -> u32 {
    if sends { asked.send_sges } else { asked.receive_sges }
}

fn has_long_inline(posted: &Posted, asked: &Asked) -> bool {
    posted.is_inline && posted.bytes > u64::from(asked.inline)
}

/// Whether a request has more inline data or SGEs than the program asked for.
fn is_beyond(posted: &Posted, asked: &Asked, sends: bool) -> bool {
    has_long_inline(posted, asked) || posted.sges > most_sges(asked, sends)
}

/// Takes refused requests back from the end of a queue.
fn take_back(queue: &mut Ring, refused: &[Posted]) -> Vec<Posted> {
    let taken = refused.iter().rev().filter_map(|refused| {
        let last = queue.iter().rposition(|it| it.is_same(refused))?;
        Some(queue.remove(last))
    });
    taken.collect()
}
