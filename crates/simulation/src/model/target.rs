//! What may be done for a request that arrives: bytes stored, words changed, memory read, answers.

use transom_device::Access;
use transom_device::protection::{Operation as Attempted, Reason, Refusal};
use transom_device::qp::Service;
use transom_device::queue::Body;
use transom_wire::grh::GRH_BYTES;
use transom_wire::packet::{Aeth, Operation, Packet};
use transom_wire::{NakCode, Psn, Syndrome};

use super::posted::{PostedSend, sge_at};
use super::{At, Cause, Found, Model, Verdict, ensure};

/// The range and rights that a message needs of the key it names, from the packet at `index` on.
pub(super) fn needs(send: &PostedSend, index: u64, mtu: u64) -> Option<(u32, (u64, u64), Access)> {
    let skip = index * mtu;
    let (address, key, length, access) = match send.body()? {
        Body::Write { address, key, .. } => {
            (address.wrapping_add(skip), key, send.length - skip, Access::REMOTE_WRITE)
        }
        Body::Read { address, key } => {
            (address.wrapping_add(skip), key, send.length - skip, Access::REMOTE_READ)
        }
        Body::CompareSwap { address, key, .. } | Body::FetchAdd { address, key, .. } => {
            (address, key, 8, Access::REMOTE_ATOMIC)
        }
        Body::AtomicWrite { address, key } => (address, key, 8, Access::REMOTE_WRITE),
        Body::Flush { address, key, length, .. } => {
            (address, key, u64::from(length), Access::FLUSH_GLOBAL)
        }
        _ => return None,
    };
    Some((key.0, (address, length), access))
}

impl Model {
    /// Requests arrive: one that was asked for again may be asked for once more.
    pub fn arrived(&mut self, at: At, cause: &Cause) {
        let Cause::Requests(arrived) = cause else { return };
        let end = self.end(at);
        let lacking = end.receives.waiting().len() < arrived.len();
        for packet in arrived {
            let Ok(from) = self.sender(at, packet.source) else { continue };
            if let Ok(place) = self.end(from).place_of(packet.psn) {
                let flushable = self.may_flush(at, from, place);
                let (inbound, sender) = self.inbound_from(at, from);
                // That the place is somebody's is known.
                let _ = inbound.arrive(sender, place, flushable);
                let inbound = &mut self.end_mut(at).inbound;
                inbound.gaps.remove(&place);
                match lacking {
                    true => inbound.lacked.insert(place),
                    false => inbound.lacked.remove(&place),
                };
            }
        }
        self.end_mut(at).inbound.refusing = None;
    }

    /// Whether a packet of this place is a FLUSH that is allowed at this moment (rules FL-01 to FL-06).
    fn may_flush(&self, at: At, from: At, place: u64) -> bool {
        let (end, sender) = (self.end(at), self.end(from));
        let Ok(number) = sender.message_at(place) else { return false };
        let send = &sender.sends[number];
        let Some((key, range, access)) = needs(send, place - send.first, sender.mtu) else {
            return false;
        };
        matches!(send.body(), Some(Body::Flush { .. }))
            && end.access.contains(access)
            && self.rights[at.device].place(key, range, access, end.who(), false).is_ok()
    }

    /// Bytes are stored for requests.
    pub fn stored_for_request(
        &mut self,
        at: At,
        cause: &Cause,
        address: u64,
        bytes: &[u8],
    ) -> Verdict {
        self.check_receives(at)?;
        let front = if self.end(at).service == Service::Ud { GRH_BYTES as u64 } else { 0 };
        let mut done = 0;
        while done < bytes.len() as u64 {
            let mtu = self.end(at).mtu;
            let found = self.find(at, cause, |found| {
                let stored = self.end(at).inbound.stored_of(found.arrival, found.place());
                let data = found.send.body().is_some_and(|body| body.carries_data());
                let word = matches!(found.send.body(), Some(Body::AtomicWrite { .. }));
                data && !word && stored < front + found.send.payload(found.index, mtu)
            })?;
            let Found { from, arrival, ref send, index } = found;
            let stored = self.end(at).inbound.stored_of(arrival, found.place());
            let part = (front + send.payload(index, mtu) - stored).min(bytes.len() as u64 - done);
            let data = &bytes[done as usize..][..part as usize];
            for (number, byte) in (stored..).zip(data) {
                let right = number < front || *byte == send.byte(index * mtu + number - front);
                ensure!(right, "byte {number} of packet {} is stored wrong", found.place());
            }
            let expected = self.place_of_request(at, &found, stored, part)?;
            let address = address + done;
            ensure!(address == expected, "stored at {address:#x}, not at {expected:#x}");
            let (inbound, sender) = self.inbound_from(at, from);
            inbound.begin(sender, arrival, found.place())?;
            inbound.add_stored(part);
            self.counts.bytes += part;
            done += part;
        }
        Ok(())
    }

