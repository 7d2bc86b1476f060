//! Regions in use: what each right and each way of addressing lets through (rules A.2).

use std::ffi::c_int;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const LOCAL_WRITE: c_int = IBV_ACCESS_LOCAL_WRITE as c_int;
const REMOTE_WRITE: c_int = IBV_ACCESS_REMOTE_WRITE as c_int;
const REMOTE_READ: c_int = IBV_ACCESS_REMOTE_READ as c_int;
const MW_BIND: c_int = IBV_ACCESS_MW_BIND as c_int;
const ZERO_BASED: c_int = IBV_ACCESS_ZERO_BASED as c_int;
const ON_DEMAND: c_int = IBV_ACCESS_ON_DEMAND as c_int;

/// A pair, and the origin's buffer with all rights.
struct Fixture {
    pair: Pair,
    near: Buffer,
    mr: *mut ibv_mr,
}

impl Fixture {
    fn new(link: Link) -> Self {
        let pair = Pair::rc(link);
        let near = Buffer::filled(1 << 20, 5);
        let mr = pair.a.reg(&near, ALL);
        Self { pair, near, mr }
    }

    /// READ, WRITE or an atomic between the start of the origin's buffer and a remote place.
    fn request(&self, opcode: ibv_wr_opcode, length: u32, remote: u64, key: u32) -> ibv_wc_status {
        let mut sges = [sge(self.near.addr(), length, self.mr)];
        let mut wr = match opcode {
            IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP => {
                atomic_wr(opcode, &mut sges, remote, key, 0, 1)
            }
            _ => rdma_wr(opcode, &mut sges, remote, key),
        };
        self.pair.request(&mut wr)
    }

    fn read(&self, length: u32, remote: u64, key: u32) -> ibv_wc_status {
        self.request(IBV_WR_RDMA_READ, length, remote, key)
    }

    fn write(&self, length: u32, remote: u64, key: u32) -> ibv_wc_status {
        self.request(IBV_WR_RDMA_WRITE, length, remote, key)
    }
}

