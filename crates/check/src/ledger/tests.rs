//! Tests of the ledger alone.

use super::*;
use crate::mark::Queue;

mod flight;

const QP: usize = 0x1000;
const DEVICE: usize = 3;
const CONTEXT: usize = 0x10;

fn at(line: usize) -> Call {
    let mut call = Call::by(1);
    call.push(line);
    call
}

fn send(wr_id: u64, is_signaled: bool) -> Posted {
    let (what, bytes, sges) = ("SEND", 64, 1);
    let buffers = [Buffer::new(9, 0x5000, 64)].into_iter().collect();
    Posted {
        wr_id,
        what,
        bytes,
        sges,
        buffers,
        is_target: false,
        is_receive: false,
        remote: None,
        adds: None,
        sample: Sample::default(),
        is_inline: false,
        is_signaled,
        binds: None,
        call: at(20),
    }
}

fn completed(wr_id: u64, has_failed: bool) -> Completed {
    let is_success = !has_failed;
    Completed {
        queue: 0,
        number: 7,
        wr_id,
        is_receive: false,
        is_tagged: false,
        bytes: 0,
        is_success,
        has_failed,
        refused: None,
    }
}

fn with_pair() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.made(Thing::QueuePair, QP, CONTEXT, 7, &at(1));
    let (send_sges, receive_sges) = (1, 1);
    let asked = Asked {
        sends: 8,
        receives: 8,
        send_sges,
        receive_sges,
        device: DEVICE,
        ..Asked::default()
    };
    ledger.pair_made(QP, 7, asked);
    ledger
}

/// Memory that has nothing.
struct Nothing;

impl ProgramMemory for Nothing {
    fn read_at_once(&self, _: &mut Posted) -> bool {
        true
    }

    fn read(&self, _: Vec<&mut Posted>) {}

    fn is_unchanged(&self, _: &Posted) -> bool {
        false
    }

    fn has(&self, address: u64) -> bool {
        address == 0x7fff_0000_0000
    }
}

/// The requests, for a ledger that writes them down.
fn written(posted: &[Posted]) -> impl Iterator<Item: FnOnce(&mut Posted)> {
    posted.iter().map(|it| |room: &mut Posted| room.clone_from(it))
}

/// Says that sends are about to be posted.
fn sends(ledger: &mut Ledger, pair: usize, posted: &[Posted]) -> bool {
    ledger.sends_posted(DEVICE, pair, written(posted), &posted[0].call, &Nothing)
}

/// Posts sends that are accepted.
fn post(ledger: &mut Ledger, posted: &[Posted]) {
    if sends(ledger, QP, posted) {
        ledger.sends_taken(QP, posted);
    }
}

/// Says that receives are about to be posted.
fn receives(ledger: &mut Ledger, posted: &[Posted]) -> bool {
    ledger.receives_posted(DEVICE, QP, written(posted), &posted[0].call, &Nothing)
}

/// Says that receives are about to be posted to a shared receive queue.
fn shared_receives(ledger: &mut Ledger, queue: usize, posted: &[Posted]) {
    ledger.shared_receives_posted(DEVICE, queue, written(posted), &posted[0].call, &Nothing);
}

/// Polls completions. Returns the requests whose content is to be compared.
fn poll(ledger: &mut Ledger, completed: &[Completed], call: &Call) -> Vec<Ended> {
    ledger.polled(completed.iter().copied(), call, &Nothing)
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
    poll(&mut ledger, &[completed(2, false)], &at(25));
    assert_eq!(ends(&mut ledger, 0), []);
}

/// Rule: CHK-02
#[test]
fn a_completion_is_of_a_request_that_asked_for_it() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(0, false), send(0, false), send(0, true), send(0, true)]);
    poll(&mut ledger, &[completed(0, false), completed(0, false)], &at(25));
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

