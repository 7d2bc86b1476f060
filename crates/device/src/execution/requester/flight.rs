//! The traffic on its way over a link with packets: numbered, within a window, and timed.
//!
//! Numbers are not kept beside the work requests. The oldest unacknowledged number is the head's number plus the part
//! of it that has been acknowledged. The next number to send is that of the work request at `next` plus the part of it
//! that has been sent.

use transom_wire::Psn;

use super::super::{Context, Process, Request, Tally, Why, packets};
use super::flow::SendWindow;
use super::wqe::{Progress, SendWqe};
use super::{Requester, Retry};
use crate::execution::retry::Verdict;
use crate::queue::{Body, Status};

/// Packets that a queue pair may have on their way however many others there are.
const LEAST_SHARE: u64 = 8;

/// For how long nobody must have been at the other end until that is believed, in nanoseconds: a network that is
/// being changed may say so for a moment.
const DESERTED: u64 = 200_000_000;

/// The state that a link with packets adds to a requester. On other links nothing in it changes.
pub(super) struct Flight {
    pub(super) window: SendWindow,
    /// One past the last number ever sent. Packets that have gone out may be acknowledged, even if they are to go out
    /// again.
    pub(super) end: Psn,
    /// Since when nothing has been heard about the packets on their way.
    silent_since: Option<u64>,
    /// When to look whether that has been too long: then or before. It is not moved with each
    /// answer, so that a host need not set its timer each time.
    alarm: Option<u64>,
    /// Packets went out again from the first number, because its answer was missing. The second is one past the last
    /// that had gone out then. Answers to packets in between say the same again.
    missed: Option<(Psn, Psn)>,
    /// Something has come from the other end.
    heard: bool,
    /// Since when nothing has come from there but word that nobody is there.
    deserted: Option<u64>,
    /// When it is asked again because of that.
    ask_again: Option<u64>,
}

impl Flight {
    /// Nothing on its way; `first` is next.
    pub(super) fn new(first: Psn, window_limit: u64) -> Self {
        let window = SendWindow::new(window_limit);
        Self {
            window,
            end: first,
            silent_since: None,
            alarm: None,
            missed: None,
            heard: false,
            deserted: None,
            ask_again: None,
        }
    }

    /// Whether something is on its way.
    pub(super) fn is_under_way(&self) -> bool {
        self.silent_since.is_some()
    }

    /// Nothing is waited for any more.
    pub(super) fn stop_clock(&mut self) {
        self.silent_since = None;
        self.alarm = None;
        self.ask_again = None;
    }

    /// When to look at the clock.
    pub(super) fn alarm(&self) -> Option<u64> {
        match (self.alarm, self.ask_again) {
            (Some(alarm), Some(again)) => Some(alarm.min(again)),
            (alarm, again) => alarm.or(again),
        }
    }

    /// Something has come from the other end: somebody is there.
    pub(super) fn note_heard(&mut self) {
        self.heard = true;
        (self.deserted, self.ask_again) = (None, None);
    }

    /// Everything before `end` has gone out.
    fn sent(&mut self, end: Psn, retry: &Retry, now: impl FnOnce() -> u64) {
        if end.compare(self.end).is_gt() {
            self.end = end;
        }
        if self.silent_since.is_none() {
            let now = now();
            self.silent_since = Some(now);
            self.alarm = self.alarm.or(retry.wait().map(|timeout| now + timeout));
        }
    }

    /// Whether nothing has been heard for too long; if not, the alarm moves on.
    fn is_overdue(&mut self, retry: &Retry, now: u64) -> bool {
        if self.alarm.is_none_or(|alarm| now < alarm) {
            return false;
        }
        let due = self.silent_since.zip(retry.wait()).map(|(since, timeout)| since + timeout);
        self.alarm = due.filter(|due| now < *due);
        due.is_some() && self.alarm.is_none()
    }
}

impl Requester {
    /// The oldest number that is not acknowledged; [`Requester::sending`] if all are.
    pub(crate) fn oldest(&self, mtu: u64) -> Psn {
        if self.ring.is_empty() {
            return self.under_way.next_psn;
        }
        let head = self.ring.at(self.ring.head());
        match head.progress {
            Progress::Started { answered, .. } => head.message.plus((answered / mtu) as u32),
            // Then it is at `next`.
            Progress::Waiting => self.under_way.next_psn,
        }
    }

    /// One past the last number ever sent.
    pub(crate) fn sent_until(&self) -> Psn {
        self.flight.end
    }

    /// The number that is sent next.
    pub(super) fn sending(&self, mtu: u64) -> Psn {
        if self.under_way.next == self.ring.tail() {
            return self.under_way.next_psn;
        }
        let wqe = self.ring.at(self.under_way.next);
        match wqe.progress {
            Progress::Started { sent, .. } => wqe.message.plus((sent / mtu) as u32),
            Progress::Waiting => self.under_way.next_psn,
        }
    }

