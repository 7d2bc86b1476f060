//! All ways to wait for completions.

use crate::common::{Pair, TIMEOUT, block_on, context, need, status, this_thread, until_asleep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use transom::{
    Access, AddressHandle, Batch, Binding, Bound, Buffer, CompletionQueue, Context, Datagram,
    Device, Driver, Error, Free, Membership, MemoryRegion, Posted, ProtectionDomain, Provider,
    QueuePair, ReceivedDatagram, Receiving, SharedReceiveQueue, Slice, Status, Type1, Type2,
    Window, XrcDomain, XrcTarget,
};

#[test]
fn waiting_blocks_until_the_completion_comes() {
    let Pair { owner, peer } = Pair::new();
    let received = owner.qp.receive(&[]).unwrap();
    let waiting = this_thread();
    let sending = thread::spawn(move || {
        until_asleep(waiting);
        peer.qp.send(b"").unwrap().wait().unwrap();
        peer
    });
    received.wait().unwrap();
    sending.join().unwrap();
}

#[test]
fn waiting_ends_when_the_time_is_up_and_can_go_on() {
    let Pair { owner, peer } = Pair::new();
    let mut received = owner.qp.receive(&[]).unwrap();
    let begin = Instant::now();
    assert!(received.wait_timeout(Duration::from_millis(20)).unwrap().is_none());
    assert!(begin.elapsed() >= Duration::from_millis(20));
    assert!(received.try_wait().unwrap().is_none());
    assert_eq!(owner.cq.wait(Duration::from_millis(1)).unwrap(), 0);
    peer.qp.send(b"").unwrap().wait().unwrap();
    let completion = received.wait_timeout(TIMEOUT).unwrap().unwrap();
    // Later calls give the same answer.
    assert_eq!(received.try_wait().unwrap(), Some(completion));
    assert_eq!(block_on(received).unwrap(), completion);
}

#[test]
fn threads_may_wait_for_different_requests_of_one_queue() {
    let Pair { owner, peer } = Pair::new();
    let received: Vec<_> = (0..8).map(|_| owner.qp.receive(&[]).unwrap()).collect();
    thread::scope(|scope| {
        // Not in the order in which they complete.
        for posted in received.into_iter().rev() {
            scope.spawn(|| posted.wait().unwrap());
        }
        for _ in 0..8 {
            peer.qp.send(b"").unwrap().wait().unwrap();
        }
    });
}

#[test]
fn a_driver_wakes_who_awaits() {
    let Pair { owner, peer } = Pair::new();
    let driver = Driver::new(&owner.cq).unwrap();
    let received: Vec<_> = (0..4).map(|_| owner.qp.receive(&[]).unwrap()).collect();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for posted in received {
            let tell = tell.clone();
            scope.spawn(move || {
                tell.send(this_thread()).unwrap();
                block_on(posted).unwrap()
            });
        }
        told.iter().take(4).for_each(until_asleep);
        for _ in 0..4 {
            peer.qp.send(b"").unwrap().wait().unwrap();
        }
    });
    drop(driver);
}

#[test]
fn a_driver_ends_while_another_thread_waits() {
    let Pair { owner, peer } = Pair::new();
    let received = owner.qp.receive(&[]).unwrap();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            tell.send(this_thread()).unwrap();
            received.wait().unwrap()
        });
        until_asleep(told.recv().unwrap());
        drop(Driver::new(&owner.cq).unwrap());
        peer.qp.send(b"").unwrap().wait().unwrap();
    });
}

/// Owns a driver, and drops it at the first wake-up: on the driver's own thread.
struct Owner(Mutex<Option<Driver>>, mpsc::Sender<()>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
        let _ = self.1.send(());
    }
}

#[test]
fn a_driver_may_be_dropped_by_the_task_that_it_wakes() {
    let Pair { owner, peer } = Pair::new();
    let (tell, told) = mpsc::channel();
    let has_driver = Owner(Mutex::new(Some(Driver::new(&owner.cq).unwrap())), tell);
    let mut received = owner.qp.receive(&[]).unwrap();
    assert!(poll_once(&mut received, &Waker::from(Arc::new(has_driver))).is_pending());
    peer.qp.send(b"").unwrap().wait().unwrap();
    told.recv_timeout(TIMEOUT).unwrap();
    assert!(block_on(received).is_ok());
}

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut TaskContext::from_waker(waker))
}

/// Panics at a wake-up.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("as this test wants it");
    }
}

/// Makes a task await it that panics at its wake-up.
fn await_with_panic(posted: &mut Posted) {
    assert!(poll_once(posted, &Waker::from(Arc::new(Panics))).is_pending());
}

