//! Places of work queues: taken by the post, and free again when a completion is polled.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::extended::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;

/// Places of the send and of the receive queues here.
const PLACES: u32 = 8;

/// Queue pairs with so many places, with receives where one end needs them.
fn connected(pair: &Pair) -> Qps {
    connected_by(pair, pair.a.cq)
}

/// The same where the first completes its sends into another queue.
fn connected_by(pair: &Pair, cq: *mut ibv_cq) -> Qps {
    let made = |end: &End, send_cq| {
        let mut init = ibv_qp_init_attr { send_cq, ..end.init(IBV_QPT_RC) };
        (init.cap.max_send_wr, init.cap.max_recv_wr) = (PLACES, PLACES);
        let qp = end.qp_with(&mut init);
        assert_eq!((init.cap.max_send_wr, init.cap.max_recv_wr), (PLACES, PLACES));
        qp
    };
    let qps = (made(&pair.a, cq), made(&pair.b, pair.b.cq));
    connect(qps.0, qps.1);
    qps
}

/// A receive of nothing for each place.
fn fill_receives(qp: *mut ibv_qp) {
    (0..PLACES.into()).for_each(|wr_id| recv(qp, wr_id, &mut []));
}

/// A SEND of nothing.
fn send() -> ibv_send_wr {
    wr(IBV_WR_SEND)
}

/// A work request without a completion.
fn silent(wr: ibv_send_wr) -> ibv_send_wr {
    ibv_send_wr { send_flags: wr.send_flags & !IBV_SEND_SIGNALED, ..wr }
}

/// Posts as often as there is room; how often that was.
fn posted_until_full(mut post: impl FnMut() -> i32) -> u32 {
    let full = |code| match code {
        0 => false,
        libc::ENOMEM => true,
        other => panic!("errno {other}"),
    };
    (0..10 * PLACES).find(|_| full(post())).expect("a full queue")
}

/// `ibv_inc_rkey`.
fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}

/// All that was posted has been carried out, at both ends.
fn carried_out(pair: &Pair) {
    Follower::new(&pair.a, &pair.b).follow();
}

