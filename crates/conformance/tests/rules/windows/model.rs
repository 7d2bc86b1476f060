//! The two state machines of rules B.0 as a model, and the device beside it: random sequences of
//! binds, invalidations, accesses, deallocations, deregistrations and resets, compared step by step.
//!
//! Two protection domains, three queue pairs, four windows of both types, two regions. After each
//! step the completion, the states of both queue pairs, the key's validity and what holds a region
//! must be what the model says. `TRANSOM_LONG=1` runs 20,000 sequences, otherwise 300.

use proptest::prelude::*;
use transom_abi::*;
use transom_conformance::harness::*;
use transom_ibverbs::{ibv_dealloc_pd, ibv_destroy_cq, ibv_destroy_qp};

/// Bytes of each region.
const SIZE: u64 = 4096;

#[derive(Clone, Debug)]
enum Step {
    Bind {
        window: usize,
        qp: usize,
        region: usize,
        at: i64,
        length: u64,
        access: u32,
        zero: bool,
        byte: u8,
    },
    Unbind {
        window: usize,
        qp: usize,
    },
    Invalidate {
        window: usize,
        qp: usize,
        wrong: bool,
        remote: bool,
    },
    Access {
        window: usize,
        qp: usize,
        op: usize,
        at: i64,
        length: u32,
        stale: bool,
    },
    Deallocate {
        window: usize,
    },
    Deregister {
        region: usize,
    },
    Reset {
        qp: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (window, qp, region) = (0..4_usize, 0..3_usize, 0..2_usize);
    let edge = || prop_oneof![Just(-1_i64), Just(0), Just(8), Just(4), 0..4096_i64, Just(4095)];
    let length =
        prop_oneof![Just(0_u64), Just(1), Just(64), Just(SIZE), Just(u64::MAX), 1..5000_u64];
    let bind = (
        window.clone(),
        qp.clone(),
        region.clone(),
        edge(),
        length,
        0..8_u32,
        any::<bool>(),
        any::<u8>(),
    )
        .prop_map(|(window, qp, region, at, length, access, zero, byte)| Step::Bind {
            window,
            qp,
            region,
            at,
            length,
            access: access << 1,
            zero,
            byte,
        });
    // Most binds of a random walk would be refused; these are good ones on their own domain.
    let good = (window.clone(), 0..4096_i64, any::<u8>(), any::<bool>()).prop_map(
        |(window, at, byte, zero)| {
            let length = (SIZE - at as u64).min(512);
            let qp = if window == 3 { 2 } else { window % 2 };
            Step::Bind {
                window,
                qp,
                region: usize::from(window == 3),
                at,
                length,
                access: REMOTE,
                zero: zero && window % 2 == 1,
                byte,
            }
        },
    );
    let access = (
        window.clone(),
        qp.clone(),
        0..3_usize,
        edge(),
        prop_oneof![Just(0_u32), Just(8), Just(64), 1..600_u32],
        prop::bool::weighted(0.1),
    )
        .prop_map(|(window, qp, op, at, length, stale)| Step::Access {
            window,
            qp,
            op,
            at,
            length,
            stale,
        });
    let invalidate =
        (window.clone(), qp.clone(), prop::bool::weighted(0.2), prop::bool::weighted(0.3))
            .prop_map(|(window, qp, wrong, remote)| Step::Invalidate { window, qp, wrong, remote });
    let step = prop_oneof![
        3 => bind,
        6 => good,
        8 => access,
        4 => invalidate,
        1 => (window.clone(), qp.clone()).prop_map(|(window, qp)| Step::Unbind { window, qp }),
        1 => window.prop_map(|window| Step::Deallocate { window }),
        2 => region.prop_map(|region| Step::Deregister { region }),
        1 => qp.prop_map(|qp| Step::Reset { qp }),
    ];
    prop::collection::vec(step, 1..40)
}

/// What a window is bound to, in the model.
#[derive(Clone, Copy, Debug)]
struct Binding {
    region: usize,
    /// Offset in the region.
    start: u64,
    length: u64,
    access: u32,
    zero: bool,
    owner: usize,
}

struct Window {
    mw: *mut ibv_mw,
    type1: bool,
    /// Index of its domain.
    domain: usize,
    key: u32,
    binding: Option<Binding>,
}

struct Region {
    mr: *mut ibv_mr,
    buffer: Buffer,
    domain: usize,
}

struct Fixture {
    /// Windows, regions and target queue pairs live here.
    owner: End,
    guest: End,
    domains: [*mut ibv_pd; 2],
    /// Target, origin, index of the target's domain.
    qps: Vec<(*mut ibv_qp, *mut ibv_qp, usize)>,
    windows: Vec<Window>,
    regions: Vec<Region>,
    near: Buffer,
    near_mr: *mut ibv_mr,
}

impl Fixture {
    fn new() -> Self {
        let (guest, owner) = ends(Link::Loopback, transom_host::Options::default());
        let domains = [owner.pd, owner.another_pd()];
        let qps = [0, 0, 1].map(|domain| {
            let of_domain = owner.with_pd(domains[domain]);
            let (target, origin) = (of_domain.qp(IBV_QPT_RC), guest.qp(IBV_QPT_RC));
            connect_fast(target, origin);
            (target, origin, domain)
        });
        let windows = [(true, 0), (false, 0), (true, 0), (false, 1)].map(|(type1, domain)| {
            let mw = alloc_mw(domains[domain], kind(type1)).unwrap();
            Window { mw, type1, domain, key: rkey(mw), binding: None }
        });
        let regions = [0, 1].map(|domain| {
            let buffer = Buffer::filled(SIZE as usize, domain as u8);
            Region { mr: reg(domains[domain], &buffer, ALL), buffer, domain }
        });
        let near = Buffer::new(SIZE as usize);
        let near_mr = guest.reg(&near, ALL);
        Self {
            owner,
            guest,
            domains,
            qps: qps.into(),
            windows: windows.into(),
            regions: regions.into(),
            near,
            near_mr,
        }
    }

