//! Tag matching in a shared receive queue: messages whose data follows their header, messages that
//! nobody waited for, and the list of tagged buffers.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::tag_matching::*;
use transom_ibverbs::*;

const ALL_BITS: u64 = u64::MAX;
const VALID: u32 = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;

/// The next is a message of `length` bytes for the tagged buffer `wr_id`.
fn expect_match(matching: &Matching, wr_id: u64, tag: u64, length: u32) {
    let done = matching.next();
    assert_eq!(done.summary(), (IBV_WC_SUCCESS, IBV_WC_TM_RECV, wr_id));
    assert_eq!((done.wc.wc_flags, done.info), (VALID, (tag, CONTEXT)));
    assert_eq!((done.wc.byte_len, done.wc.qp_num), (length, number(matching.qb)));
}

on_each_link! {
    /// A message goes to the buffer that was added first of those whose tag it has under their mask,
    /// without its header.
    fn a_message_goes_to_the_first_buffer_that_matches(link: Link) {
        let matching = Matching::new(link);
        matching.add(1, 0x40, 0xf0, &mut [matching.sge(0x1000, 100)]);
        matching.add(2, 0x41, ALL_BITS, &mut [matching.sge(0x2000, 100)]);
        matching.add(3, 0x40, 0xf0, &mut [matching.sge(0x3000, 100)]);
        for (wr_id, tag) in [(1, 0x4f), (2, 0x41), (3, 0xab41)] {
            matching.send(&eager(tag), 116);
            expect_match(&matching, wr_id, tag, 100);
            matching.a.expect(IBV_WC_SUCCESS);
            let (at, sent) = (wr_id as usize * 0x1000, matching.near.read(16, 100));
            assert_eq!(matching.far.read(at, 100), sent);
            assert_eq!(matching.far.read(at + 100, 8), [0; 8]);
        }
        matching.b.expect_nothing();
    }

    /// A long message is scattered over the SGEs of its buffer, however it travels.
    fn a_long_message_is_scattered_without_its_header(link: Link) {
        let matching = Matching::new(link);
        let mut sges =
            [(5, 10), (4096, 300_001), (400_000, 0), (500_000, 400_000)].map(|(at, length)| {
                matching.sge(at, length)
            });
        matching.add(1, 9, ALL_BITS, &mut sges);
        matching.send(&eager(9), 16 + 600_000);
        expect_match(&matching, 1, 9, 600_000);
        let sent = matching.near.read(16, 600_000);
        assert!(matching.far.read(5, 10) == sent[..10]);
        assert!(matching.far.read(4096, 300_001) == sent[10..300_011]);
        assert!(matching.far.read(500_000, 299_989) == sent[300_011..]);
        assert_eq!(matching.far.read(799_989, 8), [0; 8]);
    }

    /// A message that no buffer waits for is received whole; buffers added later match only after
    /// software has reported it.
    fn an_unexpected_message_stops_matching_until_it_is_reported(link: Link) {
        let matching = Matching::new(link);
        matching.receive(50, 0);
        matching.receive(51, 0x1000);
        matching.add(1, 1, ALL_BITS, &mut [matching.sge(0x4000, 64)]);
        matching.send(&eager(2), 80);
        matching.expect_unexpected(50, 0);
        assert_eq!(matching.far.read(0, 80), matching.near.read(0, 80));
        let later = &mut [matching.sge(0x5000, 64)];
        matching.add_with(2, 2, ALL_BITS, later, IBV_WC_TM_SYNC_REQ);
        matching.send(&eager(1), 80);
        expect_match(&matching, 1, 1, 64);
        matching.send(&eager(2), 80);
        matching.expect_unexpected(51, IBV_WC_TM_SYNC_REQ);
        assert_eq!(matching.sync(1), IBV_WC_TM_SYNC_REQ);
        assert_eq!(matching.sync(2), 0);
        matching.send(&eager(2), 80);
        expect_match(&matching, 2, 2, 64);
    }

    /// Any list operation can report the unexpected messages; without the flag it does not.
    fn an_addition_can_report_unexpected_messages(link: Link) {
        let matching = Matching::new(link);
        matching.receive(50, 0);
        matching.send(&eager(2), 80);
        matching.expect_unexpected(50, 0);
        let mut sges = [matching.sge(0x4000, 64)];
        let mut add = add_op(1, 1, ALL_BITS, &mut sges);
        add.tm.unexpected_cnt = 1;
        assert_eq!(try_ops(matching.srq, &mut [add]), Ok(()));
        assert_eq!(matching.next().wc.wc_flags, IBV_WC_TM_SYNC_REQ);
        add.flags = IBV_OPS_TM_SYNC as i32;
        assert_eq!(try_ops(matching.srq, &mut [add]), Ok(()));
        matching.expect_nothing();
        matching.send(&eager(1), 80);
        expect_match(&matching, 1, 1, 64);
    }

    /// A message that finds neither a tagged buffer nor a receive is no unexpected one yet: it comes
    /// again, and a buffer added meanwhile gets it.
    fn a_message_without_any_receive_waits(link: Link) {
        let matching = Matching::new(link);
        matching.send(&eager(2), 80);
        matching.add(1, 2, ALL_BITS, &mut [matching.sge(0x4000, 64)]);
        expect_match(&matching, 1, 2, 64);
        matching.send(&eager(3), 80);
        matching.receive(50, 0);
        matching.expect_unexpected(50, 0);
    }

    /// A message without a tag takes an ordinary receive and counts as nothing: one that says so,
    /// one that is too short for its header, one of an unknown kind, the end of a rendezvous.
    fn a_message_without_a_tag_is_received_whole(link: Link) {
        let matching = Matching::new(link);
        matching.add(1, 0, 0, &mut [matching.sge(0x4000, 64)]);
        let kinds = [(0, 80), (3, 15), (3, 0), (1, 31), (4, 80), (255, 80), (2, 16)];
        for (wr_id, (kind, length)) in (50..).zip(kinds) {
            matching.receive(wr_id, 0);
            matching.send(&[kind], length);
            let done = matching.next();
            assert_eq!(done.summary(), (IBV_WC_SUCCESS, IBV_WC_TM_NO_TAG, wr_id));
            assert_eq!((done.wc.wc_flags, done.info), (0, (0, 0)));
            assert_eq!(done.wc.byte_len, length);
            let bytes = length as usize;
            assert_eq!(matching.far.read(0, bytes), matching.near.read(0, bytes));
        }
        matching.send(&eager(77), 16);
        expect_match(&matching, 1, 77, 0);
    }

    /// Immediate data comes with a message whether it matches or not, and a WRITE with immediate data
    /// takes an ordinary receive.
    fn immediate_data_comes_along(link: Link) {
        let matching = Matching::new(link);
        matching.receive(50, 0);
        matching.receive(51, 0);
        matching.add(1, 1, ALL_BITS, &mut [matching.sge(0x4000, 64)]);
        for tag in [1, 2] {
            matching.near.write(0, &eager(tag));
            let mut sges = [sge(matching.near.addr(), 80, matching.from)];
            let mut send = with_sges(wr(IBV_WR_SEND_WITH_IMM), &mut sges);
            send.imm.imm_data = 0x1234;
            post(matching.qa, &mut send);
            let done = matching.next();
            let (wr_id, flags) = if tag == 1 { (1, VALID) } else { (50, 0) };
            assert_eq!(done.summary(), (IBV_WC_SUCCESS, IBV_WC_TM_RECV, wr_id));
            assert_eq!(done.wc.wc_flags, IBV_WC_WITH_IMM | flags);
            // SAFETY: both members are plain words.
            assert_eq!(unsafe { done.wc.imm.imm_data }, 0x1234);
        }
        let mut sges = [sge(matching.near.addr(), 80, matching.from)];
        let (remote, key) = (matching.far.addr() + 0x6000, keys(matching.to).1);
        let mut write = rdma_wr(IBV_WR_RDMA_WRITE_WITH_IMM, &mut sges, remote, key);
        write.imm.imm_data = 0x1234;
        post(matching.qa, &mut write);
        let expected = (IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, 51);
        assert_eq!(matching.next().summary(), expected);
    }

    /// A buffer that waits can be removed, one that a message has taken cannot, and says so whether
    /// success is reported or not.
    /// Rules: WC-22
    fn a_buffer_that_was_taken_cannot_be_removed(link: Link) {
        let matching = Matching::new(link);
        matching.receive(50, 0);
        let first = matching.add(1, 1, ALL_BITS, &mut [matching.sge(0x4000, 64)]);
        let second = matching.add(2, 2, ALL_BITS, &mut [matching.sge(0x4000, 64)]);
        matching.send(&eager(1), 80);
        expect_match(&matching, 1, 1, 64);
        assert_eq!(matching.remove(first), IBV_WC_TM_ERR);
        let remove = ibv_ops_wr { flags: 0, ..op(IBV_WR_TAG_DEL, 5) };
        let with = |handle| ibv_ops_wr { tm: ibv_ops_wr_tm { handle, ..remove.tm }, ..remove };
        assert_eq!(try_ops(matching.srq, &mut [with(first), with(second)]), Ok(()));
        assert_eq!(matching.next().summary(), (IBV_WC_TM_ERR, IBV_WC_TM_DEL, 5));
        matching.expect_nothing();
        matching.send(&eager(2), 80);
        matching.expect_unexpected(50, 0);
        let third = matching.add_with(
            3, 3, ALL_BITS, &mut [matching.sge(0x4000, 64)], IBV_WC_TM_SYNC_REQ,
        );
        assert_eq!(matching.remove(third), IBV_WC_SUCCESS);
        assert_eq!(matching.remove(third), IBV_WC_TM_ERR);
    }

    /// Buffers removed while messages come in are either removed or filled, never both or neither.
    fn a_removal_and_a_message_exclude_each_other(link: Link) {
        let matching = Matching::new(link);
        for round in 0..100 {
            let handle = matching.add(1, 1, ALL_BITS, &mut [matching.sge(0x4000, 64)]);
            matching.send(&eager(1), 80);
            let mut remove = op(IBV_WR_TAG_DEL, 2);
            remove.tm.handle = handle;
            assert_eq!(try_ops(matching.srq, &mut [remove]), Ok(()));
            let (removed, received) = (IBV_WC_TM_DEL, (IBV_WC_SUCCESS, IBV_WC_TM_RECV, 1));
            let mut done = [matching.next(), Done::default()];
            if done[0].summary() == (IBV_WC_SUCCESS, removed, 2) {
                // The message comes again until it finds another.
                matching.add(1, 1, ALL_BITS, &mut [matching.sge(0x4000, 64)]);
                expect_match(&matching, 1, 1, 64);
            } else {
                done[1] = matching.next();
                let mut both = done.map(|done| done.summary());
                both.sort_unstable();
                assert_eq!(both, [received, (IBV_WC_TM_ERR, removed, 2)], "round {round}");
            }
            matching.a.expect(IBV_WC_SUCCESS);
        }
    }

    /// An unexpected message that its receive cannot take is seen by nobody, so it need not be
    /// reported.
    fn an_unexpected_message_that_fails_does_not_count(link: Link) {
        let matching = Matching::new(link);
        matching.receive(50, 0);
        matching.send(&eager(2), 5000);
        assert_eq!(matching.next().summary(), (IBV_WC_LOC_LEN_ERR, IBV_WC_TM_RECV, 50));
        matching.a.expect(IBV_WC_REM_INV_REQ_ERR);
        for qp in [matching.qa, matching.qb] {
            assert_eq!(set_state(qp, IBV_QPS_RESET), 0);
        }
        connect(matching.qa, matching.qb);
        matching.add(1, 2, ALL_BITS, &mut [matching.sge(0, 5000)]);
        matching.send(&eager(2), 5000);
        expect_match(&matching, 1, 2, 4984);
    }

    /// Messages of all queue pairs of a shared receive queue find the same buffers, and what one of
    /// them does not find stops matching for all.
    fn all_queue_pairs_share_the_buffers(link: Link) {
        let matching = Matching::new(link);
        let (a, b) = (&matching.a, &matching.b);
        let init = b.init(IBV_QPT_RC);
        let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp_with(&mut ibv_qp_init_attr { srq: matching.srq, ..init }));
        connect(qa, qb);
        matching.receive(50, 0);
        for wr_id in [1, 2] {
            matching.add(wr_id, 9, ALL_BITS, &mut [matching.sge(0, 64)]);
        }
        matching.near.write(0, &eager(9));
        let mut sges = [sge(matching.near.addr(), 80, matching.from)];
        for (wr_id, (qa, qb)) in [(qa, qb), (matching.qa, matching.qb)].into_iter().enumerate() {
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
            let done = matching.next();
            let expected = (IBV_WC_SUCCESS, IBV_WC_TM_RECV, wr_id as u64 + 1);
            assert_eq!((done.summary(), done.wc.qp_num), (expected, number(qb)));
        }
        post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
        matching.expect_unexpected(50, 0);
        matching.add_with(3, 9, ALL_BITS, &mut [matching.sge(0, 64)], IBV_WC_TM_SYNC_REQ);
        matching.receive(51, 0);
        matching.send(&eager(9), 80);
        matching.expect_unexpected(51, IBV_WC_TM_SYNC_REQ);
    }

    /// A message too long for its buffer, or for a buffer that is no longer registered, fails as any
    /// receive does.
    fn a_buffer_that_does_not_take_the_message_fails(link: Link) {
        for gone in [false, true] {
            let matching = Matching::new(link);
            matching.add(1, 1, ALL_BITS, &mut [matching.sge(0x4000, 63 + u32::from(gone))]);
            if gone {
                assert_eq!(dereg(matching.to), 0);
            }
            matching.send(&eager(1), 80);
            let (far, near) = if gone {
                (IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR)
            } else {
                (IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR)
            };
            assert_eq!(matching.next().summary(), (far, IBV_WC_TM_RECV, 1));
            matching.a.expect(near);
            assert_eq!(state(matching.qb), IBV_QPS_ERR);
        }
    }
}

