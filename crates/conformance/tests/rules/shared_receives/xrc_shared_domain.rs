//! XRC domains shared by file between devices, as processes have them: a message may come on a
//! connection whose receiving end is one device's, for the shared receive queue of another.

use std::os::fd::AsRawFd;

use transom_abi::*;
use transom_conformance::access::end_qp;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::processes::file_without_name;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;

/// A sender, a device with the receiving end of its connection, and a third with a queue of the same
/// domain.
struct Triangle {
    origin: End,
    target: End,
    third: End,
    qa: *mut ibv_qp,
    qb: *mut ibv_qp,
    /// A queue of the target's device and one of the third.
    srqs: [*mut ibv_srq; 2],
    near: Buffer,
    far: Buffer,
    ma: *mut ibv_mr,
    /// Regions over `far`, one in the domain of each queue.
    mrs: [*mut ibv_mr; 2],
}

impl Triangle {
    /// `shared` says whether the third opens the same file.
    fn new(link: Link, shared: bool) -> Self {
        let (origin, target) = ends(link, Default::default());
        // A device of its own on every link, since it stands for another process.
        let options = match link {
            Link::Rings => transom_host::Options {
                copying: transom_host::Copying::Rings,
                ..Default::default()
            },
            _ => Default::default(),
        };
        let third = End::new(options);
        let (one, other) = (file_without_name(), file_without_name());
        let of_third = if shared { &one } else { &other };
        let domains = [(&target, &one), (&third, of_third)].map(|(end, file)| {
            try_xrcd(end.context, file.as_raw_fd(), libc::O_CREAT).expect("a domain")
        });
        let srqs = [(&target, domains[0]), (&third, domains[1])].map(|(end, xrcd)| {
            try_srq_ex(end.context, &xrc_srq_init(end.pd, xrcd, end.cq)).expect("a queue")
        });
        let (qa, qb) = (origin.qp(IBV_QPT_XRC_SEND), xrc_target(target.context, domains[0]));
        connect(qa, qb);
        let (near, far) = (Buffer::filled(1 << 20, 7), Buffer::new(1 << 20));
        let ma = origin.reg(&near, ALL);
        let mrs = [target.reg(&far, ALL), third.reg(&far, ALL)];
        Self { origin, target, third, qa, qb, srqs, near, far, ma, mrs }
    }

    fn receive(&self, which: usize, wr_id: u64, at: u64, length: u32) {
        srq_recv(
            self.srqs[which],
            wr_id,
            &mut [sge(self.far.addr() + at, length, self.mrs[which])],
        );
    }

    fn send(&self, which: usize, at: u64, length: u32) {
        let mut element = [sge(self.near.addr() + at, length, self.ma)];
        let wr = with_sges(wr(IBV_WR_SEND), &mut element);
        post(self.qa, &mut naming(wr, srq_number(self.srqs[which])));
    }

    fn end(&self, which: usize) -> &End {
        if which == 0 { &self.target } else { &self.third }
    }
}