/// Rules: CHK-05, CHK-33
#[test]
fn an_ended_id_is_known_until_its_memory_is_anothers() {
    const AT: usize = 0x7000;
    let is_named = |ledger: &mut Ledger| {
        ledger.given_to_connections("rdma_connect", AT, &at(3));
        kinds(ledger) == [Kind::UsedAfterDestroy]
    };
    let ended = || {
        let mut ledger = Ledger::default();
        ledger.made(Thing::Id, AT, 0, 0, &at(1));
        assert!(!ledger.has_ended(AT));
        ledger.ended(Thing::Id, AT, &at(2));
        assert!(ledger.has_ended(AT) && !ledger.has_ended(AT + 8));
        ledger
    };
    let mut ledger = ended();
    assert!(is_named(&mut ledger));
    ledger.connection_memory_freed(AT);
    assert!(!ledger.has_ended(AT) && !is_named(&mut ledger));
    // An event is where the id was, and the program has it.
    let mut ledger = ended();
    let event = ConnectionEvent { address: AT - 8, length: 64, id: 0x8000, group: 0 };
    ledger.connection_event_got(event, &at(4));
    assert!(!ledger.has_ended(AT) && !ledger.has_ended(AT - 8));
    ledger.connection_event_acknowledged(AT - 8, &at(5));
    assert!(ledger.has_ended(AT));
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
        (
            Kind::LeftAtClose,
            "the memory region with key 0x00000055 is there when the device is closed.",
        ),
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
    ledger.send_queue_full(QP, 2, &at(21));
    assert_eq!(ledger.take(), []);
    poll(&mut ledger, &[completed(2, false)], &at(25));
    post(&mut ledger, &[send(3, false), send(4, false)]);
    // There is a place: the post needed several.
    ledger.send_queue_full(QP, 3, &at(21));
    assert_eq!(ledger.take(), []);
    ledger.send_queue_full(QP, 2, &at(21));
    ledger.send_queue_full(QP, 2, &at(21));
    assert_eq!(kinds(&mut ledger), [Kind::NothingSignaled]);
}

/// Rules: CHK-01, CHK-25
#[test]
fn what_is_refused_was_never_there() {
    let mut ledger = with_pair();
    sends(&mut ledger, QP, &[send(1, true), send(2, true), send(3, true)]);
    ledger.sends_refused(QP, &[send(2, true), send(3, true)]);
    poll(&mut ledger, &[completed(1, false)], &at(25));
    assert_eq!(ends(&mut ledger, 1), [Kind::RefusedAndDropped]);

    let mut ledger = with_pair();
    sends(&mut ledger, QP, &[send(1, true)]);
    ledger.sends_refused(QP, &[send(1, true)]);
    post(&mut ledger, &[send(1, true)]);
    poll(&mut ledger, &[completed(1, false)], &at(25));
    assert_eq!(ends(&mut ledger, 0), []);
}

/// Rule: CHK-08
#[test]
fn posting_goes_on_after_an_error_only_if_the_thread_knows_of_it() {
    let mut ledger = with_pair();
    let other = |posted: Posted| Posted { call: Call::by(2), ..posted };
    post(&mut ledger, &[send(1, true)]);
    poll(&mut ledger, &[completed(1, true)], &at(25));
    // It handles the completions that it has polled.
    post(&mut ledger, &[send(2, true)]);
    poll(&mut ledger, &[], &at(26));
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
        receives(&mut ledger, &[send(1, true), send(2, true)]);
        poll(&mut ledger, &[completed(9, true)], &at(25));
        let last = Completed { is_success: last_is_well, ..received(1) };
        poll(&mut ledger, &[last], &at(26));
        receives(&mut ledger, &[Posted { bytes: 0, ..send(3, true) }]);
        assert_eq!(ledger.take(), []);
        receives(&mut ledger, &[send(1, true)]);
        let expected: &[Kind] = if last_is_well { &[] } else { &[Kind::PostedAfterError] };
        assert_eq!(kinds(&mut ledger), expected);
    }
}

/// Rule: CHK-08
#[test]
fn a_failed_datagram_ends_no_receives() {
    let failed_receive = Completed { is_receive: true, ..completed(9, true) };
    for (error, expected) in
        [(completed(9, true), &[][..]), (failed_receive, &[Kind::PostedAfterError])]
    {
        let mut ledger = with_pair();
        ledger.pair_made(QP, 7, Asked { receives_on: true, receives: 8, ..Asked::default() });
        poll(&mut ledger, &[error], &at(25));
        poll(&mut ledger, &[], &at(26));
        receives(&mut ledger, &[Posted { sges: 0, ..send(1, true) }]);
        assert_eq!(kinds(&mut ledger), expected);
    }
}

