//! Which completions may come, when, and with which status.

use transom_device::Access;
use transom_device::execution::QueueSide;
use transom_device::protection::{Bind, Key, WindowKind};
use transom_device::qp::Service;
use transom_device::queue::{Body, Completion, Flags, LocalOp, SendFlags, SendOp, Status};
use transom_wire::NakCode;
use transom_wire::grh::GRH_BYTES;

use super::posted::{PostedSend, Tries};
use super::rights::{Grants, Kind};
use super::target::needs;
use super::{At, Cause, Found, Model, Verdict, ensure};

impl Model {
    /// A completion comes; `memory` is the device's, `running` whether its queue pair still does.
    pub fn completed(
        &mut self,
        at: At,
        cause: &Cause,
        side: QueueSide,
        done: &Completion,
        memory: &dyn Fn(u64, u64) -> Vec<u8>,
    ) -> Verdict {
        let number = self.end(at).number.bits();
        ensure!(done.qp == number, "a completion names queue pair {:#x}", done.qp);
        match done.status {
            Status::Success => {}
            Status::Flushed => {
                self.counts.flushed += 1;
                let fallen = self.end(at).fallen;
                ensure!(fallen.is_some(), "{:#x} is flushed though nothing failed", done.wr_id);
            }
            _ => {
                self.counts.failed += 1;
                self.end_mut(at).fallen.get_or_insert("a work request failed");
            }
        }
        match side {
            QueueSide::Send => self.send_completed(at, done),
            QueueSide::Receive => self.receive_completed(at, cause, done, memory),
        }
    }

    fn send_completed(&mut self, at: At, done: &Completion) -> Verdict {
        loop {
            let end = self.end(at);
            let send = end.sends.next().ok_or_else(|| {
                format!("{:#x} completes, and nothing is posted any more", done.wr_id)
            })?;
            let reported = send.wr_id == done.wr_id;
            let silent = !send.flags.contains(SendFlags::SIGNALED);
            ensure!(
                reported || silent,
                "{:#x} completes before {:#x}, which was posted first",
                done.wr_id,
                send.wr_id
            );
            let status = if reported { done.status } else { Status::Success };
            let send = send.clone();
            self.judge(at, &send, status).map_err(|wrong| {
                format!("{:#x} ({:?}) {status:?}: {wrong}", send.wr_id, send.op)
            })?;
            let end = self.end_mut(at);
            if let Some(send) = end.sends.end_next() {
                send.status = Some(status);
            }
            if status == Status::Success {
                // The others have ended before.
                if reported {
                    end.gets_on();
                }
                self.counts.succeeded += 1;
                ensure!(
                    !reported || silent || u64::from(done.byte_length) == send.length,
                    "{:#x} completes with {} bytes",
                    done.wr_id,
                    done.byte_length
                );
            }
            if reported {
                return Ok(());
            }
        }
    }

