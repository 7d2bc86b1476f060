//! What one look shows, as plain values: for the screen, and for programs.

use std::collections::HashMap;
use std::time::Duration;
use transom_device::Access;
use transom_device::protection::Kind;
use transom_device::qp::{QpState, Service};
use transom_system::traffic::Depths;

/// A stay of a process in the registry: slot and generation.
pub(super) type Stay = (u8, u32);

/// Everything at one moment.
#[derive(Default)]
pub(super) struct View {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    /// Since the look before. Rates are over this time.
    pub(super) interval: Duration,
    pub(super) processes: Vec<Process>,
    pub(super) queue_pairs: Vec<QueuePair>,
    /// By process and place.
    pub(super) regions: Vec<Span>,
    pub(super) windows: Vec<Window>,
    /// What peers have touched in the last moments.
    pub(super) touches: Vec<Touch>,
    pub(super) connections: Vec<Connection>,
    /// The windows that were closed in the last moments.
    pub(super) revoked: Vec<Touch>,
    /// By process and operation.
    pub(super) latencies: Vec<Latency>,
    /// Newest first.
    pub(super) refusals: Vec<Refusal>,
    /// How many more there were before these.
    pub(super) older: usize,
    /// Newest first, since this command began to look.
    pub(super) revocations: Vec<Revocation>,
    /// Messages per second of all processes together at the looks before, the newest last.
    pub(super) history: Vec<u64>,
}

/// Messages in one direction over one link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Flow {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Per second.
    pub(super) message_rate: f64,
    pub(super) byte_rate: f64,
}

impl Flow {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            messages: self.messages.wrapping_add(other.messages),
            bytes: self.bytes.wrapping_add(other.bytes),
            message_rate: self.message_rate + other.message_rate,
            byte_rate: self.byte_rate + other.byte_rate,
        }
    }
}

/// Messages in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Links {
    /// Within the host.
    pub(super) host: Flow,
    pub(super) wire: Flow,
}

impl Links {
    pub(super) fn both(self) -> Flow {
        self.host.and(self.wire)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { host: self.host.and(other.host), wire: self.wire.and(other.wire) }
    }
}

/// Messages that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// Own requests.
    pub(super) sent: Links,
    /// Requests of peers.
    pub(super) received: Links,
}

impl Load {
    pub(super) fn and(self, other: Self) -> Self {
        Self { sent: self.sent.and(other.sent), received: self.received.and(other.received) }
    }
}

#[derive(Default)]
pub(super) struct Process {
    pub(super) stay: Stay,
    pub(super) pid: u32,
    pub(super) name: String,
    /// The number of its device. A process with several is there once for each.
    pub(super) device: u8,
    /// It is in other namespaces: nobody here can look into it.
    pub(super) is_far: bool,
    pub(super) shares_pids: bool,
    pub(super) waits_for: Option<u32>,
    /// By the names that iproute2 gives them.
    pub(super) objects: Vec<(&'static str, u64)>,
    /// Bound windows that let peers in.
    pub(super) windows: u64,
    /// Bytes open to peers.
    pub(super) in_windows: u64,
    pub(super) in_regions: u64,
    pub(super) load: Load,
    pub(super) refusals: u64,
    pub(super) binds: u64,
    pub(super) invalidations: u64,
    /// How often peers without a receive asked to wait.
    pub(super) not_ready: u64,
    pub(super) retransmissions: u64,
    /// Regions and windows that are too many to be shown.
    pub(super) left_out: usize,
}

impl Process {
    /// How many objects of a kind it has.
    pub(super) fn count(&self, kind: &str) -> u64 {
        self.objects.iter().find(|(name, _)| *name == kind).map_or(0, |(_, count)| *count)
    }
}

pub(super) struct QueuePair {
    pub(super) owner: Stay,
    pub(super) pid: u32,
    pub(super) process: String,
    pub(super) number: u32,
    pub(super) service: Service,
    pub(super) state: QpState,
    /// The queue pair that it accepts, if it is connected.
    pub(super) peer: Option<u32>,
    /// The process that has that one, if it is one of these.
    pub(super) peer_process: Option<(u32, String)>,
    pub(super) load: Load,
    /// How much waits in its queues. It is not known before the process has answered.
    pub(super) depths: Option<Depths>,
    /// The most work that has waited in a queue.
    pub(super) most_sends: u64,
    pub(super) most_receives: u64,
    /// Requests that ended in error.
    pub(super) failed: u64,
    pub(super) not_ready: u64,
    pub(super) retransmissions: u64,
}

/// A region, or the memory of a window.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) owner: Stay,
    pub(super) key: u32,
    /// The place of its first byte: an address, or a place in shared memory.
    pub(super) place: u64,
    /// The first address by which requests name it.
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) access: Access,
    pub(super) kind: Kind,
}

