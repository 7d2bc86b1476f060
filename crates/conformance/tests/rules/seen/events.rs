//! Programs of known traffic, and the events that their devices record.

use transom_abi::*;
use transom_conformance::connections::{File, Id, event, qpns};
use transom_conformance::events::{Events, words};
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::shared_receive::{Pool, srq_recv};
use transom_conformance::xrc::{Xrc, naming, srq_number};
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::tools::{self, Tool};
use transom_system::trace::{Event, What};

use super::losing::losing_a_write;

/// Carries traffic out, and returns what was recorded of it.
fn recorded(events: &mut Events, traffic: impl FnOnce()) -> Vec<Event> {
    events.take();
    traffic();
    events.take()
}

#[track_caller]
fn expect(name: &str, found: &[Event], expected: &[impl AsRef<str>]) {
    let expected: Vec<_> = expected.iter().map(AsRef::as_ref).collect();
    let found: Vec<_> = found.iter().map(words).collect();
    assert_eq!(found, expected, "{name}");
}

/// One of each operation, on every link.
fn messages() {
    interfaces_up();
    for link in [Link::Loopback, Link::Local, Link::Rings, Link::Wire] {
        let it = MemoryPair::new(link, 8192);
        let mut events = Events::here();
        let (at, key) = (it.far.addr(), it.key());
        let op = |opcode, length| {
            assert_eq!(it.op(opcode, at, key, length).status, IBV_WC_SUCCESS);
        };
        let is_direct = matches!(link, Link::Loopback | Link::Local);
        let one_sided = |what: &str| match is_direct {
            true => vec![format!("CarriedOut {what}")],
            false => {
                let steps = ["Posted", "Sent", "Came", "Touched", "Ended"];
                let success = |step| if step == "Ended" { " Success" } else { "" };
                steps.map(|step| format!("{step} {what}{}", success(step))).into()
            }
        };
        let mut written = one_sided("Write 3000");
        if link == Link::Wire {
            // The last packet of a message comes apart from the others.
            let parts =
                ["Came Write 2048", "Touched Write 2048", "Came Write 952", "Touched Write 952"];
            written.splice(2..4, parts.map(String::from));
        }
        let found = recorded(&mut events, || op(IBV_WR_RDMA_WRITE, 3000));
        expect("a WRITE", &found, &written);
        let of = |what| found.iter().find(|event| event.what == what).copied();
        let done =
            of(if is_direct { What::CarriedOut } else { What::Posted }).expect("it is there");
        assert_eq!((done.qp, done.peer), (number(it.pair.qa) as u32, number(it.pair.qb) as u32));
        assert_eq!((done.key, done.address), (key, at));
        if let Some(touched) = of(What::Touched) {
            assert_eq!((touched.qp, touched.peer), (done.peer, done.qp));
            assert_eq!((touched.key, touched.address), (key, at));
        }
        let read = || op(IBV_WR_RDMA_READ, 3000);
        expect("a READ", &recorded(&mut events, read), &one_sided("Read 3000"));
        let add = || op(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
        expect("an atomic", &recorded(&mut events, add), &one_sided("FetchAdd 8"));
        let send = || {
            it.recv(it.pair.qb, 1, 8192);
            op(IBV_WR_SEND, 2048);
            it.pair.b.expect(IBV_WC_SUCCESS);
        };
        let found = recorded(&mut events, send);
        // Each end records what it does. Which of them is the first to know of the end is open.
        let (asks, answers): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|event| matches!(event.what, What::Posted | What::Sent | What::Ended));
        let asked = ["Posted Send 2048", "Sent Send 2048", "Ended Send 2048 Success"];
        expect("a SEND", &asks, &asked);
        let answered = ["ReceivePosted 8192", "Came Send 2048", "Received 2048 Success"];
        expect("the receive", &answers, &answered);
    }
}

/// Rules: SEE-42
#[test]
fn each_request_is_recorded_from_its_post_to_its_end() {
    let path = path_of!("each_request_is_recorded_from_its_post_to_its_end");
    alone(path, Way::Namespace, messages);
}

