//! The files that the kernel would have for these devices. Programs read them before they open one, or instead.

use super::live::LiveFiles;
use super::private;
use std::ffi::{CStr, OsStr};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use transom_abi::IBV_NODE_CA;
use transom_ibverbs::{
    Description, DeviceName, FW_VER, HW_VER, PKEY, VENDOR_ID, VENDOR_PART_ID, dev_name, dev_path,
    port_attributes,
};
use transom_system::addresses::{Addresses, GID_TABLE};
use transom_system::port_counters::{COUNTERS, HW_COUNTERS};
use transom_system::registry::Registry;
use transom_system::{file_limit, node_guid, system_image_guid};

/// The variable with the program's tree, if `libtransom_paths.so` shows it. Children inherit it.
pub(super) const VARIABLE: &str = transom_system::environment::TREE.name;

/// A file in a tree. Every program that uses the tree locks it. `libtransom_paths.so` has the same name.
const USED: &str = "used";

/// Directories, each with the entries in it that are ours. `libtransom_paths.so` has the same.
pub(super) const PLACES: [(&str, &[&str]); 3] = [
    ("/sys/class", &["infiniband", "infiniband_verbs"]),
    ("/sys/devices", &["transom-rdma"]),
    ("/dev", &["infiniband"]),
];

/// The parent of a program's only device, as the kernel has it for RoCE devices on no bus. It is not a PCI function:
/// programs that read a place on that bus (libfabric) look for it there (MPICH with hwloc). Several devices have parents
/// below it, one each, and so has a device that is told a place on that bus.
const PARENT: &str = "/sys/devices/transom-rdma";

/// What the device says that it is.
pub(crate) const HCA_TYPE: &str = "Transom";
pub(crate) const BOARD_ID: &str = "Transom";

/// The content at a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// A file, without its final newline.
    Text(String),
    Link(String),
}

/// All files of the devices, as they are when a run begins.
pub(crate) struct Tree {
    table: Vec<(String, Content)>,
    /// The names of the devices.
    devices: Vec<String>,
}

impl Tree {
    /// The files of these devices on this host.
    pub(crate) fn of(devices: &[Description]) -> Result<Self, String> {
        let of = |device: &Description| {
            let addresses = Addresses::of(device.interface());
            addresses.map_err(|error| format!("no addresses of {}: {error}", device.name))
        };
        let addresses = devices.iter().map(of).collect::<Result<_, _>>()?;
        let listed = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let host = Host {
            cpus: listed("/sys/devices/system/cpu/online"),
            nodes: listed("/sys/devices/system/node/online"),
            addresses,
            registry: Registry::open().ok(),
        };
        let names = devices.iter().map(|device| device.name.to_string());
        Ok(Self { table: table(devices, &host), devices: names.collect() })
    }

    /// Those below this directory, by their path from there.
    pub(crate) fn below(&self, directory: &str) -> impl Iterator<Item = (&Path, &Content)> {
        let below =
            move |(path, content)| Some((Path::new(path).strip_prefix(directory).ok()?, content));
        self.table.iter().map(|(path, content)| (path, content)).filter_map(below)
    }

    /// Writes them into an empty directory. Nobody may write there afterwards, because nobody must change
    /// them. Returns those whose values change, if they can be kept live.
    pub(super) fn write(&self, into: &Path) -> io::Result<Option<LiveFiles>> {
        let mut live = LiveFiles::new(&self.devices);
        file_limit::grow(|| self.write_each(into, live.as_mut()))?;
        each_directory(into, &|directory| {
            fs::set_permissions(directory, Permissions::from_mode(0o555))
        })?;
        Ok(live)
    }

    fn write_each(&self, into: &Path, mut live: Option<&mut LiveFiles>) -> io::Result<()> {
        let mut made = PathBuf::new();
        for (path, content) in &self.table {
            let path = into.join(path.trim_start_matches('/'));
            // Those of one directory follow each other.
            if let Some(parent) = path.parent().filter(|parent| *parent != made) {
                fs::create_dir_all(parent)?;
                made = parent.to_owned();
            }
            match content {
                Content::Text(text) => {
                    let mut file = File::create_new(&path)?;
                    file.write_all(format!("{text}\n").as_bytes())?;
                    file.set_permissions(Permissions::from_mode(0o444))?;
                    if let Some(live) = &mut live {
                        live.add(&path, file);
                    }
                }
                Content::Link(target) => symlink(target, &path)?,
            }
        }
        Ok(())
    }

