//! Rights in full: every set a region can have, every set a window on it can have, both types of
//! window, every operation.

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const TYPES: [ibv_mw_type; 2] = [IBV_MW_TYPE_1, IBV_MW_TYPE_2];

/// The 32 sets of a region's rights.
fn region_rights() -> impl Iterator<Item = u32> {
    (0..32).map(|bits| {
        let rights = [IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ]
            .into_iter()
            .chain([IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_MW_BIND]);
        rights.enumerate().map(|(bit, right)| if bits >> bit & 1 == 1 { right } else { 0 }).sum()
    })
}

/// The eight sets of a window's rights.
fn window_rights() -> impl Iterator<Item = u32> {
    region_rights().filter(|rights| rights & !REMOTE == 0)
}

const CHANGES: u32 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

/// Whether a region can have these rights.
fn registers(region: u32) -> bool {
    region & CHANGES == 0 || region & IBV_ACCESS_LOCAL_WRITE != 0
}

/// Whether a window with these rights can be bound to such a region.
fn binds(region: u32, window: u32) -> bool {
    region & IBV_ACCESS_MW_BIND != 0
        && (window & CHANGES == 0 || region & IBV_ACCESS_LOCAL_WRITE != 0)
}

/// Two ends, and the memory of the target registered once more with each set of rights that can be had.
fn granting_each(link: Link) -> (MemoryPair, Vec<(u32, *mut ibv_mr)>) {
    let both = MemoryPair::granting(link, 4096, ALL);
    let mut regions = Vec::new();
    for rights in region_rights() {
        let mr = try_reg(both.pair.b.pd, both.far.addr(), both.far.len(), rights as i32);
        assert_eq!(mr.is_ok(), registers(rights), "a region with rights {rights:#x}");
        regions.extend(mr.map(|mr| (rights, mr)));
    }
    assert_eq!(regions.len(), 20);
    (both, regions)
}

fn outcome(both: &MemoryPair, qps: Qps, op: Op, allowed: bool, key: u32) {
    let addr = both.far.addr() + 64;
    if allowed {
        both.allowed_on(qps, op, addr, 8, key);
    } else {
        both.refused_on(qps, op, addr, 8, key);
    }
}

on_each_link! {
    /// A bind asks the region for MW_BIND, and for LOCAL_WRITE if the window may change memory; it
    /// asks for nothing else, whatever the region's own remote rights.
    /// Rules: T1-20, T1-21, T1-22, T1-23, T1-24, T1-58
    fn a_bind_asks_for_mw_bind_and_for_local_write_if_memory_may_change(link: Link) {
        let (both, regions) = granting_each(link);
        let b = &both.pair.b;
        let mut qps = both.more();
        let (mut accepted, mut refused) = (0, 0);
        for (region, mr) in regions {
            for (window, kind) in window_rights().flat_map(|w| TYPES.map(|kind| (w, kind))) {
                let mw = b.mw(kind);
                let range = Range { mr, access: window, ..both.range(0, 4096, 0) };
                if kind == IBV_MW_TYPE_1 {
                    assert_eq!(bind1(qps.1, mw, 1, IBV_SEND_SIGNALED, range), 0);
                } else {
                    post(qps.1, &mut bind2_wr(mw, 1, range));
                }
                let status = b.wait().status;
                if binds(region, window) {
                    let what = format!("window {window:#x} on region {region:#x}, type {kind}");
                    assert_eq!(status, IBV_WC_SUCCESS, "{what}");
                    assert_eq!(dereg(mr), libc::EBUSY);
                    accepted += 1;
                } else {
                    assert_eq!(status, IBV_WC_MW_BIND_ERR, "{window:#x} on {region:#x}");
                    assert_eq!(state(qps.1), IBV_QPS_ERR);
                    end_qps(qps);
                    qps = both.more();
                    refused += 1;
                }
                assert_eq!(dealloc_mw(mw), 0);
            }
            assert_eq!(dereg(mr), 0);
        }
        // 8 regions with LOCAL_WRITE and MW_BIND take all 8, 2 with MW_BIND alone take 2; of 20.
        assert_eq!((accepted, refused), (2 * (8 * 8 + 2 * 2), 2 * (20 * 8 - 68)));
    }

    /// What a window lets through is what its own rights say, all of them and nothing else: the
    /// region's remote rights neither help nor hinder.
    /// Rules: T1-23, T1-24, T1-25, T1-58, T1-59, RA-28, RA-29, RA-30, RA-31, T2-34
    fn a_window_grants_its_own_rights_and_no_others(link: Link) {
        let (both, regions) = granting_each(link);
        for (region, mr) in regions {
            for window in window_rights().filter(|window| binds(region, *window)) {
                for (op, kind) in Op::ALL.into_iter().flat_map(|op| TYPES.map(|k| (op, k))) {
                    let qps = both.more();
                    let mw = both.pair.b.mw(kind);
                    let range = Range { mr, access: window, ..both.range(64, 8, 0) };
                    let key = bind(&both.pair.b, qps.1, mw, range);
                    outcome(&both, qps, op, window & op.needs() != 0, key);
                    assert_eq!(dealloc_mw(mw), 0);
                    end_qps(qps);
                }
            }
        }
    }

    /// The region's own key grants the region's own remote rights, window or not.
    /// Rules: T1-24, RA-28, RA-29, RA-30, RA-31
    fn a_region_grants_its_own_rights_beside_a_window_with_all(link: Link) {
        let (both, regions) = granting_each(link);
        for (region, mr) in regions {
            let window = binds(region, REMOTE).then(|| {
                let range = Range { mr, ..both.range(0, 4096, REMOTE) };
                both.bound(IBV_MW_TYPE_1, range).0
            });
            for op in Op::ALL {
                let qps = both.more();
                outcome(&both, qps, op, region & op.needs() != 0, keys(mr).1);
                end_qps(qps);
            }
            assert!(window.is_none_or(|mw| dealloc_mw(mw) == 0));
        }
    }

    /// One byte before, one byte past, and the exact range, of regions and of windows in the midst
    /// of a region that would allow it.
    /// Rules: RA-32, RA-33
    fn ranges_are_those_of_the_key(link: Link) {
        let both = MemoryPair::granting(link, 16 << 10, ALL);
        let (from, length) = (both.far.addr() + 4096, 4096_u32);
        let mr = try_reg(both.pair.b.pd, from, length as usize, ALL).expect("a region");
        for kind in [None, Some(IBV_MW_TYPE_1), Some(IBV_MW_TYPE_2)] {
            let last = from + u64::from(length);
            let cases = [
                (from, length, true),
                (from, 1, true),
                (last - 1, 1, true),
                (from - 1, 1, false),
                (from - 1, 2, false),
                (from - 1, length, false),
                (from, length + 1, false),
                (last - 1, 2, false),
                (last, 1, false),
                (from - 1, length + 2, false),
            ];
            for (addr, size, allowed) in cases {
                for op in [Op::Read, Op::Write] {
                    let qps = both.more();
                    let mw = kind.map(|kind| {
                        let range = both.range(4096, u64::from(length), REMOTE);
                        let mw = both.pair.b.mw(kind);
                        (mw, bind(&both.pair.b, qps.1, mw, range))
                    });
                    let key = mw.map_or(keys(mr).1, |(_, key)| key);
                    if allowed {
                        both.allowed_on(qps, op, addr, size, key);
                    } else {
                        both.refused_on(qps, op, addr, size, key);
                    }
                    assert!(mw.is_none_or(|(mw, _)| dealloc_mw(mw) == 0));
                    end_qps(qps);
                }
            }
        }
    }
}