/// A server of XRC: its messages come by another queue pair, or by one of another process.
/// Rule: CHK-98
#[test]
fn a_receive_of_a_shared_queue_ends_by_whatever_queue_pair() {
    let mut ledger = with_pair();
    ledger.pair_made(QP, 7, Asked { is_xrc_target: true, ..Asked::default() });
    let posted: Vec<_> = (0..3).map(|wr_id| send(wr_id, true)).collect();
    shared_receives(&mut ledger, SRQ, &posted);
    // Another one completes into another queue, and numbers its receives alike.
    shared_receives(&mut ledger, SRQ - 1, &posted);
    ledger.shared_completes_into(SRQ - 1, 6);
    ledger.shared_completes_into(SRQ, 5);
    let came = |number| Completed { queue: 5, number, is_receive: true, ..completed(1, false) };
    poll(&mut ledger, &[came(7), Completed { wr_id: 2, ..came(99) }, came(99)], &at(25));
    assert!(ledger.shared[&SRQ].iter().eq(&posted[..1]));
    assert_eq!(ledger.shared[&(SRQ - 1)].len(), 3);
}

/// Rules: CHK-02, CHK-21, CHK-25
#[test]
fn what_the_end_of_the_process_leaves_is_noted_too() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(1, false), send(2, true), send(3, true)]);
    sends(&mut ledger, QP, &[send(4, true)]);
    ledger.sends_refused(QP, &[send(4, true)]);
    ledger.process_ends();
    let mistakes = ledger.take();
    let told: Vec<_> = mistakes.iter().map(|it| it.kind).collect();
    assert_eq!(told, [Kind::RefusedAndDropped, Kind::CompletionsUnpolled, Kind::LeftAtExit]);
    let says =
        "The process ends before the completions of 2 requests of queue pair 0x7 were polled.";
    assert_eq!(mistakes[1].says, says);
}

/// Rule: CHK-26
#[test]
fn what_is_refused_is_named_by_its_post() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(1, true), send(2, true)]);
    let refused = Some("remote access error");
    poll(&mut ledger, &[Completed { refused, ..completed(2, true) }], &at(25));
    let mistakes = ledger.take();
    assert_eq!(mistakes[0].kind, Kind::RequestRefused);
    assert!(mistakes[0].calls[0].0.ends_with("wr_id 0x2"), "{mistakes:?}");
    poll(&mut ledger, &[completed(2, true)], &at(25));
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
    assert!(receives(&mut ledger, &[send(1, true)]));
    ledger.receive_was_late(QP, 0, &at(40));
    ledger.pair_modified(QP, true, &at(41));
    assert!(receives(&mut ledger, &[send(1, true)]));
    assert!(!receives(&mut ledger, &[send(1, true)]));
    ledger.receive_was_late(QP, 2, &at(42));
    ledger.receive_was_late(QP, 2, &at(43));
    assert_eq!(ran_dry(&mut ledger), [42, 1]);
    let mut ledger = with_pair();
    ledger.pair_modified(QP, true, &at(40));
    receives(&mut ledger, &[send(1, true)]);
    ledger.pair_modified(QP, true, &at(41));
    assert_eq!(ran_dry(&mut ledger), [41, 1]);
}

/// Rule: CHK-23
#[test]
fn more_than_was_asked_for_is_noted() {
    let mut ledger = with_pair();
    post(&mut ledger, &[Posted { is_inline: true, ..send(1, true) }]);
    receives(&mut ledger, &[Posted { sges: 2, ..send(1, true) }]);
    assert_eq!(kinds(&mut ledger), [Kind::BeyondAsked, Kind::BeyondAsked]);
}

