//! Completion counters, which rdma-core has since version 65: what they count, at either end, and how
//! they hang on queue pairs.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_host::Options;
use transom_ibverbs::*;
use transom_net::faults::Faults;

const SEND: u32 = IBV_QP_ATTACH_COMP_CNTR_OP_SEND;
const RECV: u32 = IBV_QP_ATTACH_COMP_CNTR_OP_RECV;
const READ: u32 = IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ;
const REMOTE_READ: u32 = IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ;
const WRITE: u32 = IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE;
const REMOTE_WRITE: u32 = IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE;
const EVERYTHING: u32 = 0x3f;

/// A completion counter.
#[derive(Clone, Copy)]
struct Counter(*mut ibv_comp_cntr);

impl Counter {
    fn try_new(end: &End, mut attr: ibv_comp_cntr_init_attr) -> Result<Self, i32> {
        // SAFETY: an open context, and attributes of this call's own.
        let counter = unsafe { ibv_create_comp_cntr(end.context, &mut attr) };
        if counter.is_null() { Err(errno()) } else { Ok(Self(counter)) }
    }

    fn new(end: &End, type_: ibv_comp_cntr_type) -> Self {
        let attr = ibv_comp_cntr_init_attr { type_, ..Default::default() };
        Self::try_new(end, attr).expect("a counter")
    }

    /// One of operations that counts these of a queue pair.
    fn of(end: &End, qp: *mut ibv_qp, op_mask: u32) -> Self {
        let counter = Self::new(end, IBV_COMP_CNTR_TYPE_WRS);
        assert_eq!(counter.attach(qp, op_mask), 0, "{op_mask:#x}");
        counter
    }

    fn attach(self, qp: *mut ibv_qp, op_mask: u32) -> i32 {
        let mut attr = ibv_qp_attach_comp_cntr_attr { comp_mask: 0, op_mask };
        // SAFETY: a queue pair and a counter of this test.
        unsafe { ibv_qp_attach_comp_cntr(qp, self.0, &mut attr) }
    }

    /// What has ended well, and how much has failed.
    fn read(self) -> (u64, u64) {
        let (mut done, mut failed) = (0, 0);
        // SAFETY: a live counter.
        unsafe {
            assert_eq!(ibv_read_comp_cntr(self.0, &mut done), 0);
            assert_eq!(ibv_read_err_comp_cntr(self.0, &mut failed), 0);
        }
        (done, failed)
    }

    /// Reads until the values are these.
    fn until(self, values: (u64, u64)) {
        until(&format!("{values:?}"), || (self.read() == values).then_some(()));
    }

    fn destroy(self) -> i32 {
        // SAFETY: a counter of this test.
        unsafe { ibv_destroy_comp_cntr(self.0) }
    }
}

fn destroy_qp(qp: *mut ibv_qp) {
    // SAFETY: a live queue pair, not used afterwards.
    assert_eq!(unsafe { ibv_destroy_qp(qp) }, 0);
}

fn connect_both(it: &MemoryPair) {
    connect(it.pair.qa, it.pair.qb);
}

/// Posts one of so many bytes.
fn post_of(it: &MemoryPair, opcode: ibv_wr_opcode, length: u32, signaled: bool) {
    let mut sges = [sge(it.near.addr(), length, it.ma)];
    let mut wr = rdma_wr(opcode, &mut sges, it.far.addr(), keys(it.mb).1);
    wr.send_flags = if signaled { IBV_SEND_SIGNALED } else { 0 };
    post(it.pair.qa, &mut wr);
}

fn post_receive(it: &MemoryPair) {
    recv(it.pair.qb, 2, &mut [sge(it.far.addr(), 8192, it.mb)]);
}

