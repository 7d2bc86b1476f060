//! What a queue pair may send, and what it may do with an answer.

use transom_device::Access;
use transom_device::qp::Service;
use transom_device::queue::{Body, SendFlags};
use transom_wire::packet::{Operation, Packet};
use transom_wire::{NakCode, Syndrome};

use super::posted::{Tries, sge_at};
use super::{At, End, Model, Verdict, ensure};

impl End {
    /// What was sent of all that has not ended.
    fn unended(&mut self) -> impl Iterator<Item = &mut Tries> {
        self.sends.waiting_mut().iter_mut().flat_map(|send| &mut send.sent)
    }

    /// Something it has sent is done: all that has not ended has its retries anew (rule RN-08).
    pub(super) fn gets_on(&mut self) {
        self.unended().for_each(|tries| tries.since_progress = 0);
    }

    /// Whether an answer to `place`, which acknowledges everything before `through`, certainly does so for
    /// the first time: a NAK may have said as much.
    fn is_acknowledged(&self, place: u64, through: u64) -> bool {
        let Ok(number) = self.message_at(place) else { return false };
        let send = &self.sends[number];
        let sent = send.sent[(place - send.first) as usize].ever > 0;
        // Of one that waits for data itself an acknowledgement says nothing.
        let mut unended = self.sends.waiting().iter().take_while(|send| send.first < through);
        let waits = unended.any(|send| send.body().is_some_and(|body| body.uses_read_resources()));
        sent && !waits && through > self.acknowledged
    }
}

impl Model {
    /// A request is sent.
    pub fn requested(&mut self, at: At, packet: &Packet<'_>) -> Verdict {
        let end = self.end(at);
        let (send, index) = end.message_of(packet.psn)?;
        ensure!(send.status.is_none(), "{:#x} is sent though it has ended", send.wr_id);
        let (length, skip) = (send.payload(index, end.mtu), index * end.mtu);
        ensure!(
            packet.payload.len() as u64 == length,
            "packet {} has {} bytes, not {length}",
            send.first + index,
            packet.payload.len()
        );
        for (at, byte) in (skip..).zip(packet.payload) {
            ensure!(*byte == send.byte(at), "byte {at} of {:#x} is sent wrong", send.wr_id);
        }
        if let (Operation::ReadRequest(reth), Some(Body::Read { address, .. })) =
            (packet.operation, send.body())
        {
            // A READ is asked for again from the first byte missing, or from its beginning.
            ensure!(
                reth.address == address.wrapping_add(skip)
                    && u64::from(reth.length) <= send.length - skip,
                "READ {:#x} asks for {reth:x?} at packet {index}",
                send.wr_id
            );
        }
        if !send.flags.contains(SendFlags::INLINE) {
            let mut done = 0;
            while done < length {
                let (sge, address, rest) =
                    sge_at(&send.sges, skip + done).ok_or("past the end of the buffers")?;
                let part = rest.min(length - done);
                self.local_place(at, sge.key, (address, part), Access::empty())?;
                done += part;
            }
        }
        let fenced = send.flags.contains(SendFlags::FENCE) && end.service == Service::Rc;
        let earlier = end.sends.waiting().iter().take_while(|other| other.wr_id != send.wr_id);
        let mut unanswered = earlier.filter(|other| {
            other.body().is_some_and(|body| body.returns_data()) && other.stored < other.length
        });
        ensure!(!fenced || unanswered.next().is_none(), "{:#x} passes its fence", send.wr_id);
        let (place, service) = (send.first + index, end.service);
        let number = end.message_at(place)?;
        let index = index as usize;
        let most = u32::from(end.retries.0) + 1;
        let tries = &mut self.end_mut(at).sends[number].sent[index];
        let again = tries.ever > 0;
        ensure!(!again || service == Service::Rc, "packet {place} is sent twice, unreliably");
        tries.ever += 1;
        tries.since_progress += 1;
        tries.since_answer += 1;
        let unanswered = tries.since_answer;
        ensure!(unanswered <= most, "packet {place} is sent {unanswered} times, more than {most}");
        self.counts.retransmitted += u64::from(again);
        Ok(())
    }