/// What is refused, bound, revoked and waited for.
fn others() {
    for link in [Link::Loopback, Link::Local, Link::Rings] {
        let it = MemoryPair::new(link, 8192);
        let mut events = Events::here();
        let refuse = || {
            let failed = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key() ^ 0x80, 8);
            assert_eq!(failed.status, IBV_WC_REM_ACCESS_ERR);
        };
        let found = recorded(&mut events, refuse);
        let refused: Vec<_> = found.iter().filter(|it| it.what == What::Refused).collect();
        let [refused] = refused[..] else { panic!("{found:?}") };
        assert_eq!(words(refused), "Refused StaleKey 8");
        assert_eq!((refused.key, refused.address), (it.key() ^ 0x80, it.far.addr()));
        let ended = found.iter().find(|it| it.what == What::Ended).expect("it has ended");
        assert_eq!(words(ended), "Ended Write 0 RemoteAccess");

        // 41 ms: on a busy machine a shorter wait may be over before anybody waits.
        let late = |attr: &mut ibv_qp_attr| attr.min_rnr_timer = 24;
        let (qa, _) = it.pair.another_with(|attr| attr.rnr_retry = 1, late);
        let found = recorded(&mut events, || {
            let failed = it.op_on(qa, IBV_WR_SEND, 0, 0, 16);
            assert_eq!(failed.status, IBV_WC_RNR_RETRY_EXC_ERR);
        });
        let told = |wanted: &str| found.iter().filter(|event| words(event) == wanted).count();
        assert_eq!([told("Sent Send 16"), told("Came Send 16")], [2, 2], "{link:?} {found:?}");
        assert_eq!(told("Counted NoReceive"), 2, "{link:?} {found:?}");
        assert_eq!(told("Counted NotReady"), 2, "{link:?} {found:?}");
        assert_eq!(told("Waits Time"), 1, "{link:?} {found:?}");
        assert_eq!(told("Ended Send 0 RnrRetryExceeded"), 1, "{link:?} {found:?}");

        let (_, qb) = it.pair.another(IBV_QPT_RC);
        let window = it.pair.b.mw(IBV_MW_TYPE_2);
        let range = Range { mr: it.mb, addr: it.far.addr() + 8, length: 100, access: REMOTE };
        let mut key = 0;
        let found = recorded(&mut events, || key = bind(&it.pair.b, qb, window, range));
        expect("a bind", &found, &["Posted Bind 100", "Opened 100", "Ended Bind 0 Success"]);
        let opened = found.iter().find(|it| it.what == What::Opened).expect("it is open");
        assert_eq!((opened.key, opened.address), (key, it.far.addr() + 8));
        assert_eq!(opened.qp, number(qb) as u32);
        let found = recorded(&mut events, || {
            post(qb, &mut local_inv_wr(key));
            it.pair.b.expect(IBV_WC_SUCCESS);
        });
        expect(
            "its end",
            &found,
            &["Posted Invalidate 0", "Closed Invalidate", "Ended Invalidate 0 Success"],
        );
        assert_eq!(found[1].number, opened.number);
        // What it was, and by whom it was closed.
        let what = |it: &Event| (it.code, it.key, it.address, it.length, it.qp);
        assert_eq!(what(&found[1]), what(opened), "{found:?}");
        assert_eq!(found[1].detail, opened.detail & 0xffff_ffff);
        let found = recorded(&mut events, || {
            let mr = it.part(0, 64, ALL);
            assert_eq!(dereg(mr), 0);
        });
        expect("a region", &found, &["Opened 64", "Closed"]);
    }
}

/// Rules: SEE-43
#[test]
fn refusals_binds_and_waits_are_recorded() {
    alone(path_of!("refusals_binds_and_waits_are_recorded"), Way::Namespace, others);
}

