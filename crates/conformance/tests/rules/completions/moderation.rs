//! Moderated completion events: after so many completions, or so long after the first.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::queues::*;

/// The longest period, in microseconds: far longer than a few posts take.
const LONG: u16 = u16::MAX;

/// A queue with a channel, and a queue pair each of whose receives completes at once.
struct Watched {
    end: End,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl Watched {
    fn new() -> Self {
        let end = End::new(Default::default());
        let channel = channel(end.context);
        let cq = try_cq(end.context, 4096, channel).unwrap();
        let qp = flushing(&end, cq);
        Self { end, channel, cq, qp }
    }

    fn moderate(&self, count: u16, period: u16) {
        moderate(self.end.context, self.cq, count, period);
    }

    fn arm(&self) {
        assert_eq!(arm(self.cq, false), 0);
    }

    fn complete(&self, count: u64) {
        (0..count).for_each(|wr_id| recv(self.qp, wr_id, &mut []));
    }

    /// Takes the completions that are there.
    fn take_all(&self) {
        while poll(self.cq).is_some() {}
    }

    fn has_event(&self) -> bool {
        has_cq_event(self.channel)
    }

    /// Sleeps until the event is there, polling nothing.
    fn sleep_for_event(&self) {
        // SAFETY: a live channel.
        let fd = unsafe { (*self.channel).fd };
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry of this call's own.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 20_000) }, 1, "no event comes");
        assert_eq!(cq_event(self.channel), self.cq);
    }
}

/// An event comes with the last of so many completions, not before, and none after it.
/// Rules: CQ-06
#[test]
fn a_count_of_completions_brings_one_event() {
    let it = Watched::new();
    it.moderate(4, LONG);
    for _ in 0..3 {
        it.take_all();
        it.arm();
        let start = Instant::now();
        it.complete(3);
        let early = it.has_event();
        // On a machine that took so long the period may have ended.
        if start.elapsed() < Duration::from_micros(LONG.into()) {
            assert!(!early, "three are not four");
        }
        it.complete(1);
        assert!(it.has_event());
        assert_eq!(cq_event(it.channel), it.cq);
        it.complete(8);
        assert!(!it.has_event());
    }
}

/// Fewer completions bring the event when the period is over, to a program that just sleeps.
#[test]
fn the_end_of_the_period_brings_the_event() {
    let it = Watched::new();
    it.moderate(1000, 20_000);
    for _ in 0..3 {
        takes_at_least(Duration::from_millis(20), || {
            // What waits since the last time begins the period.
            it.arm();
            it.complete(2);
            it.sleep_for_event();
        });
        assert!(!it.has_event());
    }
}

/// The period ends as well while the program polls, and after counts that were reached before it.
#[test]
fn the_period_ends_while_the_program_polls() {
    let it = Watched::new();
    it.moderate(3, 20_000);
    it.arm();
    it.complete(3);
    assert_eq!(cq_event(it.channel), it.cq);
    it.take_all();
    it.arm();
    takes_at_least(Duration::from_millis(20), || {
        it.complete(1);
        until("the event", || {
            let _ = poll(it.cq);
            it.has_event().then_some(())
        });
    });
}

/// Half a moderation is none: nothing could end the wait, or nothing is waited for.
#[test]
fn without_count_or_period_events_come_at_once() {
    let it = Watched::new();
    for (count, period) in [(0, 0), (0, LONG), (1, LONG), (9, 0)] {
        it.moderate(count, period);
        it.arm();
        it.complete(1);
        assert!(it.has_event(), "{count} and {period} hold it back");
        assert_eq!(cq_event(it.channel), it.cq);
    }
}

/// A queue that nobody has armed raises no event, however many completions there are; those that wait
/// when it is armed count as if they came then.
/// Rules: CQ-10
#[test]
fn what_waits_when_armed_counts() {
    let it = Watched::new();
    it.moderate(4, LONG);
    it.complete(10);
    assert!(!it.has_event());
    it.arm();
    assert!(it.has_event());
    assert_eq!(cq_event(it.channel), it.cq);
    for _ in 0..8 {
        wait(it.cq);
    }
    let start = Instant::now();
    it.arm();
    it.complete(1);
    let early = it.has_event();
    // On a machine that took so long the period may have ended.
    if start.elapsed() < Duration::from_micros(LONG.into()) {
        assert!(!early, "three are not four");
    }
    it.complete(1);
    assert!(it.has_event());
}

/// What waits when the queue is armed brings the event at the end of the period at the latest.
/// Rules: CQ-10
#[test]
fn what_waits_when_armed_is_told_of_in_time() {
    let it = Watched::new();
    it.moderate(1000, 20_000);
    it.complete(1);
    takes_at_least(Duration::from_millis(20), || {
        it.arm();
        it.sleep_for_event();
    });
}

/// A change of the moderation lets go of what the old one held back.
#[test]
fn a_change_raises_what_was_held_back() {
    let it = Watched::new();
    it.moderate(1000, LONG);
    it.arm();
    it.complete(1);
    it.moderate(2000, LONG);
    assert!(it.has_event());
}

/// A queue may go while an event is held back, and its event with it.
#[test]
fn a_queue_can_go_in_its_period() {
    let it = Watched::new();
    it.moderate(1000, LONG);
    it.arm();
    let start = Instant::now();
    it.complete(1);
    assert_eq!((destroy_qp(it.qp), destroy_cq(it.cq)), (0, 0));
    let in_time = start.elapsed() < Duration::from_micros(LONG.into());
    // Another one's event comes after the first one's period.
    let other = Watched::new();
    other.moderate(1000, LONG);
    other.arm();
    other.complete(1);
    other.sleep_for_event();
    assert!(!(in_time && it.has_event()));
}

/// Of solicited events those completions count that would raise one: failed ones do.
/// Rules: CQ-07
#[test]
fn solicited_events_are_moderated_too() {
    let it = Watched::new();
    it.moderate(2, LONG);
    assert_eq!(arm(it.cq, true), 0);
    it.complete(2);
    assert!(it.has_event());
}

/// What cannot be changed is refused, and changes nothing.
#[test]
fn wrong_changes_are_refused() {
    let it = Watched::new();
    let context = it.end.context;
    let moderate = ibv_moderate_cq { cq_count: 9, cq_period: LONG };
    for attr_mask in [IBV_CQ_ATTR_RESERVED, IBV_CQ_ATTR_MODERATE | IBV_CQ_ATTR_RESERVED, !0] {
        let mut attr = ibv_modify_cq_attr { attr_mask, moderate };
        assert_eq!(modify_cq(context, it.cq, &mut attr), libc::EINVAL);
    }
    assert_eq!(modify_cq(context, it.cq, null_mut()), libc::EINVAL);
    // Nothing is to be changed.
    assert_eq!(modify_cq(context, it.cq, &mut ibv_modify_cq_attr { attr_mask: 0, moderate }), 0);
    it.arm();
    it.complete(1);
    assert!(it.has_event());
    assert_eq!(cq_event(it.channel), it.cq);
    assert_eq!((destroy_qp(it.qp), destroy_cq(it.cq)), (0, 0));
    let mut attr = ibv_modify_cq_attr { attr_mask: IBV_CQ_ATTR_MODERATE, moderate };
    assert_eq!(modify_cq(context, it.cq, &mut attr), libc::ENOENT);
    assert_eq!(modify_cq(context, null_mut(), &mut attr), libc::EINVAL);
}