    /// A packet that has been sent counts as not sent, and will be sent again with what comes behind it.
    pub fn taken_back(&mut self, at: At, packet: &Packet<'_>) -> Verdict {
        let end = self.end_mut(at);
        let place = end.place_of(packet.psn)?;
        let number = end.message_at(place)?;
        let send = &mut end.sends[number];
        let tries = &mut send.sent[(place - send.first) as usize];
        tries.since_progress = tries.since_progress.saturating_sub(1);
        tries.since_answer = tries.since_answer.saturating_sub(1);
        Ok(())
    }

    /// Answers arrive together. What counts as a retry is what is sent again while nothing tells of progress:
    /// with any answer that may do so its packets have all their retries, and without one that does so
    /// certainly they have not.
    pub fn heard(&mut self, at: At, answers: &[Packet<'_>]) {
        for (number, answer) in answers.iter().enumerate() {
            let end = self.end_mut(at);
            let Ok(place) = end.place_of(answer.psn) else { continue };
            let syndrome = match answer.operation {
                Operation::Acknowledge(aeth) => aeth.syndrome(),
                _ => None,
            };
            let missing = syndrome == Some(Syndrome::Nak(NakCode::SequenceError));
            if !missing || end.gap != Some(place) {
                end.unended().for_each(|tries| tries.since_answer = 0);
            }
            end.gap = if missing { Some(place) } else { end.gap };
            let through = match syndrome {
                Some(Syndrome::Nak(_) | Syndrome::RnrNak(_)) => place,
                _ => place + 1,
            };
            // Behind another answer, something may have failed before this one is taken.
            let counts = number == 0 && syndrome.is_some() && end.is_acknowledged(place, through);
            end.acknowledged = end.acknowledged.max(through);
            if counts {
                end.gets_on();
            }
        }
    }

    /// Bytes are stored for an answer: the next ones of the oldest READ or atomic that waits.
    pub fn stored_for_response(&mut self, at: At, address: u64, bytes: &[u8]) -> Verdict {
        let end = self.end(at);
        let waits = |send: &super::posted::PostedSend| {
            send.status.is_none()
                && send.body().is_some_and(|body| body.returns_data())
                && send.stored < send.length
        };
        let first = end.sends.waiting().iter().position(waits);
        let number =
            end.sends.ended() + first.ok_or("an answer is stored that nobody waits for")?;
        let send = &end.sends[number];
        let left = send.length - send.stored;
        ensure!(bytes.len() as u64 <= left, "{:#x} gets more than {left} bytes", send.wr_id);
        let (sge, place, rest) =
            sge_at(&send.sges, send.stored).ok_or("past the end of the buffers")?;
        ensure!(bytes.len() as u64 <= rest, "past the end of a buffer");
        let range = (place, bytes.len() as u64);
        let right = self.local_place(at, sge.key, range, Access::LOCAL_WRITE)?;
        ensure!(address == right, "an answer is stored at {address:#x}, not at {right:#x}");
        let peer = &self.ends[1 - at.device][end.peer];
        match send.body() {
            Some(Body::Read { .. }) => {
                let mut done = 0;
                while done < bytes.len() as u64 {
                    let offset = send.stored + done;
                    let packet = send.first + offset / end.mtu;
                    let skip = (offset % end.mtu) as usize;
                    let part = (end.mtu - skip as u64).min(bytes.len() as u64 - done);
                    let data = &bytes[done as usize..][..part as usize];
                    let said = peer.inbound.answers.get(&packet).into_iter().flatten();
                    let mut same =
                        said.filter(|said| said.get(skip..skip + part as usize) == Some(data));
                    ensure!(
                        same.next().is_some(),
                        "READ {:#x} gets bytes at {offset} that nobody has sent",
                        send.wr_id
                    );
                    done += part;
                }
            }
            _ => {
                let word =
                    peer.inbound.found.get(&send.first).ok_or("an atomic not carried out")?;
                let word = &word.to_ne_bytes()[send.stored as usize..][..bytes.len()];
                ensure!(word == bytes, "atomic {:#x} gets {bytes:x?}, not {word:x?}", send.wr_id);
            }
        }
        let end = self.end_mut(at);
        end.sends[number].stored += bytes.len() as u64;
        end.gets_on();
        self.counts.bytes += bytes.len() as u64;
        Ok(())
    }
}