on_each_link! {
    /// Each operation is counted at the end that posted it and, if it is a READ or WRITE, at the other,
    /// with a completion or without; the count is there when a completion is. Others do not count.
    /// Rules: CC-04, CC-05, CC-10, CC-11, CC-12, CC-13
    fn operations_are_counted_at_both_ends(link: Link) {
        for kind in [IBV_QPT_RC, IBV_QPT_UC] {
            let rc = kind == IBV_QPT_RC;
            let fixture = MemoryPair::of(Pair::unconnected(link, kind), 8192);
            let Pair { a, b, qa, qb } = &fixture.pair;
            let [sends, writes] = [SEND, WRITE].map(|op| Counter::of(a, *qa, op));
            let [receives, written] = [RECV, REMOTE_WRITE].map(|op| Counter::of(b, *qb, op));
            let reads = rc.then(|| (Counter::of(a, *qa, READ), Counter::of(b, *qb, REMOTE_READ)));
            connect_both(&fixture);

            for _ in 0..3 {
                post_receive(&fixture);
            }
            post_of(&fixture, IBV_WR_SEND, 100, false);
            post_of(&fixture, IBV_WR_SEND_WITH_IMM, 8000, false);
            post_of(&fixture, IBV_WR_RDMA_WRITE, 0, false);
            post_of(&fixture, IBV_WR_RDMA_WRITE, 8000, false);
            post_of(&fixture, IBV_WR_RDMA_WRITE_WITH_IMM, 100, true);
            assert_eq!(a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
            assert_eq!((sends.read(), writes.read()), ((2, 0), (3, 0)));
            for count in 1..=3 {
                b.expect(IBV_WC_SUCCESS);
                assert!(receives.read().0 >= count);
            }
            assert_eq!((receives.read(), written.read()), ((3, 0), (3, 0)));

            if let Some((reads, read)) = reads {
                post_of(&fixture, IBV_WR_RDMA_READ, 8000, false);
                post_of(&fixture, IBV_WR_RDMA_READ, 0, false);
                let (near, key) = (sge(fixture.near.addr(), 8, fixture.ma), keys(fixture.mb).1);
                let add = IBV_WR_ATOMIC_FETCH_AND_ADD;
                post(*qa, &mut atomic_wr(add, &mut [near], fixture.far.addr(), key, 1, 0));
                a.expect(IBV_WC_SUCCESS);
                assert_eq!(reads.read(), (2, 0));
                read.until((2, 0));
            }
            assert_eq!((sends.read(), writes.read(), written.read()), ((2, 0), (3, 0), (3, 0)));
            a.expect_nothing();
            b.expect_nothing();
        }
    }

    /// A counter of bytes adds what was moved, of a receive what its completion says, and one for what
    /// failed. Several queue pairs may add to one counter.
    /// Rules: CC-08, CC-10
    fn bytes_are_counted(link: Link) {
        let fixture = MemoryPair::of(Pair::unconnected(link, IBV_QPT_RC), 8192);
        let Pair { a, b, qa, qb } = &fixture.pair;
        let (here, there) = (Counter::new(a, 1), Counter::new(b, 1));
        let (more_a, more_b) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
        for (counter, qps) in [(here, [*qa, more_a]), (there, [*qb, more_b])] {
            for qp in qps {
                assert_eq!(counter.attach(qp, EVERYTHING), 0);
            }
        }
        connect_both(&fixture);
        connect(more_a, more_b);
        post_receive(&fixture);
        post_of(&fixture, IBV_WR_SEND, 100, true);
        post_of(&fixture, IBV_WR_RDMA_WRITE, 7000, true);
        post_of(&fixture, IBV_WR_RDMA_READ, 8000, true);
        for _ in 0..3 {
            a.expect(IBV_WC_SUCCESS);
        }
        assert_eq!(here.read(), (15_100, 0));
        there.until((15_100, 0));
        let mut sges = [sge(fixture.near.addr(), 900, fixture.ma)];
        let key = keys(fixture.mb).1;
        post(more_a, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, fixture.far.addr(), key));
        a.expect(IBV_WC_SUCCESS);
        post(more_a, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, fixture.far.addr(), key ^ 0x5500));
        a.expect(IBV_WC_REM_ACCESS_ERR);
        assert_eq!((here.read(), there.read()), ((16_000, 1), (16_000, 1)));
    }

    /// What fails counts as an error, and what is flushed too; what is refused at the target does so at
    /// both ends.
    /// Rules: CC-10, CC-11
    fn failures_count_as_errors(link: Link) {
        for (opcode, mine, peers) in
            [(IBV_WR_RDMA_WRITE, WRITE, REMOTE_WRITE), (IBV_WR_RDMA_READ, READ, REMOTE_READ)]
        {
            let fixture = MemoryPair::of(Pair::unconnected(link, IBV_QPT_RC), 8192);
            let Pair { a, b, qa, qb } = &fixture.pair;
            let [own, sends] = [mine, SEND].map(|op| Counter::of(a, *qa, op));
            let [remote, receives] = [peers, RECV].map(|op| Counter::of(b, *qb, op));
            connect_both(&fixture);
            post_receive(&fixture);
            let mut sges = [sge(fixture.near.addr(), 8, fixture.ma)];
            let wrong = keys(fixture.mb).1 ^ 0x5500;
            post(*qa, &mut rdma_wr(opcode, &mut sges, fixture.far.addr(), wrong));
            assert_eq!(a.wait().status, IBV_WC_REM_ACCESS_ERR);
            assert_eq!(remote.read(), (0, 1));
            post_of(&fixture, IBV_WR_SEND, 8, true);
            a.expect(IBV_WC_WR_FLUSH_ERR);
            b.expect(IBV_WC_WR_FLUSH_ERR);
            for counter in [own, sends, remote, receives] {
                assert_eq!(counter.read(), (0, 1));
            }
        }
    }

    /// A program may wait for a value by reading it: nobody polls, and at the target nobody does anything.
    /// Rules: CC-11
    fn reading_is_enough_to_see_them_end(link: Link) {
        let fixture = MemoryPair::of(Pair::unconnected(link, IBV_QPT_RC), 8192);
        let Pair { a, b, qa, qb } = &fixture.pair;
        let written = Counter::of(b, *qb, REMOTE_WRITE);
        let sent = Counter::of(a, *qa, WRITE);
        connect_both(&fixture);
        for _ in 0..20 {
            post_of(&fixture, IBV_WR_RDMA_WRITE, 1000, false);
        }
        sent.until((20, 0));
        written.until((20, 0));
        assert_eq!(fixture.far.read(0, 1000), fixture.near.read(0, 1000));
    }
}

