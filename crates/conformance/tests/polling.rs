//! A process that polls looks at its peers' rings by itself, so peers need not wake it. When it no longer polls, they
//! wake it again.
//!
//! A program of its own, and one test at a time: where others want the processors, a program polls too
//! seldom to be left to it, and nothing of this is to be seen.

use std::fs::File;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::processes::*;
use transom_conformance::queues::{arm, channel as completion_channel, try_cq};
use transom_conformance::{on_each_way, path_of};
use transom_ibverbs::{ibv_ack_cq_events, ibv_get_cq_event};
use transom_system::registry::{Process, Registry};
use transom_system::segment::{RingKind, Segment};

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("player", player), ("answerer", answerer), ("sleeper", sleeper)]);
}

/// Sends back every message that comes, and polls for the next, until it is told to do something else: then
/// it does not poll, until it is told to go on.
fn answerer(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    recv(qp, 1, &mut []);
    channel.tell(&[]);
    loop {
        let [count] = channel.hear();
        for _ in 0..count {
            assert_eq!(end.expect(IBV_WC_SUCCESS).opcode, IBV_WC_RECV);
            recv(qp, 1, &mut []);
            post(qp, &mut wr(IBV_WR_SEND));
            assert_eq!(end.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
        }
        channel.tell(&[]);
        if count == 0 {
            return;
        }
    }
}

/// What a sleeper does between its last poll and its sleep.
const ABSENCE: Duration = Duration::from_micros(50);
/// Has the sleeper sleep, and has it end.
const SLEEP: u32 = 1;
const END: u32 = 2;

/// Sends back every message that comes, and polls for the next, until one says that it is to sleep: then it
/// looks no more for a moment, asks to be told, and sleeps until it has been answered.
fn sleeper(channel: &mut Channel) {
    let (end, events) = with_events();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    recv(qp, 1, &mut []);
    channel.tell(&[]);
    loop {
        let wc = end.expect(IBV_WC_SUCCESS);
        assert_eq!(wc.opcode, IBV_WC_RECV);
        recv(qp, 1, &mut []);
        post(qp, &mut wr(IBV_WR_SEND));
        // SAFETY: the word is immediate data if the completion says so.
        let immediate = unsafe { wc.imm.imm_data };
        match if wc.wc_flags & IBV_WC_WITH_IMM == 0 { 0 } else { u32::from_be(immediate) } {
            0 => assert_eq!(end.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND),
            SLEEP => {
                pass(ABSENCE);
                let mut opcodes = [(); 2].map(|()| asleep(&end, events).opcode);
                opcodes.sort_unstable();
                assert_eq!(opcodes, [IBV_WC_SEND, IBV_WC_RECV]);
                recv(qp, 1, &mut []);
            }
            _ => return,
        }
    }
}

/// Lets time pass without a sleep.
fn pass(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// An end whose completions raise events.
fn with_events() -> (End, *mut ibv_comp_channel) {
    let mut end = open();
    let events = completion_channel(end.context);
    end.cq = try_cq(end.context, 64, events).expect("a queue");
    (end, events)
}

/// A completion, for which nobody polls without having been told.
fn asleep(end: &End, events: *mut ibv_comp_channel) -> ibv_wc {
    loop {
        assert_eq!(arm(end.cq, false), 0);
        if let Some(wc) = poll(end.cq) {
            return wc;
        }
        let (mut cq, mut tag) = (null_mut(), null_mut());
        // SAFETY: a live channel, and places for the answers; the event is of a queue that lives.
        unsafe {
            assert_eq!(ibv_get_cq_event(events, &mut cq, &mut tag), 0);
            ibv_ack_cq_events(cq, 1);
        }
    }
}

/// Waits for the processors to be this test's; they are until the end of what is returned. Tests by
/// different users, from different files, are all in one PID namespace.
fn take_processors() -> File {
    let turn = File::open("/proc/self/ns/pid").expect("there is a PID namespace");
    turn.lock().expect("a turn");
    turn
}

fn process_of(pid: u32) -> Process {
    let registry = Registry::open().expect("the registry of this user");
    let of_pid = |process: &Process| process.pid == pid && process.alive;
    registry.processes().into_iter().find(of_pid).expect("it has a device")
}

/// This process's segment, and the slot of a child, whose rings are in it.
fn own_segment(child: &Child) -> (Segment, u8) {
    let (me, other) = (process_of(std::process::id()), process_of(child.pid()));
    let segment = Segment::attach(me.pid, me.descriptor, me.announcer.generation);
    (segment.expect("this process's own"), other.announcer.slot)
}

/// An end and a queue pair with a receive posted, connected with a child in this role, which has one too.
fn with_child(role: &str) -> (End, *mut ibv_qp, Child) {
    let end = open();
    let (mut child, qp) = (Child::start(role), end.qp(IBV_QPT_RC));
    meet(&mut child.channel, qp);
    recv(qp, 1, &mut []);
    let [] = child.hear();
    (end, qp, child)
}

/// Sends a message, waits for the one that comes back, and has a receive for the next.
fn exchange(end: &End, qp: *mut ibv_qp, mut request: ibv_send_wr) {
    post(qp, &mut request);
    let mut opcodes = [(); 2].map(|()| end.expect(IBV_WC_SUCCESS).opcode);
    opcodes.sort_unstable();
    assert_eq!(opcodes, [IBV_WC_SEND, IBV_WC_RECV]);
    recv(qp, 1, &mut []);
}

/// Exchanges messages until that says that the child has watched. While others want the processors the child
/// gets behind, and its background thread helps out.
fn expect_watched(mut exchange: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !exchange() {
        assert!(begun.elapsed() < Duration::from_secs(120), "the child does not watch");
    }
}

/// Which messages wait where: in a process that polls nobody is told of them, in one that does not it is.
#[test]
fn a_process_that_polls_watches_its_peer_until_it_ceases() {
    let _turn = take_processors();
    let (end, qp, mut child) = with_child(path_of!("answerer"));
    let (segment, slot) = own_segment(&child);
    let (positions, _) = segment.ring(RingKind::Requests, slot);
    for _ in 0..3 {
        expect_watched(|| {
            child.tell(&[1000]);
            let mut is_watched = false;
            for _ in 0..1000 {
                exchange(&end, qp, wr(IBV_WR_SEND));
                is_watched |= positions.watched.load(SeqCst) == 1;
            }
            let [] = child.hear();
            is_watched
        });
        until("it to cease", || (positions.watched.load(SeqCst) == 0).then_some(()));
    }
    child.tell(&[0]);
    let [] = child.hear();
    child.finish();
}

/// Messages of a game, each way half of them.
const ROUNDS: u64 = 3_000;

/// How a player waits for what comes.
#[derive(Clone, Copy)]
enum Waiting {
    /// It polls.
    Polls,
    /// It polls so often, and then sleeps until it is told.
    Sleeps { after: u32 },
    /// It has other things to do first.
    Busy(Duration),
}

/// Sends and receives messages by turns, and waits for each in another way.
fn player(channel: &mut Channel) {
    let [seed, rounds] = channel.hear();
    let (end, events) = with_events();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    (0..2).for_each(|wr_id| recv(qp, wr_id, &mut []));
    channel.tell(&[]);
    let [begins] = channel.hear();
    let mut numbers = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut sends = begins == 1;
    for _ in 0..rounds {
        if sends {
            post(qp, &mut wr(IBV_WR_SEND));
        }
        let wanted = if sends { IBV_WC_SEND } else { IBV_WC_RECV };
        let waiting = match numbers.random_range(0..20) {
            0 => Waiting::Busy(Duration::from_micros(numbers.random_range(0..3000))),
            1..6 => Waiting::Sleeps { after: numbers.random_range(0..200) },
            _ => Waiting::Polls,
        };
        let wc = await_completion(&end, events, waiting);
        assert_eq!((wc.status, wc.opcode), (IBV_WC_SUCCESS, wanted));
        if !sends {
            recv(qp, 0, &mut []);
        }
        sends = !sends;
    }
    channel.tell(&[]);
    let [] = channel.hear();
}

fn await_completion(end: &End, events: *mut ibv_comp_channel, waiting: Waiting) -> ibv_wc {
    match waiting {
        Waiting::Polls => end.wait(),
        Waiting::Busy(duration) => {
            std::thread::sleep(duration);
            end.wait()
        }
        Waiting::Sleeps { after } => {
            (0..after).find_map(|_| poll(end.cq)).unwrap_or_else(|| asleep(end, events))
        }
    }
}

on_each_way! {
    /// What comes behind the last poll of a process that watches, which nobody is told of, is not missed by
    /// it when it sleeps.
    fn what_came_untold_does_not_sleep() {
        let _turn = take_processors();
        let (end, qp, child) = with_child(path_of!("sleeper"));
        let (segment, slot) = own_segment(&child);
        let (positions, _) = segment.ring(RingKind::Requests, slot);
        let exchange = |request: ibv_send_wr| exchange(&end, qp, request);
        let telling = |what: u32| ibv_send_wr {
            imm: ibv_send_wr_imm { imm_data: what.to_be() },
            ..wr(IBV_WR_SEND_WITH_IMM)
        };
        let mut untold = 0;
        while untold < 2 {
            expect_watched(|| {
                exchange(wr(IBV_WR_SEND));
                positions.watched.load(SeqCst) == 1
            });
            exchange(telling(SLEEP));
            post(qp, &mut wr(IBV_WR_SEND));
            untold += positions.watched.load(SeqCst);
            assert_eq!(end.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
        }
        exchange(telling(END));
        child.finish();
    }

    /// Two processes, each of which waits now in one way and now in another, miss no message.
    fn no_message_is_missed_by_who_polls_and_sleeps_by_turns() {
        let _turn = take_processors();
        let games = if is_long() { 100 } else { 2 };
        for seed in 0..games {
            let mut players = [Child::start(path_of!("player")), Child::start(path_of!("player"))];
            for (number, player) in (0..).zip(&mut players) {
                player.tell(&[2 * seed + number, ROUNDS]);
            }
            for _ in 0..2 {
                // Their numbers; connected.
                let words = players.each_mut().map(|player| player.channel.hear_all());
                players[0].tell(&words[1]);
                players[1].tell(&words[0]);
            }
            // Both have receives.
            for player in &mut players {
                let [] = player.hear();
            }
            for (begins, player) in (0..).zip(&mut players) {
                player.tell(&[begins]);
            }
            for player in &mut players {
                let [] = player.hear();
            }
            for mut player in players {
                player.tell(&[]);
                player.finish();
            }
        }
    }
}
