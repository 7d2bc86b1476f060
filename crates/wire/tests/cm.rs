//! Laws for every message of connection management, and for all bytes that are none.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use transom_wire::Psn;
use transom_wire::cm::message::Answered;
use transom_wire::cm::service::Addresses;
use transom_wire::cm::*;

fn bits<const N: u32>() -> impl Strategy<Value = Bits<N>> {
    any::<u32>().prop_map(Bits::low)
}

fn id() -> impl Strategy<Value = CommId> {
    any::<u32>().prop_map(CommId)
}

fn time() -> impl Strategy<Value = TimeCode> {
    bits().prop_map(TimeCode::of)
}

fn private<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().unwrap())
}

fn ece() -> impl Strategy<Value = Ece> {
    (bits(), any::<u32>()).prop_map(|(vendor, options)| Ece { vendor, options })
}

fn information() -> impl Strategy<Value = Information> {
    vec(any::<u8>(), 0..=Information::MAX).prop_map(|bytes| Information::new(&bytes).unwrap())
}

fn reason() -> impl Strategy<Value = RejectReason> {
    prop_oneof![0..40_u16, any::<u16>()].prop_map(RejectReason::from_code)
}

fn status() -> impl Strategy<Value = SidrStatus> {
    prop_oneof![0..8_u8, any::<u8>()].prop_map(SidrStatus::from_code)
}

prop_compose! {
    fn path()(
        (local_lid, remote_lid, local_gid, remote_gid) in any::<(u16, u16, [u8; 16], [u8; 16])>(),
        (flow_label, rate, sl, local_ack_timeout) in (bits(), bits(), bits(), time()),
        (traffic_class, hop_limit, subnet_local) in any::<(u8, u8, bool)>(),
    ) -> Path {
        Path {
            local_lid, remote_lid, local_gid, remote_gid, flow_label, rate, traffic_class, hop_limit,
            sl, subnet_local, local_ack_timeout,
        }
    }
}

prop_compose! {
    fn req()(
        (local_id, ece, qpn, eecn, remote_eecn) in (id(), ece(), bits(), bits(), bits()),
        (service, ca_guid, qkey) in any::<(u64, u64, u32)>(),
        (responder_resources, initiator_depth, psn, pkey) in any::<(u8, u8, u32, u16)>(),
        (flow_control, rdc_exists, srq) in any::<[bool; 3]>().prop_map(Into::into),
        transport in select(vec![Transport::Rc, Transport::Uc, Transport::Xrc]),
        mtu in (1..=5_u32).prop_map(|code| PathMtu::from_code(code).unwrap()),
        (remote_response_timeout, local_response_timeout) in (time(), time()),
        (retry_count, rnr_retry_count, max_cm_retries) in (bits(), bits(), bits()),
        (primary, alternate, private_data) in (path(), path(), private()),
    ) -> Req {
        Req {
            local_id, ece, service: ServiceId(service), ca_guid, qkey, qpn, responder_resources, eecn,
            initiator_depth, remote_eecn, remote_response_timeout, transport, flow_control,
            starting_psn: Psn::new(psn), local_response_timeout, retry_count, pkey, mtu, rdc_exists,
            rnr_retry_count, max_cm_retries, srq, primary, alternate, private_data,
        }
    }
}

prop_compose! {
    fn rep()(
        (local_id, remote_id, ece, qpn, eecn) in (id(), id(), ece(), bits(), bits()),
        (ca_guid, qkey, psn) in any::<(u64, u32, u32)>(),
        (responder_resources, initiator_depth) in any::<(u8, u8)>(),
        (flow_control, srq) in any::<(bool, bool)>(),
        (target_ack_delay, failover, rnr_retry_count) in (time(), bits(), bits()),
        private_data in private(),
    ) -> Rep {
        Rep {
            local_id, remote_id, ece, qkey, qpn, eecn, starting_psn: Psn::new(psn),
            responder_resources, initiator_depth, target_ack_delay, failover, flow_control,
            rnr_retry_count, srq, ca_guid, private_data,
        }
    }
}

