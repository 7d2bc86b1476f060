//! The other processes that this one exchanges data with: attached to when first wanted, let go of
//! when they have ended.

use std::sync::{Arc, Once};
use std::{fmt, io};

use transom_net::Peer;
use transom_system::say;

use super::{Adapter, say_slow};
use crate::progress::Deferred;

/// A process of this user's that is there, and which the system does not let this one reach: it has
/// made itself undumpable, or this one has no descriptor or memory left.
#[derive(Debug)]
pub(crate) struct OutOfReach {
    pid: u32,
    cause: io::Error,
}

impl OutOfReach {
    /// The system's error number.
    pub(crate) fn errno(&self) -> i32 {
        self.cause.raw_os_error().unwrap_or(libc::EIO)
    }
}

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} is there, but cannot be reached: {}", self.pid, self.cause)
    }
}

/// Whether nobody is there that could be reached: no such process or descriptor, or one that is not
/// what is looked for, which no error number says.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), None | Some(libc::ENOENT | libc::ESRCH))
}

impl Adapter {
    /// The process attached to in a slot, ended or not.
    pub(crate) fn attached(&self, slot: u8) -> Option<Arc<Peer>> {
        self.peers.read()[usize::from(slot)].clone()
    }

    /// As [`Adapter::reach`], for those who can do nothing about a process that is out of reach:
    /// the program is told once.
    pub(crate) fn peer(&self, slot: u8) -> Option<Arc<Peer>> {
        self.reach(slot).unwrap_or_else(|unreachable| {
            static SAID: Once = Once::new();
            SAID.call_once(|| say(format_args!("{unreachable}")));
            None
        })
    }

    /// The process in a slot, attached to if it is not yet; `None` if nobody is there, or nobody whom
    /// the local link leads to.
    pub(crate) fn reach(&self, slot: u8) -> Result<Option<Arc<Peer>>, OutOfReach> {
        let registry = self.claim.registry();
        let present = |peer: &Arc<Peer>| !peer.is_gone() && registry.holds(peer.announcer);
        if let Some(peer) = self.attached(slot).filter(present) {
            return Ok(Some(peer));
        }
        let mut peers = self.peers.write();
        match peers[usize::from(slot)].take() {
            Some(peer) if present(&peer) => {
                peers[usize::from(slot)] = Some(peer.clone());
                return Ok(Some(peer));
            }
            // The slot has changed hands before the old one's end was noticed. The caller may hold
            // a queue's lock, so the queue pairs that it concerns are told later.
            Some(old) => {
                old.set_gone();
                self.segment.hazards().detach(old.announcer);
                self.progress.defer(Deferred::PeerLost(old));
            }
            None => {}
        }
        let Some(process) =
            registry.process(slot).filter(|process| process.alive && process.is_near)
        else {
            return Ok(None);
        };
        let me = self.announcer();
        let peer = match Peer::attach(registry, &process, me, &self.segment, &self.copier) {
            Ok(peer) => peer,
            // It has just ended, or is about to come.
            Err(error) if is_absence(&error) || !registry.is_alive(process.announcer) => {
                return Ok(None);
            }
            Err(cause) => return Err(OutOfReach { pid: process.pid, cause }),
        };
        if peer.slow {
            say_slow(&format!("process {} may not be copied from (ptrace rules)", peer.pid));
        }
        let peer = Arc::new(peer);
        peers[usize::from(slot)] = Some(peer.clone());
        drop(peers);
        self.progress.wake(self);
        Ok(Some(peer))
    }

    /// The attached processes.
    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers.read().iter().flatten().cloned().collect()
    }

    /// Has the kernel keep the segments of this process and its peers as they are, in a forked child.
    pub(crate) fn protect_segments(&self) {
        self.segment.protect();
        if self.peers.is_locked_exclusive() {
            // By a thread that is not here, in the middle of attaching to one.
            return;
        }
        // SAFETY: a forked child has one thread, and no other had it to write at the fork.
        let peers = unsafe { &*self.peers.data_ptr() };
        peers.iter().flatten().for_each(|peer| peer.segment.protect());
    }

    /// Lets go of a peer that has ended.
    pub(crate) fn forget_peer(&self, peer: &Peer) {
        peer.set_gone();
        self.segment.hazards().detach(peer.announcer);
        let mut peers = self.peers.write();
        let slot = &mut peers[usize::from(peer.announcer.slot)];
        if slot.as_ref().is_some_and(|held| held.announcer == peer.announcer) {
            *slot = None;
        }
    }
}