    /// Writes them into a new directory of this user, for this process and the program that it becomes. Returns the
    /// real path, and the files whose values change. Removes the directories of runs that are over.
    pub(super) fn of_a_run(&self) -> Result<(PathBuf, Option<LiveFiles>), String> {
        private::in_first(|parent| self.in_parent(parent))
    }

    fn in_parent(&self, parent: &Path) -> io::Result<(PathBuf, Option<LiveFiles>)> {
        let runs = private::directory(parent, "runs")?;
        let _ = remove_old(&runs);
        // Processes of other PID namespaces may share the directory, and have the same PIDs.
        let space = fs::metadata("/proc/self/ns/pid")?.ino();
        let own = format!("{space}-{}", std::process::id());
        let mut names = (0..).map(|number: u32| runs.join(format!("{own}-{number}")));
        let tree = loop {
            let Some(tree) = names.next() else { return Err(io::ErrorKind::AlreadyExists.into()) };
            match DirBuilder::new().mode(0o700).create(&tree) {
                Ok(()) => break tree,
                // Left by an earlier process with this PID, whose children still run.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        File::create(tree.join(USED))?;
        let live = self.write(&tree)?;
        Ok((tree, live))
    }
}

/// Calls `visit` for a directory and all below it, inner ones first.
fn each_directory(directory: &Path, visit: &dyn Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each_directory(&entry.path(), visit)?;
        }
    }
    visit(directory)
}

/// Removes the trees of runs that are over: the process and all that it started are gone. This process cannot judge
/// trees of another PID namespace.
fn remove_old(runs: &Path) -> io::Result<()> {
    let space = fs::metadata("/proc/self/ns/pid")?.ino().to_string();
    let is_over = |tree: &Path| {
        let name = tree.file_name()?.to_str()?;
        let pid: u32 = name.strip_prefix(&space)?.split('-').nth(1)?.parse().ok()?;
        let asked = Path::new(&format!("/proc/{pid}")).try_exists();
        let gone = pid == std::process::id() || matches!(asked, Ok(false));
        gone.then_some(())
    };
    let trees = fs::read_dir(runs)?.flatten().map(|entry| entry.path());
    let old: Vec<_> = trees.filter(|tree| is_over(tree).is_some()).collect();
    if old.is_empty() {
        return Ok(());
    }
    // A process that has just started has no lock yet, but its environment is unchanged. So check the lock, then the
    // environments, then the lock again.
    let unlocked = old.into_iter().filter(|tree| !is_locked(tree)).collect::<Vec<_>>();
    let named = named_trees()?;
    for tree in unlocked.iter().filter(|tree| !named.contains(tree) && !is_locked(tree)) {
        // Another process may remove it at the same time.
        let _ = remove(tree);
    }
    Ok(())
}

