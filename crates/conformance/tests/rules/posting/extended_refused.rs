//! What `ibv_create_qp_ex` and the calls that build work requests refuse: a mistake anywhere in a
//! batch fails the whole of it. Also the small verbs of a queue pair that promise nothing.

use std::ptr::{null, null_mut};

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_ibverbs::*;

const SEND: u32 = IBV_QP_EX_WITH_SEND;

fn end() -> End {
    End::new(Default::default())
}

on_each_link! {
    /// Whatever goes wrong in the middle of a batch, none of it is posted, and the next batch is.
    /// Rules: PS-14, PS-03, PS-04, PS-05
    fn a_mistake_fails_the_whole_batch(link: Link) {
        let both = MemoryPair::pages(link);
        let operations = SEND
            | IBV_QP_EX_WITH_RDMA_READ
            | IBV_QP_EX_WITH_BIND_MW
            | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        let (qa, qb) =
            (qp_ex(&both.pair.a, IBV_QPT_RC, operations), qp_ex(&both.pair.b, IBV_QPT_RC, SEND));
        connect(qa, qb);
        let build = Builder::of(qa);
        let (key, at) = (keys(both.mb).1, both.far.addr());
        let element = sge(both.near.addr(), 8, both.ma);
        let mw = both.pair.a.mw(IBV_MW_TYPE_2);
        let type1 = both.pair.a.mw(IBV_MW_TYPE_1);
        let info = both.range(0, 64, REMOTE).info();
        let mistakes: [(&str, &dyn Fn()); 16] = [
            ("not enabled", &|| build.rdma_write(key, at)),
            ("segmented TCP", &|| build.send_tso(null_mut(), 0, 0)),
            ("too many SGEs", &|| {
                build.send();
                build.sges(&[element; 5]);
            }),
            ("no list of SGEs", &|| {
                build.send();
                build.set_sge_list(1, null());
            }),
            ("too much inline", &|| {
                build.send();
                build.inline(&[0; 257]);
            }),
            ("too much inline in all", &|| {
                build.send();
                let buffer = ibv_data_buf { addr: 0x1000 as *mut _, length: usize::MAX };
                build.set_inline_data_list(2, [buffer; 2].as_ptr());
            }),
            ("no inline data", &|| {
                build.send();
                build.set_inline_data(null_mut(), 8);
            }),
            ("no inline list", &|| {
                build.send();
                build.set_inline_data_list(1, null());
            }),
            ("inline with READ", &|| {
                build.rdma_read(key, at);
                build.inline(&[0; 8]);
            }),
            ("inline with an atomic", &|| {
                build.atomic_fetch_add(key, at, 1);
                build.inline(&[0; 8]);
            }),
            ("data twice", &|| {
                build.send();
                build.sge(element);
                build.sge(element);
            }),
            ("data with a bind", &|| {
                build.bind_mw(mw, rkey(mw) + 1, &info);
                build.sge(element);
            }),
            ("a window of type 1", &|| build.bind_mw(type1, 1, &info)),
            ("nothing to bind", &|| build.bind_mw(null_mut(), 1, null())),
            ("an address handle on RC", &|| {
                build.send();
                build.set_ud_addr(null_mut(), 1, 1);
            }),
            ("a shared receive queue on RC", &|| {
                build.send();
                build.set_xrc_srqn(1);
            }),
        ];
        let follower = Follower::new(&both.pair.a, &both.pair.b);
        let before = rkey(mw);
        for (name, mistake) in mistakes {
            recv(qb, 1, &mut []);
            build.start();
            build.signaled(2).send();
            build.signaled(3).bind_mw(mw, rkey(mw) + 1, &both.range(0, 64, REMOTE).info());
            build.signaled(4);
            mistake();
            build.signaled(5).send();
            assert_eq!(build.complete(), libc::EINVAL, "{name}");
            follower.follow();
            both.pair.a.expect_nothing();
            both.pair.b.expect_nothing();
            assert_eq!(rkey(mw), before, "{name}");
            assert_eq!(build.batch(|build| build.signaled(6).send()), 0, "{name}");
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 6);
            both.pair.b.expect(IBV_WC_SUCCESS);
        }
    }

    /// A setter needs a request to set.
    fn a_setter_before_any_request_fails_the_batch(link: Link) {
        let (a, _) = ends(link, Default::default());
        let qp = qp_ex(&a, IBV_QPT_RC, SEND);
        take_to(&a, qp, IBV_QPS_RTS);
        let build = Builder::of(qp);
        let setters: [&dyn Fn(); 3] =
            [&|| build.set_sge(0, 0, 0), &|| build.inline(b"x"), &|| build.set_sge_list(0, null())];
        for setter in setters {
            assert_eq!(build.batch(|_| setter()), libc::EINVAL);
        }
        // Without a batch there is nothing to do and nothing to break.
        build.send();
        build.set_sge(1, 2, 3);
        build.abort();
        assert_eq!(build.complete(), libc::EINVAL);
    }

    /// A batch for which the queue has no room is not posted in part.
    /// Rules: PS-02, PS-14
    fn a_batch_that_does_not_fit_is_refused(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = (qp_ex(&both.pair.a, IBV_QPT_RC, SEND), both.pair.b.qp(IBV_QPT_RC));
        connect(qa, qb);
        let build = Builder::of(qa);
        let send = |count: u64, first: u64| build.batch(|build| {
            (first..first + count).for_each(|wr_id| build.signaled(wr_id).send());
        });
        assert_eq!(set_state(qa, IBV_QPS_SQD), 0);
        assert_eq!(send(65, 1000), libc::ENOMEM);
        assert_eq!(send(60, 0), 0);
        assert_eq!(send(5, 1000), libc::ENOMEM);
        assert_eq!(send(4, 60), 0);
        assert_eq!(send(1, 1000), libc::ENOMEM);
        for wr_id in 0..64 {
            recv(qb, wr_id, &mut []);
        }
        assert_eq!(set_state(qa, IBV_QPS_RTS), 0);
        let sent = wait_for(both.pair.a.cq, 64);
        assert!(sent.iter().zip(0..).all(|(wc, at)| (wc.status, wc.wr_id) == (0, at)));
        wait_for(both.pair.b.cq, 64);
        nothing_more(&both.pair);
        assert_eq!(send(1, 7), 0);
    }

    /// States that refuse a post refuse a batch; in error it is flushed.
    /// Rules: ST-19, ST-20
    fn the_state_decides_as_for_a_post(link: Link) {
        let (end, _) = ends(link, Default::default());
        for state in [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR] {
            let qp = qp_ex(&end, IBV_QPT_RC, SEND);
            take_to(&end, qp, IBV_QPS_RESET);
            let way = [IBV_QPS_INIT, IBV_QPS_RTR];
            for step in way.into_iter().take(state as usize) {
                assert_eq!(modify(qp, &usual_attr(qp), step), 0);
            }
            let code = Builder::of(qp).batch(|build| build.signaled(1).send());
            assert_eq!(code, libc::EINVAL, "state {state}");
        }
        let qp = qp_ex(&end, IBV_QPT_RC, SEND);
        take_to(&end, qp, IBV_QPS_ERR);
        let code = Builder::of(qp).batch(|build| {
            build.next(1, 0).send();
            build.next(2, 0).send();
        });
        assert_eq!(code, 0);
        for wr_id in [1, 2] {
            assert_eq!(end.expect(IBV_WC_WR_FLUSH_ERR).wr_id, wr_id);
        }
    }
}

