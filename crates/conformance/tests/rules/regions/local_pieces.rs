//! Lists of local SGEs: ranges, lengths, empty ones, inline data (rules A.4).

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const WELL: (ibv_wc_status, ibv_wc_status) = (IBV_WC_SUCCESS, IBV_WC_SUCCESS);
const NO_PLACE: (ibv_wc_status, ibv_wc_status) = (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);

fn near(both: &MemoryPair, at: u64, length: u32) -> ibv_sge {
    sge(both.near.addr() + at, length, both.ma)
}

fn far(both: &MemoryPair, at: u64, length: u32) -> ibv_sge {
    sge(both.far.addr() + at, length, both.mb)
}

/// A request with these SGEs to the start of the target's buffer, on queue pairs of its own.
fn request(both: &MemoryPair, opcode: ibv_wr_opcode, sges: &mut [ibv_sge]) -> ibv_wc_status {
    both.pair.request(&mut rdma_wr(opcode, sges, both.far.addr(), both.key()))
}

on_each_link! {
    /// An SGE must lie in its region as a whole, counted without overflow.
    /// Rules: LA-11
    fn pieces_past_the_end_of_memory_are_outside(link: Link) {
        let both = MemoryPair::new(link, 8192);
        // One region as near to the end of all addresses as there can be.
        let top = 0_u64.wrapping_sub(8192);
        let reg = |pd, buffer: &Buffer| {
            try_reg_iova(pd, buffer.addr(), 8191, top, ALL).expect("a region")
        };
        let (ta, tb) = (reg(both.pair.a.pd, &both.near), reg(both.pair.b.pd, &both.far));
        let before = (both.near.read(0, 8192), both.far.read(0, 8192));
        for (addr, length) in [
            (0_u64.wrapping_sub(4), 8),
            (0_u64.wrapping_sub(4), 4),
            (0_u64.wrapping_sub(2), 2),
            (top, 8192),
            (top, u32::MAX >> 1),
            (top + 8190, 2),
            (top - 1, 2),
            (u64::MAX, 1),
            (0, 8),
        ] {
            for mr in [both.ma, ta] {
                let element = sge(addr, length, mr);
                for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE] {
                    let status = request(&both, opcode, &mut [element]);
                    assert_eq!(status, IBV_WC_LOC_PROT_ERR, "{opcode} of {length} at {addr:#x}");
                }
                if length <= 8 {
                    let status = request(&both, IBV_WR_RDMA_READ, &mut [element]);
                    assert_eq!(status, IBV_WC_LOC_PROT_ERR, "READ of {length} at {addr:#x}");
                }
            }
            if length <= 8 {
                for mr in [both.mb, tb] {
                    let element = sge(addr, length, mr);
                    let done = both.pair.message(&mut [near(&both, 0, length)], &mut [element]);
                    assert_eq!(done, NO_PLACE, "receive of {length} at {addr:#x}");
                }
            }
        }
        assert_eq!((both.near.read(0, 8192), both.far.read(0, 8192)), before);
        let last = sge(top + 8190, 1, ta);
        assert_eq!(request(&both, IBV_WR_RDMA_WRITE, &mut [last]), IBV_WC_SUCCESS);
        assert_eq!(both.far.read(0, 1), both.near.read(8190, 1));
    }

    /// An SGE without bytes is not looked at, whatever it names.
    /// Rules: LA-15
    fn empty_pieces_are_not_examined(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for addr in [0, 0x1234_5678, u64::MAX] {
            let junk = ibv_sge { addr, length: 0, lkey: 0xdead_beef };
            for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
                assert_eq!(request(&both, opcode, &mut [junk]), IBV_WC_SUCCESS);
                let mut sges = [junk, near(&both, 0, 8), junk];
                assert_eq!(request(&both, opcode, &mut sges), IBV_WC_SUCCESS);
                assert_eq!(both.far.read(0, 8), both.near.read(0, 8));
            }
            assert_eq!(both.pair.message(&mut [junk], &mut [junk]), WELL);
            let mut from = [junk, near(&both, 16, 8), junk];
            let mut to = [junk, far(&both, 16, 4), junk, far(&both, 20, 4)];
            assert_eq!(both.pair.message(&mut from, &mut to), WELL);
            assert_eq!(both.far.read(16, 8), both.near.read(16, 8));
        }
    }

    /// A message of no bytes, with no SGEs or only empty ones, takes a receive like any other.
    /// Rules: LA-16
    fn messages_of_no_bytes_arrive(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (qa, qb) = (both.pair.qa, both.pair.qb);
        let before = both.far.read(0, 4096);
        for sges in [&mut [][..], &mut [near(&both, 0, 0)], &mut [near(&both, 0, 0); 4]] {
            for to in [&mut [][..], &mut [far(&both, 0, 64)]] {
                recv(qb, 9, to);
                post(qa, &mut with_sges(wr(IBV_WR_SEND), sges));
                assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
                let wc = both.pair.b.expect(IBV_WC_SUCCESS);
                assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (9, IBV_WC_RECV, 0));
            }
        }
        assert_eq!(both.far.read(0, 4096), before);
    }

    /// Of a receive, what the message touches is checked, not what it leaves: an SGE longer than
    /// its region takes what fits into the region, and no byte more.
    /// Rules: LA-17, LA-18
    fn receive_is_checked_by_the_bytes_touched(link: Link) {
        let both = MemoryPair::new(link, 1 << 20);
        for size in [100, 5000, 700_000_u32] {
            let part = try_reg(both.pair.b.pd, both.far.addr(), size as usize, ALL);
            let long = sge(both.far.addr(), size + 1000, part.expect("a region"));
            let from = |length| near(&both, 0, length);
            both.far.fill(0);
            assert_eq!(both.pair.message(&mut [from(size)], &mut [long]), WELL);
            let fits = size as usize;
            assert!(both.far.read(0, fits) == both.near.read(0, fits));
            for more in [1, 1000] {
                assert_eq!(both.pair.message(&mut [from(size + more)], &mut [long]), NO_PLACE);
            }
            assert_eq!(both.far.read(fits, 2000), [0; 2000], "past the region of {size}");
        }
    }

    /// Also if it is written over itself: what arrives is what was there when it was posted.
    /// Rules: LA-21
    fn inline_data_may_be_written_over_itself(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let text: Vec<u8> = (1..=40).collect();
        for length in [1, 2, 8, 9, 10, 33] {
            for (from, to) in [(100, 101), (101, 100), (100, 108), (96, 104), (100, 100)] {
                both.far.fill(0);
                both.far.write(from, &text[..length]);
                let from = ibv_sge { addr: both.far.addr() + from as u64, length: length as u32, lkey: 0 };
                let to_address = both.far.addr() + to as u64;
                let mut sges = [from];
                let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, to_address, both.key());
                wr.send_flags |= IBV_SEND_INLINE;
                post(both.pair.qa, &mut wr);
                both.pair.a.expect(IBV_WC_SUCCESS);
                assert_eq!(both.far.read(to, length), text[..length], "{length} to {to}");
            }
        }
    }

    /// Inline data has no key, and is the program's again as soon as it is posted, however late it
    /// leaves.
    /// Rules: LA-21
    fn inline_data_is_taken_when_posted(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (qa, qb) = (both.pair.qa, both.pair.qb);
        // Not registered, and no key of anything.
        let text = Buffer::new(4096);
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE] {
            text.write(0, b"as posted");
            both.far.fill(0);
            let part = |at, length| ibv_sge { addr: text.addr() + at, length, lkey: 0xdead_beef };
            let mut sges = [part(0, 3), part(3, 6)];
            // Nothing leaves yet: the message before it finds no receive.
            post(qa, &mut wr(IBV_WR_SEND));
            let mut wr = rdma_wr(opcode, &mut sges, both.far.addr(), both.key());
            wr.send_flags |= IBV_SEND_INLINE;
            post(qa, &mut wr);
            text.fill(b'x');
            recv(qb, 1, &mut []);
            if opcode == IBV_WR_SEND {
                recv(qb, 2, &mut [far(&both, 0, 64)]);
                both.pair.b.expect(IBV_WC_SUCCESS);
            }
            both.pair.b.expect(IBV_WC_SUCCESS);
            both.pair.a.expect(IBV_WC_SUCCESS);
            both.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(both.far.read(0, 10), b"as posted\0");
        }
    }

    /// In a zero-based region an SGE's address is an offset, for sending and for receiving.
    /// Rules: LA-23
    fn zero_based_pieces_count_from_zero(link: Link) {
        let both = MemoryPair::new(link, 8192);
        let access = ALL | IBV_ACCESS_ZERO_BASED as i32;
        let reg = |pd, buffer: &Buffer| {
            try_reg(pd, buffer.addr() + 100, 4096, access).expect("a region")
        };
        let (za, zb) = (reg(both.pair.a.pd, &both.near), reg(both.pair.b.pd, &both.far));
        assert_eq!(both.pair.message(&mut [sge(0, 64, za)], &mut [sge(0, 64, zb)]), WELL);
        assert_eq!(both.far.read(100, 64), both.near.read(100, 64));
        let done = both.pair.message(&mut [sge(4032, 64, za)], &mut [sge(4032, 64, zb)]);
        assert_eq!(done, WELL);
        assert_eq!(both.far.read(4132, 64), both.near.read(4132, 64));
        assert_eq!(request(&both, IBV_WR_RDMA_READ, &mut [sge(8, 64, za)]), IBV_WC_SUCCESS);
        assert_eq!(both.near.read(108, 64), both.far.read(0, 64));
        for element in [sge(4096, 1, za), sge(both.near.addr() + 100, 1, za)] {
            let status = request(&both, IBV_WR_RDMA_WRITE, &mut [element]);
            assert_eq!(status, IBV_WC_LOC_PROT_ERR);
        }
    }

    /// SGEs are gathered and scattered in the order of the list, from wherever they lie.
    /// Rules: LA-25
    fn lists_keep_their_order(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let text = |at: usize, text: &[u8]| both.near.write(at, text);
        let gather = || [near(&both, 500, 5), near(&both, 0, 0), near(&both, 20, 7)];
        let prepare = || {
            both.near.fill(b'-');
            both.far.fill(b'.');
            text(500, b"first");
            text(20, b"seconds");
        };
        prepare();
        assert_eq!(request(&both, IBV_WR_RDMA_WRITE, &mut gather()), IBV_WC_SUCCESS);
        assert_eq!(both.far.read(0, 14), b"firstseconds..");
        prepare();
        let mut scatter = [far(&both, 9, 2), far(&both, 50, 0), far(&both, 3, 4), far(&both, 100, 9)];
        assert_eq!(both.pair.message(&mut gather(), &mut scatter), WELL);
        assert_eq!(both.far.read(0, 12), b"...rsts..fi.");
        assert_eq!(both.far.read(100, 9), b"econds...");
        prepare();
        both.far.write(0, b"one after the other");
        let mut sges = [near(&both, 9, 4), near(&both, 0, 0), near(&both, 0, 9), near(&both, 30, 6)];
        assert_eq!(request(&both, IBV_WR_RDMA_READ, &mut sges), IBV_WC_SUCCESS);
        assert_eq!(both.near.read(0, 14), b"after theone -");
        assert_eq!(both.near.read(30, 7), b" other-");
    }

    /// More than 2^31 bytes are too many for a message, even if every SGE is good.
    /// Rules: LA-26
    fn messages_beyond_two_gigabytes_are_too_long(link: Link) {
        let pair = Pair::rc(link);
        // Never touched, so it takes no memory.
        let (near, far) = (Buffer::new(1 << 30), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let element = |length| sge(near.addr(), length, ma);
        let (half, rest) = (element(1 << 30), element(1));
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            for sges in [&mut [half, half, rest][..], &mut [rest, half, half], &mut [half; 4]] {
                let (qa, qb) = pair.another(IBV_QPT_RC);
                post(qa, &mut rdma_wr(opcode, sges, far.addr(), keys(mb).1));
                pair.a.expect(IBV_WC_LOC_LEN_ERR);
                assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_RTS));
            }
        }
    }
}
