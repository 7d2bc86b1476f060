//! What becomes of shared receives when a queue pair fails: those it has taken are its own, the
//! others stay (rule ST-22).

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;

/// Larger than any segment, on every link.
const LONG: usize = 1 << 20;

/// The event that no more is taken is the next one, and no other comes.
fn expect_last(end: &End, qp: *mut ibv_qp) {
    assert_eq!(end.event(), (IBV_EVENT_QP_LAST_WQE_REACHED, qp.cast()));
    assert!(!end.has_event());
}

/// Lets a message begin that never ends: its sender's memory is gone half-way, which is paged on demand,
/// so that nobody keeps it. The pool's first queue pair has taken the oldest receive then.
fn half_a_message(pool: &Pool) {
    let from = Buffer::filled(LONG, 3);
    let mr = pool.pair.a.reg(&from, ALL | IBV_ACCESS_ON_DEMAND as i32);
    from.protect_part(LONG - 4096, 4096, libc::PROT_NONE);
    let mut sges = [sge(from.addr(), LONG as u32, mr)];
    post(pool.pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
    pool.pair.a.expect(IBV_WC_LOC_PROT_ERR);
    // What was sent has come when this has.
    Follower::new(&pool.pair.a, &pool.pair.b).follow();
    pool.pair.b.expect_nothing();
    assert!(pool.far.read(0, 4096) == from.read(0, 4096), "half of it is there");
}

on_each_link! {
    /// A queue pair in error leaves the shared receives to others, and says that it takes no more.
    /// Rules: ST-22, SQ-09, AE-04
    fn the_receives_stay_for_others(link: Link) {
        let pool = Pool::new(link, 4096);
        let (qa, qb) = pool.another();
        for wr_id in 0..3 {
            pool.recv(wr_id, 0, 64);
        }
        pool.post(pool.pair.qa, 1, 0, 8);
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(pool.pair.qb), 0);
        assert_eq!(set_state(pool.pair.qb, IBV_QPS_ERR), 0);
        expect_last(&pool.pair.b, pool.pair.qb);
        pool.pair.b.expect_nothing();
        for wr_id in 1..3 {
            pool.post(qa, 1, 0, 8);
            pool.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(pool.came(qb), wr_id);
        }
        // Once; and again when it has been in RESET.
        assert_eq!(set_state(pool.pair.qb, IBV_QPS_ERR), 0);
        assert!(!pool.pair.b.has_event());
        assert_eq!(set_state(pool.pair.qb, IBV_QPS_RESET), 0);
        take_to(&pool.pair.b, pool.pair.qb, IBV_QPS_ERR);
        expect_last(&pool.pair.b, pool.pair.qb);
    }

    /// It is said too when the device puts the queue pair in error: by what its peer asks for, by
    /// the receive itself, by its own send queue.
    /// Rules: ST-22, AE-01, AE-04
    fn the_device_says_it_too(link: Link) {
        let pool = Pool::new(link, 4096);
        let (a, b) = (&pool.pair.a, &pool.pair.b);
        let (qa, qb) = pool.another();
        let mut sges = [sge(pool.near.addr(), 8, pool.ma)];
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, 0x1000, 0x1234_5678));
        a.expect(IBV_WC_REM_ACCESS_ERR);
        assert_eq!(b.event(), (IBV_EVENT_QP_ACCESS_ERR, qb.cast()));
        expect_last(b, qb);

        let (qa, qb) = pool.another();
        pool.recv(1, 0, 4);
        pool.post(qa, 1, 0, 8);
        a.expect(IBV_WC_REM_INV_REQ_ERR);
        assert_eq!(b.expect(IBV_WC_LOC_LEN_ERR).wr_id, 1);
        expect_last(b, qb);

        let (_, qb) = pool.another();
        let mut wrong = [sge(0x1000, 8, std::ptr::null_mut())];
        post(qb, &mut with_sges(wr(IBV_WR_SEND), &mut wrong));
        b.expect(IBV_WC_LOC_PROT_ERR);
        expect_last(b, qb);
        assert!(!a.has_event());
    }

    /// In error, a message half received ends with its receive flushed, before the event; the
    /// others stay.
    /// Rules: ST-22, SQ-09
    fn a_message_half_received_is_flushed(link: Link) {
        let pool = Pool::new(link, LONG);
        for wr_id in 0..3 {
            pool.recv(wr_id, 0, LONG as u32);
        }
        half_a_message(&pool);
        // The next message of another queue pair takes the next receive.
        let (qa, qb) = pool.another();
        pool.post(qa, 1, 0, 8);
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(qb), 1);
        assert!(!pool.pair.b.has_event());
        assert_eq!(set_state(pool.pair.qb, IBV_QPS_ERR), 0);
        let wc = pool.pair.b.expect(IBV_WC_WR_FLUSH_ERR);
        assert_eq!((wc.wr_id, wc.qp_num), (0, number(pool.pair.qb)));
        expect_last(&pool.pair.b, pool.pair.qb);
        pool.post(qa, 1, 0, 8);
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(qb), 2);
        pool.pair.b.expect_nothing();
    }

    /// In RESET it is forgotten, its receive with it; the others stay.
    /// Rules: ST-10, SQ-09
    fn a_message_half_received_is_forgotten_in_reset(link: Link) {
        let pool = Pool::new(link, LONG);
        for wr_id in 0..2 {
            pool.recv(wr_id, 0, LONG as u32);
        }
        half_a_message(&pool);
        assert_eq!(set_state(pool.pair.qb, IBV_QPS_RESET), 0);
        assert_eq!(set_state(pool.pair.qa, IBV_QPS_RESET), 0);
        pool.pair.b.expect_nothing();
        assert!(!pool.pair.b.has_event());
        connect(pool.pair.qa, pool.pair.qb);
        pool.post(pool.pair.qa, 1, 0, 8);
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(pool.pair.qb), 1);
    }

    /// A receive that was taken for a message that never ended is the one its next message gets.
    /// Rules: SQ-07
    fn a_message_sent_anew_gets_the_receive_of_its_first_half(link: Link) {
        if link == Link::Wire {
            // The target expects the number of the next packet there, and not of the message.
            return;
        }
        let pool = Pool::new(link, LONG);
        for wr_id in 0..2 {
            pool.recv(wr_id, 0, LONG as u32);
        }
        half_a_message(&pool);
        // The sender alone begins anew, with the number that its peer expects.
        assert_eq!(set_state(pool.pair.qa, IBV_QPS_RESET), 0);
        bring_up(pool.pair.qa, &usual_attr(pool.pair.qb));
        for wr_id in 0..2 {
            pool.post(pool.pair.qa, 1, 0, LONG as u32);
            pool.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(pool.came(pool.pair.qb), wr_id);
            assert!(pool.far.read(0, LONG) == pool.near.read(0, LONG));
        }
    }

    /// Without a shared queue there is nothing to say.
    /// Rules: ST-22
    fn a_queue_of_its_own_raises_no_event(link: Link) {
        let pair = Pair::rc(link);
        recv(pair.qb, 1, &mut []);
        assert_eq!(set_state(pair.qb, IBV_QPS_ERR), 0);
        pair.b.expect(IBV_WC_WR_FLUSH_ERR);
        assert!(!pair.b.has_event());
    }

    /// A queue pair that goes with a message half received takes that receive along, and no other;
    /// then its queue can go.
    /// Rules: CR-17, SQ-09
    fn a_destroyed_queue_pair_takes_only_its_own_along(link: Link) {
        let pool = Pool::new(link, LONG);
        for wr_id in 0..2 {
            pool.recv(wr_id, 0, LONG as u32);
        }
        half_a_message(&pool);
        assert_eq!(destroy_qp(pool.pair.qb), 0);
        pool.pair.b.expect_nothing();
        let (qa, qb) = pool.another();
        pool.post(qa, 1, 0, 8);
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(qb), 1);
        assert_eq!(destroy_srq(pool.srq), libc::EBUSY);
        assert_eq!((destroy_qp(qb), destroy_srq(pool.srq)), (0, 0));
    }
}

/// However many such events nobody has taken yet, none is lost.
/// Rules: ST-22, AE-04
#[test]
fn none_of_many_events_is_lost() {
    const TIMES: usize = 500;
    let end = End::new(Default::default());
    let srq = srq(end.pd, 4);
    let mut waiting = std::collections::HashMap::new();
    for _ in 0..10 {
        let qp = end.qp_with(&mut ibv_qp_init_attr { srq, ..end.init(IBV_QPT_RC) });
        for _ in 0..TIMES {
            assert_eq!(set_state(qp, IBV_QPS_RESET), 0);
            take_to(&end, qp, IBV_QPS_ERR);
        }
        waiting.insert(qp.cast(), TIMES);
    }
    while end.has_event() {
        let (event, qp) = end.event();
        assert_eq!(event, IBV_EVENT_QP_LAST_WQE_REACHED);
        *waiting.get_mut(&qp).expect("one of these") -= 1;
    }
    assert!(waiting.values().all(|left| *left == 0), "{waiting:?} were lost");
}