    /// Whether a work request may end like this.
    fn judge(&mut self, at: At, send: &PostedSend, status: Status) -> Verdict {
        if let (SendOp::Local(op), Status::Success | Status::WindowBind) = (send.op, status) {
            return self.local_done(at, &op, status == Status::Success);
        }
        let end = self.end(at);
        let device = 1 - at.device;
        match status {
            Status::Success if end.service == Service::Rc => self.judge_success(at, send),
            // Nobody answers; it is done when it has left (rule UC-02).
            Status::Success => {
                let kept = send.sent.iter().position(|tries| tries.ever == 0);
                ensure!(kept.is_none(), "its packet {kept:?} has not been sent");
                Ok(())
            }
            Status::Flushed => Ok(()),
            Status::RemoteAccess | Status::RemoteInvalidRequest | Status::RemoteOperation => {
                let code = match status {
                    Status::RemoteAccess => NakCode::RemoteAccess,
                    Status::RemoteInvalidRequest => NakCode::InvalidRequest,
                    _ => NakCode::RemoteOperational,
                };
                let range = send.first..send.first + send.packets;
                let naks = &self.ends[device][end.peer].inbound.naks;
                let told = naks.iter().any(|(at, said)| range.contains(at) && *said == code);
                ensure!(told, "the peer has not said so, but {naks:?}");
                Ok(())
            }
            Status::RetryExceeded => {
                let peer = &self.ends[device][end.peer];
                // An invalidation that READs hold back is asked for again, which costs a retry.
                let held = peer.held && matches!(send.body(), Some(Body::SendInvalidate(_)));
                ensure!(
                    end.disturbed || held || peer.fallen.is_some(),
                    "nothing was lost and the peer is well"
                );
                let lost = !end.hardy || end.slow || held || peer.fallen.is_some();
                ensure!(lost, "hardly anything is lost");
                let most =
                    |times: fn(&Tries) -> u32| send.sent.iter().map(times).max().unwrap_or(0);
                // A READ is asked for again from where it stopped, which is another packet.
                let read = matches!(send.body(), Some(Body::Read { .. }));
                let retries = u32::from(end.retries.0);
                let (ever, least) = (most(|tries| tries.ever), retries + u32::from(!read));
                ensure!(ever >= least, "it was sent {ever} times, not {least}");
                // The first time may have been before something got on (rule RN-08).
                let again = most(|tries| tries.since_progress);
                ensure!(again >= retries, "{again} of {retries} retries, then something got on");
                Ok(())
            }
            Status::RnrRetryExceeded => {
                let peer = &self.ends[device][end.peer];
                let range = send.first..send.first + send.packets;
                let most = range.filter_map(|at| peer.inbound.not_ready.get(&at)).max();
                let least = u32::from(end.retries.1);
                ensure!(least < 7, "it may be tried for ever");
                // One that comes late or twice is taken for another.
                let often = most.is_some_and(|most| *most > least || end.disturbed);
                ensure!(often, "not ready {most:?} times only");
                Ok(())
            }
            Status::LocalProtection => {
                let needs = match send.body() {
                    Some(body) if body.returns_data() => Access::LOCAL_WRITE,
                    _ => Access::empty(),
                };
                let refused = send.sges.iter().filter(|sge| sge.length > 0).any(|sge| {
                    let range = (sge.address, u64::from(sge.length));
                    self.local_place(at, sge.key, range, needs).is_err()
                });
                ensure!(refused, "its buffers are allowed");
                Ok(())
            }
            Status::LocalLength => {
                let too_long = end.service == Service::Ud && send.length > end.mtu;
                ensure!(too_long, "its length is right");
                Ok(())
            }
            other => Err(format!("{other:?} never happens here")),
        }
    }

    /// An RC message is done: its target has done all of it, and its answer is stored.
    fn judge_success(&self, at: At, send: &PostedSend) -> Verdict {
        let end = self.end(at);
        let peer = &self.ends[1 - at.device][end.peer];
        let Some(body) = send.body() else { return Ok(()) };
        peer.inbound.check_through(end, send.first + send.packets)?;
        let received = !send.takes_receive() || peer.inbound.has_received(send);
        ensure!(received, "its target has completed no receive");
        if let Some((_, _, access)) = needs(send, 0, end.mtu) {
            ensure!(peer.access.contains(access), "its target lets nobody do this");
        }
        if matches!(body, Body::Flush { .. }) {
            let flushed = peer.inbound.flushed.contains(&send.first);
            ensure!(flushed, "its target has flushed nothing");
        }
        if body.returns_data() {
            ensure!(send.stored == send.length, "{} bytes came back", send.stored);
        }
        Ok(())
    }

