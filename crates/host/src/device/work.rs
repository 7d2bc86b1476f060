//! Work on a device that has to wait for a time, or for another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use transom_net::Peer;
use transom_system::ThisProcess;
use transom_system::lock::ShortMutex;

use super::deadlines::Deadlines;
use super::exit::Exit;
use super::polling::Polling;

/// How often something is done that strangers can ask for without end.
#[derive(Default)]
pub(crate) struct Rate {
    /// When the period began, and how often since.
    period: ShortMutex<(u64, u32)>,
}

impl Rate {
    /// A period, in nanoseconds.
    const PERIOD: u64 = 1_000_000;
    /// How often in each.
    const MOST: u32 = 16;

    /// Whether it may be done now, once more.
    pub(crate) fn allows(&self, now: u64) -> bool {
        let mut period = self.period.lock();
        let (begun, times) = &mut *period;
        if now.saturating_sub(*begun) >= Self::PERIOD {
            (*begun, *times) = (now, 0);
        }
        *times = times.saturating_add(1);
        *times <= Self::MOST
    }
}

/// The work to do on a device, and the state of the threads that may do it.
pub(crate) struct Work {
    process: Arc<ThisProcess>,
    pub(crate) deadlines: Deadlines,
    pub(crate) polling: Polling,
    /// Peers found to have ended by a thread that held locks. Messages on their way to them still have to count as
    /// lost.
    lost: Mutex<Vec<Arc<Peer>>>,
    lost_count: AtomicUsize,
    /// A thread has left messages of peers for later.
    left: AtomicBool,
    /// Reports of packets that reached nobody. Each is held against all queue pairs.
    pub(crate) reports: Rate,
    /// Test only: the thread that looks for them panics instead.
    #[cfg(test)]
    pub(crate) panics: AtomicBool,
    /// Held by the background thread while it works, and by a thread that forks.
    pub(crate) working: ShortMutex<()>,
    /// Held by the background thread while it keeps the adapter from being closed.
    pub(crate) holding: Mutex<()>,
    pub(crate) exit: Exit,
    /// The background thread, until somebody joins it.
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Work {
    /// Nothing is.
    pub(super) fn new(process: Arc<ThisProcess>) -> Self {
        Self {
            deadlines: Deadlines::new(process.clone()),
            process,
            polling: Polling::default(),
            lost: Mutex::default(),
            lost_count: AtomicUsize::new(0),
            left: AtomicBool::new(false),
            reports: Rate::default(),
            #[cfg(test)]
            panics: AtomicBool::new(false),
            working: ShortMutex::default(),
            holding: Mutex::default(),
            exit: Exit::new(),
            thread: Mutex::default(),
        }
    }

    /// A peer has ended. The background thread, or a poll that comes first, tells the queue pairs.
    pub(crate) fn lose(&self, peer: Arc<Peer>) {
        self.lost.lock().push(peer);
        self.lost_count.fetch_add(1, Release);
        self.process.wake();
    }

    /// Leaves messages of a peer for later: it sends without end, or another thread is taking them.
    #[cold]
    pub(crate) fn leave(&self, peer: &Peer) {
        self.process.segment().header().note(peer.announcer.slot.into());
        self.left.store(true, Release);
    }

    /// Wakes the background thread if messages were left. Call it before a sleep, for their signals have come already.
    pub(crate) fn wake_for_left(&self) {
        if self.left.load(Acquire) && self.left.swap(false, AcqRel) {
            self.process.wake();
        }
    }

    /// Takes a peer that has ended and that the queue pairs have to hear of.
    #[inline]
    pub(crate) fn take_lost(&self) -> Option<Arc<Peer>> {
        if self.lost_count.load(Acquire) == 0 {
            return None;
        }
        let peer = self.lost.lock().pop()?;
        self.lost_count.fetch_sub(1, Release);
        Some(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_ask_for_is_done_a_few_times_in_a_period() {
        let rate = Rate::default();
        let mut now = 5 * Rate::PERIOD;
        for _ in 0..3 {
            let done = (0..1000).filter(|_| rate.allows(now + Rate::PERIOD - 1));
            assert_eq!(done.count(), Rate::MOST as usize);
            now += 2 * Rate::PERIOD;
        }
    }
}
