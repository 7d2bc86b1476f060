//! Memory that peers use again and again is mapped, also while its process sleeps; and what they do to it meanwhile
//! is done once.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_system::memory::{When, begin_mapping, is_mapped};

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("owner", owner), ("adder", adder)]);
}

/// Whether pages can be moved in this process at all.
fn can_move() -> bool {
    begin_mapping(When::Registered).is_ok()
}

/// Has a page that others use, and sleeps until it is asked what has become of it.
fn owner(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    let memory = Buffer::new(4096);
    let mr = end.reg(&memory, ALL);
    meet(channel, qp);
    channel.tell(&[memory.addr(), u64::from(keys(mr).1)]);
    let [] = channel.hear();
    assert!(!is_mapped(memory.addr(), 4096), "nobody has used it");
    channel.tell(&[]);
    loop {
        let [word] = channel.hear();
        assert_eq!(memory.word(0), word);
        memory.set_word(8, word + 1);
        let is_mapped = is_mapped(memory.addr(), 4096);
        channel.tell(&[u64::from(is_mapped)]);
        if is_mapped {
            break;
        }
    }
    let [word] = channel.hear();
    assert_eq!(memory.word(16), word);
    assert_eq!(dereg(mr), 0);
    assert!(!is_mapped(memory.addr(), 4096));
    assert_eq!([0, 8, 16].map(|at| memory.word(at)), [word - 2, word - 1, word]);
}

/// Rules: MR-40
#[test]
fn what_peers_use_is_mapped_though_its_process_sleeps() {
    alone(path_of!("what_peers_use_is_mapped_though_its_process_sleeps"), Way::Auto, || {
        if !can_move() {
            return eprintln!("skipped: memory cannot be mapped here");
        }
        let (end, mut child) = (open(), Child::start(path_of!("owner")));
        let qp = end.qp(IBV_QPT_RC);
        let near = Buffer::new(4096);
        let mr = end.reg(&near, ALL);
        meet(&mut child.channel, qp);
        let [addr, key] = child.hear();
        child.tell(&[]);
        let [] = child.hear();
        let go = |opcode, at: u64, word: u64| {
            near.set_word(0, word);
            let mut sges = [sge(near.addr(), 8, mr)];
            post(qp, &mut rdma_wr(opcode, &mut sges, addr + at, key as u32));
            assert_eq!(end.wait().status, IBV_WC_SUCCESS);
            near.word(0)
        };
        // The thread that moves the page may be late, or others not stop in time for it.
        let last = until("the page to be mapped", || {
            for _ in 0..1000 {
                let word = near.word(8) + 1;
                near.set_word(8, word);
                assert_eq!(go(IBV_WR_RDMA_WRITE, 0, word), word);
            }
            child.tell(&[near.word(8)]);
            let [is_mapped] = child.hear();
            (is_mapped == 1).then_some(near.word(8))
        });
        assert_eq!(go(IBV_WR_RDMA_READ, 8, 0), last + 1);
        go(IBV_WR_RDMA_WRITE, 16, last + 2);
        child.tell(&[last + 2]);
        child.finish();
    });
}

/// Adds one to a word of the other process as often as it is told.
fn adder(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    let near = Buffer::new(4096);
    let mr = end.reg(&near, ALL);
    meet(channel, qp);
    let [addr, key, times] = channel.hear();
    for _ in 0..times {
        let mut sges = [sge(near.addr(), 8, mr)];
        post(qp, &mut atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sges, addr, key as u32, 1, 0));
        assert_eq!(end.wait().status, IBV_WC_SUCCESS);
    }
    channel.tell(&[]);
    let [] = channel.hear();
}

/// An atomic operation is a message to the owner of private memory, and an instruction on mapped memory. The word is
/// moved both ways while two processes add to it, for its owner forks.
///
/// Rules: AT-09
#[test]
fn no_addition_is_lost_while_memory_moves() {
    alone(path_of!("no_addition_is_lost_while_memory_moves"), Way::Auto, || {
        let times: u64 = if is_long() { 200_000 } else { 5_000 };
        let end = open();
        let memory = Buffer::new(4096);
        let mr = end.reg(&memory, ALL);
        let mut adders = [(); 2].map(|()| {
            let mut child = Child::start(path_of!("adder"));
            let qp = end.qp(IBV_QPT_RC);
            meet(&mut child.channel, qp);
            child.tell(&[memory.addr(), u64::from(keys(mr).1), times]);
            child
        });
        let (mut was_mapped, mut seen) = (0, 0);
        while seen < 2 * times {
            let now = memory.word(0);
            assert!(now >= seen);
            seen = now;
            assert!(poll(end.cq).is_none());
            if is_mapped(memory.addr(), 8) {
                was_mapped += 1;
                fork_once(|| memory.word(0) >= seen);
            }
        }
        for child in &mut adders {
            let [] = child.hear();
            child.tell(&[]);
        }
        adders.into_iter().for_each(Child::finish);
        assert_eq!(memory.word(0), 2 * times);
        assert!(was_mapped > 0 || !can_move());
    });
}
