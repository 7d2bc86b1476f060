//! Laws for every packet, and for all bytes that are none.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use transom_wire::Psn;
use transom_wire::icrc::{Path, Verdict};
use transom_wire::packet::{Aeth, Ending, ICRC_BYTES, Operation, Packet, Reth, Transport};

fn u24() -> impl Strategy<Value = u32> {
    0..1_u32 << 24
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(address, key, length)| Reth { address, key, length })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    (any::<u8>(), u24()).prop_map(|(byte, msn)| Aeth { byte, msn })
}

/// The ends of a SEND that every service has.
fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![Just(Ending::Plain), any::<u32>().prop_map(Ending::Immediate)]
}

/// Operations that RC, XRC and UC have.
fn of_all_connections() -> impl Strategy<Value = Operation> {
    let immediate = || option::of(any::<u32>());
    prop_oneof![
        Just(Operation::SendFirst),
        Just(Operation::SendMiddle),
        ending().prop_map(Operation::SendLast),
        ending().prop_map(Operation::SendOnly),
        reth().prop_map(Operation::WriteFirst),
        Just(Operation::WriteMiddle),
        immediate().prop_map(|immediate| Operation::WriteLast { immediate }),
        (reth(), immediate())
            .prop_map(|(reth, immediate)| Operation::WriteOnly { reth, immediate }),
    ]
}

fn requests_of_reliable_connections() -> impl Strategy<Value = Operation> {
    let flush = |(placement, selectivity, reth)| Operation::Flush { placement, selectivity, reth };
    prop_oneof![
        of_all_connections(),
        any::<u32>().prop_map(|key| Operation::SendLast(Ending::Invalidate(key))),
        any::<u32>().prop_map(|key| Operation::SendOnly(Ending::Invalidate(key))),
        reth().prop_map(Operation::ReadRequest),
        any::<(u64, u32, u64, u64)>().prop_map(|(address, key, swap, compare)| {
            Operation::CompareSwap { address, key, swap, compare }
        }),
        any::<(u64, u32, u64)>().prop_map(|(address, key, add)| Operation::FetchAdd {
            address,
            key,
            add
        }),
        (0..16_u8, 0..4_u8, reth()).prop_map(flush),
        reth().prop_map(Operation::AtomicWrite),
    ]
}

/// Responses and reserved opcodes: packets of XRC without an XRCETH.
fn others_of_reliable_connections() -> impl Strategy<Value = Operation> {
    let reserved = vec![0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f];
    prop_oneof![
        aeth().prop_map(Operation::ReadResponseFirst),
        Just(Operation::ReadResponseMiddle),
        aeth().prop_map(Operation::ReadResponseLast),
        aeth().prop_map(Operation::ReadResponseOnly),
        aeth().prop_map(Operation::Acknowledge),
        (aeth(), any::<u64>()).prop_map(|(aeth, old)| Operation::AtomicAcknowledge { aeth, old }),
        select(reserved).prop_map(Operation::Reserved),
    ]
}

fn of_unreliable_connections() -> impl Strategy<Value = Operation> {
    prop_oneof![4 => of_all_connections(), 1 => (0x0c..0x20_u8).prop_map(Operation::Reserved)]
}

fn of_datagrams() -> impl Strategy<Value = Operation> {
    let reserved = (0..0x20_u8).prop_filter("SEND_ONLY", |code| !matches!(code, 4 | 5));
    prop_oneof![ending().prop_map(Operation::SendOnly), reserved.prop_map(Operation::Reserved),]
}

fn service_and_operation() -> impl Strategy<Value = (Transport, Operation)> {
    let ud = (any::<u32>(), u24()).prop_map(|(qkey, source)| Transport::Ud { qkey, source });
    let request_of_xrc = u24().prop_map(|srq| Transport::Xrc { srq });
    prop_oneof![
        (Just(Transport::Rc), requests_of_reliable_connections()),
        (Just(Transport::Rc), others_of_reliable_connections()),
        (Just(Transport::Uc), of_unreliable_connections()),
        (ud, of_datagrams()),
        (request_of_xrc, requests_of_reliable_connections()),
        (Just(Transport::Xrc { srq: 0 }), others_of_reliable_connections()),
        (Just(Transport::Rc), Just(Operation::Congestion)),
    ]
}

