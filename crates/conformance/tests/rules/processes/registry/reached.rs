//! Processes in several namespaces and of several users reach each other, or are told why not.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::{Running, library};
use transom_ibverbs::ibv_attach_mcast;

use super::*;

#[test]
fn role() {
    play(&[
        ("talks", talks),
        ("talks_to_another_user", talks_to_another_user),
        ("talks_undumpable", talks_undumpable),
        ("connects", connects),
    ]);
}

/// Moves bytes to and from the other end by every operation, and then waits to be told to end.
fn talks(channel: &mut Channel) {
    exchange(channel, true);
}

/// The same without datagrams to a group, which come to one user only.
fn talks_to_another_user(channel: &mut Channel) {
    exchange(channel, false);
}

fn exchange(channel: &mut Channel, in_group: bool) {
    let end = open();
    let memory = Buffer::new(4096);
    let mr = end.reg(&memory, ALL);
    let (qp, ud) = (end.qp(IBV_QPT_RC), ud_qp(&end));
    let me = number(qp);
    channel.tell(&[me, number(ud), memory.addr(), keys(mr).1.into()]);
    let [peer, peer_ud, there, key] = channel.hear();
    let key = key as u32;
    bring_up(qp, &attr_to(peer));
    recv(qp, 1, &mut [sge(memory.addr() + 1024, 64, mr)]);
    for (wr_id, at) in [(2, 2048), (5, 3072)] {
        recv(ud, wr_id, &mut [sge(memory.addr() + at, GRH as u32 + 64, mr)]);
    }
    let group = ibv_gid { raw: Ipv4Addr::new(239, 7, 7, 7).to_ipv6_mapped().octets() };
    // SAFETY: a queue pair of this process.
    assert_eq!(unsafe { ibv_attach_mcast(ud, &group, 0) }, 0);
    channel.tell(&[]);
    let [] = channel.hear();
    memory.set_word(0, me);
    let mut word = [sge(memory.addr(), 8, mr)];
    let write = rdma_wr(IBV_WR_RDMA_WRITE, &mut word, there + 64, key);
    post(qp, &mut ibv_send_wr { wr_id: 7, ..write });
    post(qp, &mut ibv_send_wr { wr_id: 3, ..with_sges(wr(IBV_WR_SEND), &mut word) });
    let to = ah(end.pd, &here());
    let datagram = ibv_send_wr { wr_id: 4, ..with_sges(wr(IBV_WR_SEND), &mut word) };
    post(ud, &mut addressed(datagram, to, peer_ud as u32, QKEY));
    // SAFETY: all variants are plain bytes.
    let to_all = ah(end.pd, &to_gid(unsafe { group.raw }));
    let datagram = ibv_send_wr { wr_id: 6, ..with_sges(wr(IBV_WR_SEND), &mut word) };
    let (all, arrived): (&[u64], &[usize]) = if in_group {
        post(ud, &mut addressed(datagram, to_all, 0xff_ffff, QKEY));
        (&[1, 2, 3, 4, 5, 6, 7], &[64, 1024, 2048 + GRH, 3072 + GRH])
    } else {
        (&[1, 2, 3, 4, 7], &[64, 1024, 2048 + GRH])
    };
    let mut done: Vec<_> = all.iter().map(|_| end.expect(IBV_WC_SUCCESS).wr_id).collect();
    done.sort_unstable();
    assert_eq!(done, all);
    assert!(arrived.iter().all(|at| memory.word(*at) == peer));
    let mut back = [sge(memory.addr() + 128, 8, mr)];
    post(qp, &mut rdma_wr(IBV_WR_RDMA_READ, &mut back, there + 64, key));
    end.expect(IBV_WC_SUCCESS);
    assert_eq!(memory.word(128), me);
    post(qp, &mut atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut back, there + 192, key, 5, 0));
    end.expect(IBV_WC_SUCCESS);
    assert_eq!(memory.word(128), 0);
    channel.tell(&[]);
    let [is_survivor] = channel.hear();
    assert_eq!(memory.word(192), 5);
    if is_survivor == 1 {
        post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut word, there, key));
        end.expect(IBV_WC_RETRY_EXC_ERR);
    }
}

/// The same in a process that closes itself to others of its user, as those that hold secrets do.
fn talks_undumpable(channel: &mut Channel) {
    // SAFETY: this prctl takes plain numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0);
    talks(channel);
}

/// Has two of them talk, until both say that all has arrived.
fn talk(one: &mut Child, other: &mut Child) {
    let [first, second]: [[u64; 4]; 2] = [one.hear(), other.hear()];
    one.tell(&second);
    other.tell(&first);
    let [[], []] = [one.hear(), other.hear()];
    one.tell(&[]);
    other.tell(&[]);
    let [[], []] = [one.hear(), other.hear()];
}

/// Two of them, run in these ways, talk, and then one is killed.
pub(super) fn talk_and_kill(one: &[&str], other: &[&str]) {
    let (mut one, mut other) =
        (Child::start_under(path_of!("talks"), one), Child::start_under(path_of!("talks"), other));
    talk(&mut one, &mut other);
    one.kill();
    other.tell(&[1]);
    other.finish();
}

