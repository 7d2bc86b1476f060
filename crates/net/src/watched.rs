//! Peers whose rings this process watches while it polls. They need not signal what they send, which would cost them an
//! exchange on a cache line that both write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*, fence};

use arrayvec::ArrayVec;
use transom_system::lock::ShortMutex;

use super::Peer;

/// The most peers that are watched. Each costs every poll a look.
const MOST: usize = 4;
/// How many empty polls a program must make before it watches anybody. A program that sleeps between messages would
/// only begin and end.
const EAGER: u64 = 64;

/// The watched peers.
#[derive(Default)]
pub struct Watched {
    list: ShortMutex<List>,
    /// How many there are.
    count: AtomicUsize,
}

#[derive(Default)]
struct List {
    peers: ArrayVec<Arc<Peer>, MOST>,
    /// Somebody will end it soon after the program stops polling.
    is_allowed: bool,
    /// Not before the program has made so many empty polls.
    not_before: u64,
}

impl Watched {
    /// Allows peers to be watched. The caller must check again before long whether the program still polls, and end it
    /// if not.
    pub fn allow(&self) {
        self.list.lock().is_allowed = true;
    }

    /// Watches a peer that has sent something, if that is allowed and worthwhile now. `polls` counts the empty ones.
    pub fn add(&self, peer: &Arc<Peer>, polls: u64) {
        let mut list = self.list.lock();
        let List { peers, is_allowed, not_before } = &mut *list;
        let known = peers.iter().any(|known| Arc::ptr_eq(known, peer));
        if !*is_allowed || polls < *not_before || known || peers.is_full() || !peer.watch() {
            return;
        }
        peers.push(peer.clone());
        self.count.store(peers.len(), Relaxed);
    }

    /// The watched peers that have sent something, unless another thread is looking.
    #[inline]
    pub fn senders(&self) -> ArrayVec<Arc<Peer>, MOST> {
        if self.count.load(Relaxed) == 0 {
            return ArrayVec::new();
        }
        let Some(list) = self.list.try_lock() else { return ArrayVec::new() };
        list.peers.iter().filter(|peer| peer.has_sent()).cloned().collect()
    }

    /// The program does not poll any more, after so many empty polls. Nobody is watched until that is allowed again.
    /// Returns the peers that were watched; everything they sent without a signal is visible now.
    #[must_use]
    pub fn end(&self, polls: u64) -> ArrayVec<Arc<Peer>, MOST> {
        let mut list = self.list.lock();
        (list.is_allowed, list.not_before) = (false, polls.wrapping_add(EAGER));
        let ended = std::mem::take(&mut list.peers);
        self.count.store(0, Relaxed);
        ended.iter().for_each(|peer| peer.unwatch());
        drop(list);
        fence(SeqCst);
        ended
    }

    /// A peer has ended.
    pub fn forget(&self, peer: &Peer) {
        let mut list = self.list.lock();
        list.peers.retain(|known| known.announcer != peer.announcer);
        self.count.store(list.peers.len(), Relaxed);
    }
}
