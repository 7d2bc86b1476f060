//! Tests of the ledger alone.

use super::*;

const QP: usize = 0x1000;
const CONTEXT: usize = 0x10;

fn at(line: usize) -> Call {
    let mut call = Call::by(1);
    call.push(line);
    call
}

fn send(wr_id: u64, is_signaled: bool) -> Posted {
    let (what, bytes, sges) = ("SEND", 64, 1);
    let buffers = vec![Buffer::new(9, 0x5000, 64)];
    Posted {
        wr_id,
        what,
        bytes,
        sges,
        buffers,
        is_target: false,
        from: None,
        sample: None,
        is_inline: false,
        is_signaled,
        binds: None,
        call: at(20),
    }
}

fn completed(wr_id: u64, has_failed: bool) -> Completed {
    let is_success = !has_failed;
    Completed { number: 7, wr_id, is_receive: false, is_success, has_failed, refused: None }
}

fn with_pair() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.made(Thing::QueuePair, QP, CONTEXT, 7, &at(1));
    let asked = Asked { sends: 8, receives: 8, send_sges: 1, receive_sges: 1, ..Asked::default() };
    ledger.pair_made(QP, 7, asked);
    ledger
}

/// Posts sends that are accepted.
fn post(ledger: &mut Ledger, posted: &[Posted]) {
    ledger.sends_posted(QP, posted);
    ledger.sends_taken(QP, posted);
}

fn ends(ledger: &mut Ledger, under_way: usize) -> Vec<Kind> {
    ledger.pair_ended(QP, under_way, RanDry::default(), &at(30));
    ledger.ended(Thing::QueuePair, QP, &at(30));
    kinds(ledger)
}

fn kinds(ledger: &mut Ledger) -> Vec<Kind> {
    ledger.take().iter().map(|mistake| mistake.kind).collect()
}

/// Rules: CHK-01, CHK-02
#[test]
fn work_is_lost_only_if_it_is_under_way() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(1, true), send(2, true)]);
    ledger.pair_ended(QP, 1, RanDry::default(), &at(30));
    let mistakes = ledger.take();
    assert_eq!(mistakes[0].kind, Kind::WorkLost);
    let places: Vec<_> = mistakes[0].calls.iter().map(|(_, call)| call.frames()[0]).collect();
    assert_eq!(places, [30, 20, 1]);

    let mut ledger = with_pair();
    post(&mut ledger, &[send(1, true), send(2, true)]);
    assert_eq!(ends(&mut ledger, 0), [Kind::CompletionsUnpolled]);

    let mut ledger = with_pair();
    post(&mut ledger, &[send(1, false), send(2, true), send(3, false)]);
    ledger.polled(&[completed(2, false)], &at(25));
    assert_eq!(ends(&mut ledger, 0), []);
}

/// Rule: CHK-02
#[test]
fn a_completion_is_of_a_request_that_asked_for_it() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(0, false), send(0, false), send(0, true), send(0, true)]);
    ledger.polled(&[completed(0, false), completed(0, false)], &at(25));
    assert_eq!(ends(&mut ledger, 0), []);
}

/// Rule: CHK-05
#[test]
fn a_dead_object_is_known_until_its_memory_is_used_again() {
    let mut ledger = with_pair();
    ends(&mut ledger, 0);
    ledger.not_alive("ibv_post_send", Thing::QueuePair, QP, &at(40));
    let mistakes = ledger.take();
    assert_eq!(mistakes[0].says, "ibv_post_send got queue pair 0x7, which is destroyed.");
    ledger.made(Thing::QueuePair, QP, CONTEXT, 8, &at(2));
    ledger.not_alive("ibv_post_send", Thing::QueuePair, QP, &at(40));
    ledger.not_alive("ibv_post_send", Thing::QueuePair, 0x9999, &at(40));
    assert_eq!(ledger.take(), []);
}

