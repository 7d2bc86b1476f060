//! A process that carries out messages for a receiving end of another process, and is stopped in the middle of one.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::*};

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::processes::*;
use transom_conformance::queues::Across;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;
use transom_conformance::{on_each_way, path_of};

const MIB: usize = 1 << 20;

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("sender", sender), ("taker", taker)]);
}

/// How many messages are on their way: the taker always has one to carry out, on a busy machine too.
const OUT: u32 = 8;

/// Sends long messages to a shared queue until one fails, and says so.
fn sender(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_XRC_SEND);
    meet_to_lose(channel, qp);
    let near = Buffer::filled(MIB, 7);
    let mr = end.reg(&near, 0);
    let [queue] = channel.hear();
    let send = || {
        let mut sges = [sge(near.addr(), MIB as u32, mr)];
        post(qp, &mut naming(with_sges(wr(IBV_WR_SEND), &mut sges), queue as u32));
    };
    (0..OUT).for_each(|_| send());
    for round in 0.. {
        if end.wait().status != IBV_WC_SUCCESS {
            return channel.tell(&[]);
        }
        send();
        if round == 4 {
            channel.tell(&[]);
        }
    }
}

/// Takes them, for ever, by a queue in the domain of a file that another process has open. The file is their room too.
fn taker(channel: &mut Channel) {
    let end = open();
    let [process, file] = channel.hear();
    let path = format!("/proc/{process}/fd/{file}");
    let file = File::options().read(true).write(true).open(path).expect("it is open there");
    let domain = try_xrcd(end.context, file.as_raw_fd(), libc::O_CREAT).expect("a domain");
    let srq = try_srq_ex(end.context, &xrc_srq_init(end.pd, domain, end.cq)).expect("a queue");
    let room = Buffer::of_file(&file, MIB);
    let mr = end.reg(&room, ALL);
    let receive = || srq_recv(srq, 1, &mut [sge(room.addr(), MIB as u32, mr)]);
    (0..OUT).for_each(|_| receive());
    channel.tell(&[srq_number(srq).into()]);
    loop {
        if poll(end.cq).is_some() {
            receive();
        }
    }
}

/// Stops the taker somewhere, and moves the receiving end to this state; whether that had to wait.
fn stop_once(end: &End, to: ibv_qp_state) -> bool {
    let file = file_without_name();
    file.set_len(MIB as u64).expect("room for a message");
    let room = Buffer::of_file(&file, MIB);
    let domain = try_xrcd(end.context, file.as_raw_fd(), libc::O_CREAT).expect("a domain");
    let target = Across::new(xrc_target(end.context, domain));
    let mut taker = Child::start(path_of!("taker"));
    taker.tell(&[std::process::id().into(), file.as_raw_fd() as u64]);
    let [queue] = taker.hear();
    let mut sender = Child::start(path_of!("sender"));
    meet(&mut sender.channel, target.get());
    sender.tell(&[queue]);
    let [] = sender.hear();
    taker.stop();
    let done = AtomicBool::new(false);
    let waited = std::thread::scope(|scope| {
        let (done, room) = (&done, &room);
        let change = scope.spawn(move || {
            let changed = set_state(target.get(), to);
            room.fill(0xca);
            done.store(true, SeqCst);
            assert_eq!(changed, 0);
        });
        let waited = until("the change to end or wait", || {
            if done.load(SeqCst) {
                return Some(false);
            }
            (waits_for() == Some(taker.pid())).then_some(true)
        });
        assert!(!waited || !done.load(SeqCst));
        taker.resume();
        change.join().expect("the change");
        waited
    });
    // The sender tries all its messages until it has heard nothing for long enough.
    let [] = sender.hear();
    assert!(room.is_all(0xca), "written after the receiving end had changed");
    sender.kill();
    taker.kill();
    waited
}

/// Stops takers until one is in the middle of a message.
fn stop_often(to: ibv_qp_state) {
    if std::env::var_os("TRANSOM_COPY").is_some() {
        // The copies are shorter, and the taker is seldom in the middle of one.
        return;
    }
    let end = open();
    until("a taker to stop in the middle of a message", || stop_once(&end, to).then_some(()));
}

on_each_way! {
    /// No byte of the connection arrives behind the call.
    /// Rules: ST-19
    fn an_error_waits_for_who_carries_out_a_message() {
        stop_often(IBV_QPS_ERR);
    }

    /// The same.
    /// Rules: ST-10
    fn a_reset_waits_for_who_carries_out_a_message() {
        stop_often(IBV_QPS_RESET);
    }
}
