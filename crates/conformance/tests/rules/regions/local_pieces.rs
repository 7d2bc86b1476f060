//! Lists of local pieces: ranges, lengths, empty ones, inline data (rules A.4).

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::stage::Stage;

const WELL: (ibv_wc_status, ibv_wc_status) = (IBV_WC_SUCCESS, IBV_WC_SUCCESS);
const NO_PLACE: (ibv_wc_status, ibv_wc_status) = (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);

fn near(stage: &Stage, at: u64, length: u32) -> ibv_sge {
    sge(stage.near.addr() + at, length, stage.ma)
}

fn far(stage: &Stage, at: u64, length: u32) -> ibv_sge {
    sge(stage.far.addr() + at, length, stage.mb)
}

/// A request with these pieces to the start of the target's buffer, on queue pairs of its own.
fn request(stage: &Stage, opcode: ibv_wr_opcode, sges: &mut [ibv_sge]) -> ibv_wc_status {
    stage.pair.request(&mut rdma_wr(opcode, sges, stage.far.addr(), stage.key()))
}

on_each_link! {
    /// A piece must lie in its region as a whole, counted without overflow.
    /// Rules: LA-11
    fn pieces_past_the_end_of_memory_are_outside(link: Link) {
        let stage = Stage::new(link, 8192);
        // One region as near to the end of all addresses as there can be.
        let top = 0_u64.wrapping_sub(8192);
        let reg = |pd, buffer: &Buffer| {
            try_reg_iova(pd, buffer.addr(), 8191, top, ALL).expect("a region")
        };
        let (ta, tb) = (reg(stage.pair.a.pd, &stage.near), reg(stage.pair.b.pd, &stage.far));
        let before = (stage.near.read(0, 8192), stage.far.read(0, 8192));
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
            for mr in [stage.ma, ta] {
                let piece = sge(addr, length, mr);
                for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE] {
                    let status = request(&stage, opcode, &mut [piece]);
                    assert_eq!(status, IBV_WC_LOC_PROT_ERR, "{opcode} of {length} at {addr:#x}");
                }
                if length <= 8 {
                    let status = request(&stage, IBV_WR_RDMA_READ, &mut [piece]);
                    assert_eq!(status, IBV_WC_LOC_PROT_ERR, "READ of {length} at {addr:#x}");
                }
            }
            if length <= 8 {
                for mr in [stage.mb, tb] {
                    let piece = sge(addr, length, mr);
                    let done = stage.pair.message(&mut [near(&stage, 0, length)], &mut [piece]);
                    assert_eq!(done, NO_PLACE, "receive of {length} at {addr:#x}");
                }
            }
        }
        assert_eq!((stage.near.read(0, 8192), stage.far.read(0, 8192)), before);
        let last = sge(top + 8190, 1, ta);
        assert_eq!(request(&stage, IBV_WR_RDMA_WRITE, &mut [last]), IBV_WC_SUCCESS);
        assert_eq!(stage.far.read(0, 1), stage.near.read(8190, 1));
    }

    /// A piece without bytes is not looked at, whatever it names.
    /// Rules: LA-15
    fn empty_pieces_are_not_examined(link: Link) {
        let stage = Stage::new(link, 4096);
        for addr in [0, 0x1234_5678, u64::MAX] {
            let junk = ibv_sge { addr, length: 0, lkey: 0xdead_beef };
            for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
                assert_eq!(request(&stage, opcode, &mut [junk]), IBV_WC_SUCCESS);
                let mut sges = [junk, near(&stage, 0, 8), junk];
                assert_eq!(request(&stage, opcode, &mut sges), IBV_WC_SUCCESS);
                assert_eq!(stage.far.read(0, 8), stage.near.read(0, 8));
            }
            assert_eq!(stage.pair.message(&mut [junk], &mut [junk]), WELL);
            let mut from = [junk, near(&stage, 16, 8), junk];
            let mut to = [junk, far(&stage, 16, 4), junk, far(&stage, 20, 4)];
            assert_eq!(stage.pair.message(&mut from, &mut to), WELL);
            assert_eq!(stage.far.read(16, 8), stage.near.read(16, 8));
        }
    }

    /// A message of no bytes, with no pieces or only empty ones, takes a receive like any other.
    /// Rules: LA-16
    fn messages_of_no_bytes_arrive(link: Link) {
        let stage = Stage::new(link, 4096);
        let (qa, qb) = (stage.pair.qa, stage.pair.qb);
        let before = stage.far.read(0, 4096);
        for sges in [&mut [][..], &mut [near(&stage, 0, 0)], &mut [near(&stage, 0, 0); 4]] {
            for to in [&mut [][..], &mut [far(&stage, 0, 64)]] {
                recv(qb, 9, to);
                post(qa, &mut with_sges(wr(IBV_WR_SEND), sges));
                assert_eq!(stage.pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
                let wc = stage.pair.b.expect(IBV_WC_SUCCESS);
                assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (9, IBV_WC_RECV, 0));
            }
        }
        assert_eq!(stage.far.read(0, 4096), before);
    }

    /// Of a receive, what the message touches is checked, not what it leaves: a piece longer than
    /// its region takes what fits into the region, and no byte more.
    /// Rules: LA-17, LA-18
    fn receive_is_checked_by_the_bytes_touched(link: Link) {
        let stage = Stage::new(link, 1 << 20);
        for size in [100, 5000, 700_000_u32] {
            let part = try_reg(stage.pair.b.pd, stage.far.addr(), size as usize, ALL);
            let long = sge(stage.far.addr(), size + 1000, part.expect("a region"));
            let from = |length| near(&stage, 0, length);
            stage.far.fill(0);
            assert_eq!(stage.pair.message(&mut [from(size)], &mut [long]), WELL);
            let fits = size as usize;
            assert!(stage.far.read(0, fits) == stage.near.read(0, fits));
            for more in [1, 1000] {
                assert_eq!(stage.pair.message(&mut [from(size + more)], &mut [long]), NO_PLACE);
            }
            assert_eq!(stage.far.read(fits, 2000), [0; 2000], "past the region of {size}");
        }
    }

    /// Inline data has no key, and is the program's again as soon as it is posted, however late it
    /// leaves.
    /// Rules: LA-21
    fn inline_data_is_taken_when_posted(link: Link) {
        let stage = Stage::new(link, 4096);
        let (qa, qb) = (stage.pair.qa, stage.pair.qb);
        // Not registered, and no key of anything.
        let text = Buffer::new(4096);
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE] {
            text.write(0, b"as posted");
            stage.far.fill(0);
            let part = |at, length| ibv_sge { addr: text.addr() + at, length, lkey: 0xdead_beef };
            let mut sges = [part(0, 3), part(3, 6)];
            // Nothing leaves yet: the message before it finds no receive.
            post(qa, &mut wr(IBV_WR_SEND));
            let mut wr = rdma_wr(opcode, &mut sges, stage.far.addr(), stage.key());
            wr.send_flags |= IBV_SEND_INLINE;
            post(qa, &mut wr);
            text.fill(b'x');
            recv(qb, 1, &mut []);
            if opcode == IBV_WR_SEND {
                recv(qb, 2, &mut [far(&stage, 0, 64)]);
                stage.pair.b.expect(IBV_WC_SUCCESS);
            }
            stage.pair.b.expect(IBV_WC_SUCCESS);
            stage.pair.a.expect(IBV_WC_SUCCESS);
            stage.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(stage.far.read(0, 10), b"as posted\0");
        }
    }

    /// In a zero-based region a piece's address is an offset, for sending and for receiving.
    /// Rules: LA-23
    fn zero_based_pieces_count_from_zero(link: Link) {
        let stage = Stage::new(link, 8192);
        let access = ALL | IBV_ACCESS_ZERO_BASED as i32;
        let reg = |pd, buffer: &Buffer| {
            try_reg(pd, buffer.addr() + 100, 4096, access).expect("a region")
        };
        let (za, zb) = (reg(stage.pair.a.pd, &stage.near), reg(stage.pair.b.pd, &stage.far));
        assert_eq!(stage.pair.message(&mut [sge(0, 64, za)], &mut [sge(0, 64, zb)]), WELL);
        assert_eq!(stage.far.read(100, 64), stage.near.read(100, 64));
        let done = stage.pair.message(&mut [sge(4032, 64, za)], &mut [sge(4032, 64, zb)]);
        assert_eq!(done, WELL);
        assert_eq!(stage.far.read(4132, 64), stage.near.read(4132, 64));
        assert_eq!(request(&stage, IBV_WR_RDMA_READ, &mut [sge(8, 64, za)]), IBV_WC_SUCCESS);
        assert_eq!(stage.near.read(108, 64), stage.far.read(0, 64));
        for piece in [sge(4096, 1, za), sge(stage.near.addr() + 100, 1, za)] {
            let status = request(&stage, IBV_WR_RDMA_WRITE, &mut [piece]);
            assert_eq!(status, IBV_WC_LOC_PROT_ERR);
        }
    }

    /// Pieces are gathered and scattered in the order of the list, from wherever they lie.
    /// Rules: LA-25
    fn lists_keep_their_order(link: Link) {
        let stage = Stage::new(link, 4096);
        let text = |at: usize, text: &[u8]| stage.near.write(at, text);
        let gather = || [near(&stage, 500, 5), near(&stage, 0, 0), near(&stage, 20, 7)];
        let prepare = || {
            stage.near.fill(b'-');
            stage.far.fill(b'.');
            text(500, b"first");
            text(20, b"seconds");
        };
        prepare();
        assert_eq!(request(&stage, IBV_WR_RDMA_WRITE, &mut gather()), IBV_WC_SUCCESS);
        assert_eq!(stage.far.read(0, 14), b"firstseconds..");
        prepare();
        let mut scatter = [far(&stage, 9, 2), far(&stage, 50, 0), far(&stage, 3, 4), far(&stage, 100, 9)];
        assert_eq!(stage.pair.message(&mut gather(), &mut scatter), WELL);
        assert_eq!(stage.far.read(0, 12), b"...rsts..fi.");
        assert_eq!(stage.far.read(100, 9), b"econds...");
        prepare();
        stage.far.write(0, b"one after the other");
        let mut sges = [near(&stage, 9, 4), near(&stage, 0, 0), near(&stage, 0, 9), near(&stage, 30, 6)];
        assert_eq!(request(&stage, IBV_WR_RDMA_READ, &mut sges), IBV_WC_SUCCESS);
        assert_eq!(stage.near.read(0, 14), b"after theone -");
        assert_eq!(stage.near.read(30, 7), b" other-");
    }

    /// More than 2^31 bytes are too many for a message, even if every piece is good.
    /// Rules: LA-26
    fn messages_beyond_two_gigabytes_are_too_long(link: Link) {
        let pair = Pair::rc(link);
        // Never touched, so it takes no memory.
        let (near, far) = (Buffer::new(1 << 30), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let piece = |length| sge(near.addr(), length, ma);
        let (half, rest) = (piece(1 << 30), piece(1));
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