    /// Where the bytes of a request belong, from `stored` of its packet on.
    fn place_of_request(
        &self,
        at: At,
        found: &Found,
        stored: u64,
        length: u64,
    ) -> Result<u64, String> {
        let (end, Found { send, index, .. }) = (self.end(at), found);
        let offset = index * end.mtu + stored;
        match send.body() {
            Some(Body::Write { .. }) => {
                let (key, range, access) = needs(send, *index, end.mtu).ok_or("no range")?;
                let place = self.rights[at.device]
                    .place(key, range, access, end.who(), false)
                    .map_err(|why| format!("{:#x} writes {range:#x?}: {why}", send.wr_id))?;
                ensure!(end.access.contains(access), "the queue pair lets nobody write");
                Ok(place + stored)
            }
            Some(Body::Send | Body::SendImmediate(_) | Body::SendInvalidate(_)) => {
                let receive = end.receives.next().ok_or("no receive is posted")?;
                let (sge, place, rest) =
                    sge_at(&receive.sges, offset).ok_or("past the end of the receive")?;
                ensure!(length <= rest, "past the end of a buffer of the receive");
                self.local_place(at, sge.key, (place, length), Access::LOCAL_WRITE)
            }
            other => Err(format!("bytes are stored for {other:?}")),
        }
    }

    /// Where a range of local memory is that an L_Key lets this queue pair use.
    pub(super) fn local_place(
        &self,
        at: At,
        key: u32,
        range: (u64, u64),
        needs: Access,
    ) -> Result<u64, String> {
        self.rights[at.device]
            .place(key, range, needs, self.end(at).who(), true)
            .map_err(|why| format!("local memory {range:#x?} by {key:#x}: {why}"))
    }

    /// A word changes for a request.
    pub fn changed(&mut self, at: At, cause: &Cause, address: u64, old: u64, new: u64) -> Verdict {
        self.check_receives(at)?;
        let changes = |found: &Found| {
            let done = self.end(at).inbound.found.contains_key(&found.place());
            !done
                && found.send.body().is_some_and(|body| {
                    matches!(
                        body,
                        Body::CompareSwap { .. } | Body::FetchAdd { .. } | Body::AtomicWrite { .. }
                    )
                })
        };
        let found = self.find(at, cause, changes)?;
        let (send, end) = (&found.send, self.end(at));
        let expected = match send.body() {
            Some(Body::CompareSwap { swap, compare, .. }) if old == compare => swap,
            Some(Body::CompareSwap { .. }) => old,
            Some(Body::FetchAdd { add, .. }) => old.wrapping_add(add),
            _ => u64::from_ne_bytes(std::array::from_fn(|at| send.byte(at as u64))),
        };
        ensure!(new == expected, "{:#x} makes {new:#x} of {old:#x}", send.wr_id);
        let (key, range, access) = needs(send, 0, 1).ok_or("no range")?;
        let right = self.rights[at.device]
            .place(key, range, access, end.who(), false)
            .map_err(|why| format!("{:#x} changes a word: {why}", send.wr_id))?;
        ensure!(address == right, "a word changes at {address:#x}, not at {right:#x}");
        let aligned = address.is_multiple_of(8) && range.0.is_multiple_of(8);
        ensure!(aligned, "a word changes at {address:#x}, named {range:x?}");
        ensure!(end.access.contains(access), "the queue pair does not let anybody do this");
        let (inbound, sender) = self.inbound_from(at, found.from);
        inbound.begin(sender, found.arrival, found.place())?;
        inbound.found.insert(found.place(), old);
        Ok(())
    }

    /// Memory is read for READ responses from this number on; `skip` bytes of them have been.
    /// If `in_order`, later requests must not have been carried out yet when they are for the first
    /// time (rule ORD-09).
    pub fn read(
        &mut self,
        at: At,
        psn: Psn,
        skip: u64,
        (address, bytes): (u64, u64),
        in_order: bool,
    ) -> Verdict {
        let end = self.end(at);
        let sender = &self.ends[1 - at.device][end.peer];
        let (send, index) = sender.message_of(psn)?;
        let is_read = matches!(send.body(), Some(Body::Read { .. }));
        ensure!(is_read, "memory is read for {:?}", send.body());
        let (key, (from, length), access) = needs(send, index, sender.mtu).ok_or("no range")?;
        ensure!(skip + bytes <= length, "more is read than {:#x} asks for", send.wr_id);
        let range = (from + skip, bytes);
        let right = self.rights[at.device]
            .place(key, range, access, end.who(), false)
            .map_err(|why| format!("{:#x} reads {range:#x?}: {why}", send.wr_id))?;
        ensure!(address == right, "read at {address:#x}, not at {right:#x}");
        ensure!(end.access.contains(access), "the queue pair lets nobody read");
        if !end.inbound.answers.contains_key(&(send.first + index)) {
            let place = send.first + index;
            let early = end.inbound.next <= place;
            ensure!(early || !in_order, "the READ at {place} is behind later requests");
            end.inbound.check_through(sender, send.first.max(end.inbound.next))?;
        }
        Ok(())
    }

