//! Requests.

use transom_device::execution::{MAX_MESSAGE, Request};
use transom_device::operation::{Data, Operation};
use transom_device::protection::{Key, RemoteAddress};
use transom_device::qp::{QpNumber, Service};
use transom_device::queue::{Address, Body, Datagram, Placement, Remote};
use transom_wire::Psn;

use super::answer::ANSWER_WORDS;
use super::{halves, pair};
use crate::Reference;
use crate::ring::{Header, MAX_PAYLOAD, record_bytes};

const IMMEDIATE: u64 = 1 << 8;
const INVALIDATE: u64 = 1 << 9;
pub(super) const SOLICITED: u64 = 1 << 10;
/// The service's code takes three bits from here on.
pub(super) const SERVICE: u32 = 11;
/// The data is in its sender's buffer, and not behind the header.
const REFERENCE: u64 = 1 << 14;

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

#[cfg(test)]
mod tests {
    use transom_system::segment::RingKind;

    use super::super::Arrival;
    use super::*;
    use crate::ring::{HEADER_WORDS, words_of};

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
    fn requests_read_back() {
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
        assert_eq!(decode_request(&[0; HEADER_WORDS]), None);
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

    #[test]
    fn a_request_that_is_longer_than_its_record_is_nonsense() {
        let parse = |header, room| Arrival::parse(RingKind::Requests, &header, room);
        let mut write = read(0, 64, 64);
        write[1] = write[1] & 0xffff_ff00
            | record_bytes(ANSWER_WORDS, 0) << 32
            | u64::from(Operation::Write.code());
        assert!(parse(write, 64).is_ok());
        assert!(parse(write, 63).is_err());
        // A READ brings nothing with it.
        assert!(parse(read(0, 64, 64), 0).is_ok());
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
}
