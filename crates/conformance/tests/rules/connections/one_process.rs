//! Connections of a process with itself.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_conformance::connections::*;
use transom_conformance::harness::until;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_system::addresses::Addresses;
use transom_system::registry::connections::{ClaimedPort, Connections};
use transom_system::registry::{ConnectionFault, Registry};

/// Rules: CM-03, CM-32, CM-33, CM-35
#[test]
fn a_process_connects_to_itself() {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let active = file.id();
    file.resolve(active, &address.to_string());
    assert_eq!(file.addresses(active)[1], Some(address));
    let [here, there] = qpns();
    file.connect(active, here, b"asks").expect("asked");
    let request = file.expect_request();
    assert_eq!(private_data(&request), [&b"asks"[..], &[0; 52]].concat());
    // SAFETY: of a connection.
    let offered = unsafe { request.param.conn };
    assert_eq!(offered.qp_num, here);
    assert_eq!((offered.responder_resources, offered.initiator_depth), (2, 4));
    let passive = Id(request.id);
    assert_eq!(file.addresses(passive), [Some(address), file.addresses(active)[0]]);
    file.accept(passive, 2, there, b"accepts").expect("accepted");
    let response = file.expect(event::CONNECT_RESPONSE, active);
    assert_eq!(private_data(&response)[..8], *b"accepts\0");
    assert_eq!(private_data(&response).len(), 196);
    file.establish(active).expect("established");
    assert_eq!(file.expect(event::ESTABLISHED, passive).uid, 2);
    file.part([active, passive]);
    let exits = [file.event(), file.event()].map(|event| event.event);
    assert_eq!(exits, [event::TIMEWAIT_EXIT; 2]);
    assert_eq!(file.destroy(active), Ok(5));
    assert_eq!(file.destroy(passive), Ok(3));
    assert_eq!(file.destroy(listener), Ok(1));
    assert_eq!(file.destroy(listener), Err(libc::ENOENT));
}

/// Debian gives a host's own name 127.0.1.1.
///
/// Rules: CM-21, CM-67
#[test]
fn a_listener_at_loopback_is_reached_by_each_address_of_its_host() {
    alone(
        path_of!("a_listener_at_loopback_is_reached_by_each_address_of_its_host"),
        Way::Namespace,
        || {
            interfaces_up();
            let file = File::open();
            for own in ["127.0.0.1", "127.0.1.1", "[::1]"] {
                let listener = file.listener(&format!("{own}:0"));
                let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
                assert_eq!(format!("{own}:{}", address.port()), address.to_string());
                for there in ["127.0.0.1", "127.0.1.1", "10.9.0.1"] {
                    let active = file.id();
                    file.resolve(active, &format!("{there}:{}", address.port()));
                    file.connect(active, qpns()[0], &[]).expect("asked");
                    let passive = file.request();
                    let [Some(reached), Some(_)] = file.addresses(passive) else { panic!("both") };
                    assert_eq!(reached.to_string(), format!("{there}:{}", address.port()));
                    file.reject(passive, &[]).expect("refused");
                    assert_eq!(file.expect(event::REJECTED, active).status, 28);
                    for id in [active, passive] {
                        file.destroy(id).expect("destroyed");
                    }
                }
                file.destroy(listener).expect("destroyed");
            }
        },
    );
}

/// Rules: CM-21, CM-33
#[test]
fn nobody_listens() {
    let file = File::open();
    let active = file.id();
    file.resolve(active, "127.0.0.1:7");
    file.connect(active, qpns()[0], &[]).expect("asked");
    assert_eq!(file.expect(event::REJECTED, active).status, 8);
}

/// Rules: CM-56
#[test]
fn a_port_is_told_before_somebody_listens_there() {
    let begun = Instant::now();
    loop {
        let file = File::open();
        let [listener, active] = [file.id(), file.id()];
        file.bind(listener, "127.0.0.1:0").expect("bound");
        let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
        file.resolve(active, &address.to_string());
        let asked = Instant::now();
        file.connect(active, qpns()[0], &[]).expect("asked");
        file.listen(listener, 0).expect("it listens");
        // On a machine that had others run meanwhile the request may have waited long enough.
        if asked.elapsed() < Duration::from_millis(100) {
            file.reject(file.request(), b"no").expect("refused");
            assert_eq!(file.expect(event::REJECTED, active).status, 28);
            break;
        }
        assert!(begun.elapsed() < LIMIT, "this machine is too slow");
    }
    let file = File::open();
    let [bound, active] = [file.id(), file.id()];
    file.bind(bound, "127.0.0.1:0").expect("bound");
    let [Some(address), None] = file.addresses(bound) else { panic!("it is bound") };
    file.resolve(active, &address.to_string());
    file.connect(active, qpns()[0], &[]).expect("asked");
    assert_eq!(file.expect(event::REJECTED, active).status, 8);
}

