//! One-sided requests: WRITE, READ, atomics and FLUSH, whose target is the memory of a key.

use super::super::one_sided::{KeyDomain, Stop, Target};
use super::super::{Context, Counted, MemoryGone, Process, Reply, Request, Sink, Source};
use super::Responder;
use crate::protection::{Attempt, Operation, Reason, Refusal, RemoteAddress, admit};
use crate::queue::{Body, Flags, Opcode, Remote, Status};

impl Responder {
    pub(super) fn write<P: Process>(
        &mut self,
        request: &Request,
        at: RemoteAddress,
        immediate: Option<u32>,
        source: &mut dyn Source,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        // The last packet alone has the immediate data, and takes the receive before its key is
        // looked at (rule RA-01). A segment of several begins with one that has none, and is judged
        // by that (rules RA-12, RA-46).
        let receives = immediate.is_some() && request.is_last();
        let one_packet = request.length <= cx.summary.peering().path_mtu();
        let checked = if receives && !one_packet { self.check(request, at, cx) } else { Ok(()) };
        if receives
            && checked.is_ok()
            && let Err(why) = self.take(request, None, 0, cx)
        {
            return self.without_receive(why, request, cx);
        }
        let written = checked.and_then(|()| self.place_write(request, at, source, cx));
        match written {
            Ok(()) => {}
            Err(Stop::Closed) => return Reply::Dropped,
            Err(Stop::Near(_)) => return Reply::OriginFailed,
            Err(Stop::Refused(refusal)) if receives && one_packet => {
                return self.spoil_receive(&refusal, cx);
            }
            Err(Stop::Refused(refusal)) => return self.refuse(&refusal, cx),
        }
        self.message.progress += request.length;
        if !request.is_last() {
            return Reply::Silence;
        }
        cx.process.count(Counted::REMOTE_WRITE, Some(request.total));
        cx.process.has_served(Operation::Write, request.total);
        let (operation, length) = (request.body.operation(), request.total);
        let (RemoteAddress { address, key }, qp) = (at, cx.number.bits());
        cx.process.note_write(&Attempt { operation, key, address, length, qp, pd: 0 });
        let Some(immediate) = immediate else { return self.done(cx) };
        let opcode = Opcode::ReceiveWriteImmediate;
        let mut completion = self.completion(cx, Status::Success, opcode);
        completion.byte_length = request.total as u32;
        completion.immediate = immediate;
        completion.flags = Flags::IMMEDIATE;
        self.consume(completion, request.solicited, cx)
    }

    pub(super) fn read<P: Process>(
        &mut self,
        request: &Request,
        sink: &mut dyn Sink,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        let reply = self.fetch(request, sink, cx);
        if let Reply::Data { length } = reply {
            self.message.progress += length;
            if request.is_last() {
                cx.process.count(Counted::REMOTE_READ, Some(request.total));
                cx.process.has_served(Operation::Read, request.total);
                self.done(cx);
            }
        }
        reply
    }

    pub(super) fn atomic<P: Process>(
        &mut self,
        request: &Request,
        at: RemoteAddress,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        match self.change_word(request, at, |old| request.body.updated(old), cx) {
            Ok(old) => {
                cx.process.has_served(request.body.operation(), 8);
                self.done(cx);
                Reply::Atomic(old)
            }
            Err(refusal) => self.refuse(&refusal, cx),
        }
    }

    pub(super) fn atomic_write<P: Process>(
        &mut self,
        request: &Request,
        at: RemoteAddress,
        source: &mut dyn Source,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        let new = match source.word() {
            _ if request.total != 8 => 0,
            Ok(new) => new,
            Err(_) => return Reply::OriginFailed,
        };
        match self.change_word(request, at, |_| new, cx) {
            Ok(_) => {
                cx.process.has_served(Operation::AtomicWrite, 8);
                self.done(cx)
            }
            Err(refusal) => self.refuse(&refusal, cx),
        }
    }

    /// Changes eight aligned bytes in one step; the old value.
    fn change_word<P: Process>(
        &self,
        request: &Request,
        at: RemoteAddress,
        mut update: impl FnMut(u64) -> u64,
        cx: &mut Context<'_, P>,
    ) -> Result<u64, Refusal> {
        let gate = cx.summary.gate();
        let RemoteAddress { address, key } = at;
        let operation = request.body.operation();
        let (qp, pd) = (cx.number.bits(), self.key_domain(request, cx)?);
        let attempt = Attempt { operation, key, address, length: 8, qp, pd };
        admit(&gate, &attempt, request.total)
            .map_err(|reason| Refusal::without_object(reason, attempt))?;
        let keys = cx.process.keys();
        let grant = keys.grant(attempt, cx.process.announcer(), cx.process.waiter())?;
        if grant.is_null() {
            // There is no word. A write is discarded, and nobody may ask for the old value (rule MR-45).
            return Ok(0);
        }
        let old = cx.process.atomic(&grant, &mut update);
        if old.is_ok() {
            cx.process.note_write(&attempt);
            if let Some(witness) = cx.process.witness() {
                witness.touched(&attempt, true);
            }
        }
        old.map_err(|MemoryGone| Refusal {
            reason: Reason::MemoryGone,
            attempt,
            object: keys.look_up(key),
        })
    }

    /// Whether a FLUSH of a range, or of the whole region, is allowed. The check is all there is to do: the kernel has
    /// carried out every write before it, where all can see it.
    pub(super) fn check_flush<P: Process>(
        &self,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> Result<(), Refusal> {
        let Body::Flush { address, key, length, placement, whole } = request.body else {
            return Ok(());
        };
        let gate = cx.summary.gate();
        let keys = cx.process.keys();
        let range = || {
            if whole {
                let object = keys.look_up(key);
                (object.base, object.length)
            } else {
                (address, u64::from(length))
            }
        };
        let (qp, pd) = (cx.number.bits(), self.key_domain(request, cx)?);
        loop {
            let (address, length) = range();
            let checked = placement.operations().try_for_each(|operation| {
                let attempt = Attempt { operation, key, address, length, qp, pd };
                admit(&gate, &attempt, request.total)
                    .map_err(|reason| Refusal::without_object(reason, attempt))?;
                keys.grant(attempt, cx.process.announcer(), cx.process.waiter()).map(drop)
            });
            // If the whole has just become shorter, look at it again.
            if checked.is_ok() || range() == (address, length) {
                return checked;
            }
        }
    }

    /// The queue pair as the target of one-sided operations.
    pub(super) fn target<'m, P: Process>(
        &self,
        request: &Request,
        cx: &Context<'m, P>,
    ) -> Result<Target<'m>, Refusal> {
        Ok(Target {
            keys: cx.process.keys(),
            summary: cx.summary,
            number: cx.number,
            announcer: cx.process.announcer(),
            waiter: cx.process.waiter(),
            initiator: None,
            domain: KeyDomain::Known(self.key_domain(request, cx)?),
        })
    }

    /// The protection domain that a message's keys belong to: the queue pair's, or with XRC that of
    /// the shared receive queue that the message names. Every decision begins with it.
    fn key_domain<P: Process>(
        &self,
        request: &Request,
        cx: &Context<'_, P>,
    ) -> Result<u32, Refusal> {
        cx.process.is_asked(request);
        match request.remote {
            Remote::Srq(number) => cx.process.shared_pd(number).ok_or_else(|| {
                let attempt = self.attempt(Operation::Send, request.known(), cx);
                Refusal::without_object(Reason::UnknownSrq, attempt)
            }),
            _ => Ok(cx.summary.gate().pd),
        }
    }
}
