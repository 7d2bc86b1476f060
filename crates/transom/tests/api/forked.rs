//! A forked child, which has none of its parent's threads. It makes objects of its own, and harms none of its parent's.

use crate::common::{Ends, Pair, TIMEOUT, alone, block_on, has_faults, need, path_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use std::ffi::c_int;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use transom::{Access, Driver, MemoryRegion};

unsafe extern "C" {
    fn fork() -> c_int;
    fn _exit(code: c_int) -> !;
}

/// Forks. The child calls this and ends, successfully if it does not panic.
fn forked(child: impl FnOnce()) -> Pid {
    // SAFETY: no other thread of this process is inside a verb.
    match unsafe { fork() } {
        0 => {
            let done = catch_unwind(AssertUnwindSafe(child));
            // SAFETY: it ends this process.
            unsafe { _exit(done.is_err().into()) };
        }
        child => Pid::from_raw(child).expect("a child"),
    }
}

/// Waits until a child succeeds. A child that hangs is killed.
fn ends_well(child: Pid) {
    let end = pidfd_open(child, PidfdFlags::empty()).unwrap();
    let timeout = Timespec::try_from(TIMEOUT).unwrap();
    let in_time = poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&timeout)).unwrap() == 1;
    if !in_time {
        kill_process(child, Signal::KILL).unwrap();
    }
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().expect("its end");
    assert!(in_time, "the child hangs");
    assert_eq!(status.exit_status(), Some(0));
}

/// Awaits both ends of a connection, and its end.
fn await_all(ends: &Ends) {
    let connecting = ends.connecting(b"");
    thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                let request = ends.listener.accept().await.unwrap();
                let accepted = request.accept(ends.queue_pair(), b"").unwrap();
                accepted.await.unwrap().disconnection().await.unwrap();
            });
        });
        block_on(async { drop(connecting.await.unwrap()) });
    });
}

struct Tells(mpsc::Sender<()>);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_child_awaits_connections_of_its_own_and_its_parent_those_that_it_awaited() {
    need!(has_faults(), "no connections of a forked child's own");
    let test =
        path_of!("a_child_awaits_connections_of_its_own_and_its_parent_those_that_it_awaited");
    if let Some(end) = alone(test, &[]) {
        return assert_eq!(end, 0);
    }
    let ends = Ends::new();
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Tells(tell)));
    let mut look = Context::from_waker(&waker);
    // A child of the child does the same.
    for depth in 0..3 {
        let mut next = Some(ends.listener.accept());
        assert!(Pin::new(next.as_mut().unwrap()).poll(&mut look).is_pending());
        ends_well(forked(|| {
            // The parent's thread does not know this copy, nor its drop.
            drop(next.take());
            await_all(&Ends::new());
            if depth > 0 {
                ends_well(forked(|| await_all(&Ends::new())));
            }
        }));
        let (mut client, begun) = (ends.connecting(b""), Instant::now());
        while told.try_recv().is_err() {
            assert!(begun.elapsed() < TIMEOUT, "nobody wakes the parent's task");
            assert!(client.wait_timeout(Duration::from_millis(1)).unwrap().is_none());
        }
        let next = Pin::new(next.as_mut().expect("the child's is another")).poll(&mut look);
        let Poll::Ready(Ok(request)) = next else { panic!("no request: {next:?}") };
        drop(request);
        client.wait().unwrap_err();
    }
}

#[test]
fn a_child_that_drops_a_driver_does_not_end_its_parents() {
    need!(has_faults(), "no forks");
    let test = path_of!("a_child_that_drops_a_driver_does_not_end_its_parents");
    if let Some(end) = alone(test, &[]) {
        return assert_eq!(end, 0);
    }
    let pair = Pair::new();
    let mut driver = Some(Driver::new(&pair.owner.cq).unwrap());
    ends_well(forked(|| drop(driver.take())));
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Tells(tell)));
    let mut received = pair.owner.qp.receive(&[]).unwrap();
    assert!(Pin::new(&mut received).poll(&mut Context::from_waker(&waker)).is_pending());
    pair.peer.qp.send(b"").unwrap().wait().unwrap();
    told.recv_timeout(TIMEOUT).expect("the parent's driver wakes its task");
}

/// All that a child inherits is still its parent's, after the child has dropped it: a connection in use, with a driver.
#[test]
fn a_child_that_drops_everything_leaves_it_to_its_parent() {
    need!(has_faults(), "no forks");
    let test = path_of!("a_child_that_drops_everything_leaves_it_to_its_parent");
    if let Some(end) = alone(test, &[]) {
        return assert_eq!(end, 0);
    }
    let ends = Ends::new();
    let driver = Driver::new(&ends.cq).unwrap();
    let (client, server) = ends.connected();
    let region = MemoryRegion::register(&ends.pd, vec![0; 8], Access::LOCAL_WRITE).unwrap();
    let received = server.receive(&[region.all()]).unwrap();
    let mut everything = Some((ends, driver, client, server, region, received));
    ends_well(forked(|| drop(everything.take())));
    let (ends, _driver, client, mut server, region, received) = everything.unwrap();
    client.send(b"it works").unwrap().wait().unwrap();
    block_on(received).unwrap();
    assert_eq!(region.deregister().unwrap(), b"it works");
    ends.connected();
    drop(client);
    server.disconnection().wait().unwrap();
}
