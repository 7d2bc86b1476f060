//! LOCAL_INV (rules D.3), but for what races it: see `revocation_races.rs`.

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// Two ends with a window of type 2 bound to its first page.
struct Windowed {
    both: MemoryPair,
    mw: *mut ibv_mw,
    key: u32,
    addr: u64,
}

impl Windowed {
    fn new(link: Link) -> Self {
        let both = MemoryPair::pages(link);
        let (mw, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
        let addr = both.far.addr();
        Self { both, mw, key, addr }
    }

    /// Posts a LOCAL_INV on a queue pair of the target and answers how it completes.
    fn invalidate(&self, qp: *mut ibv_qp, key: u32) -> ibv_wc {
        post(qp, &mut local_inv_wr(key));
        self.both.pair.b.wait()
    }

    /// The LOCAL_INV fails, and the queue pair with it.
    fn refuses(&self, qp: *mut ibv_qp, key: u32) {
        let wc = self.invalidate(qp, key);
        assert_eq!((wc.status, wc.wr_id), (IBV_WC_MW_BIND_ERR, 1), "key {key:#x}");
        assert_eq!(state(qp), IBV_QPS_ERR);
    }

    /// The window is as bound as at the beginning.
    fn still_bound(&self) {
        for op in Op::ALL {
            self.both.allowed_on(self.both.qps(), op, self.addr, 8, self.key);
        }
        assert_eq!(dereg(self.both.mb), libc::EBUSY);
    }
}

on_each_link! {
    /// The owner ends its window: the completion says so, the key is dead from then on, and the
    /// region is free to go.
    /// Rules: INV-01, INV-04
    fn the_owner_ends_its_window(link: Link) {
        let it = Windowed::new(link);
        it.still_bound();
        let mut request = local_inv_wr(it.key);
        request.wr_id = 0x1234_5678_9abc;
        post(it.both.pair.qb, &mut request);
        let wc = it.both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.opcode, wc.wr_id), (IBV_WC_LOCAL_INV, 0x1234_5678_9abc));
        // SAFETY: a live queue pair.
        assert_eq!(wc.qp_num, unsafe { (*it.both.pair.qb).qp_num });
        for op in Op::ALL {
            it.both.refused_on(it.both.qps(), op, it.addr, 8, it.key);
            it.both.reconnect(it.both.qps());
        }
        assert_eq!(dereg(it.both.mb), 0);
    }

    /// Unsignaled, it ends the window without a word.
    /// Rules: INV-02
    fn unsignaled_success_is_silent(link: Link) {
        let it = Windowed::new(link);
        let request = local_inv_wr(it.key);
        post(it.both.pair.qb, &mut ibv_send_wr { send_flags: 0, ..request });
        // A bind behind it is the first to complete, on a queue that completes in order.
        let other = it.both.pair.b.mw(IBV_MW_TYPE_2);
        let range = it.both.range(0, 64, REMOTE);
        post(it.both.pair.qb, &mut ibv_send_wr { wr_id: 2, ..bind2_wr(other, 1, range) });
        assert_eq!(it.both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 2);
        it.both.pair.b.expect_nothing();
        it.both.refused_on(it.both.qps(), Op::Read, it.addr, 8, it.key);
    }

    /// It sends nothing and takes no number: requests around it arrive, and it needs no peer.
    /// Rules: INV-05
    fn nothing_is_sent(link: Link) {
        let it = Windowed::new(link);
        let (qa, qb) = it.both.qps();
        let range = it.both.range(0, 4096, REMOTE);
        let mut key = it.key;
        for round in 0..10 {
            recv(qa, round, &mut []);
            post(qb, &mut local_inv_wr(key));
            post(qb, &mut wr(IBV_WR_SEND));
            post(qb, &mut bind2_wr(it.mw, key + 1, range));
            for opcode in [IBV_WC_LOCAL_INV, IBV_WC_SEND, IBV_WC_BIND_MW] {
                assert_eq!(it.both.pair.b.expect(IBV_WC_SUCCESS).opcode, opcode);
            }
            assert_eq!(it.both.pair.a.expect(IBV_WC_SUCCESS).wr_id, round);
            key = rkey(it.mw);
        }
        end_qp(qa);
        assert_eq!(it.invalidate(qb, key).status, IBV_WC_SUCCESS);
        assert_eq!(state(qb), IBV_QPS_RTS);
    }

    /// Nobody but the owner ends a window, not even a queue pair of the same domain.
    /// Rules: INV-10, INV-11
    fn another_queue_pair_cannot_end_it(link: Link) {
        let it = Windowed::new(link);
        let (_, other) = it.both.more();
        it.refuses(other, it.key);
        it.still_bound();
    }
}