/// Receives of shared queues, which queue pairs take.
fn shared() {
    interfaces_up();
    for link in [Link::Loopback, Link::Local, Link::Rings, Link::Wire] {
        let it = Pool::new(link, 4096);
        let mut events = Events::here();
        let found = recorded(&mut events, || {
            it.recv(7, 0, 100);
            it.post(it.pair.qa, 8, 0, 50);
            assert_eq!(it.came(it.pair.qb), 7);
            it.pair.a.expect(IBV_WC_SUCCESS);
        });
        let key = consumed(&found, it.pair.qb, 7);
        assert_ne!(key, 0, "{link:?}");

        let it = Xrc::new(link, 4096);
        let mut events = Events::here();
        let shared = srq_number(it.srq);
        let found = recorded(&mut events, || {
            srq_recv(it.srq, 9, &mut [sge(it.far.addr(), 100, it.mb)]);
            let mut sges = [sge(it.near.addr(), 50, it.ma)];
            post(it.pair.qa, &mut naming(with_sges(wr(IBV_WR_SEND), &mut sges), shared));
            it.pair.a.expect(IBV_WC_SUCCESS);
            it.pair.b.expect(IBV_WC_SUCCESS);
        });
        assert_eq!(consumed(&found, it.pair.qb, 9), shared, "{link:?}");
    }
}

/// The shared queue that a receive was posted to, and from which a queue pair has taken it.
fn consumed(found: &[Event], qp: *mut ibv_qp, wr_id: u64) -> u32 {
    let of = |what| found.iter().find(|it| it.what == what).expect("it is recorded");
    let (posted, received) = (of(What::ReceivePosted), of(What::Received));
    assert_eq!((posted.qp, posted.number), (0, wr_id), "{found:?}");
    assert_eq!((received.qp, received.number), (number(qp) as u32, wr_id), "{found:?}");
    assert_eq!(posted.key, received.key, "{found:?}");
    posted.key
}

/// Rules: SEE-49
#[test]
fn a_receive_of_a_shared_queue_is_recorded_with_the_queue_pair_that_took_it() {
    let path = path_of!("a_receive_of_a_shared_queue_is_recorded_with_the_queue_pair_that_took_it");
    alone(path, Way::Namespace, shared);
}

/// A connection of this process with itself, made and ended.
fn connection() {
    interfaces_up();
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let mut events = Events::here();
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let [here, there] = qpns();
    let mut ends = [Id(0); 2];
    let found = recorded(&mut events, || {
        ends = file.connected(&address.to_string(), [here, there]);
        file.part(ends);
        let exits = [file.event(), file.event()].map(|event| event.event);
        assert_eq!(exits, [event::TIMEWAIT_EXIT; 2]);
    });
    let [active, passive] = ends;
    let of = |id: Id| -> Vec<_> { found.iter().filter(|event| event.key == id.0).collect() };
    let codes = |id| -> Vec<_> {
        of(id).iter().map(|it| (it.what == What::Managed).then_some(u32::from(it.code))).collect()
    };
    let managed = |codes: &[u32]| codes.iter().map(|code| Some(*code)).collect::<Vec<_>>();
    let ended = [event::DISCONNECTED, event::TIMEWAIT_EXIT];
    let resolved = [event::ADDR_RESOLVED, event::ROUTE_RESOLVED];
    let mut expected = managed(&resolved);
    expected.push(None);
    expected.extend(managed(&[event::CONNECT_RESPONSE]));
    expected.extend(managed(&ended));
    assert_eq!(codes(active), expected, "{found:?}");
    let asked = [event::CONNECT_REQUEST, event::ESTABLISHED];
    assert_eq!(codes(passive), [managed(&asked), managed(&ended)].concat(), "{found:?}");

    let (connects, request) = (of(active)[2], of(passive)[0]);
    assert_eq!((connects.what, connects.qp), (What::Connects, here));
    assert_eq!((request.peer, request.number as u32), (here, listener.0));
    assert!(connects.detail != 0 && connects.detail == request.detail, "{found:?}");
    assert_eq!(connects.ports().1, address.port());
    assert_eq!(request.ports(), (address.port(), connects.ports().0));
    assert_eq!(connects.peer_address().to_canonical(), address.ip());
}

