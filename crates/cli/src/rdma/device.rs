//! The device, its port, the number of its objects and the counters of the port, as `rdma` shows those of the kernel.

use super::objects::{self, Kind};
use super::{Numbered, PORT, Question, Shown};
use crate::failure::Result;
use serde::Serialize;
use serde::ser::SerializeMap;
use transom_host::Options;
use transom_ibverbs::{FW_VER, device_attributes, port_attributes};
use transom_system::addresses::Addresses;
use transom_system::object_counts::ObjectKind;
use transom_system::port_counters::HW_COUNTERS;
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::{node_guid, system_image_guid};

#[derive(Serialize)]
pub(super) struct Device {
    ifindex: u8,
    ifname: String,
    node_type: &'static str,
    protocol: &'static str,
    fw: String,
    node_guid: String,
    sys_image_guid: String,
    #[serde(rename = "adaptive-moderation", skip_serializing_if = "Option::is_none")]
    adaptive_moderation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caps: Option<Vec<&'static str>>,
}

impl Device {
    pub(super) fn new((number, device): Numbered<'_>, details: bool) -> Self {
        // The program chooses the kind of its type 2 windows, so the device does not know it.
        let attributes = device_attributes(&Options { number, ..Options::default() });
        let groups = |guid: u64| {
            let words = guid.to_be_bytes();
            let words = words.chunks(2).map(|word| format!("{:02x}{:02x}", word[0], word[1]));
            words.collect::<Vec<_>>().join(":")
        };
        Self {
            ifindex: number,
            ifname: device.name.to_string(),
            node_type: "ca",
            protocol: "roce",
            fw: FW_VER.to_string_lossy().into_owned(),
            node_guid: groups(node_guid(number)),
            sys_image_guid: groups(system_image_guid()),
            adaptive_moderation: details.then_some(false),
            caps: details.then(|| capabilities(attributes.device_cap_flags)),
        }
    }
}

impl Shown for Device {
    fn line(&self, question: &Question) -> String {
        let Self { ifindex, ifname, node_type, protocol, fw, node_guid, sys_image_guid, .. } = self;
        let details = self.caps.as_ref().map_or_else(String::new, |caps| {
            let end = if question.oneline { '\\' } else { '\n' };
            format!("adaptive-moderation off {end}    caps: <{}>", caps.join(", "))
        });
        format!(
            "{ifindex}: {ifname}: node_type {node_type} protocol {protocol} fw {fw} \
             node_guid {node_guid} sys_image_guid {sys_image_guid} {details}"
        )
    }
}

/// The names of capabilities, by their bits.
fn capabilities(flags: u32) -> Vec<&'static str> {
    let name = |bit| match bit {
        7 => "CURR_QP_STATE_MOD",
        11 => "SYS_IMAGE_GUID",
        12 => "RC_RNR_NAK_GEN",
        13 => "SRQ_RESIZE",
        17 => "MEM_WINDOW",
        20 => "XRC",
        21 => "MEM_MGT_EXTENSIONS",
        23 => "MEM_WINDOW_TYPE_2A",
        24 => "MEM_WINDOW_TYPE_2B",
        _ => "UNKNOWN",
    };
    (0..u32::BITS).filter(|bit| flags >> bit & 1 == 1).map(name).collect()
}

#[derive(Serialize)]
pub(super) struct Link {
    ifindex: u8,
    ifname: String,
    port: u32,
    state: &'static str,
    physical_state: &'static str,
    /// Its interface, or that of its first address if it has those of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    netdev: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    netdev_index: Option<u32>,
}

impl Link {
    pub(super) fn new((number, device): Numbered<'_>, addresses: &Addresses) -> Self {
        let port = port_attributes(device, addresses);
        let states = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];
        let physical = ["NOP", "SLEEP", "POLLING", "DISABLED", "ARMED", "LINK_UP"];
        let (netdev, netdev_index) = addresses.interface().unzip();
        Self {
            ifindex: number,
            ifname: device.name.to_string(),
            port: PORT,
            state: states.get(port.state as usize).copied().unwrap_or("UNKNOWN"),
            physical_state: physical.get(usize::from(port.phys_state)).unwrap_or(&"UNKNOWN"),
            netdev_index,
            netdev,
        }
    }
}

impl Shown for Link {
    fn line(&self, question: &Question) -> String {
        let Self { ifname, port, state, physical_state, .. } = self;
        let mut line =
            format!("link {ifname}/{port} state {state} physical_state {physical_state} ");
        if let Some(netdev) = &self.netdev {
            line += &format!("netdev {netdev} ");
        }
        if let Some(index) = self.netdev_index.filter(|_| question.details) {
            line += &format!("netdev_index {index} ");
        }
        line
    }
}

/// The counters of the port that the kernel's drivers add.
pub(super) struct Statistic {
    name: String,
    counters: Vec<(&'static str, u64)>,
}

impl Statistic {
    pub(super) fn new((number, device): Numbered<'_>) -> Result<Self> {
        let sums = crate::devices::registry()?.sums(number);
        let counters = HW_COUNTERS.iter().map(|(name, value)| (*name, value(&sums))).collect();
        Ok(Self { name: device.name.to_string(), counters })
    }
}

impl Serialize for Statistic {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("ifname", &self.name)?;
        fields.serialize_entry("port", &PORT)?;
        for (name, count) in &self.counters {
            fields.serialize_entry(name, count)?;
        }
        fields.end()
    }
}

impl Shown for Statistic {
    fn line(&self, _: &Question) -> String {
        let counts = self.counters.iter().map(|(name, count)| format!("{name} {count} "));
        format!("link {}/{PORT} {}", self.name, counts.collect::<String>())
    }
}

/// The objects of this user's processes, as far as this process may look into them.
pub(super) struct Resources {
    index: u8,
    name: String,
    counts: [(&'static str, u64); 7],
}

impl Resources {
    pub(super) fn new((index, device): Numbered<'_>) -> Result<Self> {
        let registry = crate::devices::registry()?;
        let connections = objects::all(Kind::ConnectionId, (index, device))?;
        let count = total(registry, index);
        let counts = [
            ("pd", count(ObjectKind::Domain)),
            ("cq", count(ObjectKind::CompletionQueue)),
            ("qp", count(ObjectKind::QueuePair)),
            ("cm_id", connections.len() as u64),
            ("mr", count(ObjectKind::Region)),
            ("ctx", count(ObjectKind::Context)),
            ("srq", count(ObjectKind::SharedReceiveQueue)),
        ];
        Ok(Self { index, name: device.name.to_string(), counts })
    }
}

/// The number of objects of a kind that all processes have at their devices of this number.
fn total(registry: &Registry, device: u8) -> impl Fn(ObjectKind) -> u64 {
    let processes = registry.processes().into_iter();
    let running = processes.filter(|process| process.alive && process.device == device);
    let all: Vec<_> = running.filter_map(|process| Segment::objects_of(&process)).collect();
    move |kind| all.iter().map(|counts| u64::from(counts.get(kind))).sum()
}

impl Serialize for Resources {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("ifindex", &self.index)?;
        fields.serialize_entry("ifname", &self.name)?;
        for (name, count) in &self.counts {
            fields.serialize_entry(name, count)?;
        }
        fields.end()
    }
}

impl Shown for Resources {
    fn line(&self, _: &Question) -> String {
        let counts = self.counts.map(|(name, count)| format!("{name} {count} "));
        format!("{}: {}: {}", self.index, self.name, counts.concat())
    }
}
