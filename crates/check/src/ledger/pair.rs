//! The work of a queue pair.

use std::collections::VecDeque;

use super::mark::Peak;
use super::queue::capitalized;
use super::{
    Asked, Completed, Ended, Ledger, Peer, Posted, ProgramMemory, RanDry, Ring, SHOWN, Thing,
    Unread,
};
use crate::mark::{Level, Queue};
use crate::{Call, Kind};

/// An error that was polled.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorSeen {
    pub(super) call: Call,
    /// Receives are flushed too. A UD or UC queue pair whose request has failed still receives.
    pub(super) ends_receives: bool,
    /// The same thread has polled again. So it has handled the completions that came together with the error.
    pub(super) is_past: bool,
    pub(super) is_told: bool,
}

/// How a queue pair ends.
#[derive(Clone, Copy, Debug)]
pub enum Ends<'a> {
    /// This call destroys it.
    Destroyed(&'a Call),
    /// This call closes its device.
    Closed(&'a Call),
    /// The process ends.
    WithProcess,
}

impl Ends<'_> {
    /// Says that an object ends before something.
    fn before(self, object: &str, what: &str) -> String {
        match self {
            Self::Destroyed(_) => format!("{} is destroyed before {what}", capitalized(object)),
            Self::Closed(_) => format!("The device is closed before {what}"),
            Self::WithProcess => format!("The process ends before {what}"),
        }
    }

    /// The call, if there is one.
    fn here(self) -> Vec<(String, Call)> {
        match self {
            Self::Destroyed(call) => vec![("destroyed here".to_owned(), *call)],
            Self::Closed(call) => vec![("closed here".to_owned(), *call)],
            Self::WithProcess => Vec::new(),
        }
    }
}

/// A queue pair.
#[derive(Debug, Default)]
pub struct Pair {
    pub(super) number: u32,
    pub(super) asked: Asked,
    /// Whom it is connected to.
    pub(super) peer: Option<Peer>,
    pub(super) sends: Ring,
    /// The first so many of them come before any later WRITE of another queue pair.
    pub(super) ordered: usize,
    /// The number of sends that were posted so far.
    pub(super) posted: u64,
    pub(super) receives: Ring,
    pub(super) most_sends: usize,
    pub(super) receives_peak: Peak,
    pub(super) error: Option<ErrorSeen>,
    /// Its last polled completion was a success.
    pub(super) goes_well: bool,
    /// An event that the program got, by which it is not connected: its name, and the call that got it.
    unconnected: Option<(&'static str, Call)>,
    is_dry_told: bool,
    /// The call that set it to RESET, if it lost receives by this and none was posted since.
    pub(super) emptied: Option<Call>,
    /// How often it had run dry at the last late receive.
    dry: u64,
    /// The last call that posted a receive after it had run dry.
    late: Option<Call>,
    /// The first send that made the queue longer than the program asked for, and the first such receive.
    pub(super) one_send_more: Option<Posted>,
    pub(super) one_receive_more: Option<Posted>,
    /// Refused requests that were not posted again so far.
    pub(super) dropped: VecDeque<Posted>,
}

impl Pair {
    /// The program has polled an error of it, and has not changed its state since.
    pub(super) fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// A thread that got an event by which it is not connected.
    pub(super) fn unconnected_by(&self, thread: u32) -> Option<(&'static str, Call)> {
        self.unconnected.filter(|(_, got)| got.thread == thread)
    }

    /// That is told.
    pub(super) fn forget_unconnected(&mut self) {
        self.unconnected = None;
    }

    pub(super) const fn is_unconnected(&self) -> bool {
        self.unconnected.is_some()
    }

    /// Whom its WRITEs go to, if they count.
    pub(super) fn writes(&self) -> Option<Peer> {
        self.peer.filter(|_| !self.has_error())
    }
}

impl Ledger {
    /// A queue pair is made.
    pub fn pair_made(&mut self, address: usize, number: u32, asked: Asked) {
        self.numbers.insert(number, address);
        self.pairs.insert(address, Pair { number, asked, ..Pair::default() });
        self.completes_into(&asked);
    }

