//! The packets of Linux rxe in `captures`: we read, write and check them as rxe does.

use std::collections::BTreeSet;

use transom_wire::Syndrome;
use transom_wire::icrc::{Path, Verdict};
use transom_wire::packet::{ICRC_BYTES, Operation, Packet};

#[path = "captures/cm.rs"]
mod cm;
#[path = "captures/reader.rs"]
mod reader;

use reader::{Captured, captured};

fn path(captured: &Captured) -> Path {
    Path::new(captured.source, captured.source_port, captured.destination).unwrap()
}

fn parse(captured: &Captured) -> Packet<'_> {
    Packet::parse(&captured.datagram).unwrap_or_else(|error| panic!("{}: {error:?}", captured.name))
}

/// Rules: PK-01, PK-02, PK-03, PK-04, PK-05, PK-06, PK-07, PK-08
#[test]
fn every_packet_is_written_to_the_bytes_it_came_in() {
    let all = captured();
    assert_eq!(all.len(), 1_400);
    for captured in &all {
        let packet = parse(captured);
        let (sent, _) = captured.datagram.split_last_chunk::<ICRC_BYTES>().unwrap();
        let mut written = vec![0xaa; sent.len()];
        assert_eq!(packet.write(&mut written), sent.len());
        assert_eq!(packet.length(), captured.datagram.len());
        assert_eq!(written, sent, "{}: {packet:?}", captured.name);
    }
}

/// Rules: CRC-01, CRC-02, CRC-03, CRC-04, CRC-05, CRC-07, CRC-08
#[test]
fn every_icrc_is_right() {
    for captured in captured() {
        let (packet, icrc) = captured.datagram.split_last_chunk().unwrap();
        let path = path(&captured);
        assert_eq!(path.icrc(captured.identification, packet), *icrc, "{}", captured.name);
        let verdict = path.check(captured.identification, &captured.datagram);
        assert_eq!(verdict, Verdict::Right, "{}", captured.name);
    }
}

/// Rules: CRC-03
#[test]
fn every_identification_is_found_without_the_ip_header() {
    let mut found = BTreeSet::new();
    for captured in captured().iter().filter(|captured| captured.source.is_ipv4()) {
        let other = captured.identification ^ 0x8001;
        let verdict = path(captured).check(other, &captured.datagram);
        assert_eq!(verdict, Verdict::Identified(captured.identification), "{}", captured.name);
        found.insert(captured.identification);
    }
    assert!(found.len() > 500, "rxe counts: {} numbers", found.len());
}

#[test]
fn a_damaged_packet_is_never_right() {
    for (number, captured) in captured().iter().enumerate() {
        let mut datagram = captured.datagram.clone();
        // Any place but the byte of the BTH that is not covered.
        let at = match number * 7 % datagram.len() {
            4 => 5,
            at => at,
        };
        datagram[at] ^= 1 << (number % 8);
        let verdict = path(captured).check(captured.identification, &datagram);
        assert_ne!(verdict, Verdict::Right, "{} byte {at}", captured.name);
    }
}

/// The captures have every opcode that rxe sends, so the tests above cover each.
///
/// Rules: OP-00, OP-01, OP-02, OP-03, OP-04, OP-05, OP-06, OP-07, OP-08, OP-09, OP-10, OP-11, OP-12,
/// OP-13, OP-14, OP-15, OP-16, OP-17, OP-18, OP-19, OP-20, OP-23
#[test]
fn the_captures_have_every_opcode_that_rxe_sends() {
    let captured = captured();
    let opcodes: BTreeSet<u8> = captured.iter().map(|captured| parse(captured).opcode()).collect();
    let connected = (0x00..=0x14).chain([0x17]);
    let unreliable = (0x20..=0x2b).filter(|opcode| !matches!(opcode, 0x23 | 0x29 | 0x2a));
    let expected = connected.chain(unreliable).chain([0x64, 0x65]);
    assert_eq!(opcodes, expected.collect());
}

/// The README beside the captures says this about rxe. If we read the same, all fields are at their places.
#[test]
fn the_packets_say_what_rxe_is_known_to_say() {
    let mut negative = BTreeSet::new();
    for captured in captured() {
        let packet = parse(&captured);
        assert!(captured.source_port >= 0xc000, "{}", captured.name);
        assert_eq!(packet.pkey, 0xffff);
        assert!(!packet.migrated && !packet.fecn && !packet.becn);
        if let Operation::Acknowledge(aeth) = packet.operation {
            match aeth.syndrome() {
                Some(Syndrome::Ack { credits }) => assert_eq!(credits, 0x1f),
                _ => _ = negative.insert(aeth.byte),
            }
        }
    }
    let (not_ready, sequence, access, operational) = (0x2c, 0x60, 0x62, 0x63);
    assert_eq!(negative, BTreeSet::from([not_ready, sequence, access, operational]));
}
