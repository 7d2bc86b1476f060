//! WRITEs that are complete in a rehearsal, and whose data no processor sees yet.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use transom_device::execution::{CopyError, Request, Source};
use transom_device::protection::Grant;
use transom_device::qp::Service;
use transom_device::queue::Body;
use transom_rehearse::{Order, Provocation};
use transom_system::rehearsal::Rehearsal;
use transom_system::{Accessed, Held, HeldBackHere, clock};

use super::super::QueuePair;
use super::{Rehearsed, lateness};
use crate::device::Due;

/// The longest WRITE that is held back.
const LONGEST: u64 = 64 << 10;

/// What a rehearsal knows of the WRITEs that arrive.
#[derive(Debug)]
pub(super) struct Unseen {
    /// Whether some may be held back. All requests come as messages then, so that each sees what came before.
    may_be: bool,
    /// How many have arrived.
    arrived: AtomicU64,
}

impl Unseen {
    /// For a new queue pair, by its number in this process.
    pub(super) fn new(rehearsal: &Rehearsal, service: Service, object: u32) -> Self {
        let kinds = [Provocation::UnseenWrites, Provocation::RelaxedOrdering];
        let may_be = service == Service::Rc
            && kinds.into_iter().any(|kind| rehearsal.may_provoke_at(kind, Some(object)));
        Self { may_be, arrived: AtomicU64::new(0) }
    }
}

impl QueuePair {
    /// Whether WRITEs that arrive may be held back.
    #[inline]
    pub(in super::super) fn may_hold_back(&self) -> bool {
        self.rehearsed().is_some_and(|it| it.unseen.may_be)
    }

    /// What this process holds back.
    pub(super) fn held_back(&self) -> Option<HeldBackHere<'_>> {
        self.device.process().held_back()
    }

    fn accessed(&self, at: &Grant<'_>, is_relaxed: bool) -> Accessed {
        let (place, length) = (at.place(), at.length());
        Accessed { qp: self.number.index(), place, length, is_relaxed }
    }

    /// Gets bytes of a WRITE to memory, or holds them back.
    pub(in super::super) fn place(
        &self,
        request: &Request,
        at: &Grant<'_>,
        offset: u64,
        source: &mut dyn Source,
    ) -> Result<(), CopyError> {
        let Some(here) = self.held_back() else { return source.copy_to(offset, at) };
        if let Some(rehearsed) = self.rehearsed()
            && rehearsed.unseen.may_be
            && self.holds_back(rehearsed, request, at, source, here)?
        {
            return Ok(());
        }
        let _beside = here.beside_atomics();
        source.copy_to(offset, at)
    }

    /// Bytes of a WRITE are about to get to memory. Whether they are held back.
    fn holds_back(
        &self,
        rehearsed: &Rehearsed,
        request: &Request,
        at: &Grant<'_>,
        source: &mut dyn Source,
        here: HeldBackHere<'_>,
    ) -> Result<bool, CopyError> {
        let Body::Write { key, immediate, .. } = request.body else { return Ok(false) };
        let keys = self.device.process().segment().keys();
        let to = self.accessed(at, keys.is_relaxed(key));
        let is_whole = request.offset == 0 && at.length() == request.total;
        let may_wait = is_whole
            && immediate.is_none()
            && !at.is_null()
            && (1..=LONGEST).contains(&request.total);
        // It counts even if there is no room for it.
        let nth = may_wait.then(|| rehearsed.unseen.arrived.fetch_add(1, Relaxed));
        let waits = nth.filter(|_| here.has_room());
        let waits = waits.and_then(|nth| rehearsed.holds(nth, to.is_relaxed));
        let Some((is_passed, number)) = waits else {
            here.land(|held| held.comes_before(&to));
            return Ok(false);
        };
        let mut bytes = vec![0; request.total as usize].into_boxed_slice();
        source.read(0, &mut bytes)?;
        let time = clock::steady() + lateness(number);
        here.hold(Held { to, bytes, is_passed, time });
        self.device.work.deadlines.schedule(time, Due::Writes);
        Ok(true)
    }

    /// A READ is about to read memory. What it reads is in memory by then. On PCIe all that came before it is.
    pub(in super::super) fn reads(&self, at: &Grant<'_>) {
        let Some(here) = self.held_back().filter(|_| self.may_hold_back()) else { return };
        let from = self.accessed(at, false);
        let pushes = self.rehearsed().is_some_and(|it| it.rehearsal.order() == Order::Model);
        here.land(|held| held.to.qp == from.qp && (pushes || held.to.overlaps(&from)));
    }

    /// A segment is about to be carried out. If its receive completes, or it changes memory as an atomic, processors
    /// may rely on all WRITEs before it.
    #[inline]
    pub(in super::super) fn comes_behind(&self, request: &Request) {
        let relies = match request.body {
            Body::Write { immediate, .. } => immediate.is_some(),
            Body::Read { .. } => false,
            _ => true,
        };
        if self.may_hold_back()
            && relies
            && let Some(here) = self.held_back()
        {
            here.land(|held| held.to.qp == self.number.index());
        }
    }
}

impl Rehearsed {
    /// Whether the n-th WRITE waits: then whether later ones may be seen before it, and a number that says for how long.
    fn holds(&self, nth: u64, is_relaxed: bool) -> Option<(bool, u64)> {
        let may_be_passed = is_relaxed || self.rehearsal.order() == Order::Spec;
        let passed =
            may_be_passed.then(|| self.provokes(Provocation::RelaxedOrdering, nth)).flatten();
        let unseen = || self.provokes(Provocation::UnseenWrites, nth).map(|number| (false, number));
        passed.map(|number| (true, number)).or_else(unseen)
    }
}
