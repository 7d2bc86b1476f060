//! Answers.

use transom_device::execution::Reply;
use transom_device::qp::QpNumber;
use transom_wire::{Psn, Syndrome};

use super::{Answer, halves, pair};
use crate::ring::{HEADER_WORDS, Header, MAX_PAYLOAD};

/// The code of an acknowledgement in an answer.
pub(super) const ACK: u64 = 2;

/// Words of the header of an answer.
pub(crate) const ANSWER_WORDS: usize = 5;

/// Writes an answer. Acknowledgements use the codes of the AETH (rules H.3).
pub(crate) fn encode_answer(answer: &Answer) -> Header {
    let (kind, syndrome, value) = match answer.reply {
        Reply::Silence => (1, 0, 0),
        Reply::Ack => (ACK, 0, 0),
        Reply::Atomic(old) => (3, 0, old),
        Reply::Data { length } => (4, 0, length),
        Reply::NotReady(timer) => (5, Syndrome::RnrNak(timer).to_byte(), 0),
        Reply::Nak { code, reason } => (5, Syndrome::Nak(code).to_byte(), u64::from(reason)),
        Reply::Dropped => (6, 0, 0),
        Reply::OriginFailed => (7, 0, 0),
    };
    let mut header = [0; HEADER_WORDS];
    header[1] = kind | u64::from(syndrome) << 8 | answer.reserved << 32;
    header[2] = pair(answer.to.bits(), answer.message.value());
    header[3] = value;
    header[4] = answer.attempt;
    header
}

/// Reads an answer. `None` if it is none.
pub(crate) fn decode_answer(header: &Header) -> Option<Answer> {
    let control = header[1];
    let (to, message) = halves(header[2]);
    let reply = match control & 0xff {
        1 => Reply::Silence,
        ACK => Reply::Ack,
        3 => Reply::Atomic(header[3]),
        4 if header[3] <= MAX_PAYLOAD => Reply::Data { length: header[3] },
        5 => match Syndrome::from_byte((control >> 8) as u8)? {
            Syndrome::Ack { .. } => Reply::Ack,
            Syndrome::RnrNak(timer) => Reply::NotReady(timer),
            Syndrome::Nak(code) => Reply::Nak { code, reason: header[3] as u8 },
        },
        6 => Reply::Dropped,
        7 => Reply::OriginFailed,
        _ => return None,
    };
    Some(Answer {
        to: QpNumber::from_bits(to),
        message: Psn::new(message),
        attempt: header[4],
        reserved: control >> 32,
        reply,
    })
}

#[cfg(test)]
mod tests {
    use transom_system::segment::RingKind;
    use transom_wire::{NakCode, RnrTimer};

    use super::super::Arrival;
    use super::*;

    #[test]
    fn answers_read_back() {
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
                attempt: 1 << 40,
                reserved: 128,
                reply,
            };
            assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
        }
        assert_eq!(decode_answer(&[0xff; HEADER_WORDS]), None);
    }

    #[test]
    fn an_answer_that_is_longer_than_its_record_is_nonsense() {
        let parse = |header, room| Arrival::parse(RingKind::Replies, &header, room);
        let answer = |length| {
            encode_answer(&Answer {
                to: QpNumber::from_bits(5),
                message: Psn::new(9),
                attempt: 1 << 40,
                reserved: 128,
                reply: Reply::Data { length },
            })
        };
        assert!(parse(answer(64), 64).is_ok());
        assert!(parse(answer(65), 64).is_err());
        assert!(parse(answer(u64::MAX), u64::MAX).is_err());
    }
}