/// A failure is reported, signaled or not.
/// Rules: INV-03, INV-12
#[test]
fn unsignaled_failure_is_reported() {
    let it = Windowed::new(Link::Loopback);
    let request = local_inv_wr(it.key ^ 1);
    post(it.both.pair.qb, &mut ibv_send_wr { wr_id: 8, send_flags: 0, ..request });
    assert_eq!(it.both.pair.b.expect(IBV_WC_MW_BIND_ERR).wr_id, 8);
    it.both.pair.b.expect_nothing();
}

/// Not even the owner ends it with another low byte.
/// Rules: INV-10, INV-12
#[test]
fn the_low_byte_must_be_right() {
    let it = Windowed::new(Link::Loopback);
    for other in [1, 0x80, 0xff] {
        it.refuses(it.both.pair.qb, it.key ^ other);
        it.both.reconnect(it.both.qps());
        it.still_bound();
    }
}

/// Keys that name nothing.
/// Rules: INV-13
#[test]
fn unknown_keys_are_refused() {
    let it = Windowed::new(Link::Loopback);
    let freed = it.both.pair.b.mw(IBV_MW_TYPE_2);
    let freed_bound = it.both.pair.b.mw(IBV_MW_TYPE_2);
    bind(&it.both.pair.b, it.both.pair.qb, freed_bound, it.both.range(0, 64, REMOTE));
    let gone = [rkey(freed), rkey(freed_bound)];
    assert_eq!((dealloc_mw(freed), dealloc_mw(freed_bound)), (0, 0));
    for key in [gone[0], gone[1], 0, 0xdead_beef, u32::MAX] {
        let (_, qb) = it.both.more();
        it.refuses(qb, key);
    }
    it.still_bound();
}

/// A window of type 1 is unbound by a bind only.
/// Rules: INV-14
#[test]
fn a_window_of_type_1_stays() {
    let both = MemoryPair::pages(Link::Loopback);
    let (_, key) = both.bound(IBV_MW_TYPE_1, both.range(0, 4096, REMOTE));
    // Not even through the queue pair that bound it.
    for qps in [both.more(), both.qps()] {
        post(qps.1, &mut local_inv_wr(key));
        both.pair.b.expect(IBV_WC_MW_BIND_ERR);
        assert_eq!(state(qps.1), IBV_QPS_ERR);
        both.reconnect(qps);
        for op in Op::ALL {
            both.allowed_on(qps, op, both.far.addr(), 8, key);
        }
    }
    assert_eq!(dereg(both.mb), libc::EBUSY);
}

/// A window that is free, never bound or no longer, has nothing to end; it can be bound afterwards.
/// Rules: INV-15
#[test]
fn a_free_window_is_refused() {
    let it = Windowed::new(Link::Loopback);
    let (_, owner) = it.both.qps();
    assert_eq!(it.invalidate(owner, it.key).status, IBV_WC_SUCCESS);
    let fresh = it.both.pair.b.mw(IBV_MW_TYPE_2);
    for (mw, key) in [(it.mw, it.key), (fresh, rkey(fresh))] {
        it.refuses(owner, key);
        it.both.reconnect(it.both.qps());
        let range = it.both.range(0, 64, REMOTE);
        let key = bind(&it.both.pair.b, owner, mw, range);
        it.both.allowed_on(it.both.qps(), Op::Read, it.addr, 64, key);
    }
}

/// An ordinary region is not invalidated.
/// Rules: INV-16
#[test]
fn a_region_stays() {
    let both = MemoryPair::pages(Link::Loopback);
    let (lkey, remote) = keys(both.mb);
    for key in [lkey, remote, remote ^ 1] {
        let (_, qb) = both.more();
        post(qb, &mut local_inv_wr(key));
        both.pair.b.expect(IBV_WC_MW_BIND_ERR);
        assert_eq!(state(qb), IBV_QPS_ERR);
        for op in Op::ALL {
            both.allowed_on(both.qps(), op, both.far.addr(), 8, remote);
        }
    }
    assert_eq!(dereg(both.mb), 0);
}

/// A queue pair of another domain does not end it, with the right key.
/// Rules: INV-17
#[test]
fn another_domain_cannot_end_it() {
    let it = Windowed::new(Link::Loopback);
    let b = &it.both.pair.b;
    let other = b.with_pd(b.another_pd());
    let qp = other.qp(IBV_QPT_RC);
    connect(it.both.pair.a.qp(IBV_QPT_RC), qp);
    assert_eq!(state(qp), IBV_QPS_RTS);
    it.refuses(qp, it.key);
    it.still_bound();
}

