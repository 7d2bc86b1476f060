//! Work on a device that has to wait for a time, or for another thread.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use transom_net::Peer;
use transom_system::ThisProcess;
use transom_system::lock::ShortMutex;

use super::deadlines::Deadlines;
use super::exit::Exit;
use super::polling::Polling;

/// The work to do on a device, and the state of the threads that may do it.
pub(crate) struct Work {
    process: Arc<ThisProcess>,
    pub(crate) deadlines: Deadlines,
    pub(crate) polling: Polling,
    /// Peers found to have ended by a thread that held locks. Messages on their way to them still have to count as
    /// lost.
    lost: Mutex<Vec<Arc<Peer>>>,
    lost_count: AtomicUsize,
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
