//! The two kinds of type 2 windows, and what becomes of a bound one when its queue pair changes
//! (rules D.1).

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_device::Access;
use transom_device::protection::{
    Attempt, Key, Kind, Operation, Place, Reason, Snapshot, State, decide,
};
use transom_host::Options;
use transom_ibverbs::ibv_destroy_qp;

const KIND_2A: Options = Options {
    number: 0,
    others: 0,
    port_is_down: false,
    interface: None,
    windows_2a: true,
    copying: transom_host::Copying::Best,
    wire_only: false,
    congestion: false,
    faults: None,
    run: None,
    watcher: None,
    tracer: None,
    explainer: None,
    capture: None,
    connect_timeout: None,
    memory: transom_host::Memory::Private,
};

/// Two ends on devices with windows of kind 2A.
fn scene_2a(link: Link) -> MemoryPair {
    let (a, b) = ends(link, KIND_2A);
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    connect(qa, qb);
    let (near, far) = (Buffer::new(8192), Buffer::filled(8192, 7));
    let (ma, mb) = (a.reg(&near, ALL), b.reg(&far, ALL));
    MemoryPair { pair: Pair { a, b, qa, qb }, near, ma, far, mb }
}

/// Which of the three window capabilities the device reports: type 1, 2A, 2B.
fn capabilities(end: &End) -> [bool; 3] {
    let flags = device_attr(end.context).device_cap_flags;
    [IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2A, IBV_DEVICE_MEM_WINDOW_TYPE_2B]
        .map(|bit| flags & bit != 0)
}

/// Destroys a queue pair; zero or an errno.
fn destroy(qp: *mut ibv_qp) -> i32 {
    // SAFETY: a live queue pair.
    unsafe { ibv_destroy_qp(qp) }
}

/// Posts the request on a queue pair of the target and answers how it completes there.
fn at_target(both: &MemoryPair, qp: *mut ibv_qp, wr: &mut ibv_send_wr) -> ibv_wc_status {
    post(qp, wr);
    both.pair.b.wait().status
}

