//! The GID table.

use std::net::IpAddr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transom_system::addresses::{Addresses, Changes, gid, path_mtu};

use crate::namespace::{in_namespace, ip};

fn texts(addresses: &Addresses) -> Vec<String> {
    let text =
        |(_, address): (usize, &transom_system::addresses::Address)| address.ip().to_string();
    addresses.iter().map(text).collect()
}

/// The next change, which must come.
fn change(addresses: &mut Addresses) -> Changes {
    loop {
        let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
        let mut events = [PollFd::from_borrowed_fd(addresses.descriptor(), PollFlags::IN)];
        let told = poll(&mut events, Some(&timeout)).expect("poll");
        assert_eq!(told, 1, "nothing was told");
        let changes = addresses.refresh().expect("a list");
        if !changes.is_empty() {
            return changes;
        }
    }
}

/// Rules: NET-08
#[test]
fn the_table_has_the_network_alone_and_ipv4_before_ipv6() {
    in_namespace("addresses::the_table_has_the_network_alone_and_ipv4_before_ipv6", || {
        let addresses = Addresses::read().expect("a list");
        assert_eq!(texts(&addresses), ["127.0.0.1", "::1"]);
        assert_eq!(addresses.path_mtu(), 4096);
        assert!(!addresses.has_network());

        ip("link add near type veth peer name far");
        ip("link set near addrgenmode none up");
        ip("link set far addrgenmode none up");
        ip("address add fd00::7/64 dev near nodad");
        ip("address add 10.9.0.1/24 dev near");
        ip("address add 10.9.0.2/24 dev far");
        // On two interfaces, and on one that is down.
        ip("address add 10.9.0.1/24 dev far");
        ip("link add idle type veth peer name other");
        ip("address add 10.9.0.3/24 dev idle");
        let addresses = Addresses::read().expect("a list");
        let mut expected = ["10.9.0.1", "10.9.0.2", "fd00::7"];
        let mut found = texts(&addresses);
        // Which of the pair's two ends comes first is the kernel's choice.
        expected[..2].sort_unstable();
        found[..2].sort_unstable();
        assert_eq!(found, expected);
        assert!(addresses.has_network());
        assert_eq!(addresses.path_mtu(), 1024);
        let mapped = gid("10.9.0.2".parse::<IpAddr>().expect("an address"));
        let index = addresses.index_of(&mapped).expect("it is there");
        let address = addresses.get(index).expect("it is there");
        assert_eq!((address.mtu, address.loopback, address.path_mtu()), (1500, false, 1024));
        assert!(addresses.table().len() == 3 && addresses.get(3).is_none());
    });
}

#[test]
fn changes_are_told_and_leave_the_others_where_they_are() {
    in_namespace("addresses::changes_are_told_and_leave_the_others_where_they_are", || {
        let mut addresses = Addresses::read().expect("a list");
        assert!(addresses.refresh().expect("a list").is_empty());

        ip("link add near type veth peer name far");
        ip("address add 10.9.0.1/24 dev near");
        ip("link set near addrgenmode none up");
        ip("link set far addrgenmode none up");
        let came = Changes {
            removed: vec![0, 1],
            added: vec![0],
            network: Some(true),
            ..Changes::default()
        };
        assert_eq!(change(&mut addresses), came);
        assert_eq!(texts(&addresses), ["10.9.0.1"]);

        ip("address add fd00::7/64 dev near nodad");
        assert_eq!(change(&mut addresses), Changes { added: vec![1], ..Changes::default() });

        ip("address del 10.9.0.1/24 dev near");
        assert_eq!(change(&mut addresses), Changes { removed: vec![0], ..Changes::default() });
        assert_eq!(texts(&addresses), ["fd00::7"]);
        assert!(addresses.get(0).is_none() && addresses.get(1).is_some());

        ip("address add 10.9.0.4/24 dev near");
        assert_eq!(change(&mut addresses), Changes { added: vec![0], ..Changes::default() });

        // One that is on both for a moment moves once, at whichever of the two.
        for (to, from) in [("far", "near"), ("near", "far")] {
            ip(&format!("address add 10.9.0.4/24 dev {to}"));
            ip(&format!("address del 10.9.0.4/24 dev {from}"));
            let hardware = vec!["10.9.0.4".parse().expect("an address")];
            let moved = Changes { moved: true, hardware, ..Changes::default() };
            assert_eq!(change(&mut addresses), moved);
        }
        ip("link set near address 02:00:00:00:00:09");
        let hardware = ["10.9.0.4", "fd00::7"].map(|ip| ip.parse().expect("an address"));
        let changed = change(&mut addresses);
        assert_eq!(changed, Changes { hardware: hardware.into(), ..Changes::default() });

        ip("link set near mtu 9000");
        assert_eq!(change(&mut addresses), Changes { mtu: true, ..Changes::default() });
        assert_eq!(addresses.path_mtu(), 4096);

        ip("link del near");
        let mut went = change(&mut addresses);
        while went.network.is_none() {
            went.removed.extend(change(&mut addresses).removed);
            went.network = (!addresses.has_network()).then_some(false);
        }
        went.removed.sort_unstable();
        assert_eq!((went.removed, went.network), (vec![0, 1], Some(false)));
    });
}

/// Rules: PK-11
#[test]
fn the_path_mtu_leaves_room_for_all_headers() {
    let expected = [(1500, 1024), (4200, 4096), (65_536, 4096), (2136, 2048), (2135, 1024)];
    for (mtu, path) in expected.into_iter().chain([(600, 512), (599, 256), (0, 256)]) {
        assert_eq!(path_mtu(mtu), path, "{mtu}");
    }
}