/// Rules: CHK-04, CHK-06, CHK-07
#[test]
fn what_is_left_is_told_by_where_it_was_made() {
    let mut ledger = Ledger::default();
    for (address, line) in [(1, 10), (2, 10), (3, 11)] {
        ledger.made(Thing::Region, address, CONTEXT, 0x55, &at(line));
    }
    ledger.made(Thing::Domain, 4, CONTEXT, 0, &at(12));
    ledger.made(Thing::Domain, 5, CONTEXT + 1, 0, &at(12));
    ledger.busy(Thing::Domain, 4, &at(13));
    ledger.context_closes(CONTEXT, &at(14));
    let mistakes = ledger.take();
    let told: Vec<_> = mistakes.iter().map(|it| (it.kind, &it.says[..])).collect();
    let expected = [
        (Kind::LeftAtClose, "2 memory regions are there when the device is closed."),
        (Kind::LeftAtClose, "the memory region with key 0x55 is there when the device is closed."),
        (
            Kind::BusyIgnored,
            "ibv_dealloc_pd answered EBUSY and was not called again: a protection domain is there when the device is \
             closed.",
        ),
    ];
    assert_eq!(told, expected);
    ledger.ended(Thing::Domain, 4, &at(15));
    ledger.process_ends();
    assert!(kinds(&mut ledger).iter().all(|kind| *kind == Kind::LeftAtExit));
}

/// Rule: CHK-20
#[test]
fn a_full_queue_without_signals_stays_full() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(1, false), send(2, true)]);
    ledger.send_queue_full(QP, &at(21));
    assert_eq!(ledger.take(), []);
    ledger.polled(&[completed(2, false)], &at(25));
    post(&mut ledger, &[send(3, false), send(4, false)]);
    ledger.send_queue_full(QP, &at(21));
    ledger.send_queue_full(QP, &at(21));
    assert_eq!(kinds(&mut ledger), [Kind::NothingSignaled]);
}

/// Rules: CHK-01, CHK-25
#[test]
fn what_is_refused_was_never_there() {
    let mut ledger = with_pair();
    ledger.sends_posted(QP, &[send(1, true), send(2, true), send(3, true)]);
    ledger.sends_refused(QP, &[send(2, true), send(3, true)]);
    ledger.polled(&[completed(1, false)], &at(25));
    assert_eq!(ends(&mut ledger, 1), [Kind::RefusedAndDropped]);

    let mut ledger = with_pair();
    ledger.sends_posted(QP, &[send(1, true)]);
    ledger.sends_refused(QP, &[send(1, true)]);
    post(&mut ledger, &[send(1, true)]);
    ledger.polled(&[completed(1, false)], &at(25));
    assert_eq!(ends(&mut ledger, 0), []);
}

/// Rule: CHK-08
#[test]
fn posting_goes_on_after_an_error_only_if_the_thread_knows_of_it() {
    let mut ledger = with_pair();
    let other = |posted: Posted| Posted { call: Call::by(2), ..posted };
    post(&mut ledger, &[send(1, true)]);
    ledger.polled(&[completed(1, true)], &at(25));
    // It handles the completions that it has polled.
    post(&mut ledger, &[send(2, true)]);
    ledger.polled(&[], &at(26));
    post(&mut ledger, &[other(send(3, true)), Posted { bytes: 0, ..send(4, true) }]);
    assert_eq!(ledger.take(), []);
    post(&mut ledger, &[send(5, true)]);
    post(&mut ledger, &[send(6, true)]);
    assert_eq!(kinds(&mut ledger), [Kind::PostedAfterError]);
    ledger.pair_modified(QP, true, &at(28));
    post(&mut ledger, &[send(7, true)]);
    assert_eq!(ledger.take(), []);
}