/// A list that is full takes no more; what came before in the list of operations is done.
#[test]
fn a_full_list_takes_no_more() {
    let matching = Matching::new(Link::Loopback);
    let mut sges = [matching.sge(0, 64)];
    let add = ibv_ops_wr { flags: 0, ..add_op(1, 1, ALL_BITS, &mut sges) };
    let mut ops = vec![add; TAGS as usize + 2];
    assert_eq!(try_ops(matching.srq, &mut ops), Err((libc::ENOMEM, TAGS as usize)));
    let mut handles: Vec<_> = ops[..TAGS as usize].iter().map(|op| op.tm.handle).collect();
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), TAGS as usize);
    assert_eq!(matching.remove(handles[3]), IBV_WC_SUCCESS);
    assert_eq!(try_ops(matching.srq, &mut [add]), Ok(()));
}

/// Operations that mean nothing are refused and change nothing.
#[test]
fn senseless_operations_are_refused() {
    let matching = Matching::new(Link::Loopback);
    let mut sges = [matching.sge(0, 64); 5];
    let good = add_op(1, 1, ALL_BITS, &mut sges[..1]);
    let with = |num_sge, sg_list| {
        let mut add = good;
        (add.tm.add.num_sge, add.tm.add.sg_list) = (num_sge, sg_list);
        add
    };
    let list = sges.as_mut_ptr();
    let wrong = [
        ibv_ops_wr { opcode: 3, ..good },
        ibv_ops_wr { opcode: u32::MAX, ..good },
        ibv_ops_wr { flags: 4, ..good },
        ibv_ops_wr { flags: -1, ..good },
        with(5, list),
        with(-1, list),
        with(1, std::ptr::null_mut()),
    ];
    for wrong in wrong {
        assert_eq!(try_ops(matching.srq, &mut [wrong, good]), Err((libc::EINVAL, 0)), "{wrong:?}");
    }
    matching.expect_nothing();
    let plain = ibv_srq_init_attr_ex {
        srq_type: IBV_SRQT_BASIC,
        ..srq_attr(matching.b.pd, std::ptr::null_mut())
    };
    let plain = try_srq(matching.b.context, &plain).expect("a plain one");
    assert_eq!(try_ops(plain, &mut [good]), Err((libc::EINVAL, 0)));
}

