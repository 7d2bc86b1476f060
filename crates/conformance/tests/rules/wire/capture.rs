//! What `transom run --capture` writes: RoCEv2 packets that tshark dissects, with the reasons of
//! refusals.

use std::process::Command;
use std::time::Duration;

use transom_abi::*;
use transom_conformance::captured::{Captured, read};
use transom_conformance::datagrams::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Running, command, program};
use transom_conformance::queues::number;
use transom_conformance::shared_receive::srq_recv;
use transom_conformance::xrc::*;
use transom_host::{Options, capture};
use transom_net::faults::Faults;
use transom_system::addresses::LOOPBACK_GID;
use transom_wire::packet::{Operation, Transport};

/// The first PSN of queue pairs that are connected here.
const FIRST: u32 = 17;
const IPV6_LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// A multicast GID.
const GROUP: [u8; 16] = [0xff, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

/// A capture file, and options for devices that write to it.
struct File {
    scratch: Scratch,
    options: Options,
}

impl File {
    fn new(test: &str, link: Link) -> Self {
        let scratch = Scratch::new(&format!("capture-{test}-{link:?}"));
        let path = scratch.path().join("test.pcapng");
        capture::begin(&path).expect("our own folder");
        let options = Options { capture: Some(Box::leak(path.into())), ..Options::default() };
        Self { scratch, options }
    }

    fn pair(&self, link: Link, kind: ibv_qp_type) -> Pair {
        let (a, b) = ends(link, self.options);
        let (qa, qb) = (a.qp(kind), b.qp(kind));
        connect_patiently(qa, qb);
        Pair { a, b, qa, qb }
    }

    fn read(&self, link: Link) -> Option<Vec<Captured>> {
        let packets = read(&self.scratch.path().join("test.pcapng"))?;
        let name = match link {
            Link::Loopback => "loopback",
            Link::Local | Link::Rings | Link::Shared => "local",
            Link::Wire => "wire",
        };
        assert!(packets.iter().all(|packet| packet.interface == name), "{packets:?}");
        Some(packets)
    }
}

/// Connects queue pairs that wait long for answers: on a busy machine too, nothing is sent again for
/// want of them.
fn connect_patiently(a: *mut ibv_qp, b: *mut ibv_qp) {
    for (qp, peer) in [(a, b), (b, a)] {
        bring_up(qp, &long_timeout(peer));
    }
}

fn long_timeout(peer: *mut ibv_qp) -> ibv_qp_attr {
    ibv_qp_attr { timeout: 19, retry_cnt: 7, ..usual_attr(peer) }
}

/// Opcodes, PSNs beyond the first and payload lengths.
fn shape(packets: &[Captured]) -> Vec<(u8, u32, usize)> {
    let of = |it: &Captured| (it.opcode, it.psn - FIRST, it.packet().payload.len());
    packets.iter().map(of).collect()
}

/// Each operation of RC once, the last one refused.
fn each_operation(both: &MemoryPair) {
    let (at, key) = (both.far.addr(), both.key());
    let succeed = |opcode, remote, key, length| {
        assert_eq!(both.op(opcode, remote, key, length).status, IBV_WC_SUCCESS, "{opcode}");
    };
    let received = |opcode, remote, key, length| {
        both.recv(both.pair.qb, 9, 4096);
        succeed(opcode, remote, key, length);
        both.pair.b.expect(IBV_WC_SUCCESS);
    };
    received(IBV_WR_SEND, 0, 0, 0);
    received(IBV_WR_SEND, 0, 0, 2500);
    received(IBV_WR_SEND_WITH_IMM, 0, 0, 5);
    succeed(IBV_WR_RDMA_WRITE, at, key, 3000);
    received(IBV_WR_RDMA_WRITE_WITH_IMM, at + 1, key, 8);
    succeed(IBV_WR_RDMA_READ, at, key, 3000);
    succeed(IBV_WR_ATOMIC_FETCH_AND_ADD, at, key, 8);
    succeed(IBV_WR_ATOMIC_CMP_AND_SWP, at, key, 8);
    succeed(IBV_WR_RDMA_READ, at, key, 100);
    let range = Range { mr: both.mb, addr: at, length: 64, access: REMOTE };
    let window = || bind(&both.pair.b, both.pair.qb, both.pair.b.mw(IBV_MW_TYPE_2), range);
    let mut sges = [sge(both.near.addr(), 8, both.ma)];
    let mut invalidate = with_sges(wr(IBV_WR_SEND_WITH_INV), &mut sges);
    invalidate.imm.invalidate_rkey = window();
    both.recv(both.pair.qb, 9, 4096);
    post(both.pair.qa, &mut invalidate);
    both.pair.a.expect(IBV_WC_SUCCESS);
    both.pair.b.expect(IBV_WC_SUCCESS);
    let refused = both.op(IBV_WR_RDMA_WRITE, at + 60, window(), 8);
    assert_eq!(refused.status, IBV_WC_REM_ACCESS_ERR);
}

/// What [`each_operation`] looks like.
fn check_each_operation(packets: &[Captured], both: &MemoryPair) {
    let expected = [
        (0x04, 0, 0),
        (0x11, 0, 0),
        (0x00, 1, 1024),
        (0x01, 2, 1024),
        (0x02, 3, 452),
        (0x11, 3, 0),
        (0x05, 4, 5),
        (0x11, 4, 0),
        (0x06, 5, 1024),
        (0x07, 6, 1024),
        (0x08, 7, 952),
        (0x11, 7, 0),
        (0x0b, 8, 8),
        (0x11, 8, 0),
        (0x0c, 9, 0),
        (0x0d, 9, 1024),
        (0x0e, 10, 1024),
        (0x0f, 11, 952),
        (0x14, 12, 0),
        (0x12, 12, 0),
        (0x13, 13, 0),
        (0x12, 13, 0),
        (0x0c, 14, 0),
        (0x10, 14, 100),
        (0x17, 15, 8),
        (0x11, 15, 0),
        (0x0a, 16, 8),
        (0x11, 16, 0),
    ];
    assert_eq!(shape(packets), expected);
    let (a, b) = (number(both.pair.qa), number(both.pair.qb));
    for captured in packets {
        let packet = captured.packet();
        assert_eq!(packet.transport, Transport::Rc);
        assert!(packet.migrated, "as hardware says, in requests and answers");
        assert_eq!(packet.to, if packet.operation.is_response() { a } else { b });
        assert_eq!(
            (captured.source, captured.destination),
            ([127, 0, 0, 1].into(), [127, 0, 0, 1].into())
        );
    }
    // As the origin's buffer was filled.
    let filled: Vec<u8> = (0..1024).map(|at| pattern(at, 3)).collect();
    assert_eq!(packets[2].packet().payload, filled);
    assert_eq!(packets[8].packet().payload, packets[2].packet().payload);
    assert_eq!(packets[15].packet().payload[9..], packets[8].packet().payload[9..]);
    let Operation::WriteFirst(reth) = packets[8].operation() else { panic!("{:?}", packets[8]) };
    assert_eq!((reth.address, reth.key, reth.length), (both.far.addr(), both.key(), 3000));
    // The same number as in the verbs, its highest byte first.
    assert_eq!(packets[8].bytes[20..24], both.key().to_be_bytes());
    assert_eq!(packets[18].bytes[20..24], both.key().to_be_bytes());
    let Operation::FetchAdd { address, add, .. } = packets[18].operation() else {
        panic!("{:?}", packets[18])
    };
    assert_eq!((address, add), (both.far.addr(), 1));
    // Ten requests were completed, the last was refused.
    let Operation::Acknowledge(nak) = packets[27].operation() else { panic!("{:?}", packets[27]) };
    assert_eq!((nak.byte, nak.msn), (0x62, 10));
    let comment = &packets[27].comment;
    assert!(comment.starts_with("WRITE of 8 bytes at"), "{comment}");
    assert!(
        comment.contains("the range goes 4 bytes past the end of the window [")
            && comment.ends_with("(rule RA-33)"),
        "{comment}"
    );
    assert!(packets[..27].iter().all(|packet| packet.comment.is_empty()));
}

on_each_link! {
    /// Each operation of RC becomes the packets of the rules, and a refusal says why.
    /// Rules: PK-07, PK-08, PK-09, PK-16, PSN-02, PSN-03, PSN-04, PSN-05, PSN-06, PSN-20, ACK-02,
    /// ACK-03, KEY-16, NET-03
    fn reliable_connections_are_captured(link: Link) {
        let file = File::new("rc", link);
        let both = MemoryPair::of(file.pair(link, IBV_QPT_RC), 4096);
        each_operation(&both);
        if let Some(packets) = file.read(link) {
            check_each_operation(&packets, &both);
        }
    }

    /// A message of many segments is one message of many packets, and one that finds no receive is
    /// sent again with the same PSNs.
    fn long_and_repeated_messages_are_captured(link: Link) {
        const LENGTH: u32 = 600_000;
        let file = File::new("long", link);
        let both = MemoryPair::of(file.pair(link, IBV_QPT_RC), LENGTH as usize);
        let (at, key) = (both.far.addr(), both.key());
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            assert_eq!(both.op(opcode, at, key, LENGTH).status, IBV_WC_SUCCESS);
        }
        let (qa, qb) = both.connected(|attr| (attr.rnr_retry, attr.timeout) = (1, 19), |_| ());
        let status = both.op_on(qa, IBV_WR_SEND, 0, 0, 8).status;
        assert_eq!(status, IBV_WC_RNR_RETRY_EXC_ERR);
        let Some(packets) = file.read(link) else { return };
        let count = LENGTH.div_ceil(1024);
        let of = |packets: &[Captured], opcodes: &[u8]| -> Vec<u32> {
            let wanted = packets.iter().filter(|packet| opcodes.contains(&packet.opcode));
            wanted.map(|packet| packet.psn - FIRST).collect()
        };
        assert_eq!(of(&packets, &[6, 7, 8]), (0..count).collect::<Vec<_>>());
        let asked = of(&packets, &[0xc]);
        // The wire asks for a long READ in parts.
        assert!(asked == [count] || link == Link::Wire && asked[0] == count, "{asked:?}");
        assert_eq!(of(&packets, &[0xd, 0xe, 0xf]), (count..2 * count).collect::<Vec<_>>());
        let to = [number(qa), number(qb)];
        let last: Vec<_> =
            packets.into_iter().filter(|packet| to.contains(&packet.packet().to)).collect();
        assert_eq!(shape(&last), [(4, 0, 8), (0x11, 0, 0), (4, 0, 8), (0x11, 0, 0)]);
        let Operation::Acknowledge(nak) = last[1].operation() else { panic!("{:?}", last[1]) };
        assert_eq!(nak.byte, 0x21, "not ready, with the timer of the target");
    }

    /// Unreliable connections have no answers.
    fn unreliable_connections_are_captured(link: Link) {
        let file = File::new("uc", link);
        let both = MemoryPair::of(file.pair(link, IBV_QPT_UC), 4096);
        both.recv(both.pair.qb, 9, 4096);
        both.op(IBV_WR_SEND, 0, 0, 1500);
        both.op(IBV_WR_RDMA_WRITE, both.far.addr(), both.key(), 10);
        let Some(packets) = file.read(link) else { return };
        assert_eq!(shape(&packets), [(0x20, 0, 1024), (0x22, 1, 476), (0x2a, 2, 10)]);
    }

    /// Datagrams go to the address of their handle, each once, however many receive it.
    fn datagrams_are_captured(link: Link) {
        let file = File::new("ud", link);
        let (a, b) = ends(link, file.options);
        let (qa, qb) = (ud_qp(&a), ud_qp(&b));
        let near = Buffer::filled(4096, 3);
        let ma = a.reg(&near, ALL);
        for (gid, opcode, length, to) in [
            (LOOPBACK_GID, IBV_WR_SEND, 256, number(qb)),
            (IPV6_LOOPBACK, IBV_WR_SEND_WITH_IMM, 3, number(qb)),
            (GROUP, IBV_WR_SEND, 8, 0xff_ffff),
        ] {
            let mut attr = to_gid(gid);
            attr.grh.hop_limit = 9;
            attr.grh.traffic_class = 0x68;
            let mut sges = [sge(near.addr(), length, ma)];
            let request = with_sges(wr(opcode), &mut sges);
            post(qa, &mut addressed(request, ah(a.pd, &attr), to, QKEY));
            a.expect(IBV_WC_SUCCESS);
        }
        let Some(packets) = read(&file.scratch.path().join("test.pcapng")) else { return };
        let seen: Vec<_> = packets
            .iter()
            .map(|it| (it.opcode, it.psn - 5, it.packet().to, it.destination.to_string()))
            .collect();
        let expected = [
            (0x64, 0, number(qb), "127.0.0.1".to_owned()),
            (0x65, 1, number(qb), "::1".to_owned()),
            (0x64, 2, 0xff_ffff, "ff01::9".to_owned()),
        ];
        assert_eq!(seen, expected);
        let transport = Transport::Ud { qkey: QKEY, source: number(qa) };
        assert!(packets.iter().all(|packet| packet.packet().transport == transport));
        assert_eq!(packets[0].packet().payload, near.read(0, 256));
    }

    /// Requests of XRC name their shared receive queue, answers do not.
    fn extended_connections_are_captured(link: Link) {
        let file = File::new("xrc", link);
        let (a, b) = ends(link, file.options);
        let xrcd = xrcd(b.context);
        let srq = try_srq_ex(b.context, &xrc_srq_init(b.pd, xrcd, b.cq)).expect("a queue");
        let (qa, qb) = (a.qp(IBV_QPT_XRC_SEND), xrc_target(b.context, xrcd));
        connect_patiently(qa, qb);
        let (near, far) = (Buffer::filled(4096, 3), Buffer::new(4096));
        let (ma, mb) = (a.reg(&near, ALL), b.reg(&far, ALL));
        srq_recv(srq, 1, &mut [sge(far.addr(), 4096, mb)]);
        let mut sges = [sge(near.addr(), 1100, ma)];
        post(qa, &mut naming(with_sges(wr(IBV_WR_SEND), &mut sges), srq_number(srq)));
        a.expect(IBV_WC_SUCCESS);
        let mut read = rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr(), keys(mb).1);
        read.qp_type.xrc.remote_srqn = srq_number(srq);
        post(qa, &mut read);
        a.expect(IBV_WC_SUCCESS);
        let Some(packets) = file.read(link) else { return };
        let expected = [
            (0xa0, 0, 1024),
            (0xa2, 1, 76),
            (0xb1, 1, 0),
            (0xac, 2, 0),
            (0xad, 2, 1024),
            (0xaf, 3, 76),
        ];
        assert_eq!(shape(&packets), expected);
        let srq = srq_number(srq);
        assert_eq!(packets[3].packet().transport, Transport::Xrc { srq });
    }

    /// ATOMIC WRITE and FLUSH are captured too.
    fn newer_operations_are_captured(link: Link) {
        const OPERATIONS: u32 = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE;
        let file = File::new("newer", link);
        let (a, b) = ends(link, file.options);
        let [qa, qb] = [&a, &b].map(|end| qp_ex(end, IBV_QPT_RC, OPERATIONS));
        bring_up(qa, &long_timeout(qb));
        let usual = long_timeout(qa);
        let rights = usual.qp_access_flags | IBV_ACCESS_FLUSH_GLOBAL;
        bring_up(qb, &ibv_qp_attr { qp_access_flags: rights, ..usual });
        let far = Buffer::new(4096);
        let mr = b.reg(&far, ALL | IBV_ACCESS_FLUSH_GLOBAL as i32);
        let (key, build) = (keys(mr).1, Builder::of(qa));
        let code = build.batch(|build| {
            build.signaled(1).atomic_write(key, far.addr() + 8, b"together".as_ptr().cast());
            build.signaled(2).flush(key, far.addr() + 8, 4, 1, IBV_FLUSH_RANGE);
        });
        assert_eq!(code, 0);
        a.expect(IBV_WC_SUCCESS);
        a.expect(IBV_WC_SUCCESS);
        let Some(packets) = file.read(link) else { return };
        let of = |code| packets.iter().find(|it| it.opcode == code).expect("it was captured");
        assert_eq!(of(0x1d).packet().payload, b"together");
        let Operation::Flush { placement, reth, .. } = of(0x1c).operation() else { panic!() };
        assert_eq!((placement, reth.address, reth.length), (1, far.addr() + 8, 4));
    }

    /// A target that captures alone sees what comes in and what it answers. Loopback has no target
    /// of its own.
    fn a_target_captures_alone(link: Link) {
        if link == Link::Loopback {
            return;
        }
        let file = File::new("target", link);
        let (a, _) = ends(link, Options::default());
        let (b, _) = ends(link, file.options);
        let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
        connect_patiently(qa, qb);
        let both = MemoryPair::of(Pair { a, b, qa, qb }, 4096);
        each_operation(&both);
        if let Some(packets) = file.read(link) {
            check_each_operation(&packets, &both);
        }
    }
}

