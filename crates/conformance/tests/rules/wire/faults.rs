//! Faults that a user asks for (`transom run --fault`): what a program sees of them.

use std::process::Command;
use std::time::Duration;

use transom_abi::*;
use transom_conformance::explained::on_one_line;
use transom_conformance::harness::*;
use transom_conformance::programs::{Running, command, program};
use transom_conformance::{on_each_link, path_of, processes};
use transom_device::protection::Reason;
use transom_host::Options;
use transom_ibverbs::ibv_query_port;
use transom_net::faults::Faults;

/// How long a program may run.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Devices with these faults.
fn options(faults: &str) -> Options {
    let faults: Faults = faults.parse().expect("faults");
    Options { faults: Some(Box::leak(Box::new(faults))), ..Options::default() }
}

/// Two ends over a link between devices with these faults.
fn both(link: Link, faults: &str, length: usize) -> MemoryPair {
    let (a, b) = ends(link, options(faults));
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    for (qp, peer) in [(qa, qb), (qb, qa)] {
        // Two seconds: on a busy machine nothing else is sent again either, which faults would count.
        bring_up(qp, &ibv_qp_attr { timeout: 19, ..usual_attr(peer) });
    }
    MemoryPair::of(Pair { a, b, qa, qb }, length)
}

/// A READ, WRITE or atomic of eight bytes between the starts of the buffers.
fn op(both: &MemoryPair, opcode: ibv_wr_opcode) -> ibv_wc {
    both.op(opcode, both.far.addr(), both.key(), 8)
}

fn assert_refused(
    link: Link,
    both: &MemoryPair,
    opcode: ibv_wr_opcode,
    status: ibv_wc_status,
    reason: Reason,
) {
    let before = both.bytes();
    let wc = op(both, opcode);
    // A packet has no room for the reason.
    let reason = if link == Link::Wire { 0 } else { u32::from(reason.code()) };
    assert_eq!((wc.status, wc.vendor_err), (status, reason), "{opcode}");
    assert!(both.bytes() == before, "not carried out");
    let (qa, qb) = (both.pair.qa, both.pair.qb);
    assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
}

