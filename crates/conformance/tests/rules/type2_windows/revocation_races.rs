//! Windows of type 2 that are invalidated while they are in use, and by two at once (rules INV-21,
//! INV-23, INV-24).
//!
//! No message can be stopped half-way from outside, so long ones are caught in flight: a thread
//! posts them, and the owner invalidates the window as soon as it sees bytes move.

use std::sync::Barrier;
use std::thread;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const PAGE: usize = 4096;
/// Bytes of a message: very many pieces on each link.
const SIZE: usize = 24 << 20;
/// At most so many messages are begun, until [`CAUGHT`] were caught in flight.
const ROUNDS: usize = 80;
const CAUGHT: usize = 12;
/// What the memory holds before, what is written to it, and what the owner puts there afterwards.
const OLD: u8 = 0x11;
const NEW: u8 = 0x22;
const CANARY: u8 = 0x33;

/// Memory of [`SIZE`] bytes at both ends.
fn both(link: Link) -> MemoryPair {
    MemoryPair::granting(link, SIZE, ALL)
}

/// Posts a request from another thread while this one does `meanwhile`, then waits for its
/// completion; its status.
fn while_posting(
    both: &MemoryPair,
    wr: ibv_send_wr,
    mut sge: ibv_sge,
    meanwhile: impl FnOnce(),
) -> u32 {
    // Plain numbers, so that a thread can have them.
    let qp = both.pair.qa as usize;
    let (opcode, rdma) = {
        // SAFETY: all variants are plain numbers.
        (wr.opcode, unsafe { wr.wr.rdma })
    };
    thread::scope(|scope| {
        let poster = scope.spawn(move || {
            let sges = std::slice::from_mut(&mut sge);
            post(qp as *mut ibv_qp, &mut rdma_wr(opcode, sges, rdma.remote_addr, rdma.rkey));
        });
        meanwhile();
        poster.join().expect("the post returns");
        both.pair.a.wait().status
    })
}

/// Puts [`CANARY`] at the end of each page, and that first where a WRITE from front to back may be
/// at work, against its direction.
fn mark(far: &Buffer) {
    let end_of = |page: usize| page * PAGE + PAGE - 1;
    let pages = SIZE / PAGE;
    let written: Vec<_> = (0..pages).collect();
    let front = written.partition_point(|page| far.read(end_of(*page), 1)[0] == NEW);
    let near = front.saturating_sub(1)..(front + 64).min(pages);
    near.clone().rev().for_each(|page| far.write(end_of(page), &[CANARY]));
    (near.end..pages).chain(0..near.start).for_each(|page| far.write(end_of(page), &[CANARY]));
}

/// Whether each page still ends as [`mark`] left it.
fn is_marked(far: &Buffer) -> bool {
    (1..=SIZE / PAGE).all(|page| far.read(page * PAGE - 1, 1)[0] == CANARY)
}

/// One round: a READ or WRITE of the whole window, which is invalidated once the byte of `seen` at
/// `at` is [`NEW`]. When LOCAL_INV has completed the owner changes its memory by `then`. How the
/// request ended.
fn catch(
    both: &MemoryPair,
    opcode: ibv_wr_opcode,
    (seen, at): (&Buffer, usize),
    then: impl FnOnce(&Buffer),
) -> u32 {
    let (mw, key) = both.bound(IBV_MW_TYPE_2, both.range(0, SIZE as u64, REMOTE));
    let element = sge(both.near.addr(), SIZE as u32, both.ma);
    let request = rdma_wr(opcode, &mut [], both.far.addr(), key);
    let status = while_posting(both, request, element, || {
        until("bytes to move", || (seen.read(at, 1)[0] == NEW).then_some(()));
        post(both.pair.qb, &mut local_inv_wr(key));
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
        then(&both.far);
    });
    if status == IBV_WC_REM_ACCESS_ERR {
        let (qa, qb) = both.qps();
        assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
        assert_eq!(both.pair.b.event(), (IBV_EVENT_QP_ACCESS_ERR, qb.cast()));
        both.reconnect((qa, qb));
    } else {
        assert_eq!(status, IBV_WC_SUCCESS);
    }
    assert_eq!(dealloc_mw(mw), 0);
    status
}

/// Runs rounds until enough were caught in flight; each begins to wait at another place.
fn rounds(mut round: impl FnMut(usize) -> u32) {
    let mut caught = 0;
    for number in 0..ROUNDS {
        let at = [0, SIZE / 64, SIZE / 8, SIZE / 3 + 5][number % 4];
        caught += usize::from(round(at) == IBV_WC_REM_ACCESS_ERR);
        if caught == CAUGHT {
            return;
        }
    }
    assert!(caught > 0, "in {ROUNDS} rounds every request ended before its window");
}