    /// A receive was posted to a queue pair that had no other. By then, it had run dry `times` times.
    pub fn receive_was_late(&mut self, address: usize, times: u64, call: &Call) {
        let Some(pair) = self.pairs.get_mut(&address) else { return };
        if times > pair.dry {
            (pair.dry, pair.late) = (times, Some(*call));
        }
    }

    /// Receives of a shared receive queue complete into this completion queue, as XRC has it.
    pub fn shared_completes_into(&mut self, address: usize, queue: usize) {
        self.shared_queues.insert(address, queue);
    }

    /// A completion is of a receive whose queue pair has ended, or is one of XRC, perhaps of another process. The receive
    /// is of a shared receive queue of XRC that completes there, or of the only other one that has its number. That
    /// number may be another receive's too, so nothing is compared.
    fn received_elsewhere(&mut self, queue: usize, wr_id: u64) {
        let has_it = |posted: &Ring| posted.iter().any(|it| it.wr_id == wr_id);
        let having: Vec<_> =
            self.shared.iter().filter(|(_, posted)| has_it(posted)).map(|(at, _)| *at).collect();
        let of_xrc = |at: &&usize| self.shared_queues.get(*at) == Some(&queue);
        let mut others = having.iter().filter(|at| !self.shared_queues.contains_key(*at));
        let only_other = others.next().filter(|_| others.next().is_none());
        let Some(address) = having.iter().find(of_xrc).or(only_other) else { return };
        let Some(posted) = self.shared.get_mut(address) else { return };
        let at = posted.iter().position(|it| it.wr_id == wr_id);
        let mut ended = at.map(|at| posted.remove(at));
        self.memory.landed(&mut ended);
    }

    /// The program gets an event of rdma_cm by which a queue pair is not connected.
    pub fn pair_unconnected(&mut self, address: usize, event: &'static str, call: &Call) {
        if let Some(pair) = self.pairs.get_mut(&address) {
            pair.unconnected = Some((event, *call));
        }
    }

    /// A queue pair is connected to a peer. Returns whether the order of the peers' WRITEs counts.
    pub fn pair_connected(&mut self, address: usize, peer: Peer) -> bool {
        self.arrived.forget();
        let Some(pair) = self.pairs.get_mut(&address) else { return false };
        pair.ordered = pair.sends.len();
        pair.unconnected = None;
        let before = pair.peer.replace(peer);
        self.writes.end(address, before);
        self.writes_begin(address, peer);
        self.peers_write()
    }

    /// The program changes the state of a queue pair. So it has noticed the errors.
    pub fn pair_modified(&mut self, address: usize, is_reset: bool, call: &Call) {
        self.writes.forget(address);
        self.arrived.forget();
        // In SQD an event may tell that all binds are carried out.
        self.keys.forget_binds(address);
        let Some(pair) = self.pairs.get_mut(&address) else { return };
        pair.error = None;
        pair.ordered = pair.sends.len();
        if is_reset {
            if !pair.receives.is_empty() {
                pair.emptied = Some(*call);
            }
            self.memory.landed(pair.sends.iter_mut().chain(pair.receives.iter_mut()));
            pair.sends.end(pair.sends.len());
            pair.receives.end(pair.receives.len());
            pair.ordered = 0;
        }
    }