/// Rule: CHK-08
#[test]
fn a_receive_is_no_answer_to_an_error() {
    let received = |wr_id| Completed { is_receive: true, ..completed(wr_id, false) };
    for last_is_well in [true, false] {
        let mut ledger = with_pair();
        ledger.receives_posted(QP, &[send(1, true), send(2, true)]);
        ledger.polled(&[completed(9, true)], &at(25));
        let last = Completed { is_success: last_is_well, ..received(1) };
        ledger.polled(&[last], &at(26));
        ledger.receives_posted(QP, &[Posted { bytes: 0, ..send(3, true) }]);
        assert_eq!(ledger.take(), []);
        ledger.receives_posted(QP, &[send(1, true)]);
        let expected: &[Kind] = if last_is_well { &[] } else { &[Kind::PostedAfterError] };
        assert_eq!(kinds(&mut ledger), expected);
    }
}

/// Rule: CHK-26
#[test]
fn what_is_refused_is_named_by_its_post() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(1, true), send(2, true)]);
    let refused = Some("remote access error");
    ledger.polled(&[Completed { refused, ..completed(2, true) }], &at(25));
    let mistakes = ledger.take();
    assert_eq!(mistakes[0].kind, Kind::RequestRefused);
    assert!(mistakes[0].calls[0].0.ends_with("wr_id 0x2"), "{mistakes:?}");
    ledger.polled(&[completed(2, true)], &at(25));
    assert_eq!(ledger.take(), []);
}

/// Rule: CHK-24
#[test]
fn a_late_receive_is_named_and_the_reset_that_took_the_others() {
    let ran_dry = |ledger: &mut Ledger| {
        let dry = RanDry { times: 2, waits: 1 };
        ledger.pair_ended(QP, 0, dry, &at(30));
        let calls = ledger.take().remove(0).calls;
        calls.iter().map(|(_, call)| call.frames()[0]).collect::<Vec<_>>()
    };
    let mut ledger = with_pair();
    assert!(ledger.receives_posted(QP, &[send(1, true)]));
    ledger.receive_was_late(QP, 0, &at(40));
    ledger.pair_modified(QP, true, &at(41));
    assert!(ledger.receives_posted(QP, &[send(1, true)]));
    assert!(!ledger.receives_posted(QP, &[send(1, true)]));
    ledger.receive_was_late(QP, 2, &at(42));
    ledger.receive_was_late(QP, 2, &at(43));
    assert_eq!(ran_dry(&mut ledger), [42, 1]);
    let mut ledger = with_pair();
    ledger.pair_modified(QP, true, &at(40));
    ledger.receives_posted(QP, &[send(1, true)]);
    ledger.pair_modified(QP, true, &at(41));
    assert_eq!(ran_dry(&mut ledger), [41, 1]);
}

/// Rule: CHK-23
#[test]
fn more_than_was_asked_for_is_noted() {
    let mut ledger = with_pair();
    post(&mut ledger, &[Posted { is_inline: true, ..send(1, true) }]);
    ledger.receives_posted(QP, &[Posted { sges: 2, ..send(1, true) }]);
    assert_eq!(kinds(&mut ledger), [Kind::BeyondAsked, Kind::BeyondAsked]);
}

/// Rule: CHK-23
#[test]
fn more_requests_than_were_asked_for_are_noted() {
    let mut ledger = with_pair();
    let receives: Vec<_> = (0..9).map(|wr_id| send(wr_id, true)).collect();
    ledger.receives_posted(QP, &receives);
    ledger.receives_refused(QP, &receives[8..]);
    assert_eq!(ends(&mut ledger, 0), [Kind::RefusedAndDropped]);
    let mut ledger = with_pair();
    ledger.receives_posted(QP, &receives);
    assert_eq!(ends(&mut ledger, 0), [Kind::BeyondAsked]);
}

/// Rule: CHK-22
#[test]
fn a_queue_has_room_for_what_may_complete_into_it() {
    let mut ledger = Ledger::default();
    let asked = |shared| Asked {
        sends: 4,
        receives: 4,
        send_queue: 1,
        receive_queue: 1,
        shared,
        ..Asked::default()
    };
    ledger.queue_sized(1, 12);
    ledger.pair_made(QP, 7, asked(0));
    ledger.pair_made(QP + 1, 8, asked(5));
    ledger.pair_ended(QP + 1, 0, RanDry::default(), &at(30));
    ledger.pair_made(QP + 1, 9, asked(5));
    assert_eq!(ledger.take(), []);
    ledger.pair_made(QP + 2, 10, asked(5));
    assert_eq!(kinds(&mut ledger), [Kind::QueueCouldOverrun]);
}