on_each_link! {
    /// The third READ is refused as a responder refuses, and nothing else is.
    /// Rules: RA-40, RA-44, RA-45
    fn the_third_read_is_refused(link: Link) {
        let both = both(link, "nak=remote-access,op=read,nth=3", 4096);
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
            assert_eq!(op(&both, opcode).status, IBV_WC_SUCCESS);
        }
        both.far.fill(77);
        let reason = Reason::InjectedAccess;
        assert_refused(link, &both, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, reason);
        assert_eq!(both.pair.b.event().0, IBV_EVENT_QP_ACCESS_ERR);
        // It was the third on any queue pair, and there is only one third.
        for _ in 0..3 {
            let (qa, _) = both.connected(|attr| attr.timeout = 19, |_| ());
            let wc = both.op_on(qa, IBV_WR_RDMA_READ, both.far.addr(), both.key(), 8);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
        }
    }

    /// Each kind of NAK ends in its own status.
    fn each_nak_has_its_status(link: Link) {
        for (kind, operation, opcode, status, reason) in [
            (
                "remote-access",
                "any",
                IBV_WR_RDMA_WRITE,
                IBV_WC_REM_ACCESS_ERR,
                Reason::InjectedAccess,
            ),
            (
                "invalid-request",
                "atomic",
                IBV_WR_ATOMIC_FETCH_AND_ADD,
                IBV_WC_REM_INV_REQ_ERR,
                Reason::InjectedRequest,
            ),
            (
                "remote-operational",
                "write",
                IBV_WR_RDMA_WRITE,
                IBV_WC_REM_OP_ERR,
                Reason::InjectedOperational,
            ),
            (
                "remote-operational",
                "send",
                IBV_WR_SEND,
                IBV_WC_REM_OP_ERR,
                Reason::InjectedOperational,
            ),
        ] {
            let both = both(link, &format!("nak={kind},op={operation}"), 4096);
            both.recv(both.pair.qb, 9, 4096);
            assert_refused(link, &both, opcode, status, reason);
            // The receive was not taken; it is flushed with its queue.
            both.pair.b.expect(IBV_WC_WR_FLUSH_ERR);
        }
    }

    /// A message that finds no receive is sent again, until it does or the retries are used up.
    /// Rules: RN-01, RN-04
    fn receivers_are_not_ready(link: Link) {
        let both = both(link, "rnr,op=send,nth=1..;rnr,op=write,nth=1", 4096);
        assert_eq!(op(&both, IBV_WR_RDMA_WRITE).status, IBV_WC_SUCCESS);
        let (qa, qb) = both.connected(|attr| (attr.rnr_retry, attr.timeout) = (1, 19), |_| ());
        both.recv(qb, 9, 4096);
        let wc = both.op_on(qa, IBV_WR_SEND, 0, 0, 8);
        assert_eq!(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
        assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_RTS));
    }

    /// A request that is lost is sent again, whole; if all are, the retries are used up.
    fn requests_are_lost(link: Link) {
        let both = both(link, "drop,op=write,nth=1;drop,op=write,nth=3..", 1 << 20);
        let length = both.near.len() as u32;
        // A quarter of a second each: on a busy machine the second is to be answered before there is a third.
        let (qa, _) = both.connected(|attr| (attr.timeout, attr.retry_cnt) = (16, 2), |_| ());
        let write = || both.op_on(qa, IBV_WR_RDMA_WRITE, both.far.addr(), both.key(), length);
        assert_eq!(write().status, IBV_WC_SUCCESS);
        let (near, far) = both.bytes();
        assert!(near == far, "the second attempt carried it");
        both.near.fill(5);
        assert_eq!(write().status, IBV_WC_RETRY_EXC_ERR);
        assert!(both.bytes().1 == far);
    }

    /// An unreliable message that is refused or lost is gone without a word.
    /// Rules: RA-48, UC-03
    fn unreliable_messages_are_gone(link: Link) {
        for fault in ["drop,nth=2", "nak=remote-access,nth=2", "rnr,nth=2"] {
            let (a, b) = ends(link, options(fault));
            let (qa, qb) = (a.qp(IBV_QPT_UC), b.qp(IBV_QPT_UC));
            connect(qa, qb);
            let both = MemoryPair::of(Pair { a, b, qa, qb }, 4096);
            for wr_id in [1, 2] {
                both.recv(qb, wr_id, 4096);
            }
            for length in [10, 20, 30] {
                assert_eq!(both.op(IBV_WR_SEND, 0, 0, length).status, IBV_WC_SUCCESS);
            }
            for (wr_id, length) in [(1, 10), (2, 30)] {
                let wc = both.pair.b.expect(IBV_WC_SUCCESS);
                assert_eq!((wc.wr_id, wc.byte_len), (wr_id, length), "{fault}");
            }
        }
    }
}

/// Packets are lost, late, doubled and damaged, and all data arrives.
#[test]
fn data_survives_a_bad_network() {
    const LENGTH: u32 = 10 * 4096;
    let faults = "loss=2%,delay=50us,reorder=5%,duplicate=2%,corrupt=1%,rate=1gbit,seed=7";
    let (a, b) = ends(Link::Wire, options(faults));
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    for (qp, peer) in [(qa, qb), (qb, qa)] {
        bring_up(qp, &ibv_qp_attr { timeout: 14, retry_cnt: 7, ..usual_attr(peer) });
    }
    let both = MemoryPair::of(Pair { a, b, qa, qb }, LENGTH as usize);
    let (at, key) = (both.far.addr(), both.key());
    for round in 0..20 {
        both.near.fill(round);
        assert_eq!(both.op(IBV_WR_RDMA_WRITE, at, key, LENGTH).status, IBV_WC_SUCCESS);
        assert!(both.far.is_all(round));
        both.far.fill(round + 100);
        assert_eq!(both.op(IBV_WR_RDMA_READ, at, key, LENGTH).status, IBV_WC_SUCCESS);
        assert!(both.near.is_all(round + 100));
        both.far.set_word(0, 5);
        assert_eq!(both.op(IBV_WR_ATOMIC_FETCH_AND_ADD, at, key, 8).status, IBV_WC_SUCCESS);
        assert_eq!((both.near.word(0), both.far.word(0)), (5, 6), "added once");
    }
}

