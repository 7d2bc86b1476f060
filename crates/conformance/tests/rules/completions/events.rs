//! Completion events: what raises one, what does not, and that its queue waits for it.

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_ibverbs::*;

fn send(flags: u32) -> ibv_send_wr {
    let mut wr = wr(IBV_WR_SEND);
    wr.send_flags |= flags;
    wr
}

/// A pair whose target receives into a queue with a channel, with receives posted.
struct Watched {
    pair: Pair,
    qa: *mut ibv_qp,
    qb: *mut ibv_qp,
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
}

impl Watched {
    fn new(link: Link) -> Self {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let channel = channel(pair.b.context);
        let cq = try_cq(pair.b.context, 256, channel).unwrap();
        let mut init = ibv_qp_init_attr { recv_cq: cq, ..pair.b.init(IBV_QPT_RC) };
        let qb = pair.b.qp_with(&mut init);
        connect(pair.qa, qb);
        for wr_id in 0..20 {
            recv(qb, wr_id, &mut []);
        }
        Self { qa: pair.qa, qb, pair, cq, channel }
    }

    /// Sends a message and takes the completion of its receive.
    fn deliver(&self, mut wr: ibv_send_wr) {
        post(self.qa, &mut wr);
        assert_eq!(wait(self.cq).status, IBV_WC_SUCCESS);
        self.pair.a.expect(IBV_WC_SUCCESS);
    }

    /// Sends a message and leaves the completion of its receive, which comes before the sender's.
    fn post_only(&self, mut wr: ibv_send_wr) {
        post(self.qa, &mut wr);
        self.pair.a.expect(IBV_WC_SUCCESS);
    }

    fn arm(&self, solicited_only: bool) {
        assert_eq!(arm(self.cq, solicited_only), 0);
    }

    fn expect_event(&self) {
        assert_eq!(cq_event(self.channel), self.cq);
    }

    fn expect_no_event(&self) {
        assert!(!has_cq_event(self.channel));
    }
}

/// A queue pair whose send queue completes into a queue with a channel.
struct Sender {
    pair: Pair,
    qa: *mut ibv_qp,
    qb: *mut ibv_qp,
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
}

impl Sender {
    fn new(link: Link) -> Self {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let channel = channel(pair.a.context);
        let cq = try_cq(pair.a.context, 256, channel).unwrap();
        let mut init = ibv_qp_init_attr { send_cq: cq, recv_cq: cq, ..pair.a.init(IBV_QPT_RC) };
        let (qa, qb) = (pair.a.qp_with(&mut init), pair.qb);
        connect(qa, qb);
        Self { pair, qa, qb, cq, channel }
    }
}

/// Takes the next completion event without acknowledging it: its queue, and the program's pointer.
fn take_event(channel: *mut ibv_comp_channel) -> (*mut ibv_cq, *mut c_void) {
    let (mut cq, mut context) = (null_mut(), null_mut());
    // SAFETY: a live channel, and places for the answers.
    assert_eq!(unsafe { ibv_get_cq_event(channel, &mut cq, &mut context) }, 0);
    (cq, context)
}