const CQ: usize = 0x2000;
const CHANNEL: usize = 0x3000;
const COMPLETIONS: Owner =
    Owner { event: Event::Completion, thing: Thing::CompletionQueue, address: CQ };

fn with_queue() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.made(Thing::CompletionQueue, CQ, CONTEXT, 3, &at(1));
    ledger.queue_watched(CQ, CHANNEL, &at(1));
    ledger
}

/// Rules: CHK-30, CHK-31, CHK-32, CHK-34
#[test]
fn events_are_acknowledged_once_each() {
    let mut ledger = with_queue();
    ledger.event_got(COMPLETIONS, &at(5));
    ledger.event_got(COMPLETIONS, &at(6));
    ledger.events_acknowledged(COMPLETIONS, 2, &at(7));
    ledger.waits_for_ack("ibv_destroy_cq", COMPLETIONS, true, &at(8));
    ledger.process_ends();
    assert_eq!(kinds(&mut ledger), [Kind::LeftAtExit]);

    ledger.event_got(COMPLETIONS, &at(5));
    ledger.waits_for_ack("ibv_destroy_cq", COMPLETIONS, true, &at(8));
    ledger.waits_for_ack("ibv_destroy_cq", COMPLETIONS, false, &at(8));
    ledger.context_closes(CONTEXT, &at(9));
    let expected = [Kind::OwnAck, Kind::WaitsForAck, Kind::LeftAtClose, Kind::NeverAcked];
    assert_eq!(kinds(&mut ledger), expected);
    ledger.events_acknowledged(COMPLETIONS, 1, &at(7));
    assert_eq!(kinds(&mut ledger), [Kind::AckedTooMuch]);
}

/// Whether this thread misses the `holds` completions of the queue.
fn is_stuck(ledger: &Ledger, thread: u32, events: usize, is_armed: bool, holds: usize) -> bool {
    let look = Look { queue: CQ, is_armed, holds };
    ledger.stuck(CHANNEL, thread, events, &[look]).is_some()
}

/// Rule: CHK-50
#[test]
fn a_queue_that_is_not_armed_wakes_nobody() {
    let mut ledger = with_queue();
    assert!(is_stuck(&ledger, 1, 0, false, 2));
    // An event waits. Or there is nothing to miss. Or the next completion raises an event.
    assert!(!is_stuck(&ledger, 1, 1, false, 2));
    assert!(!is_stuck(&ledger, 1, 0, false, 0));
    assert!(!is_stuck(&ledger, 1, 0, true, 2));
    // Another thread may look after the queue.
    assert!(!is_stuck(&ledger, 2, 0, false, 2));
    ledger.queue_polled(CQ, 1, true, &Call::by(2));
    assert!(is_stuck(&ledger, 2, 0, false, 2));
    ledger.queue_told(CQ, &at(29));
    assert!(!is_stuck(&ledger, 2, 0, false, 2));
}

/// Rule: CHK-50
#[test]
fn what_came_before_a_queue_was_armed_is_missed_unless_somebody_looks() {
    let arming = Arming { is_plain: true, held: 3, has_receive: true, raised: true };
    let armed = |arming| {
        let mut ledger = with_queue();
        ledger.queue_armed(CQ, arming, &at(4));
        ledger
    };
    let mut ledger = armed(arming);
    assert!(is_stuck(&ledger, 1, 1, false, 3));
    ledger.queue_polled(CQ, 1, false, &Call::by(1));
    assert!(is_stuck(&ledger, 1, 1, false, 2));
    // One more completion has come, or another event.
    assert!(!is_stuck(&ledger, 1, 1, false, 3));
    assert!(!is_stuck(&ledger, 1, 2, false, 2));
    ledger.queue_polled(CQ, 0, true, &Call::by(1));
    assert!(!is_stuck(&ledger, 1, 1, false, 2));
    // The new send may complete.
    let mut ledger = armed(arming);
    ledger.sends_posted(QP, &[send(1, true)]);
    assert!(!is_stuck(&ledger, 1, 1, false, 3));
    for other in [Arming { is_plain: false, ..arming }, Arming { has_receive: false, ..arming }] {
        assert!(!is_stuck(&armed(other), 1, 1, false, 3));
    }
}