    fn receive_completed(
        &mut self,
        at: At,
        cause: &Cause,
        done: &Completion,
        memory: &dyn Fn(u64, u64) -> Vec<u8>,
    ) -> Verdict {
        let end = self.end(at);
        let datagram = end.service == Service::Ud;
        let receive = end
            .receives
            .next()
            .ok_or_else(|| format!("receive {:#x} completes and none is posted", done.wr_id))?
            .clone();
        ensure!(
            receive.wr_id == done.wr_id,
            "receive {:#x} completes before {:#x}",
            done.wr_id,
            receive.wr_id
        );
        self.end_mut(at).receives.end_next();
        if done.status == Status::Flushed {
            return Ok(());
        }
        let ends = done.status == Status::Success;
        let found = self
            .find(at, cause, |found| {
                let last = found.index + 1 == found.send.packets;
                let done = self.end(at).inbound.has_received(&found.send);
                found.send.takes_receive() && (last || !ends) && (!done || datagram)
            })
            .map_err(|none| format!("receive {:#x} completes, but {none}", done.wr_id))?;
        let Found { from, arrival, ref send, index } = found;
        match done.status {
            Status::Success => {}
            Status::LocalLength => {
                ensure!(send.length > receive.length, "the receive is long enough");
                return Ok(());
            }
            // Justified when it was refused.
            Status::LocalProtection | Status::LocalAccess | Status::WindowBind => return Ok(()),
            other => return Err(format!("a receive completes with {other:?}")),
        }
        self.counts.received += 1;
        self.check_receives(at)?;
        let front = if datagram { GRH_BYTES as u64 } else { 0 };
        let (flags, immediate) = match send.body() {
            Some(Body::SendImmediate(word) | Body::Write { immediate: Some(word), .. }) => {
                (Flags::IMMEDIATE, word)
            }
            Some(Body::SendInvalidate(key)) => {
                ensure!(self.may_invalidate(at, key.0), "{key} is not to be invalidated");
                self.check_reads_before(at, send)?;
                self.revoke_key(at, key.0);
                (Flags::INVALIDATED, key.0)
            }
            _ => (Flags::empty(), 0),
        };
        let said = done.flags & (Flags::IMMEDIATE | Flags::INVALIDATED);
        ensure!((said, done.immediate) == (flags, immediate), "{:#x} brings {done:?}", send.wr_id);
        let bytes = front + send.length;
        ensure!(u64::from(done.byte_length) == bytes, "{} bytes, not {bytes}", done.byte_length);
        if !matches!(send.body(), Some(Body::Write { .. })) {
            self.check_received(send, &receive, front, memory)?;
        }
        let (inbound, sender) = self.inbound_from(at, from);
        inbound.begin(sender, arrival, send.first + index)?;
        inbound.receive(sender, send)
    }

    /// The READs before a message have been answered, all of them (rule ORD-19).
    fn check_reads_before(&self, at: At, send: &PostedSend) -> Verdict {
        let end = self.end(at);
        let sender = &self.ends[1 - at.device][end.peer];
        let reads = sender.sends.iter().filter(|other| {
            other.first < send.first && matches!(other.body(), Some(Body::Read { .. }))
        });
        for read in reads {
            let mut places = read.first..read.first + read.packets;
            let unanswered = places.find(|place| !end.inbound.answers.contains_key(place));
            ensure!(unanswered.is_none(), "an invalidation passes READ {:#x}", read.wr_id);
        }
        Ok(())
    }

    /// The message is in the receive's memory, all of it.
    fn check_received(
        &self,
        send: &PostedSend,
        receive: &super::posted::PostedReceive,
        front: u64,
        memory: &dyn Fn(u64, u64) -> Vec<u8>,
    ) -> Verdict {
        let mut offset = 0;
        for sge in &receive.sges {
            let part = u64::from(sge.length).min((front + send.length).saturating_sub(offset));
            if part == 0 {
                continue;
            }
            // Local regions name their bytes by their places, and may be gone by now.
            for (at, byte) in (offset..).zip(memory(sge.address, part)) {
                let right = at < front || byte == send.byte(at - front);
                ensure!(right, "byte {at} of {:#x} is not in the receive", send.wr_id);
            }
            offset += part;
        }
        Ok(())
    }

