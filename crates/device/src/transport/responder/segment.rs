//! Packets of one message that came together are one segment: they are checked and copied at once.

use transom_wire::packet::{Ending, Operation, Packet, Reth, Transport};

use crate::execution::{CopyError, MAX_MESSAGE, Process, Source};
use crate::protection::{Grant, Key, Reason};
use crate::queue::Body;

/// Most packets of a segment; so many path MTUs are copied in one step.
const MAX_PACKETS: usize = 64;

/// The SEND or WRITE under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// The range, if it is a WRITE.
    pub(super) write: Option<Reth>,
    /// With which headers of its service it began; all its packets have them (XRC).
    transport: Transport,
    /// Bytes so far.
    pub(super) length: u64,
}

impl Message {
    /// Bytes of the whole, if it is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.write.map(|reth| u64::from(reth.length))
    }
}

/// The position of a packet in its message.
#[derive(Clone, Copy)]
struct Part {
    begins: bool,
    ends: bool,
    write: bool,
}

impl Part {
    /// `None` for packets of other messages than SEND and WRITE.
    fn of(operation: &Operation) -> Option<Self> {
        let (begins, ends, write) = match operation {
            Operation::SendFirst => (true, false, false),
            Operation::SendMiddle => (false, false, false),
            Operation::SendLast(_) => (false, true, false),
            Operation::SendOnly(_) => (true, true, false),
            Operation::WriteFirst(_) => (true, false, true),
            Operation::WriteMiddle => (false, false, true),
            Operation::WriteLast { .. } => (false, true, true),
            Operation::WriteOnly { .. } => (true, true, true),
            Operation::ReadRequest(_)
            | Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::AtomicWrite(_)
            | Operation::Flush { .. }
            | Operation::ReadResponseFirst(_)
            | Operation::ReadResponseMiddle
            | Operation::ReadResponseLast(_)
            | Operation::ReadResponseOnly(_)
            | Operation::Acknowledge(_)
            | Operation::AtomicAcknowledge { .. }
            | Operation::Reserved(_)
            | Operation::Congestion => return None,
        };
        Some(Self { begins, ends, write })
    }
}

/// Whether a packet begins a message.
pub(super) fn begins(operation: &Operation) -> bool {
    Part::of(operation).is_none_or(|part| part.begins)
}

/// Whether a packet is one of a SEND or WRITE.
pub(super) fn carries_data(operation: &Operation) -> bool {
    Part::of(operation).is_some()
}

impl Message {
    /// The message that the packet belongs to, without the packet: the one under way, or a new one.
    fn of(packet: &Packet<'_>, under_way: Option<Self>) -> Result<Self, Reason> {
        match under_way {
            Some(message) => Ok(message),
            None if begins(&packet.operation) => {
                let write = match packet.operation {
                    Operation::WriteFirst(reth) | Operation::WriteOnly { reth, .. } => Some(reth),
                    _ => None,
                };
                Ok(Self { write, transport: packet.transport, length: 0 })
            }
            None => Err(Reason::PacketOrder),
        }
    }

    /// Adds the packet, if it may follow (rules OP-30, PK-09, PK-10). Says whether the message ends with it.
    ///
    /// It changes one number. A message that is copied for each packet costs more than all the rest.
    #[inline]
    fn follow(&mut self, packet: &Packet<'_>, mtu: u64) -> Result<bool, Reason> {
        let part = Part::of(&packet.operation).ok_or(Reason::PacketOrder)?;
        let in_order = part.begins == (self.length == 0)
            && part.write == self.write.is_some()
            && packet.transport == self.transport;
        if !in_order {
            return Err(Reason::PacketOrder);
        }
        let bytes = packet.payload.len() as u64;
        let fits = match (part.begins, part.ends) {
            (true, true) => bytes <= mtu,
            (false, true) => (1..=mtu).contains(&bytes),
            (_, false) => bytes == mtu,
        };
        let length = self.length + bytes;
        let right = match self.total() {
            Some(total) if part.ends => length == total,
            Some(total) => length < total,
            None => length <= MAX_MESSAGE,
        };
        if !fits || !right {
            return Err(Reason::PacketLength);
        }
        self.length = length;
        Ok(part.ends)
    }
}