fn packet() -> impl Strategy<Value = Packet<'static>> {
    (service_and_operation(), any::<[bool; 5]>(), any::<u16>(), u24(), u24()).prop_map(
        |((transport, operation), bits, pkey, to, psn)| {
            let [solicited, migrated, fecn, becn, ack_request] = bits;
            let (psn, payload) = (Psn::new(psn), &[][..]);
            Packet {
                transport,
                operation,
                solicited,
                migrated,
                pkey,
                fecn,
                becn,
                to,
                ack_request,
                psn,
                payload,
            }
        },
    )
}

fn path() -> impl Strategy<Value = Path> {
    let v4 = any::<([u8; 4], u16, [u8; 4])>()
        .prop_map(|(source, port, destination)| Path::new(source.into(), port, destination.into()));
    let v6 = any::<([u8; 16], u16, [u8; 16])>()
        .prop_map(|(source, port, destination)| Path::new(source.into(), port, destination.into()));
    prop_oneof![v4, v6].prop_filter_map("one is mapped", |path| path)
}

/// The UDP payload of a packet with this ICRC.
fn datagram(packet: &Packet, icrc: impl Fn(&[u8]) -> [u8; ICRC_BYTES]) -> Vec<u8> {
    let mut bytes = vec![0xaa; packet.length()];
    let end = packet.write(&mut bytes);
    let icrc = icrc(&bytes[..end]);
    bytes[end..].copy_from_slice(&icrc);
    bytes
}

proptest! {
    /// Rules: PK-01, PK-02, PK-03, PK-04, PK-05, PK-06, PK-07, PK-08
    #[test]
    fn a_packet_reads_as_it_was_written(packet in packet(), payload in vec(any::<u8>(), 0..300)) {
        let packet = Packet { payload: &payload, ..packet };
        let bytes = datagram(&packet, |_| [0xaa; ICRC_BYTES]);
        prop_assert!(packet.header_length() <= Packet::MAX_HEADER);
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
    }

    /// Rules: NET-13
    #[test]
    fn a_packet_that_is_cut_short_is_not_taken_for_whole(
        packet in packet(),
        payload in vec(any::<u8>(), 0..40),
    ) {
        let packet = Packet { payload: &payload, ..packet };
        let bytes = datagram(&packet, |_| [0xaa; ICRC_BYTES]);
        for length in 0..bytes.len() {
            prop_assert_ne!(Packet::parse(&bytes[..length]), Ok(packet));
        }
    }

    /// Rules: NET-13, PK-15
    #[test]
    fn any_bytes_are_no_packet_or_one_that_is_written_as_it_was_read(
        bytes in vec(any::<u8>(), 0..120),
        path in path(),
    ) {
        path.check(0, &bytes);
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert_eq!(packet.length(), bytes.len());
            prop_assert_eq!(packet.opcode(), bytes[0]);
            let written = datagram(&packet, |_| [0xaa; ICRC_BYTES]);
            prop_assert_eq!(Packet::parse(&written), Ok(packet));
        }
    }

    /// Rules: CRC-02, CRC-03, CRC-04, CRC-06
    #[test]
    fn an_icrc_holds_for_its_packet_and_path_alone(
        packet in packet(),
        payload in vec(any::<u8>(), 0..300),
        (path, other) in (path(), path()),
        identification: u16,
        damage in 1_u8..,
        place: prop::sample::Index,
    ) {
        let packet = Packet { payload: &payload, ..packet };
        let mut bytes = datagram(&packet, |bytes| path.icrc(identification, bytes));
        prop_assert_eq!(path.check(identification, &bytes), Verdict::Right);
        let verdict = path.check(!identification, &bytes);
        prop_assert!(matches!(verdict, Verdict::Right | Verdict::Identified(_)), "{:?}", verdict);
        if let Verdict::Identified(found) = verdict {
            prop_assert_eq!(found, identification);
        }
        if other != path {
            prop_assert_ne!(other.check(identification, &bytes), Verdict::Right);
        }
        let at = place.index(bytes.len());
        bytes[at] ^= damage;
        prop_assert_eq!(path.check(identification, &bytes) == Verdict::Right, at == 4);
    }
}
