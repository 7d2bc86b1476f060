//! Another process of this user: its segment, and the rings to and from it.

mod receiving;
mod sending;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use parking_lot::Mutex;
use transom_device::protection::Announcer;
use transom_system::ThisProcess;
use transom_system::memory::{Copier, PeerMemory, Shadow, attach_shared, may_copy_with};
use transom_system::registry::{Life, Process};
use transom_system::segment::{RingKind, Segment, Wakeup};
use transom_system::threads::first_has_ended;

use super::ring::{self, Consumer, Producer};
use super::stalled::Stalled;

use receiving::Arrivals;
pub use receiving::{Arrived, Extent, MessageData, Replying};
pub use sending::RecordData;
use sending::Requests;

/// A process at the other end of local links.
pub struct Peer {
    /// Its slot and stay.
    pub announcer: Announcer,
    /// Its memory.
    pub memory: PeerMemory,
    /// Its segment.
    pub segment: Segment,
    /// How its memory is reached.
    pub reach: Reach,
    /// This process. It issues the barrier between putting a record into a ring and checking whether the other end
    /// needs a signal.
    me: Announcer,
    life: Life,
    gone: AtomicBool,
    /// Its [`ended_targets`](transom_system::segment::Header::ended_targets), when this process last looked.
    ended_targets: AtomicU32,
    rings: Rings,
    /// Queue pairs that wait for room towards this peer.
    pub stalled: Stalled,
}

/// How this process reaches a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// WRITE and READ act directly on it.
    Direct,
    /// Everything goes through rings, except shared memory.
    Rings,
    /// The same, because the kernel does not let us copy.
    Forbidden,
}

/// Signals a process that there is something for it from this one. Wakes it if it asked for that, by its pipe if no
/// thread of it sleeps elsewhere.
fn signal(segment: &Segment, me: Announcer, wake: impl FnOnce()) {
    let header = segment.header();
    header.tell(me.slot.into(), |by| {
        if by == Wakeup::Pipe || header.wake_sleepers(1) == 0 {
            wake();
        }
    });
}

/// The same for a process that this one is not attached to. If it cannot be reached, nothing happens.
pub(crate) fn notify_unattached(this: &ThisProcess, process: &Process) {
    let Some(segment) = Segment::of(process) else { return };
    signal(&segment, this.announcer(), || {
        if let Ok(wake) = this.registry().wake_of(process.announcer.slot) {
            let _ = rustix::io::write(&wake, &[0]);
        }
    });
}

/// The rings to a peer, and those from it.
struct Rings {
    requests: Mutex<Requests>,
    arrivals: Mutex<Arrivals>,
}

impl Rings {
    fn new() -> Self {
        let arrivals = Arrivals {
            requests: Consumer::new(),
            replies: Consumer::new(),
            answers: Producer::new(),
        };
        Self {
            requests: Mutex::new(Requests { producer: Producer::new(), reserved: 0 }),
            arrivals: Mutex::new(arrivals),
        }
    }
}

