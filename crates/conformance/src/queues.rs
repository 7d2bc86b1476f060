//! Helpers for the tests of queues, states and events, in addition to the [harness](crate::harness): lists of work
//! requests, completion queues with channels, queue pairs in a given state, and measured waits.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_ibverbs::*;

use crate::address_handles::*;
use crate::harness::*;

/// Modifies exactly the attributes of `mask`. Returns zero or an errno.
pub fn modify_with(qp: *mut ibv_qp, attr: &ibv_qp_attr, mask: u32) -> c_int {
    let mut attr = *attr;
    // SAFETY: the queue pair is live or destroyed. Its struct stays readable.
    unsafe { ibv_modify_qp(qp, &mut attr, mask as c_int) }
}

/// Moves a queue pair in RESET, connected to itself, to a state. Only UC and UD have SQE: for it, a SEND without a key
/// fails, and this takes its completion from the end's queue.
pub fn take_to(end: &End, qp: *mut ibv_qp, to: ibv_qp_state) {
    let attr = usual_attr(qp);
    let way: &[ibv_qp_state] = match to {
        IBV_QPS_RESET => &[],
        IBV_QPS_INIT => &[IBV_QPS_INIT],
        IBV_QPS_RTR => &[IBV_QPS_INIT, IBV_QPS_RTR],
        IBV_QPS_SQD => &[IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD],
        IBV_QPS_ERR => &[IBV_QPS_INIT, IBV_QPS_ERR],
        _ => &[IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS],
    };
    for &state in way {
        assert_eq!(modify(qp, &attr, state), 0, "to state {state}");
    }
    if to == IBV_QPS_SQE {
        let mut sges = [sge(0x1000, 8, null_mut())];
        let request = with_sges(wr(IBV_WR_SEND), &mut sges);
        // SAFETY: a live queue pair.
        if unsafe { (*qp).qp_type } == IBV_QPT_UD {
            let ah = ah(end.pd, &here());
            post(qp, &mut addressed(request, ah, number(qp), 0));
            assert_eq!(destroy_ah(ah), 0);
        } else {
            post(qp, &mut { request });
        }
        end.expect(IBV_WC_LOC_PROT_ERR);
    }
    assert_eq!(state(qp), to);
}

/// Posts send work requests as one list. The error is the errno and the index of the bad one.
pub fn try_post_list(qp: *mut ibv_qp, wrs: &mut [ibv_send_wr]) -> Result<(), (c_int, usize)> {
    let first = wrs.as_mut_ptr();
    for at in 1..wrs.len() {
        wrs[at - 1].next = first.wrapping_add(at);
    }
    let mut bad = null_mut();
    // SAFETY: as in `try_post`. The list ends with a null.
    match unsafe { (*(*qp).context).ops.post_send.expect("never null")(qp, first, &mut bad) } {
        0 => Ok(()),
        // SAFETY: the provider returns an element of the list.
        errno => Err((errno, unsafe { bad.offset_from(first) } as usize)),
    }
}

/// Posts receives as one list. The error is the errno and the index of the bad one.
pub fn try_recv_list(qp: *mut ibv_qp, wrs: &mut [ibv_recv_wr]) -> Result<(), (c_int, usize)> {
    let first = wrs.as_mut_ptr();
    for at in 1..wrs.len() {
        wrs[at - 1].next = first.wrapping_add(at);
    }
    let mut bad = null_mut();
    // SAFETY: as in `try_post`. The list ends with a null.
    match unsafe { (*(*qp).context).ops.post_recv.expect("never null")(qp, first, &mut bad) } {
        0 => Ok(()),
        // SAFETY: the provider returns an element of the list.
        errno => Err((errno, unsafe { bad.offset_from(first) } as usize)),
    }
}

/// A completion channel.
pub fn channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the context is open.
    let channel = unsafe { ibv_create_comp_channel(context) };
    assert!(!channel.is_null());
    channel
}

/// A completion queue, with or without a channel. The error is the errno.
pub fn try_cq(
    context: *mut ibv_context,
    cqe: c_int,
    channel: *mut ibv_comp_channel,
) -> Result<*mut ibv_cq, i32> {
    // SAFETY: the context is open, and the channel is null or live.
    let cq = unsafe { ibv_create_cq(context, cqe, null_mut(), channel, 0) };
    if cq.is_null() { Err(errno()) } else { Ok(cq) }
}

/// Asks for an event at the next completion. Returns zero or an errno.
pub fn arm(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    // SAFETY: a live queue.
    unsafe {
        (*(*cq).context).ops.req_notify_cq.expect("never null")(cq, c_int::from(solicited_only))
    }
}

/// Whether there is a completion event now.
pub fn has_cq_event(channel: *mut ibv_comp_channel) -> bool {
    // SAFETY: a live channel.
    readable(unsafe { (*channel).fd })
}

/// Waits for a completion event, and acknowledges it. Returns its queue.
pub fn cq_event(channel: *mut ibv_comp_channel) -> *mut ibv_cq {
    until("a completion event", || has_cq_event(channel).then_some(()));
    let (mut cq, mut context) = (null_mut(), null_mut());
    // SAFETY: a live channel, and places for the answers.
    unsafe {
        assert_eq!(ibv_get_cq_event(channel, &mut cq, &mut context), 0);
        ibv_ack_cq_events(cq, 1);
    }
    cq
}

