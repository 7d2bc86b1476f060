//! The registry of processes: who finds whom on one host, in whatever namespaces; that no place in it is
//! lost to processes that have ended; and where it lies.

use std::fs::{self, File, FileTimes, Permissions};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::{Running, library};
use transom_ibverbs::{ibv_attach_mcast, ibv_get_device_guid};
use transom_net::management::{ManagementPipe, Note};
use transom_system::registry::{Life, Process, Registry};

/// How a program is run in a PID namespace of its own.
const OWN_PIDS: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// The same, with the `/proc` of the namespace around it.
const OWN_PIDS_BUT_PROC: &[&str] = &["unshare", "--pid", "--fork", "--kill-child"];
/// How a program is run in a mount namespace of its own, after the commands that follow.
const OWN_MOUNTS: &[&str] = &["unshare", "--mount", "sh", "-c"];
/// How often a process that execs itself is to do so again.
const AGAIN: &str = "TRANSOM_TEST_AGAIN";
/// More than there are slots.
const MANY: u32 = 260;

#[test]
fn role() {
    play(&[
        ("talks", talks),
        ("talks_to_another_user", talks_to_another_user),
        ("talks_undumpable", talks_undumpable),
        ("opens", opens),
        ("stays", stays),
        ("has_many_open", has_many_open),
        ("connects", connects),
        ("forks", forks),
        ("becomes_itself", becomes_itself),
        ("becomes_another", becomes_another),
        ("tells_guids", tells_guids),
    ]);
}

/// Runs a test in a network namespace with its loopback interface up, if `wrapper` works there.
fn in_network(test: &str, wrapper: &[&str], body: fn()) {
    // Where the test itself runs, it has been found out.
    if std::env::var_os("TRANSOM_TEST_ALONE").is_none() {
        let user: &[&str] = if is_root() { &[] } else { &["--map-root-user"] };
        let mut attempt = Command::new("unshare");
        attempt.args(user).arg("--net").args(wrapper).arg("true").stderr(Stdio::null());
        if !attempt.status().is_ok_and(|status| status.success()) {
            return eprintln!("skipped: {wrapper:?} does not work here");
        }
    }
    alone(test, Way::Namespace, body);
}

fn loopback_up() {
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(status.is_ok_and(|status| status.success()), "ip link set lo up");
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
fn talk_and_kill(one: &[&str], other: &[&str]) {
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

/// What a process has done before it runs, in a mount namespace of its own.
fn after(commands: &str) -> Vec<String> {
    let script = format!("{commands} && exec \"$@\"");
    OWN_MOUNTS.iter().copied().chain([&*script, "sh"]).map(str::to_owned).collect()
}

fn words(wrapper: &[String]) -> Vec<&str> {
    wrapper.iter().map(String::as_str).collect()
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

/// Opens a device and never closes it.
fn opens(_: &mut Channel) {
    open();
}

/// Has a device until it is told to end, or killed.
fn stays(channel: &mut Channel) {
    let _end = open();
    channel.tell(&[]);
    let _ = channel.hear_all();
}

/// Sets how many descriptors this process may have, and answers how many that were.
fn limit_descriptors(limit: u64) -> u64 {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limits are this call's own.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) }, 0);
    let before = std::mem::replace(&mut limits.rlim_cur, limit);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limits) }, 0);
    before
}

/// A program may lower its limit of descriptors, or close ours and open others: who lives then is not dead, and who
/// dies is noticed all the same.
///
/// Rules: CM-50
#[test]
fn nobody_is_dead_because_he_cannot_be_asked() {
    let name = path_of!("nobody_is_dead_because_he_cannot_be_asked");
    alone(name, Way::Direct, || {
        let registry = Registry::open().expect("a registry");
        let mut others = [(); 2].map(|()| Child::start(path_of!("stays")));
        let lives = others.each_mut().map(|other| {
            let [] = other.hear();
            let found = registry.processes().into_iter().find(|it| it.pid == other.pid());
            let life = registry.watch(found.expect("it has a device").announcer);
            life.expect("it lives")
        });
        // In place of what tells of the first one's end is a pipe that hangs up.
        let (reading, _) = std::io::pipe().expect("a pipe");
        // SAFETY: both are open, and stay so.
        let replaced =
            unsafe { libc::dup2(reading.as_raw_fd(), lives[0].descriptor().as_raw_fd()) };
        assert_ne!(replaced, -1);
        assert_eq!(lives.each_ref().map(Life::has_ended), [false; 2]);
        // No descriptor can be asked about any more.
        let before = limit_descriptors(0);
        assert_eq!(lives.each_ref().map(Life::has_ended), [false; 2]);
        others.into_iter().for_each(Child::kill);
        until("their ends", || lives.iter().all(Life::has_ended).then_some(()));
        limit_descriptors(before);
    });
}

