//! What there is to tell, read at one moment.

use crate::devices;
use crate::failure::{Failure, Result};
use transom_device::Access;
use transom_device::protection::State;
use transom_ibverbs::{DeviceName, port_attributes};
use transom_system::addresses::Addresses;
use transom_system::object_counts::ObjectKind;
use transom_system::port_counters::{COUNTERS, HW_COUNTERS};
use transom_system::registry::{Process, Registry};
use transom_system::segment::Segment;
use transom_system::sums::{Packets, Sums};
use transom_system::traffic::{ProcessTotals, Totals};

/// The device and its processes.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) device: String,
    pub(super) state: u64,
    pub(super) physical_state: u64,
    pub(super) processes: Vec<SeenProcess>,
    sums: Sums,
}

/// A process.
#[derive(Debug)]
pub(super) struct SeenProcess {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) totals: ProcessTotals,
    pub(super) packets: Packets,
    pub(super) objects: Vec<(&'static str, u64)>,
    pub(super) open: Open,
}

/// The memory that a process has open to its peers.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) windows: u64,
    pub(super) in_windows: u64,
    pub(super) in_regions: u64,
}

/// Objects by the names that iproute2 gives them.
pub(crate) const OBJECTS: [(&str, ObjectKind); 6] = [
    ("pd", ObjectKind::Domain),
    ("cq", ObjectKind::CompletionQueue),
    ("qp", ObjectKind::QueuePair),
    ("mr", ObjectKind::Region),
    ("ctx", ObjectKind::Context),
    ("srq", ObjectKind::SharedReceiveQueue),
];

impl Seen {
    pub(super) fn now(registry: &Registry, name: &DeviceName) -> Result<Self> {
        let addresses = Addresses::read().map_err(|error| {
            Failure::new(format_args!("cannot read the addresses of this host: {error}"))
        })?;
        let port = port_attributes(&addresses);
        let processes = devices::running(registry);
        let look = |process: &Process| SeenProcess::look(registry, process);
        Ok(Self {
            device: name.to_string(),
            state: u64::from(port.state),
            physical_state: port.phys_state.into(),
            processes: processes.iter().filter_map(look).collect(),
            sums: registry.sums(),
        })
    }

    /// A counter of the port, by the name of its file.
    pub(super) fn port_counter(&self, file: &str) -> u64 {
        let found = COUNTERS.iter().chain(&HW_COUNTERS).find(|(name, _)| *name == file);
        found.map_or(0, |(_, value)| value(&self.sums))
    }
}

impl SeenProcess {
    /// `None` for a process that ends just now, and for one in other namespaces.
    fn look(registry: &Registry, process: &Process) -> Option<Self> {
        let segment = Segment::of(process)?;
        let objects = &segment.header().objects;
        Some(Self {
            pid: process.pid,
            name: process.name.clone(),
            totals: segment.totals(),
            packets: Packets::of(registry.counters(process.announcer.slot)),
            objects: OBJECTS.map(|(name, kind)| (name, objects.get(kind).into())).into(),
            open: Open::by(&segment),
        })
    }

    pub(super) fn all(&self) -> &Totals {
        &self.totals.all
    }
}

impl Open {
    fn by(segment: &Segment) -> Self {
        let mut open = Self::default();
        for (_, object) in segment.keys().seen(usize::MAX) {
            if object.state != State::Valid || !object.access.intersects(Access::REMOTE) {
                continue;
            }
            if object.kind.is_region() {
                open.in_regions = open.in_regions.saturating_add(object.length);
            } else {
                open.windows += 1;
                open.in_windows = open.in_windows.saturating_add(object.length);
            }
        }
        open
    }
}
