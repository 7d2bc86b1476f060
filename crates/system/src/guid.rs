//! The GUIDs of this host's device.
//!
//! The system image GUID belongs to the host. All its processes have the same one, from one boot to the next, and every
//! other host has another one. It is made of the first of these that exists:
//!
//! 1. the machine ID (`machine-id(5)`), which must not be shown and so is the key of a keyed hash;
//! 2. the MAC address of a network interface, if its maker assigned it. A locally assigned one, as in containers, is
//!    the same on many hosts;
//! 3. the boot ID (`random(4)`), until the next boot;
//! 4. the host's name.
//!
//! A container has its host's GUID if it shows the host's machine ID, or has no machine ID and no interface with a
//! maker's address. With a machine ID of its own, it has a GUID of its own. Containers of an image that brings a
//! machine ID along have the same GUID on every host, as `machine-id(5)` warns.
//!
//! The node GUID belongs to a device of a network namespace on this host. Each namespace has devices of its own, because
//! each has its own queue pairs and communication ids, by which peers know connections. All processes of a namespace
//! have the same ones. A node GUID is made of the host's identity, the namespace's number, and the device's number if
//! that is not zero. The host's own namespace keeps its number from one boot to the next, as long as the kernel stays the
//! same. No two namespaces have the same number at a time.

use std::fs;
use std::hash::Hasher;
#[expect(
    deprecated,
    reason = "it names its algorithm, SipHash 2-4, which the default hasher does not"
)]
use std::hash::SipHasher;
use std::path::Path;
use std::sync::LazyLock;

use crate::registry::network_namespace;

/// The text that is hashed. With another text, the same machine ID would give another number.
const PURPOSE: &[u8] = b"transom node GUID";

/// The bits of an EUI-64's first octet that mark it as naming one device, not a group, and as assigned locally, not by
/// a maker.
const GROUP: u64 = 1 << 56;
const LOCAL: u64 = 1 << 57;

/// The GUID of the system that the device is part of: an EUI-64 in host order.
pub fn system_image_guid() -> u64 {
    from_identity(*IDENTITY, &[])
}

/// The GUID of the device of this number in this network namespace: an EUI-64 in host order.
pub fn node_guid(device: u8) -> u64 {
    static NAMESPACE: LazyLock<u64> = LazyLock::new(|| network_namespace().unwrap_or_default());
    of_device(*IDENTITY, *NAMESPACE, device)
}

static IDENTITY: LazyLock<u128> = LazyLock::new(|| identity(Path::new("/")));

/// Tells the host whose files are below `root` from others.
fn identity(root: &Path) -> u128 {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let machine = ["etc/machine-id", "var/lib/dbus/machine-id"];
    let boot = "proc/sys/kernel/random/boot_id";
    let name = "proc/sys/kernel/hostname";
    machine
        .iter()
        .find_map(|path| number(read(path).trim()))
        .or_else(|| makers_address(&root.join("sys/class/net")))
        .or_else(|| number(&read(boot).trim().replace('-', "")))
        .unwrap_or_else(|| hash(0, read(name).as_bytes()).into())
}

/// A number of 128 bits in hexadecimal digits. Zero counts as none.
fn number(text: &str) -> Option<u128> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u128::from_str_radix(text, 16).ok()).flatten().filter(|number| *number != 0)
}

/// The lowest MAC address of an Ethernet interface that was not assigned locally.
fn makers_address(interfaces: &Path) -> Option<u128> {
    const ETHERNET: &str = "1";
    const LOCAL_OR_GROUP: u8 = 0b11;
    let entries = fs::read_dir(interfaces).ok()?.flatten();
    let address = |entry: fs::DirEntry| {
        let read = |name| fs::read_to_string(entry.path().join(name)).ok();
        let octets = read("address")?;
        let octets = octets.trim().split(':').map(|octet| u8::from_str_radix(octet, 16).ok());
        let octets: [u8; 6] = octets.collect::<Option<Vec<u8>>>()?.try_into().ok()?;
        let by_maker = octets != [0; 6] && octets[0] & LOCAL_OR_GROUP == 0;
        let ethernet = read("type")?.trim() == ETHERNET;
        (by_maker && ethernet).then(|| octets.iter().fold(0, |all, &it| all << 8 | u128::from(it)))
    };
    entries.filter_map(address).min()
}

