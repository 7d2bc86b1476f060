//! Plain SENDs and their acknowledgements: messages so short and frequent that they have a form of their own. Their
//! words are those of the requests and answers that they are.

use transom_device::execution::PlainSend;
use transom_device::operation::Operation;
use transom_device::qp::{QpNumber, Service};
use transom_wire::Psn;

use super::answer::{ACK, ANSWER_WORDS};
use super::request::{SERVICE, SOLICITED};
use super::{halves, pair};
use crate::ring::{Header, MAX_PAYLOAD, record_bytes};

/// Words of the header of a plain SEND.
pub(crate) const PLAIN_SEND_WORDS: usize = 7;
/// How much of the reply ring its acknowledgement takes.
pub(crate) const PLAIN_SEND_RESERVES: u64 = record_bytes(ANSWER_WORDS, 0);
/// A plain SEND as a word of its header, without the bit for solicited.
const PLAIN_SEND: u64 =
    Operation::Send.code() as u64 | (Service::Rc as u64) << SERVICE | PLAIN_SEND_RESERVES << 32;

/// Writes a plain SEND, in the words that [`encode_request`](super::encode_request) takes for it.
#[inline]
pub(crate) fn encode_plain_send(send: &PlainSend) -> [u64; PLAIN_SEND_WORDS] {
    let PlainSend { to, from, message, attempt, length, solicited } = *send;
    let flags = if solicited { SOLICITED } else { 0 };
    let (ends, number) = (pair(to.bits(), from.bits()), pair(message.value(), 0));
    [0, PLAIN_SEND | flags, ends, number, attempt, length, length]
}

/// Reads a plain SEND. `None` if it is something else or malformed; [`decode_request`](super::decode_request) then tells which.
#[inline]
pub(super) fn decode_plain_send(header: &Header) -> Option<PlainSend> {
    let (control, offset, length, total) = (header[1], header[7], header[5], header[6]);
    let whole = offset == 0 && length == total && (1..=MAX_PAYLOAD).contains(&length);
    if control & !SOLICITED != PLAIN_SEND || !whole {
        return None;
    }
    let (to, from) = halves(header[2]);
    let (message, _) = halves(header[3]);
    Some(PlainSend {
        to: QpNumber::from_bits(to),
        from: QpNumber::from_bits(from),
        message: Psn::new(message),
        attempt: header[4],
        length,
        solicited: control & SOLICITED != 0,
    })
}

/// Writes the acknowledgement of a plain SEND, in the words that [`encode_answer`](super::encode_answer) takes for it.
#[inline]
pub(crate) fn encode_acknowledgement(send: &PlainSend) -> [u64; ANSWER_WORDS] {
    let to = pair(send.from.bits(), send.message.value());
    [0, ACK | PLAIN_SEND_RESERVES << 32, to, 0, send.attempt]
}

#[cfg(test)]
mod tests {
    use transom_device::execution::{Reply, Request};
    use transom_device::protection::Key;
    use transom_device::queue::{Body, Remote};
    use transom_system::segment::RingKind;

    use super::super::{
        Answer, Arrival, decode_request, encode_answer, encode_request, reservation,
    };
    use super::*;
    use crate::Reference;
    use crate::ring::HEADER_WORDS;

    #[test]
    fn a_plain_send_is_the_request_that_it_says() {
        for (length, solicited) in [(1, false), (8, true), (MAX_PAYLOAD, false)] {
            let send = PlainSend {
                to: QpNumber::from_bits(0x12_3456),
                from: QpNumber::from_bits(0xfe_dcba),
                message: Psn::new(0xff_ffff),
                attempt: u64::MAX,
                length,
                solicited,
            };
            let mut header = [0; HEADER_WORDS];
            header[..PLAIN_SEND_WORDS].copy_from_slice(&encode_plain_send(&send));
            assert_eq!(header, encode_request(&send.request(), None));
            assert_eq!(decode_request(&header), Some((send.request(), None)));
            let parsed = Arrival::parse(RingKind::Requests, &header, length);
            assert_eq!(parsed.unwrap(), Arrival::Send(send));
            assert!(Arrival::parse(RingKind::Requests, &header, length - 1).is_err());

            let answer = Answer {
                to: send.from,
                message: send.message,
                attempt: send.attempt,
                reserved: reservation(&send.request()),
                reply: Reply::Ack,
            };
            let mut header = [0; HEADER_WORDS];
            header[..ANSWER_WORDS].copy_from_slice(&encode_acknowledgement(&send));
            assert_eq!(header, encode_answer(&answer));
        }
    }

    #[test]
    fn what_is_not_a_whole_send_of_a_reliable_connection_is_not_plain() {
        let plain = Request {
            to: QpNumber::from_bits(1),
            from: QpNumber::from_bits(2),
            service: Service::Rc,
            remote: Remote::Connected,
            message: Psn::new(3),
            attempt: 4,
            body: Body::Send,
            offset: 0,
            length: 8,
            total: 8,
            solicited: false,
        };
        assert!(decode_plain_send(&encode_request(&plain, None)).is_some());
        for other in [
            Request { service: Service::Uc, ..plain },
            Request { body: Body::SendImmediate(0), ..plain },
            Request { body: Body::SendInvalidate(Key(0)), ..plain },
            Request { total: 9, ..plain },
            Request { offset: 1, total: 9, ..plain },
            Request { length: 0, total: 0, ..plain },
        ] {
            assert_eq!(decode_plain_send(&encode_request(&other, None)), None, "{other:?}");
        }
        let elsewhere = Reference { address: 64, key: Key(1) };
        assert_eq!(decode_plain_send(&encode_request(&plain, Some(elsewhere))), None);
    }
}
