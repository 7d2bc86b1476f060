//! What there is to tell, read at one moment.

use crate::devices;
use crate::failure::Result;
use crate::run::tree;
use transom_device::Access;
use transom_device::protection::State;
use transom_ibverbs::{Description, DeviceName, port_attributes};
use transom_system::latency::{CLASSES, Timed, Times};
use transom_system::object_counts::ObjectKind;
use transom_system::port_counters::{COUNTERS, HW_COUNTERS};
use transom_system::registry::{self, Process, Registry};
use transom_system::segment::Segment;
use transom_system::sums::{Packets, Sums};
use transom_system::traffic::{ProcessTotals, Totals};

/// The devices and their processes.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) devices: Vec<SeenDevice>,
    pub(super) processes: Vec<SeenProcess>,
}

/// A device.
#[derive(Debug)]
pub(super) struct SeenDevice {
    pub(super) name: String,
    pub(super) state: u64,
    pub(super) physical_state: u64,
    /// In bytes per second.
    pub(super) rate: u64,
    sums: Sums,
}

/// A process at one of its devices.
#[derive(Debug)]
pub(crate) struct SeenProcess {
    pub(crate) device: String,
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) totals: ProcessTotals,
    pub(crate) packets: Packets,
    pub(crate) objects: Vec<(&'static str, u64)>,
    pub(crate) open: Open,
    /// How long its requests took, by kind and class of size, as far as somebody has wanted to know.
    pub(crate) times: Vec<(Timed, usize, Times)>,
}

/// The memory that a process has open to its peers.
#[derive(Debug, Default)]
pub(crate) struct Open {
    pub(crate) windows: u64,
    pub(crate) in_windows: u64,
    pub(crate) in_regions: u64,
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
    pub(super) fn now(registry: &Registry, devices: &[Description]) -> Result<Self> {
        let devices = (0..).zip(with_used(registry, devices)).map(|(number, device)| {
            let port = port_attributes(&device, &devices::addresses(&device)?);
            Ok(SeenDevice {
                name: device.name.to_string(),
                state: u64::from(port.state),
                physical_state: port.phys_state.into(),
                rate: tree::bytes_per_second(port.active_width, port.active_speed),
                sums: registry.sums(number),
            })
        });
        let devices = devices.collect::<Result<Vec<_>>>()?;
        let processes = devices::running(registry);
        let look = |process: &Process| {
            let device = devices.get(usize::from(process.device))?;
            SeenProcess::look(registry, process, &device.name)
        };
        let processes = processes.iter().filter_map(look).collect();
        Ok(Self { devices, processes })
    }
}

/// These devices, and behind them all others that processes have or had. Only a program that was told its devices knows
/// more of them than their numbers.
pub(super) fn with_used(registry: &Registry, devices: &[Description]) -> Vec<Description> {
    let has_counted = |number: &u8| registry.sums(*number) != Sums::default();
    let counted = (0..registry::DEVICES as u8).filter(has_counted).max();
    let used = registry.processes().iter().map(|it| it.device).chain(counted).max().unwrap_or(0);
    up_to(used.min(registry::DEVICES as u8 - 1), devices)
}

/// These devices, and more behind them, up to that of a number. Each has a name of its own.
fn up_to(last: u8, devices: &[Description]) -> Vec<Description> {
    let mut all = devices.to_vec();
    while all.len() <= usize::from(last) {
        let names = (all.len() as u8..=u8::MAX).filter_map(|it| all[0].name.behind(it).ok());
        let free = |name: &DeviceName| all.iter().all(|device| device.name != *name);
        let Some(name) = names.into_iter().find(free) else { break };
        all.push(Description::plain(name));
    }
    all
}

impl SeenDevice {
    /// A counter of the port, by the name of its file.
    pub(super) fn port_counter(&self, file: &str) -> u64 {
        let found = COUNTERS.iter().chain(&HW_COUNTERS).find(|(name, _)| *name == file);
        found.map_or(0, |(_, value)| value(&self.sums))
    }
}

impl SeenProcess {
    /// `None` for a process that ends just now, and for one in other namespaces.
    fn look(registry: &Registry, process: &Process, device: &str) -> Option<Self> {
        Some(Self::of(registry, process, device, &Segment::of(process)?))
    }

    /// The process that has this segment.
    pub(crate) fn of(
        registry: &Registry,
        process: &Process,
        device: &str,
        segment: &Segment,
    ) -> Self {
        let objects = &segment.header().objects;
        Self {
            device: device.to_owned(),
            pid: process.pid,
            name: process.name.clone(),
            totals: segment.totals(),
            packets: Packets::of(registry.counters(process.announcer.slot)),
            objects: OBJECTS.map(|(name, kind)| (name, objects.get(kind).into())).into(),
            open: Open::by(segment),
            times: times(segment),
        }
    }

    pub(crate) fn all(&self) -> &Totals {
        &self.totals.all
    }
}

/// The times of those kinds and classes that there were requests of.
fn times(segment: &Segment) -> Vec<(Timed, usize, Times)> {
    let Some(latencies) = segment.latencies() else { return Vec::new() };
    let all = Timed::ALL.into_iter().flat_map(|kind| (0..CLASSES).map(move |class| (kind, class)));
    let times = all.map(|(kind, class)| (kind, class, latencies.get(kind, class)));
    times.filter(|(_, _, times)| times.count() > 0).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two devices of one name would be one to a reader.
    #[test]
    fn devices_that_nobody_has_named_here_get_names_of_their_own() {
        let names = |told: &str, last| {
            let told: Vec<Description> = told.split(';').map(|it| it.parse().unwrap()).collect();
            let all = up_to(last, &told);
            all.iter().map(|it| it.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names("transom0", 0), "transom0");
        assert_eq!(names("mlx5_1", 2), "mlx5_1 mlx5_2 mlx5_3");
        assert_eq!(names("transom0;transom2", 3), "transom0 transom2 transom3 transom4");
        assert_eq!(names("a;b", 0), "a b");
    }
}
