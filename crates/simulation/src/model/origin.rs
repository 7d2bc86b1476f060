//! What a queue pair may send, and what it may do with an answer.

use transom_device::Access;
use transom_device::qp::Service;
use transom_device::queue::{Body, SendFlags};
use transom_wire::packet::{Operation, Packet};

use super::posted::sge_at;
use super::{At, Model, Verdict, ensure};

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
        let earlier = end.sends[end.ended..].iter().take_while(|other| other.wr_id != send.wr_id);
        let mut unanswered = earlier.filter(|other| {
            other.body().is_some_and(|body| body.returns_data()) && other.stored < other.length
        });
        ensure!(!fenced || unanswered.next().is_none(), "{:#x} passes its fence", send.wr_id);
        let (place, service) = (send.first + index, end.service);
        let number = end.message_at(place)?;
        let index = index as usize;
        let again = self.end(at).sends[number].sent[index] > 0;
        ensure!(!again || service == Service::Rc, "packet {place} is sent twice, unreliably");
        self.end_mut(at).sends[number].sent[index] += 1;
        self.counts.retransmitted += u64::from(again);
        Ok(())
    }

    /// Bytes are stored for an answer: the next ones of the oldest READ or atomic that waits.
    pub fn stored_for_response(&mut self, at: At, address: u64, bytes: &[u8]) -> Verdict {
        let end = self.end(at);
        let waits = |send: &super::posted::PostedSend| {
            send.status.is_none()
                && send.body().is_some_and(|body| body.returns_data())
                && send.stored < send.length
        };
        let first = end.sends[end.ended..].iter().position(waits);
        let number = end.ended + first.ok_or("an answer is stored that nobody waits for")?;
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
        self.end_mut(at).sends[number].stored += bytes.len() as u64;
        self.counts.bytes += bytes.len() as u64;
        Ok(())
    }
}
