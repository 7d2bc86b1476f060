//! The end of the device's process: it forks, exits or fails.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use transom_device::protection::Waiter;
use transom_device::qp::QpState;
use transom_system::fork::ForkHandler;
use transom_system::{HeldBackHere, clock};

use crate::events::AsyncEvent;
use crate::objects::{Adapter, Cq};

/// How long a process that ends waits for peers to take its messages.
const LAST_WAIT: Duration = Duration::from_millis(100);

impl Adapter {
    /// Tells the peers that the program exits, and sends what they still get. The background thread does this
    /// (`device::exit`).
    pub(crate) fn tell_of_exit(&self, until: Instant) {
        let device = self.device();
        // First, because what comes next may take all the time. What is posted from now on lands at once.
        device.process().held_back().inspect(HeldBackHere::end);
        self.connections().end_all(until);
        // Sends delayed acknowledgements.
        if device.port().wire().is_some() {
            self.queue_pairs.all().iter().for_each(|qp| qp.acknowledge_at_exit(until));
        }
        device.port().send_rest();
        self.let_peers_take_the_rest();
    }

    /// Waits a little until peers on this host have emptied their rings. Datagrams in them have completed already. A
    /// peer that has not run since the first of them has not attached to this process yet, and the ring would be gone
    /// before it does.
    pub(crate) fn let_peers_take_the_rest(&self) {
        let (process, until) = (self.device().process(), Instant::now() + LAST_WAIT);
        for peer in self.device().peers.all() {
            let mut round = 0;
            let is_done = |round: u32| {
                peer.has_carried_out_all(process.segment())
                    || peer.is_gone()
                    || round % 64 == 63 && process.is_gone(peer.announcer)
            };
            while !is_done(round) && Instant::now() < until {
                process.pause(round, Some(peer.announcer));
                round = round.saturating_add(1);
            }
            if round > 0 {
                process.resumed();
            }
        }
    }
}