    /// How many packets are on their way to the target over a link that carries packets, where they are
    /// acknowledged.
    pub fn packets_under_way(&self) -> u32 {
        let link = self.connection.link.mtu.filter(|_| self.service.is_reliable());
        link.map_or(0, |mtu| self.sending(mtu).since(self.oldest(mtu)))
    }

    /// Whether anything that has been sent, and is not to be sent again, is unacknowledged.
    pub(crate) fn is_in_flight(&self, mtu: u64) -> bool {
        self.sending(mtu) != self.oldest(mtu)
    }

    /// Whether a packet of this number has been sent and is not acknowledged; any other answer is old
    /// or forged (rule PSN-24).
    pub(crate) fn awaits(&self, psn: Psn, mtu: u64) -> bool {
        let oldest = self.oldest(mtu);
        !self.ring.is_empty() && psn.since(oldest) < self.flight.end.since(oldest)
    }

    /// How many bytes one request of a READ asks for: on a link that carries packets the whole is
    /// asked for in parts, so that no more comes back than the window allows.
    pub(crate) fn read_unit(&self) -> u64 {
        if self.connection.link.mtu.is_some() { self.flight.window.read_limit() } else { u64::MAX }
    }

    /// How many of the target's READ resources the work request takes now.
    pub(super) fn reads_of(&self, position: u64, unit: u64) -> u32 {
        let wqe = self.ring.at(position);
        let Progress::Started { sent, answered } = wqe.progress else { return 0 };
        if !wqe.uses_read_resources() {
            return 0;
        }
        let sent = if position < self.under_way.next { wqe.length.max(1) } else { sent };
        if sent <= answered { 0 } else { (sent.div_ceil(unit) - answered / unit) as u32 }
    }

    /// The length of the next segment of a message of which `sent` bytes are on their way. `None` if it must wait for
    /// answers.
    pub(super) fn segment_length(&self, wqe: &SendWqe, body: Body, sent: u64) -> Option<u64> {
        let rest = wqe.length - sent;
        let Some(mtu) = self.connection.link.mtu else {
            return Some(self.connection.link.segment_of(rest));
        };
        let unit = self.read_unit();
        let length = match body {
            Body::Read { .. } => rest.min(unit - sent % unit),
            _ => self.connection.link.segment_of(rest),
        };
        if !self.service.is_reliable() {
            return Some(length);
        }
        let share = (self.connection.window_share / mtu).max(LEAST_SHARE);
        let length = if body.carries_data() { length.min(share * mtu) } else { length };
        if body.uses_read_resources()
            && self.under_way.reading >= u32::from(self.connection.max_rd_atomic).max(1)
        {
            return None;
        }
        let under_way = self.sending(mtu).since(self.oldest(mtu));
        let window = u64::from(self.flight.window.packets(mtu)).min(share);
        let fits = u64::from(under_way) + u64::from(packets(length, mtu)) <= window;
        (fits || under_way == 0).then_some(length)
    }

    /// A segment has gone out.
    pub(super) fn note_sent<P: Process>(&mut self, request: &Request, cx: &Context<'_, P>) {
        if let Some(mtu) = self.connection.link.mtu {
            let end = request.message.plus(packets(request.length, mtu));
            self.flight.sent(end, &self.retry, || cx.process.now());
        }
    }

    /// Counts the acknowledgements since `before` was the oldest number.
    pub(crate) fn note_progress<P: Process>(
        &mut self,
        before: Psn,
        mtu: u64,
        cx: &mut Context<'_, P>,
    ) {
        let acknowledged = self.oldest(mtu).since(before);
        if acknowledged == 0 {
            return;
        }
        self.flight.window.acknowledged(u64::from(acknowledged) * mtu);
        self.flight.silent_since = self.is_in_flight(mtu).then(|| cx.process.now());
        // A timeout that had grown is short again.
        let due = self.flight.silent_since.zip(self.retry.wait()).map(|(since, it)| since + it);
        let sooner = |alarm: u64| due.map_or(alarm, |due| alarm.min(due));
        self.flight.alarm = self.flight.alarm.map(sooner);
    }

    /// The link tells of congestion (rule CNP-04).
    pub(crate) fn note_congestion(&mut self, mtu: u64) {
        self.flight.window.shrink(self.oldest(mtu), self.flight.end);
    }

    /// An answer to this later number has come without that of the oldest request (rule PSN-23). The answers behind it
    /// say the same, so it counts once. An answer to a packet first sent since then says that the oldest is lost again.
    pub(crate) fn note_missed<P: Process>(
        &mut self,
        later: Psn,
        mtu: u64,
        cx: &mut Context<'_, P>,
    ) {
        let oldest = self.oldest(mtu);
        let known = |(number, end): (Psn, Psn)| number == oldest && later.compare(end).is_lt();
        if self.is_in_flight(mtu) && !self.flight.missed.is_some_and(known) {
            self.flight.missed = Some((oldest, self.flight.end));
            cx.process.tally(Tally::ImpliedSequenceError, 1);
            self.go_back(mtu, cx);
        }
    }

