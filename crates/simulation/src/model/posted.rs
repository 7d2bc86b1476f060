//! Work requests as they were posted, and which packet belongs to which.

use std::ops::{Deref, DerefMut};

use transom_device::queue::{Body, SendFlags, SendOp, Sge, Status};
use transom_wire::Psn;

use super::End;

/// A posted send.
#[derive(Clone, Debug)]
pub struct PostedSend {
    /// Its number, unique in the run: it also says which bytes it sends.
    pub wr_id: u64,
    /// What it does.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// Local buffers.
    pub sges: Vec<Sge>,
    /// Bytes of its message.
    pub length: u64,
    /// Its first packet, counted from the queue pair's first.
    pub first: u64,
    /// How many packets it takes.
    pub packets: u64,
    /// Bytes of its answer that have been stored.
    pub stored: u64,
    /// How often each of its packets was sent.
    pub sent: Vec<Tries>,
    /// How it ended; success may not have been reported.
    pub status: Option<Status>,
}

impl PostedSend {
    /// What the message does, if it is one.
    pub fn body(&self) -> Option<Body> {
        match self.op {
            SendOp::Message(body) => Some(body),
            _ => None,
        }
    }

    /// The byte of the message at an offset, as it was in the local buffers when it was posted.
    pub fn byte(&self, offset: u64) -> u8 {
        pattern(self.wr_id, offset)
    }

    /// Whether the message ends with a completion at its receiver.
    pub fn takes_receive(&self) -> bool {
        self.body().is_some_and(|body| {
            matches!(
                body,
                Body::Send
                    | Body::SendImmediate(_)
                    | Body::SendInvalidate(_)
                    | Body::Write { immediate: Some(_), .. }
            )
        })
    }

    /// Bytes that the packet at `index` of the message brings.
    pub fn payload(&self, index: u64, mtu: u64) -> u64 {
        match self.body() {
            Some(body) if body.carries_data() => (self.length - index * mtu).min(mtu),
            _ => 0,
        }
    }
}

/// The work requests that were posted to a queue, all of them. They end in order.
#[derive(Debug)]
pub struct Posted<T> {
    all: Vec<T>,
    ended: usize,
}

impl<T> Default for Posted<T> {
    fn default() -> Self {
        Self { all: Vec::new(), ended: 0 }
    }
}

impl<T> Posted<T> {
    /// One more is posted.
    pub fn push(&mut self, request: T) {
        self.all.push(request);
    }

    /// The last one was not taken.
    pub fn take_back(&mut self) {
        self.all.pop();
    }

    /// How many have ended.
    pub fn ended(&self) -> usize {
        self.ended
    }

    /// The next one to end.
    pub fn next(&self) -> Option<&T> {
        self.all.get(self.ended)
    }

    /// The next one ends.
    pub fn end_next(&mut self) -> Option<&mut T> {
        let next = self.all.get_mut(self.ended)?;
        self.ended += 1;
        Some(next)
    }

    /// Those that have not ended.
    pub fn waiting(&self) -> &[T] {
        &self.all[self.ended..]
    }

    /// The same, to change.
    pub fn waiting_mut(&mut self) -> &mut [T] {
        &mut self.all[self.ended..]
    }
}

impl<T> Deref for Posted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all
    }
}

impl<T> DerefMut for Posted<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all
    }
}

/// How often a packet was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    /// Since it was posted.
    pub ever: u32,
    /// Since its sender has certainly got on.
    pub since_progress: u32,
    /// Since its sender may have got on.
    pub since_answer: u32,
}

/// A posted receive.
#[derive(Clone, Debug)]
pub struct PostedReceive {
    /// Its number.
    pub wr_id: u64,
    /// Its scatter/gather entries.
    pub sges: Vec<Sge>,
    /// Their bytes.
    pub length: u64,
}

/// Byte `offset` of what the work request sends.
pub fn pattern(wr_id: u64, offset: u64) -> u8 {
    let word = (wr_id ^ (offset / 8) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((word ^ word >> 29) >> (offset % 8 * 8)) as u8
}

/// The entry and address of byte `offset` of a list, and how many bytes of the entry follow.
pub fn sge_at(sges: &[Sge], mut offset: u64) -> Option<(Sge, u64, u64)> {
    for sge in sges {
        let length = u64::from(sge.length);
        if offset < length {
            return Some((*sge, sge.address + offset, length - offset));
        }
        offset -= length;
    }
    None
}

impl End {
    /// The number that the next message begins with, counted from the first packet.
    pub fn next_packet(&self) -> u64 {
        self.sends.last().map_or(0, |send| send.first + send.packets)
    }

    /// A packet's place in the order of sending.
    pub fn place_of(&self, psn: Psn) -> Result<u64, String> {
        let place = u64::from(psn.value().wrapping_sub(self.first.value()) & 0xff_ffff);
        let posted = place < self.next_packet();
        posted.then_some(place).ok_or_else(|| format!("PSN {} is nobody's", psn.value()))
    }

    /// The message that a packet of this place belongs to, as its place among the posted.
    pub fn message_at(&self, place: u64) -> Result<usize, String> {
        let after = self.sends.partition_point(|send| send.first <= place);
        let found = self.sends[..after].iter().rposition(|send| send.packets > 0);
        found.ok_or_else(|| format!("packet {place} is nobody's"))
    }

    /// The message of a number, and the index of the packet in it.
    pub fn message_of(&self, psn: Psn) -> Result<(&PostedSend, u64), String> {
        let place = self.place_of(psn)?;
        let send = &self.sends[self.message_at(place)?];
        Ok((send, place - send.first))
    }
}