#[test]
fn a_waker_that_panics_leaves_nobody_unwoken() {
    let Pair { owner, peer } = Pair::new();
    let woken = Arc::new(Count::default());
    let mut received: Vec<_> = (0..3).map(|_| owner.qp.receive(&[]).unwrap()).collect();
    received[..2].iter_mut().for_each(await_with_panic);
    assert!(poll_once(&mut received[2], &Waker::from(woken.clone())).is_pending());
    for _ in 0..3 {
        peer.qp.send(b"").unwrap().wait().unwrap();
    }
    // Nor does it harm the thread that delivers.
    assert!(received[2].wait_timeout(TIMEOUT).unwrap().is_some());
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(received.iter_mut().all(|posted| posted.try_wait().unwrap().is_some()));
}

/// Panics when it is dropped.
#[derive(Debug)]
struct Explosive(Vec<u8>);

// SAFETY: as for the vector.
unsafe impl Buffer for Explosive {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Explosive {
    fn drop(&mut self) {
        panic!("as this test wants it");
    }
}

#[test]
fn a_buffer_that_panics_leaves_nobody_unwoken() {
    let Pair { owner, peer } = Pair::new();
    let woken = Arc::new(Count::default());
    let explosive = || Explosive(vec![0; 8]);
    let post = |region: MemoryRegion<Explosive>| owner.qp.receive(&[region.all()]).unwrap();
    let register = |buffer| MemoryRegion::register(&owner.pd, buffer, Access::LOCAL_WRITE).unwrap();
    drop(post(register(explosive())));
    let mut received = owner.qp.receive(&[]).unwrap();
    assert!(poll_once(&mut received, &Waker::from(woken.clone())).is_pending());
    drop(post(register(explosive())));
    peer.qp.send(b"for it").unwrap().wait().unwrap();
    peer.qp.send(b"").unwrap().wait().unwrap();
    assert!(received.wait_timeout(TIMEOUT).unwrap().is_some());
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    // The other one ends with the queue pair.
    drop((received, owner.qp));
}

/// Takes the completion of a receive at the first wake-up, and then deregisters its memory.
struct Takes(Mutex<Option<(Posted, MemoryRegion<Vec<u8>>)>>, mpsc::Sender<bool>);

impl Wake for Takes {
    fn wake(self: Arc<Self>) {
        let (mut received, region) = self.0.lock().unwrap().take().unwrap();
        received.try_wait().unwrap().expect("it came with the other");
        let _ = self.1.send(region.deregister().is_ok());
    }
}

/// Another thread may have delivered the completion, and may not have returned yet.
#[test]
fn a_request_whose_completion_is_taken_keeps_no_memory() {
    let Pair { owner, peer } = Pair::new();
    let mut wakes = owner.qp.receive(&[]).unwrap();
    let region = owner.local(8);
    let received = owner.qp.receive(&[region.all()]).unwrap();
    let (tell, told) = mpsc::channel();
    let takes = Arc::new(Takes(Mutex::new(Some((received, region))), tell));
    assert!(poll_once(&mut wakes, &Waker::from(takes)).is_pending());
    for _ in 0..2 {
        peer.qp.send(b"").unwrap().wait().unwrap();
    }
    // This delivers both, and wakes the task in the middle of that.
    owner.cq.poll().unwrap();
    assert_eq!(told.try_recv(), Ok(true));
}

/// Until then the memory is in use, though the device is done with it.
#[test]
fn a_request_keeps_its_memory_until_its_completion_is_taken_or_its_ticket_dropped() {
    let Pair { owner, peer } = Pair::new();
    for drops in [false, true] {
        let region = owner.local(8);
        let received = owner.qp.receive(&[region.all()]).unwrap();
        peer.qp.send(b"").unwrap().wait().unwrap();
        while owner.cq.poll().unwrap() == 0 {}
        let refused = region.deregister().unwrap_err();
        assert_eq!(refused.error, Error::InUse { users: 1 });
        match drops {
            true => drop(received),
            false => drop(received.wait().unwrap()),
        }
        refused.returned.deregister().unwrap();
    }
}

#[test]
fn a_driver_outlives_a_waker_that_panics() {
    let Pair { owner, peer } = Pair::new();
    let driver = Driver::new(&owner.cq).unwrap();
    let [mut first, second] = [(); 2].map(|()| owner.qp.receive(&[]).unwrap());
    await_with_panic(&mut first);
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(block_on(second)));
    for _ in 0..2 {
        peer.qp.send(b"").unwrap().wait().unwrap();
    }
    told.recv_timeout(TIMEOUT).expect("it is woken").unwrap();
    drop(driver);
}

