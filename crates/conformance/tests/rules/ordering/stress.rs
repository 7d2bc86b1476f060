//! Binds, invalidations and the peer's operations racing each other in threads (rules F).
//!
//! Every race ends by itself after a fixed number of rounds.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// Something with verbs objects in it that threads share: verbs may be called from any thread.
struct Shared<T>(T);

// SAFETY: as above; what is not verbs in it is only read, or in memory of its own.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

/// An end in the same domain with a completion queue of its own, for a thread of its own.
fn beside(end: &End) -> End {
    End::on(end.context).with_pd(end.pd)
}

/// The same window in a struct of its own: the library notes its key there without a lock.
fn copy_of(mw: *mut ibv_mw) -> Box<ibv_mw> {
    // SAFETY: a live window.
    let ibv_mw { context, pd, rkey, handle, type_ } = unsafe { &*mw };
    Box::new(ibv_mw { context: *context, pd: *pd, rkey: *rkey, handle: *handle, type_: *type_ })
}

/// How a window is taken away under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Revoke {
    LocalInvalidate,
    Unbind,
    Rebind,
}

const PAGE: usize = 4096;

/// One byte of each page.
fn samples(buffer: &Buffer, length: usize) -> Vec<u8> {
    (0..length / PAGE).map(|page| buffer.read(page * PAGE, 1)[0]).collect()
}

fn set_samples(buffer: &Buffer, length: usize, value: u8) {
    (0..length / PAGE).for_each(|page| buffer.write(page * PAGE, &[value]));
}

/// Long operations that lose their window under way: up to the completion of what takes the window
/// away they may have moved bytes; from then on they move none. An operation that succeeds has
/// moved everything before. Goes on until some were caught half-way, with longer ones if need be.
fn revoke_under_way(link: Link, opcode: ibv_wr_opcode, revoke: Revoke) {
    const LONGEST: usize = 64 << 20;
    const OLD: u8 = 0;
    const NEW: u8 = 1;
    const SECRET: u8 = 2;
    let both = Shared(MemoryPair::new(link, PAGE));
    let both = both.get();
    let (near, far) = (Buffer::new(LONGEST), Buffer::new(LONGEST));
    let b = &both.pair.b;
    let (ma, mb) = (both.pair.a.reg(&near, ALL), b.reg(&far, ALL));
    let write = opcode == IBV_WR_RDMA_WRITE;
    let (from, to) = if write { (&near, &far) } else { (&far, &near) };
    let mut caught = 0;
    for attempt in 0..100 {
        let length = (4 << 20 << (attempt / 20)).min(LONGEST);
        set_samples(from, length, NEW);
        set_samples(to, length, OLD);
        let (qa, qb) = both.pair.another(IBV_QPT_RC);
        let range = Range { mr: mb, addr: far.addr(), length: length as u64, access: REMOTE };
        let type2 = revoke == Revoke::LocalInvalidate;
        let mw = b.mw(if type2 { IBV_MW_TYPE_2 } else { IBV_MW_TYPE_1 });
        let key = bind(b, qb, mw, range);
        let origin = Shared((&both.pair.a, qa, ma));
        let (near, far) = (&near, &far);
        let (wc, then) = thread::scope(|scope| {
            let asked = scope.spawn(move || {
                let (a, qa, ma) = origin.get();
                let mut sges = [sge(near.addr(), length as u32, *ma)];
                post(*qa, &mut rdma_wr(opcode, &mut sges, far.addr(), key));
                a.wait()
            });
            until("the first byte", || (to.read(0, 1)[0] == NEW).then_some(()));
            match revoke {
                Revoke::LocalInvalidate => post(qb, &mut local_inv_wr(key)),
                Revoke::Unbind => {
                    let none = Range { length: 0, ..range };
                    assert_eq!(bind1(qb, mw, 1, IBV_SEND_SIGNALED, none), 0);
                }
                Revoke::Rebind => {
                    let elsewhere =
                        Range { mr: both.mb, addr: both.far.addr(), length: 64, ..range };
                    assert_eq!(bind1(qb, mw, 1, IBV_SEND_SIGNALED, elsewhere), 0);
                }
            }
            b.expect(IBV_WC_SUCCESS);
            // From here on the memory is the program's own again.
            let then = write.then(|| samples(far, length));
            if !write {
                set_samples(far, length, SECRET);
            }
            (asked.join().expect("it asks"), then)
        });
        let now = samples(to, length);
        match wc.status {
            IBV_WC_SUCCESS => {
                let then = then.as_ref().unwrap_or(&now);
                assert!(then.iter().all(|byte| *byte == NEW), "{revoke:?}: done, yet not whole");
            }
            IBV_WC_REM_ACCESS_ERR => caught += 1,
            _ => panic!("{wc:?}"),
        }
        assert!(then.is_none_or(|then| then == now), "{revoke:?}: written after completion");
        assert!(!now.contains(&SECRET), "{revoke:?}: read after completion");
        assert_eq!(dealloc_mw(mw), 0);
        // SAFETY: the queue pairs are live, and not used any more.
        unsafe {
            assert_eq!(transom_ibverbs::ibv_destroy_qp(qa), 0);
            while b.has_event() {
                b.event();
            }
            assert_eq!(transom_ibverbs::ibv_destroy_qp(qb), 0);
        }
        if caught == 3 {
            return;
        }
    }
    assert!(caught > 0, "no operation was under way when its window went");
}