    /// A bind or invalidation has been carried out, or refused.
    fn local_done(&mut self, at: At, op: &LocalOp, succeeded: bool) -> Verdict {
        match op {
            LocalOp::Invalidate(key) => {
                let allowed = self.may_invalidate(at, key.0);
                ensure!(allowed == succeeded, "allowed: {allowed}");
                if succeeded {
                    self.revoke_key(at, key.0);
                }
            }
            LocalOp::BindType1(bind) | LocalOp::BindType2(bind) => {
                let type1 = matches!(op, LocalOp::BindType1(_));
                let allowed = self.may_bind(at, bind, type1);
                ensure!(allowed.is_ok() == succeeded, "allowed: {allowed:?}");
                if let (Ok((window, grants)), true) = (allowed, succeeded) {
                    self.rights[at.device].revoke(window);
                    let object = &mut self.rights[at.device].objects[window];
                    object.grants = grants;
                    if let Some((_, known)) = &mut object.handle {
                        *known = bind.window.0;
                    }
                }
            }
        }
        Ok(())
    }

    /// What a bind leaves behind: the window and what it grants, unless it is not allowed.
    fn may_bind(
        &self,
        at: At,
        bind: &Bind,
        type1: bool,
    ) -> Result<(usize, Option<Grants>), &'static str> {
        let (rights, who) = (&self.rights[at.device], self.end(at).who());
        let window = rights.object_of(bind.window.0).ok_or("no such window")?;
        let object = &rights.objects[window];
        match object.kind {
            Kind::Region => return Err("not a window"),
            Kind::Window(kind) if (kind == WindowKind::Type1) != type1 => {
                return Err("the other type");
            }
            Kind::Window(_) if object.pd != who.pd => return Err("another protection domain"),
            Kind::Window(_) if !type1 && object.grants.is_some() => return Err("bound already"),
            Kind::Window(_) => {}
        }
        if bind.length == 0 {
            return if type1 { Ok((window, None)) } else { Err("an empty window") };
        }
        let bound = Some((who.qp, self.region_of(at, bind.region)?));
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let mut needs = Access::MW_BIND;
        if bind.access.intersects(writes) {
            needs |= Access::LOCAL_WRITE;
        }
        let range = (bind.address, bind.length);
        let place = rights.place(bind.region.0, range, needs, who, false)?;
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        let base = if zero_based { 0 } else { bind.address };
        let (key, access, length) = (bind.window.0, bind.access, bind.length);
        Ok((window, Some(Grants { key, access, base, length, place, bound })))
    }

    fn region_of(&self, at: At, key: Key) -> Result<usize, &'static str> {
        let rights = &self.rights[at.device];
        let region = rights.object_of(key.0).ok_or("no such region")?;
        let is_region = rights.objects[region].kind == Kind::Region;
        is_region.then_some(region).ok_or("a window instead of a region")
    }

    /// Whether this queue pair may end the binding of a type 2 window by its key.
    pub(super) fn may_invalidate(&self, at: At, key: u32) -> bool {
        let (rights, who) = (&self.rights[at.device], self.end(at).who());
        rights.objects.iter().any(|object| {
            let Some(grants) = object.grants.filter(|grants| grants.key == key) else {
                return false;
            };
            let owned = grants.bound.is_some_and(|(qp, _)| qp == who.qp);
            match object.kind {
                Kind::Window(WindowKind::Type2A) => owned,
                Kind::Window(WindowKind::Type2B) => owned && object.pd == who.pd,
                _ => false,
            }
        })
    }

    /// The binding with this key ends.
    fn revoke_key(&mut self, at: At, key: u32) {
        let rights = &mut self.rights[at.device];
        let holds =
            |object: &super::rights::Object| object.grants.is_some_and(|grants| grants.key == key);
        if let Some(index) = rights.objects.iter().position(holds) {
            rights.revoke(index);
            self.counts.revoked += 1;
        }
    }
}
