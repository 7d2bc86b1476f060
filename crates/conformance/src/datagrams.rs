//! Helpers for the tests of datagrams: address handles, UD queue pairs, and sends between them.

use transom_abi::*;

pub use crate::address_handles::*;
use crate::harness::*;
use crate::queues::*;

/// The Q_Key of UD queue pairs, unless a test sets another.
pub const QKEY: u32 = 0x1111_1111;

/// The bytes before the payload of a received datagram.
pub const GRH: usize = 40;

/// Moves a UD queue pair from RESET to RTS.
pub fn bring_up_ud(qp: *mut ibv_qp, qkey: u32) {
    bring_up(qp, &ibv_qp_attr { qkey, port_num: 1, sq_psn: 5, ..ibv_qp_attr::default() });
}

/// A UD queue pair in RTS.
pub fn ud_qp(end: &End) -> *mut ibv_qp {
    let qp = end.qp(IBV_QPT_UD);
    bring_up_ud(qp, QKEY);
    qp
}

/// UD queue pairs of two ends, in RTS, with buffers.
pub struct DatagramPair {
    /// The ends and their UD queue pairs.
    pub pair: Pair,
    /// The address of the target, in the origin's domain.
    pub ah: *mut ibv_ah,
    /// The origin's buffer.
    pub near: Buffer,
    /// The target's buffer.
    pub far: Buffer,
    /// The region over all of `near`.
    pub ma: *mut ibv_mr,
    /// The region over all of `far`.
    pub mb: *mut ibv_mr,
    follower: Follower,
}

impl DatagramPair {
    /// Two ends over a link.
    pub fn new(link: Link) -> Self {
        Self::with(link, |_, _| ())
    }

    /// Two ends. `change` changes the creation attributes of the target's queue pair.
    pub fn with(link: Link, change: impl FnOnce(&End, &mut ibv_qp_init_attr)) -> Self {
        let (a, b) = ends(link, Default::default());
        let mut init = b.init(IBV_QPT_UD);
        change(&b, &mut init);
        let (qa, qb) = (ud_qp(&a), b.qp_with(&mut init));
        bring_up_ud(qb, QKEY);
        let (near, far) = (Buffer::filled(3 * 4096, 3), Buffer::new(3 * 4096));
        let (ma, mb) = (a.reg(&near, ALL), b.reg(&far, ALL));
        let follower = Follower::new(&a, &b);
        let ah = ah(a.pd, &here());
        Self { pair: Pair { a, b, qa, qb }, ah, near, far, ma, mb, follower }
    }

    /// Posts a receive of the target into the first `room` bytes of its buffer.
    pub fn recv(&self, wr_id: u64, room: u32) {
        recv(self.pair.qb, wr_id, &mut [sge(self.far.addr(), room, self.mb)]);
    }

    /// Posts a datagram of the first `length` bytes of the origin's buffer, to the target.
    pub fn post(&self, wr: ibv_send_wr, length: u32) {
        self.post_to(wr, length, number(self.pair.qb), QKEY);
    }

    /// The same to any queue pair, with any Q_Key.
    pub fn post_to(&self, wr: ibv_send_wr, length: u32, qpn: u32, qkey: u32) {
        let mut sges = [sge(self.near.addr(), length, self.ma)];
        let wr = with_sges(wr, if length == 0 { &mut [] } else { &mut sges });
        post(self.pair.qa, &mut addressed(wr, self.ah, qpn, qkey));
    }

    /// Sends a datagram to the target. It succeeds as far as the origin knows.
    pub fn send(&self, length: u32) {
        self.post(wr(IBV_WR_SEND), length);
        self.sent();
    }

    /// The origin's next completion is a successful SEND.
    pub fn sent(&self) {
        let wc = self.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode), (1, IBV_WC_SEND));
    }

    /// The target has received none of the datagrams that were sent before.
    pub fn nothing_came(&self) {
        self.follower.follow();
        self.pair.b.expect_nothing();
    }

    /// The target's next completion is a datagram of `length` bytes in this receive. They are the bytes of
    /// the origin's buffer.
    pub fn came(&self, wr_id: u64, length: u32) -> ibv_wc {
        let wc = self.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode), (wr_id, IBV_WC_RECV));
        assert_eq!(wc.byte_len, GRH as u32 + length);
        let length = length as usize;
        assert!(self.far.read(GRH, length) == self.near.read(0, length), "the bytes");
        wc
    }
}