/// Rules: SEE-48
#[test]
fn what_happens_to_ids_is_recorded_with_both_ends() {
    let path = path_of!("what_happens_to_ids_is_recorded_with_both_ends");
    alone(path, Way::Namespace, connection);
}

#[test]
fn role() {
    play(&[("watches", watches), ("sleeps", sleeps)]);
}

/// Watches its parent until it is killed.
fn watches(channel: &mut Channel) {
    let mut events = Events::of(std::os::unix::process::parent_id());
    channel.tell(&[]);
    loop {
        events.refresh();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Is connected, and does nothing.
fn sleeps(channel: &mut Channel) {
    let end = open();
    meet(channel, end.qp(IBV_QPT_RC));
    let [] = channel.hear();
}

/// What the oldest request that has not been sent whole waits for, with its position.
fn waits(found: &[Event]) -> Vec<(String, u64)> {
    let waits = found.iter().filter(|it| it.what == What::Waits);
    waits.map(|it| (words(it), it.number)).collect()
}

/// Everything that may hold a request back, but for the time of the next attempt.
fn held_back() {
    interfaces_up();
    for link in [Link::Rings, Link::Wire] {
        let it = MemoryPair::new(link, 1 << 20);
        let mut events = Events::here();
        let (at, key) = (it.far.addr(), it.key());
        // Its peer hears of nothing, and is given all the time.
        let asks = |max_rd_atomic| {
            let (asks, deaf) = (it.pair.a.qp(IBV_QPT_RC), it.pair.b.qp(IBV_QPT_RC));
            assert_eq!(modify(deaf, &usual_attr(asks), IBV_QPS_INIT), 0);
            bring_up(asks, &ibv_qp_attr { timeout: 0, max_rd_atomic, ..usual_attr(deaf) });
            asks
        };
        let mut expect = |why: &str, position, qp, requests: &mut dyn FnMut(*mut ibv_qp)| {
            let found = recorded(&mut events, || requests(qp));
            let expected = [(format!("Waits {why}"), position)];
            assert_eq!(waits(&found), expected, "{link:?} {found:?}");
            assert_eq!(set_state(qp, IBV_QPS_RESET), 0);
        };
        expect("Fence", 1, asks(16), &mut |qp| {
            it.post_op(qp, IBV_WR_RDMA_READ, at, key, 8);
            let mut sges = [it.near_sge(0, 8)];
            let mut fenced = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, at, key);
            fenced.send_flags |= IBV_SEND_FENCE;
            post(qp, &mut fenced);
        });
        expect("Reads", 1, asks(1), &mut |qp| {
            (0..2).for_each(|_| it.post_op(qp, IBV_WR_RDMA_READ, at, key, 8));
        });
        expect("Turn", 1, asks(16), &mut |qp| {
            it.post_op(qp, IBV_WR_SEND, 0, 0, 8);
            post(qp, &mut local_inv_wr(key));
        });
        let (drained, _) = it.pair.another(IBV_QPT_RC);
        assert_eq!(set_state(drained, IBV_QPS_SQD), 0);
        expect("State", 0, drained, &mut |qp| it.post_op(qp, IBV_WR_SEND, 0, 0, 8));
        if link == Link::Wire {
            let qp = asks(16);
            it.post_op(qp, IBV_WR_RDMA_WRITE, at, key, it.near.len() as u32);
            // The socket may have no room for a moment before.
            until("the window to be used up", || {
                let found = events.take();
                waits(&found).contains(&("Waits Window".to_owned(), 0)).then_some(())
            });
        }
    }

    // A process that is stopped takes nothing, and its ring becomes full before the window is used up.
    let end = open();
    let qp = end.qp_with(&mut ibv_qp_init_attr {
        cap: ibv_qp_cap { max_send_wr: 300, ..end.init(IBV_QPT_RC).cap },
        ..end.init(IBV_QPT_RC)
    });
    let mut child = Child::start(path_of!("sleeps"));
    meet(&mut child.channel, qp);
    let mut events = Events::of(std::process::id());
    until("events to be wanted", || tools::is_on(Tool::Events).then_some(()));
    child.stop();
    let near = Buffer::new(1024);
    let mr = end.reg(&near, 0);
    let found = recorded(&mut events, || {
        for _ in 0..300 {
            post(qp, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(near.addr(), 1024, mr)]));
        }
    });
    let [(why, position)] = &waits(&found)[..] else { panic!("{:?}", waits(&found)) };
    assert_eq!(why, "Waits Room");
    assert!((100..300).contains(position), "{position}");
    child.kill();
}