/// The users whose processes have the port in this network namespace.
fn users_of_port() -> Vec<u32> {
    let list = fs::read_to_string("/proc/thread-self/net/udp6").expect("the kernel has a list");
    let fields = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_port = fields.filter(|fields| fields.get(1).is_some_and(|it| it.ends_with(":12B7")));
    of_port.map(|fields| fields[7].parse().expect("a user")).collect()
}

/// A process of one user has the port, and hands on to the other what is for it; when it has ended, the other has it.
///
/// Rules: NET-18
#[test]
fn processes_of_two_users_talk_in_one_network_namespace() {
    let test = path_of!("processes_of_two_users_talk_in_one_network_namespace");
    if !is_root() {
        return eprintln!("skipped: only root can be another user too");
    }
    in_network(test, &[], || {
        loopback_up();
        let start = |wrapper| Child::start_under(path_of!("talks_to_another_user"), wrapper);
        for (first, then) in [(AS_NOBODY, &[][..]), (&[], AS_NOBODY)] {
            let mut one = start(first);
            until("the first to have the port", || (!users_of_port().is_empty()).then_some(()));
            let has_it = users_of_port();
            let mut other = start(then);
            talk(&mut one, &mut other);
            assert_eq!(users_of_port(), has_it, "there is one port");
            one.kill();
            let other_has_it = || users_of_port().iter().any(|user| *user != has_it[0]);
            until("the second to have the port", || other_has_it().then_some(()));
            other.tell(&[1]);
            other.finish();
        }
    });
}

/// As the containers of a pod: one network namespace and one `/dev/shm`, and a PID 1 in each. By
/// packets every operation arrives, the end of one is noticed, and those who share a PID namespace
/// still have the local link.
#[test]
fn processes_of_several_pid_namespaces_talk() {
    in_network(path_of!("processes_of_several_pid_namespaces_talk"), OWN_PIDS, || {
        loopback_up();
        let ways: [(&[&str], &[&str]); 5] = [
            (OWN_PIDS, OWN_PIDS),
            (OWN_PIDS, &[]),
            (&[], OWN_PIDS_BUT_PROC),
            (OWN_PIDS_BUT_PROC, OWN_PIDS_BUT_PROC),
            (&[], &[]),
        ];
        for (one, other) in ways {
            talk_and_kill(one, other);
        }
    });
}

/// Nobody may open its memory, and its peers get no further than by packets.
#[test]
fn a_process_that_is_closed_to_others_talks() {
    in_network(path_of!("a_process_that_is_closed_to_others_talks"), WITHOUT_RIGHTS, || {
        loopback_up();
        let mut closed = Child::start_under(path_of!("talks_undumpable"), WITHOUT_RIGHTS);
        let mut other = Child::start_under(path_of!("talks"), WITHOUT_RIGHTS);
        talk(&mut closed, &mut other);
        closed.kill();
        other.tell(&[1]);
        other.finish();
    });
}

/// What others have written does, too.
#[test]
fn ping_pongs_run_between_pid_namespaces() {
    in_network(path_of!("ping_pongs_run_between_pid_namespaces"), OWN_PIDS, || {
        loopback_up();
        let folder = library(env!("CARGO_TARGET_TMPDIR"));
        let run = |tool: &str, arguments: &[&str]| {
            let mut command = Command::new(OWN_PIDS[0]);
            command.args(&OWN_PIDS[1..]).args([tool, "-g", "0", "-n", "100", "-c", "-p", "18515"]);
            Running::start(command.args(arguments).env("LD_LIBRARY_PATH", folder))
        };
        for tool in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"] {
            let mut server = run(tool, &[]);
            server.wait_until_it_listens(18515).expect("it starts");
            let client = run(tool, &["127.0.0.1"]);
            for end in [client, server] {
                end.success(Duration::from_secs(30)).unwrap_or_else(|problem| panic!("{problem}"));
            }
        }
    });
}

/// Tries to connect, and tells what came of it.
fn connects(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    channel.tell(&[number(qp)]);
    let [peer] = channel.hear();
    assert_eq!(modify(qp, &attr_to(peer), IBV_QPS_INIT), 0);
    channel.tell(&[modify(qp, &attr_to(peer), IBV_QPS_RTR) as u64]);
    let [] = channel.hear();
}

/// As two containers that share the network namespace and nothing else: no two processes have the same
/// numbers, and who connects is refused at once.
#[test]
fn processes_without_common_memory_are_told_so() {
    let wrapper = after("mount -t tmpfs tmpfs /dev/shm");
    in_network(path_of!("processes_without_common_memory_are_told_so"), &words(&wrapper), || {
        loopback_up();
        let wrapper = after("mount -t tmpfs tmpfs /dev/shm");
        let start = || Child::start_under(path_of!("connects"), &words(&wrapper));
        let mut both = [start(), start()];
        let [one, other] = both.each_mut().map(|end| end.hear::<1>());
        assert_ne!(one[0] >> 16, other[0] >> 16, "the slots");
        both[0].tell(&other);
        both[1].tell(&one);
        // Neither ends before the other has tried: nobody would be there.
        for end in &mut both {
            assert_eq!(end.hear(), [libc::EHOSTUNREACH as u64]);
        }
        for mut end in both {
            end.tell(&[]);
            end.finish();
        }
    });
}
