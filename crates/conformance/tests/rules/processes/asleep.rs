//! Threads that sleep until there is a completion event: peers wake them, and nobody else; signals and
//! `pthread_cancel(3)` end the wait as they end a `read(2)`.

use std::ffi::{c_int, c_void};
use std::fs;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering::*};

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::processes::*;
use transom_conformance::queues::{arm, channel as completion_channel, cq_event, try_cq};
use transom_conformance::{on_each_way, path_of};
use transom_ibverbs::{ibv_ack_cq_events, ibv_get_cq_event};

use super::idle::activity;

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("sleeper", sleeper), ("interrupted", interrupted), ("cancelled", cancelled)]);
}

/// A process that is told of what it receives by a completion channel.
struct Told {
    end: End,
    qp: *mut ibv_qp,
    channel: *mut ibv_comp_channel,
}

impl Told {
    /// Connected; says which thread this is.
    fn meet(channel: &mut Channel) -> Self {
        let mut end = open();
        let events = completion_channel(end.context);
        end.cq = try_cq(end.context, 64, events).expect("a queue");
        let qp = end.qp(IBV_QPT_RC);
        meet(channel, qp);
        // SAFETY: it cannot fail.
        channel.tell(&[unsafe { libc::gettid() } as u64]);
        Self { end, qp, channel: events }
    }

    fn expect_receive(&self) {
        assert_eq!(self.end.expect(IBV_WC_SUCCESS).opcode, IBV_WC_RECV);
    }
}

/// How many messages come.
const MESSAGES: usize = 20;

/// Sleeps until each message has come.
fn sleeper(channel: &mut Channel) {
    let told = Told::meet(channel);
    for wr_id in 0..MESSAGES as u64 {
        recv(told.qp, wr_id, &mut []);
        assert_eq!(arm(told.end.cq, false), 0);
        channel.tell(&[]);
        wait_for_event(told.channel.cast());
        told.expect_receive();
    }
    let [] = channel.hear();
}

/// A process that plays such a role, connected with this one.
struct Connected {
    end: End,
    qp: *mut ibv_qp,
    child: Child,
    /// The thread that sleeps.
    thread: u64,
}

impl Connected {
    fn start(role: &str) -> Self {
        let (end, mut child) = (open(), Child::start(role));
        let qp = end.qp(IBV_QPT_RC);
        meet(&mut child.channel, qp);
        let [thread] = child.hear();
        Self { end, qp, child, thread }
    }

    /// Sends a message of nothing, which is received.
    fn send(&self) {
        post(self.qp, &mut wr(IBV_WR_SEND));
        self.end.expect(IBV_WC_SUCCESS);
    }

    /// Waits until the thread sleeps where peers wake it.
    fn expect_asleep(&self) {
        let file = format!("/proc/{}/task/{}/syscall", self.child.pid(), self.thread);
        let futex = format!("{} ", libc::SYS_futex);
        until("the thread to sleep", || {
            let call = fs::read_to_string(&file).expect("the thread runs");
            call.starts_with(&futex).then_some(())
        });
    }
}

/// A peer wakes the thread that waits for a completion event, which takes what has come itself: the device's
/// own thread is not woken for it.
#[test]
fn a_peer_wakes_who_waits_for_an_event() {
    alone(path_of!("a_peer_wakes_who_waits_for_an_event"), Way::Direct, || {
        let mut it = Connected::start(path_of!("sleeper"));
        let mut before = 0;
        for message in 0..MESSAGES {
            let [] = it.child.hear();
            it.expect_asleep();
            let mut switches = device_switches(it.child.pid());
            // It is told of the peer when that first sends, and looks for a while whether the program polls.
            if message <= 1 {
                until("the device's thread to settle", || {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    let now = device_switches(it.child.pid());
                    (std::mem::replace(&mut switches, now) == now).then_some(())
                });
                before = switches;
            }
            // Where others want the processors it may look around once more, but not for each message.
            let woken = switches - before;
            assert!(woken < MESSAGES as u64 / 2, "its thread was woken {woken} times");
            it.send();
        }
        it.child.tell(&[]);
        it.child.finish();
    });
}

/// How often the device's own thread of a process was given the processor.
fn device_switches(pid: u32) -> u64 {
    let threads = activity(pid).into_iter().filter(|(name, _)| name.starts_with("transom "));
    threads.map(|(_, (switches, _))| switches).sum()
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: c_int) {
    SIGNALS.fetch_add(1, SeqCst);
}

