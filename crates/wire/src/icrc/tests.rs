use std::vec;
use std::vec::Vec;

use super::*;
use crate::Psn;
use crate::packet::{Aeth, Ending, Operation, Packet, Transport};

/// Vector A of rules H.6: a congestion notification of a ConnectX-4 Lx, from the BTH on.
const A: [u8; 32] = [
    0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0x82, 0xfd, 0x00, 0x2a,
];
const A_IDENTIFICATION: u16 = 0x718c;

fn path(source: &str, port: u16, destination: &str) -> Path {
    Path::new(source.parse().unwrap(), port, destination.parse().unwrap()).unwrap()
}

fn path_of_a() -> Path {
    path("10.0.17.1", 0, "10.0.18.1")
}

/// Rules: CRC-01, CRC-02, CRC-03, CRC-05, CRC-07, CRC-08, CNP-01
#[test]
fn vector_a_a_congestion_notification_of_hardware() {
    let path = path_of_a();
    assert_eq!(path.icrc(A_IDENTIFICATION, &A[..28]), A[28..]);
    assert_eq!(path.check(A_IDENTIFICATION, &A), Verdict::Right);
    assert_eq!(path.check(0, &A), Verdict::Identified(A_IDENTIFICATION));

    let notification = Packet {
        transport: Transport::Rc,
        operation: Operation::Congestion,
        solicited: false,
        migrated: false,
        pkey: 0xffff,
        fecn: false,
        becn: true,
        to: 0x118,
        ack_request: false,
        psn: Psn::new(0),
        payload: &[],
    };
    assert_eq!(Packet::parse(&A), Ok(notification));
    let mut written = A;
    written[..28].fill(0xaa);
    assert_eq!(notification.write(&mut written), 28);
    assert_eq!(written, A);
}

/// Vector B: a SEND on an unreliable connection, with its IP and UDP headers.
///
/// Rules: CRC-01, CRC-02, CRC-03, CRC-05, CRC-08, PK-01, PK-08
#[test]
fn vector_b_a_send_with_a_pad() {
    let payload = *b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P";
    let operation = Operation::SendOnly(Ending::Plain);
    let send = Packet::new(Transport::Uc, operation, 211, Psn::new(13_571_856));
    let send = Packet { payload: &payload, ..send };
    let mut datagram = [0; 36];
    assert_eq!((send.length(), send.pad()), (36, 2));
    assert_eq!(send.write(&mut datagram), 32);
    let path = path("192.168.0.7", 49_152, "192.168.0.7");
    let icrc = path.icrc(1144, &datagram[..32]);
    assert_eq!(icrc, [0x78, 0xf3, 0x53, 0xf3]);
    datagram[32..].copy_from_slice(&icrc);
    assert_eq!(Packet::parse(&datagram), Ok(send));
    assert_eq!(path.check(1144, &datagram), Verdict::Right);
    assert_eq!(path.check(1145, &datagram), Verdict::Identified(1144));
}

/// Vector C, which was made with another program and not captured.
///
/// Rules: CRC-02, CRC-04, CRC-05
#[test]
fn vector_c_an_acknowledgement_over_ipv6() {
    let operation = Operation::Acknowledge(Aeth { byte: 0x1f, msn: 3 });
    let acknowledgement = Packet::new(Transport::Rc, operation, 0x12, Psn::new(5));
    let mut datagram = [0x1d, 0x1e, 0x9d, 0xfd].repeat(5);
    assert_eq!(acknowledgement.write(&mut datagram), 16);
    let path = path("fe80::1", 0xc123, "fe80::2");
    assert_eq!(path.icrc(0, &datagram[..16]), datagram[16..]);
    assert_eq!(path.check(0, &datagram), Verdict::Right);
}

