//! Atomics of several processes on one word of private memory, which the kernel copies. The process that has the turn
//! may be stopped or killed.

use std::time::Instant;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("adder", adder)]);
}

/// Adds one so often, and after each writes how often that was.
fn adder(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    let near = Buffer::private(4096);
    let mr = end.reg(&near, IBV_ACCESS_LOCAL_WRITE as i32);
    let [word, done, key, count] = channel.hear();
    for number in 1..=count {
        add(qp, &end, [sge(near.addr(), 8, mr)], word, key as u32);
        near.set_word(8, number);
        let mut sges = [sge(near.addr() + 8, 8, mr)];
        post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, done, key as u32));
        end.expect(IBV_WC_SUCCESS);
    }
    channel.tell(&[]);
    let [] = channel.hear();
}

fn add(qp: *mut ibv_qp, end: &End, mut old: [ibv_sge; 1], word: u64, key: u32) {
    post(qp, &mut atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut old, word, key, 1, 0));
    end.expect(IBV_WC_SUCCESS);
}

/// Adds that others do, each at a place of its own.
struct Adders {
    end: End,
    memory: Buffer,
    mr: *mut ibv_mr,
    count: u64,
}

impl Adders {
    fn new(count: u64) -> Self {
        let (end, memory) = (open(), Buffer::private(4096));
        let mr = end.reg(&memory, ALL);
        Self { end, memory, mr, count }
    }

    fn start(&self, place: usize) -> Child {
        let (mut child, qp) = (Child::start(path_of!("adder")), self.end.qp(IBV_QPT_RC));
        meet(&mut child.channel, qp);
        self.memory.set_word(8 * place, 0);
        let done = self.memory.addr() + 8 * place as u64;
        child.tell(&[self.memory.addr(), done, keys(self.mr).1.into(), self.count]);
        child
    }

    /// How often one has added and said so.
    fn done(&self, place: usize) -> u64 {
        self.memory.word(8 * place)
    }
}

/// No addition is lost or done twice while those who add are stopped at any moment and go on later, and nobody waits for
/// them: neither this process, by its own device, nor the other.
///
/// Rules: AT-09
#[test]
fn no_addition_is_lost_though_who_adds_is_stopped() {
    alone(path_of!("no_addition_is_lost_though_who_adds_is_stopped"), Way::Direct, || {
        let adders = Adders::new(if is_long() { 2_000_000 } else { 20_000 });
        let near = Buffer::private(4096);
        let mr = adders.end.reg(&near, IBV_ACCESS_LOCAL_WRITE as i32);
        let (qp, other) = (adders.end.qp(IBV_QPT_RC), adders.end.qp(IBV_QPT_RC));
        connect(qp, other);
        let mut children = [1, 2].map(|place| (place, adders.start(place)));
        let (mut own, mut round) = (0, 0_usize);
        while children.iter().any(|(place, _)| adders.done(*place) < adders.count) {
            let (stopped, going) = (&children[round % 2], &children[(round + 1) % 2]);
            stopped.1.stop();
            let (still, before) = (adders.done(stopped.0), adders.done(going.0));
            let begun = Instant::now();
            for _ in 0..3 {
                let key = keys(adders.mr).1;
                add(qp, &adders.end, [sge(near.addr(), 8, mr)], adders.memory.addr(), key);
                own += 1;
            }
            // The other one goes on as well.
            until("an addition of the other's", || {
                let done = adders.done(going.0);
                (done > before || done == adders.count).then_some(())
            });
            assert!(begun.elapsed().as_secs() < 20, "round {round}");
            // What it had said before it stopped is all that it says.
            assert_eq!(adders.done(stopped.0), still);
            stopped.1.resume();
            round += 1;
        }
        for (_, child) in &mut children {
            let [] = child.hear();
            child.tell(&[]);
        }
        assert_eq!(adders.memory.word(0), own + 2 * adders.count, "after {round} rounds");
        children.into_iter().for_each(|(_, child)| child.finish());
    });
}

/// Who is killed leaves nothing half done, and its turn to others: of each at most the addition is there that it did not
/// live to tell.
///
/// Rules: AT-09
#[test]
fn no_addition_is_lost_though_who_adds_is_killed() {
    alone(path_of!("no_addition_is_lost_though_who_adds_is_killed"), Way::Direct, || {
        let adders = Adders::new(1 << 40);
        let steady = adders.start(1);
        let (mut told, kills) = (0, if is_long() { 2_000 } else { 20 });
        for kill in 0..kills {
            let child = adders.start(2);
            // At any moment of its work.
            until("additions", || (adders.done(2) > kill % 50).then_some(()));
            child.kill();
            told += adders.done(2);
            let before = adders.done(1);
            until("an addition of the other's", || (adders.done(1) > before).then_some(()));
        }
        steady.stop();
        let all = adders.memory.word(0);
        let least = told + adders.done(1);
        // One of each that was killed, and one of the one that is stopped now.
        assert!((least..=least + kills + 1).contains(&all), "{all}, and told were {least}");
        steady.resume();
        steady.kill();
    });
}