/// Rule: CHK-23
#[test]
fn more_requests_than_were_asked_for_are_noted() {
    let mut ledger = with_pair();
    let posted: Vec<_> = (0..9).map(|wr_id| send(wr_id, true)).collect();
    receives(&mut ledger, &posted);
    ledger.receives_refused(QP, &posted[8..]);
    assert_eq!(ends(&mut ledger, 0), [Kind::RefusedAndDropped]);
    let mut ledger = with_pair();
    receives(&mut ledger, &posted);
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
    ledger.pair_made(QP + 3, 11, asked(5));
    ledger.ended(Thing::CompletionQueue, 1, &at(31));
    let mistakes = ledger.take();
    assert_eq!(mistakes[0].kind, Kind::QueueCouldOverrun);
    assert!(mistakes[0].says.contains("12 completions can overrun: 20 requests"), "{mistakes:?}");
    // A queue that becomes too short.
    ledger.queue_sized(2, 12);
    ledger.pair_made(QP + 4, 12, Asked { send_queue: 2, ..asked(5) });
    ledger.queue_sized(2, 3);
    ledger.process_ends();
    assert!(kinds(&mut ledger).contains(&Kind::QueueCouldOverrun));
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
    ledger.waits_for_ack("ibv_destroy_cq", COMPLETIONS, Waits::Alone, &at(8));
    ledger.process_ends();
    assert_eq!(kinds(&mut ledger), [Kind::LeftAtExit]);

    let mut ledger = with_queue();
    ledger.event_got(COMPLETIONS, &at(5));
    ledger.waits_for_ack("ibv_destroy_cq", COMPLETIONS, Waits::Alone, &at(8));
    ledger.waits_for_ack("ibv_destroy_cq", COMPLETIONS, Waits::Long, &at(8));
    ledger.context_closes(CONTEXT, &at(9));
    let expected = [Kind::OwnAck, Kind::WaitsForAck, Kind::LeftAtClose, Kind::NeverAcked];
    assert_eq!(kinds(&mut ledger), expected);
    ledger.events_acknowledged(COMPLETIONS, 1, &at(7));
    ledger.events_acknowledged(COMPLETIONS, 2, &at(7));
    let mistakes = ledger.take();
    let told: Vec<_> = mistakes.iter().map(|it| (it.kind, &it.says[..])).collect();
    let expected = [
        "ibv_ack_cq_events acknowledges a completion event of completion queue 0x3 that the program did not get.",
        "ibv_ack_cq_events acknowledges 2 more completion events of completion queue 0x3 than the program got.",
    ];
    assert_eq!(told, expected.map(|says| (Kind::AckedTooMuch, says)));
}

/// Rule: CHK-94
#[test]
fn what_was_posted_and_what_uses_it_is_called_by_its_name() {
    let here = |what| Posted { what, wr_id: 7, bytes: 8, ..Posted::default() }.here().0;
    assert_eq!(here("SEND"), "posted here: SEND of 8 bytes, wr_id 0x7");
    assert_eq!(here("bind"), "posted here: bind, wr_id 0x7");
    assert_eq!(here("LOCAL_INV"), "posted here: LOCAL_INV, wr_id 0x7");
    let named = [Thing::XrcDomain, Thing::Domain].map(|thing| thing.called(0));
    assert_eq!(named, ["an XRC domain", "a protection domain"]);
}

/// Rule: CHK-30
#[test]
fn a_thread_waits_for_itself_if_it_got_all_events_that_are_left() {
    let by = |thread| Call::by(thread);
    let got = |threads: &[u32]| {
        let mut ledger = with_queue();
        threads.iter().for_each(|thread| ledger.event_got(COMPLETIONS, &by(*thread)));
        ledger
    };
    let waits = |ledger: &mut Ledger| {
        let is_told = ledger.waits_for_ack("ibv_destroy_cq", COMPLETIONS, Waits::Begins, &by(1));
        let kinds = kinds(ledger);
        assert_eq!(is_told, kinds == [Kind::WaitsForAck]);
        is_told
    };
    assert!(waits(&mut got(&[1, 1])));
    assert!(!waits(&mut got(&[2])));
    assert!(!waits(&mut got(&[1, 2])));
    // Each thread acknowledges its own ones first.
    let mut ledger = got(&[1, 2]);
    ledger.events_acknowledged(COMPLETIONS, 1, &by(2));
    assert!(waits(&mut ledger));
    let mut ledger = got(&[1, 2]);
    ledger.events_acknowledged(COMPLETIONS, 1, &by(1));
    assert!(!waits(&mut ledger));
    ledger.events_acknowledged(COMPLETIONS, 1, &by(1));
    assert!(!waits(&mut ledger));
}