on_each_link! {
    /// An armed queue raises one event, at the next completion, and none until it is armed again.
    /// Rules: CQ-06
    fn arming_brings_one_event(link: Link) {
        let it = Watched::new(link);
        it.deliver(send(0));
        it.expect_no_event();
        for _ in 0..3 {
            it.arm(false);
            it.expect_no_event();
            it.deliver(send(0));
            it.deliver(send(0));
            it.expect_event();
            it.expect_no_event();
            it.deliver(send(0));
            it.expect_no_event();
        }
    }

    /// Armed for solicited ones, a queue raises an event for a message that asks for it.
    /// Rules: CQ-07, CQ-16
    fn solicited_messages_raise_an_event(link: Link) {
        let it = Watched::new(link);
        let far = Buffer::new(4096);
        let key = keys(it.pair.b.reg(&far, ALL)).1;
        let with = |opcode, flags| {
            let mut wr = rdma_wr(opcode, &mut [], far.addr(), key);
            wr.send_flags |= flags;
            wr
        };
        for opcode in [IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM] {
            it.arm(true);
            it.deliver(with(opcode, 0));
            it.expect_no_event();
            it.deliver(with(opcode, IBV_SEND_SOLICITED));
            it.expect_event();
            it.deliver(with(opcode, IBV_SEND_SOLICITED));
            it.expect_no_event();
        }
        // A message of several packets asks with its last.
        let near = Buffer::new(1 << 17);
        let (ma, big) = (it.pair.a.reg(&near, 0), Buffer::new(1 << 17));
        let key = keys(it.pair.b.reg(&big, ALL)).1;
        let mut sges = [sge(near.addr(), 1 << 17, ma)];
        it.arm(true);
        let mut wr = rdma_wr(IBV_WR_RDMA_WRITE_WITH_IMM, &mut sges, big.addr(), key);
        wr.send_flags |= IBV_SEND_SOLICITED;
        it.deliver(wr);
        it.expect_event();
    }

    /// Errors count as solicited, on receives and on sends; successful sends do not.
    /// Rules: CQ-07
    fn errors_raise_solicited_events(link: Link) {
        let it = Watched::new(link);
        it.arm(true);
        it.deliver(send(0));
        it.expect_no_event();
        // The peer's violation fails the queue pair, and its receives are flushed.
        let near = Buffer::new(4096);
        let ma = it.pair.a.reg(&near, 0);
        let mut sges = [sge(near.addr(), 8, ma)];
        post(it.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, 0x1000, 0x1234_5678));
        it.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
        it.expect_event();
        assert_eq!(wait(it.cq).status, IBV_WC_WR_FLUSH_ERR);

        let it = Sender::new(link);
        recv(it.qb, 1, &mut []);
        assert_eq!(arm(it.cq, true), 0);
        post(it.qa, &mut send(IBV_SEND_SOLICITED));
        assert_eq!(wait(it.cq).status, IBV_WC_SUCCESS);
        assert!(!has_cq_event(it.channel));
        let mut bad = [sge(0x1000, 8, null_mut())];
        post(it.qa, &mut with_sges(send(0), &mut bad));
        assert_eq!(wait(it.cq).status, IBV_WC_LOC_PROT_ERR);
        assert_eq!(cq_event(it.channel), it.cq);
        // And a flushed send.
        assert_eq!(arm(it.cq, true), 0);
        post(it.qa, &mut send(0));
        assert_eq!(cq_event(it.channel), it.cq);
        it.pair.b.expect(IBV_WC_SUCCESS);
    }

    /// Armed for any and for solicited ones, in either order, a queue is armed for any.
    /// Rules: CQ-08, CQ-09
    fn arming_twice_keeps_the_wider(link: Link) {
        let it = Watched::new(link);
        for first in [true, false] {
            it.arm(first);
            it.arm(!first);
            it.deliver(send(0));
            it.expect_event();
            // Both were meant for this one event.
            it.deliver(send(IBV_SEND_SOLICITED));
            it.expect_no_event();
        }
    }

    /// A completion that nobody has taken when the queue is armed raises the event at once. One of which
    /// the last event told raises no other until something is taken, for programs arm before they look;
    /// nor does one that has been taken.
    /// Rules: CQ-10
    fn what_waits_when_armed_raises_the_event(link: Link) {
        let it = Watched::new(link);
        it.post_only(send(0));
        it.arm(false);
        it.expect_event();
        it.expect_no_event();
        it.arm(false);
        it.expect_no_event();
        assert_eq!(wait(it.cq).status, IBV_WC_SUCCESS);
        it.arm(false);
        it.expect_no_event();
        it.post_only(send(0));
        it.expect_event();
        it.post_only(send(0));
        it.arm(false);
        it.expect_event();
        assert_eq!(wait(it.cq).status, IBV_WC_SUCCESS);
        it.arm(false);
        it.expect_event();
    }

    /// What the queue is armed for decides which of the completions that wait raise the event.
    /// Rules: CQ-07, CQ-10
    fn what_waits_raises_only_the_event_that_was_asked_for(link: Link) {
        let it = Watched::new(link);
        it.post_only(send(0));
        it.arm(true);
        it.expect_no_event();
        it.arm(false);
        it.expect_event();
        it.post_only(send(IBV_SEND_SOLICITED));
        it.post_only(send(0));
        it.arm(true);
        it.expect_event();
        assert_eq!(wait_for(it.cq, 2).len(), 2);
        it.arm(true);
        it.expect_no_event();
        // A flushed receive is of that kind too.
        assert_eq!(wait_for(it.cq, 1).len(), 1);
        assert_eq!(set_state(it.qb, IBV_QPS_ERR), 0);
        it.expect_event();
    }

    /// A thread that arms and sleeps without polling is woken by what came before, while another one
    /// polls the same queue now and then, or the same thread has polled just before.
    /// Rules: CQ-10
    fn nobody_sleeps_over_a_completion(link: Link) {
        const MESSAGES: usize = 300;
        let it = Watched::new(link);
        let there = Across::new((it.cq, it.channel));
        let taken = AtomicUsize::new(0);
        let take = |cq| while poll(cq).is_some() {
            taken.fetch_add(1, SeqCst);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (cq, channel) = there.get();
                while taken.load(SeqCst) < MESSAGES {
                    assert_eq!(arm(cq, false), 0);
                    // SAFETY: a live channel.
                    let fd = unsafe { (*channel).fd };
                    let mut fds = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                    // SAFETY: one entry of this call's own.
                    let ready = unsafe { libc::poll(&mut fds, 1, 20_000) };
                    assert_eq!(ready, 1, "asleep with {} taken", taken.load(SeqCst));
                    assert_eq!(cq_event(channel), cq);
                    take(cq);
                }
            });
            for message in 0..MESSAGES {
                // As many as there are receives may be under way.
                until("the messages before", || (taken.load(SeqCst) + 8 > message).then_some(()));
                recv(it.qb, 0, &mut []);
                it.post_only(send(0));
                if message % 3 == 0 && message + 1 < MESSAGES {
                    take(it.cq);
                }
            }
        });
    }

    /// Events that nobody has read may be one or several, but never more than were armed for, and
    /// never none.
    /// Rules: CQ-11
    fn unread_events_may_collapse(link: Link) {
        let it = Watched::new(link);
        for _ in 0..3 {
            it.arm(false);
            it.deliver(send(0));
        }
        it.expect_event();
        let mut more = 0;
        while has_cq_event(it.channel) {
            it.expect_event();
            more += 1;
        }
        assert!(more <= 2);
        it.deliver(send(0));
        it.expect_no_event();
    }

    /// Binds and local invalidations raise events like other requests.
    /// Rules: CQ-13
    fn binds_and_invalidations_raise_events(link: Link) {
        let it = Sender::new(link);
        let near = Buffer::new(4096);
        let ma = it.pair.a.reg(&near, ALL);
        let range = Range { mr: ma, addr: near.addr(), length: 64, access: REMOTE };
        let event_of = |opcode| {
            assert_eq!(cq_event(it.channel), it.cq);
            let wc = wait(it.cq);
            assert_eq!((wc.status, wc.opcode), (IBV_WC_SUCCESS, opcode));
            assert_eq!(arm(it.cq, false), 0);
        };
        assert_eq!(arm(it.cq, false), 0);
        let (first, second) = (it.pair.a.mw(IBV_MW_TYPE_1), it.pair.a.mw(IBV_MW_TYPE_2));
        assert_eq!(bind1(it.qa, first, 5, IBV_SEND_SIGNALED, range), 0);
        event_of(IBV_WC_BIND_MW);
        post(it.qa, &mut bind2_wr(second, 7, range));
        event_of(IBV_WC_BIND_MW);
        post(it.qa, &mut local_inv_wr(rkey(second)));
        event_of(IBV_WC_LOCAL_INV);
        assert!(!has_cq_event(it.channel));
        // A bind that is not signaled completes for nobody.
        assert_eq!(bind1(it.qa, first, 5, 0, range), 0);
        assert_eq!(bind1(it.qa, first, 6, IBV_SEND_SIGNALED, range), 0);
        assert_eq!(cq_event(it.channel), it.cq);
        assert_eq!(wait(it.cq).wr_id, 6);
        assert!(!has_cq_event(it.channel));
    }
}