    /// A post was refused for want of room in a send queue of so many places. If no request in them asks for a
    /// completion, it stays full. Where a place is free, the post needed several, or another thread has polled since.
    pub fn send_queue_full(&mut self, address: usize, places: usize, call: &Call) {
        let Some(pair) = self.pairs.get_mut(&address) else { return };
        let is_full = pair.sends.len() >= places.max(1);
        let is_stuck = is_full && pair.sends.iter().all(|it| !it.is_signaled);
        if !is_stuck || std::mem::replace(&mut pair.is_dry_told, true) {
            return;
        }
        let says = format!(
            "The send queue of queue pair {:#x} is full for ever: none of its {} requests asks for a completion.",
            pair.number,
            pair.sends.len()
        );
        let mut calls = vec![("refused here".to_owned(), *call)];
        calls.extend(pair.sends.iter().take(1).map(Posted::here));
        calls.extend(self.made_by(Thing::QueuePair, address));
        self.found(Kind::NothingSignaled, says, calls);
    }

    /// A thread polls a completion queue and gets these completions. Returns the requests that ended with success and
    /// have a sample, but for those whose buffers certainly have its content.
    pub fn polled(
        &mut self,
        completed: impl IntoIterator<Item = Completed>,
        call: &Call,
        memory: &impl ProgramMemory,
    ) -> Vec<Ended> {
        if self.has_errors {
            let errors = self.pairs.values_mut().filter_map(|pair| pair.error.as_mut());
            errors.filter(|it| it.call.thread == call.thread).for_each(|it| it.is_past = true);
        }
        let (mut watched, mut refused) = (Vec::new(), Vec::new());
        for it in completed {
            self.arrived.forget();
            let address = self.numbers.get(&it.number).copied();
            let pair = address.and_then(|address| self.pairs.get_mut(&address));
            let is_elsewhere = pair.as_ref().is_none_or(|pair| pair.asked.is_xrc_target);
            if it.is_receive && is_elsewhere {
                let memory = &mut self.memory;
                if it.is_tagged
                    && (self.tagged.received_somewhere(it.wr_id, memory) || it.is_success)
                {
                    continue;
                }
                self.received_elsewhere(it.queue, it.wr_id);
                continue;
            }
            let Some((address, pair)) = address.zip(pair) else { continue };
            if it.has_failed && pair.error.is_none() {
                let ends_receives = it.is_receive || !pair.asked.receives_on;
                let (is_past, is_told) = (false, false);
                pair.error = Some(ErrorSeen { call: *call, ends_receives, is_past, is_told });
                pair.ordered = pair.sends.len();
                self.has_errors = true;
                self.writes.forget(address);
            }
            pair.goes_well = it.is_success;
            let (shared, number, writes) = (pair.asked.shared, pair.number, pair.writes());
            let is_shared = it.is_receive && shared != 0;
            if it.is_tagged
                && (self.tagged.received(shared, it.wr_id, &mut self.memory) || it.is_success)
            {
                continue;
            }
            let queue = match (it.is_receive, is_shared) {
                (false, _) => &mut pair.sends,
                (true, false) => &mut pair.receives,
                (true, true) => self.shared.entry(shared).or_default(),
            };
            // Several requests may have one `wr_id`. An unsignaled request has a completion only if it fails.
            let completes = |posted: &Posted| {
                posted.wr_id == it.wr_id && (posted.is_signaled || !it.is_success)
            };
            let Some(at) = queue.iter().position(completes) else { continue };
            // All requests before it in the queue have ended too, unless several queue pairs share the queue.
            let ended = if is_shared { at..at + 1 } else { 0..at + 1 };
            if it.is_receive {
                received(queue.range_mut(ended.clone()), it.bytes);
            } else {
                self.writes.ended(address, writes, queue.range(pair.ordered.min(at + 1)..at + 1));
                pair.ordered = pair.ordered.saturating_sub(at + 1);
            }
            self.memory.landed(queue.range_mut(ended.clone()));
            if let Some(status) = it.refused {
                let of_it = queue.range(at..at + 1);
                refused.extend(of_it.map(|it| (address, number, status, it.clone())));
            }
            self.keys.ended(queue.range(ended.clone()), it.is_success, call);
            if it.is_success {
                let may_differ =
                    |it: &&mut Posted| it.sample.is_there() && !memory.is_unchanged(it);
                let all = queue.range_mut(ended.clone()).filter(may_differ);
                let ended =
                    all.map(|it| Ended { pair: address, number, posted: std::mem::take(it) });
                watched.extend(ended);
            }
            match is_shared {
                true => drop(queue.remove(at)),
                false => queue.end(at + 1),
            }
        }
        for (address, number, status, posted) in refused {
            self.tell_refused(address, number, status, &posted, call);
        }
        watched
    }

