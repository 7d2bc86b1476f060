//! The direct path: WRITEs, READs and atomics act on the memory of the target's process, and plain SENDs go straight
//! into its ring.

use std::slice;

use transom_device::execution::one_sided::{Admission, CHUNK, Initiator, KeyDomain, Stop, Target};
use transom_device::execution::{
    Bytes, CopyError, Direct, OneSided, Part, Payload, PlainSend, Process, Shortcuts, Source,
};
use transom_device::protection::{Grant, Operation, RemoteAddress};
use transom_device::qp::Service;
use transom_device::queue::{Body, Remote, Sge};
use transom_net::{Peer, Reach, Where};
use transom_system::Unchanged;
use transom_system::memory::{Copier, Destination, address_of, change_word};
use transom_system::tools;
use transom_system::traffic::Carried;

use super::At;
use crate::objects::Link;

impl Shortcuts for At<'_> {
    #[inline(always)]
    fn try_at_once(
        &self,
        kept: &mut Option<Admission>,
        body: &Body,
        remote: &Remote,
        data: Payload<'_>,
        length: u64,
    ) -> bool {
        let (Body::Write { address, key, immediate: None }
        | Body::Read { address, key }
        | Body::FetchAdd { address, key, .. }
        | Body::CompareSwap { address, key, .. }) = *body
        else {
            return false;
        };
        let way = if length <= CHUNK { self.direct_target(remote.srq()) } else { None };
        let Some((target, place)) = way else { return false };
        let at = RemoteAddress { address, key };
        let copier = self.qp.device.process().copier();
        let local = |buffer| self.local(slice::from_ref(buffer));
        // Before the grant ends: until then the queue pair there does not end.
        let traffic = self.traffic_there(target.summary.place());
        let count = |kind| {
            self.count_at_both_ends(traffic, kind, length);
            true
        };
        let done = match (body, data) {
            (Body::Write { .. }, Payload::Inline(bytes)) => {
                target.try_at_once(kept, Operation::Write, at, length, |to| {
                    // Within this process, a program may send from and into the same memory.
                    let there = address_of(to.place());
                    there.is_none_or(|it| it.abs_diff(bytes.as_ptr() as u64) >= length)
                        && copier.copy(place.destination(to.place()), bytes.into(), length).is_ok()
                        && count(Carried::Write)
                })
            }
            (Body::Write { .. }, Payload::Buffers([one])) => {
                target.try_at_once(kept, Operation::Write, at, length, |to| {
                    local(one).grant_whole(Operation::LocalRead, one).is_some_and(|from| {
                        let from = Where::Here.source(from.place());
                        copier.copy(place.destination(to.place()), from, length).is_ok()
                            && count(Carried::Write)
                    })
                })
            }
            (Body::Read { .. }, Payload::Buffers([one])) => {
                target.try_at_once(kept, Operation::Read, at, length, |from| {
                    local(one).grant_whole(Operation::LocalWrite, one).is_some_and(|to| {
                        let to = Where::Here.destination(to.place());
                        copier.copy(to, place.source(from.place()), length).is_ok()
                            && count(Carried::Read)
                    })
                })
            }
            (atomic, Payload::Buffers([one])) if length == 8 => {
                target.try_at_once(kept, atomic.operation(), at, length, |at| {
                    local(one)
                        .grant_whole(Operation::LocalWrite, one)
                        .is_some_and(|to| self.change_at_once(body, place, at, &to))
                        && count(Carried::Atomic)
                })
            }
            _ => false,
        };
        // No part of it was copied.
        if done && length == 0 {
            count(if matches!(body, Body::Read { .. }) { Carried::Read } else { Carried::Write });
        }
        done
    }

    fn carry_out_direct(
        &self,
        position: u64,
        operation: OneSided<'_>,
        srq: Option<u32>,
        length: u64,
    ) -> Direct {
        if tools::any() {
            return self.carry_out_watched(position, operation, srq, length);
        }
        self.carry_out_now(operation, srq, length)
    }

    fn send_at_once(&self, send: &PlainSend, data: Payload<'_>) -> bool {
        let (Link::Local(peer), device) = (self.link, &self.qp.device) else { return false };
        if device.observer().is_some() {
            return false;
        }
        let copier = device.process().copier();
        peer.send_at_once(device.process().segment(), send, |to| match data {
            Payload::Inline(bytes) => copier.copy(to, bytes.into(), send.length).is_ok(),
            Payload::Buffers([one]) => {
                let from = self.local(slice::from_ref(one)).grant_whole(Operation::LocalRead, one);
                from.is_some_and(|from| {
                    let from = Where::Here.source(from.place());
                    copier.copy(to, from, send.length).is_ok()
                })
            }
            Payload::Buffers(_) => false,
        })
    }
}

