use std::vec::Vec;

use super::*;

const RETH: Reth = Reth { address: 0x0102_0304_0506_0708, key: 0x1112_1314, length: 0x2122_2324 };
const RETH_HEX: &str = "01020304 05060708 11121314 21222324";
const AETH: Aeth = Aeth { byte: 0x62, msn: 0x0a0b0c };
const AETH_HEX: &str = "620a0b0c";
const IMMEDIATE: u32 = 0xa1a2_a3a4;
const XRC: Transport = Transport::Xrc { srq: 0x33_3435 };
const XRC_RESPONSE: Transport = Transport::Xrc { srq: 0 };
const UD: Transport = Transport::Ud { qkey: 0x8001_0000, source: 0x44_4546 };

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A packet and its BTH with this opcode and the bits and fields below.
fn packet<'a>(transport: Transport, operation: Operation, payload: &'a [u8]) -> Packet<'a> {
    Packet {
        transport,
        operation,
        solicited: true,
        migrated: true,
        pkey: 0x8321,
        fecn: false,
        becn: true,
        to: 0xfe_dcba,
        ack_request: true,
        psn: Psn::new(0x12_3456),
        payload,
    }
}

fn bth(opcode: u8, pad: u8) -> [u8; 12] {
    [opcode, 0xc0 | pad << 4, 0x83, 0x21, 0x40, 0xfe, 0xdc, 0xba, 0x80, 0x12, 0x34, 0x56]
}

/// Only packets in the middle of a message are continued, by what would have been read, and by no other headers.
fn continues(packet: &Packet<'_>, before: &[u8]) {
    use Operation::{ReadResponseMiddle, SendMiddle, WriteMiddle};
    let is_middle = matches!(packet.operation, SendMiddle | WriteMiddle | ReadResponseMiddle);
    let mut next = before.to_vec();
    Packet::renumber(&mut next, packet.psn.plus(1));
    let continued = packet.continued(before, &next);
    assert_eq!(continued.is_some(), is_middle, "{packet:?}");
    let next_packet =
        continued.map(|payload| Packet { psn: packet.psn.plus(1), payload, ..*packet });
    assert!(!is_middle || next_packet == Packet::parse(&next).ok(), "{packet:?}");
    for at in 0..packet.header_length() {
        let mut other = next.clone();
        other[at] ^= 1;
        assert_eq!(packet.continued(before, &other), None, "{packet:?}, byte {at}");
    }
    assert_eq!(packet.continued(before, before), None);
    next.extend([0; 4]);
    assert_eq!(packet.continued(before, &next), None);
}

/// Reads and writes a packet with each length of payload from 0 to 5.
fn golden(opcode: u8, transport: Transport, operation: Operation, headers: &str) {
    let data = [0xd1, 0xd2, 0xd3, 0xd4, 0xd5];
    for length in 0..=data.len() {
        let payload = &data[..length];
        let packet = packet(transport, operation, payload);
        let pad = packet.pad();
        assert_eq!(pad, [0, 3, 2, 1, 0, 3][length]);

        let mut expected = bth(opcode, pad as u8).to_vec();
        expected.extend(bytes(headers));
        assert_eq!(packet.header_length(), expected.len(), "{packet:?}");
        assert!(packet.header_length() <= Packet::MAX_HEADER);
        expected.extend(payload);
        expected.extend(&[0; 3][..pad]);
        expected.extend([0x1c; ICRC_BYTES]);
        assert_eq!(packet.length(), expected.len());
        assert_eq!(Packet::parse(&expected), Ok(packet), "{opcode:#04x}");
        continues(&packet, &expected);

        let mut written = std::vec![0x1c; expected.len()];
        assert_eq!(packet.write(&mut written), expected.len() - ICRC_BYTES);
        assert_eq!(written, expected, "{opcode:#04x}");

        Packet::renumber(&mut written, Psn::new(0xfe_dcba));
        expected[9..12].copy_from_slice(&[0xfe, 0xdc, 0xba]);
        assert_eq!(written, expected, "{opcode:#04x}");
    }
}

