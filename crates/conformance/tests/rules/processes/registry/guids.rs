//! The GUIDs of devices and hosts.

use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_ibverbs::ibv_get_device_guid;

use super::*;

#[test]
fn role() {
    play(&[("tells_guids", tells_guids)]);
}

/// Tells the GUID of the device, and that of the system.
fn tells_guids(channel: &mut Channel) {
    let end = open();
    // SAFETY: the context is open.
    let node = unsafe { ibv_get_device_guid((*end.context).device) };
    let told = device_attr(end.context);
    assert_eq!(told.node_guid, node);
    channel.tell(&[u64::from_be(node), u64::from_be(told.sys_image_guid)]);
}

/// The GUIDs that a process behind a wrapper has.
fn guids_behind(wrapper: &[&str]) -> [u64; 2] {
    let mut process = Child::start_under(path_of!("tells_guids"), wrapper);
    let told = process.hear();
    process.finish();
    told
}

/// Peers know connections by the node GUID and numbers that are alike in all network namespaces, so each is a
/// node of its own. The host is one.
///
/// Rules: CM-41
#[test]
fn network_namespaces_of_a_host_have_different_node_guids() {
    in_network(
        path_of!("network_namespaces_of_a_host_have_different_node_guids"),
        &words(&after("true")),
        || {
            let [[node, system], [again, same]] = [(); 2].map(|()| guids_behind(&["env"]));
            assert_eq!((node, system), (again, same), "in one namespace");
            let [other, system_there] = guids_behind(&words(&after("ip link set lo up")));
            assert_eq!(system_there, system);
            let apart = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
            let [apart, system_apart] = guids_behind(&apart);
            assert_eq!(system_apart, system);
            assert_ne!(node, apart);
            assert_eq!(node, other, "other mounts make no other node");
            // An EUI-64 that was assigned locally.
            assert!([node, system, apart].iter().all(|guid| guid >> 56 & 3 == 2));
        },
    );
}

/// Every host has its own, and keeps it: what its machine ID makes of it (machine-id(5)).
#[test]
fn hosts_have_different_guids() {
    in_network(
        path_of!("hosts_have_different_guids"),
        &words(&after("mount -t tmpfs tmpfs /etc")),
        || {
            let guid = |digits: &str| {
                let host = format!("mount -t tmpfs tmpfs /etc && echo {digits} >/etc/machine-id");
                guids_behind(&words(&after(&host)))
            };
            let (one, other) = ("1".repeat(32), "12".repeat(16));
            assert_eq!(guid(&one), guid(&one));
            let ([node, system], [other_node, other_system]) = (guid(&one), guid(&other));
            assert!(node != other_node && system != other_system);
        },
    );
}