/// Waits through a signal whose handler has calls restarted, and is interrupted by another.
fn interrupted(channel: &mut Channel) {
    let told = Told::meet(channel);
    for (signal, flags) in [(libc::SIGUSR1, libc::SA_RESTART), (libc::SIGUSR2, 0)] {
        // SAFETY: an action of this call's own; the handler only counts.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &action, null_mut()), 0);
        }
    }
    assert_eq!(arm(told.end.cq, false), 0);
    channel.tell(&[]);
    let (mut cq, mut context) = (null_mut(), null_mut());
    // SAFETY: a live channel, and places for the answers.
    assert_eq!(unsafe { ibv_get_cq_event(told.channel, &mut cq, &mut context) }, -1);
    assert_eq!((errno(), SIGNALS.load(SeqCst)), (libc::EINTR, 2));
}

/// A signal ends the wait for a completion event as it ends `read(2)`: only if its handler does not have
/// calls restarted.
#[test]
fn signals_end_the_wait_for_an_event_as_they_end_a_read() {
    let name = path_of!("signals_end_the_wait_for_an_event_as_they_end_a_read");
    alone(name, Way::Direct, || {
        let mut it = Connected::start(path_of!("interrupted"));
        let [] = it.child.hear();
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            it.expect_asleep();
            let (process, thread) = (it.child.pid() as c_int, it.thread as c_int);
            // SAFETY: takes plain numbers; the thread is our child's, which is not reaped yet.
            assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) }, 0);
            // Else it would be found asleep before the first has reached it.
            let file = format!("/proc/{process}/task/{thread}/status");
            until("the signal to be taken", || {
                let status = fs::read_to_string(&file).unwrap_or_default();
                let pending = status.lines().find(|line| line.starts_with("SigPnd:"));
                pending.is_none_or(|line| line.ends_with("\t0000000000000000")).then_some(())
            });
        }
        it.child.finish();
    });
}

/// How many threads are cancelled.
const CANCELLED: usize = 200;

unsafe extern "C-unwind" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

/// Waits for an event; null if there is one.
extern "C-unwind" fn wait_for_event(channel: *mut c_void) -> *mut c_void {
    let (mut cq, mut context) = (null_mut(), null_mut());
    // SAFETY: a live channel, and places for the answers.
    unsafe {
        assert_eq!(ibv_get_cq_event(channel.cast(), &mut cq, &mut context), 0);
        ibv_ack_cq_events(cq, 1);
    }
    null_mut()
}

/// Cancels threads that wait while messages come: somebody takes each message, or it would never be told of.
fn cancelled(channel: &mut Channel) {
    let told = Told::meet(channel);
    let mut ended = 0;
    for round in 0..CANCELLED {
        recv(told.qp, round as u64, &mut []);
        assert_eq!(arm(told.end.cq, false), 0);
        let (mut thread, mut came) = (0, null_mut());
        // SAFETY: started, cancelled and joined here; the channel outlives it.
        unsafe {
            let start: extern "C" fn(*mut c_void) -> *mut c_void =
                std::mem::transmute(wait_for_event as extern "C-unwind" fn(_) -> _);
            let channel = told.channel.cast();
            assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), start, channel), 0);
        }
        channel.tell(&[]);
        // Sometimes before the message, sometimes with it, sometimes behind it.
        (0..round * 50).for_each(|_| std::hint::spin_loop());
        // SAFETY: as above.
        unsafe {
            pthread_cancel(thread);
            assert_eq!(libc::pthread_join(thread, &mut came), 0);
        }
        if !came.is_null() {
            // Nobody polls: the message is taken all the same.
            // SAFETY: a live channel.
            until("the event", || readable(unsafe { (*told.channel).fd }).then_some(()));
            assert_eq!(cq_event(told.channel), told.end.cq);
            ended += 1;
        }
        told.expect_receive();
    }
    assert!(ended > 0, "none was cancelled");
}

on_each_way! {
    /// A thread that is cancelled while it waits for a completion event takes no message along: the device's
    /// thread has it then.
    fn a_cancelled_thread_loses_no_message() {
        let mut it = Connected::start(path_of!("cancelled"));
        for _ in 0..CANCELLED {
            let [] = it.child.hear();
            it.send();
        }
        it.child.finish();
    }
}
