//! Work requests built call by call (`ibv_wr_start` and its family) on RC: every operation, and that
//! a batch is posted whole or not at all.

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// All operations that every RC queue pair can build.
const EVERYTHING: u32 = IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_LOCAL_INV;

/// Memory at both ends, and connected queue pairs that build these operations.
fn scene_of(link: Link, operations: u32) -> (MemoryPair, Qps) {
    let both = MemoryPair::pages(link);
    let qa = qp_ex(&both.pair.a, IBV_QPT_RC, operations);
    let qb = qp_ex(&both.pair.b, IBV_QPT_RC, operations);
    connect(qa, qb);
    (both, (qa, qb))
}

/// The same for all operations.
fn both(link: Link) -> (MemoryPair, Qps) {
    scene_of(link, EVERYTHING)
}

/// What was built so far, and everything before, has not reached the peer.
fn nothing_came(both: &MemoryPair) {
    Follower::new(&both.pair.a, &both.pair.b).follow();
    both.pair.a.expect_nothing();
    both.pair.b.expect_nothing();
}

on_each_link! {
    /// Each operation does what the plain work request does: its data, its opcodes, its number.
    fn every_operation_moves_its_data(link: Link) {
        let (both, (qa, qb)) = both(link);
        let (build, near, far) = (Builder::of(qa), &both.near, &both.far);
        let (key, at) = (keys(both.mb).1, far.addr());
        let element = |at: u64, length| sge(near.addr() + at, length, both.ma);
        near.write(0, b"sendwrite");
        for wr_id in 0..3 {
            recv(qb, wr_id, &mut [sge(at + 100 * wr_id, 50, both.mb)]);
        }
        let code = build.batch(|build| {
            build.signaled(10).send();
            build.sge(element(0, 4));
            build.signaled(11).send_imm(0x0102_0304);
            build.sges(&[element(0, 2), element(2, 2), element(4, 0)]);
            build.signaled(12).rdma_write(key, at + 1000);
            build.sge(element(4, 5));
            build.signaled(13).rdma_write_imm(key, at + 1100, 7);
            build.sge(element(4, 3));
            build.signaled(14).rdma_read(key, at + 2000);
            build.sge(element(500, 600));
            build.signaled(15).atomic_fetch_add(key, at + 3000, 5);
            build.sge(element(1600, 8));
            build.signaled(16).atomic_cmp_swp(key, at + 3008, far.word(3008), 42);
            build.sge(element(1608, 8));
        });
        assert_eq!(code, 0);
        let (old_sum, old_swap) = (pattern_word(3000), pattern_word(3008));
        let sent = wait_for(both.pair.a.cq, 7);
        let seen: Vec<_> = sent.iter().map(|wc| (wc.wr_id, wc.status, wc.opcode)).collect();
        let opcodes = [
            IBV_WC_SEND,
            IBV_WC_SEND,
            IBV_WC_RDMA_WRITE,
            IBV_WC_RDMA_WRITE,
            IBV_WC_RDMA_READ,
            IBV_WC_FETCH_ADD,
            IBV_WC_COMP_SWAP,
        ];
        let expected = (10..).zip(opcodes).map(|(wr_id, opcode)| (wr_id, IBV_WC_SUCCESS, opcode));
        assert_eq!(seen, expected.collect::<Vec<_>>());
        let received = wait_for(both.pair.b.cq, 3);
        let immediate = |wc: &ibv_wc| {
            // SAFETY: plain data; the flags say whether it means anything.
            (wc.wc_flags & IBV_WC_WITH_IMM != 0).then_some(unsafe { wc.imm.imm_data })
        };
        let seen: Vec<_> =
            received.iter().map(|wc| (wc.wr_id, wc.opcode, wc.byte_len, immediate(wc))).collect();
        let expected = [
            (0, IBV_WC_RECV, 4, None),
            (1, IBV_WC_RECV, 4, Some(0x0102_0304)),
            (2, IBV_WC_RECV_RDMA_WITH_IMM, 3, Some(7)),
        ];
        assert_eq!(seen, expected);
        assert_eq!((far.read(0, 4), far.read(100, 4)), (b"send".to_vec(), b"send".to_vec()));
        assert_eq!((far.read(1000, 5), far.read(1100, 3)), (b"write".to_vec(), b"wri".to_vec()));
        assert!(near.read(500, 600) == far.read(2000, 600));
        assert_eq!((near.word(1600), far.word(3000)), (old_sum, old_sum.wrapping_add(5)));
        assert_eq!((near.word(1608), far.word(3008)), (old_swap, 42));
    }

    /// An ATOMIC WRITE takes its eight bytes when it is built, and the plain verb sends the same.
    fn eight_bytes_are_written_at_once(link: Link) {
        let (both, (qa, qb)) = scene_of(link, IBV_QP_EX_WITH_ATOMIC_WRITE);
        let (key, at) = (keys(both.mb).1, both.far.addr());
        let mut word = 0x0102_0304_0506_0708_u64;
        let code = Builder::of(qa).batch(|build| {
            build.signaled(1).atomic_write(key, at + 64, (&raw const word).cast());
            word = 9;
            build.signaled(2).atomic_write(key, at + 72, (&raw const word).cast());
            word = 0;
        });
        assert_eq!((code, word), (0, 0));
        for wr_id in [1, 2] {
            let wc = both.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.opcode), (wr_id, IBV_WC_ATOMIC_WRITE));
        }
        assert_eq!((both.far.word(64), both.far.word(72)), (0x0102_0304_0506_0708, 9));
        both.near.set_word(16, 11);
        let mut sges = [sge(both.near.addr() + 16, 8, both.ma)];
        post(qa, &mut rdma_wr(IBV_WR_ATOMIC_WRITE, &mut sges, at + 80, key));
        assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
        assert_eq!(both.far.word(80), 11);
        let build = Builder::of(qa);
        let none = std::ptr::null();
        assert_eq!(build.batch(|build| build.atomic_write(key, at, none)), libc::EINVAL);
        let twice = build.batch(|build| {
            build.atomic_write(key, at, (&raw const word).cast());
            build.inline(&[0; 8]);
        });
        assert_eq!(twice, libc::EINVAL, "it has its data");
        assert_eq!(both.far.word(0), pattern_word(0));
        assert_eq!((state(qa), state(qb)), (IBV_QPS_RTS, IBV_QPS_RTS));
    }

    /// Windows of type 2 are bound and invalidated, and the library's key follows the bind once it
    /// is posted.
    /// Rules: KEY-10
    fn windows_are_bound_and_invalidated(link: Link) {
        let (both, (qa, qb)) = both(link);
        let (near, far) = (Builder::of(qa), Builder::of(qb));
        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        let before = rkey(mw);
        let key = before & !0xff | before.wrapping_add(1) & 0xff;
        let info = both.range(0, 64, REMOTE).info();
        far.start();
        far.signaled(1).bind_mw(mw, key, &info);
        assert_eq!(rkey(mw), before);
        assert_eq!(far.complete(), 0);
        assert_eq!(rkey(mw), key);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
        both.allowed_on((qa, qb), Op::Write, both.far.addr(), 8, key);
        assert_eq!(far.batch(|far| far.signaled(2).local_inv(key)), 0);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
        let again = key & !0xff | key.wrapping_add(1) & 0xff;
        assert_eq!(far.batch(|far| far.signaled(3).bind_mw(mw, again, &info)), 0);
        both.pair.b.expect(IBV_WC_SUCCESS);
        recv(qb, 4, &mut []);
        assert_eq!(near.batch(|near| near.signaled(5).send_inv(again)), 0);
        both.pair.a.expect(IBV_WC_SUCCESS);
        let wc = both.pair.b.expect(IBV_WC_SUCCESS);
        // SAFETY: the flag says it is valid.
        assert_eq!((wc.wc_flags, unsafe { wc.imm.invalidated_rkey }), (IBV_WC_WITH_INV, again));
        both.refused_on((qa, qb), Op::Write, both.far.addr(), 8, again);
    }

    /// A bind with LOCAL_WRITE alone grants nothing to the peer.
    /// Rules: T1-14
    fn local_write_is_no_remote_right(link: Link) {
        let (both, (qa, qb)) = both(link);
        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        let info = both.range(0, 64, IBV_ACCESS_LOCAL_WRITE).info();
        let code = Builder::of(qb).batch(|far| far.signaled(1).bind_mw(mw, rkey(mw) + 1, &info));
        assert_eq!(code, 0);
        both.pair.b.expect(IBV_WC_SUCCESS);
        both.refused_on((qa, qb), Op::Write, both.far.addr(), 8, rkey(mw));
    }

    /// Inline data is taken by the setter, from any memory: it may change before the batch is posted.
    /// Rules: LA-21
    fn inline_data_is_taken_by_the_setter(link: Link) {
        let (both, (qa, qb)) = both(link);
        let (key, at) = (keys(both.mb).1, both.far.addr());
        let mut bytes = *b"hello, world";
        recv(qb, 1, &mut [sge(at, 50, both.mb)]);
        let code = Builder::of(qa).batch(|build| {
            build.next(2, 0).send();
            build.inline(&bytes);
            let start = bytes.as_mut_ptr();
            let buffers = [(0, 5), (5, 0), (7, 5)]
                .map(|(at, length)| ibv_data_buf { addr: start.wrapping_add(at).cast(), length });
            build.signaled(3).rdma_write(key, at + 100);
            build.set_inline_data_list(3, buffers.as_ptr());
            bytes.fill(0);
        });
        assert_eq!(code, 0);
        assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 3);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).byte_len, 12);
        assert_eq!(both.far.read(0, 12), b"hello, world");
        assert_eq!(both.far.read(100, 10), b"helloworld");
    }

    /// Nothing is posted before the batch is complete; then it goes in the order it was built in,
    /// after what was posted before.
    /// Rules: PS-14
    fn a_batch_is_posted_when_complete(link: Link) {
        let (both, (qa, qb)) = both(link);
        let build = Builder::of(qa);
        for wr_id in 0..5 {
            recv(qb, wr_id, &mut []);
        }
        build.start();
        build.signaled(10).send();
        build.signaled(11).send();
        let target = both.far.read(0, 100);
        build.signaled(12).rdma_write(keys(both.mb).1, both.far.addr());
        build.sge(sge(both.near.addr(), 100, both.ma));
        nothing_came(&both);
        assert!(both.far.read(0, 100) == target);
        assert_eq!(build.complete(), 0);
        post(qa, &mut ibv_send_wr { wr_id: 13, ..wr(IBV_WR_SEND) });
        assert_eq!(build.batch(|build| build.signaled(14).send()), 0);
        let order = |cq, count| wait_for(cq, count).iter().map(|wc| wc.wr_id).collect::<Vec<_>>();
        assert_eq!(order(both.pair.a.cq, 5), [10, 11, 12, 13, 14]);
        assert_eq!(order(both.pair.b.cq, 4), [0, 1, 2, 3]);
        assert!(both.far.read(0, 100) == both.near.read(0, 100));
        assert_eq!(build.batch(|_| ()), 0, "an empty batch");
    }

    /// An aborted batch leaves nothing behind, not even its mistakes.
    /// Rules: PS-15
    fn an_aborted_batch_is_forgotten(link: Link) {
        let (both, (qa, qb)) = both(link);
        let build = Builder::of(qa);
        recv(qb, 1, &mut []);
        for mistake in [false, true] {
            build.start();
            build.signaled(2).send();
            if mistake {
                build.set_xrc_srqn(1);
            }
            build.abort();
            nothing_came(&both);
        }
        assert_eq!(build.complete(), libc::EINVAL, "there is no batch");
        assert_eq!(build.batch(|build| build.signaled(3).send()), 0);
        assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 3);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 1);
    }

    /// Two threads build batches on one queue pair: each batch stays in one piece.
    /// Rules: PS-19
    fn threads_build_one_after_the_other(link: Link) {
        const EACH: u64 = 200;
        const LENGTH: u64 = 5;
        let (both, (qa, _)) = both(link);
        let build = Builder::of(qa);
        let (key, at) = (keys(both.mb).1, both.far.addr());
        let sges = Across::new([0, 64].map(|at| sge(both.near.addr() + at, 8, both.ma)));
        let mut done = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    for count in 0..EACH {
                        until("room", || {
                            build.start();
                            for place in 0..LENGTH {
                                let wr_id = (thread * EACH + count) * LENGTH + place;
                                build.signaled(wr_id).atomic_fetch_add(key, at, 1);
                                build.sge(sges.get()[thread as usize]);
                            }
                            match build.complete() {
                                0 => Some(()),
                                code => {
                                    assert_eq!(code, libc::ENOMEM);
                                    None
                                }
                            }
                        });
                    }
                });
            }
            until("all completions", || {
                done.extend(poll(both.pair.a.cq));
                (done.len() as u64 == 2 * EACH * LENGTH).then_some(())
            });
        });
        assert!(done.iter().all(|wc| wc.status == IBV_WC_SUCCESS));
        for batch in done.chunks(LENGTH as usize) {
            assert_eq!(batch[0].wr_id % LENGTH, 0);
            assert!(batch.windows(2).all(|wcs| wcs[0].wr_id + 1 == wcs[1].wr_id));
        }
        assert_eq!(both.far.word(0), pattern_word(0).wrapping_add(2 * EACH * LENGTH));
    }
}

/// What [`MemoryPair`] fills eight bytes of the target's memory with.
fn pattern_word(at: usize) -> u64 {
    let bytes: Vec<u8> = (at..at + 8).map(|at| pattern(at, 7)).collect();
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}
