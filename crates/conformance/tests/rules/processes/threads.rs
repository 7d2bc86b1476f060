//! Every object may be used by any thread at any time: made and ended here while it is posted to and
//! polled there. Whatever the threads do at once, all comes out as often as it was asked for.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread::{scope, yield_now};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::extended::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;

/// Threads that do the same at once.
const THREADS: u64 = 4;
/// What each of them posts.
const EACH: u64 = 400;
/// Bytes of a message.
const BYTES: u32 = 64;

/// A number for each message, known to sender and receiver.
fn wr_id(thread: u64, number: u64) -> u64 {
    thread * 10_000 + number
}

/// All of them.
fn all() -> BTreeSet<u64> {
    (0..THREADS).flat_map(|thread| (0..EACH).map(move |number| wr_id(thread, number))).collect()
}

/// Posts until there is room.
fn post_when_there_is_room(mut post: impl FnMut() -> i32) {
    until("room in the queue", || match post() {
        0 => Some(()),
        errno => {
            assert_eq!(errno, libc::ENOMEM);
            yield_now();
            None
        }
    });
}

/// Numbers that must come exactly once each, to any thread.
#[derive(Default)]
struct Tally {
    taken: AtomicUsize,
    numbers: Mutex<BTreeSet<u64>>,
}

impl Tally {
    fn note(&self, number: u64) {
        assert!(self.numbers.lock().unwrap().insert(number), "{number} came twice");
        self.taken.fetch_add(1, AcqRel);
    }

    fn is_complete(&self) -> bool {
        self.taken.load(Acquire) >= (THREADS * EACH) as usize
    }

    /// Polls, as one of several threads, until all have come.
    fn poll(&self, cq: *mut ibv_cq, number: impl Fn(&ibv_wc) -> u64) {
        until("all completions", || {
            match poll(cq) {
                Some(wc) => {
                    assert_eq!(wc.status, IBV_WC_SUCCESS, "{wc:?}");
                    self.note(number(&wc));
                }
                None => yield_now(),
            }
            self.is_complete().then_some(())
        });
    }
}

/// The number that came along as immediate data.
fn immediate(wc: &ibv_wc) -> u64 {
    // SAFETY: a completion with immediate.
    u64::from(u32::from_be(unsafe { wc.imm.imm_data }))
}

/// A SEND with its number.
fn numbered(number: u64, sges: &mut [ibv_sge]) -> ibv_send_wr {
    let mut send = with_sges(wr(IBV_WR_SEND_WITH_IMM), sges);
    send.wr_id = number;
    send.imm.imm_data = (number as u32).to_be();
    send
}

/// Makes one of everything on both ends, sends a message over it, and ends it all.
fn come_and_go(pair: &Pair) {
    let ends = [&pair.a, &pair.b].map(|end| {
        let mine = End::on(end.context);
        let buffer = Buffer::filled(4096, 3);
        let mr = mine.reg(&buffer, ALL);
        let mws = [mine.mw(IBV_MW_TYPE_1), mine.mw(IBV_MW_TYPE_2)];
        let (ah, srq) = (ah(mine.pd, &here()), srq(mine.pd, 4));
        let (ud, rc) = (ud_qp(&mine), qp_of_srq(&mine, IBV_QPT_RC, srq));
        let dm = alloc_dm(end.context, 64);
        (mine, buffer, mr, mws, ah, srq, ud, rc, dm)
    });
    let [a, b] = &ends;
    connect(a.7, b.7);
    srq_recv(b.5, 5, &mut [sge(b.1.addr(), BYTES, b.2)]);
    post(a.7, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(a.1.addr(), BYTES, a.2)]));
    assert_eq!(b.0.expect(IBV_WC_SUCCESS).wr_id, 5);
    a.0.expect(IBV_WC_SUCCESS);
    let range = Range { mr: b.2, addr: b.1.addr(), length: 64, access: IBV_ACCESS_REMOTE_WRITE };
    for mw in b.3 {
        let key = bind(&b.0, b.7, mw, range);
        let mut sges = [sge(a.1.addr(), BYTES, a.2)];
        post(a.7, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, b.1.addr(), key));
        a.0.expect(IBV_WC_SUCCESS);
    }
    let room = BYTES + GRH as u32;
    recv(b.6, 6, &mut [sge(b.1.addr(), room, b.2)]);
    let mut sges = [sge(a.1.addr(), BYTES, a.2)];
    let datagram = with_sges(wr(IBV_WR_SEND), &mut sges);
    post(a.6, &mut addressed(datagram, a.4, number(b.6), QKEY));
    assert_eq!(b.0.expect(IBV_WC_SUCCESS).wr_id, 6);
    a.0.expect(IBV_WC_SUCCESS);
    for (end, _buffer, mr, mws, ah, srq, ud, rc, dm) in ends {
        assert_eq!(
            (destroy_ah(ah), destroy_qp(ud), destroy_qp(rc), destroy_srq(srq)),
            (0, 0, 0, 0)
        );
        mws.iter().for_each(|mw| assert_eq!(dealloc_mw(*mw), 0));
        assert_eq!((dereg(mr), free_dm(dm), destroy_cq(end.cq), dealloc_pd(end.pd)), (0, 0, 0, 0));
    }
}