/// Whether a program has locked a tree. Such a program uses it, even if it has changed its environment. True if the
/// lock cannot be asked for.
fn is_locked(tree: &Path) -> bool {
    let file = match File::open(tree.join(USED)) {
        Ok(file) => file,
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    let (l_type, l_whence) = (libc::F_WRLCK as i16, libc::SEEK_SET as i16);
    let mut lock = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: the descriptor is open, and the kernel writes the conflicting lock into `lock`.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked != 0 || i32::from(lock.l_type) != libc::F_UNLCK
}

/// The trees in the environments of processes, as far as this process may read them.
fn named_trees() -> io::Result<Vec<PathBuf>> {
    let mut used = Vec::new();
    for process in fs::read_dir("/proc")?.flatten() {
        // An environment that cannot be read is another user's, or its process has ended.
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        let variables = environment.split(|byte| *byte == 0);
        let values = variables.filter_map(|text| text.strip_prefix(VARIABLE.as_bytes()));
        let values = values.filter_map(|text| text.strip_prefix(b"="));
        used.extend(values.map(|value| PathBuf::from(OsStr::from_bytes(value))));
    }
    Ok(used)
}

fn remove(tree: &Path) -> io::Result<()> {
    each_directory(tree, &|directory| {
        fs::set_permissions(directory, Permissions::from_mode(0o700))
    })?;
    fs::remove_dir_all(tree)
}

/// The facts about the machine that the files contain.
struct Host {
    /// The processors and the NUMA nodes, as the kernel lists them.
    cpus: String,
    nodes: String,
    /// The addresses of each device.
    addresses: Vec<Addresses>,
    /// Its processes have counted what the port's counters say.
    registry: Option<&'static Registry>,
}

/// Every path with its content.
fn table(devices: &[Description], host: &Host) -> Vec<(String, Content)> {
    // The version of the kernel's interface. Nobody uses that interface here.
    let version = Content::Text("6".into());
    let mut table = vec![("/sys/class/infiniband_verbs/abi_version".into(), version)];
    for ((number, device), addresses) in (0..).zip(devices).zip(&host.addresses) {
        let parent = match device.pci {
            Some(pci) => format!("{PARENT}/{pci}"),
            None if devices.len() == 1 => PARENT.to_owned(),
            None => format!("{PARENT}/{}", device.name),
        };
        add_device(&mut table, &parent, (number, device, addresses), host);
    }
    table
}

/// Adds the paths of a device.
fn add_device(
    table: &mut Vec<(String, Content)>,
    parent: &str,
    (number, device, addresses): (u8, &Description, &Addresses),
    host: &Host,
) {
    let name = &device.name;
    let ibdev = format!("{parent}/infiniband/{name}");
    let (dev_name, dev_path) = (dev_name(number), dev_path(number));
    let uverbs = format!("{parent}/infiniband_verbs/{dev_name}");
    let mut add = |directory: &str, files: Vec<(&str, String)>| {
        for (name, content) in files {
            table.push((format!("{directory}/{name}"), Content::Text(content)));
        }
    };
    add(parent, of_parent(device, host));
    add(&ibdev, of_device(name, number));
    add(&format!("{ibdev}/ports/1"), of_port(device, addresses));
    let sums = host.registry.map(|registry| registry.sums(number)).unwrap_or_default();
    for (directory, counters) in [("counters", &COUNTERS[..]), ("hw_counters", &HW_COUNTERS)] {
        let values = counters.iter().map(|(name, value)| (*name, value(&sums).to_string()));
        add(&format!("{ibdev}/ports/1/{directory}"), values.collect());
    }
    // The number of the file in place of the character device.
    let numbers = vec![
        ("ibdev", name.to_string()),
        ("dev", "1:3".into()),
        ("abi_version", HW_VER.to_string()),
    ];
    add(&uverbs, numbers);
    let port = format!("{ibdev}/ports/1");
    for index in 0..GID_TABLE {
        let gid = words(&addresses.get(index).map_or([0; 16], |address| address.gid));
        table.push((format!("{port}/gids/{index}"), Content::Text(gid)));
    }
    let known = || (0..GID_TABLE).filter_map(|index| Some((index, addresses.get(index)?)));
    for (index, _) in known() {
        let kind = "RoCE v2".into();
        table.push((format!("{port}/gid_attrs/types/{index}"), Content::Text(kind)));
    }
    for (index, address) in known() {
        let interface = address.interface_name().unwrap_or_default();
        table.push((format!("{port}/gid_attrs/ndevs/{index}"), Content::Text(interface)));
    }
    let mut link = |path: String, target: String| table.push((path, Content::Link(target)));
    // Scripts ask an adapter's parent for its interface, and the interface for an address to connect to.
    if let Some((interface, _)) = addresses.interface() {
        link(format!("{parent}/net/{interface}"), format!("/sys/class/net/{interface}"));
    }
    for (of_class, of_parent) in [(name.ibdev_path(), &ibdev), (dev_path, &uverbs)] {
        // From a directory in `/sys/class`, and from one below the parent.
        link(of_class, format!("../..{}", of_parent.trim_start_matches("/sys")));
        link(format!("{of_parent}/device"), format!("../../../{}", last_name(parent)));
    }
    // Verbs do not go through it: programs only check whether they may open it.
    link(format!("/dev/infiniband/{dev_name}"), "/dev/null".into());
}

/// The last name of a path.
fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn of_device(name: &DeviceName, number: u8) -> Vec<(&'static str, String)> {
    vec![
        ("node_type", format!("{IBV_NODE_CA}: CA")),
        ("node_guid", words(&node_guid(number).to_be_bytes())),
        ("sys_image_guid", words(&system_image_guid().to_be_bytes())),
        ("node_desc", name.to_string()),
        ("fw_ver", text(FW_VER)),
        ("hw_rev", format!("{HW_VER:x}")),
        ("hca_type", HCA_TYPE.into()),
        // Debian's node_exporter tells of no device without it.
        ("board_id", BOARD_ID.into()),
    ]
}

/// The parent's place and identity, as for an adapter. Its numbers have 16 bits, and it is an Ethernet
/// network controller.
fn of_parent(device: &Description, host: &Host) -> Vec<(&'static str, String)> {
    let vendor = format!("{:#06x}", VENDOR_ID & 0xffff);
    let part = format!("{:#06x}", VENDOR_PART_ID & 0xffff);
    // If nobody has told its node, it is equally near to all, so it belongs to the only node, or to none.
    let node = match device.numa_node {
        Some(node) => node.to_string(),
        None if host.nodes.parse::<u32>().is_ok() => host.nodes.clone(),
        None => "-1".into(),
    };
    let of_node = |node| fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    let cpus = device.numa_node.and_then(|node| Some(of_node(node).ok()?.trim().to_owned()));
    let cpus = cpus.unwrap_or_else(|| host.cpus.clone());
    let mut files = vec![
        ("vendor", vendor.clone()),
        ("device", part.clone()),
        ("subsystem_vendor", vendor),
        ("subsystem_device", part),
        ("class", "0x020000".into()),
        ("numa_node", node),
    ];
    if let Some(mask) = cpu_mask(&cpus) {
        files.push(("local_cpus", mask));
        files.push(("local_cpulist", cpus));
    }
    files
}

fn of_port(device: &Description, addresses: &Addresses) -> Vec<(&'static str, String)> {
    let port = port_attributes(device, addresses);
    vec![
        ("state", numbered(port.state, &["NOP", "DOWN", "INIT", "ARMED", "ACTIVE"])),
        (
            "phys_state",
            numbered(port.phys_state, &["NOP", "Sleep", "Polling", "Disabled", "", "LinkUp"]),
        ),
        ("link_layer", link_layer(port.link_layer).into()),
        ("rate", rate(port.active_width, port.active_speed)),
        ("lid", format!("{:#x}", port.lid)),
        ("lid_mask_count", port.lmc.to_string()),
        ("sm_lid", format!("{:#x}", port.sm_lid)),
        ("sm_sl", port.sm_sl.to_string()),
        ("cap_mask", format!("{:#010x}", port.port_cap_flags)),
        ("pkeys/0", format!("{PKEY:#06x}")),
    ]
}

fn text(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Groups of four hexadecimal digits.
fn words(bytes: &[u8]) -> String {
    let word = |pair: &[u8]| pair.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(2).map(word).collect::<Vec<_>>().join(":")
}

/// A number with its name.
fn numbered(number: impl TryInto<usize> + Copy + std::fmt::Display, names: &[&str]) -> String {
    let name = number.try_into().ok().and_then(|index| names.get(index)).unwrap_or(&"");
    format!("{number}: {name}")
}

fn link_layer(link_layer: u8) -> &'static str {
    match link_layer {
        transom_abi::IBV_LINK_LAYER_ETHERNET => "Ethernet",
        transom_abi::IBV_LINK_LAYER_INFINIBAND => "InfiniBand",
        _ => "Unspecified",
    }
}

/// The rate from the number of lanes and the speed of one lane, in the codes of the port's attributes.
fn rate(width: u8, speed: u8) -> String {
    let (lanes, speed, name) = lanes(width, speed);
    let tenths = lanes * speed;
    let fraction = if tenths % 10 == 0 { String::new() } else { format!(".{}", tenths % 10) };
    format!("{}{fraction} Gb/sec ({lanes}X {name})", tenths / 10)
}

/// The same in bytes per second.
pub(crate) fn bytes_per_second(width: u8, speed: u8) -> u64 {
    const TENTH: u64 = 100_000_000 / 8;
    let (lanes, speed, _) = lanes(width, speed);
    u64::from(lanes * speed) * TENTH
}

/// The number of lanes, the speed of one in tenths of Gbit/s, and its name.
fn lanes(width: u8, speed: u8) -> (u16, u16, &'static str) {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        _ => 2,
    };
    let (speed, name) = match speed {
        1 => (25, "SDR"),
        2 => (50, "DDR"),
        4 | 8 => (100, "QDR"),
        16 => (140, "FDR"),
        32 => (250, "EDR"),
        64 => (500, "HDR"),
        _ => (1000, "NDR"),
    };
    (lanes, speed, name)
}

