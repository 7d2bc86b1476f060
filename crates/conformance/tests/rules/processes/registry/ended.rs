//! Processes that end, become others or only seem to: whose place is free, and whose is not.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_net::management::{ManagementPipe, Note};
use transom_system::registry::{Life, Process, Registry};

use super::*;

/// How often a process that execs itself is to do so again.
const AGAIN: &str = "TRANSOM_TEST_AGAIN";

/// More than there are slots.
const MANY: u32 = 260;

/// The role that opens a device and never closes it.
pub(super) const OPENS: &str = path_of!("opens");

#[test]
fn role() {
    play(&[
        ("opens", opens),
        ("stays", stays),
        ("has_many_open", has_many_open),
        ("forks", forks),
        ("becomes_itself", becomes_itself),
        ("becomes_another", becomes_another),
    ]);
}

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
            life.expect("it can be watched").expect("it lives")
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

/// A program has closed descriptors that it does not know, and opened others. A revocation there waits for a process
/// that lives, and not for a dead one.
///
/// Rules: CM-50, DR-15
#[test]
fn a_process_without_the_registry_asks_it_by_its_name() {
    alone(path_of!("a_process_without_the_registry_asks_it_by_its_name"), Way::Direct, || {
        let registry = Registry::open().expect("a registry");
        let mut other = Child::start(path_of!("stays"));
        let [] = other.hear();
        let found = registry.processes().into_iter().find(|it| it.pid == other.pid());
        let process = found.expect("it has a device").announcer;
        let null = fs::File::open("/dev/null").expect("it is there");
        let of_registry = |it: &fs::DirEntry| {
            let target = fs::read_link(it.path());
            target.is_ok_and(|target| target == registry.directory().join("registry"))
        };
        let open = fs::read_dir("/proc/self/fd").expect("it is there").flatten();
        let lost: Vec<i32> = open
            .filter(of_registry)
            .map(|it| it.file_name().to_str().and_then(|it| it.parse().ok()).expect("a number"))
            .collect();
        assert!(!lost.is_empty());
        for number in lost {
            // SAFETY: both are open, and the number stays so.
            assert_ne!(unsafe { libc::dup2(null.as_raw_fd(), number) }, -1);
        }
        assert!(registry.is_alive(process) && registry.has_memory(process));
        other.kill();
        until("its end", || (!registry.has_memory(process)).then_some(()));
        assert!(!registry.is_alive(process));
    });
}

/// What cannot be given to a process for want of descriptors is not answered as if that had ended.
///
/// Rules: CM-50
#[test]
fn a_message_waits_for_a_descriptor() {
    alone(path_of!("a_message_waits_for_a_descriptor"), Way::Direct, || {
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
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
        let child = Child::start(OPENS);
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
            Child::start_under(OPENS, OWN_PIDS).finish();
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