/// Rule: CHK-27
#[test]
fn an_address_of_the_program_is_added() {
    let mut ledger = with_pair();
    for (adds, expected) in [
        (None, &[][..]),
        (Some(1), &[]),
        (Some(0x7fff_0000_0000), &[Kind::AddressAdded]),
        (Some(0x7fff_0000_0001), &[]),
    ] {
        sends(&mut ledger, QP, &[Posted { adds, what: "fetch-and-add", ..send(1, true) }]);
        assert_eq!(kinds(&mut ledger), expected);
    }
}

/// One thread has got an event when another one calls `exit`, and acknowledges it before the process is gone.
/// Rules: CHK-32, CHK-34
#[test]
fn what_other_threads_still_do_when_the_process_ends_is_no_mistake() {
    let mut ledger = with_queue();
    ledger.event_got(COMPLETIONS, &at(5));
    ledger.process_ends();
    assert_eq!(kinds(&mut ledger), [Kind::LeftAtExit, Kind::NeverAcked]);
    ledger.events_acknowledged(COMPLETIONS, 1, &at(7));
    assert_eq!(kinds(&mut ledger), []);
}

/// A program may acknowledge all events at its end.
/// Rules: CHK-32, CHK-98
#[test]
fn events_that_wait_for_their_acknowledgement_take_fixed_room() {
    let mut ledger = with_queue();
    for nth in 0..10_000 {
        ledger.event_got(COMPLETIONS, &at(nth));
        ledger.event_got(COMPLETIONS, &at(nth));
    }
    assert_eq!(ledger.events[&COMPLETIONS].entries(), 64);
    ledger.events_acknowledged(COMPLETIONS, 19_999, &at(7));
    assert_eq!(ledger.take(), []);
    ledger.events_acknowledged(COMPLETIONS, 1, &at(7));
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
    let arming = Arming { is_plain: true, held: 3, has_receive: true, is_held: true };
    let armed = |arming| {
        let mut ledger = with_queue();
        ledger.queue_armed(CQ, arming, &at(4));
        ledger
    };
    let mut ledger = armed(arming);
    assert!(is_stuck(&ledger, 1, 0, false, 3));
    ledger.queue_polled(CQ, 1, false, &Call::by(1));
    assert!(is_stuck(&ledger, 1, 0, false, 2));
    // One more completion has come, or another event.
    assert!(!is_stuck(&ledger, 1, 0, false, 3));
    assert!(!is_stuck(&ledger, 1, 1, false, 2));
    ledger.queue_polled(CQ, 0, true, &Call::by(1));
    assert!(!is_stuck(&ledger, 1, 0, false, 2));
    // The new send may complete.
    let mut ledger = armed(arming);
    sends(&mut ledger, QP, &[send(1, true)]);
    assert!(!is_stuck(&ledger, 1, 0, false, 3));
    for other in [Arming { is_plain: false, ..arming }, Arming { has_receive: false, ..arming }] {
        assert!(!is_stuck(&armed(other), 1, 0, false, 3));
    }
    // The thread may have seen that the event was there.
    let mut ledger = armed(arming);
    ledger.event_raised(CQ);
    assert!(!is_stuck(&ledger, 1, 1, false, 3));
}

/// Rules: CHK-50, CHK-51
#[test]
fn another_thread_may_be_about_to_arm_a_queue() {
    for (arms, polls, is_alone, kind) in [
        (false, true, false, Kind::SleepsBeside),
        (false, false, true, Kind::SleepsOnCompletions),
        (true, true, false, Kind::SleepsOnCompletions),
        // It hands the queue to another thread, which has not begun yet.
        (true, false, false, Kind::SleepsBeside),
        (true, false, true, Kind::SleepsOnCompletions),
    ] {
        let mut ledger = with_queue();
        // It may have looked whether the queue is empty at the beginning.
        ledger.queue_polled(CQ, 0, true, &Call::by(1));
        if arms {
            ledger.queue_armed(CQ, Arming { is_plain: true, ..Arming::default() }, &at(4));
            ledger.queue_told(CQ, &at(5));
        }
        if polls {
            ledger.queue_polled(CQ, 1, false, &Call::by(1));
        }
        let look = Look { queue: CQ, is_armed: false, holds: 1 };
        let stuck = ledger.stuck(CHANNEL, 1, 0, &[look]).expect("no event comes");
        let how = How { does: "sleeps", may_wake: false, is_alone };
        ledger.sleeps(&stuck, how, &at(6));
        assert_eq!(kinds(&mut ledger), [kind]);
    }
}