/// Packets that follow each other in one message.
pub(super) struct Segment {
    /// The message up to its end.
    pub(super) message: Message,
    /// Where in the message it begins.
    pub(super) offset: u64,
    /// The message ends with it.
    pub(super) ends: bool,
    /// How many packets.
    pub(super) packets: u32,
    /// The operation of the message, as far as these packets tell.
    pub(super) body: Body,
    /// Raise a solicited event.
    pub(super) solicited: bool,
    /// One of them asks for an acknowledgement.
    pub(super) asked: bool,
}

impl Segment {
    /// The segment that the first of these packets begins, which is the next in order. `admits` says
    /// whether another packet is for this queue pair.
    pub(super) fn gather(
        under_way: Option<Message>,
        packets: &[Packet<'_>],
        mtu: u64,
        admits: impl Fn(&Packet<'_>) -> bool,
    ) -> Result<Self, Reason> {
        let first = packets.first().ok_or(Reason::PacketOrder)?;
        let mut message = Message::of(first, under_way)?;
        let offset = message.length;
        let mut ends = message.follow(first, mtu)?;
        let (mut last, mut count, mut asked) = (first, 1, first.ack_request);
        for packet in packets.iter().take(MAX_PACKETS).skip(1) {
            // A message that takes a receive only at its end is judged alone there: if there is none, the part before
            // it has been written (rule RA-12).
            let alone = matches!(packet.operation, Operation::WriteLast { immediate: Some(_) });
            let next = packet.psn == first.psn.plus(count);
            if ends || alone || !next || !admits(packet) {
                break;
            }
            let Ok(ends_here) = message.follow(packet, mtu) else { break };
            (last, count, ends) = (packet, count + 1, ends_here);
            asked |= packet.ack_request;
        }
        Ok(Self {
            body: body(&message, &last.operation),
            solicited: last.solicited,
            packets: count,
            message,
            offset,
            ends,
            asked,
        })
    }

    /// Bytes.
    pub(super) fn length(&self) -> u64 {
        self.message.length - self.offset
    }
}

/// The operation of a message, by its packet.
pub(super) fn body(message: &Message, operation: &Operation) -> Body {
    if let Some(reth) = message.write {
        let immediate = match *operation {
            Operation::WriteLast { immediate } | Operation::WriteOnly { immediate, .. } => {
                immediate
            }
            _ => None,
        };
        let immediate = immediate.map(u32::to_be);
        return Body::Write { address: reth.address, key: Key(reth.key), immediate };
    }
    match *operation {
        Operation::SendLast(ending) | Operation::SendOnly(ending) => match ending {
            Ending::Plain => Body::Send,
            Ending::Immediate(immediate) => Body::SendImmediate(immediate.to_be()),
            Ending::Invalidate(key) => Body::SendInvalidate(Key(key)),
        },
        _ => Body::Send,
    }
}

/// The bytes of a segment: the payloads of its packets, one after the other.
pub(super) struct Payloads<'a, P> {
    pub(super) packets: &'a [Packet<'a>],
    pub(super) process: &'a P,
}

impl<P> Payloads<'_, P> {
    /// Hands out the pieces that make up `length` bytes from `offset` on.
    fn each<'p>(
        &'p self,
        offset: u64,
        length: u64,
        mut take: impl FnMut(&'p [u8]),
    ) -> Result<(), CopyError> {
        let mut skip = usize::try_from(offset).map_err(|_| CopyError::Far)?;
        let mut left = usize::try_from(length).map_err(|_| CopyError::Far)?;
        for packet in self.packets {
            let piece = packet.payload.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(packet.payload.len());
            let piece = &piece[..left.min(piece.len())];
            if !piece.is_empty() {
                take(piece);
                left -= piece.len();
            }
        }
        if left == 0 { Ok(()) } else { Err(CopyError::Far) }
    }
}

impl<P: Process> Source for Payloads<'_, P> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let (length, mut done) = (bytes.len() as u64, 0);
        self.each(offset, length, |piece| {
            bytes[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        if at.is_null() {
            return Ok(());
        }
        let mut pieces: [&[u8]; MAX_PACKETS] = [&[]; MAX_PACKETS];
        let mut count = 0;
        self.each(offset, at.length(), |piece| {
            pieces[count] = piece;
            count += 1;
        })?;
        self.process.store(at, &pieces[..count]).map_err(|_| CopyError::Far)
    }
}