    /// Reports a request that the device or the peer does not allow.
    fn tell_refused(
        &mut self,
        address: usize,
        number: u32,
        status: &str,
        posted: &Posted,
        call: &Call,
    ) {
        let says = format!("A {} of queue pair {number:#x} was refused: {status}.", posted.what);
        let mut calls = vec![posted.here(), ("the error was polled here".to_owned(), *call)];
        calls.extend(self.made_by(Thing::QueuePair, address));
        self.found(Kind::RequestRefused, says, calls);
    }

    /// A queue pair ends while the device has `under_way` of its sends under way.
    pub fn pair_ended(&mut self, address: usize, under_way: usize, dry: RanDry, call: &Call) {
        let Some(mut pair) = self.pairs.remove(&address) else { return };
        self.keys.forget_binds(address);
        self.writes.end(address, pair.peer);
        self.completes_no_more(&pair.asked);
        self.tell_dry(&pair, address, dry);
        self.tell_dropped(&pair, address);
        self.numbers.remove(&pair.number);
        let number = pair.number;
        let lost = under_way.min(pair.sends.len());
        let mut calls = vec![("destroyed here".to_owned(), *call)];
        if lost > 0 {
            let last = pair.sends.iter().skip(pair.sends.len() - lost);
            calls.extend(last.take(SHOWN).map(Posted::here));
            calls.extend(self.made_by(Thing::QueuePair, address));
            let requests = if lost == 1 { "1 request is" } else { &format!("{lost} requests are") };
            let says = format!("Queue pair {number:#x} is destroyed while {requests} under way.");
            self.found(Kind::WorkLost, says, calls);
        } else {
            let unpolled: Vec<_> = pair.sends.iter().filter(|it| it.is_signaled).collect();
            if !unpolled.is_empty() {
                let count = unpolled.len();
                calls.extend(unpolled.iter().take(SHOWN).map(|it| it.here()));
                calls.extend(self.made_by(Thing::QueuePair, address));
                let says = format!(
                    "Queue pair {number:#x} is destroyed before the completions of {count} of its requests were polled. \
                     They had ended here; elsewhere they may be under way."
                );
                self.found(Kind::CompletionsUnpolled, says, calls);
            }
        }
        self.tell_levels(&pair, address);
        self.tell_deeper(&pair, address);
        self.memory.landed(pair.sends.iter_mut().chain(pair.receives.iter_mut()));
    }

    /// The process ends, and its queue pairs with it.
    pub(super) fn pairs_at_end(&mut self) {
        for (address, pair) in std::mem::take(&mut self.pairs) {
            self.tell_what_is_left(address, &pair, Ends::WithProcess);
        }
    }

    /// The living queue pairs of a context.
    pub fn pairs_of(&self, context: usize) -> Vec<usize> {
        self.all_of(Thing::QueuePair, context)
    }

    /// The living shared receive queues of a context.
    pub fn shared_queues_of(&self, context: usize) -> Vec<usize> {
        self.all_of(Thing::SharedReceiveQueue, context)
    }

    fn all_of(&self, thing: Thing, context: usize) -> Vec<usize> {
        let all = self.objects.range((thing, 0)..=(thing, usize::MAX));
        all.filter(|(_, made)| made.context == context).map(|((_, address), _)| *address).collect()
    }

