//! The files that the kernel would have of this device: what programs read of it before, or instead
//! of, opening it.

use super::private;
use std::collections::hash_map::DefaultHasher;
use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use transom_abi::IBV_NODE_CA;
use transom_host::addresses::{Addresses, GID_TABLE};
use transom_host::guid;
use transom_ibverbs::{
    DEV_NAME, DEV_PATH, FW_VER, HW_VER, IBDEV_PATH, NAME, PKEY, VENDOR_ID, VENDOR_PART_ID,
    port_attributes,
};

/// Directories, each with what in it is ours.
pub(super) const PLACES: [(&str, &[&str]); 2] =
    [("/sys/class", &["infiniband", "infiniband_verbs"]), ("/dev", &["infiniband"])];

/// What counts packets at the port. They stay at zero: `transom devices` has those of each process.
const COUNTERS: [&str; 21] = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
];

/// The same, as software devices name it.
const HW_COUNTERS: [&str; 6] = [
    "duplicate_request",
    "link_downed",
    "out_of_seq_request",
    "rcvd_pkts",
    "rcvd_seq_err",
    "sent_pkts",
];

/// What is at a path.
#[derive(Debug, Hash, PartialEq)]
enum Content {
    /// A file, without its final newline.
    Text(String),
    Link(&'static str),
}

/// The tree, made in a private directory if it is not there, and mended if something is missing.
pub(super) fn directory() -> Result<PathBuf, String> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let addresses = Addresses::read()
        .map_err(|error| format!("the kernel does not tell its addresses: {error}"))?;
    let table = table(online.trim(), &addresses);
    let mut problem = String::from("there is no directory for temporary files");
    for parent in private::parents() {
        // The name that paths are told by, once links are followed.
        let made = made_in(&parent, &table).and_then(fs::canonicalize);
        match made {
            Ok(directory) => return Ok(directory),
            Err(error) => problem = format!("{}: {error}", parent.display()),
        }
    }
    Err(problem)
}

/// One directory for each content, so that two versions do not take it from each other.
fn made_in(parent: &Path, table: &[(String, Content)]) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    table.hash(&mut hasher);
    let tree = private::directory(parent, &format!("tree-{:016x}", hasher.finish()))?;
    for (path, content) in table {
        let path = tree.join(path.trim_start_matches('/'));
        match content {
            Content::Text(text) => {
                let text = format!("{text}\n");
                if !fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
                    make_parents(&tree, &path)?;
                    private::replace(&tree, &path, |fresh| {
                        fs::write(fresh, &text)?;
                        fs::set_permissions(fresh, Permissions::from_mode(0o444))
                    })?;
                }
            }
            Content::Link(target) => {
                if !fs::read_link(&path).is_ok_and(|found| found == Path::new(target)) {
                    make_parents(&tree, &path)?;
                    private::replace(&tree, &path, |fresh| symlink(target, fresh))?;
                }
            }
        }
    }
    Ok(tree)
}

