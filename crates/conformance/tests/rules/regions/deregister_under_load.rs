//! `ibv_dereg_mr` while requests stream: when it has returned, nobody touches the memory any more
//! (rules DR-13 to DR-15).
//!
//! A thread keeps the send queue full. In the middle the region ends; what the program then puts
//! into its memory must stay there, and must not turn up elsewhere.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::xrc::*;

/// Bytes of a request: one that is under way when the region ends still has some time to run.
const SIZE: usize = 256 << 10;
/// The end of the memory, which a request reaches last.
const TAIL: usize = 4096;
/// What requests carry, and what the owner puts into its memory after the end of the region.
const DATA: u8 = 0x11;
const CANARY: u8 = 0xee;
const ROUNDS: usize = 30;
/// Requests under way at once.
const DEPTH: usize = 16;

/// One of the ends of a stream.
struct Side {
    buffer: Buffer,
    mr: *mut ibv_mr,
}

impl Side {
    fn new(end: &End) -> Self {
        let buffer = Buffer::apart(SIZE);
        buffer.fill(DATA);
        let mr = end.reg(&buffer, ALL);
        Self { buffer, mr }
    }
}

/// The requests of a stream: between all of the origin's memory and all of the target's.
#[derive(Clone, Copy)]
struct Stream {
    opcode: ibv_wr_opcode,
    local: ibv_sge,
    remote: u64,
    key: u32,
    /// With XRC, the shared receive queue that they name.
    srq: Option<u32>,
}

impl Stream {
    fn between(opcode: ibv_wr_opcode, near: &Side, far: &Side) -> Self {
        let atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        let length = if atomic { 8 } else { SIZE as u32 };
        let local = sge(near.buffer.addr(), length, near.mr);
        Self { opcode, local, remote: far.buffer.addr(), key: keys(far.mr).1, srq: None }
    }

    fn post(mut self, qp: *mut ibv_qp, wr_id: u64) {
        let sges = std::slice::from_mut(&mut self.local);
        let mut wr = if self.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD {
            atomic_wr(self.opcode, sges, self.remote, self.key, 1, 0)
        } else {
            rdma_wr(self.opcode, sges, self.remote, self.key)
        };
        wr.wr_id = wr_id;
        post(qp, &mut self.srq.map_or(wr, |number| naming(wr, number)));
    }

    /// Streams while `revoke` ends a region after `warm` requests have completed. All before it end
    /// well, one as `broken` says, the rest flushed; none that is posted after it ends well.
    fn run(self, pair: &Pair, broken: ibv_wc_status, warm: usize, revoke: impl FnOnce()) {
        let qps = (pair.a.qp(IBV_QPT_RC), pair.b.qp(IBV_QPT_RC));
        self.run_on(pair, qps, broken, warm, revoke);
    }

    /// The same on these queue pairs in RESET.
    fn run_on(
        self,
        pair: &Pair,
        (qa, qb): (*mut ibv_qp, *mut ibv_qp),
        broken: ibv_wc_status,
        warm: usize,
        revoke: impl FnOnce(),
    ) {
        // So much is under way that an answer may be late on a busy machine.
        connect_with(qa, qb, |attr| (attr.timeout, attr.retry_cnt) = (17, 7));
        let qp = qa as usize;
        let (completed, revoked) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (completed, revoked) = (&completed, &revoked);
        thread::scope(|scope| {
            let stream =
                scope.spawn(move || self.keep_going(pair, qp as *mut ibv_qp, completed, revoked));
            until("the stream to flow", || (completed.load(SeqCst) >= warm).then_some(()));
            revoke();
            revoked.store(true, SeqCst);
            let statuses = stream.join().expect("the stream ends");
            let good = statuses.iter().take_while(|status| **status == IBV_WC_SUCCESS).count();
            assert!(good >= warm);
            assert_eq!(statuses[good], broken, "after {good} good ones");
            let rest = &statuses[good + 1..];
            assert!(rest.iter().all(|status| *status == IBV_WC_WR_FLUSH_ERR), "{rest:?}");
        });
    }

    /// Posts and polls until the first error, then polls the rest; how each request ended.
    fn keep_going(
        self,
        pair: &Pair,
        qp: *mut ibv_qp,
        completed: &AtomicUsize,
        revoked: &AtomicBool,
    ) -> Vec<ibv_wc_status> {
        let mut statuses: Vec<ibv_wc_status> = Vec::new();
        let (mut posted, mut doomed) = (0, None);
        let mut broken = false;
        until("the stream to break", || {
            while !broken && posted < statuses.len() + DEPTH {
                // From here on the region was gone before the request was posted.
                if revoked.load(SeqCst) {
                    doomed.get_or_insert(posted);
                }
                self.post(qp, posted as u64);
                posted += 1;
            }
            let wc = pair.a.wait();
            assert_eq!(wc.wr_id, statuses.len() as u64, "in order");
            let good = wc.status == IBV_WC_SUCCESS;
            let late = doomed.is_some_and(|doomed| statuses.len() >= doomed);
            assert!(!(good && late), "a request that came too late has succeeded");
            broken |= !good;
            statuses.push(wc.status);
            completed.store(statuses.len(), SeqCst);
            (broken && statuses.len() == posted).then_some(())
        });
        statuses
    }
}