/// What cannot be given to a process for want of descriptors is not answered as if that had ended.
///
/// Rules: CM-50
#[test]
fn a_message_waits_for_a_descriptor() {
    alone(path_of!("a_message_waits_for_a_descriptor"), Way::Direct, || {
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0).expect("a slot");
        let slot = claim.announcer().slot;
        let mut pipe = ManagementPipe::open(registry, slot).expect("a pipe");
        let before = limit_descriptors(0);
        assert!(pipe.may_be_at(slot) && pipe.send(slot, Note::Newcomer, 0));
        limit_descriptors(before);
        assert_eq!(pipe.take(), None);
        pipe.send_rest(0);
        assert_eq!(pipe.take(), Some(Note::Newcomer));
        // No process ever has that slot.
        assert!(!pipe.may_be_at(0) && !pipe.send(0, Note::Newcomer, 0));
    });
}

/// In a PID namespace of its own, has one process after the other open a device, all under one PID if
/// the kernel can be told so.
fn has_many_open(channel: &mut Channel) {
    const PID: u32 = 1000;
    for number in 0..MANY {
        channel.tell(&[number.into()]);
        let told = fs::write("/proc/sys/kernel/ns_last_pid", (PID - 1).to_string());
        let child = Child::start(path_of!("opens"));
        assert!(told.is_err() || child.pid() == PID);
        child.finish();
    }
}

/// As in small PID namespaces, where PIDs come again soon: in each container the first process is PID 1.
#[test]
fn places_of_the_dead_with_the_same_pid_are_free() {
    in_network(path_of!("places_of_the_dead_with_the_same_pid_are_free"), OWN_PIDS, || {
        Child::start_under(path_of!("has_many_open"), OWN_PIDS).finish();
        for _ in 0..20 {
            Child::start_under(path_of!("opens"), OWN_PIDS).finish();
        }
    });
}

/// Opens a device and has a child that lives on until the test closes its end of the channel.
fn forks(channel: &mut Channel) {
    open();
    // SAFETY: the child makes system calls only, and ends by one.
    if unsafe { libc::fork() } == 0 {
        let mut byte = 0_u8;
        // SAFETY: room for one byte.
        unsafe {
            while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
            libc::_exit(0);
        }
    }
    channel.tell(&[]);
    let [] = channel.hear();
}

#[test]
fn a_child_does_not_keep_its_parents_place() {
    alone(path_of!("a_child_does_not_keep_its_parents_place"), Way::Direct, || {
        let registry = Registry::open().expect("a registry");
        let mut parent = Child::start(path_of!("forks"));
        let [] = parent.hear();
        let is_parent = |it: &Process| it.alive && it.pid == parent.pid();
        let place = registry.processes().into_iter().find(is_parent).expect("it has a device");
        // SAFETY: our own child, not reaped yet.
        assert_eq!(unsafe { libc::kill(parent.pid() as i32, libc::SIGKILL) }, 0);
        until("the place to be free", || (!registry.is_alive(place.announcer)).then_some(()));
    });
}

/// Opens a device and execs itself, some times.
fn becomes_itself(channel: &mut Channel) {
    open();
    let left = std::env::var(AGAIN).map_or(MANY, |left| left.parse().expect("a number"));
    if left > 0 {
        channel.tell(&[left.into()]);
        let mut next = Command::new(this_program());
        next.args(std::env::args().skip(1)).env(AGAIN, (left - 1).to_string());
        panic!("exec: {}", next.exec());
    }
}