/// Rules: SEE-43
#[test]
fn what_holds_a_request_back_is_recorded() {
    alone(path_of!("what_holds_a_request_back_is_recorded"), Way::Namespace, held_back);
}

/// The only packet of a WRITE is lost.
fn sent_again() {
    interfaces_up();
    let it = losing_a_write(4096);
    let mut events = Events::here();
    let found = recorded(&mut events, || {
        let done = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 100);
        assert_eq!(done.status, IBV_WC_SUCCESS);
    });
    let told = |wanted: &str| found.iter().filter(|event| words(event) == wanted).count();
    assert_eq!(told("Counted Timeout"), 1, "{found:?}");
    assert_eq!([told("Posted Write 100"), told("Ended Write 100 Success")], [1, 1], "{found:?}");
    // It goes twice, and comes once.
    assert_eq!([told("Came Write 100"), told("Touched Write 100")], [1, 1], "{found:?}");
    let sent = found.iter().filter(|it| it.what == What::Sent);
    let attempts: Vec<_> = sent.map(|it| (words(it), it.detail >> 32)).collect();
    assert_eq!(attempts, [0, 1].map(|attempt| ("Sent Write 100".to_owned(), attempt)));
}

/// Rules: SEE-42, SEE-43
#[test]
fn what_is_sent_again_is_recorded_with_the_reason() {
    alone(path_of!("what_is_sent_again_is_recorded_with_the_reason"), Way::Namespace, sent_again);
}

/// How many events this process has recorded.
fn count() -> u64 {
    let registry = Registry::open().expect("a registry");
    let own = registry.processes().into_iter().find(|it| it.alive && it.pid == std::process::id());
    Segment::of(&own.expect("it is there")).expect("its segment").events().count()
}

/// A reader is killed, and another one is stopped.
fn killed() {
    let it = MemoryPair::new(Link::Loopback, 64);
    let is_on = |on| (tools::is_on(Tool::Events) == on).then_some(());
    let write = || {
        let done = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 64);
        assert_eq!(done.status, IBV_WC_SUCCESS);
    };
    for round in 0..2 {
        let mut reader = Child::start(path_of!("watches"));
        let [] = reader.hear();
        until("the events to be wanted", || is_on(true));
        let before = count();
        write();
        assert_eq!(count(), before + 1);
        match round {
            0 => reader.kill(),
            _ => reader.stop(),
        }
        until("nobody to want them any more", || is_on(false));
        let before = count();
        write();
        assert_eq!(count(), before, "nobody reads them");
    }
}

/// A child is forked while its parent is watched. Nobody has asked for anything of the child.
fn forked() {
    let it = MemoryPair::new(Link::Loopback, 64);
    let mut reader = Child::start(path_of!("watches"));
    let [] = reader.hear();
    until("the events to be wanted", || tools::is_on(Tool::Events).then_some(()));
    fork_once(|| !tools::is_on(Tool::Events) && !tools::any());
    assert!(tools::is_on(Tool::Events));
    reader.kill();
    until("nobody to want them any more", || (!tools::is_on(Tool::Events)).then_some(()));
    drop(it);
}

/// Rules: SEE-40
#[test]
fn a_child_that_is_forked_meanwhile_records_nothing() {
    alone(path_of!("a_child_that_is_forked_meanwhile_records_nothing"), Way::Namespace, forked);
}

/// Rules: SEE-40
#[test]
fn nothing_is_recorded_for_a_reader_that_is_killed_or_stopped() {
    let path = path_of!("nothing_is_recorded_for_a_reader_that_is_killed_or_stopped");
    alone(path, Way::Namespace, killed);
}