/// A queue pair's attributes as text, to compare them later.
pub fn attributes(qp: *mut ibv_qp) -> String {
    format!("{:?}", query(qp))
}

/// Destroys a queue pair. Returns zero or an errno.
pub fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the queue pair is live or destroyed. Its struct stays readable.
    unsafe { ibv_destroy_qp(qp) }
}

/// Destroys a completion queue. Returns zero or an errno.
pub fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the queue is live or destroyed. Its struct stays readable.
    unsafe { ibv_destroy_cq(cq) }
}

/// Creates a queue pair. The error is the errno.
pub fn try_qp(pd: *mut ibv_pd, init: &mut ibv_qp_init_attr) -> Result<*mut ibv_qp, i32> {
    // SAFETY: the pointers are live, null, or of destroyed objects whose structs stay readable.
    let qp = unsafe { ibv_create_qp(pd, init) };
    if qp.is_null() { Err(errno()) } else { Ok(qp) }
}

/// The number of a queue pair.
pub fn number(qp: *mut ibv_qp) -> u32 {
    // SAFETY: a live queue pair.
    unsafe { (*qp).qp_num }
}

/// Takes completions until there are `count`.
pub fn wait_for(cq: *mut ibv_cq, count: usize) -> Vec<ibv_wc> {
    (0..count).map(|_| wait(cq)).collect()
}

/// A second pair of queue pairs between the same ends. When its message has arrived, everything posted before on other
/// queue pairs has reached the target.
pub struct Follower {
    qa: *mut ibv_qp,
    qb: *mut ibv_qp,
    send_cq: *mut ibv_cq,
    receive_cq: *mut ibv_cq,
}

impl Follower {
    /// Connects the second pair, with completion queues of its own.
    pub fn new(a: &End, b: &End) -> Self {
        let (mut ia, mut ib) = (a.init(IBV_QPT_RC), b.init(IBV_QPT_RC));
        let send_cq = try_cq(a.context, 16, null_mut()).expect("a queue");
        let receive_cq = try_cq(b.context, 16, null_mut()).expect("a queue");
        (ia.send_cq, ib.recv_cq) = (send_cq, receive_cq);
        let (qa, qb) = (a.qp_with(&mut ia), b.qp_with(&mut ib));
        connect(qa, qb);
        Self { qa, qb, send_cq, receive_cq }
    }

    /// Sends a message and waits until it is received. Everything sent before has then arrived.
    pub fn follow(&self) {
        recv(self.qb, 0, &mut []);
        post(self.qa, &mut wr(IBV_WR_SEND));
        assert_eq!(wait(self.receive_cq).status, IBV_WC_SUCCESS);
        assert_eq!(wait(self.send_cq).status, IBV_WC_SUCCESS);
    }
}

/// Runs `blocking` in a thread of its own, checks that it sleeps there, then runs `release`, and checks that it ends
/// only then.
pub fn blocks_until(blocking: impl FnOnce() + Send, release: impl FnOnce()) {
    /// Releases it even if the test fails. Otherwise it, and so the test, would wait forever.
    struct Release<F: FnOnce()>(Option<F>);

    impl<F: FnOnce()> Drop for Release<F> {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(|release| release());
        }
    }

    let thread = AtomicI32::new(0);
    let (released, ended) = (AtomicI32::new(0), AtomicI32::new(0));
    std::thread::scope(|scope| {
        let release = Release(Some(release));
        scope.spawn(|| {
            // SAFETY: it only asks for a number.
            thread.store(unsafe { libc::gettid() }, SeqCst);
            blocking();
            ended.store(1 + released.load(SeqCst), SeqCst);
        });
        until("the thread to sleep", || {
            let asleep = thread.load(SeqCst) != 0 && is_asleep(thread.load(SeqCst));
            (asleep || ended.load(SeqCst) != 0).then_some(())
        });
        released.store(1, SeqCst);
        drop(release);
    });
    assert_eq!(ended.load(SeqCst), 2, "it did not wait");
}

/// Whether a thread of this process sleeps.
fn is_asleep(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let state = |stat: &str| stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    stat.is_ok_and(|stat| state(&stat) == Some('S'))
}

/// Runs something and checks that it took at least this long.
pub fn takes_at_least<T>(least: Duration, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let took = start.elapsed();
    assert!(took >= least, "{took:?} is less than {least:?}");
    result
}

/// Moves pointers to verbs objects into another thread. Any thread may use such objects.
#[derive(Clone, Copy, Debug)]
pub struct Across<T>(T);

// SAFETY: see above. The tests order the rest.
unsafe impl<T> Send for Across<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Across<T> {}

impl<T: Copy> Across<T> {
    /// Wraps a value.
    pub fn new(inner: T) -> Self {
        Self(inner)
    }

    /// The wrapped value.
    pub fn get(&self) -> T {
        self.0
    }
}
