//! A peer that closes descriptors that it does not know, as programs do that become daemons, and writes on.

use std::sync::atomic::{AtomicBool, Ordering::*};

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::processes::*;
use transom_conformance::queues::Across;
use transom_conformance::{on_each_way, path_of};

const MIB: usize = 1 << 20;

/// What the child runs; on its own it does nothing.
#[test]
fn role() {
    play(&[("writer", writer)]);
}

/// Hears where, and writes there until it hears more. After the first writes it closes all descriptors but the standard
/// ones. The channel is gone then, and it notes what it has to say.
fn writer(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    let near = Buffer::filled(MIB, 7);
    let mr = end.reg(&near, 0);
    let [addr, key] = channel.hear();
    let (mut writes, mut is_refused) = (0, false);
    while !hears() {
        // A refused one goes to a peer that hears this process no longer, and never completes.
        if is_refused {
            continue;
        }
        let mut sges = [sge(near.addr(), MIB as u32, mr)];
        post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, addr, key as u32));
        is_refused = poll(end.cq).is_none_or(|wc| wc.status != IBV_WC_SUCCESS);
        writes += 1;
        match writes {
            // SAFETY: takes numbers. Nobody but Transom and the channel uses what is closed.
            2 => assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0),
            4 => note(writes),
            _ => {}
        }
    }
    note(writes);
    // SAFETY: ends the process. Objects that have closed descriptors do not end before.
    unsafe { libc::_exit(0) };
}

/// Whether the process that started this one has said something.
fn hears() -> bool {
    let mut word = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    unsafe { libc::poll(&mut word, 1, 0) == 1 }
}

/// Stops a writer somewhere, ends the region that it writes to, and lets it go on; whether the end had to wait.
fn stop_once(end: &End) -> bool {
    let memory = Buffer::new(MIB);
    let region = Across::new(end.reg(&memory, ALL));
    let (mut child, qp) = (Child::start(path_of!("writer")), end.qp(IBV_QPT_RC));
    meet(&mut child.channel, qp);
    child.tell(&[memory.addr(), keys(region.get()).1.into()]);
    assert_eq!(child.hear(), [4]);
    child.stop();
    let done = AtomicBool::new(false);
    let waited = std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            assert_eq!(dereg(region.get()), 0);
            done.store(true, SeqCst);
        });
        let waited = until("the deregistration to end or wait", || {
            if done.load(SeqCst) {
                return Some(false);
            }
            (waits_for() == Some(child.pid())).then_some(true)
        });
        // The writer goes on meanwhile: with the copy in which it was stopped, or with the next ones.
        if !waited {
            memory.fill(0xca);
        }
        child.resume();
        if waited {
            until("the deregistration to end", || done.load(SeqCst).then_some(()));
            memory.fill(0xca);
        }
        child.tell(&[]);
        let [writes] = child.hear();
        assert!(writes >= 4);
        waited
    });
    assert!(memory.is_all(0xca), "written after the region had ended");
    child.kill();
    waited
}

on_each_way! {
    /// It is gone for its peers, and its threads copy on.
    /// Rules: DR-15
    fn a_deregistration_waits_for_a_writer_that_has_lost_its_descriptors() {
        if std::env::var_os("TRANSOM_COPY").is_some() {
            // What the target itself copies needs descriptors.
            return;
        }
        let end = open();
        until("a writer to stop in the middle of a copy", || stop_once(&end).then_some(()));
    }
}