#[test]
fn a_program_that_execs_itself_leaves_its_place() {
    alone(path_of!("a_program_that_execs_itself_leaves_its_place"), Way::Direct, || {
        Child::start(path_of!("becomes_itself")).finish();
    });
}

/// Connects, and becomes another program.
fn becomes_another(channel: &mut Channel) {
    let end = open();
    let memory = Buffer::new(4096);
    let mr = end.reg(&memory, ALL);
    meet(channel, end.qp(IBV_QPT_RC));
    channel.tell(&[memory.addr(), keys(mr).1.into()]);
    let [] = channel.hear();
    panic!("exec: {}", Command::new("sleep").arg("600").exec());
}

/// Its PID goes on, but what it granted is gone.
#[test]
fn a_peer_that_execs_is_lost() {
    alone(path_of!("a_peer_that_execs_is_lost"), Way::Direct, || {
        let end = open();
        let memory = Buffer::new(4096);
        let mr = end.reg(&memory, ALL);
        let qp = end.qp(IBV_QPT_RC);
        let mut peer = Child::start(path_of!("becomes_another"));
        meet(&mut peer.channel, qp);
        let [there, key] = peer.hear();
        let mut word = [sge(memory.addr(), 8, mr)];
        let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut word, there, key as u32);
        post(qp, &mut write);
        end.expect(IBV_WC_SUCCESS);
        peer.tell(&[]);
        // Its last word is the end of the descriptors that exec closes.
        until("its device to be gone", || {
            let processes = Registry::open().expect("it is open").processes();
            let there = |pid| processes.iter().any(|it| it.alive && it.pid == pid);
            (!there(peer.pid())).then_some(())
        });
        post(qp, &mut write);
        end.expect(IBV_WC_RETRY_EXC_ERR);
        peer.kill();
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

/// The name of the registry's directory in this network namespace.
fn name() -> String {
    let directory = Registry::open().expect("a registry").directory();
    directory.file_name().expect("it has one").to_str().expect("text").to_owned()
}

/// As where nothing can be made in `/dev/shm`.
const READ_ONLY: &str = "mount -t tmpfs -o ro tmpfs /dev/shm";

/// Where `/dev/shm` is of no use all processes of the user find each other elsewhere.
#[test]
fn there_is_another_place_than_shared_memory() {
    let test = path_of!("there_is_another_place_than_shared_memory");
    in_network(test, &words(&after(READ_ONLY)), || {
        loopback_up();
        // Others may take away what is in the second.
        for trouble in [READ_ONLY, "mount -t tmpfs -o mode=777 tmpfs /dev/shm"] {
            let wrapper = after(trouble);
            talk_and_kill(&words(&wrapper), &words(&wrapper));
        }
        // Nobody looks there where nobody has such trouble.
        let name = name();
        let (of_network, _) = name.rsplit_once('-').expect("a number at its end");
        let places = ["/run/user/0", "/tmp"].into_iter().flat_map(fs::read_dir);
        for entry in places.flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(of_network)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    });
}

/// A name in a network namespace is whoever's who takes it first. Another user who takes all that processes take there
/// keeps nobody from having a device, nor those of one user from telling each other by their numbers.
#[test]
fn names_that_another_user_has_taken_keep_nobody_out() {
    if !is_root() {
        return eprintln!("skipped: only root can be another user too");
    }
    in_network(path_of!("names_that_another_user_has_taken_keep_nobody_out"), &[], || {
        loopback_up();
        // As the user nobody, in the name of this thread alone.
        let become_user = |user: u32| {
            // SAFETY: takes numbers; what this process has is not less its own.
            let become_user = unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) };
            assert_eq!(become_user, 0);
        };
        become_user(65_534);
        let taken: Vec<_> = (0..=u8::MAX)
            .map(|slot| {
                let address = SocketAddr::from_abstract_name(format!("transom-slot-{slot}"));
                UnixListener::bind_addr(&address.expect("a name")).expect("nobody has it")
            })
            .collect();
        become_user(0);
        let (users, names) = Registry::open().expect("a registry").names_of_others();
        assert_eq!((Vec::from_iter(users), names), (vec![65_534], Registry::PROCESSES));
        talk_and_kill(&[], &[]);
        drop(taken);
    });
}