    /// A queue pair ends with its context, which this call closes.
    pub fn pair_closed(&mut self, address: usize, dry: RanDry, call: &Call) {
        let Some(mut pair) = self.pairs.remove(&address) else { return };
        self.keys.forget_binds(address);
        self.writes.end(address, pair.peer);
        self.completes_no_more(&pair.asked);
        self.numbers.remove(&pair.number);
        self.tell_dry(&pair, address, dry);
        self.tell_what_is_left(address, &pair, Ends::Closed(call));
        self.memory.landed(pair.sends.iter_mut().chain(pair.receives.iter_mut()));
    }

    /// Reports what a queue pair leaves that nothing destroys by itself.
    fn tell_what_is_left(&mut self, address: usize, pair: &Pair, ends: Ends<'_>) {
        self.tell_dropped(pair, address);
        self.tell_levels(pair, address);
        self.tell_deeper(pair, address);
        let unpolled: Vec<_> = pair.sends.iter().filter(|it| it.is_signaled).collect();
        if unpolled.is_empty() {
            return;
        }
        let number = pair.number;
        let what = match unpolled.len() {
            1 => format!("the completion of a request of queue pair {number:#x} was polled."),
            count => format!(
                "the completions of {count} requests of queue pair {number:#x} were polled."
            ),
        };
        let mut calls = ends.here();
        calls.extend(unpolled.iter().take(SHOWN).map(|it| it.here()));
        calls.extend(self.made_by(Thing::QueuePair, address));
        self.found(
            Kind::CompletionsUnpolled,
            ends.before(&Thing::QueuePair.called(number), &what),
            calls,
        );
    }

    /// A queue pair ends before these errors were polled.
    pub fn errors_unread(&mut self, address: usize, unread: &[Unread], ends: Ends<'_>) {
        let (Some(pair), Some(first)) = (self.pairs.get(&address), unread.first()) else { return };
        let (number, Unread { wr_id, status }) = (pair.number, first);
        let what = match ends {
            Ends::Destroyed(_) => "its error was polled".to_owned(),
            _ => format!("the error of queue pair {number:#x} was polled"),
        };
        let says = format!(
            "{}: {status}, wr_id {wr_id:#x}.",
            ends.before(&Thing::QueuePair.called(number), &what)
        );
        let mut calls = ends.here();
        let posted = pair.sends.iter().chain(pair.receives.iter()).find(|it| it.wr_id == *wr_id);
        calls.extend(posted.map(Posted::here));
        calls.extend(self.made_by(Thing::QueuePair, address));
        self.found(Kind::ErrorUnread, says, calls);
    }

    /// A queue pair ends before so many messages that it has received were polled.
    pub fn messages_unread(&mut self, address: usize, count: usize, ends: Ends<'_>) {
        if let Some(number) = self.pairs.get(&address).map(|pair| pair.number) {
            self.tell_messages((Thing::QueuePair, address), number, "by", count, ends);
        }
    }

    /// A shared receive queue of XRC ends before so many messages that came into it were polled.
    pub fn shared_messages_unread(&mut self, address: usize, count: usize, ends: Ends<'_>) {
        let object = (Thing::SharedReceiveQueue, address);
        if let Some(number) = self.objects.get(&object).map(|made| made.number) {
            self.tell_messages(object, number, "into", count, ends);
        }
    }

    /// Reports messages that came `by` an object, and end with it.
    fn tell_messages(
        &mut self,
        (thing, address): (Thing, usize),
        number: u32,
        by: &str,
        count: usize,
        ends: Ends<'_>,
    ) {
        let messages = match count {
            0 => return,
            1 => "a received message was".to_owned(),
            count => format!("{count} received messages were"),
        };
        let object = thing.called(number);
        let what = match ends {
            Ends::Destroyed(_) => format!("{messages} polled."),
            _ => format!("{messages} polled, which came {by} {object}."),
        };
        let mut calls = ends.here();
        calls.extend(self.made_by(thing, address));
        self.found(Kind::CompletionsUnpolled, ends.before(&object, &what), calls);
    }