impl Peer {
    /// Attaches to a process of the registry.
    ///
    /// # Errors
    ///
    /// The system's error if it is gone or out of reach.
    pub(crate) fn attach(this: &ThisProcess, process: &Process) -> io::Result<Self> {
        let (registry, me, own, copier) =
            (this.registry(), this.announcer(), this.segment(), this.copier());
        let Announcer { slot, generation } = process.announcer;
        let segment = Segment::attach(process.pid, process.descriptor, generation)?;
        let wake = registry.wake_of(slot)?;
        // The process was opened by PID. Its files are held now, so this check makes sure that the PID was still its
        // own.
        let life = registry.watch(process.announcer)?;
        let Some(life) = life.filter(|_| segment.header().departed.load(Acquire) == 0) else {
            return Err(io::Error::other("the process has ended or closed its device"));
        };
        segment.hazards().attach(me);
        let probe = segment.header().probe.load(Relaxed);
        let by_message = [own, &segment].iter().any(|it| it.header().by_message.load(Relaxed) == 1);
        // Between processes with sanitizers that want messages, no copy is asked for, and none is missing.
        let wants_messages = by_message && matches!(copier, Copier::Watched(_));
        let copies = copier.reaches_others() && !wants_messages;
        let descriptor = segment.header().shared_memory.load(Relaxed).checked_sub(1);
        let shared = descriptor.filter(|_| !by_message).map(|it| attach_shared(process.pid, it));
        // Keys name places in it that the kernel does not know. Without it there is no direct access.
        let is_missing = matches!(shared, Some(Err(_)));
        let reach = match copies && may_copy_with(process.pid, probe) {
            true if !by_message && !is_missing => Reach::Direct,
            false if copies && !first_has_ended(process.pid) => Reach::Forbidden,
            _ => Reach::Rings,
        };
        for kind in [RingKind::Requests, RingKind::Replies] {
            own.open_ring(kind, slot)?;
            let (positions, bytes) = own.ring(kind, slot);
            positions.consumer.store(u32::MAX, SeqCst);
            positions.direct.store(u32::from(reach == Reach::Direct), SeqCst);
            positions.full.store(0, SeqCst);
            positions.watched.store(0, SeqCst);
            ring::clear(positions, bytes);
            positions.consumer.store(generation, SeqCst);
        }
        let shared = shared.and_then(Result::ok);
        let shadow = Shadow::at(segment.header().shadow.load(Relaxed));
        Ok(Self {
            announcer: process.announcer,
            memory: PeerMemory { pid: process.pid, shared, wake, shadow },
            reach,
            segment,
            me,
            life,
            gone: AtomicBool::new(false),
            ended_targets: AtomicU32::new(0),
            rings: Rings::new(),
            stalled: Stalled::default(),
        })
    }

    /// Whether WRITE and READ may act directly on its memory. If that turns out to be impossible, they use rings.
    #[inline]
    pub fn is_reached(&self) -> bool {
        self.reach == Reach::Direct || self.memory.shared.is_some()
    }

    /// Tells when the process ends.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Whether the process has ended or closed its device.
    pub fn is_gone(&self) -> bool {
        self.gone.load(SeqCst)
    }

    /// Notes that the process is gone. True the first time.
    pub fn set_gone(&self) -> bool {
        !self.gone.swap(true, SeqCst)
    }

    /// Whether queue pairs of the process are in multicast groups.
    pub fn has_groups(&self) -> bool {
        self.segment.header().groups.load(Acquire) > 0
    }

    /// Whether receiving ends of XRC there have lost their connections since this was asked last.
    pub fn has_ended_targets(&self) -> bool {
        let now = self.segment.header().ended_targets.load(Acquire);
        now != self.ended_targets.load(Relaxed) && now != self.ended_targets.swap(now, AcqRel)
    }

    /// Signals the peer that there is something for it. Wakes it if it asked for that.
    pub fn notify(&self) {
        signal(&self.segment, self.me, || {
            // A full pipe wakes it as well.
            let _ = rustix::io::write(&self.memory.wake, &[0]);
        });
    }

    /// The same, for a record in a ring. The peer may be watching the ring itself.
    fn notify_of_record(&self, own: &Segment) {
        let (positions, _) = own.ring(RingKind::Requests, self.announcer.slot);
        // A peer that ends its watch looks for records after a fence, so one of the two sees the other.
        if positions.watched.load(SeqCst) == 0 {
            self.notify();
        }
    }

    /// Tells the peer that this process watches its rings from now on. False if that is impossible.
    pub(crate) fn watch(&self) -> bool {
        let (positions, _) = self.segment.ring(RingKind::Requests, self.me.slot);
        let can = positions.consumer.load(SeqCst) == self.me.generation;
        if can {
            positions.watched.store(1, SeqCst);
        }
        can
    }

    /// Ends [`Peer::watch`]. After a fence, you see everything the peer put there without a signal.
    pub(crate) fn unwatch(&self) {
        let (positions, _) = self.segment.ring(RingKind::Requests, self.me.slot);
        positions.watched.store(0, SeqCst);
    }

    /// Whether its rings hold something that this process has not taken.
    #[inline]
    pub(crate) fn has_sent(&self) -> bool {
        [RingKind::Requests, RingKind::Replies].into_iter().any(|kind| {
            let (positions, bytes) = self.segment.ring(kind, self.me.slot);
            ring::has_record(positions, bytes)
        })
    }
}