    fn holds(&self, region: usize) -> usize {
        self.windows.iter().filter(|w| w.binding.is_some_and(|b| b.region == region)).count()
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Bind { window, qp, region, at, length, access, zero, byte } => {
                self.bind(window, qp, region, at, length, access, zero, byte);
            }
            Step::Unbind { window, qp } => self.unbind(window, qp),
            Step::Invalidate { window, qp, wrong, remote } => {
                self.invalidate(window, qp, wrong, remote);
            }
            Step::Access { window, qp, op, at, length, stale } => {
                self.access(window, qp, op, at, length, stale);
            }
            Step::Deallocate { window } => {
                let window = &mut self.windows[window];
                assert_eq!(dealloc_mw(window.mw), 0);
                window.mw = alloc_mw(self.domains[window.domain], kind(window.type1)).unwrap();
                window.key = rkey(window.mw);
                window.binding = None;
            }
            Step::Deregister { region } => {
                let held = self.holds(region) > 0;
                let region = &mut self.regions[region];
                let expected = if held { libc::EBUSY } else { 0 };
                assert_eq!(dereg(region.mr), expected);
                if !held {
                    region.mr = reg(self.domains[region.domain], &region.buffer, ALL);
                }
            }
            Step::Reset { qp } => self.reconnect(qp),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a bind")]
    fn bind(
        &mut self,
        window: usize,
        qp: usize,
        region: usize,
        at: i64,
        length: u64,
        access: u32,
        zero: bool,
        byte: u8,
    ) {
        let (target, _, qp_domain) = self.qps[qp];
        let r = &self.regions[region];
        let w = &self.windows[window];
        let flags = if zero { access | IBV_ACCESS_ZERO_BASED } else { access };
        let addr = r.buffer.addr().wrapping_add_signed(at);
        let range = Range { mr: r.mr, addr, length, access: flags };
        let inside = at >= 0 && u128::from(length) + at as u128 <= u128::from(SIZE);
        let domains_agree = qp_domain == w.domain && r.domain == w.domain;
        if w.type1 {
            if length == 0 {
                return;
            }
            let refused = if r.domain != w.domain {
                libc::EPERM
            } else if zero {
                libc::EINVAL
            } else {
                0
            };
            assert_eq!(bind1(target, w.mw, 5, IBV_SEND_SIGNALED, range), refused);
            if refused != 0 {
                assert_eq!(rkey(w.mw), w.key);
                return;
            }
        } else {
            post(target, &mut bind2_wr(w.mw, u32::from(byte), range));
        }
        let free = w.type1 || w.binding.is_none();
        let good = free && inside && domains_agree && length > 0;
        let start = at as u64;
        let binding = Binding { region, start, length, access, zero, owner: qp };
        self.settle_local(qp, good, IBV_WC_BIND_MW);
        let w = &mut self.windows[window];
        if good {
            w.key = rkey(w.mw);
            w.binding = Some(binding);
        } else {
            // A failed bind leaves the old key in force; the program restores it (rule KEY-08).
            // SAFETY: a live window.
            unsafe { (*w.mw).rkey = w.key };
        }
    }

    fn unbind(&mut self, window: usize, qp: usize) {
        let (target, _, qp_domain) = self.qps[qp];
        let w = &self.windows[window];
        if !w.type1 {
            return;
        }
        let range = Range { mr: std::ptr::null_mut(), addr: 0, length: 0, access: 0 };
        assert_eq!(bind1(target, w.mw, 6, IBV_SEND_SIGNALED, range), 0);
        let good = qp_domain == w.domain;
        self.settle_local(qp, good, IBV_WC_BIND_MW);
        let w = &mut self.windows[window];
        if good {
            w.key = rkey(w.mw);
            w.binding = None;
        } else {
            // SAFETY: a live window.
            unsafe { (*w.mw).rkey = w.key };
        }
    }

    fn invalidate(&mut self, window: usize, qp: usize, wrong: bool, remote: bool) {
        let (target, origin, _) = self.qps[qp];
        let w = &self.windows[window];
        let key = if wrong { w.key ^ 1 } else { w.key };
        let owned = w.binding.is_some_and(|binding| binding.owner == qp);
        let good = !w.type1 && !wrong && owned;
        if remote {
            recv(target, 3, &mut []);
            let mut wr = wr(IBV_WR_SEND_WITH_INV);
            wr.imm.invalidate_rkey = key;
            post(origin, &mut wr);
            let received = self.owner.wait();
            assert_eq!(received.wr_id, 3);
            let sent = self.guest.wait();
            if good {
                assert_eq!((received.status, sent.status), (IBV_WC_SUCCESS, IBV_WC_SUCCESS));
                assert_eq!(received.wc_flags, IBV_WC_WITH_INV);
                // SAFETY: the flag says which variant it is.
                assert_eq!(unsafe { received.imm.invalidated_rkey }, key);
            } else {
                // Class J: the target falls silent.
                assert_eq!(received.status, IBV_WC_MW_BIND_ERR);
                assert_eq!(sent.status, IBV_WC_RETRY_EXC_ERR);
                assert_eq!((state(target), state(origin)), (IBV_QPS_ERR, IBV_QPS_ERR));
                self.reconnect(qp);
            }
        } else {
            post(target, &mut local_inv_wr(key));
            self.settle_local(qp, good, IBV_WC_LOCAL_INV);
        }
        if good {
            self.windows[window].binding = None;
        }
    }

    /// Takes the completion of a local operation and checks the state it leaves.
    fn settle_local(&mut self, qp: usize, good: bool, opcode: ibv_wc_opcode) {
        let target = self.qps[qp].0;
        let wc = self.owner.wait();
        let expected = if good { IBV_WC_SUCCESS } else { IBV_WC_MW_BIND_ERR };
        assert_eq!((wc.status, wc.opcode), (expected, opcode));
        assert_eq!(state(target), if good { IBV_QPS_RTS } else { IBV_QPS_ERR });
        if !good {
            self.reconnect(qp);
        }
    }

    fn access(&mut self, window: usize, qp: usize, op: usize, at: i64, length: u32, stale: bool) {
        let (target, origin, qp_domain) = self.qps[qp];
        let w = &self.windows[window];
        let (opcode, right) = [
            (IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE),
            (IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ),
            (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC),
        ][op];
        let atomic = op == 2;
        let length = if atomic { 8 } else { length };
        let base = w.binding.map_or(0, |b| match b.zero {
            true => 0,
            false => self.regions[b.region].buffer.addr() + b.start,
        });
        let address = base.wrapping_add_signed(at);
        let key = if stale { w.key ^ 0x80 } else { w.key };
        let expected = match w.binding {
            _ if length == 0 => IBV_WC_SUCCESS,
            _ if atomic && !address.is_multiple_of(8) => IBV_WC_REM_INV_REQ_ERR,
            Some(b)
                if !stale
                    && qp_domain == w.domain
                    && (w.type1 || b.owner == qp)
                    && b.access & right != 0
                    && at >= 0
                    && at as u64 + u64::from(length) <= b.length =>
            {
                let place = self.regions[b.region].buffer.addr() + b.start + at as u64;
                if atomic && !place.is_multiple_of(8) {
                    IBV_WC_REM_INV_REQ_ERR
                } else {
                    IBV_WC_SUCCESS
                }
            }
            _ => IBV_WC_REM_ACCESS_ERR,
        };
        let before: Vec<Vec<u8>> =
            self.regions.iter().map(|r| r.buffer.read(0, SIZE as usize)).collect();
        let data: Vec<u8> = (0..length).map(|i| (i as u8) ^ (at as u8) ^ 0x5a).collect();
        self.near.write(0, &data);
        let mut sges = [sge(self.near.addr(), length, self.near_mr)];
        let mut wr = match atomic {
            true => atomic_wr(opcode, &mut sges, address, key, 3, 0),
            false => rdma_wr(opcode, &mut sges, address, key),
        };
        post(origin, &mut wr);
        let wc = self.guest.wait();
        assert_eq!(wc.status, expected, "{opcode} at {at} of {length}");
        let mut after = before.clone();
        if expected == IBV_WC_SUCCESS && length > 0 {
            let b = w.binding.expect("only a bound window grants");
            let start = b.start as usize + at as usize;
            let place = start..start + length as usize;
            match op {
                0 => after[b.region][place].copy_from_slice(&data),
                1 => assert_eq!(self.near.read(0, length as usize), before[b.region][place]),
                _ => {
                    let old =
                        u64::from_ne_bytes(before[b.region][place.clone()].try_into().unwrap());
                    after[b.region][place].copy_from_slice(&old.wrapping_add(3).to_ne_bytes());
                    assert_eq!(self.near.word(0), old);
                }
            }
        }
        for (region, expected) in self.regions.iter().zip(&after) {
            assert!(&region.buffer.read(0, SIZE as usize) == expected, "memory changed elsewhere");
        }
        let expected_state = if expected == IBV_WC_SUCCESS { IBV_QPS_RTS } else { IBV_QPS_ERR };
        assert_eq!((state(target), state(origin)), (expected_state, expected_state));
        if expected_state == IBV_QPS_ERR {
            self.reconnect(qp);
        }
    }

    /// Through RESET back to RTS: windows keep their bindings (rule T2-08).
    fn reconnect(&mut self, qp: usize) {
        let (target, origin, _) = self.qps[qp];
        for end in [target, origin] {
            assert_eq!(set_state(end, IBV_QPS_RESET), 0);
        }
        while self.owner.has_event() {
            self.owner.event();
        }
        connect_fast(target, origin);
        self.owner.expect_nothing();
        self.guest.expect_nothing();
    }
}

/// Everything goes, in an order that the rules allow whatever is still bound.
impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: all of it is live and ours, and nothing is used afterwards.
        unsafe {
            for (target, origin, _) in &self.qps {
                assert_eq!((ibv_destroy_qp(*target), ibv_destroy_qp(*origin)), (0, 0));
            }
            for window in &self.windows {
                assert_eq!(dealloc_mw(window.mw), 0);
            }
            for region in &self.regions {
                assert_eq!(dereg(region.mr), 0);
            }
            assert_eq!(dereg(self.near_mr), 0);
            for end in [&self.owner, &self.guest] {
                assert_eq!(ibv_destroy_cq(end.cq), 0);
            }
            for pd in [self.domains[0], self.domains[1], self.guest.pd] {
                assert_eq!(ibv_dealloc_pd(pd), 0);
            }
        }
        self.owner.close();
        self.guest.close();
    }
}

fn kind(type1: bool) -> ibv_mw_type {
    if type1 { IBV_MW_TYPE_1 } else { IBV_MW_TYPE_2 }
}

/// Connects with the shortest timeout, for requests that are never answered.
fn connect_fast(a: *mut ibv_qp, b: *mut ibv_qp) {
    for (qp, peer) in [(a, b), (b, a)] {
        bring_up(qp, &ibv_qp_attr { timeout: 1, retry_cnt: 0, ..usual_attr(peer) });
    }
}

fn cases() -> u32 {
    if std::env::var_os("TRANSOM_LONG").is_some() { 20_000 } else { 300 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// The device and the model agree on every step of any sequence.
    /// Rules: T1-35, T1-36, T2-08, T2-16, DR-05, DR-06, DR-10, KEY-08
    #[test]
    fn device_agrees_with_the_model(steps in steps()) {
        let mut fixture = Fixture::new();
        for step in &steps {
            fixture.run(step);
        }
    }
}