/// Rules: CHK-03, CHK-09
#[test]
fn what_nobody_read_is_told_when_its_object_ends() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(5, true)]);
    let status = "remote access error";
    ledger.errors_unread(QP, &[Unread { wr_id: 5, status }], Ends::Destroyed(&at(30)));
    ledger.events_unread(Some(Thing::QueuePair), QP, &["IBV_EVENT_QP_ACCESS_ERR"], Some(&at(30)));
    ledger.errors_unread(QP, &[], Ends::Destroyed(&at(30)));
    let mistakes = ledger.take();
    let told: Vec<_> = mistakes.iter().map(|it| (it.kind, it.calls.len())).collect();
    assert_eq!(told, [(Kind::ErrorUnread, 3), (Kind::AsyncUnread, 2)]);
}

/// Rules: CHK-02, CHK-03, CHK-09, CHK-24
#[test]
fn what_nobody_read_until_the_process_ends_is_told_too() {
    let mut ledger = with_pair();
    ledger.made(Thing::CompletionQueue, CQ, CONTEXT, 3, &at(2));
    post(&mut ledger, &[send(5, false)]);
    ledger.errors_unread(
        QP,
        &[Unread { wr_id: 5, status: "remote access error" }],
        Ends::WithProcess,
    );
    let event = "IBV_EVENT_CQ_ERR";
    let queue = ledger.numbered(Thing::CompletionQueue, 3).expect("it has this number");
    assert_eq!((queue, ledger.numbered(Thing::CompletionQueue, 4)), (CQ, None));
    ledger.events_unread(Some(Thing::CompletionQueue), queue, &[event], None);
    ledger.messages_unread(QP, 2, Ends::WithProcess);
    ledger.messages_unread(QP, 0, Ends::WithProcess);
    ledger.ran_dry(QP, RanDry::default());
    ledger.ran_dry(QP, RanDry { times: 1, waits: 1_500_000 });
    ledger.process_ends();
    let mistakes = ledger.take();
    let told: Vec<_> =
        mistakes.iter().map(|it| (it.kind, it.says.as_str(), it.calls.len())).collect();
    let expected = [
        (
            Kind::ErrorUnread,
            "The process ends before the error of queue pair 0x7 was polled: remote access error, wr_id 0x5.",
            2,
        ),
        (
            Kind::AsyncUnread,
            "IBV_EVENT_CQ_ERR of completion queue 0x3 was raised, and nobody has called ibv_get_async_event for it.",
            1,
        ),
        (
            Kind::CompletionsUnpolled,
            "The process ends before 2 received messages were polled, which came by queue pair 0x7.",
            1,
        ),
        (
            Kind::RanDry,
            "Queue pair 0x7 had no receive for a message, 1 time: its peer was asked to wait for 2 ms in all.",
            1,
        ),
    ];
    assert_eq!(told[..4], expected);
    assert!(told[4..].iter().all(|it| it.0 == Kind::LeftAtExit), "{told:?}");
}

/// Rule: CHK-02
#[test]
fn messages_that_nobody_polled_are_lost_with_their_queue_pair() {
    let mut ledger = with_pair();
    ledger.messages_unread(QP, 1, Ends::Destroyed(&at(30)));
    let mistakes = ledger.take();
    let says = "Queue pair 0x7 is destroyed before a received message was polled.";
    assert_eq!((mistakes[0].kind, &mistakes[0].says[..]), (Kind::CompletionsUnpolled, says));
    let places: Vec<_> = mistakes[0].calls.iter().map(|(_, call)| call.frames()[0]).collect();
    assert_eq!(places, [30, 1]);
}

