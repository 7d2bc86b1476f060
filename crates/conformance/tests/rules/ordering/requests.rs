//! In which order work requests start, act and complete (rules F).
//!
//! What has to wait is made to wait by a SEND without a receive: it is tried again for ever, and
//! whatever is behind it in its queue stays there until the receive is posted.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// Long enough for many segments over every link.
const LONG: u32 = 1 << 20;

/// Posts a SEND of nothing, which waits for a receive.
fn stall(qp: *mut ibv_qp, wr_id: u64) {
    let mut wr = wr(IBV_WR_SEND);
    wr.wr_id = wr_id;
    post(qp, &mut wr);
}

on_each_link! {
    /// Messages of all lengths arrive in the order they were posted, and complete in it at both
    /// ends.
    /// Rules: ORD-01, ORD-03
    fn messages_arrive_in_post_order(link: Link) {
        let both = MemoryPair::new(link, LONG as usize);
        let mut init = both.pair.b.init(IBV_QPT_RC);
        init.cap.max_send_wr = 128;
        init.cap.max_recv_wr = 128;
        let qb = both.pair.b.qp_with(&mut init);
        init.send_cq = both.pair.a.cq;
        init.recv_cq = both.pair.a.cq;
        let qa = both.pair.a.qp_with(&mut init);
        connect(qa, qb);
        for n in 0..100 {
            both.recv(qb, 1000 + n, LONG);
        }
        let length = |n: u64| [0, 5, 100_000, 8, 4096][n as usize % 5];
        for n in 0..100 {
            let mut sges = [sge(both.near.addr(), length(n), both.ma)];
            let opcode =
                if n % 2 == 0 { IBV_WR_SEND_WITH_IMM } else { IBV_WR_RDMA_WRITE_WITH_IMM };
            let mut wr = rdma_wr(opcode, &mut sges, both.far.addr(), both.key());
            (wr.wr_id, wr.imm.imm_data) = (n, n as u32);
            post(qa, &mut wr);
        }
        for n in 0..100 {
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, n);
        }
        for n in 0..100 {
            let wc = both.pair.b.expect(IBV_WC_SUCCESS);
            // SAFETY: both variants are plain numbers.
            let immediate = unsafe { wc.imm.imm_data };
            assert_eq!((wc.wr_id, immediate, wc.byte_len), (1000 + n, n as u32, length(n)));
        }
    }

    /// Slow and quick, remote and local work requests complete in the order they were posted.
    /// Rules: ORD-02, ORD-25
    fn completions_come_in_post_order(link: Link) {
        let both = MemoryPair::new(link, LONG as usize);
        let (a, qa, qb) = (&both.pair.a, both.pair.qa, both.pair.qb);
        let mw = a.mw(IBV_MW_TYPE_2);
        let range = Range { mr: both.ma, addr: both.near.addr(), length: 64, access: REMOTE };
        for stalled in [false, true] {
            if stalled {
                stall(qa, 0);
            } else {
                recv(qb, 0, &mut []);
                stall(qa, 0);
            }
            let key = rkey(mw).wrapping_add(1) & 0xff | rkey(mw) & !0xff;
            let far = both.far.addr();
            both.far.set_word(0, 7);
            let element = |at, length| [sge(both.near.addr() + at, length, both.ma)];
            let (mut all, mut word, mut little) = (element(0, LONG), element(64, 8), element(128, 8));
            let mut wrs = [
                rdma_wr(IBV_WR_RDMA_READ, &mut all, far, both.key()),
                atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut word, far, both.key(), 1, 0),
                rdma_wr(IBV_WR_RDMA_WRITE, &mut little, far + 8, both.key()),
                bind2_wr(mw, key, range),
                rdma_wr(IBV_WR_RDMA_READ, &mut little, far, both.key()),
                local_inv_wr(key),
                rdma_wr(IBV_WR_RDMA_READ, &mut all, far, both.key()),
                rdma_wr(IBV_WR_RDMA_READ, &mut little, far, both.key()),
                rdma_wr(IBV_WR_RDMA_WRITE, &mut little, far + 16, both.key()),
            ];
            for (n, wr) in wrs.iter_mut().enumerate() {
                wr.wr_id = 1 + n as u64;
                post(qa, wr);
            }
            if stalled {
                a.expect_nothing();
                recv(qb, 0, &mut []);
            }
            for n in 0..=wrs.len() as u64 {
                assert_eq!(a.expect(IBV_WC_SUCCESS).wr_id, n);
            }
            assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 0);
            assert_eq!(both.far.word(0), 8);
        }
    }

    /// A request that is refused takes no earlier READ along, however long that one's answer is. (That
    /// a refusal waits where the answer waits is in `responder_packets`: here the origin's window
    /// usually has it arrive later.)
    /// Rules: ORD-02, RA-40
    fn a_refusal_leaves_earlier_reads_alone(link: Link) {
        let both = MemoryPair::new(link, 8 * LONG as usize);
        let (a, qa) = (&both.pair.a, both.pair.qa);
        for byte in [1, 2] {
            both.far.fill(byte);
            let (qa, _) = if byte == 1 { (qa, both.pair.qb) } else { both.pair.another(IBV_QPT_RC) };
            let mut all = [sge(both.near.addr(), 8 * LONG, both.ma)];
            let mut little = [sge(both.near.addr(), 8, both.ma)];
            let mut read = rdma_wr(IBV_WR_RDMA_READ, &mut all, both.far.addr(), both.key());
            post(qa, &mut read);
            let wrong = both.key() ^ 0x5500;
            post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut little, both.far.addr(), wrong));
            assert_eq!(a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_READ);
            assert!(both.near.is_all(byte));
            a.expect(IBV_WC_REM_ACCESS_ERR);
        }
    }

    /// On a shared completion queue, a stalled send queue holds up neither another queue pair nor
    /// its own receive queue; each queue's own completions stay in order.
    /// Rules: ORD-04
    fn queues_do_not_wait_for_each_other(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (a, qa, qb) = (&both.pair.a, both.pair.qa, both.pair.qb);
        let (other, _) = both.pair.another(IBV_QPT_RC);
        recv(qa, 50, &mut []);
        recv(qa, 51, &mut []);
        stall(qa, 1);
        stall(qa, 2);
        both.op_on(other, IBV_WR_RDMA_WRITE, both.far.addr(), both.key(), 8);
        for n in 0..2 {
            stall(qb, 60 + n);
            assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 60 + n);
            let wc = a.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.opcode), (50 + n, IBV_WC_RECV));
        }
        recv(qb, 9, &mut []);
        recv(qb, 9, &mut []);
        assert_eq!(a.expect(IBV_WC_SUCCESS).wr_id, 1);
        assert_eq!(a.expect(IBV_WC_SUCCESS).wr_id, 2);
    }

    /// One signaled completion says that the unsignaled work before it is done: data is there, and
    /// a window bound unsignaled is usable.
    /// Rules: ORD-05
    fn a_completion_covers_what_came_before(link: Link) {
        let both = MemoryPair::new(link, LONG as usize);
        let (qa, qb) = (both.pair.qa, both.pair.qb);
        let half = LONG / 2;
        let mut sges = [
            [sge(both.near.addr(), half, both.ma)],
            [sge(both.near.addr() + u64::from(half), half, both.ma)],
        ];
        for (n, sges) in sges.iter_mut().enumerate() {
            let remote = both.far.addr() + u64::from(half) * n as u64;
            let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, sges, remote, both.key());
            wr.send_flags = 0;
            post(qa, &mut wr);
        }
        recv(qb, 1, &mut []);
        stall(qa, 2);
        assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 2);
        let (near, far) = both.bytes();
        assert!(near == far);
        both.pair.b.expect(IBV_WC_SUCCESS);

        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        let range = Range { mr: both.mb, addr: both.far.addr(), length: 64, access: REMOTE };
        let mut wr = bind2_wr(mw, rkey(mw).wrapping_add(1), range);
        wr.send_flags = 0;
        recv(qa, 1, &mut []);
        post(qb, &mut wr);
        stall(qb, 3);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 3);
        both.pair.a.expect(IBV_WC_SUCCESS);
        let wc = both.op(IBV_WR_RDMA_READ, both.far.addr(), rkey(mw), 64);
        assert_eq!(wc.status, IBV_WC_SUCCESS);
    }

    /// A send queue that waits takes as many work requests as it was made for; a signaled
    /// completion gives back the places of the unsignaled ones before it.
    /// Rules: ORD-06
    fn work_that_waits_keeps_its_place(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (qa, qb) = (both.pair.qa, both.pair.qb);
        for round in 0..3 {
            stall(qa, 7);
            let mut sges = [sge(both.near.addr(), 8, both.ma)];
            let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, both.far.addr(), both.key());
            wr.send_flags = 0;
            for _ in 0..62 {
                post(qa, &mut wr);
            }
            wr.send_flags = IBV_SEND_SIGNALED;
            wr.wr_id = round;
            post(qa, &mut wr);
            assert_eq!(try_post(qa, &mut wr), libc::ENOMEM);
            recv(qb, 1, &mut []);
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 7);
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, round);
        }
        both.pair.a.expect_nothing();
    }

    /// When a SEND has arrived, the WRITE before it has, to the last byte.
    /// Rules: ORD-07
    fn a_write_is_there_before_the_next_send(link: Link) {
        let both = MemoryPair::new(link, LONG as usize);
        for round in 0..8 {
            both.near.write(0, &vec![round; LONG as usize]);
            recv(both.pair.qb, 1, &mut []);
            both.post_op(both.pair.qa, IBV_WR_RDMA_WRITE, both.far.addr(), both.key(), LONG);
            stall(both.pair.qa, 2);
            both.pair.b.expect(IBV_WC_SUCCESS);
            assert!(both.far.read(0, LONG as usize) == vec![round; LONG as usize]);
            both.pair.a.expect(IBV_WC_SUCCESS);
            both.pair.a.expect(IBV_WC_SUCCESS);
        }
    }

    /// Without a fence, a WRITE of the buffer that a READ fills may send what was there before or
    /// what was read, byte for byte, and nothing else.
    /// Rules: ORD-08
    fn without_a_fence_old_or_new_is_sent(link: Link) {
        let both = MemoryPair::new(link, 2 * LONG as usize);
        let half = LONG as usize;
        both.near.write(0, &vec![1; half]);
        both.far.write(0, &vec![2; half]);
        both.far.write(half, &vec![3; half]);
        let qa = both.pair.qa;
        both.post_op(qa, IBV_WR_RDMA_READ, both.far.addr(), both.key(), LONG);
        let remote = both.far.addr() + u64::from(LONG);
        both.post_op(qa, IBV_WR_RDMA_WRITE, remote, both.key(), LONG);
        for opcode in [IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE] {
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).opcode, opcode);
        }
        assert!(both.near.read(0, half) == vec![2; half]);
        assert!(both.far.read(half, half).iter().all(|byte| matches!(byte, 1 | 2)));
    }

    /// A READ sees the WRITEs posted before it and not those after it.
    /// Rules: ORD-09
    fn a_read_sees_what_came_before_it(link: Link) {
        const LENGTH: u32 = 100_000;
        let both = MemoryPair::new(link, 8 * LENGTH as usize);
        let qa = both.pair.qa;
        let place = |n: u64| both.near.addr() + n * u64::from(LENGTH);
        for n in 0..4_u8 {
            let at = usize::from(n) * LENGTH as usize;
            both.near.write(at, &vec![n + 1; LENGTH as usize]);
        }
        // Held up, so that all of it is there to be carried out in the wrong order.
        stall(qa, 100);
        for n in 0..4 {
            let (mut from, mut to) =
                ([sge(place(n), LENGTH, both.ma)], [sge(place(n + 4), LENGTH, both.ma)]);
            let (remote, key) = (both.far.addr(), both.key());
            post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut from, remote, key));
            post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut to, remote, key));
        }
        recv(both.pair.qb, 1, &mut []);
        for _ in 0..9 {
            both.pair.a.expect(IBV_WC_SUCCESS);
        }
        for n in 4..8_u8 {
            let read = both.near.read(usize::from(n) * LENGTH as usize, LENGTH as usize);
            assert!(read == vec![n - 3; LENGTH as usize], "READ {n}");
        }
    }

    /// A fenced SEND of the buffer that a READ or an atomic fills sends what was read, whether it
    /// is posted while they are under way or all three start at once.
    /// Rules: ORD-10
    fn a_fence_waits_for_reads(link: Link) {
        let both = MemoryPair::new(link, 2 * LONG as usize);
        let (qa, qb, half) = (both.pair.qa, both.pair.qb, LONG as usize);
        let (a, b) = (&both.pair.a, &both.pair.b);
        for (round, length) in [8, 512, 4096, 60_000, LONG].into_iter().enumerate() {
            for stalled in [true, false] {
                for opcode in [IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD] {
                    let length = if opcode == IBV_WR_RDMA_READ { length } else { 8 };
                    let fresh = vec![100 + round as u8; length as usize];
                    both.near.write(0, &vec![1; half]);
                    both.far.write(0, &fresh);
                    let mut place = [sge(both.far.addr() + u64::from(LONG), length, both.mb)];
                    if stalled {
                        stall(qa, 9);
                    } else {
                        recv(qb, 1, &mut place);
                    }
                    both.post_op(qa, opcode, both.far.addr(), both.key(), length);
                    let mut sges = [sge(both.near.addr(), length, both.ma)];
                    let mut wr = with_sges(wr(IBV_WR_SEND), &mut sges);
                    wr.send_flags |= IBV_SEND_FENCE;
                    post(qa, &mut wr);
                    if stalled {
                        recv(qb, 0, &mut []);
                        recv(qb, 1, &mut place);
                        assert_eq!(b.expect(IBV_WC_SUCCESS).wr_id, 0);
                        a.expect(IBV_WC_SUCCESS);
                    }
                    assert_eq!(b.expect(IBV_WC_SUCCESS).wr_id, 1);
                    let got = both.far.read(half, length as usize);
                    assert!(got == fresh, "{length} bytes, opcode {opcode}");
                    a.expect(IBV_WC_SUCCESS);
                    a.expect(IBV_WC_SUCCESS);
                }
            }
        }
    }

    /// On UC, where nothing can be waited for, the fence is accepted and does nothing.
    /// Rules: ORD-11
    fn uc_ignores_the_fence(link: Link) {
        let both = MemoryPair::of(Pair::new(link, IBV_QPT_UC), 4096);
        both.recv(both.pair.qb, 3, 64);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_SEND] {
            let mut sges = [sge(both.near.addr(), 64, both.ma)];
            let mut wr = rdma_wr(opcode, &mut sges, both.far.addr() + 64, both.key());
            wr.send_flags |= IBV_SEND_FENCE;
            post(both.pair.qa, &mut wr);
            both.pair.a.expect(IBV_WC_SUCCESS);
        }
        both.pair.b.expect(IBV_WC_SUCCESS);
        for at in [0, 64] {
            assert_eq!(both.far.read(at, 64), both.near.read(0, 64));
        }
    }

    /// An acknowledged WRITE is in memory: any thread that learns of it, in any way, finds the bytes.
    /// Rules: ORD-23
    fn an_acknowledged_write_is_in_memory(link: Link) {
        let both = MemoryPair::new(link, LONG as usize);
        let (done, told) = std::sync::mpsc::channel();
        let (back, seen) = std::sync::mpsc::channel();
        let far = &both.far;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // The target's processor, which learns of it by a side channel.
                for round in told {
                    let found = far.read(0, LONG as usize) == vec![round; LONG as usize];
                    back.send(found).expect("the test waits");
                }
            });
            for round in 0..8_u8 {
                both.near.write(0, &vec![round; LONG as usize]);
                let wc = both.op(IBV_WR_RDMA_WRITE, far.addr(), both.key(), LONG);
                assert_eq!(wc.status, IBV_WC_SUCCESS);
                done.send(round).expect("the reader waits");
                assert!(seen.recv().expect("the reader answers"), "round {round}");
            }
            drop(done);
        });
    }

    /// Inline data is taken when posted: what the buffer holds later is not sent, even if the SEND
    /// has to wait.
    /// Rules: ORD-26
    fn inline_data_is_taken_when_posted(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE] {
            both.near.write(0, b"as it was when posted");
            stall(both.pair.qa, 5);
            let mut sges = [sge(both.near.addr(), 21, null_region())];
            let mut wr = rdma_wr(opcode, &mut sges, both.far.addr(), both.key());
            wr.send_flags |= IBV_SEND_INLINE;
            post(both.pair.qa, &mut wr);
            both.near.write(0, &[0; 64]);
            recv(both.pair.qb, 1, &mut []);
            both.recv(both.pair.qb, 2, 64);
            both.pair.a.expect(IBV_WC_SUCCESS);
            both.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(both.far.read(0, 21), b"as it was when posted");
            both.far.write(0, &[0; 64]);
        }
    }

    /// While a SEND waits for a receive, nothing behind it in its queue acts, however often it is
    /// tried again; once it has arrived, all of it does.
    /// Rules: ORD-27
    fn a_waiting_send_blocks_its_queue(link: Link) {
        let both = MemoryPair::new(link, LONG as usize);
        let (qa, qb) = (both.pair.qa, both.pair.qb);
        let (other, _) = both.pair.another(IBV_QPT_RC);
        let before = both.bytes();
        let (far, key) = (both.far.addr(), both.key());
        stall(qa, 1);
        both.post_op(qa, IBV_WR_RDMA_WRITE, far, key, LONG);
        both.post_op(qa, IBV_WR_ATOMIC_FETCH_AND_ADD, far, key, 8);
        // Time passes for the target, and for the SEND to be tried again.
        for _ in 0..200 {
            assert_eq!(both.op_on(other, IBV_WR_RDMA_READ, 0, 0, 0).status, IBV_WC_SUCCESS);
        }
        assert!(both.bytes() == before);
        recv(qb, 1, &mut []);
        for n in 0..3 {
            let wc = both.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(wc.opcode, [IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_FETCH_ADD][n]);
        }
        assert_eq!(both.far.word(0), before_word(&before.0).wrapping_add(1));
        assert!(both.far.read(8, LONG as usize - 8) == before.0[8..LONG as usize]);
    }

    /// What fails completes first, then what follows is flushed in the order it was posted; what
    /// preceded it has succeeded before.
    /// Rules: ORD-28
    fn the_error_comes_before_the_flushes(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let junk = null_region();
        // What is behind the READ may act after its queue pair has failed, so each has a place of its own.
        for (place, bad) in [(64, IBV_WR_SEND), (72, IBV_WR_RDMA_READ), (80, IBV_WR_LOCAL_INV)] {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            stall(qa, 0);
            let mut good = [sge(both.near.addr(), 8, both.ma)];
            let mut none = [sge(both.near.addr(), 8, junk)];
            let (far, key) = (both.far.addr(), both.key());
            let mut wrs = [
                rdma_wr(IBV_WR_RDMA_READ, &mut good, far, key),
                rdma_wr(IBV_WR_RDMA_WRITE, &mut good, far, key),
                match bad {
                    IBV_WR_LOCAL_INV => local_inv_wr(0xdead_beef),
                    _ => rdma_wr(bad, &mut none, far, key),
                },
                rdma_wr(IBV_WR_RDMA_WRITE, &mut good, far + place as u64, key),
                local_inv_wr(1),
                rdma_wr(IBV_WR_SEND, &mut good, 0, 0),
            ];
            let untouched = both.far.read(place, 8);
            for (n, wr) in wrs.iter_mut().enumerate() {
                wr.wr_id = 1 + n as u64;
                post(qa, wr);
            }
            recv(qb, 1, &mut []);
            for n in 0..3 {
                assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, n);
            }
            let wc = both.pair.a.wait();
            assert_eq!(wc.wr_id, 3);
            let local_inv = bad == IBV_WR_LOCAL_INV;
            let status = if local_inv { IBV_WC_MW_BIND_ERR } else { IBV_WC_LOC_PROT_ERR };
            assert_eq!(wc.status, status);
            for n in 4..7 {
                assert_eq!(both.pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, n);
            }
            // A READ's buffers are judged when its data comes; what is behind it may have acted.
            if bad != IBV_WR_RDMA_READ {
                assert_eq!(both.far.read(place, 8), untouched);
            }
            both.pair.b.expect(IBV_WC_SUCCESS);
        }
    }

    /// Destroying a queue pair takes no completion from others on the queue, nor their order; of
    /// its own nothing appears that had not happened.
    /// Rules: ORD-29
    fn destroying_leaves_the_completions_of_others(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (qa, _) = both.pair.another(IBV_QPT_RC);
        // SAFETY: both queue pairs are live.
        let (dying, living) = unsafe { ((*qa).qp_num, (*both.pair.qa).qp_num) };
        for n in 0..20 {
            let qp = if n % 2 == 0 { qa } else { both.pair.qa };
            let mut sges = [sge(both.near.addr(), 8, both.ma)];
            let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, both.far.addr(), both.key());
            wr.wr_id = n;
            post(qp, &mut wr);
        }
        let first = both.pair.a.expect(IBV_WC_SUCCESS);
        assert!(first.wr_id < 2);
        // SAFETY: the queue pair is live, and not used any more.
        assert_eq!(unsafe { transom_ibverbs::ibv_destroy_qp(qa) }, 0);
        let mut next = if first.qp_num == living { 3 } else { 1 };
        while next < 20 {
            let wc = both.pair.a.wait();
            if wc.qp_num == living {
                assert_eq!((wc.status, wc.wr_id), (IBV_WC_SUCCESS, next));
                next += 2;
            } else {
                assert_eq!((wc.qp_num, wc.wr_id % 2), (dying, 0));
            }
        }
        // Nor does anything come of it later.
        let wc = both.op(IBV_WR_RDMA_READ, both.far.addr(), both.key(), 8);
        assert_eq!((wc.qp_num, wc.status), (living, IBV_WC_SUCCESS));
        both.pair.a.expect_nothing();
    }
}

/// A region that does not exist: its key is zero, which no region has.
fn null_region() -> *mut ibv_mr {
    std::ptr::null_mut()
}

fn before_word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// The device promises no order of the bytes within a message, so nobody polls for the last one.
/// Rules: ORD-24
#[test]
fn ord_24_no_order_within_a_message_is_promised() {
    let pair = Pair::rc(Link::Loopback);
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND] {
        assert_eq!(transom_ibverbs::ibv_query_qp_data_in_order(pair.qa, opcode, 0), 0);
    }
}
