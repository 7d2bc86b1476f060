//! Peers that are gone in a rehearsal, and requests that reach them long after a program has lost its patience.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use transom_device::qp::{Peering, QpNumber, QpState};
use transom_rehearse::Provocation;

use super::super::{More, QueuePair};
use super::Rehearsed;
use crate::objects::Link;

/// The shortest time that a send queue is stuck, in nanoseconds. It may be doubled [`DOUBLINGS`] times.
const SHORTEST: u64 = 200_000_000;
const DOUBLINGS: u64 = 4;

impl QueuePair {
    /// Requests are about to be posted. From now on all peers of this process may be gone: that happens once.
    #[cold]
    pub(in super::super) fn lose_peers(&self, rehearsed: &Rehearsed) {
        static GONE: AtomicBool = AtomicBool::new(false);
        let nth = rehearsed.sends.load(Relaxed);
        if !GONE.load(Relaxed)
            && let Some(number) = rehearsed.provokes(Provocation::GonePeers, nth)
            && !GONE.swap(true, Relaxed)
        {
            self.adapter.queue_pairs.all().iter().for_each(|pair| pair.lose_peer());
            self.adapter.connections().lose_peers(number);
        }
    }

    /// The peer is gone, as if its host had died: nothing gets there, nothing comes from there, and nobody says so.
    fn lose_peer(&self) {
        {
            let mut half = self.send.lock();
            let mut receive = self.receive.half.lock();
            let gate = self.summary().gate();
            if !matches!(gate.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
                || matches!(half.link, Link::None)
            {
                return;
            }
            // The way in which its messages are split stays, for those that are under way.
            (half.link, receive.link) = (Link::None, Link::None);
            let nobody = QpNumber::from_bits(0);
            self.summary().set_peering(Peering { from: nobody, ..self.summary().peering() });
            self.rehearsed().inspect(|it| it.has_lost_peer.store(true, Relaxed));
        }
        self.drive(More::Nothing, |requester, cx| requester.on_silence(cx));
    }

    /// Whether its peer is gone because a rehearsal wants it.
    pub(in super::super) fn has_lost_peer(&self) -> bool {
        self.rehearsed().is_some_and(|it| it.has_lost_peer.load(Relaxed))
    }
}

impl Rehearsed {
    /// How long the send queue is stuck from this post on, if it is: once in its life. A program that does not look at
    /// the clock only waits.
    pub(super) fn is_stuck(&self, nth: u64) -> Option<u64> {
        if self.was_stuck.load(Relaxed) {
            return None;
        }
        let number = self.provokes(Provocation::StuckWork, nth)?;
        self.was_stuck.store(true, Relaxed);
        Some(SHORTEST << (number % (DOUBLINGS + 1)))
    }
}
