//! The values of a queue pair's attributes: their ranges, and that a query tells them again.

use std::net::UdpSocket;

use transom_abi::*;
use transom_conformance::address_handles::from_the_other_family;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_conformance::queues::*;
use transom_host::Options;

/// A queue pair connected to itself, in a state, and what took it there.
fn in_state(end: &End, kind: ibv_qp_type, state: ibv_qp_state) -> (*mut ibv_qp, ibv_qp_attr) {
    let qp = end.qp(kind);
    take_to(end, qp, state);
    (qp, usual_attr(qp))
}

/// Makes one step with one attribute changed; zero or an errno.
fn step(
    end: &End,
    (from, to): (ibv_qp_state, ibv_qp_state),
    change: impl FnOnce(&mut ibv_qp_attr),
) -> i32 {
    let (qp, mut attr) = in_state(end, IBV_QPT_RC, from);
    change(&mut attr);
    let before = attributes(qp);
    let code = modify(qp, &attr, to);
    assert_eq!(state(qp), if code == 0 { to } else { from });
    assert!(code == 0 || attributes(qp) == before, "refused, yet something has changed");
    assert_eq!(destroy_qp(qp), 0);
    code
}

const TO_INIT: (ibv_qp_state, ibv_qp_state) = (IBV_QPS_RESET, IBV_QPS_INIT);
const TO_RTR: (ibv_qp_state, ibv_qp_state) = (IBV_QPS_INIT, IBV_QPS_RTR);
const TO_RTS: (ibv_qp_state, ibv_qp_state) = (IBV_QPS_RTR, IBV_QPS_RTS);

/// PSNs and queue pair numbers have 24 bits; those above are dropped.
/// Rules: ST-06
#[test]
fn numbers_of_24_bits_lose_their_upper_bits() {
    let end = End::new(Default::default());
    let (qp, mut attr) = in_state(&end, IBV_QPT_RC, IBV_QPS_INIT);
    attr.rq_psn = 0xff00_0001;
    attr.sq_psn = 0xabff_ffff;
    attr.dest_qp_num = 0x0100_0000 | number(qp);
    assert_eq!(modify(qp, &attr, IBV_QPS_RTR), 0);
    assert_eq!(modify(qp, &attr, IBV_QPS_RTS), 0);
    let found = query(qp);
    assert_eq!((found.rq_psn, found.sq_psn), (1, 0xff_ffff));
    assert_eq!(found.dest_qp_num, number(qp));
}

/// The cut numbers are those that count: ends that agree in 24 bits understand each other.
/// Rules: ST-06
#[test]
fn ends_that_agree_in_24_bits_are_connected() {
    let pair = Pair::unconnected(Link::Loopback, IBV_QPT_RC);
    let mut attr = usual_attr(pair.qb);
    attr.sq_psn = 0x7700_0005;
    attr.dest_qp_num |= 0xcc00_0000;
    bring_up(pair.qa, &attr);
    bring_up(pair.qb, &ibv_qp_attr { rq_psn: 5, ..usual_attr(pair.qa) });
    recv(pair.qb, 1, &mut []);
    post(pair.qa, &mut wr(IBV_WR_SEND));
    pair.b.expect(IBV_WC_SUCCESS);
    pair.a.expect(IBV_WC_SUCCESS);
}

/// Each attribute that a value can be too large or too small for refuses such, and takes the last
/// one that fits.
/// Rules: ST-07
#[test]
fn values_out_of_range_are_refused() {
    let end = End::new(Default::default());
    for (port, code) in [(0, libc::EINVAL), (1, 0), (2, libc::EINVAL), (255, libc::EINVAL)] {
        assert_eq!(step(&end, TO_INIT, |attr| attr.port_num = port), code, "port {port}");
    }
    for (index, code) in [(0, 0), (1, libc::EINVAL), (u16::MAX, libc::EINVAL)] {
        assert_eq!(step(&end, TO_INIT, |attr| attr.pkey_index = index), code, "P_Key {index}");
    }
    for mtu in 0..8 {
        let code = if (IBV_MTU_256..=IBV_MTU_4096).contains(&mtu) { 0 } else { libc::EINVAL };
        assert_eq!(step(&end, TO_RTR, |attr| attr.path_mtu = mtu), code, "MTU {mtu}");
    }
    let most = device_attr(end.context);
    let (serves, asks) = (most.max_qp_rd_atom as u8, most.max_qp_init_rd_atom as u8);
    type Field = fn(&mut ibv_qp_attr) -> &mut u8;
    let ranges: [(&str, _, Field, u8); 6] = [
        ("min_rnr_timer", TO_RTR, |attr| &mut attr.min_rnr_timer, 31),
        ("max_dest_rd_atomic", TO_RTR, |attr| &mut attr.max_dest_rd_atomic, serves),
        ("timeout", TO_RTS, |attr| &mut attr.timeout, 31),
        ("retry_cnt", TO_RTS, |attr| &mut attr.retry_cnt, 7),
        ("rnr_retry", TO_RTS, |attr| &mut attr.rnr_retry, 7),
        ("max_rd_atomic", TO_RTS, |attr| &mut attr.max_rd_atomic, asks),
    ];
    for (name, way, field, last) in ranges {
        assert_eq!(step(&end, way, |attr| *field(attr) = 0), 0, "{name} 0");
        assert_eq!(step(&end, way, |attr| *field(attr) = last), 0, "{name} {last}");
        for over in [last + 1, u8::MAX] {
            let code = step(&end, way, |attr| *field(attr) = over);
            assert_eq!(code, libc::EINVAL, "{name} {over}");
        }
    }
}

