//! Commands that are refused: each with the errno that Linux has for it, and nothing changes.

use std::fs;

use transom_abi::*;
use transom_conformance::connections::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;

/// Rules: CM-36, CM-37, CM-67
#[test]
fn addresses_that_cannot_be_had() {
    alone(path_of!("addresses_that_cannot_be_had"), Way::Namespace, || {
        interfaces_up();
        let file = File::open();
        for (own, shared) in [("10.9.0.1", libc::EADDRINUSE), ("127.0.0.1", libc::EADDRNOTAVAIL)] {
            let id = file.id();
            assert_eq!(file.bind(id, "192.0.2.1:0"), Err(libc::EADDRNOTAVAIL));
            assert_eq!(file.bind(id, "[fe80::192]:0"), Err(libc::EINVAL), "of which interface?");
            assert_eq!(file.bind(id, "[fe80::192%1]:0"), Err(libc::EADDRNOTAVAIL));
            assert_eq!(file.bind(id, &format!("{own}:0")), Ok(()));
            assert_eq!(file.bind(id, &format!("{own}:0")), Err(libc::EINVAL));
            let [Some(address), None] = file.addresses(id) else { panic!("it is bound") };
            assert_eq!(file.bind(file.id(), &address.to_string()), Err(shared));
            // Loopback addresses are wildcards here.
            for any in ["0.0.0.0", "127.0.0.1", "127.0.1.1"].into_iter().filter(|any| *any != own) {
                let any = format!("{any}:{}", address.port());
                assert_eq!(file.bind(file.id(), &any), Err(libc::EADDRNOTAVAIL), "{own}, {any}");
            }
            assert_eq!(file.bind(file.datagram_id(), &address.to_string()), Ok(()));
            assert_eq!(file.destroy(id), Ok(0));
            assert_eq!(file.bind(file.id(), &address.to_string()), Ok(()));
        }
    });
}

/// Rules: CM-37
#[test]
fn ports_run_out() {
    alone(path_of!("ports_run_out"), Way::Namespace, || {
        ip("link set lo up");
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003").expect("it is set");
        let file = File::open();
        let ids = [(); 5].map(|()| file.id());
        let bound = ids.map(|id| file.bind(id, "127.0.0.1:0"));
        assert_eq!(bound[..4], [Ok(()); 4]);
        assert_eq!(bound[4], Err(libc::EADDRNOTAVAIL));
        assert_eq!(file.destroy(ids[2]), Ok(0));
        assert_eq!(file.bind(ids[4], "127.0.0.1:0"), Ok(()));
        assert_eq!(file.bind(file.datagram_id(), "127.0.0.1:0"), Ok(()), "another port space");
    });
}

/// Rules: CM-36, CM-38
#[test]
fn an_ipv6_wildcard_of_a_host_that_wants_it_alone() {
    const ONLY: (u32, u32) = (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY);
    alone(path_of!("an_ipv6_wildcard_of_a_host_that_wants_it_alone"), Way::Namespace, || {
        ip("link set lo up");
        fs::write("/proc/sys/net/ipv6/bindv6only", "1").expect("it is set");
        let file = File::open();
        let six = file.id();
        file.bind(six, "[::]:0").expect("bound");
        let [Some(address), None] = file.addresses(six) else { panic!("it is bound") };
        let any = format!("0.0.0.0:{}", address.port());
        let four = file.id();
        file.bind(four, &any).expect("bound");
        file.destroy(four).expect("destroyed");
        // Its program may say otherwise.
        file.set_option(six, ONLY, &[0_u32]).expect("set");
        assert_eq!(file.bind(file.id(), &any), Err(libc::EADDRNOTAVAIL));
    });
}

/// Rules: CM-37
#[test]
fn a_privileged_port() {
    alone(path_of!("a_privileged_port"), Way::Unprivileged, || {
        let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let first = first.ok().and_then(|it| it.trim().parse().ok()).unwrap_or(1024);
        let file = File::open();
        let expected = if 1000 < first { Err(libc::EACCES) } else { Ok(()) };
        assert_eq!(file.bind(file.id(), "127.0.0.1:1000"), expected);
        assert_eq!(file.bind(file.id(), "127.0.0.1:0"), Ok(()));
    });
}

/// Rules: CM-07
#[test]
fn private_data_that_is_too_long() {
    let file = File::open();
    let [Some(address), None] = file.addresses(file.listener("127.0.0.1:0")) else {
        panic!("it is bound")
    };
    let active = file.id();
    file.resolve(active, &address.to_string());
    assert_eq!(file.connect(active, qpns()[0], &[1; 57]), Err(libc::EINVAL));
    assert_eq!(file.connect(active, qpns()[0], &[1; 56]), Ok(()));
    let passive = file.request();
    assert_eq!(file.accept(passive, 2, qpns()[0], &[2; 197]), Err(libc::EINVAL));
    assert_eq!(file.reject(passive, &[2; 149]), Err(libc::EINVAL));
    assert_eq!(file.reject(passive, &[2; 148]), Ok(()));
    assert_eq!(file.expect(event::REJECTED, active).status, 28);
}

/// Rules: CM-32
#[test]
fn calls_out_of_turn() {
    let (file, other) = (File::open(), File::open());
    let id = file.id();
    assert_eq!(file.connect(id, 1, &[]), Err(libc::EINVAL));
    assert_eq!(file.resolve_route(id), Err(libc::EINVAL));
    assert_eq!(file.accept(id, 2, 1, &[]), Err(libc::EINVAL));
    assert_eq!(file.disconnect(id), Err(libc::EINVAL));
    assert_eq!(other.disconnect(id), Err(libc::EINVAL), "it is another file's");
    assert_eq!(file.disconnect(Id(7)), Err(libc::ENOENT));
    assert_eq!(file.try_event().map(drop), Err(libc::EAGAIN));
    assert_eq!(file.create(1, 0x9999, 2), Err(libc::EINVAL));
}

/// What comes as a command may be anything.
#[test]
fn commands_of_garbage() {
    let file = File::open();
    let id = file.id();
    let mut noise = 1_u64;
    let mut byte = || {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 56) as u8
    };
    // Each command but the one that waits, with anything behind the header, and cut at any length.
    for number in (0..30).filter(|number| *number != RDMA_USER_CM_CMD_GET_EVENT) {
        for length in 0..=400_u16 {
            let header = rdma_ucm_cmd_hdr { cmd: number, in_: length, out: 400 };
            let mut command = [number.to_ne_bytes(), [0; 4]].concat();
            command[4..6].copy_from_slice(&header.in_.to_ne_bytes());
            command[6..8].copy_from_slice(&header.out.to_ne_bytes());
            command.extend((0..length).map(|_| byte()));
            // A pointer among them leads to nothing, and an id is nobody's.
            let _ = file.write_bytes(&command);
            command.truncate(command.len().saturating_sub(1));
            assert_eq!(file.write_bytes(&command), Err(libc::EINVAL));
        }
    }
    let nowhere = rdma_ucm_query { response: 8, id: id.0, option: RDMA_USER_CM_QUERY_ADDR };
    assert_eq!(file.write(RDMA_USER_CM_CMD_QUERY, &nowhere, 512), Err(libc::EFAULT));
    assert_eq!(file.write(RDMA_USER_CM_CMD_QUERY, &nowhere, 8), Err(libc::ENOSPC));
    assert_eq!(file.write(RDMA_USER_CM_CMD_GET_OPTION, &nowhere, 8), Err(libc::ENOSYS));
    assert_eq!(file.destroy(id), Ok(0));
}