/// Rule: CHK-02
#[test]
fn messages_of_xrc_are_lost_with_their_shared_receive_queue() {
    let mut ledger = Ledger::default();
    ledger.made(Thing::SharedReceiveQueue, SRQ, CONTEXT, 4, &at(3));
    assert_eq!(ledger.shared_queues_of(CONTEXT), [SRQ]);
    assert_eq!(ledger.shared_queues_of(CONTEXT + 1), []);
    ledger.shared_messages_unread(SRQ, 0, Ends::WithProcess);
    ledger.shared_messages_unread(SRQ + 1, 1, Ends::WithProcess);
    assert_eq!(ledger.take(), []);
    ledger.shared_messages_unread(SRQ, 1, Ends::Destroyed(&at(30)));
    ledger.shared_messages_unread(SRQ, 2, Ends::WithProcess);
    let mistakes = ledger.take();
    let says: Vec<_> = mistakes.iter().map(|it| (it.kind, &it.says[..])).collect();
    let expected = [
        "Shared receive queue 0x4 is destroyed before a received message was polled.",
        "The process ends before 2 received messages were polled, which came into shared receive queue 0x4.",
    ];
    assert_eq!(says, expected.map(|says| (Kind::CompletionsUnpolled, says)));
    let places: Vec<_> = mistakes[0].calls.iter().map(|(_, call)| call.frames()[0]).collect();
    assert_eq!(places, [30, 3]);
}

/// Rule: CHK-24
#[test]
fn a_shared_receive_queue_that_ran_dry_is_named() {
    let mut ledger = Ledger::default();
    ledger.made(Thing::SharedReceiveQueue, SRQ, CONTEXT, 4, &at(3));
    ledger.made(Thing::QueuePair, QP, CONTEXT, 7, &at(1));
    ledger.pair_made(QP, 7, Asked { shared: SRQ, ..Asked::default() });
    ledger.pair_ended(QP, 0, RanDry { times: 2, waits: 1 }, &at(30));
    let mistakes = ledger.take();
    let [dry] = &mistakes[..] else { panic!("{mistakes:?}") };
    let says = "Queue pair 0x7 had no receive for a message in its shared receive queue, 2 times: its peer was asked to \
                wait for 1 ms in all.";
    assert_eq!((dry.kind, &dry.says[..]), (Kind::RanDry, says));
    assert_eq!(dry.calls[0], ("its shared receive queue was made here".to_owned(), at(3)));
}

/// Rule: CHK-08
#[test]
fn a_thread_that_knows_that_nobody_is_connected_posts() {
    let event = "RDMA_CM_EVENT_REJECTED";
    let unconnected = |thread| {
        let mut ledger = with_pair();
        ledger.pair_unconnected(QP, event, &Call::by(thread));
        ledger
    };
    let posts = |ledger: &mut Ledger, bytes| {
        let posted = Posted { bytes, call: Call::by(1), ..send(1, true) };
        ledger.sends_taken(QP, &[posted]);
        kinds(ledger)
    };
    let mut ledger = unconnected(1);
    assert_eq!(posts(&mut ledger, 0), [], "a marker");
    assert_eq!(posts(&mut ledger, 8), [Kind::PostedAfterError]);
    assert_eq!(posts(&mut ledger, 8), [], "it is told once");
    assert_eq!(posts(&mut unconnected(2), 8), [], "another thread has the event");
    let mut ledger = unconnected(1);
    ledger.pair_connected(QP, Peer { gid: [0; 16], slot: 1 });
    assert_eq!(posts(&mut ledger, 8), []);
}

const SRQ: usize = 0x4000;

