//! Addresses come and go while a device is open: what programs are told, and what the port then says.

use std::net::{Ipv4Addr, Ipv6Addr};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::extended::verbs;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, ip};
use transom_conformance::queues::number;
use transom_host::{Adapter, Options};
use transom_ibverbs::*;
use transom_system::addresses::gid;

/// Two contexts of one device, in a namespace with a network interface that is up and has no address.
struct Contexts([End; 2]);

impl Contexts {
    fn new() -> Self {
        // Without link-local addresses, also once an interface has IPv6 again, which takes an MTU of 1280.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1");
        ip("link add near type veth peer name far");
        for name in ["near", "far"] {
            ip(&format!("link set {name} addrgenmode none up"));
        }
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        Self([adapter.clone(), adapter].map(End::of_device))
    }

    /// Both contexts are told these events of the port, in this order, and no others.
    #[track_caller]
    fn tells(&self, events: &[ibv_event_type]) {
        for end in &self.0 {
            for event in events {
                assert_eq!(next_event(end), (*event, 1));
            }
            assert!(!end.has_event());
        }
    }

    fn port(&self) -> ibv_port_attr {
        let (context, mut port) = (self.0[0].context, ibv_port_attr::default());
        let query_port = verbs(context).query_port.expect("there");
        // SAFETY: an open context and a struct of this size.
        assert_eq!(unsafe { query_port(context, 1, &mut port, size_of::<ibv_port_attr>()) }, 0);
        port
    }
}

/// Waits for the next event: its kind, and the port it names.
fn next_event(end: &End) -> (ibv_event_type, i32) {
    until("an event", || end.has_event().then_some(()));
    let mut event = ibv_async_event::default();
    // SAFETY: the context is open; an event of a port has a port's number.
    unsafe {
        assert_eq!(ibv_get_async_event(end.context, &mut event), 0);
        ibv_ack_async_event(&mut event);
        (event.event_type, event.element.port_num)
    }
}

/// An address that comes or goes changes the GID table. With the first one that others reach the port
/// is active, with the last one it goes down. Every context is told.
/// Rules: AE-05
#[test]
fn contexts_are_told_of_addresses() {
    alone(path_of!("contexts_are_told_of_addresses"), Way::Namespace, || {
        let contexts = Contexts::new();
        contexts.tells(&[]);
        assert_eq!(contexts.port().state, IBV_PORT_ACTIVE, "for this host itself");
        for _ in 0..2 {
            ip("address add 10.9.0.1/24 dev near");
            contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE]);
            assert_eq!(contexts.port().state, IBV_PORT_ACTIVE);
            ip("address add 10.8.0.1/24 dev near");
            contexts.tells(&[IBV_EVENT_GID_CHANGE]);
            ip("address del 10.9.0.1/24 dev near");
            contexts.tells(&[IBV_EVENT_GID_CHANGE]);
            ip("address del 10.8.0.1/24 dev near");
            contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ERR]);
            assert_eq!(contexts.port().state, IBV_PORT_DOWN);
        }
        // An interface that goes down takes its addresses along.
        ip("address add 10.9.0.1/24 dev near");
        contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE]);
        ip("link set near down");
        contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ERR]);
        ip("link set near up");
        contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE]);
    });
}