on_each_link! {
    /// Messages go to the queue they name, in any process, each to where its receive says and in
    /// order, long ones included.
    fn messages_reach_the_queue_of_another_device(link: Link) {
        if link == Link::Wire {
            return; // Packets go to the process that made the receiving end.
        }
        let t = Triangle::new(link, true);
        // More than goes in one piece, also between queue pairs of one device.
        let long = 300_000;
        for round in 0..20_u64 {
            let which = (round % 3 == 0) as usize;
            let length = if round % 4 == 0 { long } else { 100 };
            t.receive(which, round, (round % 4) * 250_000, length);
            t.send(which, round, length);
            let wc = t.end(which).expect(IBV_WC_SUCCESS);
            // SAFETY: a live queue pair.
            let number = unsafe { (*t.qb).qp_num };
            assert_eq!((wc.wr_id, wc.byte_len, wc.qp_num), (round, length, number));
            t.origin.expect(IBV_WC_SUCCESS);
            let at = (round % 4) as usize * 250_000;
            let sent = t.near.read(round as usize, length as usize);
            assert!(t.far.read(at, length as usize) == sent, "round {round}");
        }
        t.target.expect_nothing();
        t.third.expect_nothing();
    }

    /// Posted all at once, they complete in order, though they go different ways.
    fn messages_on_different_ways_keep_their_order(link: Link) {
        if link == Link::Wire {
            return; // Packets go to the process that made the receiving end.
        }
        let t = Triangle::new(link, true);
        for round in 0..40_u64 {
            t.receive((round % 2) as usize, round, round * 16, 16);
        }
        for round in 0..40_u64 {
            t.near.write(round as usize * 16, &round.to_ne_bytes());
            t.send((round % 2) as usize, round * 16, 16);
        }
        for round in 0..40_u64 {
            t.origin.expect(IBV_WC_SUCCESS);
            assert_eq!(t.end((round % 2) as usize).expect(IBV_WC_SUCCESS).wr_id, round);
        }
        for round in 0..40 {
            assert_eq!(t.far.read(round * 16, 8), (round as u64).to_ne_bytes());
        }
    }

    /// An empty queue makes the sender wait, by the timer of the receiving end.
    fn an_empty_queue_of_another_device_is_not_ready(link: Link) {
        if link == Link::Wire {
            return; // Packets go to the process that made the receiving end.
        }
        let t = Triangle::new(link, true);
        t.send(1, 0, 8);
        for _ in 0..100 {
            t.origin.expect_nothing();
            t.third.expect_nothing();
        }
        t.receive(1, 5, 0, 8);
        assert_eq!(t.third.expect(IBV_WC_SUCCESS).wr_id, 5);
        t.origin.expect(IBV_WC_SUCCESS);
    }

    /// Keys of one-sided operations are those of the named queue's device and domain.
    fn keys_are_those_of_the_named_queue(link: Link) {
        if link == Link::Wire {
            return; // Packets go to the process that made the receiving end.
        }
        let t = Triangle::new(link, true);
        t.near.write(0, b"eight...");
        let write = |key, which: usize| {
            let mut element = [sge(t.near.addr(), 8, t.ma)];
            let wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut element, t.far.addr() + 64, key);
            post(t.qa, &mut naming(wr, srq_number(t.srqs[which])));
            t.origin.wait().status
        };
        assert_eq!(write(keys(t.mrs[1]).1, 1), IBV_WC_SUCCESS);
        assert_eq!(t.far.read(64, 8), b"eight...");
        assert_eq!(write(keys(t.mrs[0]).1, 1), IBV_WC_REM_ACCESS_ERR);
        // The receiving end has failed, and its own device knows.
        assert_eq!(state(t.qb), IBV_QPS_ERR);
    }

    /// A queue of another file's domain is not reached.
    fn another_file_is_another_domain(link: Link) {
        let t = Triangle::new(link, false);
        t.receive(1, 1, 0, 8);
        t.send(1, 0, 8);
        t.origin.expect(IBV_WC_REM_INV_REQ_ERR);
        t.third.expect_nothing();
    }
}

/// What ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Error,
    Reset,
    Destroyed,
}

/// The receive of a message that its sender has broken off.
/// Rules: ST-22, SQ-10
#[test]
fn a_receive_that_another_device_has_taken_comes_back_when_the_connection_ends() {
    const LONG: usize = 64 << 20;
    for ending in [Ending::Error, Ending::Reset, Ending::Destroyed] {
        let t = Triangle::new(Link::Rings, true);
        let (near, far) = (Buffer::new(LONG), Buffer::new(LONG));
        let (ma, mb) = (t.origin.reg(&near, ALL), t.third.reg(&far, ALL));
        far.write(0, &[1]);
        let receive = || try_srq_recv(t.srqs[1], 5, &mut [sge(far.addr(), LONG as u32, mb)]);
        assert_eq!(receive(), 0);
        let mut sges = [sge(near.addr(), LONG as u32, ma)];
        let send = with_sges(wr(IBV_WR_SEND), &mut sges);
        post(t.qa, &mut naming(send, srq_number(t.srqs[1])));
        // Its first bytes fill the ring.
        assert_eq!(set_state(t.qa, IBV_QPS_ERR), 0);
        t.origin.expect(IBV_WC_WR_FLUSH_ERR);
        until("its first bytes", || (far.read(0, 1) == [0]).then_some(()));
        let posted = (0..).find(|_| receive() == libc::ENOMEM).expect("a queue is full some time");
        // SAFETY: a live queue pair.
        let number = unsafe { (*t.qb).qp_num };
        match ending {
            Ending::Error => {
                assert_eq!(set_state(t.qb, IBV_QPS_ERR), 0);
                let wc = t.third.expect(IBV_WC_WR_FLUSH_ERR);
                assert_eq!((wc.wr_id, wc.qp_num), (5, number));
            }
            Ending::Reset => assert_eq!(set_state(t.qb, IBV_QPS_RESET), 0),
            Ending::Destroyed => end_qp(t.qb),
        }
        until("its place in the queue", || (receive() == 0).then_some(()));
        assert_eq!(receive(), libc::ENOMEM, "{ending:?}, {posted} others");
        t.third.expect_nothing();
    }
}