/// What became of an operation on the direct path.
pub(super) fn answer(done: Result<(), Stop>) -> Direct {
    match done {
        Ok(()) => Direct::Done,
        Err(Stop::Near(refusal)) => Direct::Near(refusal),
        // The responder decides by itself, and reports why.
        Err(Stop::Closed | Stop::Refused(_)) => Direct::Declined,
    }
}

impl At<'_> {
    /// Carries out an operation on the direct path while a tool is on.
    #[cold]
    fn carry_out_watched(
        &self,
        position: u64,
        operation: OneSided<'_>,
        srq: Option<u32>,
        length: u64,
    ) -> Direct {
        let rehearsed = match self.qp.rehearsed() {
            Some(_) => self.carry_out_rehearsed(position, &operation, srq, length),
            None => None,
        };
        let (kind, at) = (operation.operation(), operation.remote());
        let done = match rehearsed {
            Some(done) => {
                if let (Direct::Done, Some(kind), Some((target, _))) =
                    (done, Carried::by(kind), self.direct_target(srq))
                {
                    self.count_there(self.traffic_there(target.summary.place()), kind, length);
                }
                done
            }
            None => self.carry_out_now(operation, srq, length),
        };
        if done == Direct::Done {
            self.trace_reached(kind, at, position, length);
        }
        done
    }

    /// Carries out an operation on the direct path as outside of a rehearsal.
    pub(in super::super) fn carry_out_now(
        &self,
        operation: OneSided<'_>,
        srq: Option<u32>,
        length: u64,
    ) -> Direct {
        let Some((target, place)) = self.direct_target(srq) else { return Direct::Declined };
        let kind = Carried::by(operation.operation());
        let done = self.carry_out_whole(operation, target, place, length);
        if done == Direct::Done
            && let Some(kind) = kind
        {
            self.count_there(self.traffic_there(target.summary.place()), kind, length);
        }
        done
    }

    pub(super) fn carry_out_whole(
        &self,
        operation: OneSided<'_>,
        target: Target<'_>,
        place: Where<'_>,
        length: u64,
    ) -> Direct {
        let part = Part::whole(length);
        let done = match operation {
            OneSided::Write { to, data } => {
                target.write(to, part, &mut self.gather(data, 0, place))
            }
            OneSided::Read { from, buffers } => {
                target.read(from, part, &mut self.scatter(buffers, 0, place))
            }
            OneSided::Atomic { at, body, buffers } => {
                target.atomic(body.operation(), at, |word| self.change(body, place, word, buffers))
            }
        };
        answer(done)
    }

    /// The target of one-sided operations, if this process can reach its memory.
    ///
    /// On UC a request has completed once it is in the ring. A later request must not overtake it on the direct path
    /// before the peer has taken it (rule ORD-01).
    ///
    /// A shared receive queue that XRC names must belong to the process that has the receiving end: an announcement to
    /// one process does not make another wait.
    #[inline(always)]
    pub(super) fn direct_target(&self, srq: Option<u32>) -> Option<(Target<'_>, Where<'_>)> {
        let (segment, place) = match self.link {
            Link::None => return None,
            Link::Loopback if !self.qp.device.by_message() => {
                (self.qp.device.process().segment(), Where::Here)
            }
            Link::Local(peer) if peer.is_reached() && !peer.is_gone() && !self.would_pass(peer) => {
                (&peer.segment, Where::Peer(&peer.memory))
            }
            Link::Loopback | Link::Local(_) | Link::Wire(_) => return None,
        };
        let domain = match srq {
            None => KeyDomain::QueuePair,
            Some(number) if number >> 16 == u32::from(self.peer.slot()) => {
                KeyDomain::Shared(segment.srq(number as u16))
            }
            Some(_) => return None,
        };
        let target = Target {
            keys: segment.keys(),
            summary: segment.qps().summary(self.peer.index())?,
            number: self.peer,
            announcer: self.announcer(),
            waiter: self.waiter(),
            initiator: Some(Initiator {
                from: self.qp.number,
                first: self.first,
                service: self.qp.config.service,
                log: segment.access_log(),
            }),
            domain,
        };
        Some((target, place))
    }

    /// Whether a request that has completed here still has to be carried out there.
    #[inline]
    fn would_pass(&self, peer: &Peer) -> bool {
        self.qp.config.service == Service::Uc
            && !peer.has_carried_out_all(self.qp.device.process().segment())
    }

    /// Changes a word of the target, and stores its old value.
    fn change(
        &self,
        body: &Body,
        place: Where<'_>,
        at: &Grant<'_>,
        buffers: &[Sge],
    ) -> Result<(), CopyError> {
        let old = match place.word(at) {
            Some(word) => change_word(word, |old| body.updated(old)),
            None => self.change_private(body, at, None).map_err(|_| CopyError::Far)?,
        };
        let (local, old) = (self.local(buffers), old.to_ne_bytes());
        let mut old = Bytes { bytes: &old, process: self };
        let stored = local.each(Operation::LocalWrite, 0, 8, |done, part| old.copy_to(done, part));
        stored.map_err(|error| match error {
            CopyError::Far => CopyError::Near(local.gone(Operation::LocalWrite)),
            near @ CopyError::Near(_) => near,
        })
    }

    /// Changes a word of the target, if its old value is certain to find its place.
    #[inline]
    fn change_at_once(
        &self,
        body: &Body,
        place: Where<'_>,
        at: &Grant<'_>,
        to: &Grant<'_>,
    ) -> bool {
        let landing = Where::Here.destination(to.place()).resolved(8);
        let old = match (place.word(at), landing) {
            (Some(word), Destination::Own(_)) => change_word(word, |old| body.updated(old)),
            (Some(_), _) => return false,
            (None, Destination::Own(_)) => match self.change_private(body, at, None) {
                Ok(old) => old,
                Err(_) => return false,
            },
            (None, _) => return self.change_private(body, at, Some(to.place())).is_ok(),
        };
        let copier = self.qp.device.process().copier();
        copier.copy(landing, old.to_ne_bytes().as_slice().into(), 8).is_ok()
    }

    /// Changes a word of the target that only the kernel reaches. With it, stores the old value in private memory of
    /// this process, if asked to.
    #[inline(never)]
    fn change_private(
        &self,
        body: &Body,
        at: &Grant<'_>,
        landing: Option<u64>,
    ) -> Result<u64, Unchanged> {
        let process = self.qp.device.process();
        let peer = match self.link {
            _ if !matches!(process.copier(), Copier::Kernel) => return Err(Unchanged::Gone),
            Link::Loopback => None,
            Link::Local(peer) if peer.reach == Reach::Direct && peer.memory.shadow.is_none() => {
                Some((&peer.segment, peer.memory.pid))
            }
            _ => return Err(Unchanged::Gone),
        };
        process.change_private(peer, at.place(), landing, |old| body.updated(old))
    }
}
