//! Requests and replies as the words of a ring's record header.
//!
//! They come from another process. So all of them are checked here, once, on a copy that nobody else can write. A
//! message from here has lengths that fit each other, its record, and the record of the answer.

use transom_device::execution::{MAX_MESSAGE, PlainSend, Reply, Request};
use transom_device::operation::{Data, Operation};
use transom_device::protection::{Key, RemoteAddress};
use transom_device::qp::{QpNumber, Service};
use transom_device::queue::{Address, Body, Datagram, Placement, Remote};
use transom_system::segment::RingKind;
use transom_wire::{Psn, Syndrome};

use super::Reference;
use super::ring::{Garbled, HEADER_WORDS, Header, MAX_PAYLOAD, record_bytes};

const IMMEDIATE: u64 = 1 << 8;
const INVALIDATE: u64 = 1 << 9;
const SOLICITED: u64 = 1 << 10;
/// The service's code takes three bits from here on.
const SERVICE: u32 = 11;
/// The data is in its sender's buffer, and not behind the header.
const REFERENCE: u64 = 1 << 14;

/// The code of an acknowledgement in an answer.
const ACK: u64 = 2;

/// Words of the header of an answer.
pub(crate) const ANSWER_WORDS: usize = 5;
/// Words of the header of a plain SEND.
pub(crate) const PLAIN_SEND_WORDS: usize = 7;
/// How much of the reply ring its acknowledgement takes.
pub(crate) const PLAIN_SEND_RESERVES: u64 = record_bytes(ANSWER_WORDS, 0);
/// A plain SEND as a word of its header, without the bit for solicited.
const PLAIN_SEND: u64 =
    Operation::Send.code() as u64 | (Service::Rc as u64) << SERVICE | PLAIN_SEND_RESERVES << 32;

/// A reply, and the message that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The requester.
    pub to: QpNumber,
    /// The number of the message it answers.
    pub message: Psn,
    /// The attempt it answers.
    pub attempt: u64,
    /// Bytes that the requester kept free for it.
    pub reserved: u64,
    /// The answer.
    pub reply: Reply,
}

/// Something that came from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A plain SEND, with its data in the record.
    Send(PlainSend),
    /// Any other segment of a request. If the data is not in the record, also where its sender has it.
    Request(Request, Option<Reference>),
    /// An answer to one.
    Answer(Answer),
}

impl Arrival {
    /// Parses the header of a record that has room for so many bytes behind it. `Err` if it is malformed.
    pub(crate) fn parse(kind: RingKind, header: &Header, room: u64) -> Result<Self, Garbled> {
        let arrival = match kind {
            RingKind::Requests => decode_plain_send(header)
                .map(Self::Send)
                .or_else(|| decode_request(header).map(|(request, at)| Self::Request(request, at))),
            RingKind::Replies => decode_answer(header).map(Self::Answer),
        };
        arrival.filter(|arrival| arrival.payload() <= room).ok_or(Garbled)
    }

    /// Bytes that come behind the header.
    pub(crate) fn payload(&self) -> u64 {
        match self {
            Self::Send(send) => send.length,
            Self::Request(request, None) if request.body.carries_data() => request.length,
            Self::Answer(Answer { reply: Reply::Data { length }, .. }) => *length,
            _ => 0,
        }
    }
}

/// How many bytes of data the answer to a request may bring.
pub(crate) fn answer_data(request: &Request) -> u64 {
    match request.body.operation().needs().data {
        Data::Fetched => request.length,
        Data::None | Data::Sent | Data::OldValue => 0,
    }
}

