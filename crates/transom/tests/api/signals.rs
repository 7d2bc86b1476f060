//! Signals that come during a wait. They interrupt the kernel's call, but not the call of this crate.

use crate::common::{
    Departure, Pair, TIMEOUT, address, departs, provider, this_thread, until_asleep,
};
use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use transom::{AsyncEventKind, Connector, Listener, QueuePair};

const SIGUSR1: c_int = 10;

unsafe extern "C" {
    fn signal(signal: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn pthread_self() -> c_ulong;
    fn pthread_kill(thread: c_ulong, signal: c_int) -> c_int;
}

static CAME: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: c_int) {
    CAME.fetch_add(1, SeqCst);
}

/// Waits on a thread that gets signals while it sleeps, and then lets it go on.
fn interrupted<T: Send>(waits: impl FnOnce() -> T + Send, go_on: impl FnOnce()) -> T {
    // All tests count them together.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the handler only adds to a number.
    unsafe { signal(SIGUSR1, count) };
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            // SAFETY: it has no arguments.
            tell.send((this_thread(), unsafe { pthread_self() })).unwrap();
            waits()
        });
        let (number, thread) = told.recv().unwrap();
        for _ in 0..3 {
            until_asleep(number);
            let before = CAME.load(SeqCst);
            // SAFETY: the thread is not joined yet.
            assert_eq!(unsafe { pthread_kill(thread, SIGUSR1) }, 0);
            while CAME.load(SeqCst) == before && !waiting.is_finished() {
                thread::yield_now();
            }
        }
        go_on();
        waiting.join().unwrap()
    })
}

#[test]
fn a_signal_does_not_end_the_wait_for_an_asynchronous_event() {
    let Pair { owner, peer } = Pair::new();
    if departs(&owner.context, Departure::NoRefusalEvent) {
        return;
    }
    let region = owner.local(8);
    let event = interrupted(
        || owner.context.async_event(TIMEOUT).unwrap(),
        // No peer has connected to it.
        || assert!(peer.qp.write(b"refused.", region.grant()).unwrap().wait().is_err()),
    );
    assert_eq!(event.expect("it comes").kind, AsyncEventKind::AccessRefused);
}

#[test]
fn a_signal_does_not_end_the_wait_for_a_completion() {
    let Pair { owner, peer } = Pair::new();
    let received = owner.qp.receive(&[]).unwrap();
    let send = || assert!(peer.qp.send(b"").unwrap().wait().is_ok());
    assert_eq!(interrupted(|| received.wait().unwrap(), send).length(), 0);
}

#[test]
fn a_signal_does_not_end_the_wait_for_a_request() {
    let Pair { owner, .. } = Pair::new();
    let listener = Listener::bind(&provider(), address()).unwrap();
    let queue_pair = QueuePair::builder(&owner.pd, &owner.cq).build().unwrap();
    let connector = Connector::new(listener.local_address());
    interrupted(
        || listener.accept().wait().unwrap().reject(b"").unwrap(),
        || assert!(connector.connect(queue_pair).unwrap().wait().is_err()),
    );
}
