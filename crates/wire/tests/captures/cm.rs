//! The messages of Linux's connection manager, in the capture of `rping`.

use std::iter::repeat_n;
use std::net::IpAddr;

use transom_wire::Psn;
use transom_wire::cm::service::Addresses;
use transom_wire::cm::*;
use transom_wire::packet::{Operation, Packet, Transport as Service};

use crate::reader::{Captured, captured};

/// The datagrams of `rping`'s connection, in order, with the packets they came in.
fn exchange() -> Vec<(Captured, Mad)> {
    let managed = |captured: Captured| {
        let packet = Packet::parse(&captured.datagram).ok()?;
        let Service::Ud { qkey: GSI_QKEY, source: GSI_QPN } = packet.transport else { return None };
        let mad =
            Mad::parse(packet.payload).unwrap_or_else(|why| panic!("{}: {why}", captured.name));
        Some((captured.clone(), mad))
    };
    captured().into_iter().filter_map(managed).collect()
}

fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Rules: CM-01, CM-02, CM-07
#[test]
fn every_captured_message_is_written_to_the_bytes_it_came_in() {
    let exchange = exchange();
    let names: Vec<_> = exchange.iter().map(|(_, mad)| mad.message.name()).collect();
    assert_eq!(names, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    for (captured, mad) in exchange {
        let packet = Packet::parse(&captured.datagram).unwrap();
        assert_eq!(packet.payload, mad.write(), "{}", captured.name);
        assert!(matches!(packet.operation, Operation::SendOnly(_)));
        assert_eq!((packet.to, packet.pkey), (GSI_QPN, 0xffff));
    }
}

/// The fields of Linux's REQ, REP and DREQ.
///
/// Rules: CM-04, CM-05, CM-06, CM-11, CM-44
#[test]
fn the_captured_messages_say_what_linux_is_known_to_say() {
    let exchange = exchange();
    let [
        Message::Req(req),
        Message::Rep(rep),
        Message::Rtu(rtu),
        Message::Dreq(dreq),
        Message::Drep(drep),
    ] = [0, 1, 2, 3, 4].map(|number| exchange[number].1.message.clone())
    else {
        panic!("{exchange:?}")
    };
    assert_eq!(req.service.port(), Some((PortSpace::Tcp, 7174)));
    let code = |code| TimeCode::new(code).unwrap();
    assert_eq!((req.remote_response_timeout, req.local_response_timeout), (code(20), code(20)));
    assert_eq!((req.max_cm_retries.get(), req.retry_count.get()), (15, 7));
    assert_eq!((req.rnr_retry_count.get(), req.mtu), (7, PathMtu::B1024));
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!(
        (req.transport, req.pkey, req.srq, req.ece),
        (Transport::Rc, 0xffff, false, Ece::default())
    );
    assert_eq!(req.starting_psn, Psn::new(1_204_227));

    let captured = &exchange[0].0;
    let path = req.primary;
    assert_eq!(
        (path.local_gid, path.remote_gid),
        (bytes(captured.source), bytes(captured.destination))
    );
    assert_eq!((path.local_lid, path.remote_lid, path.subnet_local), (0xffff, 0xffff, false));
    assert_eq!((path.hop_limit, path.rate.get(), path.local_ack_timeout), (64, 0, code(19)));
    assert_eq!(req.alternate, Path::ABSENT);
    let header = IpHeader::read(req.private_data.first_chunk().unwrap()).unwrap();
    assert_eq!(header.source_port, 0x88ce);
    let addresses = Addresses::new(captured.source, captured.destination);
    assert_eq!(Some(header.addresses), addresses);
    let (from, to) = (u32::from(header.source_port), 7174);
    assert_eq!(path.flow_label.get(), (from * 31 + to) & 0xf_ffff);

    assert_eq!((rep.remote_id, rep.starting_psn), (req.local_id, Psn::new(5_890_658)));
    assert_eq!(
        (rep.target_ack_delay, rep.failover.get(), rep.rnr_retry_count.get()),
        (code(15), 0, 7)
    );
    assert_ne!(rep.ca_guid, req.ca_guid);
    assert_eq!((rtu.local_id, rtu.remote_id), (req.local_id, rep.local_id));
    assert_eq!((dreq.remote_id, dreq.remote_qpn), (rep.local_id, rep.qpn));
    assert_eq!((drep.local_id, drep.remote_id), (dreq.remote_id, dreq.local_id));

    let transactions: Vec<_> = exchange.iter().map(|(_, mad)| mad.transaction).collect();
    assert_eq!(transactions, repeat_n(transactions[0], 5).collect::<Vec<_>>());
    // Linux takes the id's bytes for a number of its own byte order here.
    assert_eq!((transactions[0] as u32).swap_bytes(), req.local_id.0);
}