    /// A queue pair refuses something, its own or its peer's.
    pub fn refused(&mut self, at: At, cause: &Cause, refusal: &Refusal) -> Verdict {
        self.counts.refused += 1;
        let Refusal { reason, attempt, .. } = *refusal;
        let range = (attempt.address, attempt.length);
        match attempt.operation {
            Attempted::LocalRead | Attempted::LocalWrite => {
                let write = attempt.operation == Attempted::LocalWrite;
                let needs = if write { Access::LOCAL_WRITE } else { Access::empty() };
                let granted = self.local_place(at, attempt.key.0, range, needs);
                ensure!(granted.is_err(), "a local buffer is refused that is allowed: {refusal:?}");
                if matches!(cause, Cause::Requests(_)) {
                    self.end_mut(at).inbound.refusing = Some(NakCode::RemoteOperational);
                    self.end_mut(at).fallen.get_or_insert("a receive was refused");
                }
                return Ok(());
            }
            // Judged when they complete.
            Attempted::Bind | Attempted::Invalidate => return Ok(()),
            // Also one that has been carried out before, and is asked for again.
            Attempted::Read if self.is_refused_read(at, refusal) => {}
            _ => {
                let found = self.find(at, cause, |found| self.is_refusable(at, found, refusal));
                found.map_err(|none| format!("{refusal:?} for no reason: {none}"))?;
            }
        }
        // What comes again and is refused now ends nothing (rule PSN-13).
        let comes_again =
            attempt.operation == Attempted::Read && self.has_answered(at, cause, refusal);
        let end = self.end_mut(at);
        end.inbound.refusing = Some(reason.nak());
        if end.service == Service::Rc && !comes_again || reason == Reason::ReceiveTooSmall {
            end.fallen.get_or_insert("it refused a request");
        }
        Ok(())
    }

    /// Whether a READ of this range is not allowed.
    fn is_refused_read(&self, at: At, refusal: &Refusal) -> bool {
        let (attempt, end) = (refusal.attempt, self.end(at));
        let range = (attempt.address, attempt.length);
        let (key, access) = (attempt.key.0, Access::REMOTE_READ);
        attempt.length > 0
            && self.rights[at.device].place(key, range, access, end.who(), false).is_err()
    }

    /// Whether it is a READ that is refused which has been answered before, to its end: one of those that
    /// arrived, or if it waited its turn, any.
    fn has_answered(&self, at: At, cause: &Cause, refusal: &Refusal) -> bool {
        let (end, attempt) = (self.end(at), refusal.attempt);
        let sender = &self.ends[1 - at.device][end.peer];
        let is_it = |send: &PostedSend, place| {
            let asked = needs(send, place - send.first, sender.mtu);
            asked.is_some_and(|(key, (address, length), access)| {
                (key, address, access) == (attempt.key.0, attempt.address, Access::REMOTE_READ)
                    && attempt.length <= length
            })
        };
        let has_come = |send: &PostedSend| match cause {
            Cause::Requests(arrived) => arrived.iter().any(|packet| {
                let place = sender.place_of(packet.psn);
                place.is_ok_and(|place| (send.first..send.first + send.packets).contains(&place))
            }),
            Cause::Itself | Cause::Responses => true,
        };
        sender.sends.iter().filter(|send| has_come(send)).any(|send| {
            let behind = send.first + send.packets;
            (send.first..behind).any(|place| {
                is_it(send, place) && end.inbound.whole.range(place..behind).next().is_some()
            })
        })
    }

    /// Whether the request may be refused for this reason.
    fn is_refusable(&self, at: At, found: &Found, refusal: &Refusal) -> bool {
        let (end, send) = (self.end(at), &found.send);
        let Some((key, range, access)) = needs(send, found.index, end.mtu) else {
            return match (refusal.attempt.operation, send.body()) {
                (Attempted::RemoteInvalidate, Some(Body::SendInvalidate(key))) => {
                    !self.may_invalidate(at, key.0)
                }
                _ => {
                    let room = end.receives.next();
                    refusal.reason == Reason::ReceiveTooSmall
                        && room.is_some_and(|room| room.length < send.length)
                }
            };
        };
        let place = self.rights[at.device].place(key, range, access, end.who(), false);
        match refusal.reason {
            Reason::Misaligned => {
                range.0 % 8 != 0 || place.is_ok_and(|place| !place.is_multiple_of(8))
            }
            Reason::QpRightMissing => !end.access.contains(access),
            _ => place.is_err(),
        }
    }

