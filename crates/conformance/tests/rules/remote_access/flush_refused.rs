//! FLUSH refused: whose key it must be, what grants it, and what comes of it.

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const GLOBAL: u8 = 1;
const FLUSH_GLOBAL: u32 = IBV_ACCESS_FLUSH_GLOBAL;

/// Two ends, and the target's memory.
struct Fixture {
    pair: Pair,
    far: Buffer,
}

impl Fixture {
    fn new(link: Link) -> Self {
        Self { pair: Pair::unconnected(link, IBV_QPT_RC), far: Buffer::filled(8192, 7) }
    }

    fn region(&self, access: u32) -> *mut ibv_mr {
        self.pair.b.reg(&self.far, (IBV_ACCESS_LOCAL_WRITE | access) as i32)
    }

    /// Queue pairs whose target grants these rights.
    fn connected(&self, access: u32) -> Qps {
        let qa = qp_ex(&self.pair.a, IBV_QPT_RC, IBV_QP_EX_WITH_FLUSH);
        let qb = self.pair.b.qp(IBV_QPT_RC);
        bring_up(qa, &usual_attr(qb));
        bring_up(qb, &ibv_qp_attr { qp_access_flags: access, ..usual_attr(qa) });
        (qa, qb)
    }

    /// A FLUSH on queue pairs of its own, of a range or of all; how it completes. If it fails, both
    /// ends are in error, and the target has the one event that says why.
    fn flush(&self, access: u32, range: Option<(u64, usize)>, key: u32) -> ibv_wc_status {
        let qps = self.connected(access);
        let (addr, length) = range.unwrap_or_default();
        let level = if range.is_some() { IBV_FLUSH_RANGE } else { IBV_FLUSH_MR };
        let code = Builder::of(qps.0).batch(|build| {
            build.signaled(3).flush(key, addr, length, GLOBAL, level);
        });
        assert_eq!(code, 0);
        let wc = self.pair.a.wait();
        assert_eq!(wc.wr_id, 3);
        let states = (state(qps.0), state(qps.1));
        if wc.status == IBV_WC_SUCCESS {
            assert_eq!(states, (IBV_QPS_RTS, IBV_QPS_RTS));
        } else {
            assert_eq!(states, (IBV_QPS_ERR, IBV_QPS_ERR));
            let event = match wc.status {
                IBV_WC_REM_ACCESS_ERR => IBV_EVENT_QP_ACCESS_ERR,
                _ => IBV_EVENT_QP_REQ_ERR,
            };
            assert_eq!(self.pair.b.event(), (event, qps.1.cast()));
        }
        assert!(!self.pair.b.has_event());
        self.pair.b.expect_nothing();
        end_qps(qps);
        wc.status
    }
}

on_each_link! {
    /// Its right is one of its own: those to read, write and change do not stand in for it, in the
    /// region or in the queue pair.
    /// Rules: RA-06
    fn no_other_right_stands_in_for_it(link: Link) {
        let fixture = Fixture::new(link);
        let (granting, other) = (keys(fixture.region(FLUSH_GLOBAL)).1, keys(fixture.region(REMOTE)).1);
        for range in [Some((fixture.far.addr(), 8192)), Some((fixture.far.addr() + 1, 7)), None] {
            assert_eq!(fixture.flush(FLUSH_GLOBAL, range, granting), IBV_WC_SUCCESS);
            assert_eq!(fixture.flush(REMOTE, range, granting), IBV_WC_REM_INV_REQ_ERR);
            assert_eq!(fixture.flush(FLUSH_GLOBAL | REMOTE, range, other), IBV_WC_REM_ACCESS_ERR);
        }
    }

    /// The range lies within the region, and the key is of a region that is there, in the target's
    /// domain.
    fn the_range_and_the_key_are_checked(link: Link) {
        let fixture = Fixture::new(link);
        let addr = fixture.far.addr();
        let mr = fixture.region(FLUSH_GLOBAL);
        let key = keys(mr).1;
        let foreign = reg(fixture.pair.b.another_pd(), &fixture.far, FLUSH_GLOBAL as i32);
        for (range, key) in [
            (Some((addr + 8191, 2)), key),
            (Some((addr - 1, 8)), key),
            (Some((addr, 8193)), key),
            (Some((u64::MAX, 8)), key),
            (Some((addr, 8)), key ^ 1),
            (Some((addr, 8)), 0x1234_5678),
            (None, 0x1234_5678),
            (Some((addr, 8)), keys(foreign).1),
            (None, keys(foreign).1),
        ] {
            assert_eq!(fixture.flush(FLUSH_GLOBAL, range, key), IBV_WC_REM_ACCESS_ERR);
        }
        assert_eq!(dereg(mr), 0);
        for range in [Some((addr, 8)), None] {
            assert_eq!(fixture.flush(FLUSH_GLOBAL, range, key), IBV_WC_REM_ACCESS_ERR);
        }
    }

    /// A window does not grant it, whatever its region grants.
    fn a_window_does_not_grant_it(link: Link) {
        let fixture = Fixture::new(link);
        let mr = fixture.region(REMOTE | IBV_ACCESS_MW_BIND | FLUSH_GLOBAL);
        let (_, qb) = fixture.connected(REMOTE);
        let mw = fixture.pair.b.mw(IBV_MW_TYPE_1);
        let addr = fixture.far.addr();
        let key = bind(&fixture.pair.b, qb, mw, Range { mr, addr, length: 4096, access: REMOTE });
        for range in [Some((addr, 8)), None] {
            assert_eq!(fixture.flush(FLUSH_GLOBAL, range, key), IBV_WC_REM_ACCESS_ERR);
        }
    }
}