/// What the network loses or repeats is counted once.
/// Rules: CC-11
#[test]
fn operations_that_go_again_count_once() {
    let faults: Faults = "loss=10%,duplicate=10%,seed=5".parse().expect("faults");
    let faults = Some(&*Box::leak(Box::new(faults)));
    let (a, b) = ends(Link::Wire, Options { faults, ..Options::default() });
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    let fixture = MemoryPair::of(Pair { a, b, qa, qb }, 8192);
    let (a, b) = (&fixture.pair.a, &fixture.pair.b);
    let mine = [READ, WRITE, SEND].map(|op| Counter::of(a, qa, op));
    let theirs = [REMOTE_READ, REMOTE_WRITE, RECV].map(|op| Counter::of(b, qb, op));
    for (qp, peer) in [(qa, qb), (qb, qa)] {
        bring_up(qp, &ibv_qp_attr { timeout: 15, retry_cnt: 7, ..usual_attr(peer) });
    }
    for _ in 0..20 {
        post_receive(&fixture);
        post_of(&fixture, IBV_WR_RDMA_READ, 8000, false);
        post_of(&fixture, IBV_WR_RDMA_WRITE, 8000, false);
        post_of(&fixture, IBV_WR_SEND, 2000, true);
        a.expect(IBV_WC_SUCCESS);
    }
    for counter in mine.into_iter().chain(theirs) {
        counter.until((20, 0));
    }
}

/// Rules: CC-01, CC-02, CC-03, CC-04
#[test]
fn counters_are_created_set_and_read() {
    let end = End::new(Options::default());
    let mut caps = [ibv_comp_cntr_caps { max_value: 7, ..Default::default() }; 2];
    // SAFETY: an open context, and room of the size that is said.
    unsafe {
        let (small, exact) = (15, size_of::<ibv_comp_cntr_caps>());
        assert_eq!(_ibv_query_comp_cntr_caps(end.context, &mut caps[0], small), libc::EINVAL);
        assert_eq!(caps[0].max_value, 7);
        assert_eq!(_ibv_query_comp_cntr_caps(end.context, &mut caps[0], exact), 0);
        assert_eq!(caps[1].max_value, 7);
        assert_eq!(_ibv_query_comp_cntr_caps(end.context, &mut caps[0], 2 * exact), 0);
        assert_eq!(caps[1].max_value, 0);
        assert_eq!(_ibv_query_comp_cntr_caps(end.context, null_mut(), exact), libc::EINVAL);
        assert_eq!(_ibv_query_comp_cntr_caps(null_mut(), &mut caps[0], exact), libc::EINVAL);
    }
    let caps = caps[0];
    assert_eq!((caps.max_value, caps.supported_qp_attach_ops), (u64::MAX, EVERYTHING));

    let plain = ibv_comp_cntr_init_attr::default();
    for (attr, errno) in [
        (ibv_comp_cntr_init_attr { comp_mask: 1, ..plain }, libc::EINVAL),
        (ibv_comp_cntr_init_attr { flags: 1, ..plain }, libc::EINVAL),
        (ibv_comp_cntr_init_attr { type_: 2, ..plain }, libc::ENOTSUP),
    ] {
        assert_eq!(Counter::try_new(&end, attr).err(), Some(errno), "{attr:?}");
    }
    // SAFETY: an open context.
    let none = unsafe { ibv_create_comp_cntr(end.context, null_mut()) };
    assert_eq!((none, errno()), (null_mut(), libc::EINVAL));

    let counter = Counter::try_new(&end, plain).expect("a counter");
    assert_eq!(counter.read(), (0, 0));
    // SAFETY: a live counter.
    unsafe {
        assert_eq!((*counter.0).context, end.context);
        assert_eq!(ibv_set_comp_cntr(counter.0, u64::MAX), 0);
        assert_eq!(ibv_set_err_comp_cntr(counter.0, 40), 0);
        assert_eq!(ibv_inc_err_comp_cntr(counter.0, 2), 0);
        assert_eq!(counter.read(), (u64::MAX, 42));
        assert_eq!(ibv_inc_comp_cntr(counter.0, 3), 0);
        assert_eq!(counter.read(), (2, 42));
        assert_eq!(ibv_read_comp_cntr(counter.0, null_mut()), libc::EINVAL);
        assert_eq!(counter.destroy(), 0);
        let mut value = 0;
        assert_eq!(ibv_read_err_comp_cntr(counter.0, &mut value), libc::ENOENT);
        assert_eq!(ibv_set_comp_cntr(counter.0, 1), libc::ENOENT);
        assert_eq!(ibv_inc_comp_cntr(null_mut(), 1), libc::EINVAL);
        assert_eq!(ibv_destroy_comp_cntr(null_mut()), libc::EINVAL);
    }
    assert_eq!(counter.destroy(), libc::ENOENT);

    let all: Vec<_> = (0..caps.max_counters).map(|_| Counter::new(&end, 0)).collect();
    assert_eq!(Counter::try_new(&end, plain).err(), Some(libc::ENOMEM));
    for counter in all {
        assert_eq!(counter.destroy(), 0);
    }
    assert_eq!(Counter::new(&end, 0).destroy(), 0);
}

