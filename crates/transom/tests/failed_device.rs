//! What a program meets whose device goes while it is at work. Each test runs in a process of its own, which has
//! that fault; the software device has it, and no other.

mod common;

use common::{ALONE, TIMEOUT, TOO_EARLY, block_on, has_faults, need, until_the_device_goes};
use std::fmt::Debug;
use std::sync::mpsc;
use std::thread;
use transom::{
    AsyncEventKind, CompletionQueue, Context, Driver, Error, ProtectionDomain, QueuePair,
};

/// Ends the process if the device has gone already.
fn early<T, E: Debug>(made: Result<T, E>) -> T {
    made.unwrap_or_else(|_| std::process::exit(TOO_EARLY))
}

/// Waits until the device has gone.
fn until_gone(context: &Context) {
    let event = context.async_event(TIMEOUT).unwrap().expect("it goes");
    assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
}

#[track_caller]
fn is_gone(error: &Error) {
    assert_eq!(error.errno(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
}

/// Whatever it waits with, each hears of it.
///
/// Rules: AE-09
#[test]
fn whoever_waits_hears_of_a_device_that_goes() {
    need!(has_faults(), "no faults can be had");
    let test = "whoever_waits_hears_of_a_device_that_goes";
    if std::env::var_os(ALONE).is_none() {
        return assert_eq!(until_the_device_goes(test), 0);
    }
    let context = early(transom::devices(&common::provider()).and_then(|all| all[0].open()));
    let pd = early(ProtectionDomain::new(&context));
    let queues = [(); 2].map(|()| early(CompletionQueue::new(&context, 16)));
    let (tell, told) = mpsc::channel();
    // Threads wait for one, and tasks await the other.
    let driver = early(Driver::new(&queues[1]));
    let mut kept = Vec::new();
    for (queue, awaits) in queues.iter().zip([false, true]) {
        let qp = early(QueuePair::builder(&pd, queue).build());
        for _ in 0..3 {
            let (received, tell) = (early(qp.receive(&[])), tell.clone());
            thread::spawn(move || {
                let outcome = if awaits { block_on(received) } else { received.wait() };
                tell.send(outcome.map(drop)).unwrap();
            });
        }
        kept.push(qp);
    }
    thread::spawn({
        let queue = queues[0].clone();
        move || tell.send(queue.wait(2 * TIMEOUT).map(drop)).unwrap()
    });
    for _ in 0..7 {
        is_gone(&told.recv_timeout(TIMEOUT).expect("it is told").unwrap_err());
    }
    until_gone(&context);
    drop(driver);
}