/// How many requests complete before the region ends: another moment in each round.
fn warm(round: usize) -> usize {
    [1, 5, 2, 33][round % 4]
}

/// Ends a region and marks its memory, the end first.
fn end_and_mark(side: &Side) {
    assert_eq!(dereg(side.mr), 0);
    side.buffer.fill_part(SIZE - TAIL, TAIL, CANARY);
    side.buffer.fill(CANARY);
}

on_each_link! {
    /// The origin's region ends while READs pour into it: nothing is written there afterwards.
    /// Rules: DR-13
    fn reads_stop_writing_to_a_region_that_has_ended(link: Link) {
        let pair = Pair::rc(link);
        let far = Side::new(&pair.b);
        for round in 0..ROUNDS {
            let near = Side::new(&pair.a);
            let stream = Stream::between(IBV_WR_RDMA_READ, &near, &far);
            stream.run(&pair, IBV_WC_LOC_PROT_ERR, warm(round), || end_and_mark(&near));
            assert!(near.buffer.is_all(CANARY), "written after the end, round {round}");
        }
    }

    /// The same with the memory given back to the system at once.
    /// Rules: DR-13, DR-14
    fn local_memory_may_vanish_once_its_region_has_ended(link: Link) {
        let pair = Pair::rc(link);
        let far = Side::new(&pair.b);
        for round in 0..ROUNDS {
            for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD] {
                let near = Side::new(&pair.a);
                let stream = Stream::between(opcode, &near, &far);
                stream.run(&pair, IBV_WC_LOC_PROT_ERR, warm(round), || {
                    assert_eq!(dereg(near.mr), 0);
                    near.buffer.unmap(0, SIZE);
                });
            }
        }
    }

    /// The origin's region ends while WRITEs are fed from it: nothing that comes into its memory
    /// afterwards is sent.
    /// Rules: DR-14
    fn writes_stop_reading_from_a_region_that_has_ended(link: Link) {
        let pair = Pair::rc(link);
        let far = Side::new(&pair.b);
        for round in 0..ROUNDS {
            let near = Side::new(&pair.a);
            let stream = Stream::between(IBV_WR_RDMA_WRITE, &near, &far);
            stream.run(&pair, IBV_WC_LOC_PROT_ERR, warm(round), || end_and_mark(&near));
            assert!(far.buffer.is_all(DATA), "read after the end, round {round}");
        }
    }

    /// The target's region ends under inbound WRITEs and atomics: its memory stays as the owner
    /// leaves it.
    /// Rules: DR-15
    fn nothing_is_written_to_a_target_that_has_ended(link: Link) {
        let pair = Pair::rc(link);
        let near = Side::new(&pair.a);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD] {
            for round in 0..ROUNDS {
                let far = Side::new(&pair.b);
                let stream = Stream::between(opcode, &near, &far);
                stream.run(&pair, IBV_WC_REM_ACCESS_ERR, warm(round), || end_and_mark(&far));
                assert!(far.buffer.is_all(CANARY), "written after the end, round {round}");
            }
        }
    }

    /// The target's region ends under inbound READs: what its owner then keeps there stays secret.
    /// Rules: DR-15
    fn nothing_is_read_from_a_target_that_has_ended(link: Link) {
        let pair = Pair::rc(link);
        let near = Side::new(&pair.a);
        for round in 0..ROUNDS {
            let far = Side::new(&pair.b);
            let stream = Stream::between(IBV_WR_RDMA_READ, &near, &far);
            stream.run(&pair, IBV_WC_REM_ACCESS_ERR, warm(round), || end_and_mark(&far));
            assert!(near.buffer.is_all(DATA), "read after the end, round {round}");
        }
    }

    /// The same with XRC: the region is in the domain of the shared receive queue that requests name.
    /// Rules: DR-15
    fn xrc_stops_at_a_target_that_has_ended(link: Link) {
        let xrc = Xrc::new(link, 64);
        let pair = &xrc.pair;
        let near = Side::new(&pair.a);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD] {
            for round in 0..ROUNDS {
                let far = Side::new(&pair.b);
                let srq = Some(srq_number(xrc.srq));
                let stream = Stream { srq, ..Stream::between(opcode, &near, &far) };
                let qps = (pair.a.qp(IBV_QPT_XRC_SEND), xrc_target(pair.b.context, xrc.xrcd));
                let end = || end_and_mark(&far);
                stream.run_on(pair, qps, IBV_WC_REM_ACCESS_ERR, warm(round), end);
                assert!(far.buffer.is_all(CANARY), "written after the end, round {round}");
            }
        }
    }

    /// The target's memory is given back to the system as soon as its region has ended. An access
    /// that came later would fail for want of memory, not of a key.
    /// Rules: DR-15
    fn target_memory_may_vanish_once_its_region_has_ended(link: Link) {
        let pair = Pair::rc(link);
        let near = Side::new(&pair.a);
        for round in 0..ROUNDS {
            for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD] {
                let far = Side::new(&pair.b);
                let stream = Stream::between(opcode, &near, &far);
                stream.run(&pair, IBV_WC_REM_ACCESS_ERR, warm(round), || {
                    assert_eq!(dereg(far.mr), 0);
                    far.buffer.unmap(0, SIZE);
                });
            }
        }
    }
}