/// The directories above `path`, as open to others as sysfs is; only the tree itself is private.
fn make_parents(tree: &Path, path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent)?;
    for directory in parent.ancestors().take_while(|directory| *directory != tree) {
        fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Every path with its content. `online` are the CPUs, as the kernel lists them.
fn table(online: &str, addresses: &Addresses) -> Vec<(String, Content)> {
    let (ibdev, dev) = (text(IBDEV_PATH), text(DEV_PATH));
    let mut table = Vec::new();
    let mut add = |directory: &str, files: Vec<(&str, String)>| {
        for (name, content) in files {
            table.push((format!("{directory}/{name}"), Content::Text(content)));
        }
    };
    add(&ibdev, device());
    add(&format!("{ibdev}/device"), adapter(online));
    add(&format!("{ibdev}/ports/1"), port(addresses));
    let zeros = |names: &[&'static str]| names.iter().map(|name| (*name, "0".into())).collect();
    add(&format!("{ibdev}/ports/1/counters"), zeros(&COUNTERS));
    add(&format!("{ibdev}/ports/1/hw_counters"), zeros(&HW_COUNTERS));
    // The version of the kernel's interface, which nobody speaks here.
    add("/sys/class/infiniband_verbs", vec![("abi_version", "6".into())]);
    // The number of what stands in for the character device.
    let uverbs =
        vec![("ibdev", text(NAME)), ("dev", "1:3".into()), ("abi_version", HW_VER.to_string())];
    add(&dev, uverbs);
    for index in 0..GID_TABLE {
        let port = format!("{ibdev}/ports/1");
        let address = addresses.get(index);
        let gid = words(&address.map_or([0; 16], |address| address.gid));
        table.push((format!("{port}/gids/{index}"), Content::Text(gid)));
        if let Some(address) = address {
            let kind = "RoCE v2".into();
            let interface = address.interface_name().unwrap_or_default();
            table.push((format!("{port}/gid_attrs/types/{index}"), Content::Text(kind)));
            table.push((format!("{port}/gid_attrs/ndevs/{index}"), Content::Text(interface)));
        }
    }
    table.push((format!("{dev}/device"), Content::Link("../../infiniband/transom0/device")));
    // Verbs do not go through it: programs only ask whether they might open it.
    table.push((format!("/dev/infiniband/{}", text(DEV_NAME)), Content::Link("/dev/null")));
    table
}

fn device() -> Vec<(&'static str, String)> {
    let guid = words(&guid().to_be_bytes());
    vec![
        ("node_type", format!("{IBV_NODE_CA}: CA")),
        ("node_guid", guid.clone()),
        ("sys_image_guid", guid),
        ("node_desc", text(NAME)),
        ("fw_ver", text(FW_VER)),
        ("hw_rev", format!("{HW_VER:x}")),
        ("hca_type", "Transom".into()),
    ]
}

/// What would be the PCI function: its numbers have 16 bits there.
fn adapter(online: &str) -> Vec<(&'static str, String)> {
    let mut files = vec![
        ("vendor", format!("{:#06x}", VENDOR_ID & 0xffff)),
        ("device", format!("{:#06x}", VENDOR_PART_ID & 0xffff)),
        // It is as near to every node.
        ("numa_node", "-1".into()),
    ];
    if let Some(mask) = cpu_mask(online) {
        files.push(("local_cpus", mask));
        files.push(("local_cpulist", online.into()));
    }
    files
}

fn port(addresses: &Addresses) -> Vec<(&'static str, String)> {
    let port = port_attributes(addresses);
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

/// Lanes by the speed of one, in the codes of the port's attributes.
fn rate(width: u8, speed: u8) -> String {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        _ => 2,
    };
    // In tenths of Gbit/s.
    let (speed, name) = match speed {
        1 => (25, "SDR"),
        2 => (50, "DDR"),
        4 | 8 => (100, "QDR"),
        16 => (140, "FDR"),
        32 => (250, "EDR"),
        64 => (500, "HDR"),
        _ => (1000, "NDR"),
    };
    let tenths = lanes * speed;
    let fraction = if tenths % 10 == 0 { String::new() } else { format!(".{}", tenths % 10) };
    format!("{}{fraction} Gb/sec ({lanes}X {name})", tenths / 10)
}

/// A list like `0-3,8` as a mask: groups of 32 bits in hexadecimal, the highest first.
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

    fn content(path: &str) -> String {
        let table = table("0-1", &addresses());
        let found: Vec<_> = table.iter().filter(|(known, _)| known == path).collect();
        match found[..] {
            [(_, Content::Text(text))] => text.clone(),
            _ => panic!("{path}: {found:?}"),
        }
    }

    fn addresses() -> Addresses {
        Addresses::read().unwrap()
    }

    #[test]
    fn the_files_are_written_as_the_kernel_writes_them() {
        for (path, expected) in [
            ("transom0/node_type", "1: CA"),
            ("transom0/node_guid", &words(&guid().to_be_bytes())),
            ("transom0/fw_ver", env!("CARGO_PKG_VERSION")),
            ("transom0/device/vendor", "0x736d"),
            ("transom0/device/local_cpus", "3"),
            ("transom0/device/local_cpulist", "0-1"),
            ("transom0/ports/1/state", "4: ACTIVE"),
            ("transom0/ports/1/phys_state", "5: LinkUp"),
            ("transom0/ports/1/link_layer", "Ethernet"),
            ("transom0/ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("transom0/ports/1/lid", "0x1"),
            ("transom0/ports/1/pkeys/0", "0xffff"),
            ("transom0/ports/1/gid_attrs/types/0", "RoCE v2"),
            ("transom0/ports/1/counters/port_xmit_data", "0"),
        ] {
            assert_eq!(content(&format!("/sys/class/infiniband/{path}")), expected, "{path}");
        }
    }

    #[test]
    fn every_path_is_in_a_place_of_ours_and_there_once() {
        let table = table("0", &addresses());
        let ours = |path: &str| {
            PLACES.iter().any(|(parent, names)| {
                names.iter().any(|name| path.starts_with(&format!("{parent}/{name}/")))
            })
        };
        for (index, (path, _)) in table.iter().enumerate() {
            assert!(ours(path), "{path}");
            assert!(table[index + 1..].iter().all(|(other, _)| other != path), "{path}");
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
    fn the_tree_is_made_once_and_mended() {
        let scratch = std::env::temp_dir().join(format!("transom-tree-{}", std::process::id()));
        fs::create_dir(&scratch).unwrap();
        let table = table("0", &addresses());
        let tree = made_in(&scratch, &table).unwrap();
        let (guid, link) = (
            tree.join("sys/class/infiniband/transom0/node_guid"),
            tree.join("dev/infiniband/uverbs_transom0"),
        );
        for _ in 0..2 {
            let kept = fs::read_to_string(&guid).unwrap();
            assert_eq!(kept.trim_end(), words(&super::guid().to_be_bytes()));
            assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"));
            fs::remove_file(&guid).unwrap();
            fs::remove_file(&link).unwrap();
            assert_eq!(made_in(&scratch, &table).unwrap(), tree);
        }
        let other = super::table("0-1", &addresses());
        assert_ne!(made_in(&scratch, &other).unwrap(), tree);
        fs::remove_dir_all(&scratch).unwrap();
    }
}
