//! Bursts: a segment of a request as packets with consecutive numbers (rules H.2, PSN-03).

use core::ops::Range;

use transom_wire::packet::{Ending, Operation, Packet, Reth, Transport};

use crate::execution::{Request, packets};
use crate::protection::Key;
use crate::qp::Service;
use crate::queue::{Body, Remote};

/// A packet of a burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BurstPacket {
    /// The packet, without its payload.
    pub packet: Packet<'static>,
    /// Which bytes of the segment are its payload.
    pub payload: Range<usize>,
}

/// Of so many packets of which `made` are made, how many of the next ones are like the last one. The first of a
/// message, if it `begins` here, is not. Nor is the last of all, which may be shorter and ask for an acknowledgement.
pub(super) fn middle_left(begins: bool, made: u32, count: u32) -> u32 {
    let is_last_made_in_the_middle = made > u32::from(begins);
    if is_last_made_in_the_middle { (count - made).saturating_sub(1) } else { 0 }
}

/// The packets of a segment, in order.
#[derive(Clone, Debug)]
pub struct Burst<'a> {
    request: &'a Request,
    mtu: u64,
    /// How many have been made.
    made: u32,
    count: u32,
}

impl<'a> Burst<'a> {
    /// The burst of a segment, which begins at a multiple of the path MTU.
    pub fn new(request: &'a Request, mtu: u64) -> Self {
        let carried = if request.body.carries_data() { request.length } else { 0 };
        Self { request, mtu, made: 0, count: packets(carried, mtu) }
    }