/// Converts a list such as `0-3,8` to a mask: groups of 32 bits in hexadecimal, the highest first.
fn cpu_mask(list: &str) -> Option<String> {
    let mut groups: Vec<u32> = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        for cpu in first.parse::<usize>().ok()?..=last.parse::<usize>().ok()? {
            let index = cpu / 32;
            groups.resize(groups.len().max(index + 1), 0);
            groups[index] |= 1 << (cpu % 32);
        }
    }
    let mut groups = groups.iter().rev();
    let highest = format!("{:x}", groups.next()?);
    Some(groups.fold(highest, |mask, group| format!("{mask},{group:08x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(cpus: &str, nodes: &str) -> Host {
        let addresses = [(); 2].map(|()| Addresses::read().unwrap()).into();
        Host { cpus: cpus.into(), nodes: nodes.into(), addresses, registry: None }
    }

    fn devices(text: &str) -> Vec<Description> {
        text.split(';').map(|it| it.parse().unwrap()).collect()
    }

    fn content(host: &Host, path: &str) -> String {
        content_for("transom0", host, path)
    }

    fn content_for(described: &str, host: &Host, path: &str) -> String {
        let table = table(&devices(described), host);
        let found: Vec<_> = table.iter().filter(|(known, _)| known == path).collect();
        match found[..] {
            [(_, Content::Text(text) | Content::Link(text))] => text.clone(),
            _ => panic!("{path}: {found:?}"),
        }
    }

    #[test]
    fn the_files_are_written_as_the_kernel_writes_them() {
        let host = host("0-1", "0");
        let node_guid = words(&node_guid(0).to_be_bytes());
        for (path, expected) in [
            ("infiniband/transom0/node_type", "1: CA"),
            ("infiniband/transom0/node_guid", node_guid.as_str()),
            ("infiniband/transom0/fw_ver", env!("CARGO_PKG_VERSION")),
            ("infiniband/transom0/ports/1/state", "4: ACTIVE"),
            ("infiniband/transom0/ports/1/phys_state", "5: LinkUp"),
            ("infiniband/transom0/ports/1/link_layer", "Ethernet"),
            ("infiniband/transom0/ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("infiniband/transom0/ports/1/lid", "0x0"),
            ("infiniband/transom0/ports/1/pkeys/0", "0xffff"),
            ("infiniband/transom0/ports/1/gid_attrs/types/0", "RoCE v2"),
            ("infiniband/transom0/ports/1/counters/port_xmit_data", "0"),
            ("infiniband_verbs/uverbs0/ibdev", "transom0"),
            ("vendor", "0x736d"),
            ("class", "0x020000"),
            ("numa_node", "0"),
            ("local_cpus", "3"),
            ("local_cpulist", "0-1"),
        ] {
            assert_eq!(content(&host, &format!("{PARENT}/{path}")), expected, "{path}");
        }
    }

    #[test]
    fn the_interface_of_the_first_address_is_the_parents() {
        let host = host("0", "0");
        let interface = host.addresses[0].get(0).and_then(|address| address.interface_name());
        let table = table(&devices("transom0"), &host);
        let below = |path: &str| path.strip_prefix(&format!("{PARENT}/net/")).map(str::to_owned);
        let found: Vec<_> = table.iter().filter_map(|(path, _)| below(path)).collect();
        assert_eq!(found, Vec::from_iter(interface));
    }

    #[test]
    fn where_there_are_several_nodes_it_is_in_none() {
        for nodes in ["0-1", "0,2", ""] {
            assert_eq!(content(&host("0", nodes), &format!("{PARENT}/numa_node")), "-1");
        }
    }

    /// Rules: DEVS-02
    #[test]
    fn what_is_told_of_each_device_is_in_its_files() {
        let (host, described) = (host("0-1", "0"), "a0;b0,port=down,speed=25G,numa=7,pci=81:00.0");
        let place = "/sys/devices/transom-rdma/0000:81:00.0";
        for (path, expected) in [
            ("/sys/class/infiniband/a0", "../../devices/transom-rdma/a0/infiniband/a0"),
            ("/sys/devices/transom-rdma/a0/infiniband/a0/device", "../../../a0"),
            ("/sys/devices/transom-rdma/a0/infiniband/a0/ports/1/state", "4: ACTIVE"),
            ("/sys/devices/transom-rdma/a0/infiniband/a0/ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("/sys/devices/transom-rdma/a0/numa_node", "0"),
            ("/sys/class/infiniband/b0", "../../devices/transom-rdma/0000:81:00.0/infiniband/b0"),
            ("/dev/infiniband/uverbs1", "/dev/null"),
            (&format!("{place}/infiniband_verbs/uverbs1/ibdev"), "b0"),
            (&format!("{place}/infiniband/b0/device"), "../../../0000:81:00.0"),
            (&format!("{place}/infiniband/b0/ports/1/state"), "1: DOWN"),
            (&format!("{place}/infiniband/b0/ports/1/phys_state"), "3: Disabled"),
            (&format!("{place}/infiniband/b0/ports/1/rate"), "25 Gb/sec (1X EDR)"),
            (&format!("{place}/infiniband/b0/node_guid"), &words(&node_guid(1).to_be_bytes())),
            (&format!("{place}/numa_node"), "7"),
        ] {
            assert_eq!(content_for(described, &host, path), expected, "{path}");
        }
        let alone = content_for("b0,pci=81:00.0", &host, "/sys/class/infiniband/b0");
        assert_eq!(alone, "../../devices/transom-rdma/0000:81:00.0/infiniband/b0");
    }

    #[test]
    fn every_path_is_in_a_place_of_ours_and_there_once() {
        for described in ["rxe0", "rxe0;rxe1", "rxe0;rxe1,pci=81:00.0,port=down"] {
            let table = table(&devices(described), &host("0", "0"));
            let ours = |path: &str| {
                PLACES.iter().any(|(parent, names)| {
                    names.iter().any(|name| path.starts_with(&format!("{parent}/{name}/")))
                })
            };
            for (index, (path, _)) in table.iter().enumerate() {
                assert!(ours(path), "{path}");
                assert!(!path.contains("transom0"), "{path}");
                assert!(table[index + 1..].iter().all(|(other, _)| other != path), "{path}");
            }
        }
    }

    #[test]
    fn rates_and_masks_are_told() {
        assert_eq!(rate(2, 16), "56 Gb/sec (4X FDR)");
        assert_eq!(rate(1, 1), "2.5 Gb/sec (1X SDR)");
        assert_eq!(cpu_mask("0-3,8").as_deref(), Some("10f"));
        assert_eq!(cpu_mask("0-32,64").as_deref(), Some("1,00000001,ffffffff"));
        assert_eq!(cpu_mask(""), None);
        assert_eq!(cpu_mask("none"), None);
    }

    #[test]
    fn each_run_has_a_tree_and_those_that_are_over_are_removed() {
        let scratch = std::env::temp_dir().join(format!("transom-tree-{}", std::process::id()));
        fs::create_dir(&scratch).unwrap();
        let tree = Tree::of(&devices("transom0")).unwrap();
        let (old, _) = tree.in_parent(&scratch).unwrap();
        let guid = old.join("sys/class/infiniband/transom0/node_guid");
        let kept = fs::read_to_string(&guid).unwrap();
        assert_eq!(kept.trim_end(), words(&node_guid(0).to_be_bytes()));
        assert_eq!(fs::metadata(&guid).unwrap().mode() & 0o777, 0o444);
        assert_eq!(fs::metadata(guid.parent().unwrap()).unwrap().mode() & 0o777, 0o555);

        // The earlier process with this PID is gone, but a child of it still runs.
        let mut child = std::process::Command::new("cat");
        child.env(VARIABLE, &old).stdin(std::process::Stdio::piped());
        let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
        // It has begun before the kernel shows its environment.
        let environment = format!("/proc/{}/environ", child.id());
        while fs::read(&environment).unwrap().is_empty() {
            std::thread::yield_now();
        }
        let (next, _) = tree.in_parent(&scratch).unwrap();
        assert_ne!(next, old);
        assert!(old.exists());
        drop(child.stdin.take());
        child.wait().unwrap();
        let (last, _) = tree.in_parent(&scratch).unwrap();
        let left = fs::read_dir(last.parent().unwrap()).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.path()).collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0], last);
        remove(&last).unwrap();
        fs::remove_dir_all(&scratch).unwrap();
    }
}