/// One channel serves several queues; an event says which, with the program's pointer.
/// Rules: CQ-06
#[test]
fn an_event_says_which_queue() {
    let end = End::new(Default::default());
    let channel = channel(end.context);
    let mut marks = [0_u8; 3];
    let base = marks.as_mut_ptr();
    let cqs: [_; 3] = std::array::from_fn(|at| {
        let mark = base.wrapping_add(at).cast();
        // SAFETY: an open context and a live channel.
        let cq = unsafe { ibv_create_cq(end.context, 8, mark, channel, 0) };
        assert_eq!(arm(cq, false), 0);
        (cq, mark)
    });
    for at in [1, 2, 0] {
        let (cq, mark) = cqs[at];
        let mut init = ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) };
        let qp = end.qp_with(&mut init);
        take_to(&end, qp, IBV_QPS_ERR);
        recv(qp, 1, &mut []);
        assert_eq!(take_event(channel), (cq, mark.cast::<c_void>()));
        // SAFETY: a live queue with an event delivered.
        unsafe { ibv_ack_cq_events(cq, 1) };
        assert!(!has_cq_event(channel));
        assert_eq!((destroy_qp(qp), destroy_cq(cq)), (0, 0));
    }
}

/// A program that asks for an event waits for it, unless the descriptor does not block: `EAGAIN`.
/// Rules: CQ-06
#[test]
fn asking_for_an_event_waits_for_it() {
    let end = End::new(Default::default());
    let channel = channel(end.context);
    let cq = try_cq(end.context, 8, channel).unwrap();
    let qp = end.qp_with(&mut ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) });
    take_to(&end, qp, IBV_QPS_ERR);
    assert_eq!(arm(cq, false), 0);
    let there = Across::new((channel, cq));
    blocks_until(
        move || assert_eq!(take_event(there.get().0).0, there.get().1),
        || recv(qp, 1, &mut []),
    );
    let (mut found, mut context) = (null_mut(), null_mut());
    // SAFETY: a live channel with an open descriptor, and places for the answers.
    unsafe {
        ibv_ack_cq_events(cq, 1);
        assert_eq!(libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
        assert_eq!(ibv_get_cq_event(channel, &mut found, &mut context), -1);
    }
    assert_eq!(errno(), libc::EAGAIN);
}