    /// The process ends, and a queue pair has had no receive so often.
    pub fn ran_dry(&mut self, address: usize, dry: RanDry) {
        if let Some(pair) = self.pairs.remove(&address) {
            self.tell_dry(&pair, address, dry);
            self.pairs.insert(address, pair);
        }
    }

    /// Reports refused requests that were not posted again.
    fn tell_dropped(&mut self, pair: &Pair, address: usize) {
        let Some(first) = pair.dropped.front() else { return };
        let (number, count) = (pair.number, pair.dropped.len());
        let was = if count == 1 { "its request was" } else { &format!("{count} requests were") };
        let says =
            format!("A post to queue pair {number:#x} was refused, and {was} not posted again.");
        let (what, call) = first.here();
        let mut calls = vec![(what.replace("posted", "refused"), call)];
        calls.extend(self.made_by(Thing::QueuePair, address));
        self.found(Kind::RefusedAndDropped, says, calls);
    }

    /// Reports messages that had to wait for a receive.
    fn tell_dry(&mut self, pair: &Pair, address: usize, dry: RanDry) {
        if dry.times == 0 {
            return;
        }
        let (number, RanDry { times, waits }) = (pair.number, dry);
        let milliseconds = waits.div_ceil(1_000_000);
        let s = if times == 1 { "" } else { "s" };
        let shared = (pair.asked.shared != 0)
            .then(|| self.made_by(Thing::SharedReceiveQueue, pair.asked.shared))
            .flatten()
            .map(|(_, call)| ("its shared receive queue was made here".to_owned(), call));
        let from = if shared.is_some() { " in its shared receive queue" } else { "" };
        let says = format!(
            "Queue pair {number:#x} had no receive for a message{from}, {times} time{s}: its peer was asked to wait for \
             {milliseconds} ms in all."
        );
        let late = pair.late.map(|call| ("a receive was posted late here".to_owned(), call));
        let emptied = pair.emptied.map(|call| ("its receives were lost here".to_owned(), call));
        let made = self.made_by(Thing::QueuePair, address);
        let calls = emptied.into_iter().chain(late).chain(shared).chain(made);
        self.found(Kind::RanDry, says, calls.collect());
    }

    /// Keeps how full its queues were, and reports a send queue that was full, or nearly. A receive queue should be full.
    fn tell_levels(&mut self, pair: &Pair, address: usize) {
        let object = (Thing::QueuePair, address);
        let level = |most: usize, asked: u32| Level { most: most as u64, asked: asked.into() };
        let sends = level(pair.most_sends, pair.asked.sends);
        self.mark(Queue::Send, object, sends);
        if pair.asked.shared == 0 {
            self.mark(
                Queue::Receive,
                object,
                level(pair.receives_peak.most(), pair.asked.receives),
            );
        }
        let queue = format!("The send queue of queue pair {:#x}", pair.number);
        self.tell_fullest(&queue, "requests", object, sends);
    }

    /// Reports a queue that held more requests than the program had asked for.
    fn tell_deeper(&mut self, pair: &Pair, address: usize) {
        let Pair { number, asked, one_send_more, one_receive_more, .. } = pair;
        let more =
            [(one_send_more, asked.sends, "sends"), (one_receive_more, asked.receives, "receives")];
        for (posted, asked, what) in more {
            let Some(posted) = posted else { continue };
            let says = format!(
                "Queue pair {number:#x} held more than {asked} {what}, and was asked for {asked}."
            );
            let mut calls = vec![posted.here()];
            calls.extend(self.made_by(Thing::QueuePair, address));
            self.found(Kind::BeyondAsked, says, calls);
        }
    }
}

/// The last of these receives got a message of so many bytes. What its sample has of them, the device wrote.
fn received<'a>(ended: impl DoubleEndedIterator<Item = &'a mut Posted>, bytes: u64) {
    let mut ended = ended.rev();
    ended.next().into_iter().for_each(|last| last.sample.leave_out(bytes));
    // How long the messages of the others were is not known.
    ended.for_each(|posted| posted.sample.clear());
}