/// A host that gets its network late: a queue pair that waits for datagrams, and is in groups, hears
/// them all the same.
/// Rules: AE-05, UD-07
#[test]
fn groups_and_datagrams_come_by_addresses_that_come_later() {
    alone(
        path_of!("groups_and_datagrams_come_by_addresses_that_come_later"),
        Way::Namespace,
        || {
            let contexts = Contexts::new();
            let qp = ud_qp(&contexts.0[0]);
            let groups = ["::ffff:239.9.0.1", "ff0e::9"].map(|group| {
                let group: Ipv6Addr = group.parse().expect("an address");
                ibv_gid { raw: group.octets() }
            });
            for group in &groups {
                // SAFETY: a queue pair of this test.
                assert_eq!(unsafe { ibv_attach_mcast(qp, group, 0) }, 0);
            }
            let joined =
                || [joined("igmp", "010009EF"), joined("igmp6", &format!("ff0e{:028x}", 9))];
            assert_eq!(joined(), [false, false]);
            ip("address add 10.9.0.1/24 dev near");
            contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE]);
            assert_eq!(joined(), [true, false]);
            ip("address add fd99::1/64 dev near nodad");
            contexts.tells(&[IBV_EVENT_GID_CHANGE]);
            assert_eq!(joined(), [true, true]);
            // SAFETY: as above.
            assert_eq!(unsafe { ibv_detach_mcast(qp, &groups[0], 0) }, 0);
            assert_eq!(joined(), [false, true]);
            // SAFETY: as above.
            assert_eq!(unsafe { ibv_detach_mcast(qp, &groups[1], 0) }, 0);
            assert_eq!(joined(), [false, false]);
        },
    );
}

/// The kernel lets one socket join 20 groups of IPv4. A further one is refused, and not left without its datagrams.
/// Rules: UD-07
#[test]
fn a_group_that_the_kernel_has_no_room_for_is_refused() {
    let path = path_of!("a_group_that_the_kernel_has_no_room_for_is_refused");
    alone(path, Way::Namespace, || {
        let contexts = Contexts::new();
        ip("address add 10.9.0.1/24 dev near");
        contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE]);
        let most = std::fs::read_to_string("/proc/sys/net/ipv4/igmp_max_memberships");
        let most: u8 = most.expect("a limit").trim().parse().expect("a number");
        let qp = ud_qp(&contexts.0[0]);
        let attach = |number: u8| {
            let raw = Ipv4Addr::new(239, 9, 0, number).to_ipv6_mapped().octets();
            // SAFETY: a queue pair of this test.
            unsafe { ibv_attach_mcast(qp, &ibv_gid { raw }, 0) }
        };
        let joined = |number: u8| joined("igmp", &format!("{number:02X}0009EF"));
        assert!((0..most).all(|number| attach(number) == 0 && joined(number)));
        assert_eq!((attach(most), joined(most)), (libc::ENOMEM, false));
        // On a second network none has room. That is in the way of no further member, nor of groups of IPv6.
        ip("address add 10.8.0.1/24 dev far");
        contexts.tells(&[IBV_EVENT_GID_CHANGE]);
        ip("address add fd99::1/64 dev near nodad");
        contexts.tells(&[IBV_EVENT_GID_CHANGE]);
        let member = ud_qp(&contexts.0[0]);
        let other: Ipv6Addr = "ff0e::9".parse().expect("an address");
        let raw = other.octets();
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_attach_mcast(member, &ibv_gid { raw }, 0) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_detach_mcast(member, &ibv_gid { raw }, 0) }, 0);
        ip("address del fd99::1/64 dev near");
        contexts.tells(&[IBV_EVENT_GID_CHANGE]);
        let raw = Ipv4Addr::new(239, 9, 0, 1).to_ipv6_mapped().octets();
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_attach_mcast(member, &ibv_gid { raw }, 0) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_detach_mcast(member, &ibv_gid { raw }, 0) }, 0);
        ip("address del 10.8.0.1/24 dev far");
        contexts.tells(&[IBV_EVENT_GID_CHANGE]);
        // An address that goes takes no membership along, and leaves none behind.
        ip("address del 10.9.0.1/24 dev near");
        contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ERR]);
        let raw = Ipv4Addr::new(239, 9, 0, 0).to_ipv6_mapped().octets();
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_detach_mcast(qp, &ibv_gid { raw }, 0) }, 0);
        assert!(!joined(0));
        assert_eq!((attach(most), attach(0)), (0, 0), "there is no network");
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_destroy_qp(qp) }, libc::EBUSY);
    });
}

/// Whether the kernel has joined a group, as it writes it in one of its lists.
fn joined(list: &str, group: &str) -> bool {
    let list = std::fs::read_to_string(format!("/proc/self/net/{list}")).expect("a list");
    list.contains(group)
}

