//! Makes packets of requests in a queue pair's memory, joins them into bursts, and sends them.

use std::sync::atomic::Ordering::*;

use transom_device::execution::{CopyError, Payload, Request, Sent};
use transom_device::protection::Operation;
use transom_device::qp::Service;
use transom_device::transport::burst::{self, BurstPacket};
use transom_net::{BurstBuffer, Path, Wire};
use transom_system::clock;
use transom_wire::Psn;
use transom_wire::packet::Packet;

use super::{At, Outgoing};
use crate::objects::Link;

/// Messages of a queue pair that leave in one burst: with one system call, if they have the same length.
#[derive(Default)]
pub(super) struct Joined {
    burst: Option<BurstBuffer>,
    /// The number of the first message.
    first: Psn,
    /// There was no room for all of them.
    is_refused: bool,
}

impl At<'_> {
    /// Sends a segment as packets, or makes it wait for others that may leave with it.
    pub(super) fn join_or_send(
        &self,
        path: &Path,
        outgoing: Outgoing<'_>,
        joined: &mut Joined,
    ) -> Sent {
        let Outgoing { request, payload, .. } = outgoing;
        let Some(wire) = self.qp.device.port().wire() else { return Sent::Unreachable };
        let may_be_joined = request.may_be_joined();
        let has_room = |burst: &BurstBuffer| burst.has_room(request.length, path.mtu);
        if !(may_be_joined && joined.burst.as_ref().is_none_or(has_room))
            && self.send_joined(joined).is_err()
        {
            return Sent::Busy;
        }
        if !may_be_joined {
            return self.send_packets(path, outgoing);
        }
        let burst = joined.burst.get_or_insert_with(|| {
            joined.first = request.message;
            wire.take_buffer()
        });
        let before = burst.packets();
        let done = self.load(burst, path, request, payload);
        if done.is_err() {
            burst.truncate(before);
        }
        loaded(done)
    }

    /// Sends a segment as packets.
    pub(super) fn send_packets(&self, path: &Path, outgoing: Outgoing<'_>) -> Sent {
        let Outgoing { request, payload, .. } = outgoing;
        let Some(wire) = self.qp.device.port().wire() else { return Sent::Unreachable };
        if self.is_too_early(wire, request.length) {
            wire.stall(self.qp.number.index());
            return Sent::Busy;
        }
        let mut burst = wire.take_buffer();
        let sent = match loaded(self.load(&mut burst, path, request, payload)) {
            Sent::Queued if !self.send_burst(wire, path, &mut burst, request.is_last()) => {
                Sent::Busy
            }
            sent => sent,
        };
        wire.give_back(burst);
        sent
    }

    /// Sends the messages that have been joined.
    ///
    /// # Errors
    ///
    /// The number of the first message, if there was no room for all of them, now or on an earlier attempt. Sending
    /// starts again from there. The other end recognizes repeated packets by their numbers.
    pub(super) fn send_joined(&self, joined: &mut Joined) -> Result<(), Psn> {
        if let (Link::Wire(path), Some(wire)) = (self.link, self.qp.device.port().wire())
            && let Some(mut burst) = joined.burst.take()
        {
            joined.is_refused = !self.send_burst(wire, path, &mut burst, true);
            wire.give_back(burst);
        }
        if joined.is_refused { Err(joined.first) } else { Ok(()) }
    }

    /// Sends a burst. False if there was no room for all of it.
    fn send_burst(
        &self,
        wire: &Wire,
        path: &Path,
        burst: &mut BurstBuffer,
        ends_message: bool,
    ) -> bool {
        // Send the acknowledgement with a message's last packet, so that a peer that polls for it finds the whole
        // message. The other end sees it before the packet it comes with.
        let delayed = if ends_message { self.take_delayed_ack(wire) } else { None };
        let alone = delayed.filter(|packet| !burst.add_behind(packet));
        let is_acknowledged = alone.is_some_and(|packet| wire.send_packet(&packet, path));
        let departed = alone.is_some() == is_acknowledged && wire.send(burst, path);
        if !departed {
            if !is_acknowledged {
                self.give_back_delayed_ack(wire, delayed);
            }
            // It is sent again from its beginning. The other end recognizes repeated packets by their numbers.
            wire.stall(self.qp.number.index());
        }
        departed
    }

    /// Whether data that is never repeated has to wait for its turn.
    fn is_too_early(&self, wire: &Wire, length: u64) -> bool {
        let unreliable = matches!(self.qp.config.service, Service::Uc | Service::Ud);
        unreliable && !wire.admits(length, clock::steady())
    }

    /// Takes the delayed acknowledgement, to go with the packets sent now.
    fn take_delayed_ack(&self, wire: &Wire) -> Option<Packet<'static>> {
        if !self.qp.receive.delays_ack.load(Acquire) {
            return None;
        }
        // Another thread may be sending it right now. Our packets have to come after it.
        let mut half = self.qp.receive.half.lock();
        wire.delayed_ack.take_of(self.qp.number.index());
        self.qp.receive.delays_ack.store(false, Release);
        half.delayed_ack.take()
    }

    /// It did not go.
    fn give_back_delayed_ack(&self, wire: &Wire, delayed: Option<Packet<'static>>) {
        if delayed.is_some() {
            let mut half = self.qp.receive.half.lock();
            half.delayed_ack = half.delayed_ack.or(delayed);
            self.qp.receive.delays_ack.store(true, Release);
            wire.stall(self.qp.number.index());
        }
    }

    /// Makes the packets of a segment, behind those that are there. On an error some of them may be there too.
    fn load(
        &self,
        buffer: &mut BurstBuffer,
        path: &Path,
        request: &Request,
        payload: Payload<'_>,
    ) -> Result<(), CopyError> {
        let begin = buffer.payload();
        let mut parts = burst::Burst::new(request, path.mtu);
        while let Some(BurstPacket { packet, payload }) = parts.next() {
            if !buffer.add(&packet, payload.len() as u64)
                || !buffer.repeat(parts.repeats(), packet.psn.plus(1))
            {
                return Err(CopyError::Far);
            }
        }
        if !request.body.carries_data() {
            return Ok(());
        }
        match payload {
            Payload::Inline(bytes) => {
                let range = request.offset as usize..(request.offset + request.length) as usize;
                buffer.put(begin, bytes.get(range).ok_or(CopyError::Far)?);
                Ok(())
            }
            Payload::Buffers(sges) => {
                let local = self.local(sges);
                let copier = &self.qp.device.process().copier();
                let (offset, length) = (request.offset, request.length);
                local.each(Operation::LocalRead, offset, length, |at, piece| {
                    match buffer.copy_in(copier, begin + at, piece) {
                        true => Ok(()),
                        false => Err(CopyError::Near(local.gone(Operation::LocalRead))),
                    }
                })
            }
        }
    }
}

/// The outcome for a segment whose packets were made, or could not be.
fn loaded(done: Result<(), CopyError>) -> Sent {
    match done {
        Ok(()) => Sent::Queued,
        Err(CopyError::Near(refusal)) => Sent::Near(refusal),
        Err(CopyError::Far) => Sent::Unreachable,
    }
}

#[cfg(test)]
mod tests;