/// A completion queue does not end before all its delivered events are acknowledged.
/// Rules: CQ-15, CR-18
#[test]
fn a_queue_waits_for_the_acknowledgement_of_its_events() {
    let end = End::new(Default::default());
    let channel = channel(end.context);
    let cq = try_cq(end.context, 8, channel).unwrap();
    let qp = end.qp_with(&mut ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) });
    take_to(&end, qp, IBV_QPS_ERR);
    for wr_id in 0..3 {
        assert_eq!(arm(cq, false), 0);
        recv(qp, wr_id, &mut []);
        assert_eq!(take_event(channel).0, cq);
    }
    // While a queue pair uses it, it is busy rather than waited for.
    assert_eq!(destroy_cq(cq), libc::EBUSY);
    assert_eq!(destroy_qp(qp), 0);
    // SAFETY: a live queue with events delivered.
    let ack = |count| unsafe { ibv_ack_cq_events(cq, count) };
    ack(2);
    let gone = Across::new(cq);
    blocks_until(move || assert_eq!(destroy_cq(gone.get()), 0), || ack(1));
    assert_eq!(destroy_cq(cq), libc::ENOENT);
    // An event that was never taken is nobody's to acknowledge.
    let cq = try_cq(end.context, 8, channel).unwrap();
    let qp = end.qp_with(&mut ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) });
    take_to(&end, qp, IBV_QPS_ERR);
    assert_eq!(arm(cq, false), 0);
    recv(qp, 1, &mut []);
    assert!(has_cq_event(channel));
    assert_eq!((destroy_qp(qp), destroy_cq(cq)), (0, 0));
}