impl ForkHandler for Adapter {
    fn hold(&self, until: Instant) -> bool {
        loop {
            if let Some(guard) = self.device().work.working.try_lock() {
                std::mem::forget(guard);
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::yield_now();
        }
    }

    unsafe fn release(&self) {
        // SAFETY: locked by `hold`, in this thread or in the one that this one is the copy of.
        unsafe { self.device().work.working.force_unlock() };
    }

    fn leave_to_parent(&self) {
        let device = self.device();
        device.process().leave_to_parent();
        device.peers.protect_segments();
        device.port().leave_to_parent();
    }

    fn at_exit(&self, until: Instant) {
        // A forked child has none of the threads, and owes nothing to its parent's peers.
        let device = self.device();
        if self.own_device().is_none() {
            return;
        }
        // One that has failed has told its peers, and its thread has ended.
        if !device.failed.load(SeqCst) {
            device.process().segment().header().exited.store(1, Release);
            device.work.exit.begin();
            device.process().wake();
            device.work.exit.wait(until);
        }
        device.process().settle();
    }

    /// Stops all work for peers, and tells the program once.
    fn fail(&self) {
        let device = self.device();
        let had_failed = device.failed.swap(true, SeqCst);
        if self.own_device().is_none() {
            return;
        }
        if had_failed {
            // Ids that would have gone on at another device hear that none is left.
            if device.options().others > 0 {
                self.connections().fail();
            }
            return;
        }
        self.connections().fail();
        for qp in self.queue_pairs.all() {
            if qp.summary().fall(QpState::Error) {
                qp.tell_door(None);
            }
            qp.own_completion_queues().for_each(Cq::fail);
        }
        self.shared_queues.completion_queues().iter().for_each(Cq::fail);
        // Nobody serves deadlines any more.
        device.process().held_back().inspect(HeldBackHere::end);
        let holders = device.work.deadlines.take_holders();
        holders.into_iter().for_each(|holder| holder.end_period(clock::steady()));
        device.close_channels();
        device.depart();
        device.port().close();
        device.port_events().raise(AsyncEvent::DeviceFatal);
    }

    fn own_device(&self) -> Option<u8> {
        let device = self.device();
        (!device.process().is_inherited()).then(|| device.options().number)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use transom_cm::{Happened, Refused, Service};
    use transom_device::protection::{Announcer, Rank, Use, Waiter};
    use transom_system::failure::{any_has_failed, fail, has_failed};

    use super::*;
    use crate::Options;
    use crate::events::EventQueue;
    use crate::testing::{alone, turn};

    /// Nobody catches a panic on the background thread.
    /// Rules: AE-09
    #[test]
    fn a_panic_on_the_background_thread_is_an_error_of_the_device() {
        if !alone("process::tests::a_panic_on_the_background_thread_is_an_error_of_the_device") {
            return;
        }
        let open = || Adapter::open(Options::default());
        let devices = [(); 2].map(|()| open().expect("a device opens"));
        let told = [(); 3].map(|()| Arc::new(EventQueue::new().expect("a queue")));
        let attach = |(told, of): (&Arc<_>, usize)| {
            devices[of].device().port_events().tell(told).expect("room")
        };
        let _sources: Vec<_> = told.iter().zip([0, 0, 1]).map(attach).collect();
        devices[0].device().work.panics.store(true, Release);
        devices[0].device().process().wake();
        for told in &told {
            let (event, _) = told.take().expect("it comes");
            assert_eq!(event, AsyncEvent::DeviceFatal);
            rustix::io::ioctl_fionbio(told.descriptor(), true).expect("an option");
            assert!(told.take().is_err(), "once");
        }
        assert!(has_failed() && devices.iter().all(|device| device.device().check().is_err()));
        assert_eq!(open().map(drop).expect_err("they are not closed").errno(), Some(libc::EIO));
        let [first, second] = devices;
        drop(first);
        assert!(open().is_err());
        second.close();
        open().expect("all are closed").close();
        assert!(!has_failed());
    }

    /// Posts and polls ask for it only while one is there that was removed.
    /// Rules: DEVS-11, DEVS-12
    #[test]
    fn a_removed_device_goes_alone_and_is_forgotten_once_it_is_closed() {
        if !alone("process::tests::a_removed_device_goes_alone_and_is_forgotten_once_it_is_closed")
        {
            return;
        }
        let open = |number| {
            let options = Options { number, others: 2, ..Options::default() };
            Adapter::open(options).expect("a device opens")
        };
        // It is the only one that is open.
        let first = open(0);
        first.device().remove();
        assert!(first.device().check().is_err() && any_has_failed() && !has_failed());
        let [second, third] = [open(1), open(2)];
        assert!(second.device().check().is_ok(), "it goes on");
        third.device().remove();
        first.close();
        assert!(any_has_failed(), "the third is there");
        third.close();
        assert!(!any_has_failed() && second.device().check().is_ok());
        open(0).close();
        second.close();
    }

    /// One waits at the descriptor, and one where peers could wake it.
    ///
    /// Rules: AE-09
    #[test]
    fn who_waits_at_a_completion_channel_hears_that_its_device_is_removed() {
        if !alone(
            "process::tests::who_waits_at_a_completion_channel_hears_that_its_device_is_removed",
        ) {
            return;
        }
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        let channels = [(); 2].map(|()| adapter.device().completion_events().expect("a channel"));
        let errors = std::thread::scope(|scope| {
            let at_descriptor = scope.spawn(|| channels[0].take().map(drop));
            let asleep = scope.spawn(|| adapter.take_event(&channels[1]).map(drop));
            while !channels[1].has_sleepers() {
                std::thread::yield_now();
            }
            adapter.device().remove();
            [at_descriptor, asleep].map(|waits| waits.join().expect("no panic").unwrap_err())
        });
        assert_eq!(errors.map(|error| error.raw_os_error()), [Some(libc::EIO); 2]);
        let mut readable =
            channels.each_ref().map(|it| PollFd::from_borrowed_fd(it.descriptor(), PollFlags::IN));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut readable, Some(&at_once)), Ok(2));
        let late = adapter.device().completion_events().expect("a channel");
        assert_eq!(late.take().unwrap_err().raw_os_error(), Some(libc::EIO));
        adapter.close();
    }

    /// Rules: CM-46, DEVS-15
    #[test]
    fn ids_of_a_removed_device_that_stay_hear_that_no_device_is_left() {
        if !alone("process::tests::ids_of_a_removed_device_that_stay_hear_that_no_device_is_left") {
            return;
        }
        let devices = [0, 1].map(|number| {
            let options = Options { number, others: 1, ..Options::default() };
            Adapter::open(options).expect("a device opens")
        });
        let opened: Result<_, Refused> = devices[0].connections().call(|manager| {
            let file = manager.open_file()?;
            Ok((file, manager.create(file, 7, Service::TCP)?))
        });
        let (file, id) = opened.expect("a file");
        let create = || devices[0].connections().call(|it| it.create(file, 8, Service::TCP));
        let next = || devices[0].connections().call(|it| it.next_event(file)).expect("it is open");
        devices[0].device().remove();
        assert_eq!((next(), create()), (None, Err(Refused::DeviceFailed)));
        devices[1].device().remove();
        let told = next().expect("it is told");
        assert_eq!((told.uid, told.id, told.happened), (7, id.0, Happened::DeviceRemoval));
        assert_eq!(next(), None);
        assert!(create().is_ok(), "as at a program's only device");
        assert!(!has_failed(), "each can be opened again by itself");
        let [first, second] = devices;
        first.close();
        second.close();
    }