/// Rules: CRC-06
#[test]
fn every_bit_counts_except_those_that_change_on_the_way() {
    let check = |path: &Path, datagram: &[u8; 32]| path.check(A_IDENTIFICATION, datagram);
    for at in 0..A.len() * 8 {
        let mut damaged = A;
        damaged[at / 8] ^= 1 << (at % 8);
        let masked = at / 8 == CONGESTION_AT;
        let expected = if masked { Verdict::Right } else { Verdict::Wrong };
        assert_eq!(check(&path_of_a(), &damaged), expected, "bit {at}");
    }
    for path in [
        path("10.0.17.2", 0, "10.0.18.1"),
        path("10.0.17.1", 1, "10.0.18.1"),
        path("10.0.17.1", 0, "10.0.18.2"),
        path("fe80::1", 0, "fe80::2"),
    ] {
        assert_eq!(check(&path, &A), Verdict::Wrong, "{path:?}");
    }
}

/// Rules: CRC-03
#[test]
fn any_identification_is_found_again_at_any_length() {
    let path = path("192.0.2.1", 0xc000, "198.51.100.2");
    for length in [12, 16, 268, 1036, 1040, 4108, 4140, 65_480] {
        let mut datagram = vec![0x5a; length + ICRC_BYTES];
        for identification in [0, 1, 0x00ff, 0x0100, 0x8000, 0xfffe, 0xffff] {
            let icrc = path.icrc(identification, &datagram[..length]);
            datagram[length..].copy_from_slice(&icrc);
            assert_eq!(path.check(identification, &datagram), Verdict::Right);
            let other = identification ^ 0x1234;
            assert_eq!(path.check(other, &datagram), Verdict::Identified(identification));
            datagram[12 - 1] ^= 1;
            assert_eq!(path.check(other, &datagram), Verdict::Wrong, "{length}");
            datagram[12 - 1] ^= 1;
        }
    }
}

/// Rules: CRC-02, CRC-03, CRC-06
#[test]
fn packets_of_a_series_have_the_icrc_that_they_have_alone() {
    let paths = [path("192.0.2.1", 0xc000, "198.51.100.2"), path("fd00::1", 0xc001, "fd00::2")];
    let bytes: Vec<u8> = (0..5000_u32).map(|at| ((at * at) >> 3) as u8).collect();
    for path in paths {
        let mut series = Series::new(path);
        for payload in [256, 1024, 512, 1024, 1040, 4096, 2048, 0, 4092, 4096] {
            let mut packet = bytes[..BTH_BYTES + payload].to_vec();
            // Each bit of either, and all.
            for bit in 0..=16 {
                let identification = (1_u32 << bit) as u16;
                packet[CONGESTION_AT] = identification as u8 ^ MASKED;
                for identification in [identification, !identification] {
                    let icrc = path.icrc(identification, &packet);
                    assert_eq!(series.icrc(identification, &packet), icrc, "{payload} {bit}");
                    let datagram = [&packet[..], &icrc].concat();
                    assert_eq!(series.check(identification, &datagram), Verdict::Right);
                }
            }
        }
    }
}

#[test]
fn what_is_no_datagram_is_wrong() {
    let datagram = vec![0; 70_000];
    for length in (0..16).chain([17, 65_520, 65_535, 65_536, 65_540, 70_000]) {
        assert_eq!(path_of_a().check(0, &datagram[..length]), Verdict::Wrong, "{length}");
    }
}

/// Rules: NET-08
#[test]
fn a_mapped_address_is_an_ipv4_address() {
    let mapped = path("::ffff:10.0.17.1", 0, "::ffff:10.0.18.1");
    assert_eq!(mapped, path_of_a());
    assert_eq!(Path::new("::1".parse().unwrap(), 0, "127.0.0.1".parse().unwrap()), None);
}

/// Rules: CRC-02
#[test]
fn a_packet_in_pieces_has_the_icrc_of_the_whole() {
    let (bth, rest) = A[..28].split_first_chunk().unwrap();
    let mut icrc = Icrc::new(&path_of_a(), A_IDENTIFICATION, A.len(), bth);
    rest.chunks(3).for_each(|piece| icrc.update(piece));
    assert_eq!(icrc.finish(), A[28..]);
}

