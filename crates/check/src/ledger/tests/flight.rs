//! Requests in flight, and the memory that they name.

use super::*;
use crate::ledger::arrived::Space;

/// The number of the queue pair.
const NUMBER: u32 = 7;

/// A queue pair and a region. Only the program may write to the region, unless it is open.
fn with_region(is_open: bool) -> Ledger {
    let mut ledger = with_pair();
    register(&mut ledger, DEVICE, 9, is_open);
    ledger
}

fn register(ledger: &mut Ledger, device: usize, key: u32, is_open: bool) {
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
    ledger.registered(device, key, region);
}

/// The address, the offset and the length of each piece of a request's sample.
fn places(posted: &Posted) -> Vec<(u64, u64, usize)> {
    posted.pieces().map(|it| (it.at, it.offset, it.bytes.len())).collect()
}

/// Posts a send whose source is watched.
fn watched(ledger: &mut Ledger) -> Posted {
    let mut posted = [send(1, true)];
    ledger.locate(DEVICE, &mut posted[0]);
    ledger.begin_sample(&mut posted[0]);
    assert_eq!(places(&posted[0]), [(0x1_0000, 0, 64)]);
    post(ledger, &posted);
    let [posted] = posted;
    posted
}

/// It ends on the queue pair.
fn ended(posted: Posted) -> Ended {
    Ended { pair: QP, number: NUMBER, posted }
}

fn receive(ledger: &mut Ledger, address: u64) -> Posted {
    let buffers = [Buffer::new(9, address, 64)].into_iter().collect();
    let (is_target, is_receive) = (true, true);
    let mut posted = [Posted { what: "receive", is_target, is_receive, buffers, ..send(2, true) }];
    ledger.locate(DEVICE, &mut posted[0]);
    ledger.begin_sample(&mut posted[0]);
    receives(ledger, &posted);
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
        let ended = poll(&mut ledger, &[completed(1, false)], &at(25));
        ledger.changed(&ended[0], change, &at(25));
        let mistakes = ledger.take();
        assert_eq!(mistakes[0].kind, kind);
        let expected = "1 byte of a SEND of queue pair 0x7 changed before its completion was polled, the first at offset 3.";
        assert_eq!(mistakes[0].says, expected);
    }
    // A receive into it is posted, or was posted at the time of the source's post.
    for polled_first in [false, true] {
        let mut ledger = with_region(false);
        receive(&mut ledger, 0x5020);
        let posted = watched(&mut ledger);
        if polled_first {
            poll(&mut ledger, &[Completed { is_receive: true, ..completed(2, false) }], &at(24));
        }
        ledger.changed(&ended(posted), change, &at(25));
        assert_eq!(ledger.take(), []);
    }
}

/// Rule: CHK-60
#[test]
fn what_failed_is_not_compared() {
    let mut ledger = with_region(false);
    watched(&mut ledger);
    let failed = Completed { is_success: false, ..completed(1, false) };
    assert_eq!(poll(&mut ledger, &[failed], &at(25)), []);
}