/// Rules: PK-01, PK-02, PK-07, PK-08, OP-00, OP-01, OP-02, OP-03, OP-04, OP-05, OP-06, OP-07, OP-08,
/// OP-09, OP-10, OP-11
#[test]
fn every_send_and_write_has_its_opcode_and_headers() {
    let (immediate, immediate_hex) = (Some(IMMEDIATE), "a1a2a3a4");
    let with_immediate = std::format!("{RETH_HEX} {immediate_hex}");
    let operations = [
        (Operation::SendFirst, ""),
        (Operation::SendMiddle, ""),
        (Operation::SendLast(Ending::Plain), ""),
        (Operation::SendLast(Ending::Immediate(IMMEDIATE)), immediate_hex),
        (Operation::SendOnly(Ending::Plain), ""),
        (Operation::SendOnly(Ending::Immediate(IMMEDIATE)), immediate_hex),
        (Operation::WriteFirst(RETH), RETH_HEX),
        (Operation::WriteMiddle, ""),
        (Operation::WriteLast { immediate: None }, ""),
        (Operation::WriteLast { immediate }, immediate_hex),
        (Operation::WriteOnly { reth: RETH, immediate: None }, RETH_HEX),
        (Operation::WriteOnly { reth: RETH, immediate }, with_immediate.as_str()),
    ];
    for (code, (operation, headers)) in (0..).zip(operations) {
        golden(code, Transport::Rc, operation, headers);
        golden(0x20 | code, Transport::Uc, operation, headers);
        golden(0xa0 | code, XRC, operation, &std::format!("00333435 {headers}"));
    }
}

/// Rules: PK-03, PK-04, PK-05, PK-06, PK-07, OP-12, OP-13, OP-14, OP-15, OP-16, OP-17, OP-18, OP-19,
/// OP-20, OP-22, OP-23, OP-24, OP-25
#[test]
fn every_other_operation_of_a_connection_has_its_opcode_and_headers() {
    let (address, key, old) = (RETH.address, RETH.key, 0x5152_5354_5556_5758);
    let (swap, compare) = (0x6162_6364_6566_6768, 0x7172_7374_7576_7778);
    let flush = Operation::Flush { placement: 2, selectivity: 1, reth: RETH };
    let requests = [
        (0x0c, Operation::ReadRequest(RETH), RETH_HEX),
        (
            0x13,
            Operation::CompareSwap { address, key, swap, compare },
            "01020304 05060708 11121314 61626364 65666768 71727374 75767778",
        ),
        (
            0x14,
            Operation::FetchAdd { address, key, add: 5 },
            "01020304 05060708 11121314 00000000 00000005 00000000 00000000",
        ),
        (0x16, Operation::SendLast(Ending::Invalidate(key)), "11121314"),
        (0x17, Operation::SendOnly(Ending::Invalidate(key)), "11121314"),
        (0x1c, flush, "00000012 01020304 05060708 11121314 21222324"),
        (0x1d, Operation::AtomicWrite(RETH), RETH_HEX),
    ];
    for (code, operation, headers) in requests {
        assert!(!operation.is_response());
        golden(code, Transport::Rc, operation, headers);
        golden(0xa0 | code, XRC, operation, &std::format!("00333435 {headers}"));
    }
    let responses = [
        (0x0d, Operation::ReadResponseFirst(AETH), AETH_HEX),
        (0x0e, Operation::ReadResponseMiddle, ""),
        (0x0f, Operation::ReadResponseLast(AETH), AETH_HEX),
        (0x10, Operation::ReadResponseOnly(AETH), AETH_HEX),
        (0x11, Operation::Acknowledge(AETH), AETH_HEX),
        (0x12, Operation::AtomicAcknowledge { aeth: AETH, old }, "620a0b0c 51525354 55565758"),
    ];
    for (code, operation, headers) in responses {
        assert!(operation.is_response());
        golden(code, Transport::Rc, operation, headers);
        golden(0xa0 | code, XRC_RESPONSE, operation, headers);
    }
}

/// Rules: PK-06, PK-07, OP-04, OP-05
#[test]
fn a_datagram_says_where_it_comes_from() {
    let deth = "80010000 00444546";
    golden(0x64, UD, Operation::SendOnly(Ending::Plain), deth);
    let immediate = Operation::SendOnly(Ending::Immediate(IMMEDIATE));
    golden(0x65, UD, immediate, &std::format!("{deth} a1a2a3a4"));
}

