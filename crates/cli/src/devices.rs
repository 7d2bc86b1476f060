//! `transom devices`: the built-in device, and the processes that use one.

use crate::clock;
use crate::failure::{Failure, Result};
use crate::layout;
use crate::lines::Exact;
use crate::packets;
use crate::registered;
use anstyle::Style;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use transom::{Context, DeviceAttributes, Gid, PortAttributes, Provider, Type2Check};
use transom_device::protection::Announcer;
use transom_ibverbs::Description;
use transom_system::addresses::Addresses;
use transom_system::registry::connections::{ClaimedPort, Connection, Connections, Waiting};
use transom_system::registry::{Process, Registry};
use transom_wire::cm::PortSpace;

const HELP: &str = "\
This opens the device to read its limits, so it fails if the device cannot work here.

With --json there is one object. docs/json.md in Transom's source says what each field means; what may have
64 bits is a text of decimal digits:
  devices        name, firmware, node_guid, window_types (type_1, type_2), atomics, limits, and
    ports        port, active, link_layer, lid, active_mtu, max_mtu, max_message, gids (index, gid)
  processes      pid, process, device_number, slot, other_pid_namespace, waits_for, and
    registered   shared_bytes, private_bytes, fix
    listeners    port_space and local, the address
    connections  local and peer
    requests     those that nobody has answered: local, peer, since_ns, times_sent, in_vain
    packets      packets_sent, packets_received, bytes_sent, bytes_received, no_room, handed_on, dropped,
                 congestion_notifications_sent, congestion_notifications_received

Examples:
  transom devices
  transom devices --json | jq '.processes[].pid'
  transom devices --json | jq '.processes[] | {pid, dropped: .packets.dropped}'";

/// Show the built-in device with its limits, and the processes that use one now.
///
/// For each process you see how much of its registered memory is shared, where it listens for connections, its
/// connections, and the packets that it sent and received over the wire. You also see how many packets it dropped,
/// and why. Look here if nothing arrives.
///
/// You see the processes of your user in this network namespace. These are the processes that can connect directly.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DevicesArgs {
    /// Print one JSON object with `devices` and `processes`
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DevicesArgs) -> Result {
    let devices = transom::devices(&Provider::software())?;
    let (mut seen, mut refused) = (Vec::new(), Ok(()));
    for device in devices.iter() {
        match device.open().map_err(Into::into).and_then(|context| Seen::new(&context)) {
            Ok(device) => seen.push(device),
            Err(error) => refused = refused.and(Err(error)),
        }
    }
    if seen.is_empty() {
        return refused;
    }
    let registry = registry()?;
    let processes = running(registry);
    let ports = Ports::seen(registry);
    if args.json {
        print_json(seen, registry, &processes, &ports)?;
    } else {
        print_text(&seen, registry, &processes, &ports)?;
    }
    // One that cannot be opened concerns no other.
    refused
}

/// Addresses of a port with their indexes.
type Gids = Vec<(u8, Gid)>;

/// A device, as it describes itself.
struct Seen {
    name: String,
    attributes: DeviceAttributes,
    ports: Vec<(u8, PortAttributes, Gids)>,
}

impl Seen {
    fn new(context: &Context) -> Result<Self> {
        let attributes = context.attributes()?;
        let ports = (1..=attributes.ports)
            .map(|port| {
                let attributes = context.port(port)?;
                let gids = gids(context, port, attributes.gids)?;
                Ok((port, attributes, gids))
            })
            .collect::<Result<_>>()?;
        Ok(Self { name: context.name().to_owned(), attributes, ports })
    }

    fn type_2(&self) -> Option<&'static str> {
        self.attributes.windows_type_2.map(|check| match check {
            Type2Check::QueuePair => "2A",
            Type2Check::QueuePairAndDomain => "2B",
        })
    }
}

/// The addresses of a port, by index.
fn gids(context: &Context, port: u8, length: u32) -> Result<Gids> {
    let table = (0..length).map_while(|index| u8::try_from(index).ok());
    let all = table.map(|index| Ok((index, context.gid(port, index)?)));
    let is_used =
        |entry: &Result<(u8, Gid)>| !matches!(entry, Ok((_, Gid(raw))) if *raw == [0; 16]);
    all.filter(is_used).collect()
}

/// The addresses that a device of this description has here.
pub(crate) fn addresses(device: &Description) -> Result<Addresses> {
    Addresses::of(device.interface()).map_err(|error| {
        let name = &device.name;
        Failure::new(format_args!("cannot read the addresses of {name} on this host: {error}"))
    })
}

/// Opens the registry of processes for reading.
pub(crate) fn registry() -> Result<&'static Registry> {
    Registry::open().map_err(|error| {
        Failure::new(format_args!(
            "cannot read the registry of processes: {error}; check that you can write there, and \
             that there is room"
        ))
    })
}

/// The most connections of a process that are shown to people.
const SHOWN: usize = 8;

