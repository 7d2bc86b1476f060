//! A program whose device goes away while it works. Each test runs in a process of its own, which has this fault. Only
//! the software device has it.

use crate::common::{
    ALONE, Pair, TIMEOUT, TOO_EARLY, block_on, has_faults, need, path_of, provider,
    until_the_device_goes,
};
use std::fmt::Debug;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use transom::{
    Access, AsyncEventKind, CompletionQueue, Context, Driver, Error, MemoryRegion,
    ProtectionDomain, QueuePair, Refused, Rights, Transition, Type1, Type2, Window, WindowState,
    WindowType,
};

/// Ends the process if the device has already gone.
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

/// Every way to wait reports it.
///
/// Rules: AE-09
#[test]
fn a_thread_that_waits_hears_of_a_device_that_goes() {
    need!(has_faults(), "no faults can be had");
    let test = path_of!("a_thread_that_waits_hears_of_a_device_that_goes");
    if std::env::var_os(ALONE).is_none() {
        return assert_eq!(until_the_device_goes(test), 0);
    }
    let context = early(transom::devices(&provider()).and_then(|all| all[0].open()));
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
    // Later calls report it too.
    is_gone(&context.async_event(TIMEOUT).unwrap_err());
    drop(driver);
}

/// The event of the failed device goes to one waiter, and no later event comes for the others.
///
/// Rules: AE-09
#[test]
fn all_who_wait_for_an_event_hear_of_a_device_that_goes() {
    need!(has_faults(), "no faults can be had");
    let test = path_of!("all_who_wait_for_an_event_hear_of_a_device_that_goes");
    if std::env::var_os(ALONE).is_none() {
        return assert_eq!(until_the_device_goes(test), 0);
    }
    let context = early(transom::devices(&provider()).and_then(|all| all[0].open()));
    let (tell, told) = mpsc::channel();
    for timeout in [TIMEOUT * 2, TIMEOUT * 3, Duration::MAX, Duration::MAX] {
        let (context, tell) = (context.clone(), tell.clone());
        thread::spawn(move || tell.send(context.async_event(timeout)).unwrap());
    }
    let mut events = Vec::new();
    for _ in 0..4 {
        match told.recv_timeout(TIMEOUT).expect("it is told") {
            Ok(event) => events.push(event.expect("it is not late").kind),
            Err(error) => is_gone(&error),
        }
    }
    assert_eq!(events, [AsyncEventKind::DeviceFatal]);
}

/// A window whose request does not complete any more has no known state, so it is not given back.
fn has_no_window<T, From, To>(change: Transition<T, From, To>)
where
    T: WindowType,
    From: WindowState,
    To: WindowState,
{
    let Refused { returned, error } = change.wait().map(drop).unwrap_err();
    is_gone(&error);
    assert!(returned.is_none());
}

/// Nobody gets an object that the device did not make. A window that was to change has no known state. A registered
/// buffer comes back.
fn windows_of_a_failed_device<T: WindowType>() {
    let Pair { owner, peer: _peer } = early(std::panic::catch_unwind(Pair::new));
    let register = |bytes: &[u8]| {
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        early(MemoryRegion::register(&owner.pd, bytes.to_vec(), access))
    };
    let (region, other) = (register(b"it is here"), register(b"and this"));
    let alloc = || early(Window::<T>::alloc(&owner.pd));
    let [bound, binds, free] = [alloc(), alloc(), alloc()];
    let bound = early(early(bound.bind(&owner.qp, &region.all(), Rights::READ)).wait());
    // The peer has no receive, so no later request completes.
    let sent = early(owner.qp.send(b"never"));
    let binds = early(binds.bind(&owner.qp, &region.all(), Rights::READ));
    let frees = early(bound.invalidate(&owner.qp));
    until_gone(&owner.context);

    has_no_window(binds);
    has_no_window(frees);
    is_gone(&sent.wait().unwrap_err());
    is_gone(&Window::<T>::alloc(&owner.pd).unwrap_err());
    let refused = free.bind(&owner.qp, &region.all(), Rights::READ).unwrap_err();
    is_gone(&refused.error);
    // The bind was not posted, so the window is still free.
    drop(refused.returned);
    let refused = MemoryRegion::register(&owner.pd, b"anything".to_vec(), Access::empty());
    let Refused { returned, error } = refused.unwrap_err();
    is_gone(&error);
    assert_eq!(returned, b"anything");
    assert_eq!(other.deregister().unwrap(), b"and this");
    // The objects of the requests go with their queue pair.
    let region = region.deregister().unwrap_err().returned;
    drop(owner.qp);
    assert_eq!(region.deregister().unwrap(), b"it is here");
}

#[test]
fn a_failed_device_makes_and_changes_no_windows_of_type_1() {
    need!(has_faults(), "no faults can be had");
    let test = path_of!("a_failed_device_makes_and_changes_no_windows_of_type_1");
    match std::env::var_os(ALONE) {
        None => assert_eq!(until_the_device_goes(test), 0),
        Some(_) => windows_of_a_failed_device::<Type1>(),
    }
}

#[test]
fn a_failed_device_makes_and_changes_no_windows_of_type_2() {
    need!(has_faults(), "no faults can be had");
    let test = path_of!("a_failed_device_makes_and_changes_no_windows_of_type_2");
    match std::env::var_os(ALONE) {
        None => assert_eq!(until_the_device_goes(test), 0),
        Some(_) => windows_of_a_failed_device::<Type2>(),
    }
}
