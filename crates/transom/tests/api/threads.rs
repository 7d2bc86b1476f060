//! Two threads use one context without a lock of their own. Under ThreadSanitizer this shows races that the assertions
//! do not see.

use crate::common::{Pair, TIMEOUT, context, this_thread, until_asleep};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use transom::{Access, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, Type2, Window};

/// How often each thread does its part.
const ROUNDS: usize = 50;

/// Makes a thread end, even if the test has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs it in two threads at once.
fn twice(run: impl Fn() + Send + Copy) {
    thread::scope(|scope| {
        scope.spawn(run);
        scope.spawn(run);
    });
}

#[test]
fn two_threads_register_in_one_domain() {
    let pd = ProtectionDomain::new(&context()).unwrap();
    twice(|| {
        for round in 0..ROUNDS {
            let region =
                MemoryRegion::register(&pd, vec![round as u8; 64], Access::MW_BIND).unwrap();
            let window = Window::<Type2>::alloc(&pd).unwrap();
            let mut bytes = [0; 64];
            region.read_at(0, &mut bytes).unwrap();
            assert_eq!(bytes, [round as u8; 64]);
            drop(window);
            region.deregister().unwrap();
        }
    });
}

#[test]
fn two_threads_make_and_end_queues_and_queue_pairs() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    twice(|| {
        for _ in 0..ROUNDS {
            let cq = CompletionQueue::new(&context, 8).unwrap();
            cq.resize(16).unwrap();
            let qp = QueuePair::builder(&pd, &cq).build().unwrap();
            let endpoint = qp.endpoint();
            drop(qp.connect(&endpoint).unwrap());
        }
    });
}

#[test]
fn two_threads_change_one_queue_pair_and_ask_for_its_state() {
    for _ in 0..ROUNDS {
        let Pair { owner, peer: _peer } = Pair::new();
        thread::scope(|scope| {
            scope.spawn(|| while !owner.qp.has_failed().unwrap() {});
            scope.spawn(|| owner.qp.fail().unwrap());
            scope.spawn(|| owner.qp.fail().unwrap());
        });
    }
}

#[test]
fn two_threads_post_to_and_poll_one_connection() {
    let Pair { owner, peer } = Pair::new();
    twice(|| {
        let region = owner.local(64);
        for _ in 0..ROUNDS {
            let received = owner.qp.receive(&[region.all()]).unwrap();
            peer.qp.send(b"from either").unwrap().wait().unwrap();
            assert_eq!(received.wait().unwrap().length(), 11);
        }
    });
}

/// A thread copies in and out of memory that another thread copies too, at other places and lengths.
#[test]
fn two_threads_copy_from_and_to_one_region() {
    let Pair { owner, peer: _peer } = Pair::new();
    let region = owner.local(256);
    twice(|| {
        for round in 0..ROUNDS {
            let offset = round * 7 % 128;
            region.write_at(offset, &vec![1; round]).unwrap();
            let mut bytes = vec![0; 128 - round];
            region.read_at(round, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte <= 1));
        }
    });
}

/// A thread that waits for an event does not keep another from looking.
#[test]
fn threads_wait_for_events_each_for_its_own_time() {
    let Pair { owner, .. } = Pair::new();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            tell.send(this_thread()).unwrap();
            owner.context.async_event(TIMEOUT).unwrap()
        });
        until_asleep(told.recv().unwrap());
        assert_eq!(owner.context.async_event(Duration::ZERO).unwrap().map(drop), None);
        assert!(!waits.is_finished());
        let (there, here) = Pair::within(&owner.pd);
        let region = there.local(8);
        assert!(here.qp.write(b"refused.", region.grant()).unwrap().wait().is_err());
        assert!(waits.join().unwrap().is_some());
    });
}

/// An event disappears with its queue pair, even if a thread is about to take it. That thread does not wait for another
/// event beyond its time.
#[test]
fn who_waits_for_an_event_waits_no_longer_than_asked() {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let Pair { owner, .. } = Pair::new();
        let waits = scope.spawn({
            let (context, ended) = (owner.context.clone(), &ended);
            move || {
                while !ended.load(Relaxed) {
                    let start = Instant::now();
                    context.async_event(Duration::from_millis(1)).unwrap();
                    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
                }
            }
        });
        let over = Over(&ended);
        for _ in 0..100 * ROUNDS {
            let (there, here) = Pair::within(&owner.pd);
            let region = there.local(8);
            // Nobody may do this, so it raises an event.
            let refused = here.qp.write(b"refused.", region.grant()).unwrap().wait();
            assert!(refused.is_err());
            drop((there, here));
        }
        drop(over);
        let start = Instant::now();
        while !waits.is_finished() {
            if start.elapsed() > Duration::from_secs(10) {
                eprintln!("it waits for ever");
                // Nothing else ends it.
                std::process::abort();
            }
            thread::yield_now();
        }
        waits.join().unwrap();
    });
}