/// The ports and connections of processes.
#[derive(Default)]
pub(crate) struct Ports {
    claimed: Vec<ClaimedPort>,
    connections: Vec<(Announcer, Connection)>,
    waiting: Vec<(Announcer, Waiting)>,
}

impl Ports {
    /// Reads the present ones. Empty if they cannot be read.
    pub(crate) fn seen(registry: &'static Registry) -> Self {
        let table = Connections::look(registry).ok().flatten();
        let locked = table.as_ref().and_then(|table| table.lock().ok());
        locked.map_or_else(Self::default, |mut locked| Self {
            claimed: locked.all_ports(),
            connections: locked.all_connections(),
            waiting: locked.all_waiting(),
        })
    }

    /// The process's requests that wait for an answer.
    pub(crate) fn waiting_of(&self, process: &Process) -> impl Iterator<Item = &Waiting> {
        waiting_of(&self.waiting, process)
    }

    pub(crate) fn listeners_of(&self, process: &Process) -> impl Iterator<Item = &ClaimedPort> {
        let of = process.announcer;
        self.claimed.iter().filter(move |it| it.listens && it.owner == of)
    }

    /// The process's connections that are established.
    pub(crate) fn connections_of(&self, process: &Process) -> impl Iterator<Item = &Connection> {
        let of = process.announcer;
        let stands = |it: &&Connection| it.record.rejected.is_none();
        let of_process = self.connections.iter().filter(move |(owner, _)| *owner == of);
        of_process.map(|(_, connection)| connection).filter(stands)
    }
}

/// The process's requests among all that wait for an answer.
fn waiting_of<'a>(
    all: &'a [(Announcer, Waiting)],
    process: &Process,
) -> impl Iterator<Item = &'a Waiting> {
    let of = process.announcer;
    all.iter().filter(move |(owner, _)| *owner == of).map(|(_, waiting)| waiting)
}

/// What a port space is called.
pub(crate) fn space_name(space: PortSpace) -> &'static str {
    match space {
        PortSpace::Tcp => "TCP",
        PortSpace::Udp => "UDP",
        PortSpace::Ib => "IB",
        PortSpace::Ipoib => "IPoIB",
    }
}

/// The connection requests of a process that nobody has answered yet: when each was made, in nanoseconds since 1970, and
/// a sentence for people.
pub(crate) fn unanswered(registry: &'static Registry, process: &Process) -> Vec<(u64, String)> {
    let table = Connections::look(registry).ok().flatten();
    let all = table.and_then(|table| Some(table.lock().ok()?.all_waiting())).unwrap_or_default();
    let told = |waiting: &Waiting| (waiting.since, waiting.sentence(clock::now()));
    waiting_of(&all, process).map(told).collect()
}

/// The addresses and ports of a connection: the process's own, then its peer's.
pub(crate) fn ends(of: &Connection) -> [SocketAddr; 2] {
    let (local, peer) = of.ports;
    [SocketAddr::new(of.record.source, local), SocketAddr::new(of.record.destination, peer)]
}

/// The other processes of this user that have a device open.
pub(crate) fn running(registry: &Registry) -> Vec<Process> {
    let mut processes = registry.processes();
    let is_this = |process: &Process| process.shares_pids && process.pid == std::process::id();
    processes.retain(|process| process.alive && !is_this(process));
    processes
}

fn print_json(
    devices: Vec<Seen>,
    registry: &Registry,
    processes: &[Process],
    ports: &Ports,
) -> Result {
    let devices: Vec<Value> = devices.iter().map(device_json).collect();
    let processes: Vec<Value> =
        processes.iter().map(|process| process_json(registry, process, ports)).collect();
    let all = json!({ "devices": devices, "processes": processes });
    writeln!(std::io::stdout(), "{all:#}")?;
    Ok(())
}

fn device_json(device: &Seen) -> Value {
    let attributes = &device.attributes;
    let ports = device.ports.iter().map(|(number, port, gids)| {
        let gids: Vec<Value> = gids
            .iter()
            .map(|(index, gid)| json!({ "index": index, "gid": gid.to_string() }))
            .collect();
        json!({
            "port": number,
            "active": port.active,
            "link_layer": if port.ethernet { "ethernet" } else { "infiniband" },
            "gids": gids,
            "lid": port.lid,
            "active_mtu": port.active_mtu,
            "max_mtu": port.max_mtu,
            "max_message": port.max_message,
        })
    });
    json!({
        "name": device.name,
        "firmware": attributes.firmware,
        "node_guid": format!("{:016x}", attributes.node_guid),
        "ports": ports.collect::<Vec<_>>(),
        "window_types": { "type_1": attributes.windows_type_1, "type_2": device.type_2() },
        "atomics": attributes.atomics,
        "limits": {
            "max_regions": attributes.max_regions,
            "max_region_length": Exact(attributes.max_region_length),
            "max_windows": attributes.max_windows,
            "max_protection_domains": attributes.max_protection_domains,
            "max_queue_pairs": attributes.max_queue_pairs,
            "max_requests": attributes.max_requests,
            "max_slices": attributes.max_slices,
            "max_completion_queues": attributes.max_completion_queues,
            "max_completions": attributes.max_completions,
            "max_reads_served": attributes.max_reads_served,
            "max_reads_outstanding": attributes.max_reads_outstanding,
        },
    })
}