/// A program that has the answer to a message may take it for granted that the message has completed, as
/// perftest does with completion queues that hold one. On loopback there is no such order: the message
/// completes in the thread that posts it, when another may have answered already. No rule says so much.
fn messages_complete_before_their_answers(link: Link) {
    let pairs: Vec<_> = (0..4).map(|_| Pair::rc(link)).collect();
    // Of one packet, and of several whose last is shorter.
    for (length, rounds) in [(0, 1000), (100, 1000), (9000, 500)] {
        thread::scope(|scope| {
            for pair in &pairs {
                scope.spawn(move || answers(pair, length, rounds));
            }
        });
    }
}

#[test]
fn a_message_completes_before_its_answer_on_the_direct_way() {
    messages_complete_before_their_answers(Link::Local);
}

#[test]
fn a_message_completes_before_its_answer_through_shared_memory() {
    messages_complete_before_their_answers(Link::Rings);
}

#[test]
fn a_message_completes_before_its_answer_over_the_wire() {
    messages_complete_before_their_answers(Link::Wire);
}

/// Messages and answers of so many bytes, one at a time, between two ends with a thread each.
fn answers(pair: &Pair, length: u32, rounds: u64) {
    let [near, far] = [&pair.a, &pair.b].map(|end| {
        let buffer = Buffer::new(2 * length as usize + 1);
        let mr = end.reg(&buffer, ALL);
        (buffer, mr)
    });
    let (near, far) = (Shared(near), Shared(far));
    let receive = |qp, round, (buffer, mr): &(Buffer, *mut ibv_mr)| {
        recv(qp, round, &mut [sge(buffer.addr(), length, *mr)]);
    };
    let send = |qp, round, (buffer, mr): &(Buffer, *mut ibv_mr)| {
        let from = buffer.addr() + u64::from(length);
        let mut wr = with_sges(wr(IBV_WR_SEND), &mut [sge(from, length, *mr)]);
        wr.wr_id = round;
        post(qp, &mut wr);
    };
    receive(pair.qb, 0, far.get());
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                let wc = pair.b.expect(IBV_WC_SUCCESS);
                assert_eq!((wc.opcode, wc.wr_id), (IBV_WC_RECV, round));
                if round + 1 < rounds {
                    receive(pair.qb, round + 1, far.get());
                }
                send(pair.qb, round, far.get());
                assert_eq!(pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
            }
        });
        for round in 0..rounds {
            receive(pair.qa, round, near.get());
            send(pair.qa, round, near.get());
            for opcode in [IBV_WC_SEND, IBV_WC_RECV] {
                let wc = pair.a.expect(IBV_WC_SUCCESS);
                assert_eq!((wc.opcode, wc.wr_id), (opcode, round));
            }
        }
    });
}