    /// A queue pair answers its peer.
    pub fn responded(&mut self, at: At, packet: &Packet<'_>) -> Verdict {
        let end = self.end(at);
        let sender = &self.ends[1 - at.device][end.peer];
        let peer = sender.number;
        ensure!(packet.to == peer.bits(), "an answer goes to {:#x}, not {peer}", packet.to);
        let plain = matches!(packet.operation, Operation::Acknowledge(_));
        let (aeth, old) = match packet.operation {
            Operation::Acknowledge(aeth)
            | Operation::ReadResponseFirst(aeth)
            | Operation::ReadResponseLast(aeth)
            | Operation::ReadResponseOnly(aeth) => (aeth, None),
            Operation::AtomicAcknowledge { aeth, old } => (aeth, Some(old)),
            Operation::ReadResponseMiddle => return Ok(()),
            other => return Err(format!("an answer is {other:?}")),
        };
        self.answered(at, packet.psn, aeth, old, plain)
    }

    /// `plain` if it answers with nothing but the acknowledgement.
    fn answered(&mut self, at: At, psn: Psn, aeth: Aeth, old: Option<u64>, plain: bool) -> Verdict {
        let syndrome = aeth.syndrome().ok_or("a reserved syndrome is sent")?;
        let end = self.end(at);
        let sender = &self.ends[1 - at.device][end.peer];
        let most = end.inbound.most_messages(sender);
        ensure!(aeth.msn as usize <= most, "MSN {} after at most {most} messages", aeth.msn);
        if syndrome == Syndrome::Nak(NakCode::SequenceError) {
            let place = u64::from(psn.value().wrapping_sub(sender.first.value()) & 0xff_ffff);
            end.inbound.check_through(sender, place)?;
            ensure!(place >= end.inbound.next, "a NAK asks for {place}, which is done");
            let again = !self.end_mut(at).inbound.gaps.insert(place);
            self.counts.sequence_naks += 1;
            ensure!(!again, "a second NAK asks for {place} (rule PSN-11)");
            return Ok(());
        }
        // What an acknowledgement says before anything was sent.
        let (send, index) = match sender.message_of(psn) {
            Err(_) if psn == sender.first.plus(u32::MAX) => return Ok(()),
            message => message?,
        };
        let place = send.first + index;
        match syndrome {
            Syndrome::Ack { .. } => {
                // The acknowledgement of a message goes out before the program sees that it is here.
                let empty = send.takes_receive() && send.payload(index, sender.mtu) == 0;
                end.inbound.check_through(sender, place + u64::from(!empty))?;
                let before =
                    |send: &&PostedSend| send.packets > 0 && send.first + send.packets <= place + 1;
                let done = sender.sends.iter().filter(before).count();
                ensure!(aeth.msn as usize >= done, "MSN {} after {done} messages", aeth.msn);
                let data = send.body().is_some_and(|body| !matches!(body, Body::Write { .. }));
                let data = data && !send.takes_receive();
                ensure!(!plain || !data, "an acknowledgement has the number of {:#x}", send.wr_id);
                if let Some(old) = old {
                    let found = end.inbound.found.get(&place);
                    ensure!(found == Some(&old), "an atomic answers {old:#x}, found {found:x?}");
                }
                if matches!(send.body(), Some(Body::Flush { .. })) {
                    self.end_mut(at).inbound.flush(place)?;
                }
            }
            Syndrome::RnrNak(_) => {
                let needed = send.takes_receive();
                ensure!(needed, "not ready for {:#x}, which needs no receive", send.wr_id);
                let posted = end.receives.waiting().len();
                let ready = posted > 0 && !end.inbound.lacked.contains(&place);
                ensure!(!ready, "not ready with {posted} receives posted");
                end.inbound.check_through(sender, place)?;
                *self.end_mut(at).inbound.not_ready.entry(place).or_default() += 1;
                self.counts.not_ready += 1;
            }
            Syndrome::Nak(code) => {
                let why = end.inbound.refusing;
                ensure!(why == Some(code), "NAK {code:?} for {:#x} for no reason", send.wr_id);
                self.end_mut(at).inbound.naks.push((place, code));
            }
        }
        Ok(())
    }

    /// A packet of a READ's answer is sent.
    pub fn answered_read(&mut self, at: At, packet: &Packet<'_>) -> Verdict {
        self.responded(at, packet)?;
        let sender = &self.ends[1 - at.device][self.end(at).peer];
        let place = sender.place_of(packet.psn)?;
        let inbound = &mut self.end_mut(at).inbound;
        if matches!(
            packet.operation,
            Operation::ReadResponseLast(_) | Operation::ReadResponseOnly(_)
        ) {
            inbound.whole.insert(place);
        }
        inbound.answers.entry(place).or_default().push(packet.payload.to_vec());
        Ok(())
    }
}