/// Rule: CHK-21
#[test]
fn the_fullest_queue_of_each_place_is_kept() {
    let mut ledger = Ledger::default();
    ledger.made(Thing::CompletionQueue, CQ, CONTEXT, 3, &at(2));
    ledger.queue_sized(CQ, 16);
    ledger.queue_holds(CQ, 14);
    ledger.queue_holds(CQ, 3);
    ledger.made(Thing::SharedReceiveQueue, SRQ, CONTEXT, 4, &at(3));
    ledger.shared_queue_sized(SRQ, 3, 4);
    shared_receives(&mut ledger, SRQ, &[send(1, true), send(2, true)]);
    for (nth, count) in [(0, 2), (1, 6), (2, 1)] {
        ledger.made(Thing::QueuePair, QP + nth, CONTEXT, 7, &at(1));
        let asked = Asked { sends: 8, receives: 4, send_queue: CQ, ..Asked::default() };
        ledger.pair_made(QP + nth, 7, asked);
        let posted: Vec<_> = (0..count).map(|wr_id| send(wr_id, false)).collect();
        if sends(&mut ledger, QP + nth, &posted) {
            ledger.sends_taken(QP + nth, &posted);
        }
        ledger.pair_ended(QP + nth, 0, RanDry::default(), &at(30));
        ledger.ended(Thing::QueuePair, QP + nth, &at(30));
    }
    ledger.take();
    ledger.process_ends();
    let marks = ledger
        .marks()
        .iter()
        .map(|it| (it.queue, it.level.most, it.level.asked, it.count, it.made.frames()[0]));
    let expected = [
        (Queue::Send, 6, 8, 3, 1),
        (Queue::Receive, 0, 4, 3, 1),
        (Queue::Completion, 14, 16, 1, 2),
        (Queue::SharedReceive, 2, 3, 1, 3),
    ];
    assert_eq!(marks.collect::<Vec<_>>(), expected);
    let says =
        "Completion queue 0x3 was nearly full: it held 14 completions, and was asked for 16.";
    let told = ledger.take();
    let full: Vec<_> = told.iter().filter(|it| it.kind == Kind::QueueFull).collect();
    assert_eq!(full.iter().map(|it| &it.says[..]).collect::<Vec<_>>(), [says]);
}

/// Rule: CHK-21
#[test]
fn receives_that_were_refused_are_in_no_mark() {
    let mut ledger = with_pair();
    let posted: Vec<_> = (0..9).map(|wr_id| send(wr_id, true)).collect();
    receives(&mut ledger, &posted[..3]);
    receives(&mut ledger, &posted);
    ledger.receives_refused(QP, &posted[5..]);
    receives(&mut ledger, &posted[..1]);
    ledger.receives_refused(QP, &posted[..1]);
    ends(&mut ledger, 0);
    let mark = ledger.marks().iter().find(|it| it.queue == Queue::Receive).expect("it was used");
    assert_eq!(mark.level.most, 8);
}

/// Rules: CHK-21, CHK-98
#[test]
fn marks_take_fixed_room_and_a_new_size_begins_anew() {
    let mut ledger = Ledger::default();
    for nth in 0..1000 {
        ledger.made(Thing::CompletionQueue, CQ + nth, CONTEXT, 3, &at(nth));
        ledger.queue_sized(CQ + nth, 16);
        ledger.queue_holds(CQ + nth, 16);
        ledger.queue_sized(CQ + nth, 64);
        ledger.ended(Thing::CompletionQueue, CQ + nth, &at(3));
    }
    assert_eq!((ledger.marks().len(), ledger.take()), (64, vec![]));
}

/// Rules: CHK-02, CHK-03, CHK-06
#[test]
fn a_pair_that_is_left_when_its_device_is_closed_has_its_errors_told_once() {
    let mut ledger = with_pair();
    post(&mut ledger, &[send(5, true)]);
    assert_eq!(ledger.pairs_of(CONTEXT), [QP]);
    assert_eq!(ledger.pairs_of(CONTEXT + 1), []);
    let (call, status) = (at(30), "remote access error");
    ledger.errors_unread(QP, &[Unread { wr_id: 5, status }], Ends::Closed(&call));
    ledger.messages_unread(QP, 2, Ends::Closed(&call));
    ledger.pair_closed(QP, RanDry::default(), &call);
    let mistakes = ledger.take();
    let told: Vec<_> = mistakes.iter().map(|it| (it.kind, &it.says[..])).collect();
    let expected = [
        (
            Kind::ErrorUnread,
            "The device is closed before the error of queue pair 0x7 was polled: remote access error, wr_id 0x5.",
        ),
        (
            Kind::CompletionsUnpolled,
            "The device is closed before 2 received messages were polled, which came by queue pair 0x7.",
        ),
        (
            Kind::CompletionsUnpolled,
            "The device is closed before the completion of a request of queue pair 0x7 was polled.",
        ),
    ];
    assert_eq!(told, expected);
    assert!(mistakes.iter().all(|it| it.calls[0] == ("closed here".to_owned(), call)));
    ledger.context_closes(CONTEXT, &call);
    ledger.ended(Thing::QueuePair, QP, &call);
    ledger.process_ends();
    assert_eq!(kinds(&mut ledger), [Kind::LeftAtClose]);
}
