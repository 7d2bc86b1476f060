//! Tag matching of messages whose data is read from their sender.

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::tag_matching::*;
use transom_wire::tmh::{TagHeader, TagOperation};

const ALL_BITS: u64 = u64::MAX;

/// The next is the match of a request, and no data yet.
fn expect_match(matching: &Matching, wr_id: u64, tag: u64) {
    let done = matching.next();
    assert_eq!(done.summary(), (IBV_WC_SUCCESS, IBV_WC_TM_RECV, wr_id));
    assert_eq!((done.wc.wc_flags, done.info), (IBV_WC_TM_MATCH, (tag, CONTEXT)));
    assert_eq!(done.wc.byte_len, 0);
}

/// The next is the data.
fn expect_data(matching: &Matching, wr_id: u64, length: u32) {
    let done = matching.next();
    assert_eq!(done.summary(), (IBV_WC_SUCCESS, IBV_WC_TM_RECV, wr_id));
    assert_eq!((done.wc.wc_flags, done.info), (IBV_WC_TM_DATA_VALID, (0, 0)));
    assert_eq!(done.wc.byte_len, length);
}

on_each_link! {
    /// The device reads the data of a matched request into the tagged buffer, and tells the sender
    /// with the request's tag and context.
    fn the_device_reads_the_data_and_tells_the_sender(link: Link) {
        let matching = Matching::new(link);
        for length in [0, 100, 700_000] {
            let mut sges = [matching.sge(3, 50), matching.sge(0x1000, 800_000)];
            matching.add(1, 5, ALL_BITS, &mut sges);
            matching.far.fill(0);
            matching.request(5, 0x2000, length, 0x800);
            expect_match(&matching, 1, 5);
            expect_data(&matching, 1, length);
            let (length, sent) = (length as usize, matching.near.read(0x2000, length as usize));
            let front = length.min(50);
            assert!(matching.far.read(3, front) == sent[..front]);
            assert!(matching.far.read(0x1000, length - front) == sent[front..]);
            assert_eq!(matching.far.read(0x1000 + length - front, 8), [0; 8]);
            // The SEND, and the answer in the receive that was posted for it.
            let (first, second) = (matching.a.wait(), matching.a.wait());
            let mut done = [first, second].map(|wc| (wc.opcode, wc.status, wc.wr_id, wc.byte_len));
            done.sort_unstable();
            assert_eq!((done[0].0, done[0].1), (IBV_WC_SEND, IBV_WC_SUCCESS));
            assert_eq!(done[1], (IBV_WC_RECV, IBV_WC_SUCCESS, 85, 16));
            let told = matching.near.read(0x800, 16).try_into().unwrap();
            let expected =
                TagHeader { operation: TagOperation::Finished, context: CONTEXT, tag: 5 };
            assert_eq!(TagHeader::read(&told), Some(expected));
        }
        matching.b.expect_nothing();
    }

    /// A request that matches nothing is unexpected, and received whole with what it brings beside.
    fn a_request_that_matches_nothing_is_received_whole(link: Link) {
        let matching = Matching::new(link);
        matching.receive(50, 0);
        matching.send(&rendezvous(5, matching.near.addr(), keys(matching.from).1, 100), 90);
        matching.expect_unexpected(50, 0);
        assert_eq!(matching.far.read(0, 90), matching.near.read(0, 90));
    }

    /// More requests than the device can have under way at once wait for each other; none is lost.
    fn many_requests_are_all_served(link: Link) {
        let matching = Matching::new(link);
        let count = 50;
        for tag in 0..count {
            let at = 0x1000 * tag as usize;
            matching.add(tag, tag, ALL_BITS, &mut [matching.sge(at, 0x1000)]);
        }
        for tag in 0..count {
            // Not where the requests are written, for answers come while later ones are posted.
            recv(matching.qa, 80 + tag, &mut [sge(matching.near.addr() + 0x800, 16, matching.from)]);
        }
        for tag in 0..count {
            // Inline: the next request overwrites the headers.
            let address = matching.near.addr() + 0x1000 * (1 + tag);
            matching.near.write(0, &rendezvous(tag, address, keys(matching.from).1, 0x1000));
            let mut sges = [sge(matching.near.addr(), 32, matching.from)];
            let mut send = with_sges(wr(IBV_WR_SEND), &mut sges);
            send.send_flags |= IBV_SEND_INLINE;
            post(matching.qa, &mut send);
        }
        let mut seen = vec![0; count as usize];
        while seen.iter().any(|&seen| seen < 2) {
            let done = matching.next();
            assert_eq!((done.wc.status, done.wc.opcode), (IBV_WC_SUCCESS, IBV_WC_TM_RECV));
            let expected = [IBV_WC_TM_MATCH, IBV_WC_TM_DATA_VALID];
            let times = &mut seen[done.wc.wr_id as usize];
            assert_eq!(done.wc.wc_flags, expected[*times]);
            *times += 1;
        }
        for tag in 0..count as usize {
            let at = 0x1000 * tag;
            assert!(matching.far.read(at, 0x1000) == matching.near.read(at + 0x1000, 0x1000));
        }
        for _ in 0..2 * count {
            matching.a.expect(IBV_WC_SUCCESS);
        }
    }

    /// A READ that the sender's keys do not allow ends the rendezvous once, with its status.
    fn a_refused_read_ends_the_rendezvous(link: Link) {
        let matching = Matching::new(link);
        matching.far.fill(9);
        matching.add(1, 5, ALL_BITS, &mut [matching.sge(0, 100)]);
        recv(matching.qa, 80, &mut []);
        let key = keys(matching.from).1 ^ 1;
        matching.send(&rendezvous(5, matching.near.addr(), key, 100), 32);
        expect_match(&matching, 1, 5);
        assert_eq!(matching.next().summary(), (IBV_WC_REM_ACCESS_ERR, IBV_WC_TM_RECV, 1));
        matching.expect_nothing();
        assert!(matching.far.is_all(9));
        assert_eq!((state(matching.qa), state(matching.qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
    }

    /// A queue pair that may have no READ under way cannot read the data.
    fn a_queue_pair_that_does_not_read_ends_the_rendezvous(link: Link) {
        let matching = Matching::unconnected(link);
        bring_up(matching.qa, &usual_attr(matching.qb));
        let attr = ibv_qp_attr { max_rd_atomic: 0, ..usual_attr(matching.qa) };
        bring_up(matching.qb, &attr);
        matching.add(1, 5, ALL_BITS, &mut [matching.sge(0, 100)]);
        matching.request(5, 0x2000, 100, 0x800);
        expect_match(&matching, 1, 5);
        assert_eq!(matching.next().summary(), (IBV_WC_LOC_QP_OP_ERR, IBV_WC_TM_RECV, 1));
        matching.expect_nothing();
    }

    /// Data that is longer than the tagged buffer, or a buffer that is not registered any more, fails.
    fn a_buffer_that_does_not_take_the_data_fails(link: Link) {
        for gone in [false, true] {
            let matching = Matching::new(link);
            matching.add(1, 5, ALL_BITS, &mut [matching.sge(0, 99 + u32::from(gone))]);
            if gone {
                assert_eq!(dereg(matching.to), 0);
            }
            matching.request(5, 0, 100, 0x800);
            if gone {
                expect_match(&matching, 1, 5);
                assert_eq!(matching.next().summary(), (IBV_WC_LOC_PROT_ERR, IBV_WC_TM_RECV, 1));
            } else {
                assert_eq!(matching.next().summary(), (IBV_WC_LOC_LEN_ERR, IBV_WC_TM_RECV, 1));
                matching.a.expect(IBV_WC_REM_INV_REQ_ERR);
            }
            matching.expect_nothing();
            assert_eq!(state(matching.qb), IBV_QPS_ERR);
        }
    }

    /// A rendezvous waits until its queue pair sends, and is flushed if that ends in error.
    fn a_rendezvous_waits_for_the_send_queue(link: Link) {
        let matching = Matching::unconnected(link);
        bring_up(matching.qa, &usual_attr(matching.qb));
        let attr = usual_attr(matching.qa);
        assert_eq!(modify(matching.qb, &attr, IBV_QPS_INIT), 0);
        assert_eq!(modify(matching.qb, &attr, IBV_QPS_RTR), 0);
        for tag in [5, 6] {
            matching.add(tag, tag, ALL_BITS, &mut [matching.sge(0, 100)]);
        }
        matching.request(5, 0x2000, 100, 0x800);
        expect_match(&matching, 5, 5);
        matching.expect_nothing();
        assert_eq!(modify(matching.qb, &attr, IBV_QPS_RTS), 0);
        expect_data(&matching, 5, 100);
        assert_eq!(matching.far.read(0, 100), matching.near.read(0x2000, 100));

        assert_eq!(set_state(matching.qb, IBV_QPS_SQD), 0);
        matching.request(6, 0x2000, 100, 0x800);
        expect_match(&matching, 6, 6);
        matching.expect_nothing();
        assert_eq!(set_state(matching.qb, IBV_QPS_ERR), 0);
        assert_eq!(matching.next().summary(), (IBV_WC_WR_FLUSH_ERR, IBV_WC_TM_RECV, 6));
        matching.expect_nothing();
    }

    /// A program looks for no receive behind the event of the last.
    /// Rules: ST-22
    fn a_rendezvous_ends_before_the_event_of_the_last_receive(link: Link) {
        let matching = Matching::new(link);
        matching.add(1, 5, ALL_BITS, &mut [matching.sge(0, 100)]);
        assert_eq!(set_state(matching.qb, IBV_QPS_SQD), 0);
        matching.request(5, 0x2000, 100, 0x800);
        expect_match(&matching, 1, 5);
        let mut sges = [sge(matching.near.addr(), 8, matching.from)];
        post(matching.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, 0x1000, 0x1234_5678));
        // Nobody polls at the receiver.
        for event in [IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED] {
            assert_eq!(matching.b.event(), (event, matching.qb.cast()));
        }
        let done = take_batch(matching.cq, |cq| (read_wc(cq).wr_id, read_wc(cq).status));
        assert_eq!(done, [(1, IBV_WC_WR_FLUSH_ERR)]);
    }

    /// A queue pair that is reset forgets its rendezvous, and works when it is connected again.
    fn a_reset_forgets_what_waits(link: Link) {
        let matching = Matching::new(link);
        matching.add(1, 5, ALL_BITS, &mut [matching.sge(0, 100)]);
        assert_eq!(set_state(matching.qb, IBV_QPS_SQD), 0);
        matching.request(5, 0x2000, 100, 0x800);
        expect_match(&matching, 1, 5);
        for qp in [matching.qa, matching.qb] {
            assert_eq!(set_state(qp, IBV_QPS_RESET), 0);
        }
        connect(matching.qa, matching.qb);
        matching.expect_nothing();
        matching.add(2, 5, ALL_BITS, &mut [matching.sge(0, 100)]);
        matching.request(5, 0x2000, 100, 0x800);
        expect_match(&matching, 2, 5);
        expect_data(&matching, 2, 100);
    }
}