on_each_link! {
    /// A window of kind 2A serves the queue pair that bound it and no other.
    /// Rules: T2-01
    fn kind_2a_serves_its_queue_pair(link: Link) {
        let both = scene_2a(link);
        let addr = both.far.addr();
        let (_, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
        for op in Op::ALL {
            both.allowed_on(both.qps(), op, addr, 8, key);
        }
        both.all_refused(addr, key);
        both.allowed_on(both.qps(), Op::Read, addr, 8, key);
    }

    /// A window of kind 2B serves the queue pair that bound it, and no other of its protection
    /// domain or of another.
    /// Rules: T2-02
    fn kind_2b_serves_its_queue_pair(link: Link) {
        let both = MemoryPair::pages(link);
        let addr = both.far.addr();
        let (_, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
        both.all_refused(addr, key);
        let b = &both.pair.b;
        let elsewhere = b.with_pd(b.another_pd());
        let qps = (both.pair.a.qp(IBV_QPT_RC), elsewhere.qp(IBV_QPT_RC));
        connect(qps.0, qps.1);
        both.refused_on(qps, Op::Read, addr, 8, key);
        for op in Op::ALL {
            both.allowed_on(both.qps(), op, addr, 8, key);
        }
    }

    /// A queue pair can be destroyed while a 2B window is bound through it; afterwards nothing
    /// reaches, invalidates or rebinds the window, which holds its region until it is freed.
    /// Rules: T2-05, T2-07
    fn a_2b_window_outlives_its_queue_pair(link: Link) {
        let both = MemoryPair::pages(link);
        let (range, addr) = (both.range(0, 4096, REMOTE), both.far.addr());
        let (mw, key) = both.bound(IBV_MW_TYPE_2, range);
        both.allowed_on(both.qps(), Op::Write, addr, 64, key);
        assert_eq!(destroy(both.pair.qb), 0);
        for _ in 0..2 {
            // A new queue pair may come; it is not the owner.
            both.refused(Op::Read, addr, 8, key);
        }
        let (_, qb) = both.more();
        let status = at_target(&both, qb, &mut bind2_wr(mw, key.wrapping_add(1), range));
        assert_eq!((status, state(qb)), (IBV_WC_MW_BIND_ERR, IBV_QPS_ERR));
        let (_, qb) = both.more();
        let status = at_target(&both, qb, &mut local_inv_wr(key));
        assert_eq!((status, state(qb)), (IBV_WC_MW_BIND_ERR, IBV_QPS_ERR));
        assert_eq!(dereg(both.mb), libc::EBUSY);
        assert_eq!(dealloc_mw(mw), 0);
        assert_eq!(dereg(both.mb), 0);
    }

    /// A queue pair with a 2A window bound through it cannot be destroyed, and stays as it is; it
    /// can once the window is invalidated or freed.
    /// Rules: T2-06
    fn a_2a_window_holds_its_queue_pair(link: Link) {
        let both = scene_2a(link);
        let (range, addr) = (both.range(0, 4096, REMOTE), both.far.addr());
        let (mw, key) = both.bound(IBV_MW_TYPE_2, range);
        assert_eq!(destroy(both.pair.qb), libc::EBUSY);
        assert_eq!(state(both.pair.qb), IBV_QPS_RTS);
        for op in Op::ALL {
            both.allowed_on(both.qps(), op, addr, 8, key);
        }
        let status = at_target(&both, both.pair.qb, &mut local_inv_wr(key));
        assert_eq!(status, IBV_WC_SUCCESS);
        assert_eq!(destroy(both.pair.qb), 0);

        let (_, qb) = both.more();
        bind(&both.pair.b, qb, mw, range);
        let second = both.pair.b.mw(IBV_MW_TYPE_2);
        bind(&both.pair.b, qb, second, range);
        assert_eq!(destroy(qb), libc::EBUSY);
        assert_eq!(dealloc_mw(mw), 0);
        assert_eq!(destroy(qb), libc::EBUSY);
        assert_eq!(dealloc_mw(second), 0);
        assert_eq!(destroy(qb), 0);
    }

    /// A window of type 1 or one bound through another queue pair holds none, on a 2A device either.
    /// Rules: T2-06
    fn other_windows_hold_no_queue_pair(link: Link) {
        let both = scene_2a(link);
        let range = both.range(0, 4096, REMOTE);
        both.bound(IBV_MW_TYPE_2, range);
        let (_, qb) = both.more();
        let mw = both.pair.b.mw(IBV_MW_TYPE_1);
        bind(&both.pair.b, qb, mw, range);
        assert_eq!(destroy(qb), 0);
        assert_eq!(destroy(both.pair.qb), libc::EBUSY);
    }

    /// RESET leaves a window bound: nobody reaches it meanwhile, and its peer does again once the
    /// queue pair is connected.
    /// Rules: T2-08
    fn a_window_outlives_a_reset(link: Link) {
        let both = MemoryPair::pages(link);
        let (range, addr, qps) = (both.range(0, 4096, REMOTE), both.far.addr(), both.qps());
        let (mw, key) = both.bound(IBV_MW_TYPE_2, range);
        assert_eq!(set_state(qps.1, IBV_QPS_RESET), 0);
        both.refused(Op::Read, addr, 8, key);
        give_up_soon(qps.0);
        assert_eq!(both.attempt(qps, Op::Write, addr, 8, key), IBV_WC_RETRY_EXC_ERR);
        assert_eq!(both.far.read(0, 8), Buffer::filled(8, 7).read(0, 8));
        assert_eq!(dereg(both.mb), libc::EBUSY);
        both.reconnect(qps);
        for op in Op::ALL {
            both.allowed_on(qps, op, addr, 8, key);
        }
        // It is still the owner.
        assert_eq!(at_target(&both, qps.1, &mut local_inv_wr(key)), IBV_WC_SUCCESS);
        bind(&both.pair.b, qps.1, mw, range);
    }

    /// ERR leaves a window bound; a peer's requests get no answer.
    /// Rules: T2-09
    fn a_window_outlives_an_error(link: Link) {
        let both = MemoryPair::pages(link);
        let (range, addr, qps) = (both.range(0, 4096, REMOTE), both.far.addr(), both.qps());
        let (_, key) = both.bound(IBV_MW_TYPE_2, range);
        assert_eq!(set_state(qps.1, IBV_QPS_ERR), 0);
        let before = both.far.read(0, 4096);
        give_up_soon(qps.0);
        assert_eq!(both.attempt(qps, Op::Write, addr, 8, key), IBV_WC_RETRY_EXC_ERR);
        assert_eq!(both.far.read(0, 4096), before);
        assert_eq!(dereg(both.mb), libc::EBUSY);
        both.reconnect(qps);
        both.allowed_on(qps, Op::Write, addr, 8, key);
    }
}

/// There is one type 2 for programs; the device says which kind it makes of it.
/// Rules: T2-03
#[test]
fn the_device_decides_the_kind() {
    for (options, expected) in
        [(Options::default(), [true, false, true]), (KIND_2A, [true, true, false])]
    {
        let end = End::new(options);
        assert_eq!(capabilities(&end), expected);
        let mw = end.mw(IBV_MW_TYPE_2);
        // SAFETY: a live window.
        assert_eq!(unsafe { (*mw).type_ }, IBV_MW_TYPE_2);
        assert_eq!(dealloc_mw(mw), 0);
    }
}

/// The kinds differ in that 2B also asks for the protection domain. No sequence of verbs shows it:
/// a number that a bound window names is not given to another queue pair (rule T2-04).
/// Rules: T2-01, T2-02
#[test]
fn only_2b_asks_for_the_protection_domain() {
    let attempt = |qp, pd| Attempt {
        operation: Operation::Read,
        key: Key(0x0000_0105),
        address: 0x1000,
        length: 8,
        qp,
        pd,
    };
    let window = |kind| Snapshot {
        byte: 5,
        state: State::Valid,
        kind,
        access: Access::REMOTE_READ,
        base: 0x1000,
        length: 64,
        place: 0x7000,
        pd: 3,
        qp: 9,
        ..Snapshot::VACANT
    };
    for kind in [Kind::Window2A, Kind::Window2B] {
        assert_eq!(decide(&window(kind), &attempt(9, 3)), Ok(Place::Memory(0x7000)));
        assert_eq!(decide(&window(kind), &attempt(8, 3)), Err(Reason::OtherQp));
    }
    assert_eq!(decide(&window(Kind::Window2A), &attempt(9, 4)), Ok(Place::Memory(0x7000)));
    assert_eq!(decide(&window(Kind::Window2B), &attempt(9, 4)), Err(Reason::OtherPd));
}

/// The number of a destroyed queue pair does not come back while a window bound through it is
/// bound; then it does.
/// Rules: T2-04
#[test]
fn a_queue_pair_number_is_kept_while_a_window_names_it() {
    let end = End::new(Options::default());
    let other = end.with_pd(end.another_pd());
    let far = Buffer::new(4096);
    let mr = end.reg(&far, ALL);
    let qp = end.qp(IBV_QPT_RC);
    bring_up(qp, &usual_attr(qp));
    let mw = end.mw(IBV_MW_TYPE_2);
    bind(&end, qp, mw, Range { mr, addr: far.addr(), length: 64, access: REMOTE });
    // SAFETY: a live queue pair.
    let number = unsafe { (*qp).qp_num };
    assert_eq!(destroy(qp), 0);

    // As many as there are numbers.
    let comes_back = || {
        (0..=u16::MAX).any(|_| {
            let mut init = other.init(IBV_QPT_RC);
            init.cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, ..ibv_qp_cap::default() };
            let qp = other.qp_with(&mut init);
            // SAFETY: a live queue pair.
            let found = unsafe { (*qp).qp_num } == number;
            assert_eq!(destroy(qp), 0);
            found
        })
    };
    assert!(!comes_back());
    assert_eq!(dealloc_mw(mw), 0);
    assert!(comes_back());
}