on_each_link! {
    /// The peer uses a key the moment it hears of it: the bind before the message is done. Type 1
    /// and type 2 in turn, 10 000 binds.
    /// Rules: ORD-12
    fn a_bind_is_done_before_the_next_send(link: Link) {
        const ROUNDS: u64 = 5_000;
        let both = Shared(MemoryPair::new(link, 4096));
        let turn = AtomicU64::new(0);
        thread::scope(|scope| {
            let (binder, turn) = (&both, &turn);
            scope.spawn(move || {
                let both = binder.get();
                let (b, qb) = (&both.pair.b, both.pair.qb);
                let windows = [b.mw(IBV_MW_TYPE_1), b.mw(IBV_MW_TYPE_2)];
                for round in 0..2 * ROUNDS {
                    let mw = windows[round as usize % 2];
                    let range = Range {
                        mr: both.mb,
                        addr: both.far.addr() + round % 64 * 8,
                        length: 8,
                        access: REMOTE,
                    };
                    if round % 2 == 0 {
                        assert_eq!(bind1(qb, mw, 1, 0, range), 0);
                    } else {
                        if round > 1 {
                            post(qb, &mut ibv_send_wr { send_flags: 0, ..local_inv_wr(rkey(mw)) });
                        }
                        let mut wr = bind2_wr(mw, rkey(mw).wrapping_add(1), range);
                        wr.send_flags = 0;
                        post(qb, &mut wr);
                    }
                    let mut wr = wr(IBV_WR_SEND_WITH_IMM);
                    wr.imm.imm_data = rkey(mw);
                    post(qb, &mut wr);
                    b.expect(IBV_WC_SUCCESS);
                    until("the peer", || (turn.load(SeqCst) > round).then_some(()));
                }
            });
            let both = both.get();
            for round in 0..2 * ROUNDS {
                recv(both.pair.qa, 1, &mut []);
                let wc = both.pair.a.expect(IBV_WC_SUCCESS);
                // SAFETY: both variants are plain numbers.
                let key = unsafe { wc.imm.imm_data };
                both.near.set_word(0, round);
                let at = round % 64 * 8;
                let wc = both.op(IBV_WR_RDMA_WRITE, both.far.addr() + at, key, 8);
                assert_eq!(wc.status, IBV_WC_SUCCESS, "round {round}");
                assert_eq!(both.far.word(at as usize), round);
                turn.store(round + 1, SeqCst);
            }
        });
    }

    /// A long WRITE that loses its type 2 window by a LOCAL_INV. It may come to its end first; what
    /// comes after the LOCAL_INV is done does not happen.
    /// Rules: RA-36, ORD-14, ORD-17
    fn local_invalidate_stops_a_write(link: Link) {
        revoke_under_way(link, IBV_WR_RDMA_WRITE, Revoke::LocalInvalidate);
    }

    /// A long READ that loses its type 2 window by a LOCAL_INV.
    /// Rules: RA-36, ORD-14, ORD-17
    fn local_invalidate_stops_a_read(link: Link) {
        revoke_under_way(link, IBV_WR_RDMA_READ, Revoke::LocalInvalidate);
    }

    /// A long WRITE that loses its type 1 window by a bind of length zero.
    /// Rules: RA-36, ORD-14
    fn an_unbind_stops_a_write(link: Link) {
        revoke_under_way(link, IBV_WR_RDMA_WRITE, Revoke::Unbind);
    }

    /// A long READ that loses its type 1 window by a bind of length zero.
    /// Rules: RA-36, ORD-14
    fn an_unbind_stops_a_read(link: Link) {
        revoke_under_way(link, IBV_WR_RDMA_READ, Revoke::Unbind);
    }

    /// A long WRITE whose type 1 window is bound elsewhere.
    /// Rules: RA-36, ORD-14
    fn a_rebind_stops_a_write(link: Link) {
        revoke_under_way(link, IBV_WR_RDMA_WRITE, Revoke::Rebind);
    }

    /// A long READ whose type 1 window is bound elsewhere.
    /// Rules: RA-36, ORD-14
    fn a_rebind_stops_a_read(link: Link) {
        revoke_under_way(link, IBV_WR_RDMA_READ, Revoke::Rebind);
    }

    /// A type 1 window goes to and fro between two ranges while a peer WRITEs with whatever key it
    /// last heard of. Each WRITE is wholly in the old range before the rebind completes, wholly in
    /// the new one, or refused; nothing is written elsewhere, nor later.
    /// Rules: ORD-21, ORD-14
    fn a_rebind_splits_no_write(link: Link) {
        const ROUNDS: usize = 400;
        const SIZE: usize = 16 << 10;
        const REST: u8 = 0xff;
        let places = [4096, 4096 + SIZE + 4096];
        let end = places[1] + SIZE + 4096;
        let both = Shared(MemoryPair::new(link, end));
        let far = &both.get().far;
        far.write(0, &vec![REST; far.len()]);
        let (stop, writes, current) =
            (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let control = beside(&both.get().pair.b);
        let (b, mb) = (&both.get().pair.b, both.get().mb);
        let binder = control.qp(IBV_QPT_RC);
        connect(binder, both.get().pair.a.qp(IBV_QPT_RC));
        let mw = b.mw(IBV_MW_TYPE_1);
        let bind_to = |side: usize| {
            let addr = far.addr() + places[side] as u64;
            let range = Range { mr: mb, addr, length: SIZE as u64, access: REMOTE };
            let key = bind(&control, binder, mw, range);
            current.store(u64::from(key) << 32 | side as u64, SeqCst);
        };
        bind_to(0);
        thread::scope(|scope| {
            let (writer, stop, writes, current) = (&both, &stop, &writes, &current);
            let thread = scope.spawn(move || {
                let both = writer.get();
                let (mut qa, _) = both.pair.another(IBV_QPT_RC);
                let (mut number, mut done) = (0, 0);
                while !stop.load(SeqCst) {
                    number = (number + 1) % REST;
                    both.near.write(0, &[number; SIZE]);
                    let now = current.load(SeqCst);
                    let (key, side) = ((now >> 32) as u32, now as u32 as usize);
                    let remote = both.far.addr() + places[side] as u64;
                    let wc = both.op_on(qa, IBV_WR_RDMA_WRITE, remote, key, SIZE as u32);
                    match wc.status {
                        IBV_WC_SUCCESS => done += 1,
                        IBV_WC_REM_ACCESS_ERR => (qa, _) = both.pair.another(IBV_QPT_RC),
                        _ => panic!("{wc:?}"),
                    }
                    writes.fetch_add(1, SeqCst);
                }
                done
            });
            let ending = Over(stop);
            for round in 1..=ROUNDS {
                let seen = writes.load(SeqCst);
                until("a WRITE", || (writes.load(SeqCst) > seen).then_some(()));
                let (old, new) = ((round - 1) % 2, round % 2);
                let resting = far.read(places[new], SIZE) == [REST; SIZE];
                assert!(resting, "written while the window was elsewhere");
                bind_to(new);
                let bytes = far.read(places[old], SIZE);
                // Of packets each is judged by itself (rule INV-23).
                let whole = bytes.iter().all(|byte| *byte == bytes[0]);
                assert!(whole || link == Link::Wire, "half a WRITE");
                far.write(places[old], &[REST; SIZE]);
            }
            drop(ending);
            let done = thread.join().expect("it writes");
            assert!(done > 0);
        });
        for (from, to) in [(0, places[0]), (places[0] + SIZE, places[1]), (places[1] + SIZE, end)] {
            assert!(far.read(from, to - from).iter().all(|byte| *byte == REST), "outside");
        }
    }

    /// Two queue pairs bind one free type 2 window at once: exactly one gets it, and it alone can
    /// use and invalidate it.
    /// Rules: ORD-30
    fn one_of_two_binders_wins(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let addr = both.far.addr();
        let range = Range { mr: both.mb, addr, length: 64, access: REMOTE };
        for round in 0..200 {
            let pairs = [both.pair.another(IBV_QPT_RC), both.pair.another(IBV_QPT_RC)];
            let mw = both.pair.b.mw(IBV_MW_TYPE_2);
            let key = |n: usize| rkey(mw) & !0xff | rkey(mw).wrapping_add(1 + n as u32) & 0xff;
            let work = [0, 1].map(|n| {
                let mut copy = copy_of(mw);
                let wr = bind2_wr(&mut *copy, key(n), range);
                (pairs[n].1, wr, copy)
            });
            at_once(work.map(|(qp, mut wr, copy)| move || {
                post(qp, &mut wr);
                drop(copy);
            }));
            let b = &both.pair.b;
            let outcome = [b.wait(), b.wait()];
            // SAFETY: live queue pairs.
            let number = |n: usize| unsafe { (*pairs[n].1).qp_num };
            let won: Vec<_> = (0..2)
                .filter(|n| {
                    let wc = outcome.iter().find(|wc| wc.qp_num == number(*n)).expect("both");
                    match wc.status {
                        IBV_WC_SUCCESS => true,
                        IBV_WC_MW_BIND_ERR => false,
                        _ => panic!("{wc:?}"),
                    }
                })
                .collect();
            assert_eq!(won.len(), 1, "round {round}: {outcome:?}");
            let (winner, loser) = (won[0], 1 - won[0]);
            assert_eq!(state(pairs[loser].1), IBV_QPS_ERR);
            let (qa, qb) = pairs[winner];
            let wc = both.op_on(qa, IBV_WR_RDMA_READ, addr, key(winner), 64);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
            if round % 2 == 0 {
                post(qb, &mut local_inv_wr(key(winner)));
                b.expect(IBV_WC_SUCCESS);
            } else {
                let wc = both.op_on(qa, IBV_WR_RDMA_READ, addr, key(loser), 64);
                assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            }
            assert_eq!(dealloc_mw(mw), 0);
        }
        // No binding has left its hold on the region.
        assert_eq!(dereg(both.mb), 0);
    }

    /// The owner invalidates a type 2 window while another queue pair binds it: the bind comes
    /// after and succeeds, or before and fails; the invalidation always succeeds.
    /// Rules: ORD-30
    fn an_invalidate_and_a_bind_take_turns(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (b, addr) = (&both.pair.b, both.far.addr());
        let range = Range { mr: both.mb, addr, length: 64, access: REMOTE };
        for round in 0..200 {
            let (_, owner) = both.pair.another(IBV_QPT_RC);
            let (qa, other) = both.pair.another(IBV_QPT_RC);
            let mw = b.mw(IBV_MW_TYPE_2);
            let old = bind(b, owner, mw, range);
            let mut copy = copy_of(mw);
            let new = old & !0xff | old.wrapping_add(1) & 0xff;
            let mut requests = [local_inv_wr(old), bind2_wr(&mut *copy, new, range)];
            (requests[0].wr_id, requests[1].wr_id) = (1, 2);
            let [first, second] = requests;
            let work = [(owner, first), (other, second)];
            at_once(work.map(|(qp, mut wr)| move || post(qp, &mut wr)));
            let mut outcome = [b.wait(), b.wait()];
            outcome.sort_by_key(|wc| wc.wr_id);
            assert_eq!(outcome[0].status, IBV_WC_SUCCESS, "round {round}");
            // The queue pair of a bind that failed answers nobody; no other may use the window either.
            let (from, wanted) = match outcome[1].status {
                IBV_WC_SUCCESS => (qa, IBV_WC_SUCCESS),
                IBV_WC_MW_BIND_ERR => {
                    assert_eq!(state(other), IBV_QPS_ERR);
                    (both.pair.another(IBV_QPT_RC).0, IBV_WC_REM_ACCESS_ERR)
                }
                _ => panic!("{outcome:?}"),
            };
            let wc = both.op_on(from, IBV_WR_RDMA_READ, addr, new, 64);
            assert_eq!(wc.status, wanted, "round {round}");
            assert_eq!(dealloc_mw(mw), 0);
        }
        assert_eq!(dereg(both.mb), 0);
    }

    /// Two queue pairs rebind one type 1 window, each to a region of its own, many times at once:
    /// every bind succeeds, and in the end the window has one key, one range and one region.
    /// Rules: ORD-30
    fn rebinds_of_two_queue_pairs_take_turns(link: Link) {
        const TIMES: u32 = 1000;
        let both = MemoryPair::new(link, 8192);
        let b = &both.pair.b;
        let mw = b.mw(IBV_MW_TYPE_1);
        let regions = [both.part(0, 4096, ALL), both.part(4096, 4096, ALL)];
        let ranges = [0, 1].map(|n| {
            let addr = both.far.addr() + 4096 * n as u64;
            Range { mr: regions[n], addr, length: 4096, access: REMOTE }
        });
        let work = [0, 1].map(|n| {
            let end = beside(b);
            let qp = end.qp(IBV_QPT_RC);
            connect(qp, both.pair.a.qp(IBV_QPT_RC));
            let mut copy = copy_of(mw);
            // So that the two never have the same key at the same time.
            copy.rkey ^= 0x80 * n as u32;
            (end, qp, copy, ranges[n])
        });
        let last = at_once(work.map(|(end, qp, mut copy, range)| move || {
            for _ in 0..TIMES {
                bind(&end, qp, &mut *copy, range);
            }
            copy.rkey
        }));
        let mut valid = Vec::new();
        for n in 0..2 {
            let (qa, _) = both.pair.another(IBV_QPT_RC);
            let wc = both.op_on(qa, IBV_WR_RDMA_READ, ranges[n].addr, last[n], 64);
            if wc.status == IBV_WC_SUCCESS {
                valid.push(n);
            }
        }
        assert_eq!(valid.len(), 1, "{last:x?}");
        let (winner, loser) = (valid[0], 1 - valid[0]);
        let (qa, _) = both.pair.another(IBV_QPT_RC);
        let wc = both.op_on(qa, IBV_WR_RDMA_READ, ranges[loser].addr, last[winner], 64);
        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(dereg(regions[loser]), 0);
        assert_eq!(dereg(regions[winner]), libc::EBUSY);
        assert_eq!(dealloc_mw(mw), 0);
        assert_eq!(dereg(regions[winner]), 0);
    }
}

/// Runs both in threads that begin together.
fn at_once<T, F: FnOnce() -> T>(work: [F; 2]) -> [T; 2] {
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let threads = work.map(|work| {
            let (work, barrier) = (Shared(work), &barrier);
            scope.spawn(move || {
                let work = work;
                barrier.wait();
                Shared((work.0)())
            })
        });
        threads.map(|thread| thread.join().expect("it ends").0)
    })
}