fn process_json(registry: &Registry, process: &Process, ports: &Ports) -> Value {
    let listeners = ports.listeners_of(process).map(|it| {
        json!({ "port_space": space_name(it.claim.space), "local": it.claim.address.to_string() })
    });
    let connections = ports.connections_of(process).map(|it| {
        let [local, peer] = ends(it);
        json!({ "local": local.to_string(), "peer": peer.to_string() })
    });
    let requests = ports.waiting_of(process).map(|it| {
        json!({
            "local": it.source.to_string(),
            "peer": it.destination.to_string(),
            "since_ns": Exact(it.since),
            "times_sent": it.sent,
            "in_vain": it.in_vain,
        })
    });
    json!({
        "pid": process.pid,
        "other_pid_namespace": !process.shares_pids,
        "process": process.name,
        "device_number": process.device,
        "slot": process.announcer.slot,
        "waits_for": process.waits_for,
        "registered": registered::json(process),
        "listeners": listeners.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(),
        "requests": requests.collect::<Vec<_>>(),
        "packets": packets::json(registry.counters(process.announcer.slot)),
    })
}

fn print_text(
    devices: &[Seen],
    registry: &Registry,
    processes: &[Process],
    ports: &Ports,
) -> Result {
    const NAME: Style = Style::new().bold();
    let mut out = layout::stdout();
    for device in devices {
        let it = &device.attributes;
        let kinds = [it.windows_type_1.then_some("1"), device.type_2()];
        let kinds: Vec<&str> = kinds.into_iter().flatten().collect();
        let atomics = if it.atomics { "compare-and-swap, fetch-and-add" } else { "none" };
        let name = format!("{NAME}{}{NAME:#}: ", device.name);
        out.item(name, format_args!("software RDMA device {}", it.firmware))?;
        for (number, port, gids) in &device.ports {
            let active = if port.active { "active" } else { "down" };
            let link = if port.ethernet { "RoCE v2" } else { "InfiniBand" };
            let mtu = port.active_mtu;
            let port = format!("  port {number}                ");
            out.item(port, format_args!("{active}, {link}, MTU {mtu}"))?;
            for (index, gid) in gids {
                out.item(format_args!("  GID {index:<17} "), gid)?;
            }
        }
        out.item("  memory windows        ", format_args!("type {}", kinds.join(" and ")))?;
        out.item("  atomics               ", atomics)?;
        let limits = [
            ("regions", u64::from(it.max_regions)),
            ("bytes of a region", it.max_region_length),
            ("windows", it.max_windows.into()),
            ("protection domains", it.max_protection_domains.into()),
            ("queue pairs", it.max_queue_pairs.into()),
            ("requests of a queue", it.max_requests.into()),
            ("slices of a request", it.max_slices.into()),
            ("completion queues", it.max_completion_queues.into()),
            ("completions of one", it.max_completions.into()),
            ("READs and atomics", it.max_reads_served.into()),
        ];
        for (what, limit) in limits {
            out.item(format_args!("  {what:<20}  "), format_args!("up to {limit}"))?;
        }
    }
    out.text("")?;
    if processes.is_empty() {
        out.text("None of your processes has a device open now. `transom demo` starts two.")?;
        return Ok(());
    }
    out.text(format_args!("{NAME}Your processes that have a device open now{NAME:#}"))?;
    for process in processes {
        let mut name = process.name.clone();
        if processes.iter().any(|it| it.device != 0) {
            name += &format!(", device {}", process.device);
        }
        if !process.shares_pids {
            name += " (in another PID namespace)";
        }
        if let Some(pid) = process.waits_for {
            name += &format!(", revoking, waits for PID {pid}");
        }
        out.item(format_args!("  PID {:<10}  ", process.pid), name)?;
        for line in lines_of(process, registry, ports) {
            out.item("    ", line)?;
        }
    }
    Ok(())
}

/// The lines about a process, for people.
fn lines_of(process: &Process, registry: &Registry, ports: &Ports) -> Vec<String> {
    let listeners = ports.listeners_of(process).map(|it| {
        let space = space_name(it.claim.space);
        format!("listens at {}, port space {space}", it.claim.address)
    });
    let connected = ports.connections_of(process).take(SHOWN).map(|it| {
        let [local, peer] = ends(it);
        format!("connected: {local} with {peer}")
    });
    let left = ports.connections_of(process).count().saturating_sub(SHOWN);
    let left = (left > 0).then(|| format!("and {left} more connections"));
    let waiting = ports.waiting_of(process).take(SHOWN).map(|it| it.sentence(clock::now()));
    let registered = registered::lines(process).into_iter();
    let all = registered.chain(listeners).chain(connected).chain(left).chain(waiting);
    all.chain(packets::lines(registry.counters(process.announcer.slot))).collect()
}