/// Rules: CM-33
#[test]
fn a_program_refuses_with_data() {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let active = file.id();
    file.resolve(active, &address.to_string());
    file.connect(active, qpns()[0], &[]).expect("asked");
    file.reject(file.request(), b"no").expect("refused");
    let rejected = file.expect(event::REJECTED, active);
    assert_eq!(rejected.status, 28);
    assert_eq!(private_data(&rejected), [&b"no"[..], &[0; 146]].concat());
}

/// Rules: CM-34
#[test]
fn how_queue_pairs_get_ready_is_told() {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let qpns = qpns();
    let [active, passive] = file.connected(&address.to_string(), qpns);
    let [there, here] = [active, passive].map(|id| file.qp_attributes(id, IBV_QPS_RTR).unwrap());
    assert_eq!([here.dest_qp_num, there.dest_qp_num], qpns);
    let sends = [active, passive].map(|id| file.qp_attributes(id, IBV_QPS_RTS).unwrap());
    assert_eq!((there.rq_psn, here.rq_psn), (sends[1].sq_psn, sends[0].sq_psn));
    // As Linux has it, the port's first GID is both ends of a way to itself.
    let addresses = Addresses::read().expect("the addresses of this host");
    let own = addresses.index_of(&there.ah_attr.grh.dgid).expect("it is ours");
    assert_eq!(usize::from(there.ah_attr.grh.sgid_index), own);
    assert_eq!(file.qp_attributes(active, IBV_QPS_ERR).map(drop), Err(libc::EINVAL));
}

