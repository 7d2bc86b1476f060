//! Requests and replies as the words of a ring's record header.

use transom_device::execution::{Body, Reply, Request};
use transom_device::protection::Key;
use transom_device::qp::{QpNumber, Service};
use transom_wire::{Psn, Syndrome};

/// Words of a header: the first is the ring's.
pub(crate) const HEADER_WORDS: usize = 12;

type Header = [u64; HEADER_WORDS];

const IMMEDIATE: u64 = 1 << 8;
const INVALIDATE: u64 = 1 << 9;
const SOLICITED: u64 = 1 << 10;
const UC: u64 = 1 << 11;

/// A reply and what it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The requester.
    pub(crate) to: QpNumber,
    /// The number of the message it answers.
    pub(crate) message: Psn,
    /// The attempt it answers.
    pub(crate) attempt: u16,
    /// Bytes that the requester kept free for it.
    pub(crate) reserved: u64,
    /// The answer.
    pub(crate) reply: Reply,
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Writes a request; `reserved` is kept free for its reply.
pub(crate) fn encode_request(request: &Request, reserved: u64) -> Header {
    let (kind, address, key, extra) = match request.body {
        Body::Send { immediate, invalidate } => {
            let flags = if immediate.is_some() { IMMEDIATE } else { 0 }
                | if invalidate.is_some() { INVALIDATE } else { 0 };
            let key = invalidate.map_or(0, |key| key.0);
            (1 | flags, 0, key, [u64::from(immediate.unwrap_or(0)), 0])
        }
        Body::Write { address, key, immediate } => {
            let flags = if immediate.is_some() { IMMEDIATE } else { 0 };
            (2 | flags, address, key.0, [u64::from(immediate.unwrap_or(0)), 0])
        }
        Body::Read { address, key } => (3, address, key.0, [0, 0]),
        Body::CompareSwap { address, key, swap, compare } => (4, address, key.0, [swap, compare]),
        Body::FetchAdd { address, key, add } => (5, address, key.0, [add, 0]),
    };
    let flags = if request.solicited { SOLICITED } else { 0 }
        | if request.service == Service::Uc { UC } else { 0 };
    [
        0,
        kind | flags | u64::from(request.attempt) << 16 | reserved << 32,
        pair(request.to.bits(), request.from.bits()),
        pair(request.message.value(), key),
        request.offset,
        request.length,
        request.total,
        address,
        extra[0],
        extra[1],
        0,
        0,
    ]
}

/// Reads a request and what is kept free for its reply; `None` if it is none.
pub(crate) fn decode_request(header: &Header) -> Option<(Request, u64)> {
    let control = header[1];
    let (to, from) = halves(header[2]);
    let (message, key) = halves(header[3]);
    let (address, key) = (header[7], Key(key));
    let immediate = (control & IMMEDIATE != 0).then_some(header[8] as u32);
    let body = match control & 0xff {
        1 => Body::Send { immediate, invalidate: (control & INVALIDATE != 0).then_some(key) },
        2 => Body::Write { address, key, immediate },
        3 => Body::Read { address, key },
        4 => Body::CompareSwap { address, key, swap: header[8], compare: header[9] },
        5 => Body::FetchAdd { address, key, add: header[8] },
        _ => return None,
    };
    let request = Request {
        to: QpNumber::from_bits(to),
        from: QpNumber::from_bits(from),
        service: if control & UC != 0 { Service::Uc } else { Service::Rc },
        message: Psn::new(message),
        attempt: (control >> 16) as u16,
        body,
        offset: header[4],
        length: header[5],
        total: header[6],
        solicited: control & SOLICITED != 0,
    };
    Some((request, control >> 32))
}

/// Writes an answer. Acknowledgements use the codes of the AETH (rules H.3).
pub(crate) fn encode_answer(answer: &Answer) -> Header {
    let (kind, syndrome, value) = match answer.reply {
        Reply::Silence => (1, 0, 0),
        Reply::Ack => (2, 0, 0),
        Reply::Atomic(old) => (3, 0, old),
        Reply::Data { length } => (4, 0, length),
        Reply::NotReady(timer) => (5, Syndrome::RnrNak(timer).to_byte(), 0),
        Reply::Nak { code, reason } => (5, Syndrome::Nak(code).to_byte(), u64::from(reason)),
        Reply::Dropped | Reply::OriginFailed => (6, 0, 0),
    };
    let mut header = [0; HEADER_WORDS];
    header[1] =
        kind | u64::from(syndrome) << 8 | u64::from(answer.attempt) << 16 | answer.reserved << 32;
    header[2] = pair(answer.to.bits(), answer.message.value());
    header[3] = value;
    header
}

/// Reads an answer; `None` if it is none.
pub(crate) fn decode_answer(header: &Header) -> Option<Answer> {
    let control = header[1];
    let (to, message) = halves(header[2]);
    let reply = match control & 0xff {
        1 => Reply::Silence,
        2 => Reply::Ack,
        3 => Reply::Atomic(header[3]),
        4 => Reply::Data { length: header[3] },
        5 => match Syndrome::from_byte((control >> 8) as u8)? {
            Syndrome::Ack { .. } => Reply::Ack,
            Syndrome::RnrNak(timer) => Reply::NotReady(timer),
            Syndrome::Nak(code) => Reply::Nak { code, reason: header[3] as u8 },
        },
        6 => Reply::Dropped,
        _ => return None,
    };
    Some(Answer {
        to: QpNumber::from_bits(to),
        message: Psn::new(message),
        attempt: (control >> 16) as u16,
        reserved: control >> 32,
        reply,
    })
}

#[cfg(test)]
mod tests {
    use transom_wire::{NakCode, RnrTimer};

    use super::*;

    #[test]
    fn requests_and_answers_read_back() {
        let bodies = [
            Body::Send { immediate: None, invalidate: None },
            Body::Send { immediate: Some(7), invalidate: None },
            Body::Send { immediate: None, invalidate: Some(Key(0xdead_beef)) },
            Body::Write { address: u64::MAX, key: Key(1), immediate: Some(0) },
            Body::Read { address: 3, key: Key(u32::MAX) },
            Body::CompareSwap { address: 8, key: Key(2), swap: u64::MAX, compare: 1 },
            Body::FetchAdd { address: 16, key: Key(2), add: 5 },
        ];
        for body in bodies {
            for service in [Service::Rc, Service::Uc] {
                let request = Request {
                    to: QpNumber::from_bits(0x12_3456),
                    from: QpNumber::from_bits(0xfe_dcba),
                    service,
                    message: Psn::new(0xff_ffff),
                    attempt: 65_535,
                    body,
                    offset: 1 << 30,
                    length: 1 << 20,
                    total: 1 << 31,
                    solicited: true,
                };
                let header = encode_request(&request, 4096);
                assert_eq!(decode_request(&header), Some((request, 4096)));
            }
        }
        let timer = RnrTimer::new(12).unwrap();
        let replies = [
            Reply::Silence,
            Reply::Ack,
            Reply::Atomic(u64::MAX),
            Reply::Data { length: 77 },
            Reply::NotReady(timer),
            Reply::Nak { code: NakCode::RemoteAccess, reason: 8 },
            Reply::Dropped,
        ];
        for reply in replies {
            let answer = Answer {
                to: QpNumber::from_bits(5),
                message: Psn::new(9),
                attempt: 3,
                reserved: 128,
                reply,
            };
            assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
        }
        assert_eq!(decode_request(&[0; HEADER_WORDS]), None);
        assert_eq!(decode_answer(&[0xff; HEADER_WORDS]), None);
    }
}