/// RoCE has one path: asking for another is `EINVAL`, wherever the table has the attribute.
/// Rules: ST-08
#[test]
fn there_is_no_second_path() {
    let end = End::new(Default::default());
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        for (from, to, required) in [
            (IBV_QPS_INIT, IBV_QPS_RTR, required_attributes(kind, IBV_QPS_RTR)),
            (IBV_QPS_RTR, IBV_QPS_RTS, required_attributes(kind, IBV_QPS_RTS)),
            (IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_STATE),
            (IBV_QPS_SQD, IBV_QPS_RTS, IBV_QP_STATE),
            (IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_STATE),
        ] {
            let (qp, mut attr) = in_state(&end, kind, from);
            attr.qp_state = to;
            (attr.alt_ah_attr, attr.alt_port_num) = (attr.ah_attr, 1);
            attr.path_mig_state = IBV_MIG_REARM;
            for bit in [IBV_QP_ALT_PATH, IBV_QP_PATH_MIG_STATE] {
                assert_eq!(modify_with(qp, &attr, required | bit), libc::EINVAL, "{from} to {to}");
                assert_eq!(state(qp), from);
            }
        }
    }
}

/// An address vector needs a GRH, from a GID of the port's that is of the destination's family, and the port.
/// Rules: ST-09, NET-15
#[test]
fn an_address_vector_needs_a_global_route() {
    let end = End::new(Default::default());
    let with = |change: fn(&mut ibv_ah_attr)| step(&end, TO_RTR, |attr| change(&mut attr.ah_attr));
    assert_eq!(with(|_| ()), 0);
    assert_eq!(with(|ah| ah.is_global = 0), libc::EINVAL);
    assert_eq!(with(|ah| (ah.is_global, ah.dlid) = (0, 1)), libc::EINVAL);
    assert_eq!(with(|ah| ah.grh.sgid_index = 1), 0);
    for other in ["192.0.2.77", "2001:db8::9"] {
        let to_rtr = step(&end, TO_RTR, |attr| attr.ah_attr = from_the_other_family(other));
        assert_eq!(to_rtr, libc::EINVAL, "{other}");
    }
    assert_eq!(with(|ah| ah.port_num = 0), libc::EINVAL);
    assert_eq!(with(|ah| ah.grh.sgid_index = 127), libc::EINVAL);
    assert_eq!(with(|ah| ah.grh.sgid_index = 255), libc::EINVAL);
    assert_eq!(with(|ah| ah.port_num = 2), libc::EINVAL);
    assert_eq!(with(|ah| ah.sl = 7), 0);
    assert_eq!(with(|ah| ah.sl = 8), libc::EINVAL);
    assert_eq!(with(|ah| ah.sl = 15), libc::EINVAL);
}

