//! Local SGEs: how each L_Key is judged, when, and what a bad one brings about (rules A.4).

use std::ffi::c_int;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const LOCAL_WRITE: c_int = IBV_ACCESS_LOCAL_WRITE as c_int;
const REMOTE_READ: c_int = IBV_ACCESS_REMOTE_READ as c_int;
const MW_BIND: c_int = IBV_ACCESS_MW_BIND as c_int;
const CAS: ibv_wr_opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
const FAA: ibv_wr_opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;

/// How both ends see a message that arrives.
const WELL: (ibv_wc_status, ibv_wc_status) = (IBV_WC_SUCCESS, IBV_WC_SUCCESS);
/// How they see one whose receive may not be written.
const NO_PLACE: (ibv_wc_status, ibv_wc_status) = (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
/// A request that its own side refused: its queue pair is in error, the peer's is not.
const OURS: (ibv_wc_status, ibv_qp_state, ibv_qp_state) =
    (IBV_WC_LOC_PROT_ERR, IBV_QPS_ERR, IBV_QPS_RTS);
/// A request that the target refused.
const THEIRS: (ibv_wc_status, ibv_qp_state, ibv_qp_state) =
    (IBV_WC_REM_ACCESS_ERR, IBV_QPS_ERR, IBV_QPS_ERR);

/// A request with these SGEs to the start of the target's memory; how it completed, and the
/// states of its queue pairs then.
fn request(
    it: &MemoryPair,
    opcode: ibv_wr_opcode,
    sges: &mut [ibv_sge],
    rkey: u32,
) -> (ibv_wc_status, ibv_qp_state, ibv_qp_state) {
    let (qa, qb) = it.pair.another(IBV_QPT_RC);
    let addr = it.far.addr();
    // Compare-and-swap turns 2 into 3, fetch-and-add adds 1.
    post(
        qa,
        &mut match opcode {
            CAS => atomic_wr(opcode, sges, addr, rkey, 2, 3),
            FAA => atomic_wr(opcode, sges, addr, rkey, 1, 0),
            _ => rdma_wr(opcode, sges, addr, rkey),
        },
    );
    (it.pair.a.wait().status, state(qa), state(qb))
}

/// Keys that are no good as L_Keys at the origin: of nothing, of a region that has ended, of
/// the good region but for its byte.
fn bad_keys(it: &MemoryPair) -> Vec<u32> {
    let ended = it.pair.a.reg(&it.near, ALL);
    let dead = keys(ended).0;
    assert_eq!(dereg(ended), 0);
    let (good, _) = keys(it.ma);
    vec![0, 0xdead_beef, u32::MAX, dead, good ^ 1, good ^ 0x80]
}

on_each_link! {
    /// What is sent only needs to be readable, which every region is; what receives needs to be
    /// writable by its own side, and no more.
    /// Rules: LA-01, LA-02, LA-03
    fn sending_needs_no_right_and_receiving_local_write(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        for access in [0, REMOTE_READ, MW_BIND] {
            let from = sge(fixture.near.addr(), 64, fixture.pair.a.reg(&fixture.near, access));
            assert_eq!(fixture.pair.message(&mut [from], &mut [fixture.far_sge(0, 64)]), WELL);
            let done = request(&fixture, IBV_WR_RDMA_WRITE, &mut [from], fixture.key());
            assert_eq!(done.0, IBV_WC_SUCCESS);
            // The same rights at the receiver.
            let before = fixture.far.read(0, 8192);
            let to = sge(fixture.far.addr() + 100, 64, fixture.pair.b.reg(&fixture.far, access));
            let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
            recv(qb, 9, &mut [to]);
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut [fixture.near_sge(0, 64)]));
            fixture.pair.a.expect(IBV_WC_REM_OP_ERR);
            fixture.pair.b.expect(IBV_WC_LOC_PROT_ERR);
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            assert_eq!(fixture.far.read(0, 8192), before);
        }
        let to = sge(fixture.far.addr() + 100, 64, fixture.pair.b.reg(&fixture.far, LOCAL_WRITE));
        assert_eq!(fixture.pair.message(&mut [fixture.near_sge(0, 64)], &mut [to]), WELL);
        assert_eq!(fixture.far.read(100, 64), fixture.near.read(0, 64));
    }

    /// What a READ or an atomic brings needs a place that its own side may write.
    /// Rules: LA-04, LA-05
    fn answers_need_local_write(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        for opcode in [IBV_WR_RDMA_READ, CAS, FAA] {
            let before = fixture.near.read(0, 8192);
            for access in [0, REMOTE_READ, MW_BIND] {
                let to = sge(fixture.near.addr(), 8, fixture.pair.a.reg(&fixture.near, access));
                assert_eq!(request(&fixture, opcode, &mut [to], fixture.key()), OURS, "{opcode}");
            }
            assert_eq!(fixture.near.read(0, 8192), before);
            let to = sge(fixture.near.addr(), 8, fixture.pair.a.reg(&fixture.near, LOCAL_WRITE));
            assert_eq!(request(&fixture, opcode, &mut [to], fixture.key()).0, IBV_WC_SUCCESS);
        }
    }

    /// A bad key among what is sent: nothing leaves, not even what is good of it, and the peer
    /// hears nothing.
    /// Rules: LA-06, LA-22
    fn bad_key_in_a_gather_sends_nothing(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        let long = Buffer::filled(1 << 20, 7);
        let far = Buffer::new(1 << 20);
        let (ml, mf) = (fixture.pair.a.reg(&long, ALL), fixture.pair.b.reg(&far, ALL));
        for bad in bad_keys(&fixture) {
            let element = ibv_sge { addr: fixture.near.addr(), length: 64, lkey: bad };
            let half = sge(long.addr(), 600_000, ml);
            for sges in [&mut [element][..], &mut [fixture.near_sge(0, 64), element], &mut [half, element]] {
                let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
                post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, sges, far.addr(), keys(mf).1));
                fixture.pair.a.expect(IBV_WC_LOC_PROT_ERR);
                assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_RTS));
                let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
                recv(qb, 9, &mut [sge(far.addr(), 1 << 20, mf)]);
                post(qa, &mut with_sges(wr(IBV_WR_SEND), sges));
                fixture.pair.a.expect(IBV_WC_LOC_PROT_ERR);
                // Messages elsewhere pass the peer's queue: its receive has not been taken.
                let done = fixture.pair.message(&mut [fixture.near_sge(0, 8)], &mut [fixture.far_sge(0, 8)]);
                assert_eq!(done, WELL);
                assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_RTS));
                assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
                assert_eq!(fixture.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 9);
                assert!(far.is_all(0), "key {bad:#x}");
            }
        }
    }

    /// A bad key behind a message under way: that one arrives, and then the bad one fails, of which
    /// nothing leaves.
    /// Rules: LA-06, ORD-02
    fn bad_key_behind_a_message_under_way_waits_for_it(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        for bad in bad_keys(&fixture) {
            let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
            let element = ibv_sge { addr: fixture.near.addr(), length: 64, lkey: bad };
            (8..10).for_each(|wr_id| fixture.recv(qb, wr_id, 64));
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut [fixture.near_sge(0, 8)]));
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut [element]));
            assert_eq!(fixture.pair.b.expect(IBV_WC_SUCCESS).wr_id, 8);
            fixture.pair.a.expect(IBV_WC_SUCCESS);
            fixture.pair.a.expect(IBV_WC_LOC_PROT_ERR);
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_RTS));
            assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
            assert_eq!(fixture.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 9, "key {bad:#x}");
        }
    }

    /// A bad key where a READ's data shall go: the peer serves it and stays as it is.
    /// Rules: LA-07, LA-22
    fn bad_key_in_a_scatter_is_our_own_failure(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        let before = fixture.near.read(64, 8000);
        for bad in bad_keys(&fixture) {
            let element = ibv_sge { addr: fixture.near.addr() + 64, length: 64, lkey: bad };
            for sges in [&mut [element][..], &mut [fixture.near_sge(0, 64), element]] {
                let done = request(&fixture, IBV_WR_RDMA_READ, sges, fixture.key());
                assert_eq!(done, OURS, "key {bad:#x}");
            }
            fixture.pair.b.expect_nothing();
        }
        assert_eq!(fixture.near.read(64, 8000), before);
    }

    /// An atomic's key is judged when the answer is stored: the target has been changed by then.
    /// Rules: LA-08
    fn bad_key_in_an_atomic_comes_too_late(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        let before = fixture.near.read(0, 8192);
        for bad in bad_keys(&fixture) {
            let element = ibv_sge { addr: fixture.near.addr(), length: 8, lkey: bad };
            for opcode in [CAS, FAA] {
                fixture.far.set_word(0, 2);
                assert_eq!(request(&fixture, opcode, &mut [element], fixture.key()), OURS);
                assert_eq!(fixture.far.word(0), 3, "opcode {opcode}, key {bad:#x}");
            }
        }
        assert_eq!(fixture.near.read(0, 8192), before);
    }

    /// A receive is taken by the queue whatever its keys and places; the message that finds them bad
    /// fails at both ends.
    /// Rules: LA-09, LA-10
    fn bad_receive_fails_on_use(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        let part = try_reg(fixture.pair.b.pd, fixture.far.addr() + 4096, 1000, ALL);
        let part = part.expect("a region");
        let at = |at: u64, length| sge(fixture.far.addr() + at, length, part);
        let (good, _) = keys(fixture.mb);
        let keyed = |lkey| ibv_sge { lkey, ..fixture.far_sge(0, 64) };
        let before = fixture.far.read(0, 8192);
        for bad in [
            keyed(0),
            keyed(0xdead_beef),
            keyed(good ^ 1),
            at(0, 64),
            at(4095, 64),
            at(5096, 64),
            at(8000, 64),
            sge(0, 64, part),
            sge(u64::MAX, 64, part),
        ] {
            let done = fixture.pair.message(&mut [fixture.near_sge(0, 64)], &mut [bad]);
            assert_eq!(done, NO_PLACE, "{bad:x?}");
        }
        assert_eq!(fixture.far.read(0, 8192), before);
    }

    /// A region of another domain serves neither as source nor as place for anything.
    /// Rules: LA-12, LA-13, LA-14
    fn regions_of_another_domain_are_no_use(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        let theirs = reg(fixture.pair.a.another_pd(), &fixture.near, ALL);
        let element = sge(fixture.near.addr(), 8, theirs);
        let (near, far) = (fixture.near.read(0, 8192), fixture.far.read(0, 8192));
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            assert_eq!(request(&fixture, opcode, &mut [element], fixture.key()), OURS, "{opcode}");
        }
        let to = sge(fixture.far.addr(), 8, reg(fixture.pair.b.another_pd(), &fixture.far, ALL));
        assert_eq!(fixture.pair.message(&mut [fixture.near_sge(0, 8)], &mut [to]), NO_PLACE);
        assert_eq!(fixture.far.read(0, 8192), far);
        for opcode in [CAS, FAA] {
            assert_eq!(request(&fixture, opcode, &mut [element], fixture.key()), OURS, "{opcode}");
        }
        assert_eq!(fixture.near.read(0, 8192), near);
        // In its own domain it is as good as any.
        let own = fixture.pair.a.with_pd(fixture.pair.a.another_pd());
        let (qa, qb) = (own.qp(IBV_QPT_RC), fixture.pair.b.qp(IBV_QPT_RC));
        connect(qa, qb);
        let mut sges = [sge(fixture.near.addr(), 8, own.reg(&fixture.near, ALL))];
        post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, fixture.far.addr(), fixture.key()));
        own.expect(IBV_WC_SUCCESS);
    }

    /// With both keys bad, a WRITE fails by its own and a READ or atomic by the remote one.
    /// Rules: LA-19, LA-20
    fn own_key_comes_first_only_where_data_is_sent(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        fixture.far.set_word(0, 2);
        let before = (fixture.near.read(0, 8192), fixture.far.read(0, 8192));
        for lkey in bad_keys(&fixture) {
            let element = ibv_sge { addr: fixture.near.addr(), length: 8, lkey };
            for rkey in [0, fixture.key() ^ 1] {
                let request = |opcode| request(&fixture, opcode, &mut [element], rkey);
                assert_eq!(request(IBV_WR_RDMA_WRITE), OURS);
                for opcode in [IBV_WR_RDMA_READ, CAS, FAA] {
                    assert_eq!(request(opcode), THEIRS, "{opcode}");
                }
            }
        }
        assert_eq!((fixture.near.read(0, 8192), fixture.far.read(0, 8192)), before);
    }

    /// The key of a window is for peers; as a local key it is none.
    /// Rules: LA-24
    fn window_keys_are_no_local_keys(link: Link) {
        let fixture = MemoryPair::new(link, 8192);
        for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
            // Through the queue pair that the window is bound to, where a peer would be let in.
            for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, CAS, FAA] {
                let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
                let mw = fixture.pair.a.mw(kind);
                let (addr, access) = (fixture.near.addr(), REMOTE);
                let range = Range { mr: fixture.ma, addr, length: 4096, access };
                let lkey = bind(&fixture.pair.a, qa, mw, range);
                let mut sges = [ibv_sge { addr, length: 8, lkey }];
                let (remote, key) = (fixture.far.addr(), fixture.key());
                post(
                    qa,
                    &mut match opcode {
                        CAS | FAA => atomic_wr(opcode, &mut sges, remote, key, 1, 0),
                        _ => rdma_wr(opcode, &mut sges, remote, key),
                    },
                );
                fixture.pair.a.expect(IBV_WC_LOC_PROT_ERR);
                assert_eq!(state(qb), IBV_QPS_RTS);
            }
            let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
            let mw = fixture.pair.b.mw(kind);
            let (addr, access) = (fixture.far.addr(), REMOTE);
            let range = Range { mr: fixture.mb, addr, length: 4096, access };
            let lkey = bind(&fixture.pair.b, qb, mw, range);
            recv(qb, 9, &mut [ibv_sge { addr, length: 8, lkey }]);
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut [fixture.near_sge(0, 8)]));
            fixture.pair.a.expect(IBV_WC_REM_OP_ERR);
            fixture.pair.b.expect(IBV_WC_LOC_PROT_ERR);
        }
    }

    /// Memory that the kernel copies for nobody but its own process, as that of some devices, can be sent
    /// all the same.
    fn memory_that_only_its_own_process_reads_can_be_sent(link: Link) {
        let Some(special) = kernels_page() else { return eprintln!("skipped: no such memory here") };
        let it = MemoryPair::new(link, 4096);
        let mr = try_reg(it.pair.a.pd, special, 4096, 0).expect("it is readable");
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM] {
            let (qa, qb) = it.pair.another(IBV_QPT_RC);
            it.far.fill(0);
            recv(qb, 9, &mut [it.far_sge(0, 4096)]);
            let mut sges = [sge(special, 4096, mr)];
            post(qa, &mut rdma_wr(opcode, &mut sges, it.far.addr(), it.key()));
            it.pair.a.expect(IBV_WC_SUCCESS);
            it.pair.b.expect(IBV_WC_SUCCESS);
            assert!(!it.far.is_all(0), "the clock does not stand at zero");
        }
    }
}

/// A page that the kernel has put into this process, for its clocks.
fn kernels_page() -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    let line = maps.lines().find(|line| line.ends_with("[vvar]"))?;
    u64::from_str_radix(line.split_once('-')?.0, 16).ok()
}