/// Rules: CHK-03, CHK-09
#[test]
fn what_nobody_read_is_told_when_its_object_ends() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(5, true)]);
    let status = "remote access error";
    ledger.errors_unread(QP, &[Unread { wr_id: 5, status }], &at(30));
    ledger.events_unread(Some(Thing::QueuePair), QP, &["IBV_EVENT_QP_ACCESS_ERR"], &at(30));
    ledger.errors_unread(QP, &[], &at(30));
    let mistakes = ledger.take();
    let told: Vec<_> = mistakes.iter().map(|it| (it.kind, it.calls.len())).collect();
    assert_eq!(told, [(Kind::ErrorUnread, 3), (Kind::AsyncUnread, 2)]);
}

const DEVICE: usize = 3;

/// A queue pair and a region. Only the program may write to the region, unless it is open.
fn with_region(is_open: bool) -> Ledger {
    let mut ledger = with_pair();
    let (address, base, length) = (0x1_0000, 0x5000, 0x1000);
    let (context, object, is_program) = (CONTEXT, 1, true);
    let region = Region {
        context,
        object,
        address,
        place: address,
        base,
        length,
        is_program,
        is_open,
        is_on_demand: false,
    };
    ledger.registered(DEVICE, 9, region);
    ledger
}

/// Posts a send whose source is watched.
fn watched(ledger: &mut Ledger) -> Posted {
    let mut posted = [send(1, true)];
    ledger.locate(DEVICE, &mut posted);
    let pieces = posted[0].watched();
    assert_eq!((pieces[0].at, pieces[0].bytes.len()), (0x1_0000, 64));
    posted[0].sample = Some(ledger.sample(pieces));
    post(ledger, &posted);
    let [posted] = posted;
    posted
}

fn receive(ledger: &mut Ledger, address: u64) -> Posted {
    let buffers = vec![Buffer::new(9, address, 64)];
    let mut posted = [Posted { what: "receive", is_target: true, buffers, ..send(2, true) }];
    ledger.locate(DEVICE, &mut posted);
    ledger.receives_posted(QP, &posted);
    let [posted] = posted;
    posted
}

/// Rules: CHK-60, CHK-66
#[test]
fn a_source_is_changed_by_the_program_unless_somebody_else_may_write_there() {
    let change = Change { first: 3, count: 1 };
    for (is_open, kind) in [(false, Kind::SourceChanged), (true, Kind::SourceRaced)] {
        let mut ledger = with_region(is_open);
        watched(&mut ledger);
        let ended = ledger.polled(&[completed(1, false)], &at(25));
        ledger.source_changed(&ended[0], change, &at(25));
        let mistakes = ledger.take();
        assert_eq!(mistakes[0].kind, kind);
        let expected =
            "1 byte of a SEND changed before its completion was polled, the first at offset 3.";
        assert_eq!(mistakes[0].says, expected);
    }
    // A receive into it is posted, or was posted at the time of the source's post.
    for polled_first in [false, true] {
        let mut ledger = with_region(false);
        receive(&mut ledger, 0x5020);
        let posted = watched(&mut ledger);
        if polled_first {
            ledger.polled(&[Completed { is_receive: true, ..completed(2, false) }], &at(24));
        }
        ledger.source_changed(&posted, change, &at(25));
        assert_eq!(ledger.take(), []);
    }
}

