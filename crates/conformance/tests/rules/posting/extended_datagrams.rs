//! Datagrams built call by call: each names where it goes.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_ibverbs::*;

const QKEY: u32 = 0x1234;

/// The bytes before the data of a received datagram.
const HEADER: usize = 40;

/// A UD queue pair in RTS that builds SENDs.
fn datagram_qp(end: &End) -> *mut ibv_qp {
    let qp = qp_ex(end, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
    let init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    for (to, mask) in [(IBV_QPS_INIT, init), (IBV_QPS_RTR, 0), (IBV_QPS_RTS, IBV_QP_SQ_PSN)] {
        let attr = ibv_qp_attr { qp_state: to, port_num: 1, qkey: QKEY, ..ibv_qp_attr::default() };
        assert_eq!(modify_with(qp, &attr, IBV_QP_STATE | mask), 0, "to state {to}");
    }
    qp
}

on_each_link! {
    /// A datagram built call by call goes where its setter says, with its data and immediate data;
    /// one that says nothing fails its batch.
    /// Rules: PS-14
    fn each_datagram_names_its_destination(link: Link) {
        let (a, b) = ends(link, Default::default());
        let (qa, qb) = (datagram_qp(&a), datagram_qp(&b));
        let mut attr = usual_attr(null_mut()).ah_attr;
        // SAFETY: a live domain and an attribute.
        let ah = unsafe { ibv_create_ah(a.pd, &mut attr) };
        assert!(!ah.is_null());
        let (near, far) = (Buffer::filled(4096, 3), Buffer::new(4096));
        let (from, to) = (a.reg(&near, ALL), b.reg(&far, ALL));
        for wr_id in 0..2 {
            recv(qb, wr_id, &mut [sge(far.addr() + 1000 * wr_id, 200, to)]);
        }
        let build = Builder::of(qa);
        let refused = [
            build.batch(|build| build.signaled(1).send()),
            build.batch(|build| {
                build.signaled(1).send();
                build.set_ud_addr(null_mut(), number(qb), QKEY);
            }),
            build.batch(|build| {
                build.signaled(1).send();
                build.set_xrc_srqn(1);
            }),
            build.batch(|build| build.local_inv(1)),
        ];
        assert_eq!(refused, [libc::EINVAL; 4]);
        let code = build.batch(|build| {
            build.signaled(2).send();
            build.set_ud_addr(ah, number(qb), QKEY);
            build.sge(sge(near.addr(), 100, from));
            build.signaled(3).send_imm(77);
            build.inline(&[9; 50]);
            build.set_ud_addr(ah, number(qb), QKEY);
        });
        assert_eq!(code, 0);
        let sent = wait_for(a.cq, 2);
        assert!(sent.iter().zip(2..).all(|(wc, at)| (wc.status, wc.wr_id) == (0, at)));
        let [first, second] = [b.expect(IBV_WC_SUCCESS), b.expect(IBV_WC_SUCCESS)];
        assert_eq!((first.byte_len, second.byte_len), (140, 90));
        // SAFETY: plain data; the datagram came with it.
        assert_eq!(unsafe { second.imm.imm_data }, 77);
        assert!(far.read(HEADER, 100) == near.read(0, 100));
        assert!(far.read(1000 + HEADER, 50) == [9; 50]);
        a.expect_nothing();
        b.expect_nothing();
    }

    /// The plain verb takes what moves data on UD, to fail it in its turn, and nothing local.
    /// Rules: PS-06
    fn the_plain_verb_fails_what_datagrams_do_not_have(link: Link) {
        let (a, _) = ends(link, Default::default());
        for opcode in [
            IBV_WR_RDMA_WRITE,
            IBV_WR_RDMA_WRITE_WITH_IMM,
            IBV_WR_RDMA_READ,
            IBV_WR_ATOMIC_CMP_AND_SWP,
            IBV_WR_ATOMIC_FETCH_AND_ADD,
            IBV_WR_ATOMIC_WRITE,
        ] {
            let qp = datagram_qp(&a);
            post(qp, &mut wr(opcode));
            assert_eq!(a.wait().status, IBV_WC_LOC_QP_OP_ERR, "opcode {opcode}");
        }
        let qp = datagram_qp(&a);
        for opcode in [IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_INV] {
            assert_eq!(try_post(qp, &mut wr(opcode)), libc::EINVAL, "opcode {opcode}");
        }
        a.expect_nothing();
    }
}
