//! The limit of a shared receive queue and its event (rules SQ-01 to SQ-04).

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_ibverbs::*;

/// A pool with so many receives.
fn filled(link: Link, receives: u64) -> Pool {
    let pool = Pool::new(link, 4096);
    for wr_id in 0..receives {
        pool.recv(wr_id, 0, 64);
    }
    pool
}

/// Uses up one receive.
fn use_one(pool: &Pool) {
    pool.post(pool.pair.qa, 1, 0, 8);
    pool.pair.a.expect(IBV_WC_SUCCESS);
    pool.came(pool.pair.qb);
}

/// The limit's event is the next one, and no other comes.
fn expect_limit(pool: &Pool) {
    assert_eq!(pool.pair.b.event(), (IBV_EVENT_SRQ_LIMIT_REACHED, pool.srq.cast()));
    assert!(!pool.pair.b.has_event() && !pool.pair.a.has_event());
}

on_each_link! {
    /// The event comes when fewer are left than the limit says, not when there are as many; then the
    /// limit is off, until it is armed again.
    /// Rules: SQ-01, SQ-02, AE-04
    fn the_event_comes_once_below_the_limit(link: Link) {
        let pool = filled(link, 100);
        assert_eq!(arm_limit(pool.srq, 50), 0);
        assert_eq!(query_srq(pool.srq).srq_limit, 50);
        for _ in 0..50 {
            use_one(&pool);
            assert!(!pool.pair.b.has_event());
        }
        assert_eq!(query_srq(pool.srq).srq_limit, 50);
        use_one(&pool);
        expect_limit(&pool);
        assert_eq!(query_srq(pool.srq).srq_limit, 0);
        for _ in 0..10 {
            use_one(&pool);
        }
        for wr_id in 0..20 {
            pool.recv(wr_id, 0, 64);
            use_one(&pool);
        }
        assert!(!pool.pair.b.has_event());
        // 39 are left.
        assert_eq!(arm_limit(pool.srq, 39), 0);
        assert!(!pool.pair.b.has_event());
        use_one(&pool);
        expect_limit(&pool);
    }

    /// Receives that are taken by a flush or by WRITEs with immediate data count as any.
    /// Rules: SQ-01
    fn every_use_counts(link: Link) {
        let pool = filled(link, 2);
        assert_eq!(arm_limit(pool.srq, 2), 0);
        let mut sges = [sge(pool.near.addr(), 8, pool.ma)];
        let opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        let key = keys(pool.mb).1;
        post(pool.pair.qa, &mut rdma_wr(opcode, &mut sges, pool.far.addr(), key));
        pool.pair.a.expect(IBV_WC_SUCCESS);
        pool.pair.b.expect(IBV_WC_SUCCESS);
        expect_limit(&pool);
    }
}

/// A limit above what is there is reached at once.
/// Rules: SQ-03, SQ-02
#[test]
fn a_limit_above_the_count_is_reached_at_once() {
    let pool = filled(Link::Loopback, 10);
    assert_eq!(arm_limit(pool.srq, 10), 0);
    assert!(!pool.pair.b.has_event());
    assert_eq!(arm_limit(pool.srq, 11), 0);
    expect_limit(&pool);
    assert_eq!(query_srq(pool.srq).srq_limit, 0);
    for _ in 0..10 {
        use_one(&pool);
    }
    assert!(!pool.pair.b.has_event());
}

/// A limit of zero is none, and takes back one that was armed.
/// Rules: SQ-02
#[test]
fn zero_disarms() {
    let pool = filled(Link::Loopback, 2);
    assert_eq!((arm_limit(pool.srq, 2), arm_limit(pool.srq, 0)), (0, 0));
    use_one(&pool);
    use_one(&pool);
    assert!(!pool.pair.b.has_event());
}

/// The limit is no more than the queue holds; a refused one changes nothing. With a new size it is
/// measured by that.
/// Rules: SQ-04, SQ-05
#[test]
fn the_limit_is_within_the_size() {
    let pool = filled(Link::Loopback, 8);
    let size = query_srq(pool.srq).max_wr;
    assert_eq!(arm_limit(pool.srq, 7), 0);
    for over in [size + 1, u32::MAX] {
        assert_eq!(arm_limit(pool.srq, over), libc::EINVAL);
        assert_eq!(query_srq(pool.srq).srq_limit, 7);
    }
    let both = |max_wr, srq_limit| {
        let attr = ibv_srq_attr { max_wr, srq_limit, ..ibv_srq_attr::default() };
        modify_srq(pool.srq, attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)
    };
    for (max_wr, limit) in [(20, 32), (4, 3), (u32::MAX, 3)] {
        assert_eq!(both(max_wr, limit), libc::EINVAL);
        let found = query_srq(pool.srq);
        assert_eq!((found.max_wr, found.srq_limit), (size, 7));
    }
    assert!(!pool.pair.b.has_event());
    assert_eq!(both(20, 5), 0);
    let found = query_srq(pool.srq);
    assert_eq!((found.max_wr, found.srq_limit), (31, 5));
    // Not below the limit that is armed, nor below what waits.
    let resize = |max_wr| {
        let attr = ibv_srq_attr { max_wr, ..ibv_srq_attr::default() };
        modify_srq(pool.srq, attr, IBV_SRQ_MAX_WR)
    };
    assert_eq!((resize(4), resize(7), resize(8)), (libc::EINVAL, libc::EINVAL, 0));
    assert!(!pool.pair.b.has_event());
    assert_eq!(both(2 * size, size), 0);
    expect_limit(&pool);
}

/// A queue waits for the acknowledgement of its event before it goes; one that nobody took goes with
/// it.
/// Rules: CR-18, AE-06
#[test]
fn a_queue_waits_for_the_acknowledgement_of_its_event() {
    let end = End::new(Default::default());
    let shared = srq(end.pd, 4);
    assert_eq!(arm_limit(shared, 1), 0);
    let mut event = ibv_async_event::default();
    // SAFETY: an open context and a place for the event.
    assert_eq!(unsafe { ibv_get_async_event(end.context, &mut event) }, 0);
    // SAFETY: the event is about a shared receive queue.
    assert_eq!(unsafe { event.element.srq }, shared);
    // While a queue pair uses it, it is busy rather than waited for.
    let qp = qp_of_srq(&end, IBV_QPT_RC, shared);
    assert_eq!((destroy_srq(shared), destroy_qp(qp)), (libc::EBUSY, 0));
    let gone = Across::new(shared);
    blocks_until(
        move || assert_eq!(destroy_srq(gone.get()), 0),
        // SAFETY: an event that was taken.
        || unsafe { ibv_ack_async_event(&mut { event }) },
    );
    let shared = srq(end.pd, 4);
    assert_eq!(arm_limit(shared, 1), 0);
    assert!(end.has_event());
    assert_eq!(destroy_srq(shared), 0);
}
