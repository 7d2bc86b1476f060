//! Posting work: lists, full queues, what is refused at once and what later, and whose memory is
//! whose in between.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// A SEND of nothing.
fn send(wr_id: u64) -> ibv_send_wr {
    ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) }
}

/// A receive of nothing.
fn receive(wr_id: u64) -> ibv_recv_wr {
    ibv_recv_wr { wr_id, ..ibv_recv_wr::default() }
}

/// A work request of each operation that carries data, on this SGE and that remote place.
fn each_operation(element: &mut [ibv_sge; 1], remote: u64, key: u32) -> Vec<ibv_send_wr> {
    let mut all: Vec<_> = [
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,
    ]
    .map(|opcode| rdma_wr(opcode, element, remote, key))
    .into();
    for opcode in [IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD] {
        all.push(atomic_wr(opcode, element, remote, key, 1, 2));
    }
    all
}

on_each_link! {
    /// A list is taken up to its first bad request, which is named; those before it are queued.
    /// Rules: PS-01
    fn a_list_is_taken_up_to_the_first_bad_request(link: Link) {
        let pair = Pair::rc(link);
        let mut receives = [1, 2, 3, 4].map(receive);
        receives[2].num_sge = 5;
        receives[2].sg_list = [ibv_sge::default(); 5].as_mut_ptr();
        assert_eq!(try_recv_list(pair.qb, &mut receives), Err((libc::EINVAL, 2)));
        recv(pair.qb, 5, &mut []);
        let mut sends = [1, 2, 3].map(send);
        sends[1].opcode = 99;
        assert_eq!(try_post_list(pair.qa, &mut sends), Err((libc::EINVAL, 1)));
        post(pair.qa, &mut send(4));
        post(pair.qa, &mut send(5));
        let done = wait_for(pair.a.cq, 3);
        assert_eq!(done.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 4, 5]);
        let taken = wait_for(pair.b.cq, 3);
        assert_eq!(taken.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 2, 5]);
    }

    /// A full queue is `ENOMEM` from the first request on that does not fit.
    /// Rules: PS-02, PS-12
    fn a_full_queue_takes_no_more(link: Link) {
        let pair = Pair::rc(link);
        let most = query(pair.qa).cap;
        let (send_room, receive_room) = (most.max_send_wr as usize, most.max_recv_wr as usize);
        // Nobody receives, so none of them is done.
        let mut sends: Vec<_> = (0..=send_room as u64).map(send).collect();
        assert_eq!(try_post_list(pair.qa, &mut sends), Err((libc::ENOMEM, send_room)));
        assert_eq!(try_post(pair.qa, &mut send(0)), libc::ENOMEM);
        // To this one nobody sends, so none of its receives is taken meanwhile.
        let (_, unused) = pair.another(IBV_QPT_RC);
        let mut receives: Vec<_> = (0..=receive_room as u64).map(receive).collect();
        assert_eq!(try_recv_list(unused, &mut receives), Err((libc::ENOMEM, receive_room)));
        let mut receives: Vec<_> = (0..receive_room as u64).map(receive).collect();
        assert_eq!(try_recv_list(pair.qb, &mut receives), Ok(()));
        // Those that fit are done, in order, and leave room.
        for (cq, room) in [(pair.a.cq, send_room), (pair.b.cq, receive_room)] {
            let done = wait_for(cq, room);
            assert!(done.iter().zip(0..).all(|(wc, at)| (wc.wr_id, wc.status) == (at, 0)));
        }
        recv(pair.qb, 100, &mut []);
        post(pair.qa, &mut send(101));
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 100);
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 101);
    }

    /// A queue pair made so reports every request, signaled or not; another only those signaled.
    /// Rules: PS-08
    fn all_requests_are_reported_if_the_queue_pair_says_so(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let qa = pair.a.qp_with(&mut ibv_qp_init_attr { sq_sig_all: 1, ..pair.a.init(IBV_QPT_RC) });
        connect(qa, pair.qb);
        let (near, far) = (Buffer::new(4096), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let silent = |wr: ibv_send_wr| ibv_send_wr { send_flags: 0, ..wr };
        let mut element = [sge(near.addr(), 8, ma)];
        let mut all = each_operation(&mut element, far.addr(), keys(mb).1);
        all.remove(2);
        for _ in 0..3 {
            recv(pair.qb, 0, &mut [sge(far.addr(), 64, mb)]);
        }
        for wr in &mut all {
            post(qa, &mut silent(*wr));
            pair.a.expect(IBV_WC_SUCCESS);
        }
        let (qc, qd) = pair.another(IBV_QPT_RC);
        for _ in 0..4 {
            recv(qd, 0, &mut [sge(far.addr(), 64, mb)]);
        }
        for wr in &mut all {
            post(qc, &mut silent(*wr));
        }
        post(qc, &mut send(55));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 55, "the only one signaled");
        pair.a.expect_nothing();
    }

    /// FENCE is honoured on RC; SOLICITED does nothing where no receive completes.
    /// Rules: PS-09
    fn fence_and_solicited_count_where_they_are_valid(link: Link) {
        let pair = Pair::rc(link);
        // Short, so that an unfenced SEND would take its data before the READ's has come.
        let length = 1 << 15;
        let (near, far) = (Buffer::new(length as usize), Buffer::filled(length as usize, 9));
        let into = Buffer::new(length as usize);
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let mi = pair.b.reg(&into, ALL);
        recv(pair.qb, 1, &mut [sge(into.addr(), length, mi)]);
        let mut sges = [sge(near.addr(), length, ma)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr(), keys(mb).1));
        let mut fenced = with_sges(wr(IBV_WR_SEND), &mut sges);
        fenced.send_flags |= IBV_SEND_FENCE;
        post(pair.qa, &mut fenced);
        pair.b.expect(IBV_WC_SUCCESS);
        assert!(into.read(0, length as usize) == far.read(0, length as usize));
        assert!(wait_for(pair.a.cq, 2).iter().all(|wc| wc.status == IBV_WC_SUCCESS));

        // Neither end's queue takes a WRITE, READ or atomic for a solicited message.
        let watched = channel(pair.a.context);
        let cq = try_cq(pair.a.context, 64, watched).unwrap();
        let qa = pair.a.qp_with(&mut ibv_qp_init_attr { send_cq: cq, ..pair.a.init(IBV_QPT_RC) });
        let qb = pair.b.qp(IBV_QPT_RC);
        connect(qa, qb);
        assert_eq!(arm(cq, true), 0);
        let mut element = [sge(near.addr(), 8, ma)];
        for mut wr in each_operation(&mut element, far.addr(), keys(mb).1).into_iter().skip(3) {
            if wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM {
                continue;
            }
            wr.send_flags |= IBV_SEND_SOLICITED;
            post(qa, &mut wr);
            assert_eq!(wait(cq).status, IBV_WC_SUCCESS);
        }
        assert!(!has_cq_event(watched));
        pair.b.expect_nothing();
        // UC takes both flags too.
        let (qa, qb) = pair.another(IBV_QPT_UC);
        recv(qb, 1, &mut []);
        let mut both = wr(IBV_WR_SEND);
        both.send_flags |= IBV_SEND_FENCE | IBV_SEND_SOLICITED;
        post(qa, &mut both);
        pair.b.expect(IBV_WC_SUCCESS);
        pair.a.expect(IBV_WC_SUCCESS);
    }

    /// Immediate data arrives as it was given, with the flag that says so; without it there is none.
    /// Rules: PS-10
    fn immediate_data_arrives_unchanged(link: Link) {
        for kind in [IBV_QPT_RC, IBV_QPT_UC] {
            let pair = Pair::new(link, kind);
            let far = Buffer::new(64);
            let mb = pair.b.reg(&far, ALL);
            for (opcode, arrives) in [
                (IBV_WR_SEND_WITH_IMM, IBV_WC_RECV),
                (IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM),
            ] {
                for value in [0x0102_0304_u32, 0, u32::MAX] {
                    recv(pair.qb, 1, &mut []);
                    let mut wr = rdma_wr(opcode, &mut [], far.addr(), keys(mb).1);
                    wr.imm.imm_data = value.to_be();
                    post(pair.qa, &mut wr);
                    let wc = pair.b.expect(IBV_WC_SUCCESS);
                    assert_eq!((wc.opcode, wc.wc_flags), (arrives, IBV_WC_WITH_IMM));
                    // SAFETY: the flag says that it is immediate data.
                    assert_eq!(unsafe { wc.imm.imm_data }, value.to_be());
                    pair.a.expect(IBV_WC_SUCCESS);
                }
            }
            recv(pair.qb, 1, &mut []);
            post(pair.qa, &mut send(1));
            assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wc_flags, 0);
        }
    }

    /// SENDs and WRITEs with immediate data take a receive each; the latter place nothing into it,
    /// and a plain WRITE takes none.
    /// Rules: PS-13
    fn a_write_with_immediate_takes_a_receive_and_leaves_it_alone(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::filled(8192, 1), Buffer::new(8192));
        let into = Buffer::filled(8192, 99);
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let mi = pair.b.reg(&into, ALL);
        let before = into.read(0, 8192);
        for wr_id in 1..=3 {
            recv(pair.qb, wr_id, &mut [sge(into.addr(), 8192, mi)]);
        }
        let mut sges = [sge(near.addr(), 5000, ma)];
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM] {
            post(pair.qa, &mut rdma_wr(opcode, &mut sges, far.addr(), keys(mb).1));
            pair.a.expect(IBV_WC_SUCCESS);
        }
        let wc = pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode), (1, IBV_WC_RECV_RDMA_WITH_IMM));
        assert!(far.read(0, 5000) == near.read(0, 5000));
        assert!(into.read(0, 8192) == before);
        for (opcode, wr_id) in [(IBV_WR_SEND, 2), (IBV_WR_SEND_WITH_IMM, 3)] {
            post(pair.qa, &mut with_sges(wr(opcode), &mut sges));
            let wc = pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (wr_id, IBV_WC_RECV, 5000));
            assert!(into.read(0, 5000) == near.read(0, 5000));
        }
    }

    /// Requests, their lists and their SGEs may be overwritten once they are posted.
    /// Rules: PS-17
    fn requests_are_copied_when_posted(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::filled(4096, 3), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        assert_eq!(set_state(pair.qa, IBV_QPS_SQD), 0);
        let mut into = [sge(far.addr(), 50, mb), sge(far.addr() + 50, 50, mb)];
        recv(pair.qb, 1, &mut into);
        into.fill(sge(0x1000, 1, null_mut()));
        let mut from = [sge(near.addr(), 30, ma), sge(near.addr() + 30, 70, ma)];
        let mut beyond = [sge(near.addr(), 8, ma)];
        let mut list = [with_sges(send(5), &mut from), send(6)];
        list[1] = rdma_wr(IBV_WR_RDMA_WRITE, &mut beyond, far.addr() + 200, keys(mb).1);
        assert_eq!(try_post_list(pair.qa, &mut list), Ok(()));
        from.fill(sge(0x1000, 1, null_mut()));
        beyond.fill(sge(0x1000, 1, null_mut()));
        list.fill(ibv_send_wr { wr_id: 99, opcode: 99, num_sge: 99, ..send(99) });
        assert_eq!(set_state(pair.qa, IBV_QPS_RTS), 0);
        let wc = pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.byte_len), (1, 100));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 5);
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 1);
        assert_eq!(far.read(0, 100), near.read(0, 100));
        assert_eq!(far.read(200, 8), near.read(0, 8));
    }

    /// Inline data is taken when posted, other data by the completion: afterwards the buffer may
    /// change and the message does not.
    /// Rules: PS-18
    fn buffers_are_free_at_the_completion(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::new(1 << 20), Buffer::new(1 << 20));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        for (round, length) in [8, 5000, 300_000, 1 << 20].into_iter().enumerate() {
            let seed = 1 + 2 * round as u8;
            near.fill(seed);
            recv(pair.qb, 1, &mut [sge(far.addr(), length, mb)]);
            let mut sges = [sge(near.addr(), length, ma)];
            post(pair.qa, &mut with_sges(send(2), &mut sges));
            assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 2);
            near.fill(seed + 1);
            pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!(far.read(0, length as usize), vec![seed; length as usize]);
        }
        // Inline: at once, though nothing has been sent yet, and of no registered memory.
        let plain = Buffer::new(200);
        assert_eq!(set_state(pair.qa, IBV_QPS_SQD), 0);
        recv(pair.qb, 1, &mut [sge(far.addr(), 200, mb)]);
        let mut sges = [sge(plain.addr(), 150, null_mut()), sge(plain.addr() + 150, 50, null_mut())];
        plain.fill(77);
        let mut inline = with_sges(send(3), &mut sges);
        inline.send_flags |= IBV_SEND_INLINE;
        post(pair.qa, &mut inline);
        let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr() + 4096, keys(mb).1);
        write.send_flags |= IBV_SEND_INLINE;
        post(pair.qa, &mut write);
        plain.fill(78);
        assert_eq!(set_state(pair.qa, IBV_QPS_RTS), 0);
        pair.b.expect(IBV_WC_SUCCESS);
        assert!(wait_for(pair.a.cq, 2).iter().all(|wc| wc.status == IBV_WC_SUCCESS));
        assert_eq!((far.read(0, 200), far.read(4096, 200)), (vec![77; 200], vec![77; 200]));
    }

    /// Threads may post to one queue pair at once: each request is carried out once.
    /// Rules: PS-19
    fn threads_post_at_once(link: Link) {
        const THREADS: u64 = 4;
        const EACH: u64 = 400;
        let pair = Pair::rc(link);
        let far = Buffer::new(4096);
        let near = Buffer::new(4096);
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let (qa, qb) = (Across::new(pair.qa), Across::new(pair.qb));
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let key = keys(mb).1;
        let from = sge(near.addr(), 8, ma);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (far, from) = (&far, Across::new(from));
                scope.spawn(move || {
                    for count in 0..EACH {
                        let wr_id = thread * EACH + count;
                        until("room", || (try_recv(qb.get(), wr_id, &mut []) == 0).then_some(()));
                        until("room", || (try_post(qa.get(), &mut send(wr_id)) == 0).then_some(()));
                        let (mut sges, add) = ([from.get()], IBV_WR_ATOMIC_FETCH_AND_ADD);
                        let mut wr = atomic_wr(add, &mut sges, far.addr(), key, 1, 0);
                        (wr.wr_id, wr.send_flags) = (wr_id, 0);
                        until("room", || (try_post(qa.get(), &mut wr) == 0).then_some(()));
                    }
                });
            }
            until("all completions", || {
                sent.extend(poll(pair.a.cq));
                received.extend(poll(pair.b.cq));
                (sent.len().min(received.len()) as u64 == THREADS * EACH).then_some(())
            });
        });
        for mut wcs in [sent, received] {
            assert!(wcs.iter().all(|wc| wc.status == IBV_WC_SUCCESS));
            wcs.sort_by_key(|wc| wc.wr_id);
            assert!(wcs.iter().zip(0..).all(|(wc, at)| wc.wr_id == at));
        }
        recv(pair.qb, 0, &mut []);
        post(pair.qa, &mut send(0));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(far.word(0), THREADS * EACH);
    }
}