/// After a failure the queue pair is in error: what is behind it flushes, in order, and receives
/// too; its peer gets no answer.
/// Rules: INV-18
#[test]
fn a_failure_breaks_the_queue_pair() {
    let it = Windowed::new(Link::Loopback);
    let (qa, qb) = it.both.qps();
    recv(qb, 50, &mut []);
    let numbered = |wr_id, wr| ibv_send_wr { wr_id, ..wr };
    let range = it.both.range(0, 64, REMOTE);
    let other = it.both.pair.b.mw(IBV_MW_TYPE_2);
    let mut list = [
        numbered(2, local_inv_wr(it.key ^ 1)),
        numbered(3, local_inv_wr(it.key)),
        numbered(4, bind2_wr(other, 1, range)),
        ibv_send_wr { send_flags: 0, ..numbered(5, wr(IBV_WR_SEND)) },
    ];
    assert_eq!(try_post_list(qb, &mut list), Ok(()));
    let mut sent = Vec::new();
    let mut received = Vec::new();
    for _ in 0..5 {
        let wc = it.both.pair.b.wait();
        let to = if wc.wr_id == 50 { &mut received } else { &mut sent };
        to.push((wc.wr_id, wc.status));
    }
    let flushed = IBV_WC_WR_FLUSH_ERR;
    assert_eq!(sent, [(2, IBV_WC_MW_BIND_ERR), (3, flushed), (4, flushed), (5, flushed)]);
    assert_eq!(received, [(50, flushed)]);
    assert_eq!(state(qb), IBV_QPS_ERR);
    give_up_soon(qa);
    let status = it.both.attempt((qa, qb), Op::Read, it.addr, 8, it.key);
    assert_eq!(status, IBV_WC_RETRY_EXC_ERR);
    it.both.reconnect((qa, qb));
    it.still_bound();
}

/// UC queue pairs end their windows too; that UD ones do not is in `unreliable/datagrams.rs`.
/// Rules: INV-19
#[test]
fn uc_ends_its_windows() {
    let both = MemoryPair::pages(Link::Loopback);
    let (qa, qb) = both.pair.another(IBV_QPT_UC);
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    let key = bind(&both.pair.b, qb, mw, both.range(0, 64, REMOTE));
    let write = |bytes: &[u8]| {
        both.near.write(0, bytes);
        let mut sges = [sge(both.near.addr(), bytes.len() as u32, both.ma)];
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, both.far.addr(), key));
        both.pair.a.expect(IBV_WC_SUCCESS);
        recv(qb, 5, &mut []);
        post(qa, &mut wr(IBV_WR_SEND));
        both.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 5);
    };
    write(b"before");
    assert_eq!(both.far.read(0, 6), b"before");
    post(qb, &mut local_inv_wr(key));
    assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
    write(b"after!");
    assert_eq!(both.far.read(0, 6), b"before");
    assert_eq!(dereg(both.mb), 0);
}

/// It takes no SGEs.
/// Rules: INV-20
#[test]
fn pieces_are_refused() {
    let it = Windowed::new(Link::Loopback);
    let mut sges = [sge(it.addr, 8, it.both.mb)];
    let mut request = with_sges(local_inv_wr(it.key), &mut sges);
    assert_eq!(try_post(it.both.pair.qb, &mut request), libc::EINVAL);
    assert_eq!(state(it.both.pair.qb), IBV_QPS_RTS);
    it.still_bound();
    it.both.pair.b.expect_nothing();
}

/// A window may be bound with the same key again and again, each time to another range.
/// Rules: INV-22
#[test]
fn the_same_key_can_be_bound_again() {
    let it = Windowed::new(Link::Loopback);
    let (_, qb) = it.both.qps();
    for round in 1..=20_u64 {
        assert_eq!(it.invalidate(qb, it.key).status, IBV_WC_SUCCESS);
        let range = it.both.range(round as usize * 64, 64, REMOTE);
        post(qb, &mut bind2_wr(it.mw, it.key, range));
        it.both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!(rkey(it.mw), it.key);
        it.both.allowed_on(it.both.qps(), Op::Write, range.addr, 64, it.key);
        it.both.refused_on(it.both.qps(), Op::Write, range.addr - 64, 64, it.key);
        it.both.reconnect(it.both.qps());
    }
}