fn of_device(identity: u128, namespace: u64, device: u8) -> u64 {
    let number = if device == 0 { &[][..] } else { &[device] };
    from_identity(identity, &[&namespace.to_be_bytes(), number].concat())
}

fn from_identity(identity: u128, part: &[u8]) -> u64 {
    hash(identity, &[PURPOSE, part].concat()) & !GROUP | LOCAL
}

fn hash(key: u128, text: &[u8]) -> u64 {
    #[expect(deprecated, reason = "as above")]
    let mut hasher = SipHasher::new_with_keys((key >> 64) as u64, key as u64);
    hasher.write(text);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a host. Dropping this value removes them.
    struct Host(std::path::PathBuf);

    impl Host {
        fn new(name: &str) -> Self {
            let name = format!("transom-guid-{}-{name}", std::process::id());
            Self(Path::new("/tmp").join(name))
        }

        fn with(self, path: &str, text: &str) -> Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("our own folder");
            fs::write(path, text).expect("our own file");
            self
        }

        fn guid(&self) -> u64 {
            from_identity(identity(&self.0), &[])
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MACHINE: &str = "0123456789abcdef0123456789abcdef\n";

    fn booted(name: &str) -> Host {
        let boot = "5b1a0f1e-3a56-4b7e-9f55-8a4d3f6a0001\n";
        Host::new(name).with("proc/sys/kernel/random/boot_id", boot)
    }

    /// The expected value must never change.
    #[test]
    fn a_host_keeps_its_guid() {
        let host = Host::new("keeps").with("etc/machine-id", MACHINE);
        assert_eq!(host.guid(), 0x425d_7f65_d3f8_582e);
        // Whatever else it has.
        let more = booted("more").with("var/lib/dbus/machine-id", MACHINE);
        assert_eq!(more.guid(), host.guid());
    }

    /// Numbers of namespaces are the same on all hosts, and those of devices in all namespaces.
    /// Rules: DEVS-03
    #[test]
    fn devices_differ_in_a_namespace_on_a_host_and_between_hosts() {
        let of_namespace = |host, number| [0, 1, 2].map(|device| of_device(host, number, device));
        let hosts = [1, 2].map(|host| [1, 2].map(|number| of_namespace(host, number)).concat());
        let all = hosts.concat().into_iter().chain([1, 2].map(|host| from_identity(host, &[])));
        let guids: std::collections::BTreeSet<u64> = all.collect();
        assert_eq!(guids.len(), 14);
        assert!(guids.iter().all(|guid| guid >> 56 & 3 == 2));
    }

    #[test]
    fn hosts_differ_by_whatever_tells_them_apart() {
        let nic = |host: Host, mac: &str| {
            host.with("sys/class/net/eth0/address", mac).with("sys/class/net/eth0/type", "1\n")
        };
        let hosts = [
            Host::new("a").with("etc/machine-id", MACHINE),
            Host::new("b").with("etc/machine-id", "0123456789abcdef0123456789abcdee\n"),
            nic(booted("c"), "00:1b:21:00:00:01\n"),
            nic(booted("d"), "00:1b:21:00:00:02\n"),
            booted("e"),
            Host::new("f").with("proc/sys/kernel/hostname", "one\n"),
            Host::new("g").with("proc/sys/kernel/hostname", "other\n"),
        ];
        let guids: std::collections::BTreeSet<u64> = hosts.iter().map(Host::guid).collect();
        assert_eq!(guids.len(), hosts.len());
        for guid in guids {
            assert_eq!(guid >> 56 & 3, 2, "an EUI-64 assigned locally: {guid:016x}");
        }
    }

    /// Images contain such files, and containers have such addresses.
    #[test]
    fn what_tells_no_host_from_another_is_passed_over() {
        let alone = booted("alone").guid();
        for text in ["", "uninitialized\n", "00000000000000000000000000000000\n", "0123\n"] {
            assert_eq!(booted("image").with("etc/machine-id", text).guid(), alone, "{text}");
        }
        for mac in ["02:42:ac:11:00:02\n", "00:00:00:00:00:00\n", "01:00:5e:00:00:01\n", "\n"] {
            let host = booted("container").with("sys/class/net/eth0/address", mac);
            let host = host.with("sys/class/net/eth0/type", "1\n");
            assert_eq!(host.guid(), alone, "{mac}");
        }
    }
}
