//! The other processes that this one exchanges data with. It attaches to a process at the first need, and lets go of it
//! when that process has ended.

use std::io;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Once};

use parking_lot::RwLock;
use tracing::{debug, info};
use transom_device::protection::PROCESSES;
use transom_system::memory::say_slow;
use transom_system::{ThisProcess, say};

use crate::{Peer, Reach, Watched, peer};

/// A process of this user that exists, but that the system does not let this one reach: it has made itself undumpable,
/// or this one has no descriptor or memory left.
#[derive(Debug, thiserror::Error)]
#[error("process {pid} is there, but cannot be reached: {cause}")]
pub struct OutOfReach {
    pid: u32,
    #[source]
    cause: io::Error,
}

impl OutOfReach {
    /// The system's error number.
    pub fn errno(&self) -> i32 {
        self.cause.raw_os_error().unwrap_or(libc::EIO)
    }
}

impl OutOfReach {
    /// Tells the program once, the first time that a process is out of reach.
    pub fn say_once(&self) {
        static SAID: Once = Once::new();
        SAID.call_once(|| say(format_args!("{self}")));
    }
}

/// Whether the error means that nobody is there: there is no such process or descriptor, or it is a wrong one, for
/// which there is no error number.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), None | Some(libc::ENOENT | libc::ESRCH))
}

/// The processes that this one is attached to, by slot.
pub struct Peers {
    process: Arc<ThisProcess>,
    attached: RwLock<Box<[Option<Arc<Peer>>; PROCESSES]>>,
    /// The processes whose rings every polling thread looks at.
    pub watched: Watched,
}

impl Peers {
    /// Nobody yet.
    pub fn new(process: Arc<ThisProcess>) -> Self {
        let attached = RwLock::new(Box::new(std::array::from_fn(|_| None)));
        Self { process, attached, watched: Watched::default() }
    }

    /// The process attached to in a slot, ended or not.
    pub fn attached(&self, slot: u8) -> Option<Arc<Peer>> {
        self.attached.read()[usize::from(slot)].clone()
    }

    /// The process in a slot. Attaches to it if necessary. `None` if nobody is there, or if the local link does not
    /// lead to that process. If another process was in the slot and nobody has noticed its end yet, `lost` gets that
    /// one: everything under way to it is lost.
    ///
    /// # Errors
    ///
    /// [`OutOfReach`] if it exists and the system does not let this one attach to it.
    pub fn reach(
        &self,
        slot: u8,
        lost: impl FnOnce(Arc<Peer>),
    ) -> Result<Option<Arc<Peer>>, OutOfReach> {
        let registry = self.process.registry();
        let present = |peer: &Arc<Peer>| !peer.is_gone() && registry.holds(peer.announcer);
        if let Some(peer) = self.attached(slot).filter(present) {
            return Ok(Some(peer));
        }
        let mut peers = self.attached.write();
        match peers[usize::from(slot)].take() {
            Some(peer) if present(&peer) => {
                peers[usize::from(slot)] = Some(peer.clone());
                return Ok(Some(peer));
            }
            // The slot has a new process, and nobody has noticed the old one's end yet.
            Some(old) => {
                info!(slot, pid = old.memory.pid, "peer lost, another process has its slot");
                old.set_gone();
                self.watched.forget(&old);
                self.end_uses(&old);
                lost(old);
            }
            None => {}
        }
        let Some(process) =
            registry.process(slot).filter(|process| process.alive && process.is_near)
        else {
            return Ok(None);
        };
        let peer = match Peer::attach(&self.process, &process) {
            Ok(peer) => peer,
            // It has just ended, or is about to start.
            Err(error) if is_absence(&error) || !registry.is_alive(process.announcer) => {
                debug!(slot, pid = process.pid, %error, "nobody to attach to");
                return Ok(None);
            }
            Err(cause) => return Err(OutOfReach { pid: process.pid, cause }),
        };
        if peer.reach == Reach::Forbidden {
            say_slow(&format!("process {} may not be copied from (ptrace rules)", peer.memory.pid));
        }
        info!(slot, pid = peer.memory.pid, reach = ?peer.reach, "peer attached");
        let peer = Arc::new(peer);
        peers[usize::from(slot)] = Some(peer.clone());
        drop(peers);
        self.process.wake();
        Ok(Some(peer))
    }

    /// Tells the processes that read this one's state, attached to or not, that receiving ends of XRC here have lost
    /// their connections.
    pub fn tell_of_ended_targets(&self) {
        let (process, segment) = (&self.process, self.process.segment());
        segment.header().ended_targets.fetch_add(1, Release);
        for slot in segment.hazards().attached() {
            match self.attached(slot) {
                Some(peer) if !peer.is_gone() => peer.notify(),
                _ if slot == process.announcer().slot => {}
                _ => {
                    let there = process.registry().process(slot).filter(|it| it.alive);
                    there.iter().for_each(|there| peer::notify_unattached(process, there));
                }
            }
        }
    }

    /// The attached processes.
    pub fn all(&self) -> Vec<Arc<Peer>> {
        self.attached.read().iter().flatten().cloned().collect()
    }

    /// Makes the kernel keep the segments of all peers as they are, in a forked child.
    pub fn protect_segments(&self) {
        if self.attached.is_locked_exclusive() {
            // A thread of the parent was attaching to one; it does not exist here.
            return;
        }
        // SAFETY: a forked child has one thread, and no other had it to write at the fork.
        let peers = unsafe { &*self.attached.data_ptr() };
        peers.iter().flatten().for_each(|peer| peer.segment.protect());
    }

    /// Releases everything that a process was using, if it has ended. A process that lives but has closed its device,
    /// has failed or has lost its descriptors may still be copying, so a revocation waits for it.
    fn end_uses(&self, peer: &Peer) {
        if !self.process.registry().has_memory(peer.announcer) {
            self.process.segment().hazards().detach(peer.announcer);
        }
    }

    /// Lets go of a peer that has ended.
    pub fn forget(&self, peer: &Peer) {
        info!(slot = peer.announcer.slot, pid = peer.memory.pid, "peer lost");
        peer.set_gone();
        self.watched.forget(peer);
        self.end_uses(peer);
        let mut peers = self.attached.write();
        let slot = &mut peers[usize::from(peer.announcer.slot)];
        if slot.as_ref().is_some_and(|held| held.announcer == peer.announcer) {
            *slot = None;
        }
    }
}