/// A small queue with a channel, and a queue pair in error whose receives complete there.
fn flushing_queue(end: &End, channel: *mut ibv_comp_channel) -> (*mut ibv_cq, *mut ibv_qp) {
    let cq = try_cq(end.context, 4, channel).unwrap();
    let mut init = ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) };
    init.cap = ibv_qp_cap { max_recv_wr: 4, ..ibv_qp_cap::default() };
    let qp = end.qp_with(&mut init);
    take_to(end, qp, IBV_QPS_ERR);
    (cq, qp)
}

/// Arms so many queues of one channel and has each complete once: there is an event for each.
fn each_queue_has_its_event(end: &End, channel: *mut ibv_comp_channel, count: usize) {
    let mut waiting = std::collections::HashSet::new();
    for _ in 0..count {
        let (cq, qp) = flushing_queue(end, channel);
        assert_eq!(arm(cq, false), 0);
        recv(qp, 1, &mut []);
        waiting.insert(cq);
    }
    for taken in 0..count {
        assert!(has_cq_event(channel), "{taken} events of {count}");
        assert!(waiting.remove(&cq_event(channel)), "one event for each queue");
    }
    assert!(!has_cq_event(channel));
}

/// However many queues share a channel, and however late their events are taken, none is lost.
/// Rules: CQ-06
#[test]
fn many_queues_of_one_channel_lose_no_event() {
    let end = End::new(Default::default());
    each_queue_has_its_event(&end, channel(end.context), 5_000);
}

/// The same for an ordinary user who has used up what the system grants in pipes.
/// Rules: CQ-06
#[test]
fn a_user_with_many_pipes_loses_no_event() {
    let end = End::new(Default::default());
    let end = Across::new(&end);
    let as_user = || {
        // SAFETY: plain numbers. Called by its number it changes this thread alone, which ends here.
        unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        let pipes = || (0..100).map(|_| std::io::pipe().expect("a pipe")).collect::<Vec<_>>();
        let large = pipes();
        for (_, write) in &large {
            // SAFETY: a pipe of this test; what is refused is one too many.
            unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
        }
        let _rest = pipes();
        each_queue_has_its_event(end.get(), channel(end.get().context), 600);
    };
    std::thread::scope(|scope| scope.spawn(as_user).join()).unwrap();
}

/// A program that is only told of changes sees one with each event, also while older ones are unread.
/// Rules: CQ-06
#[test]
fn every_event_is_a_change_of_the_descriptor() {
    let end = End::new(Default::default());
    let channel = channel(end.context);
    // SAFETY: descriptors of this test; the entries are its own.
    let changed = unsafe {
        let watch = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event =
            libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        assert_eq!(libc::epoll_ctl(watch, libc::EPOLL_CTL_ADD, (*channel).fd, &mut event), 0);
        move || libc::epoll_wait(watch, &mut libc::epoll_event { events: 0, u64: 0 }, 1, 0)
    };
    let queues: Vec<_> = (0..5).map(|_| flushing_queue(&end, channel)).collect();
    assert_eq!(changed(), 0);
    for &(cq, qp) in &queues {
        assert_eq!(arm(cq, false), 0);
        recv(qp, 1, &mut []);
        assert_eq!((changed(), changed()), (1, 0));
    }
    for &(cq, _) in &queues {
        assert_eq!(cq_event(channel), cq);
    }
    assert_eq!(changed(), 0);
}

/// A queue that goes takes the events along that nobody has taken: the channel does not say that there
/// is one.
/// Rules: CQ-15
#[test]
fn a_queue_takes_its_unread_events_along() {
    let end = End::new(Default::default());
    let channel = channel(end.context);
    let (cq, qp) = flushing_queue(&end, channel);
    let (other, its_qp) = flushing_queue(&end, channel);
    for wr_id in 0..3 {
        assert_eq!((arm(cq, false), arm(other, false)), (0, 0));
        recv(its_qp, wr_id, &mut []);
        recv(qp, wr_id, &mut []);
    }
    assert_eq!((destroy_qp(qp), destroy_cq(cq)), (0, 0));
    for _ in 0..3 {
        assert_eq!(cq_event(channel), other);
    }
    assert!(!has_cq_event(channel));
}