/// The queue pairs of a pair of ends, for as many receives as there will be.
fn roomy(end: &End, kind: ibv_qp_type) -> *mut ibv_qp {
    let mut init = end.init(kind);
    init.cap.max_recv_wr = (THREADS * EACH) as u32;
    end.qp_with(&mut init)
}

on_each_link! {
    /// One connection, to which several threads post and whose queues several poll, while others look
    /// at it, and make and end what is theirs.
    fn a_connection_is_shared(link: Link) {
        let pair = &Pair::rc(link);
        let (near, far) = (Buffer::new(4096), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let (ma, mb, near, far) = (Across::new(ma), Across::new(mb), near.addr(), far.addr());
        let (sent, received) = (&Tally::default(), &Tally::default());
        scope(|threads| {
            for thread in 0..THREADS {
                threads.spawn(move || for number in 0..EACH {
                    let mut sges = [sge(near, BYTES, ma.get())];
                    let mut send = numbered(wr_id(thread, number), &mut sges);
                    post_when_there_is_room(|| try_post(pair.qa, &mut send));
                });
                threads.spawn(move || for number in 0..EACH {
                    let mut sges = [sge(far, BYTES, mb.get())];
                    post_when_there_is_room(|| try_recv(pair.qb, wr_id(thread, number), &mut sges));
                });
                threads.spawn(move || sent.poll(pair.a.cq, |wc| wc.wr_id));
                threads.spawn(move || received.poll(pair.b.cq, immediate));
            }
            for _ in 0..2 {
                threads.spawn(|| (0..10).for_each(|_| come_and_go(pair)));
                threads.spawn(|| for _ in 0..EACH {
                    assert_eq!((state(pair.qa), state(pair.qb)), (IBV_QPS_RTS, IBV_QPS_RTS));
                });
            }
        });
        assert_eq!(sent.taken.load(Acquire), received.taken.load(Acquire));
        assert_eq!(*sent.numbers.lock().unwrap(), all());
        assert_eq!(*received.numbers.lock().unwrap(), all());
        pair.a.expect_nothing();
        pair.b.expect_nothing();
    }

    /// One UD queue pair, to which several threads post, each with an address handle of its own for
    /// each datagram.
    fn a_datagram_queue_pair_is_shared(link: Link) {
        if link == Link::Wire {
            return; // Datagrams that find the socket full are lost.
        }
        let (a, b) = ends(link, Default::default());
        let pair = &Pair { qa: a.qp(IBV_QPT_UD), qb: roomy(&b, IBV_QPT_UD), a, b };
        bring_up_ud(pair.qa, QKEY);
        bring_up_ud(pair.qb, QKEY);
        let (near, far) = (Buffer::new(4096), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let room = BYTES + GRH as u32;
        all().iter().for_each(|id| recv(pair.qb, *id, &mut [sge(far.addr(), room, mb)]));
        let (ma, near) = (Across::new(ma), near.addr());
        let (sent, received) = (&Tally::default(), &Tally::default());
        scope(|threads| for thread in 0..THREADS {
            threads.spawn(move || for number in 0..EACH {
                let ah = ah(pair.a.pd, &here());
                let mut sges = [sge(near, BYTES, ma.get())];
                let send = numbered(wr_id(thread, number), &mut sges);
                let mut send = addressed(send, ah, transom_conformance::queues::number(pair.qb), QKEY);
                post_when_there_is_room(|| try_post(pair.qa, &mut send));
                assert_eq!(destroy_ah(ah), 0);
            });
            threads.spawn(move || sent.poll(pair.a.cq, |wc| wc.wr_id));
            threads.spawn(move || received.poll(pair.b.cq, immediate));
        });
        assert_eq!(*sent.numbers.lock().unwrap(), all());
        assert_eq!(*received.numbers.lock().unwrap(), all());
    }

    /// A shared receive queue that several threads fill and several connections use up.
    /// Rules: SQ-06
    fn a_shared_receive_queue_is_filled_and_used_up(link: Link) {
        let pool = &Pool::new(link, 4096);
        let pairs: Vec<_> = (0..THREADS).map(|_| Across::new(pool.another())).collect();
        let (sent, received) = (&Tally::default(), &Tally::default());
        let cqs = Across::new((pool.pair.a.cq, pool.pair.b.cq));
        let (srq, ma, mb) = (Across::new(pool.srq), Across::new(pool.ma), Across::new(pool.mb));
        let (near, far) = (pool.near.addr(), pool.far.addr());
        scope(|threads| for (thread, pair) in (0..THREADS).zip(pairs) {
            threads.spawn(move || for number in 0..EACH {
                let mut sges = [sge(near, BYTES, ma.get())];
                let mut send = numbered(wr_id(thread, number), &mut sges);
                post_when_there_is_room(|| try_post(pair.get().0, &mut send));
            });
            threads.spawn(move || for number in 0..EACH {
                let mut sges = [sge(far, BYTES, mb.get())];
                let id = wr_id(thread, number);
                post_when_there_is_room(|| try_srq_recv(srq.get(), id, &mut sges));
            });
            threads.spawn(move || sent.poll(cqs.get().0, |wc| wc.wr_id));
            threads.spawn(move || received.poll(cqs.get().1, immediate));
        });
        assert_eq!(*sent.numbers.lock().unwrap(), all());
        assert_eq!(*received.numbers.lock().unwrap(), all());
    }

    /// Several threads build batches on one queue pair: each goes as a whole. Their completions are
    /// polled field by field, by several threads.
    /// Rules: PS-14
    fn batches_and_their_completions_are_shared(link: Link) {
        const BATCH: u64 = 4;
        let (a, b) = ends(link, Default::default());
        let cq = cq_ex(a.context);
        let mut init = init_ex(&a, IBV_QPT_RC, IBV_QP_EX_WITH_SEND_WITH_IMM);
        init.send_cq = cq.cast();
        let pair = Pair { qa: try_qp_ex(&a, &mut init).unwrap(), qb: roomy(&b, IBV_QPT_RC), a, b };
        connect(pair.qa, pair.qb);
        all().iter().for_each(|id| recv(pair.qb, *id, &mut []));
        let (build, sent, cq) = (Builder::of(pair.qa), &Tally::default(), Across::new(cq));
        scope(|threads| for thread in 0..THREADS {
            threads.spawn(move || for first in (0..EACH).step_by(BATCH as usize) {
                post_when_there_is_room(|| build.batch(|build| for number in first..first + BATCH {
                    let number = wr_id(thread, number);
                    build.signaled(number).send_imm((number as u32).to_be());
                }));
            });
            threads.spawn(move || until("all completions", || {
                for wc in take_batch(cq.get(), read_wc) {
                    assert_eq!(wc.status, IBV_WC_SUCCESS);
                    sent.note(wc.wr_id);
                }
                yield_now();
                sent.is_complete().then_some(())
            }));
        });
        assert_eq!(*sent.numbers.lock().unwrap(), all());
        let came: Vec<_> = all().iter().map(|_| immediate(&pair.b.expect(IBV_WC_SUCCESS))).collect();
        for batch in came.chunks(BATCH as usize) {
            assert!(batch.windows(2).all(|next| next[0] + 1 == next[1]), "{batch:?} is torn");
        }
        assert_eq!(BTreeSet::from_iter(came), all());
    }
}

/// Has this thread run on one processor only, the same for all who ask.
fn on_one_processor() {
    // SAFETY: sets of this function's own, for this thread alone.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed), 0);
        let processors = 0..libc::CPU_SETSIZE as usize;
        let first = processors.into_iter().find(|cpu| libc::CPU_ISSET(*cpu, &allowed));
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first.expect("it runs somewhere"), &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
    }
}

on_each_link! {
    /// Two threads of one processor that wait for each other by polling: a poll that finds nothing lets
    /// the other one run, and does not go on until the time slice is over. Usually there are some
    /// hundred such polls for a message then, and without it ten thousands.
    fn a_poller_lets_its_peer_run(link: Link) {
        const MESSAGES: usize = 60;
        let pair = Pair::rc(link);
        let play = |qp: *mut ibv_qp, cq: *mut ibv_cq, begins: bool| {
            on_one_processor();
            let mut in_vain = Vec::new();
            for message in 0..MESSAGES {
                if begins || message > 0 {
                    post(qp, &mut wr(IBV_WR_SEND));
                }
                let (mut polls, mut received) = (0_u32, false);
                // Its own message completes too, sooner or later.
                while !received {
                    match poll(cq) {
                        Some(wc) => received = wc.opcode == IBV_WC_RECV,
                        None => polls += 1,
                    }
                }
                recv(qp, 0, &mut []);
                in_vain.push(polls);
            }
            if !begins {
                post(qp, &mut wr(IBV_WR_SEND));
            }
            in_vain.sort_unstable();
            in_vain[MESSAGES / 2]
        };
        for qp in [pair.qa, pair.qb] {
            recv(qp, 0, &mut []);
        }
        let a = Across::new((pair.qa, pair.a.cq));
        let b = Across::new((pair.qb, pair.b.cq));
        let usual = scope(|scope| {
            let one = scope.spawn(|| play(a.get().0, a.get().1, true));
            let other = scope.spawn(|| play(b.get().0, b.get().1, false));
            [one.join().unwrap(), other.join().unwrap()]
        });
        assert!(usual.iter().all(|polls| *polls < 2_000), "{usual:?} polls in vain");
    }
}