/// Rule: CHK-60
#[test]
fn what_failed_is_not_compared() {
    let mut ledger = with_region(false);
    watched(&mut ledger);
    let failed = Completed { is_success: false, ..completed(1, false) };
    assert_eq!(ledger.polled(&[failed], &at(25)), []);
}

/// Rule: CHK-60
#[test]
fn of_a_long_source_both_ends_are_watched() {
    let ledger = with_region(false);
    let buffers = vec![Buffer::new(9, 0x5000, 0x800), Buffer::new(9, 0x5100, 0xf00)];
    let mut posted = [Posted { buffers, ..send(1, true) }];
    ledger.locate(DEVICE, &mut posted);
    let pieces = posted[0].watched();
    let places: Vec<_> = pieces.iter().map(|it| (it.at, it.offset, it.bytes.len())).collect();
    assert_eq!(places, [(0x1_0000, 0, 0x800), (0x1_0800, 0xf00, 0x800)]);
}

/// Rules: CHK-63, CHK-65
#[test]
fn a_region_ends_in_flight_only_while_the_device_has_a_request() {
    let under_way = |sends, receives| UnderWay { pair: QP, posted: 2, sends, receives };
    let cases = [
        (under_way(1, false), vec![Kind::EndedInFlight]),
        (under_way(0, false), vec![Kind::EndedUnpolled]),
    ];
    for (under_way, expected) in cases {
        let mut ledger = with_region(false);
        watched(&mut ledger);
        watched(&mut ledger);
        assert_eq!(ledger.pairs_naming(DEVICE, 9), [(QP, 2)]);
        ledger.region_ends(DEVICE, 9, &[under_way], &at(50));
        assert_eq!(kinds(&mut ledger), expected);
    }
    for (receives, expected) in [(true, vec![Kind::EndedUnpolled]), (false, vec![])] {
        let mut ledger = with_region(false);
        receive(&mut ledger, 0x5000);
        assert_eq!(ledger.pairs_naming(DEVICE, 9), [(QP, 0)]);
        ledger.region_ends(DEVICE, 9, &[under_way(0, receives)], &at(50));
        assert_eq!(kinds(&mut ledger), expected);
    }
}

/// Rule: CHK-63
#[test]
fn a_request_posted_after_the_device_was_asked_is_not_taken_for_one_under_way() {
    let mut ledger = with_region(false);
    watched(&mut ledger);
    let under_way = UnderWay { pair: QP, posted: 1, sends: 1, receives: false };
    post(&mut ledger, &[send(3, true)]);
    ledger.region_ends(DEVICE, 9, &[under_way], &at(50));
    // The send under way may be either of them. So this one counts as ended.
    assert_eq!(kinds(&mut ledger), [Kind::EndedUnpolled]);
}

/// Rule: CHK-62
#[test]
fn reads_of_different_memory_do_not_share_a_buffer() {
    let mut ledger = with_region(false);
    let mut read = |wr_id, from| {
        let buffers = vec![Buffer::new(9, 0x5000, 64)];
        let (is_target, from) = (true, Some((3, from)));
        let mut posted = [Posted { what: "READ", is_target, from, buffers, ..send(wr_id, true) }];
        ledger.locate(DEVICE, &mut posted);
        post(&mut ledger, &posted);
        kinds(&mut ledger)
    };
    assert_eq!(read(1, 0x100), []);
    assert_eq!(read(2, 0x100), []);
    assert_eq!(read(3, 0x140), [Kind::TargetsOverlap]);
}

/// Rule: CHK-62
#[test]
fn targets_overlap_while_both_are_out() {
    let mut ledger = with_region(false);
    receive(&mut ledger, 0x5000);
    receive(&mut ledger, 0x5000);
    let next = receive(&mut ledger, 0x5040);
    assert_eq!(ledger.take(), []);
    ledger.receives_refused(QP, &[next]);
    receive(&mut ledger, 0x5020);
    assert_eq!(kinds(&mut ledger), [Kind::TargetsOverlap]);
    ledger.pair_modified(QP, true, &at(28));
    receive(&mut ledger, 0x5010);
    assert_eq!(ledger.take(), []);
}