#[test]
fn a_waker_that_panics_leaves_the_queue_armed_for_the_reactor() {
    let Pair { owner, peer } = Pair::new();
    let woken = Arc::new(Count::default());
    let [mut first, mut second] = [(); 2].map(|()| owner.qp.receive(&[]).unwrap());
    await_with_panic(&mut first);
    assert!(poll_once(&mut second, &Waker::from(woken.clone())).is_pending());
    for number in 0..2 {
        peer.qp.send(b"").unwrap().wait().unwrap();
        let mut descriptors = [PollFd::new(&owner.cq, PollFlags::IN)];
        let timeout = Timespec::try_from(TIMEOUT).unwrap();
        assert_eq!(poll(&mut descriptors, Some(&timeout)), Ok(1), "no event");
        owner.cq.handle_events().unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), number);
    }
}

/// A waker's own code may use the queue, even in its clone.
#[test]
fn a_waker_may_poll_the_queue_when_it_is_cloned() {
    const TABLE: RawWakerVTable = RawWakerVTable::new(polls_and_clones, nothing, nothing, nothing);

    unsafe fn polls_and_clones(queue: *const ()) -> RawWaker {
        // SAFETY: it is one, and never freed.
        unsafe { &*queue.cast::<CompletionQueue>() }.poll().unwrap();
        RawWaker::new(queue, &TABLE)
    }

    unsafe fn nothing(_: *const ()) {}

    let Pair { owner, peer } = Pair::new();
    let queue: &'static CompletionQueue = Box::leak(Box::new(owner.cq.clone()));
    let mut received = owner.qp.receive(&[]).unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let raw = RawWaker::new((&raw const *queue).cast(), &TABLE);
        // SAFETY: the functions fulfil the contract, because there is nothing to count.
        let waker = unsafe { Waker::from_raw(raw) };
        tell.send(poll_once(&mut received, &waker).is_pending()).unwrap();
    });
    assert!(told.recv_timeout(TIMEOUT).expect("it waits for itself"));
    drop((owner, peer));
}

#[test]
fn a_reactor_delivers_when_the_descriptor_is_readable() {
    let Pair { owner, peer } = Pair::new();
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    for round in 1..=3 {
        let mut received = owner.qp.receive(&[]).unwrap();
        assert!(poll_once(&mut received, &waker).is_pending());
        peer.qp.send(b"").unwrap().wait().unwrap();

        let mut descriptors = [PollFd::new(&owner.cq, PollFlags::IN)];
        let timeout = Timespec::try_from(TIMEOUT).unwrap();
        assert_eq!(poll(&mut descriptors, Some(&timeout)), Ok(1));
        assert_eq!(woken.0.load(Ordering::SeqCst), round - 1);
        assert_eq!(owner.cq.handle_events().unwrap(), 1);
        assert_eq!(woken.0.load(Ordering::SeqCst), round);
        assert!(poll_once(&mut received, &waker).is_ready());
        assert_eq!(poll(&mut descriptors, Some(&Timespec::default())), Ok(0));
    }
}

/// Nobody awaits anything, so the descriptor alone tells of completions, from the first on.
#[test]
fn a_reactor_without_futures_hears_of_each_completion() {
    let Pair { owner, peer } = Pair::new();
    let mut descriptors = [PollFd::new(&owner.cq, PollFlags::IN)];
    for _ in 0..3 {
        let mut received = owner.qp.receive(&[]).unwrap();
        peer.qp.send(b"").unwrap().wait().unwrap();
        let timeout = Timespec::try_from(TIMEOUT).unwrap();
        assert_eq!(poll(&mut descriptors, Some(&timeout)), Ok(1), "no event");
        assert_eq!(owner.cq.handle_events().unwrap(), 1);
        assert!(received.try_wait().unwrap().is_some());
    }
    assert_eq!(poll(&mut descriptors, Some(&Timespec::default())), Ok(0));
}

#[test]
fn a_thread_that_waits_leaves_the_queue_armed_for_the_reactor() {
    let Pair { owner, peer } = Pair::new();
    let waker = Waker::from(Arc::new(Count::default()));
    let first = owner.qp.receive(&[]).unwrap();
    let mut second = owner.qp.receive(&[]).unwrap();
    assert!(poll_once(&mut second, &waker).is_pending());
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            tell.send(this_thread()).unwrap();
            first.wait().unwrap()
        });
        until_asleep(told.recv().unwrap());
        peer.qp.send(b"").unwrap().wait().unwrap();
    });
    peer.qp.send(b"").unwrap().wait().unwrap();
    let mut descriptors = [PollFd::new(&owner.cq, PollFlags::IN)];
    let timeout = Timespec::try_from(TIMEOUT).unwrap();
    assert_eq!(poll(&mut descriptors, Some(&timeout)), Ok(1));
    owner.cq.handle_events().unwrap();
    assert!(poll_once(&mut second, &waker).is_ready());
}