/// Rules: OP-26
#[test]
fn other_opcodes_are_reserved_or_of_no_service() {
    for opcode in 0..=u8::MAX {
        let code = opcode & 0x1f;
        let mut datagram = bth(opcode, 0).to_vec();
        datagram.extend([0; Packet::MAX_HEADER + ICRC_BYTES]);
        let operation = Packet::parse(&datagram).map(|packet| packet.operation);
        let of_connection = matches!(code, 0..=0x14 | 0x16 | 0x17 | 0x1c | 0x1d);
        let exists = match opcode >> 5 {
            0 | 5 => of_connection,
            1 => code < 0x0c,
            3 => code == 4 || code == 5,
            4 if code == 1 => {
                assert_eq!(operation, Ok(Operation::Congestion));
                continue;
            }
            _ => {
                assert_eq!(operation, Err(Malformed::Transport), "{opcode:#04x}");
                continue;
            }
        };
        match operation {
            Ok(Operation::Reserved(reserved)) => assert!(!exists && reserved == code, "{opcode}"),
            Ok(operation) => assert!(exists && operation.code() == code, "{opcode:#04x}"),
            Err(error) => panic!("{opcode:#04x}: {error:?}"),
        }
    }
    // The headers of a reserved opcode are unknown, so everything after the service's own header is payload.
    golden(0x15, Transport::Rc, Operation::Reserved(0x15), "");
    golden(0x2c, Transport::Uc, Operation::Reserved(0x0c), "");
    golden(0x77, UD, Operation::Reserved(0x17), "80010000 00444546");
    golden(0xb8, XRC_RESPONSE, Operation::Reserved(0x18), "");
}

/// Rules: PK-15
#[test]
fn reserved_bits_are_ignored() {
    let written = |packet: &Packet| {
        let mut datagram = std::vec![0; packet.length()];
        packet.write(&mut datagram);
        datagram
    };
    // Reserved bits of the BTH, then those of the header that follows.
    let flush = Operation::Flush { placement: 1, selectivity: 2, reth: RETH };
    let send = Operation::SendOnly(Ending::Plain);
    let cases = [
        packet(Transport::Rc, flush, &[1]),
        packet(UD, send, &[1]),
        packet(XRC, send, &[1]),
        packet(Transport::Rc, Operation::Congestion, &[]),
    ];
    let masks: [&[(usize, u8)]; 4] = [
        &[(12, 0xff), (13, 0xff), (14, 0xff), (15, 0xc0)],
        &[(16, 0xff)],
        &[(12, 0xff)],
        &[(20, 1)],
    ];
    for (packet, masks) in cases.iter().zip(masks) {
        let mut datagram = written(packet);
        datagram[4] |= 0x3f;
        datagram[8] |= 0x7f;
        for (at, mask) in masks {
            datagram[*at] |= mask;
        }
        assert_eq!(Packet::parse(&datagram), Ok(*packet));
    }
}

/// Rules: PK-13
#[test]
fn another_version_is_no_packet() {
    for version in 1..16 {
        let mut datagram = bth(0x04, 0).to_vec();
        datagram.extend([0; ICRC_BYTES]);
        datagram[1] |= version;
        assert_eq!(Packet::parse(&datagram), Err(Malformed::Version));
    }
}

/// Rules: NET-13, PK-08
#[test]
fn what_is_too_short_for_its_headers_and_pad_is_no_packet() {
    let atomic = Operation::CompareSwap { address: 0, key: 0, swap: 0, compare: 0 };
    let flush = Operation::Flush { placement: 0, selectivity: 0, reth: RETH };
    let immediate = Operation::SendOnly(Ending::Immediate(1));
    for packet in [packet(XRC, atomic, &[]), packet(XRC, flush, &[]), packet(UD, immediate, &[])] {
        let mut datagram = std::vec![0; packet.length()];
        packet.write(&mut datagram);
        for length in 0..datagram.len() {
            let reason = if length % 4 == 0 { Malformed::Short } else { Malformed::Length };
            assert_eq!(Packet::parse(&datagram[..length]), Err(reason), "{length} of {packet:?}");
        }
        datagram[1] |= 0x10;
        assert_eq!(Packet::parse(&datagram), Err(Malformed::Short), "a pad without payload");
    }
}
