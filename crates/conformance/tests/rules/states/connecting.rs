//! What a connection is refused for at once, rather than look like loss: a peer that the system does
//! not let this process reach, and an address that nothing can be sent to.

use std::fs::File;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::processes::*;
use transom_conformance::queues::{arm, channel, cq_event, take_to, try_cq};
use transom_conformance::{on_each_way, path_of};
use transom_ibverbs::*;
use transom_system::addresses::gid;

/// A hundred times as long as a process takes to be woken.
const SOME_TIME: Duration = Duration::from_millis(100);

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("hidden", hidden)]);
}

/// Opens a device, hides from others, and shows itself again when it is told to.
fn hidden(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    for dumpable in [0, 1] {
        // SAFETY: this prctl takes plain numbers.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) }, 0);
        channel.tell(&[number(qp)]);
        let [] = channel.hear();
    }
}

/// Takes from this thread the right of root to look into whatever process, or gives it back.
fn look_into_everybody(may: bool) {
    const VERSION: u32 = 0x2008_0522;
    const SYS_PTRACE: u32 = 19;
    let header = [VERSION, 0];
    // Effective, permitted, inheritable; then the same for the capabilities beyond 32.
    let mut sets = [0_u32; 6];
    // SAFETY: a header and sets of this call's own, for this thread.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        let right = sets[1] & 1 << SYS_PTRACE;
        sets[0] = if may { sets[0] | right } else { sets[0] & !right };
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
}