/// While the port is down nothing passes over the wire, and what waits long enough goes on after.
#[test]
fn nothing_passes_while_the_port_is_down() {
    let (a, b) = ends(Link::Wire, options("port-down=86400s"));
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    connect(qa, qb);
    let both = MemoryPair::of(Pair { a, b, qa, qb }, 4096);
    assert_eq!(op(&both, IBV_WR_RDMA_WRITE).status, IBV_WC_RETRY_EXC_ERR);
    let (a, b) = ends(Link::Wire, options("port-down=200ms"));
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    for (qp, peer) in [(qa, qb), (qb, qa)] {
        // 67 ms each.
        bring_up(qp, &ibv_qp_attr { timeout: 14, retry_cnt: 7, ..usual_attr(peer) });
    }
    let both = MemoryPair::of(Pair { a, b, qa, qb }, 4096);
    assert_eq!(op(&both, IBV_WR_RDMA_WRITE).status, IBV_WC_SUCCESS);
}

fn port_state(end: &End) -> ibv_port_state {
    let mut attr = ibv_port_attr::default();
    // SAFETY: the context is open, and the attributes are longer than what is written.
    assert_eq!(unsafe { ibv_query_port(end.context, 1, &mut attr) }, 0);
    attr.state
}

/// The port goes down and comes back, with an event each time.
#[test]
fn the_port_is_down_for_a_while() {
    let down = End::new(options("port-down=86400s"));
    assert_eq!(port_state(&down), IBV_PORT_DOWN);
    let end = End::new(options("port-down=1ms,at=500ms"));
    assert_eq!(port_state(&end), IBV_PORT_ACTIVE);
    assert_eq!(end.event().0, IBV_EVENT_PORT_ERR);
    assert_eq!(end.event().0, IBV_EVENT_PORT_ACTIVE);
    assert_eq!(port_state(&end), IBV_PORT_ACTIVE);
}

/// A program under `transom run` with a fault.
fn faulty(fault: &str, line: &[&str]) -> Command {
    let [transom, ..] = command();
    let mut command = Command::new(transom);
    command.args(["run", "--fault", fault, "--"]).args(line);
    command
}

/// Programs under `transom run` with network faults use the wire, and what they send arrives.
#[test]
fn programs_survive_a_bad_network() {
    let pingpong = program("ibv_rc_pingpong", "ibverbs-utils");
    let run = format!("{} -g 0 -c -n 50 -p {}", pingpong.display(), free_port());
    // The client tries until the server listens.
    let line = format!("{run} & until {run} localhost 2>/dev/null; do :; done; wait");
    let mut command = faulty("loss=1%,reorder=5%,delay=20us,seed=3", &["sh", "-c", &line]);
    let printed = Running::start(&mut command).success(TIMEOUT);
    let printed = printed.unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(printed.output.matches("50 iters").count(), 2, "{printed:?}");
}

/// Free a moment ago; the kernel gives out others before it comes back to it.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// A program that knows nothing of it has its third SEND refused, and `transom explain` says by whom.
#[test]
fn a_program_has_a_request_refused() {
    let pingpong = program("ibv_rc_pingpong", "ibverbs-utils");
    let pingpong = pingpong.to_str().expect("a plain path");
    let number = free_port();
    let on = format!("-p{number}");
    let fault = "nak=remote-access,op=send,nth=3";
    let mut server = Running::start(&mut faulty(fault, &[pingpong, "-g0", &on]));
    server.wait_until_it_listens(number).expect("a server");
    let client = Running::start(&mut faulty(fault, &[pingpong, "-g0", &on, "localhost"]));
    let (status, printed) = client.end(TIMEOUT).expect("it ends");
    assert!(!status.success() && printed.complaints.contains("remote access error"), "{printed:?}");
    drop(server);
    let [transom, ..] = command();
    // All of them: other tests have refusals too.
    let explained = Command::new(transom).args(["explain", "--limit", "100000"]).output();
    let explained = String::from_utf8(explained.expect("a program").stdout).expect("text");
    // A line that begins with a digit has the time of a refusal, and what follows is about it.
    let begins = |line: &str| line.starts_with(|letter: char| letter.is_ascii_digit());
    let lines: Vec<_> = explained.lines().collect();
    let ours = |refusal: &[&str]| {
        let refusal = on_one_line(&refusal.join(" "));
        refusal.contains("SEND of 4096 bytes")
            && refusal.contains("injected by `transom run --fault`")
            && refusal.contains("NAK remote access error")
    };
    let mut refusals = lines.chunk_by(|_, next| !begins(next));
    assert!(refusals.any(ours), "{explained}");
}