/// A packet with its ICRC. `all` holds the masked IP headers before it.
fn behind(mut all: Vec<u8>, path: &Path, packet: &[u8]) -> Vec<u8> {
    let udp_length = (UDP_BYTES + packet.len() + ICRC_BYTES) as u16;
    all.extend(path.port.to_be_bytes().iter().chain(&PORT.to_be_bytes()));
    all.extend(udp_length.to_be_bytes().iter().chain(&[MASKED; 2]));
    let bth = all.len();
    all.extend(packet);
    all[bth + CONGESTION_AT] = MASKED;
    let mut hasher = Hasher::new();
    hasher.update(&all);
    [packet, &hasher.finalize().to_le_bytes()].concat()
}

/// A UDP socket does not show fragments or the options of IPv4 either: the system puts the datagram together, and
/// leaves out the options. The ICRC of such a packet is wrong, because we compute it for a whole packet without
/// options.
///
/// Rules: NET-05
#[test]
fn a_packet_in_fragments_or_with_options_is_wrong() {
    const OPTIONS: [u8; 4] = [1, 1, 1, 0];
    let path = path_of_a();
    let packet = &A[..28];
    let Addresses::V4 { source, destination } = path.addresses else { unreachable!() };
    let udp_length = (UDP_BYTES + packet.len() + ICRC_BYTES) as u16;
    let datagram = |first: u8, flags: u16, options: &[u8], length: u16| {
        let mut all = vec![MASKED; 8];
        all.extend([first, MASKED]);
        all.extend(length.to_be_bytes().iter().chain(&A_IDENTIFICATION.to_be_bytes()));
        all.extend(flags.to_be_bytes().iter().chain(&[MASKED, UDP, MASKED, MASKED]));
        all.extend(source.octets().iter().chain(&destination.octets()).chain(options));
        behind(all, &path, packet)
    };
    let length = IPV4_BYTES as u16 + udp_length;
    let whole = datagram(0x45, DONT_FRAGMENT, &[], length);
    assert_eq!(path.check(A_IDENTIFICATION, &whole), Verdict::Right);
    for (wrong, what) in [
        (datagram(0x46, DONT_FRAGMENT, &OPTIONS, length + 4), "options"),
        (datagram(0x46, DONT_FRAGMENT, &[], length + 4), "options that the ICRC leaves out"),
        (datagram(0x45, 0, &[], length), "may be fragmented"),
        (datagram(0x45, 0x2000, &[], length - 8), "the first fragment"),
        (datagram(0x45, 0x0003, &[], length - 24), "the last fragment"),
    ] {
        for identification in [A_IDENTIFICATION, 0] {
            assert_eq!(path.check(identification, &wrong), Verdict::Wrong, "{what}");
        }
    }
}

/// A UDP socket does not show the extension headers of IPv6. But the ICRC covers the next header and the length of
/// IPv6. So the ICRC of such a packet is wrong here, whether its sender covers the extension headers or not.
///
/// Rules: NET-06
#[test]
fn a_packet_with_an_extension_header_is_wrong() {
    const DESTINATION_OPTIONS: u8 = 60;
    const OPTIONS: [u8; 8] = [UDP, 0, 1, 4, 0, 0, 0, 0];
    let path = path("fd00::1", 0xc123, "fd00::2");
    let packet = &A[..28];
    let (source, destination) = match path.addresses {
        Addresses::V6 { source, destination } => (source.octets(), destination.octets()),
        Addresses::V4 { .. } => unreachable!(),
    };
    let udp_length = (UDP_BYTES + packet.len() + ICRC_BYTES) as u16;
    let icrc_with = |next: u8, extension: &[u8], covered: &[u8]| {
        let length = udp_length + extension.len() as u16;
        let mut all = vec![MASKED; 8];
        all.extend([0x6f, MASKED, MASKED, MASKED]);
        all.extend(length.to_be_bytes());
        all.extend([next, MASKED]);
        all.extend(source.iter().chain(&destination).chain(covered));
        behind(all, &path, packet)
    };
    assert_eq!(path.check(0, &icrc_with(UDP, &[], &[])), Verdict::Right);
    for covered in [&OPTIONS[..], &[]] {
        let datagram = icrc_with(DESTINATION_OPTIONS, &OPTIONS, covered);
        assert_eq!(path.check(0, &datagram), Verdict::Wrong);
    }
}