fn nothing_more(pair: &Pair) {
    Follower::new(&pair.a, &pair.b).follow();
    pair.a.expect_nothing();
    pair.b.expect_nothing();
}

/// Each service builds what it has, and creation refuses the rest.
/// Rules: PS-06
#[test]
fn services_build_what_they_have() {
    let end = end();
    let uc = SEND
        | IBV_QP_EX_WITH_SEND_WITH_IMM
        | IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | IBV_QP_EX_WITH_BIND_MW
        | IBV_QP_EX_WITH_LOCAL_INV;
    let rc = uc
        | IBV_QP_EX_WITH_SEND_WITH_INV
        | IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_ATOMIC_WRITE
        | IBV_QP_EX_WITH_FLUSH;
    for (kind, all) in [(IBV_QPT_UC, uc), (IBV_QPT_RC, rc)] {
        for bit in 0..64 {
            let mut init =
                ibv_qp_init_attr_ex { send_ops_flags: 1 << bit, ..init_ex(&end, kind, 0) };
            let fits = init.send_ops_flags & !u64::from(all) == 0;
            let created = try_qp_ex(&end, &mut init);
            assert_eq!(created.err(), (!fits).then_some(libc::EOPNOTSUPP), "{kind}: bit {bit}");
        }
        assert!(try_qp_ex(&end, &mut init_ex(&end, kind, all)).is_ok());
    }
    for bit in [IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_TSO] {
        let created = try_qp_ex(&end, &mut init_ex(&end, IBV_QPT_UD, bit));
        assert_eq!(created, Err(libc::EOPNOTSUPP));
    }
}

/// Only what was created to build requests has the extended form.
#[test]
fn the_extended_form_must_be_asked_for() {
    let end = end();
    let mut plain = init_ex(&end, IBV_QPT_RC, SEND);
    plain.comp_mask = IBV_QP_INIT_ATTR_PD;
    let plain = [try_qp_ex(&end, &mut plain).unwrap(), end.qp(IBV_QPT_RC), null_mut()];
    for qp in plain {
        // SAFETY: live or null.
        assert!(unsafe { ibv_qp_to_qp_ex(qp) }.is_null());
    }
    let none = qp_ex(&end, IBV_QPT_RC, 0);
    take_to(&end, none, IBV_QPS_RTS);
    assert_eq!(Builder::of(none).batch(|build| build.send()), libc::EINVAL);
    assert_eq!(destroy_qp(none), 0);
    assert_eq!(destroy_qp(none), libc::ENOENT);
    // SAFETY: destroyed; its struct stays readable.
    assert!(unsafe { ibv_qp_to_qp_ex(none) }.is_null());
}