    /// Sets the timeout from now on, also for packets on their way (rule RN-06).
    pub fn set_timeout(&mut self, timeout: u8) {
        self.retry.timeout = timeout;
        let since = self.flight.silent_since;
        self.flight.alarm = since.zip(self.retry.wait()).map(|(since, it)| since + it);
    }

    /// The messages from this number on, which the link has queued last, have found no room after all: they are
    /// next again, as if they had not been handed out. None of them is a READ or atomic.
    pub fn take_back(&mut self, first: Psn) {
        let Some(mtu) = self.connection.link.mtu else { return };
        let partly = u64::from(self.has_numbers(self.under_way.next));
        self.under_way.begun = self.under_way.begun.max(self.under_way.next + partly);
        loop {
            if self.has_numbers(self.under_way.next) {
                self.ring.at_mut(self.under_way.next).progress = Progress::Waiting;
            }
            let Some(before) = self.under_way.next.checked_sub(1) else { break };
            let handed_out = before >= self.ring.head();
            if !handed_out || self.ring.at(before).message.compare(first).is_lt() {
                break;
            }
            self.under_way.next = before;
        }
        self.under_way.next_psn = first;
        if !self.is_in_flight(mtu) {
            self.flight.stop_clock();
        }
    }

    /// Whether there is a work request at this position that has its numbers.
    fn has_numbers(&self, position: u64) -> bool {
        position < self.ring.tail() && self.ring.at(position).progress != Progress::Waiting
    }

    /// Packets have come from the queue pair at the other end.
    #[inline]
    pub(crate) fn note_heard(&mut self) {
        self.flight.note_heard();
    }

    /// Whether a packet of this number has been sent and is not acknowledged.
    pub fn waits_for_answer(&self, psn: Psn) -> bool {
        let link = self.connection.link.mtu.filter(|_| self.service.is_reliable());
        link.is_some_and(|mtu| self.is_in_flight(mtu) && self.awaits(psn, mtu))
    }

    /// Nobody at the other end could answer (rule RN-20). If something has come from there before, that queue pair has
    /// ended with its process, and never comes again: the requests on their way are sent once more, and fail if that is
    /// reported again. Otherwise its process may not have made it yet. It gets the time that the program has asked for;
    /// without a limit, it gets all time.
    pub fn on_nobody_there<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        let link = self.connection.link.mtu.filter(|_| self.service.is_reliable());
        let waits = link.is_some_and(|mtu| self.is_in_flight(mtu));
        if !waits || !self.flight.heard || self.retry.wait().is_none() {
            return;
        }
        let now = cx.process.now();
        match self.flight.deserted {
            None => {
                self.flight.deserted = Some(now);
                self.flight.ask_again = Some(now + DESERTED);
            }
            Some(since) if now >= since + DESERTED => {
                self.fail_head(cx, Status::RetryExceeded, Why::Deserted);
            }
            Some(_) => {}
        }
    }

    /// Goes back at once to the oldest number that is not acknowledged.
    pub(crate) fn go_back<P: Process>(&mut self, mtu: u64, cx: &mut Context<'_, P>) {
        self.flight.window.shrink(self.oldest(mtu), self.flight.end);
        let verdict = self.retry.resend(cx.process.now());
        self.again(verdict, Why::Unanswered, cx);
    }

    /// Sends again requests that have been unanswered for too long (rules RN-06, RN-07).
    #[inline(never)]
    pub(super) fn look_at_clock<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        let Some(mtu) = self.connection.link.mtu else {
            // The program has led it elsewhere.
            self.flight.stop_clock();
            return;
        };
        let now = cx.process.now();
        if self.flight.ask_again.is_some_and(|time| now >= time) {
            // This attempt does not count: nobody has lost anything.
            return self.again(Verdict::At(now), Why::Unanswered, cx);
        }
        if self.flight.is_overdue(&self.retry, now) {
            self.retry.note_silence();
            cx.process.tally(Tally::Timeout, 1);
            // Late answers from before say nothing of what goes out now.
            self.flight.missed = Some((self.oldest(mtu), self.flight.end));
            self.flight.window.collapse(self.oldest(mtu), self.flight.end);
            self.go_back(mtu, cx);
        }
    }

    /// The head is answered although it waits to go out again: what arrived need not.
    pub(crate) fn take_up_head(&mut self, mtu: u64) {
        if self.ring.is_empty() {
            return;
        }
        let head = self.ring.at_mut(self.ring.head());
        if head.progress == Progress::Waiting {
            head.progress = Progress::Started { sent: 0, answered: 0 };
            self.under_way.next_psn = head.message.plus(packets(head.length, mtu));
        }
    }
}