/// The port's MTU is the largest of InfiniBand whose packets the interface carries with all headers.
/// Rules: PK-11
#[test]
fn the_active_mtu_follows_the_interface() {
    alone(path_of!("the_active_mtu_follows_the_interface"), Way::Namespace, || {
        let contexts = Contexts::new();
        assert_eq!(contexts.port().active_mtu, IBV_MTU_4096, "of the loopback interface");
        ip("address add 10.9.0.1/24 dev near");
        for (mtu, active) in [
            (1500, IBV_MTU_1024),
            (4200, IBV_MTU_4096),
            (4096, IBV_MTU_2048),
            (9000, IBV_MTU_4096),
            (1024, IBV_MTU_512),
            (512, IBV_MTU_256),
            (1500, IBV_MTU_1024),
        ] {
            ip(&format!("link set near mtu {mtu}"));
            until("the MTU", || (contexts.port().active_mtu == active).then_some(()));
        }
        contexts.tells(&[IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE]);
    });
}

/// A datagram is as long as a packet on the way to its destination may be: that of the network that its
/// source address is on, and 4096 bytes where no network is under it. The port's MTU is that of the
/// first network.
/// Rules: UD-03, PK-11
#[test]
fn the_way_to_its_destination_limits_a_datagram() {
    alone(path_of!("the_way_to_its_destination_limits_a_datagram"), Way::Namespace, || {
        ip("link set lo up");
        for (name, address, mtu) in [("near", "10.9.0.1", 1500), ("wide", "10.8.0.1", 9000)] {
            ip(&format!("link add {name} type veth peer name {name}-far"));
            ip(&format!("link set {name}-far up mtu 9000"));
            ip(&format!("link set {name} up mtu {mtu}"));
            ip(&format!("address add {address}/24 dev {name}"));
        }
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        let end = End::of_device(adapter.clone());
        let contexts = Contexts([End::of_device(adapter.clone()), end]);
        let end = &contexts.0[1];
        let first = adapter.device().port().addresses().get(0).expect("an address").path_mtu();
        assert_eq!(128 << contexts.port().active_mtu, first);
        let qp = ud_qp(end);
        let memory = Buffer::filled(3 * 4096, 5);
        let region = end.reg(&memory, ALL);
        for (to, from, longest) in [
            ("10.9.0.2", "10.9.0.1", 1024),
            ("10.8.0.2", "10.8.0.1", 4096),
            ("239.9.0.1", "10.9.0.1", 1024),
            ("239.9.0.1", "10.8.0.1", 4096),
            ("10.9.0.1", "10.9.0.1", 4096),
            ("127.0.0.1", "10.9.0.1", 4096),
        ] {
            let [destination, from] = [to, from].map(|it| gid(it.parse().expect("an address")));
            let mut attr = to_gid(destination);
            let index = adapter.device().port().addresses().index_of(&from).expect("it is ours");
            attr.grh.sgid_index = index as u8;
            let ah = ah(end.pd, &attr);
            let group = to.starts_with("239");
            let number = if group { 0xff_ffff } else { number(qp) };
            let post = |length: u32| {
                let mut sges = [sge(memory.addr(), length, region)];
                let request = with_sges(wr(IBV_WR_SEND), &mut sges);
                post(qp, &mut addressed(request, ah, number, QKEY));
            };
            post(longest + 1);
            assert_eq!(end.expect(IBV_WC_LOC_LEN_ERR).wr_id, 1, "{to}");
            assert_eq!(set_state(qp, IBV_QPS_RTS), 0);
            let here = !group && adapter.device().port().is_here(&destination);
            if here {
                let mut room = [sge(memory.addr() + 4096, 2 * 4096, region)];
                recv(qp, 2, &mut room);
            }
            post(longest);
            let mut ended: Vec<_> = (0..1 + usize::from(here)).map(|_| end.wait()).collect();
            ended.sort_by_key(|wc| wc.wr_id);
            assert!(ended.iter().all(|wc| wc.status == IBV_WC_SUCCESS), "{to}: {ended:?}");
            if here {
                assert_eq!(ended[1].byte_len, GRH as u32 + longest);
            }
        }
    });
}