prop_compose! {
    fn mra()(
        (local_id, remote_id, service_timeout, private_data) in (id(), id(), time(), private()),
        answered in select(vec![Answered::Req, Answered::Rep, Answered::Lap]),
    ) -> Mra {
        Mra { local_id, remote_id, answered, service_timeout, private_data }
    }
}

prop_compose! {
    fn rej()(
        (local_id, remote_id, reason) in (id(), id(), reason()),
        rejected in select(vec![Rejected::Req, Rejected::Rep, Rejected::Other]),
        (information, private_data) in (information(), private()),
    ) -> Rej {
        Rej { local_id, remote_id, rejected, reason, information, private_data }
    }
}

prop_compose! {
    fn sidr_rep()(
        (request_id, status, information, ece) in (id(), status(), information(), ece()),
        (qpn, service, qkey, private_data) in (bits(), any::<u64>(), any::<u32>(), private()),
    ) -> SidrRep {
        SidrRep { request_id, status, information, ece, qpn, service: ServiceId(service), qkey, private_data }
    }
}

fn message() -> impl Strategy<Value = Message> {
    let rtu = (id(), id(), private()).prop_map(|(local_id, remote_id, private_data)| Rtu {
        local_id,
        remote_id,
        private_data,
    });
    let drep = (id(), id(), private()).prop_map(|(local_id, remote_id, private_data)| Drep {
        local_id,
        remote_id,
        private_data,
    });
    let dreq = (id(), id(), bits(), private()).prop_map(
        |(local_id, remote_id, remote_qpn, private_data)| Dreq {
            local_id,
            remote_id,
            remote_qpn,
            private_data,
        },
    );
    let sidr_req = (id(), any::<(u16, u64)>(), private()).prop_map(
        |(request_id, (pkey, service), private_data)| SidrReq {
            request_id,
            pkey,
            service: ServiceId(service),
            private_data,
        },
    );
    prop_oneof![
        req().prop_map(Message::Req),
        mra().prop_map(Message::Mra),
        rej().prop_map(Message::Rej),
        rep().prop_map(Message::Rep),
        rtu.prop_map(Message::Rtu),
        dreq.prop_map(Message::Dreq),
        drep.prop_map(Message::Drep),
        sidr_req.prop_map(Message::SidrReq),
        sidr_rep().prop_map(Message::SidrRep),
    ]
}

fn header() -> impl Strategy<Value = IpHeader> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(source, destination)| Addresses::V4 {
        source: source.into(),
        destination: destination.into(),
    });
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(source, destination)| Addresses::V6 {
        source: source.into(),
        destination: destination.into(),
    });
    (any::<u16>(), prop_oneof![v4, v6])
        .prop_map(|(source_port, addresses)| IpHeader { source_port, addresses })
}

proptest! {
    /// Rules: CM-01, CM-02
    #[test]
    fn a_message_reads_as_it_was_written(message in message(), transaction: u64) {
        let mad = Mad { transaction, message };
        prop_assert_eq!(Mad::parse(&mad.write()), Ok(mad));
    }

    #[test]
    fn any_bytes_are_no_message_or_one_that_is_written_as_it_was_read(
        mut bytes in private::<MAD_BYTES>(),
        attribute in 0x0f..0x1c_u8,
    ) {
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&[0, attribute]);
        if let Ok(mad) = Mad::parse(&bytes) {
            prop_assert_eq!(mad.message.attribute(), u16::from(attribute));
            prop_assert_eq!(Mad::parse(&mad.write()), Ok(mad));
        }
    }

    /// Rules: CM-07
    #[test]
    fn a_header_with_addresses_reads_as_it_was_written(header in header()) {
        prop_assert_eq!(IpHeader::read(&header.write()), Some(header));
    }
}