    /// How many of the next packets differ from the last one in their number alone: they count as made.
    pub fn repeats(&mut self) -> u32 {
        let repeats = middle_left(self.request.offset == 0, self.made, self.count);
        self.made += repeats;
        repeats
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

    /// The operation of the packet that carries these bytes of the message.
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

impl Iterator for Burst<'_> {
    type Item = BurstPacket;

    fn next(&mut self) -> Option<BurstPacket> {
        if self.made == self.count {
            return None;
        }
        let request = self.request;
        let last = self.made + 1 == self.count;
        let start = u64::from(self.made) * self.mtu;
        let end = if last { request.length } else { start + self.mtu };
        let payload = if request.body.carries_data() { start..end } else { 0..0 };
        let ends = last && request.is_last();
        let operation = self.operation(request.offset == 0 && self.made == 0, ends);
        let (to, psn) = (request.to.bits(), request.message.plus(self.made));
        let packet = Packet {
            solicited: request.solicited && ends && request.body.takes_receive(),
            ack_request: last && request.service.is_reliable(),
            ..Packet::new(self.transport(), operation, to, psn)
        };
        self.made += 1;
        Some(BurstPacket { packet, payload: payload.start as usize..payload.end as usize })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.count - self.made) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Burst<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::QpNumber;
    use crate::queue::{Address, Datagram, Placement};
    use transom_wire::Psn;

    const MTU: u64 = 256;

    fn request(body: Body, offset: u64, length: u64, total: u64) -> Request {
        Request {
            to: QpNumber::from_bits(0x22),
            from: QpNumber::from_bits(0x11),
            service: Service::Rc,
            remote: Remote::Connected,
            message: Psn::new(0xff_ffff),
            attempt: 0,
            body,
            offset,
            length,
            total,
            solicited: true,
        }
    }

    fn burst(request: &Request) -> Vec<BurstPacket> {
        let burst = Burst::new(request, MTU);
        let count = burst.len();
        let all: Vec<_> = burst.collect();
        assert_eq!(all.len(), count);
        all
    }

    fn operations(request: &Request) -> Vec<Operation> {
        burst(request).iter().map(|one| one.packet.operation).collect()
    }

    /// Rules: PSN-01, PSN-03, PK-09, PK-17, PK-18
    #[test]
    fn a_message_begins_and_ends_once() {
        let body = Body::SendImmediate(0x0102_0304_u32.to_be());
        let end = Ending::Immediate(0x0102_0304);
        let (first, middle, last) =
            (Operation::SendFirst, Operation::SendMiddle, Operation::SendLast(end));
        assert_eq!(operations(&request(body, 0, 513, 513)), [first, middle, last]);
        assert_eq!(operations(&request(body, 0, 512, 513)), [first, middle]);
        assert_eq!(operations(&request(body, 512, 1, 513)), [last]);
        assert_eq!(operations(&request(body, 0, 256, 256)), [Operation::SendOnly(end)]);
        assert_eq!(operations(&request(body, 0, 0, 0)), [Operation::SendOnly(end)]);
        let all = burst(&request(body, 0, 513, 513));
        let ranges: Vec<_> = all.iter().map(|one| one.payload.clone()).collect();
        assert_eq!(ranges, [0..256, 256..512, 512..513]);
        let numbers: Vec<_> = all.iter().map(|one| one.packet.psn.value()).collect();
        assert_eq!(numbers, [0xff_ffff, 0, 1]);
        let flags: Vec<_> =
            all.iter().map(|one| (one.packet.solicited, one.packet.ack_request)).collect();
        assert_eq!(flags, [(false, false), (false, false), (true, true)]);
        let part = burst(&request(body, 0, 512, 513)).remove(1).packet;
        assert_eq!((part.solicited, part.ack_request), (false, true));
    }

    /// Rules: PSN-03
    #[test]
    fn what_is_repeated_differs_in_its_number_alone() {
        for (offset, length) in
            [(0, 1), (0, 257), (0, 513), (0, 900), (256, 200), (256, 900), (512, 512)]
        {
            let mut middle = 0;
            for total in [offset + length, 1500] {
                let request = request(Body::Send, offset, length, total);
                let all = burst(&request);
                let mut parts = Burst::new(&request, MTU);
                let mut made = Vec::new();
                while let Some(part) = parts.next() {
                    let repeats = parts.repeats();
                    made.push(part.clone());
                    for number in 1..=repeats {
                        let psn = part.packet.psn.plus(number);
                        let before = number as usize * MTU as usize;
                        let payload = part.payload.start + before..part.payload.end + before;
                        made.push(BurstPacket { packet: Packet { psn, ..part.packet }, payload });
                    }
                    middle += repeats;
                }
                assert_eq!(made, all, "{offset} {length} {total}");
                assert_eq!(parts.repeats(), 0);
            }
            let packets = (length as u32).div_ceil(MTU as u32);
            let first = u32::from(offset == 0);
            assert_eq!(middle, 2 * packets.saturating_sub(2 + first), "{offset} {length}");
        }
    }

    /// Rules: PK-10, PK-17
    #[test]
    fn a_write_says_its_range_once() {
        let write = |immediate| Body::Write { address: 0x1000, key: Key(7), immediate };
        let reth = Reth { address: 0x1000, key: 7, length: 600 };
        let whole = [
            Operation::WriteFirst(reth),
            Operation::WriteMiddle,
            Operation::WriteLast { immediate: Some(9) },
        ];
        let immediate = Some(9_u32.to_be());
        assert_eq!(operations(&request(write(immediate), 0, 600, 600)), whole);
        assert_eq!(operations(&request(write(immediate), 256, 344, 600)), whole[1..]);
        let small = Reth { length: 6, ..reth };
        let only = Operation::WriteOnly { reth: small, immediate: None };
        assert_eq!(operations(&request(write(None), 0, 6, 6)), [only]);
        let solicited = |immediate| burst(&request(write(immediate), 0, 6, 6))[0].packet.solicited;
        assert!(solicited(immediate) && !solicited(None));
    }

    /// Rules: PSN-05, PSN-25, PK-03
    #[test]
    fn what_brings_data_back_is_one_packet() {
        let (address, key) = (0x1000, Key(7));
        let reth = |address, length| Reth { address, key: 7, length };
        let placement = Placement::GLOBAL | Placement::PERSISTENT;
        let flush = |whole| Body::Flush { address, key, length: 99, placement, whole };
        let flushed =
            |selectivity| Operation::Flush { placement: 3, selectivity, reth: reth(0x1000, 99) };
        for (body, offset, length, operation) in [
            (Body::Read { address, key }, 0, 5000, Operation::ReadRequest(reth(0x1000, 5000))),
            (Body::Read { address, key }, 512, 700, Operation::ReadRequest(reth(0x1200, 700))),
            (
                Body::CompareSwap { address, key, swap: 1, compare: 2 },
                0,
                8,
                Operation::CompareSwap { address, key: 7, swap: 1, compare: 2 },
            ),
            (
                Body::FetchAdd { address, key, add: 3 },
                0,
                8,
                Operation::FetchAdd { address, key: 7, add: 3 },
            ),
            (flush(false), 0, 0, flushed(0)),
            (flush(true), 0, 0, flushed(1)),
        ] {
            let all = burst(&request(body, offset, length, 5000.max(offset + length)));
            assert_eq!((all.len(), all[0].packet.operation), (1, operation));
            assert_eq!((all[0].payload.clone(), all[0].packet.ack_request), (0..0, true));
        }
        let write = burst(&request(Body::AtomicWrite { address, key }, 0, 8, 8));
        assert_eq!(write[0].packet.operation, Operation::AtomicWrite(reth(0x1000, 8)));
        assert_eq!(write[0].payload, 0..8);
    }

    /// Rules: PK-06, OP-04
    #[test]
    fn each_service_has_its_header() {
        let transport = |service, remote| {
            let request = Request { service, remote, ..request(Body::Send, 0, 8, 8) };
            let packet = burst(&request)[0].packet;
            (packet.transport, packet.ack_request)
        };
        let address = Address {
            gid: [0; 16],
            source: [0; 16],
            traffic_class: 0,
            hop_limit: 1,
            flow_label: 0,
        };
        let datagram = Datagram { pd: 1, address, qp: 0x22, qkey: 5 };
        let connected = Remote::Connected;
        assert_eq!(transport(Service::Rc, connected), (Transport::Rc, true));
        assert_eq!(transport(Service::Uc, connected), (Transport::Uc, false));
        let ud = Transport::Ud { qkey: 5, source: 0x11 };
        assert_eq!(transport(Service::Ud, Remote::Datagram(datagram)), (ud, false));
        let xrc = Transport::Xrc { srq: 0x33 };
        assert_eq!(transport(Service::XrcInitiator, Remote::Srq(0x33)), (xrc, true));
    }
}
