//! A process that is looked at: what is new of it, and who its peers are.

use std::sync::atomic::Ordering::Acquire;

use transom_device::execution::Tally;
use transom_device::qp::{Presence, QpNumber};
use transom_system::registry::Registry;
use transom_system::{Watched, clock};

use super::cause::Cause;

const SECOND: u64 = 1_000_000_000;

/// How long peers may ask the queue pairs of a process to wait for receives, all together, for each second, in
/// nanoseconds. A program that has receives again after a moment waits less.
const LONG: u64 = SECOND / 2;

/// A process.
pub(super) struct Member {
    pub(super) watched: Watched,
    pub(super) is_alive: bool,
    /// How many records of errors it had when it was last looked at, and how many before this command.
    errors: u64,
    errors_before: u64,
    /// How many of them were read.
    read: u64,
    /// For how long it was asked to wait until the beginning of this second, and when that was.
    waited: (u64, u64),
    /// It has waited for long, and that was told.
    waits: bool,
}

impl Member {
    pub(super) fn new(watched: Watched, errors_before: u64) -> Self {
        let mut member = Self {
            watched,
            is_alive: true,
            // What it has noted already may be new too.
            errors: errors_before,
            errors_before,
            read: 0,
            waited: (0, 0),
            waits: false,
        };
        member.waited = (member.asked_to_wait(), clock::steady());
        member
    }

    /// Has it record its events.
    pub(super) fn refresh(&mut self) {
        if self.is_alive {
            self.watched.refresh();
        }
    }

    /// Whether it has new records of errors. One that has ended may have noted something last.
    pub(super) fn has_new_errors(&mut self, registry: &Registry) -> bool {
        let announcer = self.watched.announcer();
        let errors = registry.errors(announcer.slot);
        // Another process may have the slot now, and the records.
        let is_its = registry.process(announcer.slot).is_some_and(|it| it.announcer == announcer);
        is_its && std::mem::replace(&mut self.errors, errors) != errors
    }

    /// A record of an error of it was read.
    pub(super) fn note_read(&mut self) {
        self.read += 1;
    }

    /// How many records of errors were written over before they were read.
    pub(super) fn lost(&self) -> u64 {
        self.errors.saturating_sub(self.errors_before).saturating_sub(self.read)
    }

    /// What else is wrong with it.
    pub(super) fn look(&mut self, now: u64) -> Vec<Cause> {
        self.end().into_iter().chain(self.wait(now)).collect()
    }

    /// Whether it has gone just now, and should not have.
    fn end(&mut self) -> Option<Cause> {
        if !self.is_alive || self.watched.is_alive() {
            return None;
        }
        self.is_alive = false;
        let header = self.watched.segment().header();
        let is_over = [&header.departed, &header.exited].iter().any(|it| it.load(Acquire) != 0);
        let pairs = self.connected();
        let mut process = self.watched.process().clone();
        process.alive = false;
        (!is_over && !pairs.is_empty()).then(|| Cause::Gone { process, time: clock::wall(), pairs })
    }

    /// Whether it waits for receives for long, and did not before.
    fn wait(&mut self, now: u64) -> Option<Cause> {
        let (before, since) = self.waited;
        if !self.is_alive || now.saturating_sub(since) < SECOND {
            return None;
        }
        let waited = self.asked_to_wait();
        self.waited = (waited, now);
        let (waited, span) = (waited.saturating_sub(before), now.saturating_sub(since));
        let is_long = u128::from(waited) * u128::from(SECOND) > u128::from(LONG) * u128::from(span);
        let did = std::mem::replace(&mut self.waits, is_long);
        let process = self.watched.process().clone();
        (self.waits && !did).then(|| Cause::Waits {
            process,
            time: clock::wall(),
            waited,
            span,
            pairs: self.connected(),
        })
    }

    fn asked_to_wait(&self) -> u64 {
        self.watched.segment().totals().all.tally(Tally::NotReadyTime)
    }

    /// Its queue pairs that have a peer, each with it.
    fn connected(&self) -> Vec<(u32, u32)> {
        let (segment, slot) = (self.watched.segment(), self.watched.announcer().slot);
        let of = |index| {
            let summary = segment.qps().summary(index)?;
            let peer = summary.peering().from.bits();
            let is_one = summary.presence() == Presence::Here && peer != 0;
            is_one.then_some((QpNumber::new(slot, index).bits(), peer))
        };
        segment.carried_by_each().filter_map(|(index, _)| of(index)).collect()
    }

    /// Whether one of its queue pairs is the one of this number, whose peer is that. The number alone does not say it:
    /// processes of other hosts have such numbers too.
    pub(super) fn is_peer(&self, qp: u32, of: u32) -> bool {
        let number = QpNumber::from_bits(qp);
        if number.slot() != self.watched.announcer().slot {
            return false;
        }
        let summary = self.watched.segment().qps().summary(number.index());
        summary.is_some_and(|it| match it.presence() {
            Presence::Never => false,
            // Nobody knows any more whose peer it was.
            Presence::Gone => true,
            Presence::Here => [0, of].contains(&it.peering().from.bits()),
        })
    }
}