on_each_link! {
    /// Without any right a region can still be read by its own side, and by nobody else.
    /// Rules: MR-02, MR-03
    fn no_rights_leave_local_reading(link: Link) {
        let fixture = Fixture::new(link);
        let (from, to) = (Buffer::filled(4096, 3), Buffer::new(8192));
        let mt = fixture.pair.b.reg(&to, ALL);
        for access in [0, REMOTE_READ, LOCAL_WRITE, MW_BIND, ZERO_BASED, ALL] {
            let mr = fixture.pair.a.reg(&from, access);
            let addr = if access == ZERO_BASED { 0 } else { from.addr() };
            to.write(0, &[0; 8192]);
            let done = fixture.pair.message(
                &mut [sge(addr, 4096, mr)],
                &mut [sge(to.addr(), 4096, mt)],
            );
            assert_eq!(done, (IBV_WC_SUCCESS, IBV_WC_SUCCESS), "a message from {access:#x}");
            let mut sges = [sge(addr, 4096, mr)];
            let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, to.addr() + 4096, keys(mt).1);
            assert_eq!(fixture.pair.request(&mut wr), IBV_WC_SUCCESS, "a WRITE from {access:#x}");
            assert_eq!(to.read(0, 4096), from.read(0, 4096));
            assert_eq!(to.read(4096, 4096), from.read(0, 4096));
        }
    }

    /// A region with nothing but MW_BIND hosts windows without rights and windows to read.
    /// Rules: MR-07
    fn binding_needs_no_other_right(link: Link) {
        let fixture = Fixture::new(link);
        let far = Buffer::filled(4096, 9);
        let mb = fixture.pair.b.reg(&far, MW_BIND);
        for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
            for access in [0, IBV_ACCESS_REMOTE_READ] {
                let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
                let mw = fixture.pair.b.mw(kind);
                let range = Range { mr: mb, addr: far.addr(), length: 4096, access };
                let key = bind(&fixture.pair.b, qb, mw, range);
                let mut sges = [sge(fixture.near.addr(), 4096, fixture.mr)];
                post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr(), key));
                if access == 0 {
                    fixture.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
                } else {
                    fixture.pair.a.expect(IBV_WC_SUCCESS);
                    assert_eq!(fixture.near.read(0, 4096), far.read(0, 4096));
                }
            }
        }
        assert_eq!(fixture.read(8, far.addr(), keys(mb).1), IBV_WC_REM_ACCESS_ERR);
    }

    /// Bits that a device may ignore neither fail nor grant anything.
    /// Rules: MR-09
    fn optional_bits_change_nothing(link: Link) {
        let fixture = Fixture::new(link);
        let far = Buffer::filled(4096, 9);
        for bit in 20..30 {
            let mb = fixture.pair.b.reg(&far, REMOTE_READ | 1 << bit);
            let key = keys(mb).1;
            assert_eq!(fixture.read(8, far.addr(), key), IBV_WC_SUCCESS, "bit {bit}");
            assert_eq!(fixture.write(8, far.addr(), key), IBV_WC_REM_ACCESS_ERR, "bit {bit}");
            assert_eq!(dereg(mb), 0);
        }
        assert_eq!(far.read(0, 4096), Buffer::filled(4096, 9).read(0, 4096));
    }

    /// A region has a remote key even without remote rights, and it grants nothing.
    /// Rules: MR-16
    fn remote_key_without_remote_rights_grants_nothing(link: Link) {
        let fixture = Fixture::new(link);
        let far = Buffer::filled(4096, 9);
        let atomic = IBV_WR_ATOMIC_FETCH_AND_ADD;
        for access in [0, LOCAL_WRITE, LOCAL_WRITE | MW_BIND] {
            let key = keys(fixture.pair.b.reg(&far, access)).1;
            assert_ne!(key, 0);
            assert_eq!(fixture.read(8, far.addr(), key), IBV_WC_REM_ACCESS_ERR);
            assert_eq!(fixture.write(8, far.addr(), key), IBV_WC_REM_ACCESS_ERR);
            assert_eq!(fixture.request(atomic, 8, far.addr(), key), IBV_WC_REM_ACCESS_ERR);
        }
        assert_eq!(far.read(0, 4096), Buffer::filled(4096, 9).read(0, 4096));
    }

    /// Through a region of no length, operations of no length work, and no others.
    /// Rules: MR-17
    fn zero_length_region_takes_zero_bytes(link: Link) {
        let fixture = Fixture::new(link);
        let far = Buffer::filled(4096, 9);
        let pd = fixture.pair.b.pd;
        for addr in [far.addr(), far.addr() + 24] {
            let mb = try_reg(pd, addr, 0, ALL).expect("a region");
            let key = keys(mb).1;
            for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
                assert_eq!(fixture.request(opcode, 0, addr, key), IBV_WC_SUCCESS);
                assert_eq!(fixture.request(opcode, 1, addr, key), IBV_WC_REM_ACCESS_ERR);
            }
            let atomic = fixture.request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, addr, key);
            assert_eq!(atomic, IBV_WC_REM_ACCESS_ERR);
        }
        let none = try_reg(fixture.pair.a.pd, fixture.near.addr(), 0, ALL).expect("a region");
        let to = fixture.pair.b.reg(&far, ALL);
        for (length, status) in [(0, IBV_WC_SUCCESS), (1, IBV_WC_LOC_PROT_ERR)] {
            let mut sges = [sge(fixture.near.addr(), length, none)];
            let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(to).1);
            assert_eq!(fixture.pair.request(&mut wr), status);
        }
        assert_eq!(far.read(0, 4096), Buffer::filled(4096, 9).read(0, 4096));
    }

    /// Regions over the same memory have keys and rights of their own.
    /// Rules: MR-25
    fn overlapping_regions_are_judged_by_their_own_keys(link: Link) {
        let fixture = Fixture::new(link);
        let far = Buffer::filled(8192, 9);
        let reader = keys(fixture.pair.b.reg(&far, REMOTE_READ)).1;
        let writer = fixture.pair.b.reg(&far, LOCAL_WRITE | REMOTE_WRITE);
        let key = keys(writer).1;
        let half = try_reg(fixture.pair.b.pd, far.addr() + 4096, 4096, ALL).expect("a region");
        assert_ne!(reader, key);
        assert_eq!(fixture.read(8, far.addr(), reader), IBV_WC_SUCCESS);
        assert_eq!(fixture.write(8, far.addr(), reader), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(fixture.read(8, far.addr(), key), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(fixture.write(8, far.addr(), key), IBV_WC_SUCCESS);
        assert_eq!(fixture.write(8, far.addr() + 4096, keys(half).1), IBV_WC_SUCCESS);
        assert_eq!(fixture.write(8, far.addr(), keys(half).1), IBV_WC_REM_ACCESS_ERR);
        // One ends; the other stays.
        assert_eq!(dereg(writer), 0);
        assert_eq!(fixture.write(8, far.addr(), key), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(fixture.read(8, far.addr(), reader), IBV_WC_SUCCESS);
    }

    /// A region under other addresses: byte = memory + (address − iova), at both ends.
    /// Rules: MR-28
    fn iova_addresses_the_region(link: Link) {
        const IOVA: u64 = 0x1000_0000 + 17;
        let fixture = Fixture::new(link);
        let far = Buffer::new(3 * 4096);
        let place = far.addr() + 17;
        let mb = try_reg_iova(fixture.pair.b.pd, place, 5000, IOVA, ALL).expect("a region");
        // SAFETY: a live region.
        assert_eq!(unsafe { (*mb).addr as u64 }, place);
        let key = keys(mb).1;
        assert_eq!(fixture.write(100, IOVA + 200, key), IBV_WC_SUCCESS);
        assert_eq!(far.read(217, 100), fixture.near.read(0, 100));
        assert_eq!(far.read(0, 217), [0; 217]);
        assert_eq!(fixture.write(1, IOVA + 4999, key), IBV_WC_SUCCESS);
        assert_eq!(fixture.write(1, IOVA - 1, key), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(fixture.write(1, IOVA + 5000, key), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(fixture.write(1, place, key), IBV_WC_REM_ACCESS_ERR);
        // The same in lists of local SGEs.
        let local = try_reg_iova(fixture.pair.a.pd, fixture.near.addr(), 4096, 0x7000, ALL);
        let mut sges = [sge(0x7000 + 300, 100, local.expect("a region"))];
        let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, IOVA + 1000, key);
        assert_eq!(fixture.pair.request(&mut wr), IBV_WC_SUCCESS);
        assert_eq!(far.read(1017, 100), fixture.near.read(300, 100));
    }

    /// A zero-based region counts from its own first byte, wherever in a page that is.
    /// Rules: MR-30, MR-31
    fn zero_based_addresses_are_offsets(link: Link) {
        let fixture = Fixture::new(link);
        let far = Buffer::filled(8192, 9);
        let place = far.addr() + 17;
        let access = ALL | ZERO_BASED;
        let mb = try_reg(fixture.pair.b.pd, place, 5000, access).expect("a region");
        let key = keys(mb).1;
        assert_eq!(fixture.read(16, 0, key), IBV_WC_SUCCESS);
        assert_eq!(fixture.near.read(0, 16), far.read(17, 16));
        assert_eq!(fixture.read(16, 5000 - 16, key), IBV_WC_SUCCESS);
        assert_eq!(fixture.near.read(0, 16), far.read(17 + 5000 - 16, 16));
        assert_eq!(fixture.read(16, 5000 - 15, key), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(fixture.read(16, place, key), IBV_WC_REM_ACCESS_ERR);
        // `iova` says nothing then, and zero says the same.
        let again = try_reg_iova(fixture.pair.b.pd, far.addr(), 4096, 0, ALL).expect("a region");
        assert_eq!(fixture.read(16, 17, keys(again).1), IBV_WC_SUCCESS);
        assert_eq!(fixture.near.read(0, 16), far.read(17, 16));
        // And it receives.
        let done = fixture.pair.message(
            &mut [sge(fixture.near.addr() + 64, 32, fixture.mr)],
            &mut [sge(100, 32, mb)],
        );
        assert_eq!(done, (IBV_WC_SUCCESS, IBV_WC_SUCCESS));
        assert_eq!(far.read(117, 32), fixture.near.read(64, 32));
    }

    /// Pages of an on-demand region may be missing when it is registered; then they fail when used,
    /// and work once they are there.
    /// Rules: MR-34
    fn on_demand_memory_may_come_later(link: Link) {
        let fixture = Fixture::new(link);
        let far = Buffer::new(4096);
        far.protect(libc::PROT_NONE);
        let access = ALL | ON_DEMAND;
        assert_eq!(try_reg(fixture.pair.b.pd, far.addr(), 4096, ALL), Err(libc::EFAULT));
        let mb = try_reg(fixture.pair.b.pd, far.addr(), 4096, access).expect("a region");
        let key = keys(mb).1;
        assert_eq!(fixture.read(8, far.addr(), key), IBV_WC_REM_OP_ERR);
        assert_eq!(fixture.write(8, far.addr(), key), IBV_WC_REM_OP_ERR);
        let done = fixture.pair.message(
            &mut [sge(fixture.near.addr(), 8, fixture.mr)],
            &mut [sge(far.addr(), 8, mb)],
        );
        assert_eq!(done, (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR));
        far.protect(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(fixture.write(8, far.addr(), key), IBV_WC_SUCCESS);
        assert_eq!(far.read(0, 8), fixture.near.read(0, 8));
    }

    /// Relaxed ordering or not: a completion covers its own data and all before it, and an atomic
    /// comes after what was posted before it.
    /// Rules: MR-35
    fn relaxed_ordering_ends_at_the_completion(link: Link) {
        const PIECE: usize = 9000;
        let fixture = Fixture::new(link);
        let far = Buffer::new(1 << 20);
        let mb = fixture.pair.b.reg(&far, ALL | IBV_ACCESS_RELAXED_ORDERING as c_int);
        let key = keys(mb).1;
        let word = (1 << 20) - 8;
        for round in 0..20_u8 {
            let (qa, _) = fixture.pair.another(IBV_QPT_RC);
            fixture.near.write(0, &Buffer::filled(30 * PIECE, round).read(0, 30 * PIECE));
            far.set_word(word, 0);
            fixture.near.set_word(word, u64::from(round) + 1);
            for element in 0..30 {
                let at = (element * PIECE) as u64;
                let mut sges = [sge(fixture.near.addr() + at, PIECE as u32, fixture.mr)];
                let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr() + at, key);
                wr.send_flags = 0;
                post(qa, &mut wr);
            }
            let mut sges = [sge(fixture.near.addr() + word as u64, 8, fixture.mr)];
            let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr() + word as u64, key);
            wr.send_flags = 0;
            post(qa, &mut wr);
            let mut sges = [sge(fixture.near.addr() + word as u64 - 8, 8, fixture.mr)];
            let faa = IBV_WR_ATOMIC_FETCH_AND_ADD;
            post(qa, &mut atomic_wr(faa, &mut sges, far.addr() + word as u64, key, 100, 0));
            fixture.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(fixture.near.word(word - 8), u64::from(round) + 1, "the atomic saw the WRITE");
            assert_eq!(far.word(word), u64::from(round) + 101);
            assert!(far.read(0, 30 * PIECE) == fixture.near.read(0, 30 * PIECE), "round {round}");
        }
    }

    /// Private memory that the program has unmapped under a region answers with an error; the device goes on.
    /// Rules: MR-40
    fn unmapped_memory_is_an_error_and_no_crash(link: Link) {
        let fixture = Fixture::new(link);
        let far = Buffer::apart(1 << 20);
        let mb = fixture.pair.b.reg(&far, ALL);
        let key = keys(mb).1;
        let status = IBV_WC_REM_OP_ERR;
        far.unmap(512 << 10, 512 << 10);
        let gone = far.addr() + (512 << 10);
        let faa = IBV_WR_ATOMIC_FETCH_AND_ADD;
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, faa] {
            assert_eq!(fixture.request(opcode, 8, gone, key), status, "{opcode}");
            assert_eq!(fixture.request(opcode, 8, far.addr(), key), IBV_WC_SUCCESS, "{opcode}");
        }
        // Half there, half not.
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
            assert_eq!(fixture.request(opcode, 1 << 20, far.addr(), key), status);
            assert_eq!(fixture.request(opcode, 8192, gone - 4096, key), status);
        }
        // The origin's own memory, too, and a receive's.
        let near = Buffer::apart(4096);
        let ma = fixture.pair.a.reg(&near, ALL);
        near.unmap(0, 4096);
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
            let mut sges = [sge(near.addr(), 8, ma)];
            let ended = fixture.pair.request(&mut rdma_wr(opcode, &mut sges, far.addr(), key));
            assert_eq!(ended, IBV_WC_LOC_PROT_ERR, "{opcode}");
        }
        let (good, bad) = (sge(far.addr(), 8, mb), sge(gone, 8, mb));
        let source = sge(fixture.near.addr(), 8, fixture.mr);
        let done = fixture.pair.message(&mut [source], &mut [bad]);
        assert_eq!(done, (status, IBV_WC_LOC_PROT_ERR));
        let done = fixture.pair.message(&mut [source], &mut [good]);
        assert_eq!(done, (IBV_WC_SUCCESS, IBV_WC_SUCCESS));
        assert_eq!(dereg(mb), 0);
    }
}