/// A query tells every attribute that was set, and what the queue pair was created with.
/// Rules: ST-25, CR-02
#[test]
fn a_query_tells_what_was_set() {
    let end = End::new(Default::default());
    let mut init = ibv_qp_init_attr { sq_sig_all: 1, ..end.init(IBV_QPT_RC) };
    init.qp_context = (&raw const end).cast_mut().cast();
    let qp = end.qp_with(&mut init);
    let mut attr = ibv_qp_attr {
        path_mtu: IBV_MTU_2048,
        dest_qp_num: number(qp),
        rq_psn: 0x12_3456,
        sq_psn: 0x65_4321,
        qp_access_flags: IBV_ACCESS_REMOTE_READ,
        max_rd_atomic: 3,
        max_dest_rd_atomic: 5,
        min_rnr_timer: 13,
        timeout: 19,
        retry_cnt: 4,
        rnr_retry: 6,
        ..usual_attr(qp)
    };
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.traffic_class = 32;
    attr.ah_attr.grh.flow_label = 0x1_2345;
    attr.ah_attr.sl = 3;
    for to in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        assert_eq!(modify(qp, &attr, to), 0);
        assert_eq!((query(qp).qp_state, query(qp).cur_qp_state), (to, to));
    }
    let (mut found, mut made) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
    // SAFETY: the queue pair is live.
    let code = unsafe { transom_ibverbs::ibv_query_qp(qp, &mut found, -1, &mut made) };
    assert_eq!(code, 0);
    let expected =
        ibv_qp_attr { qp_state: IBV_QPS_RTS, cur_qp_state: IBV_QPS_RTS, cap: init.cap, ..attr };
    assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    assert_eq!(format!("{made:?}"), format!("{init:?}"));
    // SAFETY: plain bytes either way.
    assert_eq!(unsafe { found.ah_attr.grh.dgid.raw }, transom_ibverbs::LOOPBACK_GID);

    // What is changed later, singly.
    let changed = ibv_qp_attr { min_rnr_timer: 7, qp_access_flags: 0, ..attr };
    assert_eq!(modify_with(qp, &changed, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS), 0);
    let found = query(qp);
    assert_eq!((found.min_rnr_timer, found.qp_access_flags, found.timeout), (7, 0, 19));
    let draining = ibv_qp_attr { qp_state: IBV_QPS_SQD, en_sqd_async_notify: 1, ..attr };
    assert_eq!(modify_with(qp, &draining, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    assert_eq!((query(qp).qp_state, query(qp).en_sqd_async_notify), (IBV_QPS_SQD, 1));
    let slower = ibv_qp_attr { timeout: 20, retry_cnt: 1, max_rd_atomic: 9, ..attr };
    let mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_MAX_QP_RD_ATOMIC;
    assert_eq!(modify_with(qp, &slower, mask), 0);
    let found = query(qp);
    assert_eq!((found.timeout, found.retry_cnt, found.max_rd_atomic), (20, 1, 9));
}

/// UD has a Q_Key, which may change with every step and be read again.
/// Rules: ST-25, ST-26
#[test]
fn a_query_tells_the_qkey() {
    let end = End::new(Default::default());
    let qp = end.qp(IBV_QPT_UD);
    let steps = [
        (IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT),
        (IBV_QPS_INIT, 0),
        (IBV_QPS_RTR, 0),
        (IBV_QPS_RTS, IBV_QP_SQ_PSN),
        (IBV_QPS_RTS, 0),
    ];
    for (place, (to, required)) in steps.into_iter().enumerate() {
        let qkey = 0xabcd_0000 + place as u32;
        let attr = ibv_qp_attr { qp_state: to, qkey, sq_psn: 9, ..usual_attr(qp) };
        assert_eq!(modify_with(qp, &attr, IBV_QP_STATE | IBV_QP_QKEY | required), 0);
        assert_eq!((query(qp).qp_state, query(qp).qkey), (to, qkey));
    }
    assert_eq!((query(qp).sq_psn, query(qp).port_num), (9, 1));
}

/// After RESET the attributes are as they were in the beginning.
/// Rules: ST-10
#[test]
fn reset_forgets_the_attributes() {
    let end = End::new(Default::default());
    for kind in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND] {
        let fresh = attributes(end.qp(kind));
        let (qp, _) = in_state(&end, kind, IBV_QPS_SQD);
        assert_ne!(attributes(qp), fresh);
        assert_eq!(set_state(qp, IBV_QPS_RESET), 0);
        assert_eq!(attributes(qp), fresh);
    }
}

/// The state in the struct is that of the last modify; what the device did since shows in a query.
/// Rules: ST-27
#[test]
fn the_struct_has_the_state_of_the_last_modify() {
    let end = End::new(Default::default());
    // SAFETY: live queue pairs.
    let seen = |qp: *mut ibv_qp| unsafe { (*qp).state };
    let qp = end.qp(IBV_QPT_RC);
    assert_eq!(seen(qp), IBV_QPS_RESET);
    for to in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        assert_eq!(modify(qp, &usual_attr(qp), to), 0);
        assert_eq!(seen(qp), to);
    }
    assert_eq!(modify(qp, &usual_attr(qp), IBV_QPS_INIT), libc::EINVAL);
    assert_eq!(seen(qp), IBV_QPS_RTS, "a refused modify leaves it");
    let mut sges = [sge(0x1000, 8, std::ptr::null_mut())];
    post(qp, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
    end.expect(IBV_WC_LOC_PROT_ERR);
    assert_eq!(seen(qp), IBV_QPS_RTS, "nobody has asked yet");
    assert_eq!(state(qp), IBV_QPS_ERR);
}

/// A connection over the wire without the port is refused, and the queue pair is as it was.
#[test]
fn a_taken_port_refuses_the_connection_and_changes_nothing() {
    alone(
        path_of!("a_taken_port_refuses_the_connection_and_changes_nothing"),
        Way::Namespace,
        || {
            let taken = UdpSocket::bind(("0.0.0.0", 4791)).expect("nobody has it");
            let end = End::new(Options { wire_only: true, ..Options::default() });
            let change = |attr: &mut ibv_qp_attr| attr.rq_psn = 7;
            assert_eq!(step(&end, TO_RTR, change), libc::EADDRINUSE);
            drop(taken);
            assert_eq!(step(&end, TO_RTR, change), 0);
        },
    );
}
