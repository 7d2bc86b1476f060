//! A process with a device and nothing to do is never woken.

use std::collections::BTreeMap;
use std::fs;
use std::ptr::null_mut;
use std::time::Duration;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::processes::*;
use transom_conformance::{on_each_way, path_of};
use transom_ibverbs::{ibv_create_comp_channel, ibv_create_cq, ibv_get_cq_event};

/// How an idler is idle: it waits for a word, for a completion event, or for a word without being allowed any
/// descriptor.
const WAITS_FOR_WORD: u64 = 0;
const WAITS_FOR_EVENT: u64 = 1;
const WITHOUT_DESCRIPTORS: u64 = 2;

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("idler", idler)]);
}

/// Connects, exchanges a message and a WRITE through a window, keeps receives posted, and is idle:
/// it waits for a word, or for a completion event.
fn idler(channel: &mut Channel) {
    let mut end = open();
    // SAFETY: the context is open; the channel and the queue live as long as the process.
    let events = unsafe { ibv_create_comp_channel(end.context) };
    // SAFETY: as above.
    end.cq = unsafe { ibv_create_cq(end.context, 64, null_mut(), events, 0) };
    assert!(!end.cq.is_null());
    let qp = end.qp(IBV_QPT_RC);
    let memory = Buffer::new(4096);
    let mr = end.reg(&memory, ALL);
    meet(channel, qp);
    (0..8).for_each(|wr_id| recv(qp, wr_id, &mut []));
    let range = Range { mr, addr: memory.addr(), length: 4096, access: REMOTE };
    let key = bind(&end, qp, end.mw(IBV_MW_TYPE_2), range);
    channel.tell(&[memory.addr(), u64::from(key)]);
    let [addr, key, how] = channel.hear();
    let mut sges = [sge(memory.addr(), 8, mr)];
    post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, addr, key as u32));
    post(qp, &mut ibv_send_wr { wr_id: 2, ..wr(IBV_WR_SEND) });
    let mut opcodes = [(); 3].map(|()| end.expect(IBV_WC_SUCCESS).opcode);
    opcodes.sort_unstable();
    assert_eq!(opcodes, [IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RECV]);
    if how == WITHOUT_DESCRIPTORS {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a limit that every process may have.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
    }
    if how == WAITS_FOR_EVENT {
        // SAFETY: live objects; what the event names is not looked at.
        unsafe {
            assert_eq!((*end.context).ops.req_notify_cq.expect("never null")(end.cq, 0), 0);
            channel.tell(&[]);
            let (mut cq, mut tag) = (null_mut(), null_mut());
            assert_eq!(ibv_get_cq_event(events, &mut cq, &mut tag), 0);
        }
        assert_eq!(end.expect(IBV_WC_SUCCESS).opcode, IBV_WC_RECV);
        let [] = channel.hear();
        return;
    }
    channel.tell(&[]);
    let [] = channel.hear();
    post(qp, &mut wr(IBV_WR_SEND));
    end.expect(IBV_WC_SUCCESS);
}

/// How often each thread of a process has been given the processor, and for how long: by its name and
/// number, its context switches of both kinds, and its time in clock ticks.
pub(super) fn activity(pid: u32) -> BTreeMap<String, (u64, String)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the child runs");
    threads
        .map(|thread| {
            let path = thread.expect("an entry").path();
            let read = |name| fs::read_to_string(path.join(name)).expect("the thread runs");
            let status = read("status");
            let switches = status
                .lines()
                .filter_map(|line| line.split_once("ctxt_switches:"))
                .map(|(_, count)| count.trim().parse::<u64>().expect("a number"))
                .sum();
            let stat = read("stat");
            let times: Vec<&str> = stat.split_whitespace().skip(13).take(2).collect();
            let number = path.file_name().expect("a thread's number").to_string_lossy();
            (format!("{} {number}", read("comm").trim()), (switches, times.join(" ")))
        })
        .collect()
}

/// Whether every thread of a process sleeps: none runs, or waits for a processor.
fn is_asleep(pid: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the child runs");
    threads.all(|thread| {
        let path = thread.expect("an entry").path().join("stat");
        let stat = fs::read_to_string(path).expect("the thread runs");
        // Behind its name, which may have anything in it.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

/// Two connected processes that are idle in these ways.
fn two_idlers(how: [u64; 2]) -> [Child; 2] {
    let mut idlers = [Child::start(path_of!("idler")), Child::start(path_of!("idler"))];
    for _ in 0..2 {
        // Their numbers; connected.
        let words = idlers.each_mut().map(|idler| idler.channel.hear_all());
        idlers[0].tell(&words[1]);
        idlers[1].tell(&words[0]);
    }
    let [[a, ka], [b, kb]] = idlers.each_mut().map(Child::hear::<2>);
    idlers[0].tell(&[b, kb, how[0]]);
    idlers[1].tell(&[a, ka, how[1]]);
    for idler in &mut idlers {
        let [] = idler.hear();
    }
    idlers
}

/// A sandbox may take from a process the right to any descriptor; what it has open, its threads wait for as before.
#[test]
fn a_process_that_may_have_no_descriptor_sleeps() {
    let mut idlers = two_idlers([WAITS_FOR_WORD, WITHOUT_DESCRIPTORS]);
    let mut before = activity(idlers[1].pid());
    until("it to sleep", || {
        std::thread::sleep(Duration::from_millis(50));
        let now = activity(idlers[1].pid());
        (std::mem::replace(&mut before, now.clone()) == now && is_asleep(idlers[1].pid()))
            .then_some(())
    });
    // And it is woken.
    idlers[0].tell(&[]);
    idlers[1].tell(&[]);
    for idler in idlers {
        idler.finish();
    }
}

on_each_way! {
    /// Two connected processes, one of which sleeps in a system call and one in
    /// `ibv_get_cq_event`, are given the processor not once in some seconds: neither their own
    /// threads nor the device's. Zero in a few seconds is zero in an hour, for there is no timer.
    fn two_idle_processes_are_never_woken() {
        let window = Duration::from_secs(if is_long() { 10 } else { 3 });
        let idlers = two_idlers([WAITS_FOR_WORD, WAITS_FOR_EVENT]);
        let look = || idlers.each_ref().map(|idler| activity(idler.pid()));
        until("the devices' threads", || {
            let is_device = |name: &String| name.starts_with("transom ");
            look().iter().all(|threads| threads.keys().any(is_device)).then_some(())
        });
        // Here the passing of real time is what is measured. A thread that has to wait for a processor does
        // nothing for a while, too, but does not sleep.
        let mut before = look();
        until("both to settle", || {
            std::thread::sleep(Duration::from_millis(100));
            let asleep = idlers.iter().all(|idler| is_asleep(idler.pid()));
            let now = look();
            (std::mem::replace(&mut before, now.clone()) == now && asleep).then_some(())
        });
        std::thread::sleep(window);
        assert_eq!(look(), before, "an idle process was woken");
        // Both are still there: one sends, which wakes the other.
        for mut idler in idlers {
            idler.tell(&[]);
            idler.finish();
        }
    }
}