/// What is told is exactly what that step of a reliable queue pair has.
/// Rules: CM-10, CM-34
#[test]
fn queue_pairs_are_told_what_their_service_has() {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    // Both ends offer to answer four requests at once and to ask for two: at the active one the REP counts.
    let [active, passive] = file.connected(&address.to_string(), qpns());
    for (id, answers, asks) in [(active, 2, 4), (passive, 4, 2)] {
        let told = |state| file.qp_attributes(id, state).expect("it is connected");
        for (state, also) in [
            (IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            (
                IBV_QPS_RTR,
                IBV_QP_AV
                    | IBV_QP_PATH_MTU
                    | IBV_QP_DEST_QPN
                    | IBV_QP_RQ_PSN
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_MIN_RNR_TIMER,
            ),
            (
                IBV_QPS_RTS,
                IBV_QP_SQ_PSN
                    | IBV_QP_TIMEOUT
                    | IBV_QP_RETRY_CNT
                    | IBV_QP_RNR_RETRY
                    | IBV_QP_MAX_QP_RD_ATOMIC,
            ),
        ] {
            let attributes = told(state);
            assert_eq!(attributes.qp_attr_mask, IBV_QP_STATE | also, "{state}");
            assert_eq!(attributes.qp_state, state);
        }
        let init = told(IBV_QPS_INIT);
        let access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        assert_eq!(init.qp_access_flags & access, access);
        assert_eq!((init.port_num, init.pkey_index), (1, 0));
        let ready = told(IBV_QPS_RTR);
        assert_eq!((ready.min_rnr_timer, ready.max_dest_rd_atomic), (0, answers));
        let addresses = Addresses::read().expect("the addresses of this host");
        let (_, own) = addresses.own().expect("there is one");
        assert_eq!(128 << ready.path_mtu, own.path_mtu());
        let sends = told(IBV_QPS_RTS);
        assert_eq!((sends.retry_cnt, sends.rnr_retry, sends.max_rd_atomic), (7, 7, asks));
    }
}

/// What programs see of a path is what their connection has: before it as the options say, then as the request does.
///
/// Rules: CM-34, CM-38
#[test]
fn paths_are_told_as_connections_have_them() {
    const TOS: (u32, u32) = (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS);
    const ACK_TIMEOUT: (u32, u32) = (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT);
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let active = file.id();
    file.set_option(active, TOS, &[0x68_u8]).expect("set");
    file.set_option(active, ACK_TIMEOUT, &[20_u8]).expect("set");
    file.resolve(active, &address.to_string());
    let before = file.path(active);
    file.connect(active, qpns()[0], &[]).expect("asked");
    let passive = file.request();
    file.set_option(passive, ACK_TIMEOUT, &[9_u8]).expect("set");
    let [Some(source), Some(_)] = file.addresses(active) else { panic!("both") };
    let flow_label = u32::from(source.port()) * 31 + u32::from(address.port());
    let mtu = file.qp_attributes(passive, IBV_QPS_RTR).expect("asked").path_mtu;
    for record in [before, file.path(active), file.path(passive)] {
        assert_eq!(u32::from_be(record.flowlabel_hoplimit), flow_label << 8 & 0xfff_ffff | 64);
        assert_eq!((record.tclass, u32::from(record.mtu & 0x3f)), (0x68, mtu));
        assert_eq!(record.packetlifetime & 0x3f, 19);
    }
    for id in [active, passive] {
        let record = file.route(id);
        assert_eq!(u32::from_be(record.flow_label), flow_label & 0xf_ffff);
        assert_eq!((record.traffic_class, record.mtu), (0x68, mtu));
        assert_eq!((record.hop_limit, record.packet_life_time), (64, 19));
    }
    assert_eq!(file.qp_attributes(passive, IBV_QPS_RTS).expect("asked").timeout, 9);
}

/// Rules: CM-38
#[test]
fn a_list_of_paths_has_one_that_a_connection_takes() {
    const PATHS: (u32, u32) = (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH);
    let file = File::open();
    let id = file.id();
    file.resolve_address(id, "127.0.0.1:9").expect("an address");
    file.expect(event::ADDR_RESOLVED, id);
    let primary = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    let path = |flags| ib_path_rec_data { flags, ..ib_path_rec_data::default() };
    let others = [path(0), path(primary | IBV_PATH_FLAG_ALTERNATE), path(IBV_PATH_FLAG_PRIMARY)];
    for refused in [&others[..], &others[..1], &[]] {
        assert_eq!(file.set_option(id, PATHS, refused), Err(libc::EINVAL));
    }
    assert_eq!(file.set_option(id, PATHS, &[0_u8; 71]), Err(libc::EINVAL));
    file.set_option(id, PATHS, &[others[1], path(primary), others[0]]).expect("set");
    file.expect(event::ROUTE_RESOLVED, id);
}

/// Rules: CM-33
#[test]
fn who_has_no_route_learns_it_at_once() {
    // In a namespace whose only network is 10.9.0.0/24.
    alone(path_of!("who_has_no_route_learns_it_at_once"), Way::Namespace, || {
        interfaces_up();
        let file = File::open();
        let id = file.id();
        assert_eq!(file.resolve_address(id, "203.0.113.9:9"), Err(libc::ENETUNREACH));
        let [Some(bound), _] = file.addresses(id) else { panic!("it is bound") };
        assert_eq!(file.try_event().map(drop), Err(libc::EAGAIN));
        file.resolve(id, "10.9.0.1:9");
        assert_eq!(file.addresses(id)[0].map(|own| own.port()), Some(bound.port()));
    });
}

/// Rules: CM-36, CM-38
#[test]
fn options_that_are_set_after_the_address_count_for_others() {
    const REUSE: (u32, u32) = (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR);
    const ONLY: (u32, u32) = (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY);
    let file = File::open();
    let [one, other, six, four] = std::array::from_fn(|_| file.id());
    file.bind(one, "127.0.0.1:0").expect("bound");
    let [Some(address), None] = file.addresses(one) else { panic!("it is bound") };
    file.set_option(other, REUSE, &[1_u32]).expect("set");
    assert_eq!(file.bind(other, &address.to_string()), Err(libc::EADDRNOTAVAIL));
    file.set_option(one, REUSE, &[1_u32]).expect("set");
    file.bind(other, &address.to_string()).expect("bound");
    file.bind(six, "[::]:0").expect("bound");
    let [Some(address), None] = file.addresses(six) else { panic!("it is bound") };
    let any = format!("0.0.0.0:{}", address.port());
    assert_eq!(file.bind(four, &any), Err(libc::EADDRNOTAVAIL));
    file.set_option(six, ONLY, &[1_u32]).expect("set");
    file.bind(four, &any).expect("bound");
}

/// Everybody finds out why a connection did not come about, and who listens.
#[test]
fn what_does_not_connect_is_explained() {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let registry = Registry::open().expect("the registry");
    let table = Connections::look(registry).expect("it can be read").expect("it is there");
    let listens = |it: &ClaimedPort| it.listens && it.claim.address == address;
    let owner = table.lock().unwrap().all_ports().into_iter().find(listens).expect("it is").owner;
    let active = file.id();
    file.resolve(active, &address.to_string());
    file.connect(active, qpns()[0], &[]).expect("asked");
    file.reject(file.request(), b"go away").expect("refused");
    file.expect(event::REJECTED, active);
    let told = registry.unconnected(owner.slot);
    let of_it = told.iter().find(|record| record.destination == address).expect("it is told");
    assert_eq!((of_it.fault, of_it.code), (ConnectionFault::Rejected, 28));
    let sentence = of_it.to_string();
    assert!(
        sentence.contains(": its program refuses (rdma_reject). It says \"go away\""),
        "{of_it}"
    );
    let [served, asks] = [file.datagram_id(), file.datagram_id()];
    file.bind(served, "127.0.0.1:0").expect("bound");
    file.listen(served, 0).expect("it listens");
    let [Some(address), None] = file.addresses(served) else { panic!("it is bound") };
    file.resolve(asks, &address.to_string());
    file.connect(asks, qpns()[0], &[]).expect("asked");
    file.reject(file.request(), b"closed today").expect("refused");
    assert_eq!(file.expect(event::UNREACHABLE, asks).status, 2);
    let told = registry.unconnected(owner.slot);
    let of_it = told.iter().find(|record| record.destination == address).expect("it is told");
    let sentence = of_it.to_string();
    assert!(sentence.ends_with("its program refuses. It says \"closed today\""), "{sentence}");
    let active = file.id();
    file.resolve(active, "127.0.0.1:9");
    file.connect(active, qpns()[0], &[]).expect("asked");
    file.expect(event::REJECTED, active);
    let told = registry.unconnected(owner.slot);
    let of_it = told.iter().find(|it| it.destination.port() == 9).expect("it is told");
    assert!(of_it.to_string().contains("nobody listens"), "{of_it}");
}

/// A port in the wrong byte order, an address that the listener does not have, an id that is destroyed: each is told
/// apart where both ends are on this host, and at both ends.
/// Rules: CM-21, CM-28
#[test]
fn what_is_refused_says_which_usual_mistake_it_is() {
    // Where nobody else listens.
    alone(path_of!("what_is_refused_says_which_usual_mistake_it_is"), Way::Namespace, || {
        ip("link set lo up");
        ip("address add 10.77.0.1/32 dev lo");
        ip("address add 10.77.0.2/32 dev lo");
        let file = File::open();
        file.listener("10.77.0.1:7471");
        let refused = |to: &str| {
            let active = file.id();
            file.resolve(active, to);
            file.connect(active, qpns()[0], &[]).expect("asked");
            active
        };
        let told = |to: &str| {
            let registry = Registry::open().expect("the registry");
            let to: SocketAddr = to.parse().expect("an address");
            let all: Vec<_> = (0..=u8::MAX).flat_map(|slot| registry.unconnected(slot)).collect();
            let of_it = all.iter().filter(|record| record.destination == to);
            of_it.map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let has = |to: &str, words: &[&str]| {
            let told = told(to);
            assert!(words.iter().all(|words| told.contains(words)), "{told}");
        };
        file.expect(event::REJECTED, refused("10.77.0.1:12061"));
        let swapped = "; that is 7471 in the other byte order, on which somebody listens";
        let [at_active, at_passive] =
            ["nobody listens on port 12061 there", "asked for port 12061"];
        has("10.77.0.1:12061", &[&format!("{at_active}{swapped}"), at_passive, swapped]);
        // Both ends tell of it by the same addresses, whatever those of the packets are.
        let all = || {
            let registry = Registry::open().expect("the registry");
            let all = (0..=u8::MAX).flat_map(|slot| registry.unconnected(slot));
            all.filter(|record| record.destination.port() == 7473).collect::<Vec<_>>()
        };
        let of = |fault| {
            let all = all().into_iter().filter(|record| record.fault == fault);
            all.map(|it| (it.source, it.destination)).collect::<Vec<_>>()
        };
        // Not every one is told at the listener.
        let ends = until("the listener tells of one", || {
            file.expect(event::REJECTED, refused("127.0.0.1:7473"));
            of(ConnectionFault::Refused).pop()
        });
        assert!(of(ConnectionFault::Rejected).contains(&ends), "{ends:?}: {:?}", all());
        file.expect(event::REJECTED, refused("10.77.0.1:7400"));
        has("10.77.0.1:7400", &["there; the nearest port that somebody listens on is 7471"]);
        file.expect(event::REJECTED, refused("10.77.0.2:7471"));
        // The second of two refusals within a tenth of a second is not told at the listener.
        has("10.77.0.2:7471", &["for reason 28: it listens at 10.77.0.1 only"]);
        let active = refused("10.77.0.1:7471");
        file.destroy(file.request()).expect("destroyed");
        file.expect(event::REJECTED, active);
        has("10.77.0.1:7471", &["its program has destroyed the id of the request"]);
    });
}

/// What comes next by the number of a file whose program has closed the descriptor itself has none of its ids, and
/// their ports are free, as where the kernel has the file.
#[test]
fn ids_of_a_descriptor_that_its_program_closes_are_not_those_of_the_next() {
    let name = path_of!("ids_of_a_descriptor_that_its_program_closes_are_not_those_of_the_next");
    // Nobody else is to open something by that number.
    alone(name, Way::Direct, || {
        let closed = ManuallyDrop::new(File::open());
        let listener = closed.listener("127.0.0.1:0");
        let [Some(address), None] = closed.addresses(listener) else { panic!("it is bound") };
        // SAFETY: it is this test's own, and nothing reads it any more.
        assert_eq!(unsafe { libc::close(closed.0) }, 0);
        let mut others = Vec::new();
        let file = until("the number again", || {
            others.push(File::open());
            others.pop_if(|file| file.0 == closed.0)
        });
        assert_eq!(file.destroy(listener), Err(libc::ENOENT));
        file.bind(file.id(), &address.to_string()).expect("the port is free");
    });
}

/// Each time that an id joins a group is a membership with an event of its own, whether it has joined it before.
///
/// Rules: CM-52
#[test]
fn a_group_that_is_joined_many_times_has_as_many_events() {
    let file = File::open();
    let id = file.datagram_id();
    file.bind(id, "127.0.0.1:0").expect("bound");
    let uids = 10..20;
    let join = |uid| file.join(id, uid, "239.1.2.3:0").expect("joined");
    let numbers: Vec<Id> = uids.clone().map(join).collect();
    for (uid, number) in uids.zip(&numbers) {
        assert_eq!(file.expect(event::MULTICAST_JOIN, *number).uid, uid);
    }
    // Each number tells the device too.
    assert_eq!(file.leave(Id(numbers[0].0 ^ 1 << 24)), Err(libc::ENOENT));
    for number in numbers {
        assert_eq!(file.leave(number), Ok(1));
    }
    assert_eq!(file.destroy(id), Ok(10));
}

/// Neither descriptors nor ids are left over of many connections.
#[test]
fn many_connections_leave_nothing_behind() {
    // In a namespace without other processes, whose ends would be watched.
    alone(path_of!("many_connections_leave_nothing_behind"), Way::Network, || {
        let file = File::open();
        let listener = file.listener("127.0.0.1:0");
        let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
        let connect_and_part = || {
            let [active, passive] = file.connected(&address.to_string(), qpns());
            file.disconnect(active).expect("asked");
            file.expect(event::DISCONNECTED, passive);
            assert_eq!((file.destroy(passive), file.destroy(active)), (Ok(2), Ok(3)));
        };
        let descriptors = || std::fs::read_dir("/proc/self/fd").expect("they are listed").count();
        let table = Connections::look(Registry::open().expect("the registry"));
        let table = table.expect("it can be read").expect("it is there");
        connect_and_part();
        let before = descriptors();
        let rounds = if is_long() { 100_000 } else { 1_000 };
        (0..rounds).for_each(|_| connect_and_part());
        assert_eq!(descriptors(), before);
        let mut table = table.lock().expect("it is ours");
        let (ports, connections) = (table.all_ports(), table.all_connections());
        let of_listener = |it: &&ClaimedPort| it.claim.id.0 == listener.0;
        let me = ports.iter().find(of_listener).expect("it listens").owner;
        assert_eq!(ports.iter().filter(|it| it.owner == me).count(), 1);
        assert_eq!(connections.iter().filter(|(owner, _)| *owner == me).count(), 0);
        assert_eq!(file.try_event().map(drop), Err(libc::EAGAIN));
    });
}
