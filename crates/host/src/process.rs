//! What becomes of the device when its process forks, exits or fails.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use transom_device::protection::Waiter;
use transom_device::qp::QpState;
use transom_system::fork::ForkHandler;

use crate::events::AsyncEvent;
use crate::objects::{Adapter, Cq};

/// How long a process that ends waits for peers to take what it has sent them.
const LAST_WAIT: Duration = Duration::from_millis(100);

impl Adapter {
    /// Waits a little until peers on this host have taken what lies in their rings. Datagrams have completed,
    /// and a peer that has not run since the first of them has not attached to this process yet: the ring
    /// would be gone before it comes.
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
        self.connections().end_all(until);
        let device = self.device();
        // Delayed acknowledgements. In a forked child they are the parent's.
        if device.port().wire().is_some() && self.is_own_device() {
            self.queue_pairs.all().iter().for_each(|qp| qp.acknowledge_at_exit(until));
        }
        device.port().send_rest();
        if self.is_own_device() {
            self.let_peers_take_the_rest();
        }
    }

    /// Nothing is done for peers any more; the program is told, once.
    fn fail(&self) {
        let device = self.device();
        if device.failed.swap(true, SeqCst) || !self.is_own_device() {
            return;
        }
        self.connections().fail();
        for qp in self.queue_pairs.all() {
            qp.summary().fall(QpState::Error);
            qp.own_completion_queues().for_each(Cq::fail);
        }
        self.shared_queues.completion_queues().iter().for_each(Cq::fail);
        device.depart();
        device.port().close();
        device.port_events().raise(AsyncEvent::DeviceFatal);
    }

    fn is_own_device(&self) -> bool {
        !self.device().process().is_inherited()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use transom_device::protection::{Rank, Use};
    use transom_system::failure::has_failed;

    use super::*;
    use crate::Options;
    use crate::events::EventQueue;
    use crate::testing::turn;

    /// Says that this is the process that a test started for itself: all devices of a process fail
    /// together.
    const ALONE: &str = "TRANSOM_TEST_ALONE";

    /// Nobody is there to catch what happens on the background thread.
    /// Rules: AE-09
    #[expect(clippy::disallowed_methods, reason = "a test's own variable")]
    #[test]
    fn a_panic_on_the_background_thread_is_an_error_of_the_device() {
        const TEST: &str =
            "process::tests::a_panic_on_the_background_thread_is_an_error_of_the_device";
        if std::env::var_os(ALONE).is_none() {
            let this = std::env::current_exe().expect("a test has a path");
            let _turn = turn();
            let status = Command::new(this).args(["--exact", TEST]).env(ALONE, "1").status();
            return assert!(status.expect("it starts").success());
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

    /// A process that is not heard any more may be in the middle of a copy, so whoever revokes still waits for it.
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
        let is_used = || owner.segment().hazards().hold(owner.announcer(), 3, &**owner).is_none();
        assert!(is_used());
        let lost = target.device().peer(user.announcer().slot).expect("it is there");
        target.device().peers.forget(&lost);
        assert!(is_used(), "it lives on");
        let lost = target.device().peer(user.announcer().slot).expect("it is there still");
        // As it is in the segment of one that has been killed.
        std::mem::forget(announced);
        drop(peer);
        initiator.close();
        target.device().peers.forget(&lost);
        assert!(!is_used(), "it has ended");
    }
}