    /// The panic left a call of the connection manager half done, which must not keep the ids from hearing of it.
    /// Rules: AE-09, CM-46
    #[test]
    fn ids_hear_of_a_device_that_a_panic_of_their_connection_manager_has_ended() {
        if !alone(concat!(
            "process::tests::",
            "ids_hear_of_a_device_that_a_panic_of_their_connection_manager_has_ended"
        )) {
            return;
        }
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        let told = Arc::new(EventQueue::new().expect("a queue"));
        let _source = adapter.device().port_events().tell(&told).expect("room");
        let connections = adapter.connections();
        let opened: Result<_, Refused> = connections.call(|manager| {
            let file = manager.open_file()?;
            let ids = [7, 8].map(|uid| manager.create(file, uid, Service::TCP));
            Ok((file, ids))
        });
        let (file, ids) = opened.expect("a file");
        adapter.device().work.panics.store(true, Release);
        adapter.device().process().wake();
        let mut comes = [PollFd::from_borrowed_fd(told.descriptor(), PollFlags::IN)];
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(poll(&mut comes, Some(&patience)), Ok(1), "it comes");
        assert_eq!(told.take().expect("it is there").0, AsyncEvent::DeviceFatal);
        let mut heard = Vec::new();
        while let Some(event) = connections.call(|it| it.next_event(file)).expect("it is open") {
            assert_eq!(event.happened, Happened::DeviceRemoval);
            heard.push((event.uid, event.id));
        }
        heard.sort_unstable();
        let [one, other] = ids.map(|id| id.expect("room").0);
        assert_eq!(heard, [(7, one), (8, other)]);
        adapter.close();
    }

    /// If a call takes longer than the patience, the call itself tells the ids.
    /// Rules: CM-46
    #[test]
    fn ids_hear_of_a_device_that_fails_during_a_long_call() {
        if !alone("process::tests::ids_hear_of_a_device_that_fails_during_a_long_call") {
            return;
        }
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        let connections = adapter.connections();
        let opened: Result<_, Refused> = connections.call(|manager| {
            let file = manager.open_file()?;
            let id = manager.create(file, 7, Service::TCP)?;
            std::thread::spawn(fail).join().expect("it does not panic");
            Ok((file, id.0))
        });
        let (file, id) = opened.expect("a file and an id");
        let next = || connections.call(|it| it.next_event(file)).expect("it is open");
        let event = next().expect("it is told");
        assert_eq!((event.uid, event.id, event.happened), (7, id, Happened::DeviceRemoval));
        assert_eq!(next(), None, "once");
        adapter.close();
    }

    /// Panics where others wait.
    struct Impatient;

    impl Waiter for Impatient {
        fn pause(&self, _round: u32, _on: Option<Announcer>) {
            panic!("somebody is waited for");
        }

        fn resumed(&self) {}

        fn is_gone(&self, _process: Announcer) -> bool {
            false
        }
    }

    /// A process that has failed may be in the middle of a copy, so a revocation still waits for it.
    /// Rules: DR-15
    #[test]
    fn what_a_process_is_using_stays_in_use_until_it_has_ended() {
        let _turn = turn();
        let [target, initiator] =
            [(); 2].map(|()| Adapter::open(Options::default()).expect("one opens"));
        let (owner, user) = (target.device().process(), initiator.device().process());
        let peer = initiator.device().peer(owner.announcer().slot).expect("it is there");
        let used = Use { key_slot: 7, qp_index: 7 };
        let hazards = peer.segment.hazards();
        let announced = hazards.announce(user.announcer(), Rank::Remote, used, &**user);
        let is_used = || {
            let drain = || owner.segment().hazards().drain(|_| true, &Impatient);
            catch_unwind(AssertUnwindSafe(drain)).is_err()
        };
        assert!(is_used());
        let lost = target.device().peer(user.announcer().slot).expect("it is there");
        target.device().peers.forget(&lost);
        assert!(is_used(), "it lives on");
        let lost = target.device().peer(user.announcer().slot).expect("it is there still");
        // Leaves it in the segment, as a killed process would.
        std::mem::forget(announced);
        drop(peer);
        initiator.close();
        target.device().peers.forget(&lost);
        assert!(!is_used(), "it has ended");
    }
}