/// Rule: CHK-60
#[test]
fn of_a_long_source_both_ends_are_watched() {
    let ledger = with_region(false);
    let buffers =
        [Buffer::new(9, 0x5000, 0x800), Buffer::new(9, 0x5100, 0xf00)].into_iter().collect();
    let mut posted = [Posted { buffers, ..send(1, true) }];
    ledger.locate(DEVICE, &mut posted[0]);
    ledger.begin_sample(&mut posted[0]);
    assert_eq!(places(&posted[0]), [(0x1_0000, 0, 0x800), (0x1_0800, 0xf00, 0x800)]);
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

/// Rules: CHK-63, CHK-65
#[test]
fn what_names_a_region_names_it_still_when_it_has_other_rights() {
    let mut ledger = with_region(true);
    watched(&mut ledger);
    register(&mut ledger, DEVICE, 9, false);
    let under_way = UnderWay { pair: QP, posted: 1, sends: 1, receives: false };
    assert_eq!(ledger.pairs_naming(DEVICE, 9), [(QP, 1)]);
    ledger.region_ends(DEVICE, 9, &[under_way], &at(50));
    assert_eq!(kinds(&mut ledger), [Kind::EndedInFlight]);
}

/// A peer may have changed it while it was open.
/// Rules: CHK-60, CHK-66
#[test]
fn a_source_that_was_open_when_it_was_posted_is_not_the_programs_alone() {
    let mut ledger = with_region(true);
    let posted = watched(&mut ledger);
    register(&mut ledger, DEVICE, 9, false);
    ledger.changed(&ended(posted), Change { first: 0, count: 1 }, &at(51));
    assert_eq!(kinds(&mut ledger), []);
    let posted = watched(&mut ledger);
    ledger.changed(&ended(posted), Change { first: 0, count: 1 }, &at(51));
    assert_eq!(kinds(&mut ledger), [Kind::SourceChanged]);
}

/// Rules: CHK-43, CHK-44
#[test]
fn a_region_that_has_other_rights_is_no_other_region() {
    let write = Rights { write: true, ..Rights::default() };
    let mut ledger = with_region(true);
    for _ in 0..2 {
        ledger.granted(DEVICE, 9, Thing::Region, write, &at(40));
    }
    ledger.process_ends();
    let said: Vec<_> = ledger.take().into_iter().map(|it| it.says).collect();
    assert!(said[1].starts_with("A memory region grants "), "{said:?}");
    ledger.granted(DEVICE, 9, Thing::Region, write, &at(40));
    ledger.grants_nothing(DEVICE, 9);
    assert_eq!(ledger.granted_keys(), []);
}

/// Rule: CHK-62
#[test]
fn reads_of_different_memory_do_not_share_a_buffer() {
    let mut ledger = with_region(false);
    let mut read = |wr_id, from| {
        let buffers = [Buffer::new(9, 0x5000, 64)].into_iter().collect();
        let (is_target, remote) = (true, Some((3, from)));
        let mut posted = [Posted { what: "READ", is_target, remote, buffers, ..send(wr_id, true) }];
        ledger.locate(DEVICE, &mut posted[0]);
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
    ledger.locate(DEVICE, &mut posted[0]);
    ledger.tell_gone(posted.iter());
    ledger.tell_claimed(posted.iter());
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
    ledger.written("WRITE", NUMBER, 9, 0x5040, 8);
    assert_eq!(kinds(&mut ledger), [Kind::ClaimedInUse]);
    ledger.written("WRITE", NUMBER, 9, 0x5000, 8);
    assert_eq!(ledger.take(), []);
    ledger.claims(&(0x1_0010..0x1_0020), &at(71));
    assert_eq!(said_of_a_send(&mut ledger), [Kind::ClaimedInUse]);
}

/// The memory may be somebody else's afterwards.
/// Rule: CHK-46
#[test]
fn a_claim_ends_with_the_last_region_of_its_memory() {
    let mut ledger = with_region(false);
    ledger.claims(&(0x1_0000..0x1_0100), &at(70));
    ledger.region_ends(DEVICE, 9, &[], &at(71));
    register(&mut ledger, DEVICE, 9, false);
    assert_eq!(said_of_a_send(&mut ledger), []);
}

/// A cache of registrations keeps the region of memory that was unmapped, and registers what is there now.
/// Rule: CHK-40
#[test]
fn a_peer_writes_to_gone_memory_only_by_its_own_region() {
    let mut ledger = with_region(true);
    let leaving = leaving(&ledger, 0x1_0000..0x1_1000, true);
    ledger.given_back(&leaving, GivenHow::Unmapped, &[]);
    register(&mut ledger, DEVICE, 10, true);
    register(&mut ledger, DEVICE + 1, 9, true);
    assert_eq!(kinds(&mut ledger), [Kind::GivenBack]);
    ledger.pair_made(QP + 1, 8, Asked { device: DEVICE + 1, ..Asked::default() });
    for (number, key) in [(NUMBER, 10), (8, 9), (99, 9)] {
        ledger.written("WRITE", number, key, 0x5000, 8);
        ledger.not_there("A request", number, key, 0x5000, 8);
    }
    assert_eq!(ledger.take(), []);
    ledger.written("WRITE", NUMBER, 9, 0x5000, 8);
    ledger.not_there("A request", NUMBER, 9, 0x5000, 8);
    assert_eq!(kinds(&mut ledger), [Kind::MemoryGone; 2]);
}

/// Rule: CHK-42
#[test]
fn a_key_of_a_failed_bind_may_come_again_as_that_of_a_region() {
    let bind = Bind { device: DEVICE, key: 0x77, rights: Rights::default(), is_type1: false };
    let mut ledger = with_region(false);
    post(&mut ledger, &[Posted { binds: Some(bind), ..send(1, true) }]);
    poll(&mut ledger, &[completed(1, true)], &at(25));
    ledger.peer_uses(DEVICE, 0x77, Rights::default());
    assert_eq!(kinds(&mut ledger), [Kind::FailedBindUsed]);
    ledger.granted(DEVICE, 0x77, Thing::Region, Rights::default(), &at(26));
    ledger.peer_uses(DEVICE, 0x77, Rights::default());
    assert_eq!(ledger.take(), []);
}

/// Rules: CHK-41, CHK-47
#[test]
fn what_was_refused_behind_a_bind_tells_nobody_of_its_key() {
    let read = Rights { read: true, ..Rights::default() };
    for (is_type1, kind) in [(true, Kind::KeyBeforeBind), (false, Kind::KeyEarly)] {
        let bind = Bind { device: DEVICE, key: 0x77, rights: read, is_type1 };
        let bound = || {
            let mut ledger = with_region(false);
            post(&mut ledger, &[send(1, true)]);
            post(&mut ledger, &[Posted { binds: Some(bind), ..send(2, true) }]);
            ledger
        };
        let is_early = |ledger: &mut Ledger| {
            ledger.peer_uses(DEVICE, 0x77, read);
            kinds(ledger) == [kind]
        };
        assert!(is_early(&mut bound()));
        let mut ledger = bound();
        post(&mut ledger, &[send(3, true)]);
        assert!(!is_early(&mut ledger));
        let mut ledger = bound();
        sends(&mut ledger, QP, &[send(3, true)]);
        ledger.sends_refused(QP, &[send(3, true)]);
        assert!(is_early(&mut ledger));
        poll(&mut ledger, &[completed(2, false)], &at(25));
        assert!(!is_early(&mut ledger));
        // In SQD an event may tell it.
        let mut ledger = bound();
        ledger.pair_modified(QP, false, &at(26));
        assert!(!is_early(&mut ledger));
    }
}

/// Rules: CHK-60, CHK-61
#[test]
fn who_counts_completions_need_not_poll() {
    let mut ledger = with_region(false);
    ledger.made(Thing::CompletionCounter, 5, CONTEXT, 0, &at(2));
    watched(&mut ledger);
    assert_eq!(said_of(&mut ledger, completed(1, false)), []);
}

/// The first one may not be carried out yet.
/// Rule: CHK-61
#[test]
fn of_two_reads_of_one_number_each_has_its_own_bytes() {
    let mut ledger = with_region(false);
    let posted = [0x5000, 0x5100].map(|address| {
        let buffers = [Buffer::new(9, address, 64)].into_iter().collect();
        let mut posted = [Posted { what: "READ", is_target: true, buffers, ..send(1, true) }];
        ledger.locate(DEVICE, &mut posted[0]);
        post(&mut ledger, &posted);
        posted
    });
    ledger.returned(QP, &posted[1], |_, _| true);
    let has_sample: Vec<_> =
        ledger.pairs[&QP].sends.iter().map(|it| it.sample.is_there()).collect();
    assert_eq!(has_sample, [false, true]);
}

/// Posts a READ into the region that is carried out at once.
fn read(ledger: &mut Ledger, wr_id: u64, address: u64) {
    let buffers = [Buffer::new(9, address, 64)].into_iter().collect();
    let (is_target, remote) = (true, Some((3, 0x100)));
    let mut posted = [Posted { what: "READ", is_target, remote, buffers, ..send(wr_id, true) }];
    ledger.locate(DEVICE, &mut posted[0]);
    post(ledger, &posted);
    ledger.returned(QP, &posted, |_, _| true);
}

const CHANGE: Change = Change { first: 3, count: 2 };

/// What is said of the requests that end by a completion, if they have changed.
fn said_of(ledger: &mut Ledger, ended: Completed) -> Vec<(Kind, String)> {
    let ended = poll(ledger, &[ended], &at(25));
    ended.iter().for_each(|it| ledger.changed(it, CHANGE, &at(25)));
    ledger.take().into_iter().map(|it| (it.kind, it.says)).collect()
}

/// Rules: CHK-61, CHK-67
#[test]
fn what_a_read_brought_is_changed_by_the_program_unless_somebody_else_may_write_there() {
    let says = "2 bytes that came by a READ of queue pair 0x7 changed before its completion was polled, the first at offset 3.";
    for (is_open, kind) in [(false, Kind::TargetChanged), (true, Kind::TargetRaced)] {
        let mut ledger = with_region(is_open);
        read(&mut ledger, 1, 0x5000);
        assert_eq!(said_of(&mut ledger, completed(1, false)), [(kind, says.to_owned())]);
    }
}

/// Rule: CHK-61
#[test]
fn what_others_may_have_written_over_a_read_is_not_compared() {
    // Another READ has the same target: at its post, or until the poll.
    let mut ledger = with_region(false);
    read(&mut ledger, 1, 0x5000);
    read(&mut ledger, 2, 0x5000);
    assert_eq!(said_of(&mut ledger, completed(2, false)), []);
    // A receive had it meanwhile.
    let mut ledger = with_region(false);
    read(&mut ledger, 1, 0x5000);
    receive(&mut ledger, 0x5000);
    let received = Completed { is_receive: true, ..completed(2, false) };
    poll(&mut ledger, &[received], &at(24));
    assert_eq!(said_of(&mut ledger, completed(1, false)), []);
    // A peer may have written there, by a region that has ended meanwhile.
    let mut ledger = with_region(false);
    read(&mut ledger, 1, 0x5000);
    let address = 0x1_0000;
    let (object, is_program, is_open) = (2, true, true);
    let open = Region {
        context: CONTEXT,
        object,
        address,
        place: address,
        base: address,
        length: 64,
        is_program,
        is_open,
        is_on_demand: false,
    };
    ledger.registered(DEVICE, 10, open);
    ledger.region_ends(DEVICE, 10, &[], &at(26));
    assert_eq!(said_of(&mut ledger, completed(1, false)), []);
    // The program may count completions in another way.
    let mut ledger = with_region(false);
    ledger.made(Thing::CompletionCounter, 0x77, CONTEXT, 0, &at(3));
    read(&mut ledger, 1, 0x5000);
    assert_eq!(said_of(&mut ledger, completed(1, false)), []);
}

/// Rule: CHK-61
#[test]
fn a_read_that_was_polled_before_its_sample_is_not_compared() {
    let mut ledger = with_region(false);
    let buffers = [Buffer::new(9, 0x5000, 64)].into_iter().collect();
    let mut posted = [Posted { what: "READ", is_target: true, buffers, ..send(1, true) }];
    ledger.locate(DEVICE, &mut posted[0]);
    post(&mut ledger, &posted);
    assert_eq!(poll(&mut ledger, &[completed(1, false)], &at(25)), []);
    ledger.returned(QP, &posted, |_, _| true);
    read(&mut ledger, 2, 0x5000);
    assert_eq!(said_of(&mut ledger, completed(2, false)).len(), 1);
}

/// Rule: CHK-67
#[test]
fn of_a_receive_only_what_lies_behind_its_message_is_compared() {
    let says = "2 bytes behind the message of a receive of queue pair 0x7 changed before its completion was polled, the first at offset 3.";
    let received = |bytes| Completed { is_receive: true, bytes, ..completed(2, false) };
    for (is_open, expected) in [(false, vec![(Kind::TargetRaced, says.to_owned())]), (true, vec![])]
    {
        let mut ledger = with_region(is_open);
        receive(&mut ledger, 0x5000);
        assert_eq!(said_of(&mut ledger, received(3)), expected);
    }
    let mut ledger = with_region(false);
    receive(&mut ledger, 0x5000);
    let ended = poll(&mut ledger, &[received(40)], &at(25));
    assert_eq!(places(&ended[0].posted), [(0x1_0028, 40, 24)]);
    // Two receives have one buffer.
    let mut ledger = with_region(false);
    receive(&mut ledger, 0x5000);
    let next = receive(&mut ledger, 0x5000);
    assert!(!next.sample.is_there());
}

/// A second queue pair to the same peer as the first one, or to another.
fn with_two_pairs(other: Peer) -> Ledger {
    let mut ledger = with_pair();
    let asked = Asked { sends: 8, receives: 8, send_sges: 1, receive_sges: 1, ..Asked::default() };
    ledger.pair_made(QP + 1, 8, asked);
    ledger.pair_connected(QP, PEER);
    ledger.pair_connected(QP + 1, other);
    ledger
}

const PEER: Peer = Peer { gid: [1; 16], slot: 3 };

fn write(ledger: &mut Ledger, pair: usize, key: u32, address: u64) -> Vec<Kind> {
    let posted = [Posted { what: "WRITE", remote: Some((key, address)), ..send(1, true) }];
    sends(ledger, pair, &posted);
    kinds(ledger)
}

/// Rule: CHK-64
#[test]
fn writes_of_two_queue_pairs_to_the_same_bytes_are_unordered() {
    let mut ledger = with_two_pairs(PEER);
    assert_eq!(write(&mut ledger, QP, 9, 0x1000), []);
    assert_eq!(write(&mut ledger, QP, 9, 0x1010), []);
    assert_eq!(write(&mut ledger, QP + 1, 9, 0x0fc0), []);
    assert_eq!(write(&mut ledger, QP + 1, 9, 0x1050), []);
    assert_eq!(write(&mut ledger, QP + 1, 8, 0x1000), []);
    assert_eq!(write(&mut ledger, QP + 1, 9, 0x104f), [Kind::WritesUnordered]);
    for other in [Peer { slot: 4, ..PEER }, Peer { gid: [2; 16], ..PEER }] {
        let mut ledger = with_two_pairs(other);
        assert_eq!(write(&mut ledger, QP, 9, 0x1000), []);
        assert_eq!(write(&mut ledger, QP + 1, 9, 0x1000), []);
    }
}

/// Rule: CHK-64
#[test]
fn a_write_that_has_ended_comes_before_any_later_one() {
    type End = fn(&mut Ledger);
    let ends: [End; 4] = [
        |ledger| _ = poll(ledger, &[completed(1, false)], &at(25)),
        |ledger| _ = poll(ledger, &[completed(1, true)], &at(25)),
        |ledger| {
            let posted = [Posted { remote: Some((9, 0x1000)), ..send(1, true) }];
            ledger.sends_refused(QP, &posted);
        },
        |ledger| ledger.pair_modified(QP, true, &at(26)),
    ];
    for end in ends {
        let mut ledger = with_two_pairs(PEER);
        assert_eq!(write(&mut ledger, QP, 9, 0x1000), []);
        end(&mut ledger);
        ledger.take();
        assert_eq!(write(&mut ledger, QP + 1, 9, 0x1000), []);
    }
}

/// The ledger looks for it only from then on.
/// Rule: CHK-64
#[test]
fn writes_from_before_the_second_queue_pair_of_a_peer_count() {
    let connects = |before: &[(bool, u64)]| {
        let mut ledger = with_two_pairs(Peer { slot: 4, ..PEER });
        for (is_modified, address) in before {
            if *is_modified {
                ledger.pair_modified(QP, false, &at(26));
            }
            assert_eq!(write(&mut ledger, QP, 9, *address), []);
        }
        ledger.pair_connected(QP + 1, PEER);
        write(&mut ledger, QP + 1, 9, 0x1000)
    };
    assert_eq!(connects(&[(false, 0x1000), (false, 0x2000)]), [Kind::WritesUnordered]);
    // The program has changed the state of the first one since.
    assert_eq!(connects(&[(false, 0x1000), (true, 0x2000)]), []);
    assert_eq!(connects(&[(false, 0x2000), (true, 0x1000)]), [Kind::WritesUnordered]);
    // The second one ends, and a third one comes.
    let mut ledger = with_two_pairs(PEER);
    assert_eq!(write(&mut ledger, QP, 9, 0x1000), []);
    ledger.pair_ended(QP + 1, 0, RanDry::default(), &at(30));
    assert_eq!(write(&mut ledger, QP, 9, 0x2000), []);
    ledger.pair_made(QP + 2, 9, Asked { sends: 8, send_sges: 1, ..Asked::default() });
    ledger.pair_connected(QP + 2, PEER);
    assert_eq!(write(&mut ledger, QP + 2, 9, 0x1000), [Kind::WritesUnordered]);
    assert_eq!(write(&mut ledger, QP + 2, 9, 0x2000), [Kind::WritesUnordered]);
}

/// Two processes write to the region of `with_region`, by two queue pairs.
fn with_two_writers() -> Ledger {
    let mut ledger = with_region(true);
    let asked = Asked { sends: 8, receives: 8, device: DEVICE, ..Asked::default() };
    ledger.pair_made(QP + 1, 8, asked);
    assert!(!ledger.pair_connected(QP, PEER));
    assert_eq!(ledger.peer_writes(DEVICE), []);
    assert!(ledger.pair_connected(QP + 1, Peer { slot: 4, ..PEER }));
    assert_eq!(ledger.peer_writes(DEVICE), [NUMBER, 8]);
    assert_eq!(ledger.peer_writes(DEVICE), []);
    ledger
}

/// So peers keep the direct path.
/// Rule: CHK-64
#[test]
fn nobody_has_to_tell_of_writes_whose_order_nobody_wants_to_know() {
    for (wants, told) in [(Kind::WritesUnordered, true), (Kind::WorkLost, false)] {
        let mut ledger = Ledger::looking_for(|kind| kind == wants);
        for (pair, slot) in [(QP, 3), (QP + 1, 4)] {
            let asked = Asked { device: DEVICE, ..Asked::default() };
            ledger.pair_made(pair, u32::from(slot), asked);
            ledger.pair_connected(pair, Peer { slot, ..PEER });
        }
        assert_eq!(!ledger.peer_writes(DEVICE).is_empty(), told);
        assert_eq!(ledger.pair_connected(QP, Peer { slot: 5, ..PEER }), told);
    }
}

fn arrives(ledger: &mut Ledger, number: u32, address: u64, length: u64) -> Vec<Kind> {
    ledger.written("WRITE", number, 9, address, length);
    kinds(ledger)
}

/// Rule: CHK-64
#[test]
fn writes_of_two_peers_to_the_same_bytes_are_unordered() {
    let mut ledger = with_two_writers();
    assert_eq!(arrives(&mut ledger, NUMBER, 0x5000, 8), []);
    assert_eq!(arrives(&mut ledger, NUMBER, 0x5000, 16), []);
    assert_eq!(arrives(&mut ledger, NUMBER, 0x5020, 16), []);
    assert_eq!(arrives(&mut ledger, 8, 0x5010, 16), []);
    assert_eq!(arrives(&mut ledger, 8, 0x500f, 1), [Kind::WritesUnordered]);
    // Of each two peers it is told once.
    assert_eq!(arrives(&mut ledger, 8, 0x5020, 16), []);
}

/// Rule: CHK-64
#[test]
fn a_write_into_the_middle_of_another_leaves_its_ends() {
    for (address, by) in [(0x5000, NUMBER), (0x5010, 8), (0x5028, NUMBER)] {
        let mut ledger = with_two_writers();
        ledger.pair_made(QP + 2, 9, Asked { device: DEVICE, ..Asked::default() });
        ledger.pair_connected(QP + 2, Peer { slot: 5, ..PEER });
        assert_eq!(arrives(&mut ledger, NUMBER, 0x5000, 0x30), []);
        assert_eq!(arrives(&mut ledger, 8, 0x5010, 0x10), [Kind::WritesUnordered]);
        ledger.written("WRITE", 9, 9, address, 8);
        let [told] = &ledger.take()[..] else { panic!("of {address:#x}") };
        assert!(told.says.contains(&format!("queue pairs {by:#x} and 0x9,")), "{told:?}");
    }
}

/// Rule: CHK-64
#[test]
fn what_this_process_does_or_sees_may_tell_peers_of_earlier_writes() {
    type Tell = fn(&mut Ledger);
    let read = Rights { read: true, ..Rights::default() };
    let atomic = Rights { atomic: true, ..Rights::default() };
    let write = Rights { write: true, ..Rights::default() };
    let first = |ledger: &mut Ledger| assert_eq!(arrives(ledger, NUMBER, 0x5000, 8), []);
    let tells: [Tell; 6] = [
        |ledger| post(ledger, &[send(9, true)]),
        |ledger| _ = poll(ledger, &[completed(9, false)], &at(25)),
        |ledger| ledger.pair_modified(QP, false, &at(26)),
        |ledger| ledger.written("fetch-and-add", 8, 9, 0x5100, 8),
        |ledger| ledger.claims(&(0..8), &at(27)),
        |ledger| ledger.event_got(COMPLETIONS, &at(28)),
    ];
    for tell in tells {
        let mut ledger = with_two_writers();
        first(&mut ledger);
        tell(&mut ledger);
        ledger.take();
        assert_eq!(arrives(&mut ledger, 8, 0x5000, 8), []);
    }
    for (rights, expected) in [(read, 0), (atomic, 0), (write, 1)] {
        let mut ledger = with_two_writers();
        first(&mut ledger);
        ledger.peer_uses(DEVICE, 9, rights);
        assert_eq!(arrives(&mut ledger, 8, 0x5000, 8).len(), expected);
    }
}

/// Rules: CHK-64, CHK-98
#[test]
fn what_peers_have_written_takes_fixed_room() {
    let mut ledger = with_two_writers();
    for nth in 0..10_000 {
        ledger.arrived(NUMBER, Space::Window(DEVICE, 77), &(2 * nth..2 * nth + 1), None);
    }
    assert!(ledger.arrived.entries() <= 4096);
    // A stream of writes is one range.
    let mut ledger = with_two_writers();
    for nth in 0..10_000 {
        ledger.arrived(NUMBER, Space::Window(DEVICE, 77), &(nth..nth + 1), None);
    }
    assert_eq!(ledger.arrived.entries(), 1);
}