/// A queue that keeps times delivers everything that another queue does, in every way.
#[test]
fn completions_tell_when_they_came() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let created = CompletionQueue::with_timestamps(&context, 64);
    let unsupported = Some(rustix::io::Errno::OPNOTSUPP.raw_os_error());
    let keeps_times = !matches!(&created, Err(error) if error.errno() == unsupported);
    need!(keeps_times, "the device keeps no times of completions");
    let cq = created.unwrap();
    let builder = QueuePair::builder(&pd, &cq);
    let (a, b) = (builder.build().unwrap(), builder.build().unwrap());
    let (at_a, at_b) = (a.endpoint(), b.endpoint());
    let (a, b) = (a.connect(&at_b).unwrap(), b.connect(&at_a).unwrap());
    let region = MemoryRegion::register(&pd, vec![0; 8], Access::LOCAL_WRITE).unwrap();

    // The clocks of the times may differ by this much.
    let slack = Duration::from_millis(1);
    let before = SystemTime::now();
    let received: Vec<_> = (0..9).map(|_| b.receive(&[region.all()]).unwrap()).collect();
    let sent: Vec<_> = (0..9).map(|number| a.send_immediate(b"timed", number).unwrap()).collect();
    let mut last = before;
    for (number, posted) in received.into_iter().enumerate() {
        let completion = if number % 2 == 0 { posted.wait() } else { block_on(posted) };
        let completion = completion.unwrap();
        assert_eq!((completion.length(), completion.immediate()), (5, Some(number as u32)));
        assert_eq!(completion.queue_pair(), b.number());
        let time = completion.timestamp().expect("the queue keeps times");
        assert!(last <= time + slack, "{last:?}, then {time:?}");
        last = time;
    }
    assert!(last <= SystemTime::now() + slack);
    for posted in sent {
        assert!(posted.wait().unwrap().timestamp().is_some());
    }
    cq.resize(128).unwrap();
    // Waiting sleeps on the same descriptor.
    let later = b.receive(&[region.all()]).unwrap();
    let sending = thread::spawn(move || {
        a.send(b"late").unwrap().wait().unwrap();
        a
    });
    assert_eq!(later.wait().unwrap().length(), 4);
    let a = sending.join().unwrap();
    let flushed = a.receive(&[]).unwrap();
    a.fail().unwrap();
    assert_eq!(status(flushed.wait().unwrap_err()), Status::Flushed);
}

#[test]
fn a_queue_never_overruns() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 2).unwrap();
    let qp = QueuePair::builder(&pd, &cq).max_receives(512).build().unwrap();
    let entries = cq.entries();
    assert!(entries >= 2);
    let mut received: Vec<_> = (0..entries).map(|_| qp.receive(&[]).unwrap()).collect();
    assert_eq!(qp.receive(&[]).unwrap_err(), Error::CompletionQueueFull { entries });
    // Nor can it become smaller than the number of outstanding requests.
    let fewer = entries as u32 - 1;
    let full = Error::CompletionQueueFull { entries: entries - 1 };
    assert_eq!((cq.resize(fewer).unwrap_err(), cq.entries()), (full, entries));
    cq.resize(entries as u32 + 1).unwrap();
    received.push(qp.receive(&[]).unwrap());
    qp.fail().unwrap();
    for posted in received {
        assert!(posted.wait().is_err());
    }
}

#[test]
fn a_queue_of_another_context_is_refused() {
    let (a, b) = (context(), context());
    let pd = ProtectionDomain::new(&a).unwrap();
    let cq = CompletionQueue::new(&b, 2).unwrap();
    let error = QueuePair::builder(&pd, &cq).build().unwrap_err();
    assert_eq!(error, Error::OtherContext { what: "completion queue" });
}

#[test]
fn everything_may_be_shared_and_sent_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Provider>();
    check::<Device>();
    check::<Context>();
    check::<ProtectionDomain>();
    check::<CompletionQueue>();
    check::<Driver>();
    check::<QueuePair>();
    check::<QueuePair<Datagram>>();
    check::<QueuePair<XrcTarget>>();
    check::<Posted>();
    check::<Receiving>();
    check::<ReceivedDatagram>();
    check::<AddressHandle>();
    check::<Membership>();
    check::<SharedReceiveQueue<Datagram>>();
    check::<XrcDomain>();
    check::<Batch<'_>>();
    check::<MemoryRegion<Vec<u8>>>();
    check::<Slice>();
    check::<Window<Type2, Free>>();
    check::<Window<Type1, Bound>>();
    check::<Binding<Type1>>();
    check::<Error>();
}
