//! Messages whose source is read in two moments in a rehearsal: a part when they are posted, and the rest when they
//! begin.

use std::collections::VecDeque;

use parking_lot::Mutex;
use transom_device::execution::{Context, LocalBuffers, Payload, Pieces, Requester, Source as _};
use transom_device::qp::QpState;
use transom_device::queue::{SendFlags, SendOp, SendRequest, Sge};
use transom_net::Where;
use transom_rehearse::Provocation;

use super::super::QueuePair;
use super::super::services::At;
use super::{Before, Rehearsed, lateness};

/// The longest message that is torn.
const LONGEST: u64 = 64 << 10;

/// The messages of a queue pair that have been read in part.
#[derive(Debug, Default)]
pub(super) struct Torn(Mutex<VecDeque<Begun>>);

impl Torn {
    /// The queue pair begins anew.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }
}

/// A message that was read in part.
#[derive(Debug)]
struct Begun {
    /// Its position in the send queue.
    position: u64,
    /// All bytes as they were then. Of these the early pieces are sent.
    bytes: Vec<u8>,
    pieces: Pieces,
}

/// How many bytes a message has that may be torn.
pub(super) fn length_of(request: &SendRequest<'_>) -> Option<u64> {
    let (SendOp::Message(body), None) = (request.op, request.inline) else { return None };
    let length = LocalBuffers::length(request.sges);
    (body.carries_data() && (2..=LONGEST).contains(&length)).then_some(length)
}

impl QueuePair {
    /// A request is about to be posted. If it sends data, some of it may be read now, and the rest when it begins,
    /// which is late then.
    pub(super) fn tear(
        &self,
        rehearsed: &Rehearsed,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        before: &Before,
        cx: &Context<'_, At<'_>>,
    ) {
        let (Some(nth), Some(length)) = (before.torn, length_of(request)) else { return };
        // What a fence waits for may still change the source.
        let waits = request.flags.contains(SendFlags::FENCE) && requester.occupancy().1 > 0;
        let begins = !waits
            && request.sges.len() <= self.config.send.max_sge
            && cx.summary.gate().state == QpState::Rts;
        if !begins {
            return;
        }
        let number = rehearsed.provokes(Provocation::TornSources, nth);
        if let Some(number) = number
            && let Some(pieces) = Pieces::cut(length, number)
            && let Some(bytes) = cx.process.read_source(request.sges)
        {
            rehearsed.late.begin(requester, lateness(number >> 5));
            let position = requester.tail();
            rehearsed.torn.0.lock().push_back(Begun { position, bytes, pieces });
        }
    }

    /// A message begins. If it was read in part, the rest is read now: these are its bytes then.
    #[inline]
    pub(in super::super) fn take_torn(
        &self,
        at: &At<'_>,
        position: u64,
        payload: Payload<'_>,
    ) -> Option<Vec<u8>> {
        self.rehearsed()?.mend(at, position, payload)
    }
}

impl Rehearsed {
    #[cold]
    fn mend(&self, at: &At<'_>, position: u64, payload: Payload<'_>) -> Option<Vec<u8>> {
        let Payload::Buffers(sges) = payload else { return None };
        let Begun { bytes, pieces, .. } = {
            let mut torn = self.torn.0.lock();
            // Those that ended otherwise are gone.
            torn.retain(|it| it.position >= position);
            if torn.front()?.position != position {
                return None;
            }
            torn.pop_front()?
        };
        let mut rest = at.read_source(sges)?;
        for piece in pieces.early() {
            let piece = piece.start as usize..piece.end as usize;
            rest[piece.clone()].copy_from_slice(&bytes[piece]);
        }
        Some(rest)
    }
}

impl At<'_> {
    /// The bytes of a message as they are now, if they may be read.
    fn read_source(&self, sges: &[Sge]) -> Option<Vec<u8>> {
        let length = LocalBuffers::length(sges);
        let mut bytes = vec![0; length as usize];
        let mut source = self.gather(Payload::Buffers(sges), 0, Where::Here);
        source.read(0, &mut bytes).ok()?;
        Some(bytes)
    }
}