/// A counter is attached before the queue pair is in use, one at most for each operation, and stays until
/// the queue pair goes, also through RESET.
/// Rules: CC-05, CC-06, CC-07, CC-09
#[test]
fn counters_are_attached_to_queue_pairs() {
    let pair = Pair::unconnected(Link::Loopback, IBV_QPT_RC);
    let (a, qa, qb) = (&pair.a, pair.qa, pair.qb);
    let (counter, other) = (Counter::new(a, 0), Counter::new(a, 0));
    assert_eq!(counter.attach(qa, 0), libc::EINVAL);
    assert_eq!(counter.attach(qa, EVERYTHING + 1), libc::ENOTSUP);
    assert_eq!(counter.attach(null_mut(), SEND), libc::EINVAL);
    let mut attr = ibv_qp_attach_comp_cntr_attr { comp_mask: 1, op_mask: SEND };
    // SAFETY: a live queue pair and a live counter, or null.
    unsafe {
        assert_eq!(ibv_qp_attach_comp_cntr(qa, counter.0, &mut attr), libc::EINVAL);
        assert_eq!(ibv_qp_attach_comp_cntr(qa, counter.0, null_mut()), libc::EINVAL);
        attr.comp_mask = 0;
        assert_eq!(ibv_qp_attach_comp_cntr(qa, null_mut(), &mut attr), libc::EINVAL);
    }
    let elsewhere = End::new(Options::default());
    let stranger = Counter::new(&elsewhere, 0);
    assert_eq!(stranger.attach(qa, SEND), libc::EINVAL);
    for (kind, nothing) in [
        (IBV_QPT_UC, vec![READ, REMOTE_READ, SEND | READ]),
        (IBV_QPT_UD, vec![READ, WRITE, REMOTE_READ, REMOTE_WRITE]),
    ] {
        let qp = a.qp(kind);
        for ops in nothing {
            assert_eq!(counter.attach(qp, ops), libc::ENOTSUP, "{kind} {ops:#x}");
        }
        assert_eq!(counter.attach(qp, SEND | RECV), 0);
        destroy_qp(qp);
    }

    assert_eq!(counter.attach(qa, SEND | READ), 0);
    for taken in [SEND, READ | WRITE, EVERYTHING] {
        assert_eq!(other.attach(qa, taken), libc::EBUSY);
    }
    assert_eq!(other.destroy(), 0);
    assert_eq!(other.attach(qa, WRITE), libc::ENOENT);
    assert_eq!(modify(qa, &usual_attr(qb), IBV_QPS_INIT), 0);
    assert_eq!(counter.attach(qa, WRITE), 0);
    for to in [IBV_QPS_RTR, IBV_QPS_RTS] {
        assert_eq!(modify(qa, &usual_attr(qb), to), 0);
        assert_eq!(counter.attach(qa, RECV), libc::EINVAL);
    }
    assert_eq!(counter.destroy(), libc::EBUSY);
    assert_eq!(set_state(qa, IBV_QPS_ERR), 0);
    assert_eq!(counter.attach(qa, RECV), libc::EINVAL);
    assert_eq!(set_state(qa, IBV_QPS_RESET), 0);
    assert_eq!(counter.destroy(), libc::EBUSY);
    connect(qa, qb);
    let near = Buffer::new(64);
    let mr = a.reg(&near, ALL);
    let far = pair.b.reg(&near, ALL);
    let mut sges = [sge(near.addr(), 8, mr)];
    post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, near.addr() + 8, keys(far).1));
    a.expect(IBV_WC_SUCCESS);
    assert_eq!(counter.read(), (1, 0));
    destroy_qp(qa);
    assert_eq!(counter.destroy(), 0);
}