/// How long programs may run.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Programs that share a file write everything to it, and nothing twice.
#[test]
fn programs_share_a_file() {
    let pingpong = program("ibv_rc_pingpong", "ibverbs-utils");
    let pingpong = pingpong.to_str().expect("a plain path");
    let scratch = Scratch::new("capture-programs");
    let file = scratch.path().join("programs.pcapng");
    // Free a moment ago; the kernel gives out others before it comes back to it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    drop(listener);
    let run = format!("{pingpong} -g 0 -n 5 -s 3000 -p {port}");
    let client = format!("{run} localhost");
    // The client tries until the server listens.
    let line = format!("{run} & until {client} 2>/dev/null; do :; done; wait");
    let [transom, ..] = command();
    let mut command = Command::new(transom);
    command.args(["run", "--capture"]).arg(&file).args(["--", "sh", "-c", &line]);
    Running::start(&mut command).success(TIMEOUT).unwrap_or_else(|problem| panic!("{problem}"));
    let Some(packets) = read(&file) else { return };
    let count = |opcode| packets.iter().filter(|packet| packet.opcode == opcode).count();
    assert_eq!([0, 1, 2].map(count), [10; 3]);
    assert_eq!(count(0x11), 10);
    assert!(packets.iter().all(|packet| packet.interface == "local"));
}