on_each_link! {
    /// A program that posts until the queue is full, and only then polls, has no more completions than places:
    /// a completion queue as long as the send queue is never overrun, whatever is posted.
    /// Rules: ORD-06
    fn posting_until_full_and_polling_then_overruns_nothing(link: Link) {
        let both = MemoryPair::pages(link);
        let pair = &both.pair;
        let cq = try_cq(pair.a.context, PLACES as i32, null_mut()).expect("a queue");
        let (qa, _) = connected_by(pair, cq);
        let mut element = [both.near_sge(0, 8)];
        let (at, key) = (both.far.addr(), both.key());
        let mw = pair.a.mw(IBV_MW_TYPE_2);
        let range = Range { mr: both.ma, addr: both.near.addr(), length: 64, access: REMOTE };
        let (mut posted, mut done, mut bound) = (0, 0, rkey(mw));
        for round in 0..24 {
            let burst = posted_until_full(|| {
                let mut wr = match posted % 5 {
                    0 => rdma_wr(IBV_WR_RDMA_WRITE, &mut element, at, key),
                    1 => rdma_wr(IBV_WR_RDMA_READ, &mut element, at, key),
                    2 => atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut element, at, key, 1, 0),
                    3 => bind2_wr(mw, next_key(bound), range),
                    _ => local_inv_wr(bound),
                };
                wr.wr_id = posted;
                let code = try_post(qa, &mut wr);
                if code == 0 {
                    bound = if posted % 5 == 3 { next_key(bound) } else { bound };
                    posted += 1;
                }
                code
            });
            // As many as were polled the round before.
            assert_eq!(burst, if round == 0 { PLACES } else { 1 + (round - 1) % PLACES });
            for _ in 0..=round % PLACES {
                let wc = wait(cq);
                assert_eq!((wc.wr_id, wc.status), (done, IBV_WC_SUCCESS));
                done += 1;
            }
        }
        assert_eq!(state(qa), IBV_QPS_RTS);
        assert!(!pair.a.has_event());
    }

    /// Work without completions keeps its places however long it has been done: a queue takes as much as it has
    /// places for, and no more, until it is reset.
    /// Rules: ORD-06, T1-09
    fn work_without_completions_keeps_its_places(link: Link) {
        let both = MemoryPair::pages(link);
        let pair = &both.pair;
        let (at, key) = (both.far.addr(), both.key());
        let mut element = [both.near_sge(0, 8)];
        let [mw1, mw2] = [IBV_MW_TYPE_1, IBV_MW_TYPE_2].map(|kind| pair.a.mw(kind));
        let range = Range { mr: both.ma, addr: both.near.addr(), length: 64, access: REMOTE };
        let write = rdma_wr(IBV_WR_RDMA_WRITE, &mut element, at, key);
        let inline = ibv_send_wr { send_flags: IBV_SEND_INLINE, ..write };
        let read = ibv_send_wr { opcode: IBV_WR_RDMA_READ, ..write };
        let atomic = atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut element, at, key, 1, 0);
        let (qa, qb) = connected(pair);
        for kind in 0..7 {
            fill_receives(qb);
            let (mut posted, mut bound) = (0, rkey(mw2));
            let full = posted_until_full(|| {
                posted += 1;
                match kind {
                    0 => try_post(qa, &mut silent(send())),
                    1 => try_post(qa, &mut silent(write)),
                    2 => try_post(qa, &mut silent(inline)),
                    3 => try_post(qa, &mut silent(read)),
                    4 => try_post(qa, &mut silent(atomic)),
                    5 => bind1(qa, mw1, 0, 0, range),
                    _ if posted % 2 == 1 => {
                        bound = next_key(bound);
                        try_post(qa, &mut silent(bind2_wr(mw2, bound, range)))
                    }
                    _ => try_post(qa, &mut silent(local_inv_wr(bound))),
                }
            });
            assert_eq!(full, PLACES, "kind {kind}");
            carried_out(pair);
            pair.a.expect_nothing();
            let more = [try_post(qa, &mut send()), bind1(qa, mw1, 0, 0, range)];
            assert_eq!(more, [libc::ENOMEM; 2], "kind {kind}");
            both.reconnect((qa, qb));
        }
    }

    /// A completion gives back its own place, and those of what ended before it in silence, when it is polled and
    /// not when it is there.
    /// Rules: ORD-06
    fn a_polled_completion_frees_what_is_before_it(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, _) = connected(&both.pair);
        let mut element = [both.near_sge(0, 8)];
        let write = rdma_wr(IBV_WR_RDMA_WRITE, &mut element, both.far.addr(), both.key());
        let post_all = |signaled: &[u32]| {
            let mut at = 0;
            posted_until_full(|| {
                let this = ibv_send_wr { wr_id: at.into(), ..write };
                let code = match signaled.contains(&at) {
                    true => try_post(qa, &mut this.clone()),
                    false => try_post(qa, &mut silent(this)),
                };
                at += 1;
                code
            })
        };
        let polled = || both.pair.a.expect(IBV_WC_SUCCESS).wr_id;
        assert_eq!(post_all(&[2, 3]), 8);
        carried_out(&both.pair);
        assert_eq!(post_all(&[]), 0, "they are done, and nobody has polled");
        assert_eq!(polled(), 2);
        assert_eq!(post_all(&[]), 3);
        assert_eq!(polled(), 3);
        assert_eq!(post_all(&[0]), 1);
        assert_eq!(polled(), 0, "behind seven in silence");
        assert_eq!(post_all(&[7]), 8);
        assert_eq!(polled(), 7);
        both.pair.a.expect_nothing();
    }

    /// Completions with errors give back places like others: that of what failed with those in silence before
    /// it, and of what is flushed each its own.
    /// Rules: ORD-06, ORD-28
    fn errors_give_back_places_when_they_are_polled(link: Link) {
        let both = MemoryPair::pages(link);
        let pair = &both.pair;
        let cq = try_cq(pair.a.context, 2 * PLACES as i32, null_mut()).expect("a queue");
        let (qa, _) = connected_by(pair, cq);
        let mut element = [both.near_sge(0, 8)];
        for key in [both.key(), both.key(), both.key(), both.key() ^ 0xff] {
            let write = rdma_wr(IBV_WR_RDMA_WRITE, &mut element, both.far.addr(), key);
            post(qa, &mut silent(write));
        }
        until("the error", || {
            // A poll of another queue of the device makes progress too.
            pair.a.expect_nothing();
            pair.b.expect_nothing();
            (state(qa) == IBV_QPS_ERR).then_some(())
        });
        let post_all = || posted_until_full(|| try_post(qa, &mut silent(send())));
        assert_eq!(post_all(), PLACES - 4);
        assert_eq!(wait(cq).status, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(post_all(), 4);
        for polled in 1..=PLACES {
            assert_eq!(wait(cq).status, IBV_WC_WR_FLUSH_ERR);
            if polled % 3 == 0 {
                assert_eq!(post_all(), 3);
            }
        }
    }

    /// A receive has its place until its completion is polled.
    /// Rules: PS-12
    fn a_receive_keeps_its_place_until_it_is_polled(link: Link) {
        let both = MemoryPair::pages(link);
        let pair = &both.pair;
        let (qa, qb) = connected(pair);
        let fill = || posted_until_full(|| try_recv(qb, 0, &mut []));
        assert_eq!(fill(), PLACES);
        let mut element = [both.near_sge(0, 8)];
        let mut write = rdma_wr(IBV_WR_RDMA_WRITE_WITH_IMM, &mut element, both.far.addr(), both.key());
        for _ in 0..3 {
            post(qa, &mut send());
            post(qa, &mut write);
            pair.a.expect(IBV_WC_SUCCESS);
            pair.a.expect(IBV_WC_SUCCESS);
        }
        carried_out(pair);
        assert_eq!(fill(), 0);
        pair.b.expect(IBV_WC_SUCCESS);
        pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!(fill(), 2);
        // Those of a life that is over come back without a poll.
        both.reconnect((qa, qb));
        assert_eq!(fill(), PLACES);
        pair.b.expect_nothing();
        assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
        assert_eq!(fill(), 0, "flushed, and not polled");
        pair.b.expect(IBV_WC_WR_FLUSH_ERR);
        assert_eq!(fill(), 1);
    }

    /// A receive of a shared queue has its place until its completion is polled, or dropped with the queue pair
    /// that had it.
    /// Rules: SQ-10
    fn a_shared_receive_keeps_its_place_until_it_is_polled(link: Link) {
        let pool = Pool::new(link, 4096);
        let (a, b) = (&pool.pair.a, &pool.pair.b);
        let srq = srq(b.pd, PLACES);
        let places = query_srq(srq).max_wr;
        let connected = || {
            let qps = (a.qp(IBV_QPT_RC), qp_of_srq(b, IBV_QPT_RC, srq));
            connect(qps.0, qps.1);
            qps
        };
        let fill = || posted_until_full(|| try_srq_recv(srq, 0, &mut []));
        let (first, second) = (connected(), connected());
        assert_eq!(fill(), places);
        for (qa, _) in [first, second, second, first, first] {
            post(qa, &mut send());
            a.expect(IBV_WC_SUCCESS);
        }
        carried_out(&pool.pair);
        assert_eq!(fill(), 0);
        b.expect(IBV_WC_SUCCESS);
        assert_eq!(fill(), 1);
        assert_eq!(destroy_qp(second.1), 0);
        assert_eq!(fill(), 2, "of a queue pair that is gone");
        assert_eq!(set_state(first.1, IBV_QPS_RESET), 0);
        assert_eq!(fill(), 2, "of one that is reset");
        b.expect_nothing();
    }

    /// A batch is posted whole if there are places for all of it, and not at all if there are not.
    /// Rules: PS-14, ORD-06
    fn a_batch_needs_places_for_all_of_it(link: Link) {
        let both = MemoryPair::pages(link);
        let pair = &both.pair;
        let made = |end: &End| {
            let mut init = init_ex(end, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
            init.cap.max_send_wr = PLACES;
            try_qp_ex(end, &mut init).expect("a queue pair")
        };
        let (qa, qb) = (made(&pair.a), made(&pair.b));
        connect(qa, qb);
        let batch = |count: u32| {
            Builder::of(qa).batch(|build| {
                for wr_id in 0..count {
                    let last = wr_id + 1 == count;
                    build.next(wr_id.into(), if last { IBV_SEND_SIGNALED } else { 0 });
                    build.rdma_write(both.key(), both.far.addr());
                    build.sge(both.near_sge(0, 8));
                }
            })
        };
        assert_eq!(batch(PLACES + 1), libc::ENOMEM);
        assert_eq!(batch(PLACES - 2), 0);
        carried_out(pair);
        assert_eq!(batch(3), libc::ENOMEM);
        assert_eq!(batch(2), 0);
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, u64::from(PLACES) - 3);
        assert_eq!(batch(PLACES - 1), libc::ENOMEM);
        assert_eq!(batch(PLACES - 2), 0);
        let rest = wait_for(pair.a.cq, 2);
        assert_eq!(rest.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 5]);
        pair.a.expect_nothing();
    }
}

/// A queue that is polled field by field gives back a place with each completion that is reached, and one that has
/// another size by now gives back what waited in it.
/// Rules: ORD-06, CQ-14
#[test]
fn places_come_back_however_a_queue_is_polled() {
    let both = MemoryPair::pages(Link::Local);
    let pair = &both.pair;
    let cq = cq_ex(pair.a.context);
    let (qa, _) = connected_by(pair, cq.cast());
    let mut element = [both.near_sge(0, 8)];
    let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut element, both.far.addr(), both.key());
    let mut fill = || posted_until_full(|| try_post(qa, &mut write));
    assert_eq!(fill(), PLACES);
    // SAFETY: a live queue.
    assert_eq!(unsafe { transom_ibverbs::ibv_resize_cq(cq.cast(), 16) }, 0);
    assert_eq!(fill(), 0);
    assert_eq!(start_poll(cq), 0);
    assert_eq!(fill(), 1);
    assert_eq!([next_poll(cq), next_poll(cq)], [0; 2]);
    assert_eq!(fill(), 2);
    end_poll(cq);
    assert_eq!(fill(), 0);
}
