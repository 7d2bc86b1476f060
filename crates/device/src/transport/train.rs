//! Trains: a segment of a request as packets with consecutive numbers (rules H.2, PSN-03).

use core::ops::Range;

use transom_wire::packet::{Ending, Operation, Packet, Reth, Transport};

use crate::execution::Request;
use crate::protection::Key;
use crate::qp::Service;
use crate::queue::{Body, Remote};

/// Most packets of a train: what one system call sends in segments.
pub const MAX_TRAIN: u64 = 64;
/// The partition that everything belongs to, as a full member (rule PK-14).
pub const DEFAULT_PKEY: u16 = 0xffff;

/// How many packets carry this many bytes: at least one.
pub const fn packets(length: u64, mtu: u64) -> u32 {
    let count = length.div_ceil(mtu);
    if count == 0 { 1 } else { count as u32 }
}

/// A packet of a train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainPacket {
    /// The packet, without its payload.
    pub packet: Packet<'static>,
    /// Which bytes of the segment are its payload.
    pub payload: Range<usize>,
}

/// The packets of a segment, in order.
#[derive(Clone, Debug)]
pub struct Train<'a> {
    request: &'a Request,
    mtu: u64,
    /// How many have been made.
    made: u32,
    count: u32,
}

impl<'a> Train<'a> {
    /// The train of a segment, which begins at a multiple of the path MTU.
    pub fn new(request: &'a Request, mtu: u64) -> Self {
        let carried = if request.body.carries_data() { request.length } else { 0 };
        Self { request, mtu, made: 0, count: packets(carried, mtu) }
    }

    fn transport(&self) -> Transport {
        match (self.request.service, self.request.remote) {
            (Service::Ud, Remote::Datagram(datagram)) => {
                Transport::Ud { qkey: datagram.qkey, source: self.request.from.bits() }
            }
            (_, Remote::Srq(srq)) => Transport::Xrc { srq },
            (Service::Uc, _) => Transport::Uc,
            _ => Transport::Rc,
        }
    }

    /// What the packet does that carries these bytes of the message.
    fn operation(&self, begins: bool, ends: bool) -> Operation {
        let Request { offset, length, total, .. } = *self.request;
        match self.request.body {
            Body::Send => send(begins, ends, Ending::Plain),
            Body::SendImmediate(immediate) => {
                send(begins, ends, Ending::Immediate(u32::from_be(immediate)))
            }
            Body::SendInvalidate(key) => send(begins, ends, Ending::Invalidate(key.0)),
            Body::Write { address, key, immediate } => {
                let immediate = immediate.map(u32::from_be);
                let reth = reth(address, key, total);
                match (begins, ends) {
                    (true, true) => Operation::WriteOnly { reth, immediate },
                    (true, false) => Operation::WriteFirst(reth),
                    (false, true) => Operation::WriteLast { immediate },
                    (false, false) => Operation::WriteMiddle,
                }
            }
            Body::Read { address, key } => {
                Operation::ReadRequest(reth(address.wrapping_add(offset), key, length))
            }
            Body::CompareSwap { address, key, swap, compare } => {
                Operation::CompareSwap { address, key: key.0, swap, compare }
            }
            Body::FetchAdd { address, key, add } => {
                Operation::FetchAdd { address, key: key.0, add }
            }
            Body::AtomicWrite { address, key } => Operation::AtomicWrite(reth(address, key, total)),
            Body::Flush { address, key, length, placement, whole } => Operation::Flush {
                placement: placement.bits(),
                selectivity: u8::from(whole),
                reth: reth(address, key, u64::from(length)),
            },
        }
    }
}

fn send(begins: bool, ends: bool, ending: Ending) -> Operation {
    match (begins, ends) {
        (true, true) => Operation::SendOnly(ending),
        (true, false) => Operation::SendFirst,
        (false, true) => Operation::SendLast(ending),
        (false, false) => Operation::SendMiddle,
    }
}

fn reth(address: u64, key: Key, length: u64) -> Reth {
    // No message is longer than 2^31.
    Reth { address, key: key.0, length: length as u32 }
}

impl Iterator for Train<'_> {
    type Item = TrainPacket;

    fn next(&mut self) -> Option<TrainPacket> {
        if self.made == self.count {
            return None;
        }
        let request = self.request;
        let last = self.made + 1 == self.count;
        let start = u64::from(self.made) * self.mtu;
        let end = if last { request.length } else { start + self.mtu };
        let payload = if request.body.carries_data() { start..end } else { 0..0 };
        let ends = last && request.is_last();
        let receives = match request.body {
            Body::Send | Body::SendImmediate(_) | Body::SendInvalidate(_) => true,
            Body::Write { immediate, .. } => immediate.is_some(),
            _ => false,
        };
        let packet = Packet {
            transport: self.transport(),
            operation: self.operation(request.offset == 0 && self.made == 0, ends),
            solicited: request.solicited && ends && receives,
            migrated: true,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            to: request.to.bits(),
            ack_request: last && request.service.is_reliable(),
            psn: request.message.plus(self.made),
            payload: &[],
        };
        self.made += 1;
        Some(TrainPacket { packet, payload: payload.start as usize..payload.end as usize })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.count - self.made) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Train<'_> {}
