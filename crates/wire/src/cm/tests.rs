use super::message::Answered;
use super::service::Addresses;
use super::*;

fn drep() -> Mad {
    let (local_id, remote_id) = (CommId(0x0102_0304), CommId(0x0506_0708));
    let message = Message::Drep(Drep { local_id, remote_id, private_data: [9; Drep::PRIVATE] });
    Mad { transaction: 0x1122_3344_5566_7788, message }
}

/// Rules: CM-01, CM-02
#[test]
fn the_header_is_that_of_its_class() {
    let bytes = drep().write();
    assert_eq!(bytes[..8], [1, 7, 2, 3, 0, 0, 0, 0]);
    assert_eq!(
        bytes[8..24],
        [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0x16, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(bytes[24..33], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// Rules: CM-02, CM-12
#[test]
fn what_is_no_message_is_not_read() {
    let bytes = drep().write();
    for length in (0..256).chain(257..300) {
        let mut other = bytes.to_vec();
        other.resize(length, 0);
        assert_eq!(Mad::parse(&other), Err(Ignored::Length));
    }
    for at in 0..4 {
        let mut other = bytes;
        other[at] ^= 0x81;
        assert_eq!(Mad::parse(&other), Err(Ignored::Kind));
    }
    for attribute in 0..0x200 {
        let mut other = bytes;
        other[16..18].copy_from_slice(&u16::to_be_bytes(attribute));
        let read = Mad::parse(&other);
        match attribute {
            // All bytes after the ids are nines, which is no MTU.
            0x10 => assert!(matches!(read, Err(Ignored::Impossible { .. }))),
            0x11..=0x18 => assert!(read.is_ok(), "{attribute:#x}: {read:?}"),
            0x19 | 0x1a => assert_eq!(read, Err(Ignored::AlternatePath)),
            _ => assert_eq!(read, Err(Ignored::Attribute(attribute))),
        }
    }
}

#[test]
fn reserved_values_are_not_read() {
    for attribute in [0x11, 0x12] {
        let mut bytes = drep().write();
        bytes[17] = attribute;
        bytes[24 + 8] = 0xc0;
        assert_eq!(Mad::parse(&bytes), Err(Ignored::Reserved));
    }
    for (attribute, at, length) in [(0x12, 9, 73 << 1), (0x18, 5, 73)] {
        let mut bytes = drep().write();
        bytes[17] = attribute;
        bytes[24 + at] = length;
        assert_eq!(Mad::parse(&bytes), Err(Ignored::Reserved));
    }
}

/// Rules: CM-13
#[test]
fn a_req_for_what_does_not_exist_says_how_to_refuse_it() {
    let mut bytes = [0; MAD_BYTES];
    bytes[..4].copy_from_slice(&KIND);
    bytes[17] = 0x10;
    bytes[27] = 7;
    let impossible =
        |reason| Err(Ignored::Impossible { transaction: 0, local_id: CommId(7), reason });
    for (mtu, reason) in [(0, RejectReason::InvalidMtu), (6, RejectReason::InvalidMtu)] {
        bytes[24 + 50] = mtu << 4;
        assert_eq!(Mad::parse(&bytes), impossible(reason));
    }
    bytes[24 + 50] = 3 << 4;
    assert!(Mad::parse(&bytes).is_ok());
    for (transport, extended) in [(2, 0), (3, 0), (3, 2)] {
        let mut bytes = bytes;
        bytes[24 + 43] = transport << 1;
        bytes[24 + 51] = extended;
        assert_eq!(Mad::parse(&bytes), impossible(RejectReason::InvalidTransportType));
    }
}

/// Rules: CM-06
#[test]
fn a_service_id_has_port_space_and_port() {
    assert_eq!(ServiceId::of(PortSpace::Tcp, 7471).0, 0x0106_1d2f);
    assert_eq!(ServiceId(0x0111_0007).port(), Some((PortSpace::Udp, 7)));
    assert_eq!(ServiceId(0x013f_ffff).port(), Some((PortSpace::Ib, 0xffff)));
    assert_eq!(ServiceId(0x0002_0001).port(), Some((PortSpace::Ipoib, 1)));
    assert_eq!(ServiceId(0x0107_0001).port(), None);
    assert_eq!(ServiceId(0x0001_0106_0001).port(), None);
}

/// Rules: CM-07
#[test]
fn private_data_has_the_room_that_is_left() {
    let sizes = [
        Req::PRIVATE,
        Rep::PRIVATE,
        Rtu::PRIVATE,
        Rej::PRIVATE,
        Mra::PRIVATE,
        Dreq::PRIVATE,
        Drep::PRIVATE,
        SidrReq::PRIVATE,
        SidrRep::PRIVATE,
    ];
    assert_eq!(sizes, [92, 196, 224, 148, 222, 220, 224, 216, 136]);
    assert_eq!((Req::PRIVATE - IpHeader::BYTES, SidrReq::PRIVATE - IpHeader::BYTES), (56, 180));
}

/// Rules: CM-07
#[test]
fn a_header_has_its_addresses_at_the_end_of_their_room() {
    let (source, destination) = ([10, 77, 0, 102].into(), [10, 77, 0, 101].into());
    let header = IpHeader { source_port: 0x88ce, addresses: Addresses::V4 { source, destination } };
    let bytes = header.write();
    assert_eq!(bytes[..4], [0, 0x40, 0x88, 0xce]);
    assert_eq!(bytes[4..20], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 77, 0, 102]);
    assert_eq!(bytes[20..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 77, 0, 101]);
    assert_eq!(IpHeader::read(&bytes), Some(header));
    for (at, byte) in [(0, 1), (0, 0x10), (1, 0x50), (1, 0)] {
        let mut other = bytes;
        other[at] = byte;
        assert_eq!(IpHeader::read(&other), None);
    }
}

#[test]
fn every_reason_and_status_keeps_its_number() {
    for code in 0..=u16::MAX {
        assert_eq!(RejectReason::from_code(code).code(), code);
    }
    for code in 0..=u8::MAX {
        assert_eq!(SidrStatus::from_code(code).code(), code);
    }
    let named = |code| !matches!(RejectReason::from_code(code), RejectReason::Other(_));
    assert_eq!((0..100).filter(|code| named(*code)).count(), 34);
    assert!(!named(0) && !named(34) && named(35));
}

/// Rules: CM-14
#[test]
fn times_are_counted_as_linux_does() {
    let milliseconds = |code| TimeCode::new(code).unwrap().milliseconds();
    assert_eq!([0, 8, 9, 16, 20, 24].map(milliseconds), [1, 1, 2, 256, 4096, 65_536]);
    assert_eq!((milliseconds(31), TimeCode::new(32)), (1 << 23, None));
}

/// Rules: CM-20, CM-27
#[test]
fn a_message_says_for_which_end_it_is() {
    let (local_id, remote_id) = (CommId(1), CommId(2));
    let mut rej = Rej {
        local_id,
        remote_id,
        rejected: Rejected::Req,
        reason: RejectReason::Consumer,
        information: Information::new(&7_u64.to_be_bytes()).unwrap(),
        private_data: [0; Rej::PRIVATE],
    };
    let receiver =
        |rej: &Rej| Mad { transaction: 0, message: Message::Rej(rej.clone()) }.receiver();
    assert_eq!(receiver(&rej), Receiver::Id(remote_id));
    rej.reason = RejectReason::Timeout;
    assert_eq!(receiver(&rej), Receiver::Peer(7, local_id));
    rej.information = Information::NONE;
    assert_eq!(receiver(&rej), Receiver::Id(remote_id));

    let (answered, service_timeout) = (Answered::Req, TimeCode::MAX);
    let private_data = [0; Mra::PRIVATE];
    let mra = Message::Mra(Mra { local_id, remote_id, answered, service_timeout, private_data });
    assert_eq!(Mad { transaction: 0, message: mra }.receiver(), Receiver::Id(remote_id));
}