/// A file that cannot be written is told at once, and so is one that is gone when a program wants it.
#[test]
fn a_file_that_cannot_be_written_is_told() {
    let [transom, ..] = command();
    let output = Command::new(transom)
        .args(["run", "--capture", "/nowhere/file.pcapng", "--", "true"])
        .output()
        .expect("a program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the capture to /nowhere/file.pcapng"), "{said}");
    let options = Options {
        capture: Some(std::path::Path::new("/nowhere/file.pcapng")),
        ..Options::default()
    };
    let error = transom_host::Adapter::open(options).expect_err("there is no such file");
    assert!(error.to_string().contains("opening the capture file /nowhere/file.pcapng"), "{error}");
}

/// What is sent while the port is down does not leave, and is not captured.
#[test]
fn nothing_is_captured_while_the_port_is_down() {
    let mut file = File::new("down", Link::Wire);
    let faults: Faults = "port-down=86400s".parse().expect("a fault");
    file.options.faults = Some(Box::leak(Box::new(faults)));
    let (a, b) = ends(Link::Wire, file.options);
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    connect(qa, qb);
    let both = MemoryPair::of(Pair { a, b, qa, qb }, 64);
    let wc = both.op(IBV_WR_RDMA_WRITE, both.far.addr(), both.key(), 8);
    assert_eq!(wc.status, IBV_WC_RETRY_EXC_ERR);
    let Some(packets) = file.read(Link::Wire) else { return };
    assert!(packets.is_empty(), "{packets:?}");
}

/// An acknowledgement that waits for something to go out with leaves before the answer to a READ that
/// came behind its message.
/// Rules: ACK-05
#[test]
fn answers_leave_in_the_order_of_their_requests() {
    let link = Link::Wire;
    let file = File::new("delayed", link);
    let both = MemoryPair::of(file.pair(link, IBV_QPT_RC), 64);
    let pair = &both.pair;
    for round in 0..100 {
        recv(pair.qb, round, &mut []);
        post(pair.qa, &mut wr(IBV_WR_SEND));
        both.post_op(pair.qa, IBV_WR_RDMA_READ, both.far.addr(), both.key(), 8);
        pair.b.expect(IBV_WC_SUCCESS);
        for _ in 0..2 {
            pair.a.expect(IBV_WC_SUCCESS);
        }
    }
    let Some(packets) = file.read(link) else { return };
    let answers = packets.iter().filter(|packet| packet.operation().is_for_requester());
    let numbers: Vec<u32> = answers.map(|packet| packet.psn).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}