/// List operations complete into a queue with an end: one too many, and it has overrun.
/// Rules: CQ-05
#[test]
fn list_operations_can_overrun_their_completion_queue() {
    let end = End::new(Default::default());
    let cq = try_cq(end.context, 1, std::ptr::null_mut()).expect("a queue");
    let srq = try_srq(end.context, &srq_attr(end.pd, cq)).expect("it is created");
    let qp = end.qp_with(&mut ibv_qp_init_attr { srq, ..end.init(IBV_QPT_RC) });
    take_to(&end, qp, IBV_QPS_RTS);
    // SAFETY: a live queue.
    let capacity = unsafe { (*cq).cqe } as usize;
    let mut ops = vec![op(IBV_WR_TAG_SYNC, 1); capacity];
    assert_eq!(try_ops(srq, &mut ops), Ok(()));
    assert!(!end.has_event());
    assert_eq!(try_ops(srq, &mut [op(IBV_WR_TAG_SYNC, 1)]), Ok(()));
    assert_eq!(end.event().0, IBV_EVENT_CQ_ERR);
    until("the queue pair to fall", || (state(qp) == IBV_QPS_ERR).then_some(()));
}

/// What makes no queue, or no queue pair for it, is refused; the completion queue is in use.
/// Rules: CR-12, CR-17
#[test]
fn a_queue_that_matches_tags_needs_what_it_needs() {
    let matching = Matching::new(Link::Loopback);
    let (b, cq) = (&matching.b, matching.cq.cast());
    let good = srq_attr(b.pd, cq);
    let caps = |max_num_tags, max_ops| ibv_srq_init_attr_ex {
        tm_cap: ibv_tm_cap { max_num_tags, max_ops },
        ..good
    };
    let without = |bit: u32| ibv_srq_init_attr_ex { comp_mask: good.comp_mask & !bit, ..good };
    let wrong = [
        caps(0, 1),
        caps(1, 0),
        caps(u32::MAX, 1),
        caps(1, u32::MAX),
        without(IBV_SRQ_INIT_ATTR_CQ),
        without(IBV_SRQ_INIT_ATTR_TM),
        ibv_srq_init_attr_ex { cq: std::ptr::null_mut(), ..good },
    ];
    for wrong in wrong {
        assert_eq!(try_srq(b.context, &wrong), Err(libc::EINVAL), "{wrong:?}");
    }
    let other = try_srq(b.context, &good).expect("it is good");
    let init = |kind| ibv_qp_init_attr { srq: other, ..b.init(kind) };
    for kind in [IBV_QPT_UC, IBV_QPT_UD] {
        assert_eq!(try_qp(b.pd, &mut init(kind)), Err(libc::EINVAL));
    }
    let other_pd = try_qp(b.another_pd(), &mut init(IBV_QPT_RC));
    assert_eq!(other_pd, Err(libc::EINVAL));
    // SAFETY: live objects.
    unsafe {
        assert_eq!(ibv_destroy_srq(matching.srq), libc::EBUSY);
        assert_eq!(ibv_destroy_qp(matching.qb), 0);
        assert_eq!(ibv_destroy_srq(matching.srq), 0);
        assert_eq!(ibv_destroy_cq(cq), libc::EBUSY);
        assert_eq!(ibv_destroy_srq(other), 0);
        assert_eq!(ibv_destroy_cq(cq), 0);
    }
}