/// Leaves this process no descriptor; they are there again once the files are dropped.
fn use_up_descriptors() -> Vec<File> {
    let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
    // SAFETY: a limit of this call's own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

on_each_way! {
    /// A peer that has made itself undumpable is there, but out of reach: the connection says so, and
    /// nothing has changed.
    /// Rules: ST-28
    fn a_peer_that_hides_refuses_the_connection() {
        let end = open();
        let mut child = Child::start(path_of!("hidden"));
        let qp = end.qp(IBV_QPT_RC);
        take_to(&end, qp, IBV_QPS_INIT);
        for wanted in [libc::EACCES, 0] {
            let [peer] = child.hear();
            look_into_everybody(wanted == 0);
            assert_eq!(modify(qp, &attr_to(peer), IBV_QPS_RTR), wanted);
            assert_eq!(state(qp), if wanted == 0 { IBV_QPS_RTR } else { IBV_QPS_INIT });
            child.tell(&[]);
        }
        child.finish();
    }

    /// So does a process that has no descriptor left for its peer.
    /// Rules: ST-28
    fn a_process_without_descriptors_cannot_connect() {
        let (a, b) = ends(Link::Local, Default::default());
        let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
        take_to(&a, qa, IBV_QPS_INIT);
        let files = use_up_descriptors();
        assert!(files.len() > 100);
        assert_eq!(modify(qa, &usual_attr(qb), IBV_QPS_RTR), libc::EMFILE);
        assert_eq!((errno(), state(qa)), (libc::EMFILE, IBV_QPS_INIT));
        drop(files);
        assert_eq!(modify(qa, &usual_attr(qb), IBV_QPS_RTR), 0);
    }

    /// A process may have no descriptor left for the sender of a datagram. It has the datagram when it
    /// has one again, though it sleeps and nothing else comes.
    /// Rules: UD-01
    fn a_sender_out_of_reach_is_heard_once_it_is_in_reach() {
        let (a, b) = ends(Link::Local, Default::default());
        let bell = channel(b.context);
        let mut init = b.init(IBV_QPT_UD);
        init.recv_cq = try_cq(b.context, 16, bell).expect("a queue");
        let (qa, qb) = (ud_qp(&a), b.qp_with(&mut init));
        bring_up_ud(qb, QKEY);
        // The sender reaches the receiver already, but not, or not always, the other way round.
        bring_up(a.qp(IBV_QPT_UC), &usual_attr(b.qp(IBV_QPT_UC)));
        let far = Buffer::new(64);
        let mb = b.reg(&far, ALL);
        recv(qb, 7, &mut [sge(far.addr(), 64, mb)]);
        assert_eq!(arm(init.recv_cq, false), 0);
        let to = ah(a.pd, &here());
        let files = use_up_descriptors();
        post(qa, &mut addressed(wr(IBV_WR_SEND), to, transom_conformance::queues::number(qb), QKEY));
        // Long enough for the receiver to try, and to go to sleep.
        let start = Instant::now();
        until("some time has passed", || (start.elapsed() > SOME_TIME).then_some(()));
        drop(files);
        assert_eq!(cq_event(bell), init.recv_cq);
        assert_eq!(wait(init.recv_cq).wr_id, 7);
    }

    /// Nor can one open the port, if the connection goes over the wire.
    /// Rules: ST-28
    fn a_process_without_descriptors_cannot_open_the_port() {
        take_turn(Link::Wire);
        let options = transom_host::Options { wire_only: true, ..Default::default() };
        let end = End::new(options);
        let qp = end.qp(IBV_QPT_RC);
        take_to(&end, qp, IBV_QPS_INIT);
        let files = use_up_descriptors();
        assert_eq!(modify(qp, &usual_attr(qp), IBV_QPS_RTR), libc::EMFILE);
        assert_eq!((errno(), state(qp)), (libc::EMFILE, IBV_QPS_INIT));
        drop(files);
    }
}

/// What becomes of a connection to an address, and of an address handle.
fn outcome(end: &End, kind: ibv_qp_type, address: &str) -> (i32, i32) {
    let address: IpAddr = address.parse().expect("an address");
    let qp = end.qp(kind);
    take_to(end, qp, IBV_QPS_INIT);
    let attr = ibv_qp_attr { ah_attr: to_gid(gid(address)), ..usual_attr(qp) };
    let connected = modify(qp, &attr, IBV_QPS_RTR);
    assert_eq!(state(qp), if connected == 0 { IBV_QPS_RTR } else { IBV_QPS_INIT });
    assert!(connected == 0 || errno() == connected);
    // SAFETY: a live domain and an address of this call's own.
    let ah = unsafe { ibv_create_ah(end.pd, &mut { attr.ah_attr }) };
    (connected, if ah.is_null() { errno() } else { 0 })
}

/// Nothing can be sent to what is the address of no host, or of all hosts; only
/// datagrams go to groups. The connection is refused, and the address handle.
/// Rules: ST-29
#[test]
fn an_address_that_nothing_can_be_sent_to_is_refused() {
    let end = End::new(Default::default());
    const NOT_ONE: (i32, i32) = (libc::EINVAL, libc::EINVAL);
    for kind in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_SEND] {
        for (address, wanted) in [
            ("::", NOT_ONE),
            ("0.0.0.0", NOT_ONE),
            ("255.255.255.255", NOT_ONE),
            ("127.255.255.255", NOT_ONE),
            ("224.0.0.9", (libc::EINVAL, 0)),
            ("ff02::9", (libc::EINVAL, 0)),
            ("127.0.0.1", (0, 0)),
            ("::1", (0, 0)),
        ] {
            assert_eq!(outcome(&end, kind, address), wanted, "{address} by {kind}");
        }
    }
}

/// Where the kernel has no way, neither has the device: with the kernel's own reason.
/// Rules: ST-29
#[test]
fn an_address_without_a_route_is_refused() {
    alone(path_of!("an_address_without_a_route_is_refused"), Way::Namespace, || {
        let end = open();
        for address in ["192.0.2.1", "2001:db8::1", "fe80::9"] {
            let wanted = (libc::ENETUNREACH, libc::ENETUNREACH);
            assert_eq!(outcome(&end, IBV_QPT_RC, address), wanted, "{address}");
        }
        assert_eq!(outcome(&end, IBV_QPT_RC, "127.0.0.1"), (0, 0));
    });
}