/// Extended attributes: what nobody knows is `EINVAL`, what this device has not `EOPNOTSUPP`.
#[test]
fn extended_attributes_are_checked() {
    let end = end();
    let with = |change: &dyn Fn(&mut ibv_qp_init_attr_ex)| {
        let mut init = init_ex(&end, IBV_QPT_RC, SEND);
        change(&mut init);
        let before = init.cap;
        let created = try_qp_ex(&end, &mut init);
        assert!(created.is_ok() || init.cap == before);
        created.map_or_else(|errno| errno, destroy_qp)
    };
    assert_eq!(with(&|_| ()), 0);
    for bit in 7..32 {
        assert_eq!(with(&|init| init.comp_mask |= 1 << bit), libc::EINVAL, "bit {bit}");
    }
    let not_here =
        [IBV_QP_INIT_ATTR_MAX_TSO_HEADER, IBV_QP_INIT_ATTR_IND_TABLE, IBV_QP_INIT_ATTR_RX_HASH];
    for bit in not_here {
        assert_eq!(with(&|init| init.comp_mask |= bit), libc::EOPNOTSUPP, "bit {bit}");
    }
    assert_eq!(with(&|init| init.comp_mask |= IBV_QP_INIT_ATTR_XRCD), libc::EINVAL, "RC");
    assert_eq!(with(&|init| init.create_flags = 1 << 8), 0, "not said to be there");
    let flags = |flags| {
        with(&|init| {
            init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
            init.create_flags = flags;
        })
    };
    assert_eq!(flags(0), 0);
    assert_eq!(flags(IBV_QP_CREATE_SCATTER_FCS), libc::EOPNOTSUPP);
    assert_eq!(flags(1), libc::EINVAL);
    assert_eq!(with(&|init| init.comp_mask &= !IBV_QP_INIT_ATTR_PD), libc::EINVAL);
    assert_eq!(with(&|init| init.pd = null_mut()), libc::EINVAL);
    let other = self::end();
    assert_eq!(with(&|init| init.pd = other.pd), libc::EINVAL);
    let dead = end.another_pd();
    assert_eq!(dealloc_pd(dead), 0);
    assert_eq!(with(&|init| init.pd = dead), libc::ENOENT);
    let create = verbs(end.context).create_qp_ex.expect("never null");
    // SAFETY: an open context and no attributes.
    assert!(unsafe { create(end.context, null_mut()) }.is_null());
}

/// The bytes of an ATOMIC WRITE are taken when it is built, so such a queue pair has room for them.
#[test]
fn atomic_writes_have_room_inline() {
    let end = end();
    let mut init = init_ex(&end, IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE);
    init.cap.max_inline_data = 0;
    let qp = try_qp_ex(&end, &mut init).unwrap();
    assert_eq!((init.cap.max_inline_data, query(qp).cap.max_inline_data), (16, 16));
}

/// The device has no options to agree on with a peer, and says so under its vendor's number.
#[test]
fn there_are_no_connection_options() {
    let end = end();
    let qp = end.qp(IBV_QPT_RC);
    let vendor_id = device_attr(end.context).vendor_id;
    let mut ece = ibv_ece { vendor_id: 1, options: 2, comp_mask: 3 };
    // SAFETY: a queue pair and a place for the answer, or null; after its end it stays readable.
    unsafe {
        assert_eq!(ibv_query_ece(qp, &mut ece), 0);
        assert_eq!((ece.vendor_id, ece.options, ece.comp_mask), (vendor_id, 0, 0));
        ece.options = 7;
        assert_eq!((ibv_set_ece(qp, &mut ece), ece.options), (0, 0), "none is accepted");
        for (vendor_id, comp_mask, code) in [
            (vendor_id, 1, libc::EINVAL),
            (vendor_id + 1, 0, libc::EINVAL),
            (0, 0, libc::EOPNOTSUPP),
        ] {
            let mut ece = ibv_ece { vendor_id, options: 0, comp_mask };
            assert_eq!(ibv_set_ece(qp, &mut ece), code);
        }
        assert_eq!(ibv_query_ece(qp, null_mut()), libc::EINVAL);
        assert_eq!(ibv_query_ece(null_mut(), &mut ece), libc::EINVAL);
        assert_eq!(destroy_qp(qp), 0);
        assert_eq!(ibv_query_ece(qp, &mut ece), libc::ENOENT);
        ece.vendor_id = vendor_id;
        assert_eq!(ibv_set_ece(qp, &mut ece), libc::ENOENT);
    }
}

/// Nothing is promised about the order of bytes within a message.
/// Rules: ORD-24
#[test]
fn bytes_may_land_in_any_order() {
    let qp = end().qp(IBV_QPT_RC);
    for op in [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        assert_eq!((0..3).map(|flags| ibv_query_qp_data_in_order(qp, op, flags)).max(), Some(0));
    }
}