impl Span {
    /// The part of it that another one covers, as offsets. `None` if they have no byte in common.
    pub(super) fn part(&self, other: &Self) -> Option<(u64, u64)> {
        let offset = |place: u64| place.saturating_sub(self.place).min(self.length);
        let (from, to) = (offset(other.place), offset(other.place.saturating_add(other.length)));
        (self.owner == other.owner && from < to).then_some((from, to))
    }

    /// Whether requests name a byte of it by this address.
    pub(super) fn has(&self, address: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| offset < self.length)
    }

    /// Whether peers may use it.
    pub(super) fn is_open(&self) -> bool {
        self.access.intersects(Access::REMOTE)
    }
}

/// A bound window.
pub(super) struct Window {
    pub(super) span: Span,
    /// The queue pair that bound it.
    pub(super) qp: u32,
}

/// Memory that a peer has touched, or where a window was.
pub(super) struct Touch {
    pub(super) span: Span,
    /// How long ago.
    pub(super) age: Duration,
}

/// What a connection manager's entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Listening,
    Connected,
    /// A request that waits for its answer.
    Asking,
}

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Listening => "listens",
            Self::Connected => "connected",
            Self::Asking => "asks",
        }
    }
}

pub(super) struct Connection {
    pub(super) owner: Stay,
    pub(super) pid: u32,
    pub(super) process: String,
    pub(super) stage: Stage,
    pub(super) space: &'static str,
    pub(super) local: String,
    pub(super) peer: Option<String>,
    /// More about a request that waits.
    pub(super) waits: Option<String>,
}

/// How long the requests of one operation took that have ended well since the look before.
pub(super) struct Latency {
    pub(super) owner: Stay,
    pub(super) pid: u32,
    pub(super) process: String,
    pub(super) operation: &'static str,
    pub(super) requests: u64,
    /// Half of them, and 99 of 100, took so many nanoseconds at most. `None` for longer than can be told.
    pub(super) p50: Option<u64>,
    pub(super) p99: Option<u64>,
}

/// A refusal, or equal ones.
pub(super) struct Refusal {
    pub(super) owner: Stay,
    pub(super) pid: u32,
    pub(super) process: String,
    /// The process in words.
    pub(super) who: String,
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    pub(super) count: usize,
    pub(super) sentence: String,
    /// It was not there at the look before.
    pub(super) is_new: bool,
    /// The same for programs.
    pub(super) fields: serde_json::Map<String, serde_json::Value>,
}

/// Something was closed to peers, or several things in the same way.
pub(super) struct Revocation {
    pub(super) owner: Stay,
    pub(super) pid: u32,
    pub(super) process: String,
    /// When the newest was, in nanoseconds since 1970.
    pub(super) time: u64,
    pub(super) count: usize,
    /// About the newest.
    pub(super) sentence: String,
    /// It was not there at the look before.
    pub(super) is_new: bool,
    /// The same for programs.
    pub(super) fields: serde_json::Map<String, serde_json::Value>,
}

impl View {
    /// What all processes carry together.
    pub(super) fn load(&self) -> Load {
        self.processes.iter().fold(Load::default(), |sum, process| sum.and(process.load))
    }

    /// Says which process is at the other end of each queue pair. The slot in a number may be one of another host, so
    /// both ends must name each other.
    pub(super) fn find_peers(&mut self) {
        let known: HashMap<_, _> = self
            .queue_pairs
            .iter()
            .map(|qp| (qp.number, (qp.peer, qp.pid, qp.process.clone())))
            .collect();
        for qp in &mut self.queue_pairs {
            let other = qp.peer.and_then(|peer| known.get(&peer));
            let mutual = other.filter(|(peer, ..)| *peer == Some(qp.number));
            qp.peer_process = mutual.map(|(_, pid, name)| (*pid, name.clone()));
        }
    }
}