/// How many bytes of the reply ring a requester keeps free for the answer to a request.
pub(crate) fn reservation(request: &Request) -> u64 {
    match request.service.is_reliable() {
        true => record_bytes(ANSWER_WORDS, answer_data(request)),
        false => 0,
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Writes a request, the room that is kept free for its reply, and the place of its data if that is not behind the
/// header. Such a request is of a reliable service and carries data, so it does not need the words of a datagram and of
/// operands.
pub(crate) fn encode_request(request: &Request, data: Option<Reference>) -> Header {
    let named = request.body.remote().unwrap_or(RemoteAddress { address: 0, key: Key(0) });
    let RemoteAddress { address, key } = named;
    let (flags, key, extra) = match request.body {
        Body::Send => (0, key, [0, 0]),
        Body::SendImmediate(immediate) => (IMMEDIATE, key, [u64::from(immediate), 0]),
        Body::SendInvalidate(key) => (INVALIDATE, key, [0, 0]),
        Body::Write { immediate, .. } => {
            let flags = if immediate.is_some() { IMMEDIATE } else { 0 };
            (flags, key, [u64::from(immediate.unwrap_or(0)), 0])
        }
        Body::Read { .. } | Body::AtomicWrite { .. } => (0, key, [0, 0]),
        Body::CompareSwap { swap, compare, .. } => (0, key, [swap, compare]),
        Body::FetchAdd { add, .. } => (0, key, [add, 0]),
        Body::Flush { length, placement, whole, .. } => {
            let how = u64::from(placement.bits()) << 1 | u64::from(whole);
            (0, key, [u64::from(length), how])
        }
    };
    let kind = u64::from(request.body.operation().code()) | flags;
    let remote = encode_remote(&request.remote);
    let datagram = matches!(request.remote, Remote::Datagram(_));
    let flags = if request.solicited { SOLICITED } else { 0 } | (request.service as u64) << SERVICE;
    let flags = flags | if data.is_some() { REFERENCE } else { 0 };
    let (at, at_key) = data.map_or((0, 0), |at| (at.address, u64::from(at.key.0)));
    [
        0,
        kind | flags | reservation(request) << 32,
        pair(request.to.bits(), request.from.bits()),
        pair(request.message.value(), key.0),
        request.attempt,
        request.length,
        if datagram { remote.source[1] } else { request.total },
        // A message of one part to a connected queue pair has zeros from here on.
        if datagram { remote.source[0] } else { request.offset },
        if datagram { remote.gid[0] } else { address },
        extra[0],
        if datagram { remote.gid[1] } else { extra[1] | at_key },
        remote.words[0],
        remote.words[1] | at,
    ]
}

/// Writes a plain SEND, in the words that [`encode_request`] takes for it.
#[inline]
pub(crate) fn encode_plain_send(send: &PlainSend) -> [u64; PLAIN_SEND_WORDS] {
    let PlainSend { to, from, message, attempt, length, solicited } = *send;
    let flags = if solicited { SOLICITED } else { 0 };
    let (ends, number) = (pair(to.bits(), from.bits()), pair(message.value(), 0));
    [0, PLAIN_SEND | flags, ends, number, attempt, length, length]
}

/// Reads a plain SEND. `None` if it is something else or malformed; [`decode_request`] then tells which.
#[inline]
fn decode_plain_send(header: &Header) -> Option<PlainSend> {
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

/// The recipient of a request, as words of a header. SEND has no address and no operand, so a datagram's GID takes
/// their words. A datagram is one segment, so its source GID takes the words of the offset and the total length.
#[derive(Default)]
struct RemoteWords {
    gid: [u64; 2],
    source: [u64; 2],
    words: [u64; 2],
}

fn gid_words(gid: [u8; 16]) -> [u64; 2] {
    let gid = u128::from_be_bytes(gid);
    [(gid >> 64) as u64, gid as u64]
}

fn gid_of(high: u64, low: u64) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

fn encode_remote(remote: &Remote) -> RemoteWords {
    match remote {
        Remote::Connected => RemoteWords::default(),
        Remote::Srq(number) => {
            RemoteWords { words: [u64::from(*number), 0], ..RemoteWords::default() }
        }
        Remote::Datagram(Datagram { address, qkey, .. }) => {
            let bytes = [0, 0, address.traffic_class, address.hop_limit];
            RemoteWords {
                gid: gid_words(address.gid),
                source: gid_words(address.source),
                words: [pair(*qkey, address.flow_label), u64::from(u32::from_be_bytes(bytes))],
            }
        }
    }
}

fn decode_remote(header: &Header, service: Service, to: QpNumber) -> Remote {
    match service {
        Service::Rc | Service::Uc => Remote::Connected,
        Service::XrcInitiator | Service::XrcTarget => Remote::Srq(header[11] as u32),
        Service::Ud => {
            let (qkey, flow_label) = halves(header[11]);
            let (gid, source) = (gid_of(header[8], header[10]), gid_of(header[7], header[6]));
            let [_, _, traffic_class, hop_limit] = (header[12] as u32).to_be_bytes();
            let address = Address { gid, source, traffic_class, hop_limit, flow_label };
            Remote::Datagram(Datagram { pd: 0, address, qp: to.bits(), qkey })
        }
    }
}

/// Reads a request, and the place of its data if that is not behind the header. `None` if it is no request: its parts
/// do not fit each other, it is longer than a record can be, or the room kept free for its reply is too small.
pub(crate) fn decode_request(header: &Header) -> Option<(Request, Option<Reference>)> {
    let control = header[1];
    let (to, from) = halves(header[2]);
    let to = QpNumber::from_bits(to);
    let (message, key) = halves(header[3]);
    let (address, key) = (header[8], Key(key));
    let immediate = (control & IMMEDIATE != 0).then_some(header[9] as u32);
    let body = match Operation::from_code(control as u8)? {
        Operation::Send => match (immediate, control & INVALIDATE != 0) {
            (None, false) => Body::Send,
            (Some(immediate), false) => Body::SendImmediate(immediate),
            (None, true) => Body::SendInvalidate(key),
            (Some(_), true) => return None,
        },
        Operation::Write => Body::Write { address, key, immediate },
        Operation::Read => Body::Read { address, key },
        Operation::CompareSwap => {
            Body::CompareSwap { address, key, swap: header[9], compare: header[10] }
        }
        Operation::FetchAdd => Body::FetchAdd { address, key, add: header[9] },
        Operation::AtomicWrite => Body::AtomicWrite { address, key },
        Operation::Flush | Operation::FlushPersistent => Body::Flush {
            address,
            key,
            length: u32::try_from(header[9]).ok()?,
            placement: Placement::from_bits_retain((header[10] >> 1) as u8),
            whole: header[10] & 1 == 1,
        },
        // These are never requested alone.
        Operation::RemoteInvalidate
        | Operation::LocalRead
        | Operation::LocalWrite
        | Operation::Bind
        | Operation::Invalidate => return None,
    };
    let service = Service::from_code((control >> SERVICE) as u8 & 7)?;
    if service == Service::Ud && !matches!(body, Body::Send | Body::SendImmediate(_)) {
        return None;
    }
    let datagram = service == Service::Ud;
    let request = Request {
        to,
        from: QpNumber::from_bits(from),
        service,
        remote: decode_remote(header, service, to),
        message: Psn::new(message),
        attempt: header[4],
        body,
        offset: if datagram { 0 } else { header[7] },
        length: header[5],
        total: if datagram { header[5] } else { header[6] },
        solicited: control & SOLICITED != 0,
    };
    let within = request.offset.checked_add(request.length)? <= request.total;
    let fits = within && request.length <= MAX_PAYLOAD && request.total <= MAX_MESSAGE;
    let reference = (control & REFERENCE != 0)
        .then(|| Reference { address: header[12], key: Key(header[10] as u32) });
    let refers = request.service.is_reliable() && request.body.carries_data();
    let fits = fits && (refers || reference.is_none());
    (fits && control >> 32 == reservation(&request)).then_some((request, reference))
}

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

/// Writes the acknowledgement of a plain SEND, in the words that [`encode_answer`] takes for it.
#[inline]
pub(crate) fn encode_acknowledgement(send: &PlainSend) -> [u64; ANSWER_WORDS] {
    let to = pair(send.from.bits(), send.message.value());
    [0, ACK | PLAIN_SEND_RESERVES << 32, to, 0, send.attempt]
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
    use super::super::ring::words_of;
    use transom_wire::{NakCode, RnrTimer};

    use super::*;

    #[test]
    fn datagrams_read_back() {
        let address = Address {
            gid: *b"0123456789abcdef",
            source: *b"fedcba9876543210",
            traffic_class: 0xfc,
            hop_limit: 7,
            flow_label: 0xabcde,
        };
        let datagram = Datagram { pd: 0, address, qp: 0xff_ffff, qkey: 0x8765_4321 };
        let request = Request {
            to: QpNumber::from_bits(0xff_ffff),
            from: QpNumber::from_bits(0x01_0002),
            service: Service::Ud,
            remote: Remote::Datagram(datagram),
            message: Psn::new(1),
            attempt: 0,
            body: Body::SendImmediate(9),
            offset: 0,
            length: 4096,
            total: 4096,
            solicited: false,
        };
        assert_eq!(decode_request(&encode_request(&request, None)), Some((request, None)));
        // A number has 24 bits, whatever another process writes there.
        let mut forged = encode_request(&request, None);
        forged[2] |= 0xff << 56;
        assert_eq!(decode_request(&forged), Some((request, None)));
        let write = Body::Write { address: 0, key: Key(1), immediate: None };
        let forged = encode_request(&Request { body: write, ..request }, None);
        assert_eq!(decode_request(&forged), None);
        // No message has both immediate data and a key to invalidate.
        let connected = Request { service: Service::Rc, remote: Remote::Connected, ..request };
        let mut forged = encode_request(&connected, None);
        assert!(decode_request(&forged).is_some());
        forged[1] |= INVALIDATE;
        assert_eq!(decode_request(&forged), None);
    }

    #[test]
    fn requests_and_answers_read_back() {
        let bodies = [
            Body::Send,
            Body::SendImmediate(7),
            Body::SendInvalidate(Key(0xdead_beef)),
            Body::Write { address: u64::MAX, key: Key(1), immediate: Some(0) },
            Body::Read { address: 3, key: Key(u32::MAX) },
            Body::CompareSwap { address: 8, key: Key(2), swap: u64::MAX, compare: 1 },
            Body::FetchAdd { address: 16, key: Key(2), add: 5 },
            Body::AtomicWrite { address: 24, key: Key(3) },
            Body::Flush {
                address: 32,
                key: Key(4),
                length: u32::MAX,
                placement: Placement::GLOBAL,
                whole: true,
            },
        ];
        for body in bodies {
            for (service, remote) in [
                (Service::Rc, Remote::Connected),
                (Service::Uc, Remote::Connected),
                (Service::XrcInitiator, Remote::Srq(0x0212_3456)),
            ] {
                let request = Request {
                    remote,
                    to: QpNumber::from_bits(0x12_3456),
                    from: QpNumber::from_bits(0xfe_dcba),
                    service,
                    message: Psn::new(0xff_ffff),
                    attempt: u64::MAX,
                    body,
                    offset: 1 << 30,
                    length: MAX_PAYLOAD,
                    total: 1 << 31,
                    solicited: true,
                };
                assert_eq!(decode_request(&encode_request(&request, None)), Some((request, None)));
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
                attempt: 1 << 40,
                reserved: 128,
                reply,
            };
            assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
        }
        assert_eq!(decode_request(&[0; HEADER_WORDS]), None);
        assert_eq!(decode_answer(&[0xff; HEADER_WORDS]), None);
    }

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

    fn read(offset: u64, length: u64, total: u64) -> Header {
        let request = Request {
            to: QpNumber::from_bits(0x12_3456),
            from: QpNumber::from_bits(0xfe_dcba),
            service: Service::Rc,
            remote: Remote::Connected,
            message: Psn::new(1),
            attempt: 0,
            body: Body::Read { address: 3, key: Key(4) },
            offset: 0,
            length: 8,
            total: 8,
            solicited: false,
        };
        let mut header = encode_request(&request, None);
        (header[5], header[6], header[7]) = (length, total, offset);
        // The formula for the room from before the lengths were checked.
        let reserved = length.wrapping_add(ANSWER_WORDS as u64 * 8).wrapping_add(63) & !63;
        header[1] = header[1] & 0xffff_ffff | reserved << 32;
        header
    }

    #[test]
    fn lengths_that_wrap_or_do_not_fit_each_other_are_no_request() {
        assert!(decode_request(&read(0, 8, 8)).is_some());
        assert!(decode_request(&read(0, MAX_PAYLOAD, MAX_MESSAGE)).is_some());
        for length in [u64::MAX, u64::MAX - 39, u64::MAX - 40, MAX_PAYLOAD + 1, 1 << 32] {
            for total in [length, u64::MAX, MAX_MESSAGE, 0] {
                assert_eq!(decode_request(&read(0, length, total)), None, "{length:#x} {total:#x}");
            }
        }
        for (offset, length, total) in [
            (1, 8, 8),
            (0, 8, 7),
            (u64::MAX, 8, 7),
            (u64::MAX - 7, 8, u64::MAX),
            (0, 8, MAX_MESSAGE + 1),
        ] {
            assert_eq!(
                decode_request(&read(offset, length, total)),
                None,
                "{offset:#x} {total:#x}"
            );
        }
        // A requester that keeps less free than the answer takes gets no answer: its request is rejected as malformed.
        let mut greedy = read(0, 4096, 4096);
        greedy[1] = greedy[1] & 0xffff_ffff | record_bytes(ANSWER_WORDS, 0) << 32;
        assert_eq!(decode_request(&greedy), None);
    }

    /// Fetching a cache line that another process has written takes as long as a small message.
    #[test]
    fn a_small_message_and_its_acknowledgement_take_a_line_each() {
        let send = Request {
            to: QpNumber::from_bits(0x12_3456),
            from: QpNumber::from_bits(0xfe_dcba),
            service: Service::Rc,
            remote: Remote::Connected,
            message: Psn::new(0xff_ffff),
            attempt: u64::MAX,
            body: Body::Send,
            offset: 0,
            length: 8,
            total: 8,
            solicited: true,
        };
        assert_eq!(record_bytes(words_of(&encode_request(&send, None)), 8), 64);
        assert_eq!(record_bytes(ANSWER_WORDS, 0), 64);
    }

    #[test]
    fn a_message_that_is_longer_than_its_record_is_nonsense() {
        let parse = |kind, header, room| Arrival::parse(kind, &header, room);
        let mut write = read(0, 64, 64);
        write[1] = write[1] & 0xffff_ff00
            | record_bytes(ANSWER_WORDS, 0) << 32
            | u64::from(Operation::Write.code());
        assert!(parse(RingKind::Requests, write, 64).is_ok());
        assert!(parse(RingKind::Requests, write, 63).is_err());
        // A READ brings nothing with it.
        assert!(parse(RingKind::Requests, read(0, 64, 64), 0).is_ok());
        let answer = |length| {
            encode_answer(&Answer {
                to: QpNumber::from_bits(5),
                message: Psn::new(9),
                attempt: 1 << 40,
                reserved: 128,
                reply: Reply::Data { length },
            })
        };
        assert!(parse(RingKind::Replies, answer(64), 64).is_ok());
        assert!(parse(RingKind::Replies, answer(65), 64).is_err());
        assert!(parse(RingKind::Replies, answer(u64::MAX), u64::MAX).is_err());
    }
}