fn leaving(ledger: &Ledger, range: std::ops::Range<u64>, is_private: bool) -> Leaving {
    let regions = ledger.regions_in(&range);
    Leaving { range, regions, is_private, call: at(60) }
}

/// Posts a send whose source is at 0x1_0000. Returns the mistakes that the ledger reports.
fn said_of_a_send(ledger: &mut Ledger) -> Vec<Kind> {
    let mut posted = [send(1, true)];
    ledger.locate(DEVICE, &mut posted);
    ledger.tell_gone(&posted);
    ledger.tell_claimed(&posted);
    kinds(ledger)
}

/// Rules: CHK-40, CHK-45
#[test]
fn what_is_gone_stays_gone_until_its_region_ends() {
    let whole = 0x1_0000..0x1_1000;
    let cases = [
        (whole.clone(), true, GivenHow::Unmapped, vec![Kind::MemoryGone]),
        (whole.clone(), true, GivenHow::Emptied, vec![Kind::MemoryGone]),
        // Others have these pages, the allocator may give them out again, or the send names other bytes.
        (whole.clone(), false, GivenHow::Unmapped, vec![]),
        (whole.clone(), true, GivenHow::Freed, vec![]),
        (0x1_0040..0x1_1000, true, GivenHow::Unmapped, vec![]),
    ];
    for (range, is_private, how, expected) in cases {
        let mut ledger = with_region(false);
        let leaving = leaving(&ledger, range, is_private);
        ledger.given_back(&leaving, how, &[]);
        assert_eq!(kinds(&mut ledger), [Kind::GivenBack], "{how:?}");
        assert_eq!(said_of_a_send(&mut ledger), expected, "{how:?}");
        ledger.region_ends(DEVICE, 9, &[], &at(61));
        assert_eq!((said_of_a_send(&mut ledger), leaving.regions.len()), (vec![], 1));
        ledger.given_back(&leaving, how, &[]);
        assert_eq!(ledger.take(), []);
    }
    let ledger = with_region(false);
    assert_eq!(ledger.regions_in(&(0x1_1000..0x2_0000)), []);
    assert_eq!(ledger.regions_in(&(0x1_0fff..0x2_0000)).len(), 1);
}

/// Rule: CHK-40
#[test]
fn freed_memory_is_used_only_by_what_is_under_way() {
    for (sends, expected) in [(1, Kind::MemoryGone), (0, Kind::GivenBack)] {
        let mut ledger = with_region(false);
        watched(&mut ledger);
        let leaving = leaving(&ledger, 0x1_0020..0x1_0030, true);
        let pairs = ledger.pairs_in(&leaving);
        assert_eq!(pairs, [(QP, 1)]);
        let under_way = UnderWay { pair: QP, posted: 1, sends, receives: false };
        ledger.given_back(&leaving, GivenHow::Freed, &[under_way]);
        assert_eq!(kinds(&mut ledger), [expected]);
    }
}

/// Rule: CHK-46
#[test]
fn what_is_released_of_a_claim_is_free() {
    let mut ledger = with_region(false);
    ledger.claims(&(0xff00..0x1_1000), &at(70));
    assert_eq!(said_of_a_send(&mut ledger), [Kind::ClaimedInUse]);
    ledger.releases(&(0x1_0000..0x1_003f));
    assert_eq!(said_of_a_send(&mut ledger), [Kind::ClaimedInUse]);
    ledger.releases(&(0x1_003f..0x1_0040));
    assert_eq!(said_of_a_send(&mut ledger), []);
    ledger.written("WRITE", 9, 0x5040, 8);
    assert_eq!(kinds(&mut ledger), [Kind::ClaimedInUse]);
    ledger.written("WRITE", 9, 0x5000, 8);
    assert_eq!(ledger.take(), []);
    ledger.claims(&(0x1_0010..0x1_0020), &at(71));
    assert_eq!(said_of_a_send(&mut ledger), [Kind::ClaimedInUse]);
}