/// How a program is run so that no mode lets it pass because it is root.
const WITHOUT_RIGHTS: &[&str] = &["setpriv", "--bounding-set=-all", "--inh-caps=-all"];

/// Processes whose file mode creation mask takes away even the owner's rights find each other, by the
/// local link and by packets.
fn talk_under_mask(mask: &str) {
    loopback_up();
    let script = format!("umask {mask}; exec \"$@\"");
    let wrapper = [WITHOUT_RIGHTS, &["sh", "-c", &script, "sh"]].concat();
    talk_and_kill(&wrapper, &wrapper);
    talk_and_kill(&[OWN_PIDS, &wrapper].concat(), &wrapper);
}

#[test]
fn directories_that_cannot_be_entered_are_mended() {
    let test = path_of!("directories_that_cannot_be_entered_are_mended");
    in_network(test, WITHOUT_RIGHTS, || talk_under_mask("0177"));
}

#[test]
fn files_that_cannot_be_read_are_mended() {
    let test = path_of!("files_that_cannot_be_read_are_mended");
    in_network(test, WITHOUT_RIGHTS, || talk_under_mask("0777"));
}

/// As a process under such a mask leaves it that is killed before it has given the file its mode, or
/// that has yet to do so.
#[test]
fn a_file_without_a_mode_is_given_one() {
    let test = path_of!("a_file_without_a_mode_is_given_one");
    in_network(test, WITHOUT_RIGHTS, || {
        loopback_up();
        let path = Path::new("/dev/shm").join(name()).join("registry");
        fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("our own");
        talk_and_kill(WITHOUT_RIGHTS, WITHOUT_RIGHTS);
        // Not in another place.
        let mode = fs::metadata(&path).expect("they have met there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    });
}

/// A directory as a registry leaves it.
struct Left {
    file: File,
    directory: std::path::PathBuf,
}

impl Left {
    fn new(name: &str, last_change: SystemTime) -> Self {
        let directory = Path::new("/dev/shm").join(name);
        fs::DirBuilder::new().create(&directory).expect("nobody has it");
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("our own");
        fs::write(directory.join("steering"), "x").expect("our own");
        let file = File::create(directory.join("registry")).expect("our own");
        file.set_times(FileTimes::new().set_modified(last_change)).expect("our own");
        Self { file, directory }
    }

    fn is_there(&self) -> bool {
        self.directory.exists()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Whoever opens a device takes away what namespaces that are gone have left, of whatever version: not
/// what somebody uses, nor what was used a moment ago, for its user may still ask what was refused.
#[test]
fn what_nobody_uses_any_more_is_removed() {
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    // No namespace has such a number, so no other test is there.
    let id = std::process::id();
    let left = |number: &str, time| Left::new(&format!("transom-{number}{id}"), time);
    let gone = [left(&format!("5-{user}-1"), long_ago), left(&format!("4-{user}-2-"), long_ago)];
    let used = left(&format!("5-{user}-3"), long_ago);
    let kept = [
        left(&format!("5-{user}-4"), SystemTime::now()),
        left(&format!("5-{user}-5"), UNIX_EPOCH),
        left(&format!("5-{}-6", user + 1), long_ago),
        left("run-", long_ago),
    ];
    // SAFETY: all zeros is a lock of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    // SAFETY: an open file and a lock of this call's own.
    assert_eq!(unsafe { libc::fcntl(used.file.as_raw_fd(), libc::F_SETLK, &mut lock) }, 0);
    Child::start(path_of!("opens")).finish();
    assert!(!gone.iter().any(Left::is_there));
    assert!(used.is_there() && kept.iter().all(Left::is_there));
    let marked = kept[1].file.metadata().and_then(|it| it.modified()).expect("it is there");
    assert!(marked > long_ago, "from now on it counts as unused");
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