on_each_link! {
    /// A WRITE under way when its window ends stops there: no byte is written after LOCAL_INV has
    /// completed, and the peer is refused, unless it was through.
    /// Rules: INV-23
    fn no_write_goes_on_after_the_invalidation(link: Link) {
        let both = both(link);
        both.near.fill(NEW);
        rounds(|at| {
            both.far.fill(OLD);
            let status = catch(&both, IBV_WR_RDMA_WRITE, (&both.far, at), mark);
            assert!(is_marked(&both.far), "written after the invalidation");
            status
        });
    }

    /// A READ under way when its window ends brings nothing that was put there after LOCAL_INV has
    /// completed, and is refused, unless it was through.
    /// Rules: INV-23, INV-24
    fn no_read_goes_on_after_the_invalidation(link: Link) {
        let both = both(link);
        rounds(|at| {
            both.far.fill(NEW);
            both.near.fill(OLD);
            let status = catch(&both, IBV_WR_RDMA_READ, (&both.near, at), |far| far.fill(CANARY));
            assert!(!both.near.contains(CANARY), "read after the invalidation");
            if status == IBV_WC_SUCCESS {
                assert!(both.near.is_all(NEW));
            }
            status
        });
    }

    /// The same when the peer itself ends the window by a SEND_WITH_INV on a queue pair whose
    /// READ is still under way: the READ was first, so it is whole.
    /// Rules: INV-24
    fn a_read_before_an_invalidating_send_is_whole(link: Link) {
        let both = both(link);
        for _ in 0..3 {
            both.far.fill(NEW);
            both.near.fill(OLD);
            let (mw, key) = both.bound(IBV_MW_TYPE_2, both.range(0, SIZE as u64, REMOTE));
            recv(both.pair.qb, 40, &mut []);
            let mut element = [sge(both.near.addr(), SIZE as u32, both.ma)];
            post(both.pair.qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut element, both.far.addr(), key));
            let mut last = wr(IBV_WR_SEND_WITH_INV);
            last.imm.invalidate_rkey = key;
            post(both.pair.qa, &mut last);
            both.pair.b.expect(IBV_WC_SUCCESS);
            both.far.fill(CANARY);
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_READ);
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
            assert!(both.near.is_all(NEW));
            assert_eq!(dealloc_mw(mw), 0);
        }
    }

    /// Of a LOCAL_INV and a SEND_WITH_INV for one window exactly one succeeds, whichever is first;
    /// the other fails, and the connection with it.
    /// Rules: INV-21
    fn of_two_invalidations_one_succeeds(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = both.qps();
        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        let start = Barrier::new(2);
        // Where LOCAL_INV is first the sender retries for a second: that is seen once.
        let mut given_up = false;
        for round in 0..150 {
            let key = bind(&both.pair.b, qb, mw, both.range(0, 4096, REMOTE));
            recv(qb, 40, &mut []);
            let (sender, delay) = (qa as usize, round % 15 * 100);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut request = wr(IBV_WR_SEND_WITH_INV);
                    request.imm.invalidate_rkey = key;
                    start.wait();
                    post(sender as *mut ibv_qp, &mut request);
                });
                start.wait();
                (0..delay).for_each(|_| std::hint::spin_loop());
                post(qb, &mut ibv_send_wr { wr_id: 50, ..local_inv_wr(key) });
            });
            let (mut local, mut remote) = (None, None);
            for _ in 0..2 {
                let wc = both.pair.b.wait();
                let one = if wc.wr_id == 50 { &mut local } else { &mut remote };
                assert_eq!(one.replace(wc.status), None);
            }
            match (local, remote) {
                (Some(IBV_WC_SUCCESS), Some(IBV_WC_MW_BIND_ERR)) => {
                    if given_up {
                        assert_eq!(set_state(qa, IBV_QPS_ERR), 0);
                    }
                    let status = if given_up { IBV_WC_WR_FLUSH_ERR } else { IBV_WC_RETRY_EXC_ERR };
                    both.pair.a.expect(status);
                    assert_eq!(state(qa), IBV_QPS_ERR);
                    given_up = true;
                }
                (Some(IBV_WC_MW_BIND_ERR), Some(IBV_WC_SUCCESS)) => {
                    both.pair.a.expect(IBV_WC_SUCCESS);
                }
                both => panic!("LOCAL_INV and SEND_WITH_INV ended with {both:?}"),
            }
            assert_eq!(state(qb), IBV_QPS_ERR);
            both.reconnect((qa, qb));
            // Ended once: the region is held by nothing, and the key serves nobody.
            both.refused_on((qa, qb), Op::Read, both.far.addr(), 8, key);
            both.reconnect((qa, qb));
        }
        assert_eq!(dereg(both.mb), 0);
    }
}
