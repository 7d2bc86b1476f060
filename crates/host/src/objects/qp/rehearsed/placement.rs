//! When the bytes of a message land in a rehearsal: some of them early, and the others late.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use transom_device::execution::{
    Context, Direct, LocalBuffers, MAX_MESSAGE, OneSided, Payload, Pieces, Request, Requester,
};
use transom_device::protection::RemoteAddress;
use transom_device::qp::{QpState, Service};
use transom_device::queue::{Body, SendOp, SendRequest};
use transom_rehearse::Provocation;
use transom_thread::uncancelled;

use super::super::QueuePair;
use super::super::services::At;
use super::{Before, Rehearsed, lateness};

/// The shortest pause in the middle of something. It may be doubled so often.
const PAUSE: Duration = Duration::from_micros(400);
const PAUSE_DOUBLINGS: u64 = 4;

/// How long a pause is, by a random number. The thread may be the program's.
pub(super) fn pause(number: u64) -> Duration {
    PAUSE * (1 << (number % (PAUSE_DOUBLINGS + 1)))
}

/// What a rehearsal knows of a queue pair's messages.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// How many messages of more than a byte have arrived.
    arrived: AtomicU64,
    /// How long the message that lands pauses, in nanoseconds.
    pause: AtomicU64,
    /// The oldest request, if its early pieces have landed.
    begun: Mutex<Option<Begun>>,
}

/// A WRITE or READ whose early pieces have landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    writes: bool,
    at: RemoteAddress,
    pieces: Pieces,
}

/// A WRITE or READ that may go on the direct path, and its length.
pub(super) fn one_sided<'a>(request: &'a SendRequest<'_>) -> Option<(OneSided<'a>, u64)> {
    let SendOp::Message(body) = &request.op else { return None };
    let (data, length) = match request.inline {
        None => (Payload::Buffers(request.sges), LocalBuffers::length(request.sges)),
        Some([bytes]) => (Payload::Inline(bytes), bytes.len() as u64),
        Some(_) => return None,
    };
    let operation = match (*body, data) {
        (Body::Write { address, key, immediate: None }, data) => {
            OneSided::Write { to: RemoteAddress { address, key }, data }
        }
        (Body::Read { address, key }, Payload::Buffers(buffers)) => {
            OneSided::Read { from: RemoteAddress { address, key }, buffers }
        }
        _ => return None,
    };
    (2..=MAX_MESSAGE).contains(&length).then_some((operation, length))
}

/// What tells a WRITE or READ from others: whether it writes, and where.
fn place_of(operation: &OneSided<'_>) -> Option<(bool, RemoteAddress)> {
    match *operation {
        OneSided::Write { to, .. } => Some((true, to)),
        OneSided::Read { from, .. } => Some((false, from)),
        OneSided::Atomic { .. } => None,
    }
}

impl Rehearsed {
    /// A request is about to be posted. One whose early pieces have landed may have been flushed or forgotten.
    pub(super) fn forget_begun(&self, requester: &Requester) {
        if requester.occupancy().1 == 0 {
            *self.placement.begun.lock() = None;
        }
    }
}

impl QueuePair {
    /// A request is about to be posted. If it is a WRITE or READ, some of its bytes may land now, and the others when
    /// it begins, which is late then. That is done only if the request will be taken and begun, everything is allowed,
    /// and nothing is outstanding that it would overtake.
    pub(super) fn land_early(
        &self,
        rehearsed: &Rehearsed,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        before: &Before,
        cx: &Context<'_, At<'_>>,
    ) {
        let placement = &rehearsed.placement;
        let (Some(nth), Some((operation, length))) = (before.placed, one_sided(request)) else {
            return;
        };
        let kinds = [Provocation::ScrambledBytes, Provocation::RepeatedBytes];
        if !kinds.iter().any(|kind| rehearsed.rehearsal.may_provoke(*kind)) {
            return;
        }
        let reads = matches!(operation, OneSided::Read { .. });
        let is_of_service = match self.config.service {
            Service::Rc | Service::XrcInitiator => true,
            Service::Uc => !reads,
            _ => false,
        };
        let limits = &self.config.send;
        let fits = request.sges.len() <= limits.max_sge
            && (request.inline.is_none() || length <= limits.inline_room as u64)
            && (!reads || requester.connection.max_rd_atomic > 0);
        let begins = requester.occupancy().1 == 0 && cx.summary.gate().state == QpState::Rts;
        if !is_of_service || !fits || !begins {
            return;
        }
        let srq = request.remote.srq();
        let land = |pieces: &mut dyn Iterator<Item = _>| {
            cx.process.carry_out_pieces(&operation, srq, length, pieces) == Direct::Done
        };
        if cx.process.meets_atomics(&operation, srq) || !land(&mut std::iter::empty()) {
            return;
        }
        let provokes = |kind| rehearsed.provokes(kind, nth);
        let scrambled = provokes(Provocation::ScrambledBytes);
        let repeated = provokes(Provocation::RepeatedBytes);
        let cut = scrambled.and_then(|number| Pieces::cut(length, number));
        let pieces = match (cut, repeated) {
            (None, None) => return,
            (Some(pieces), None) => pieces,
            (Some(pieces), Some(_)) => pieces.again(),
            (None, Some(_)) => Pieces::twice(length),
        };
        if land(&mut pieces.early())
            && let Some((writes, at)) = place_of(&operation)
        {
            *placement.begun.lock() = Some(Begun { writes, at, pieces });
            let number = scrambled.or(repeated).unwrap_or_default();
            rehearsed.late.begin(requester, lateness(number >> 5));
        }
    }

    /// An operation begins on the direct path. If its early pieces have landed, these are its pieces.
    pub(in super::super) fn take_begun(
        &self,
        operation: &OneSided<'_>,
        length: u64,
    ) -> Option<Pieces> {
        let (writes, at) = place_of(operation)?;
        let begun = self.rehearsed()?.placement.begun.lock().take()?;
        let is_it = (begun.writes, begun.at, begun.pieces.length()) == (writes, at, length);
        is_it.then_some(begun.pieces)
    }

    /// How so many bytes of an arrived segment land, if they do not as a whole. Only the first segment of a message is
    /// asked about: how long the next ones are depends on time.
    #[inline]
    pub(in super::super) fn lands_in_pieces(
        &self,
        request: &Request,
        length: u64,
        meets_atomics: impl FnOnce(&Request) -> bool,
    ) -> Option<Pieces> {
        let rehearsed = self.rehearsed()?;
        if request.offset > 0 || length < 2 || meets_atomics(request) {
            return None;
        }
        let nth = rehearsed.placement.arrived.fetch_add(1, Relaxed);
        let number = rehearsed.provokes(Provocation::ScrambledMessages, nth)?;
        rehearsed.placement.pause.store(pause(number >> 5).as_nanos() as u64, Relaxed);
        Pieces::cut(length, number)
    }

    /// The early pieces of a message that arrived have landed.
    pub(in super::super) fn wait_between_pieces(&self) {
        if let Some(rehearsed) = self.rehearsed() {
            let pause = Duration::from_nanos(rehearsed.placement.pause.load(Relaxed));
            uncancelled(|| thread::sleep(pause));
        }
    }
}