/// Set for the program of the test below.
const PROGRAM: &str = "TRANSOM_TEST_FAULTY";

/// Lost requests only cost a program time: this test under `transom run`.
#[test]
fn a_program_survives_losses() {
    if std::env::var_os(PROGRAM).is_none() {
        let own = processes::this_program();
        let own = own.to_str().expect("a plain path");
        let test = processes::arguments(path_of!("a_program_survives_losses"));
        let mut command = faulty("drop,op=send,nth=5", &[&[own], &test[..]].concat());
        let running = Running::start(command.env(PROGRAM, "1"));
        running.success(TIMEOUT).unwrap_or_else(|problem| panic!("{problem}"));
        return;
    }
    let (a, b) = (processes::open(), processes::open());
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    connect(qa, qb);
    let both = MemoryPair::of(Pair { a, b, qa, qb }, 4096);
    for _ in 0..10 {
        both.recv(qb, 1, 4096);
        assert_eq!(both.op(IBV_WR_SEND, 0, 0, 100).status, IBV_WC_SUCCESS);
        both.pair.b.expect(IBV_WC_SUCCESS);
    }
    both.pair.b.expect_nothing();
}

/// Set to a file for the program of the test below.
const SURVIVORS: &str = "TRANSOM_TEST_SURVIVORS";

/// The same messages are lost each time that a run is repeated with its seed, and others with another seed.
#[test]
fn a_seed_loses_the_same_packets_in_every_run() {
    if let Some(file) = std::env::var_os(SURVIVORS) {
        return std::fs::write(file, survivors().join(" ")).expect("our own file");
    }
    let scratch = processes::Scratch::new("seeds");
    let own = processes::this_program();
    let own = own.to_str().expect("a plain path");
    let test = processes::arguments(path_of!("a_seed_loses_the_same_packets_in_every_run"));
    let run = |name: &str, seed: u64| {
        let file = scratch.path().join(name);
        let mut command = faulty(&format!("loss=50%,seed={seed}"), &[&[own], &test[..]].concat());
        let running = Running::start(command.env(SURVIVORS, &file));
        running.success(TIMEOUT).unwrap_or_else(|problem| panic!("{problem}"));
        std::fs::read_to_string(file).expect("it has been written")
    };
    let first = run("first", 7);
    assert_eq!(run("second", 7), first);
    assert_ne!(run("other", 8), first);
}

/// Sends messages of 1 to 63 bytes that nobody sends again; the lengths of those that arrive.
fn survivors() -> Vec<String> {
    const LAST: u32 = 64;
    let (a, b) = (processes::open(), processes::open());
    let (qa, qb) = (a.qp(IBV_QPT_UC), b.qp(IBV_QPT_UC));
    connect(qa, qb);
    let both = MemoryPair::of(Pair { a, b, qa, qb }, 4096);
    // One for each that may arrive.
    (1..=LAST).for_each(|_| both.recv(qb, 1, 4096));
    let send = |length| {
        assert_eq!(both.op(IBV_WR_SEND, 0, 0, length).status, IBV_WC_SUCCESS);
    };
    (1..LAST).for_each(send);
    let mut arrived = Vec::new();
    loop {
        // What is sent last tells that the others have arrived, and may be lost as well.
        send(LAST);
        while let Some(wc) = poll(both.pair.b.cq) {
            match wc.byte_len {
                LAST => return arrived,
                length => arrived.push(length.to_string()),
            }
        }
    }
}
