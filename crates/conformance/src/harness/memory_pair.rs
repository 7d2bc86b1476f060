//! A pair with a buffer at each end, and one-sided operations between them.

use std::ffi::c_int;

use transom_abi::*;

use super::*;

/// A connected RC pair. `near` is the origin's buffer, `far` the target's.
pub struct MemoryPair {
    /// The ends and their queue pairs.
    pub pair: Pair,
    /// The origin's buffer.
    pub near: Buffer,
    /// The target's buffer.
    pub far: Buffer,
    /// The region over all of `near`.
    pub ma: *mut ibv_mr,
    /// The region over all of `far`.
    pub mb: *mut ibv_mr,
}

impl MemoryPair {
    /// A pair with buffers of at least `length` bytes, filled differently, and all rights.
    pub fn new(link: Link, length: usize) -> Self {
        Self::of(Pair::rc(link), length)
    }

    /// The same over an existing pair.
    pub fn of(pair: Pair, length: usize) -> Self {
        let (near, far) = (Buffer::filled(length, 3), Buffer::filled(length, 101));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        Self { pair, near, far, ma, mb }
    }

    /// The key of all of the target's buffer.
    pub fn key(&self) -> u32 {
        keys(self.mb).1
    }

    /// This many bytes of the origin's buffer, from `at` on.
    pub fn near_sge(&self, at: u64, length: u32) -> ibv_sge {
        sge(self.near.addr() + at, length, self.ma)
    }

    /// This many bytes of the target's buffer, from `at` on.
    pub fn far_sge(&self, at: u64, length: u32) -> ibv_sge {
        sge(self.far.addr() + at, length, self.mb)
    }

    /// Posts an operation with the first `length` bytes of `near`; see [`MemoryPair::op_on`].
    pub fn post_op(
        &self,
        qp: *mut ibv_qp,
        opcode: ibv_wr_opcode,
        remote: u64,
        key: u32,
        length: u32,
    ) {
        let mut sges = [sge(self.near.addr(), length, self.ma)];
        let mut wr = match opcode {
            IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP => {
                atomic_wr(opcode, &mut sges, remote, key, 1, 0)
            }
            _ => rdma_wr(opcode, &mut sges, remote, key),
        };
        post(qp, &mut wr);
    }

    /// Carries out an operation with the first `length` bytes of `near` from an origin queue pair, and waits for its
    /// completion. A fetch-and-add adds 1. A compare-and-swap replaces 1 by 0. A SEND ignores `remote` and `key`.
    pub fn op_on(
        &self,
        qp: *mut ibv_qp,
        opcode: ibv_wr_opcode,
        remote: u64,
        key: u32,
        length: u32,
    ) -> ibv_wc {
        self.post_op(qp, opcode, remote, key, length);
        self.pair.a.wait()
    }

    /// [`MemoryPair::op_on`] with the pair's own queue pairs.
    pub fn op(&self, opcode: ibv_wr_opcode, remote: u64, key: u32, length: u32) -> ibv_wc {
        self.op_on(self.pair.qa, opcode, remote, key, length)
    }

    /// A new pair of queue pairs, connected with these attributes, except for the addresses.
    pub fn connected(
        &self,
        origin: impl Fn(&mut ibv_qp_attr),
        target: impl Fn(&mut ibv_qp_attr),
    ) -> (*mut ibv_qp, *mut ibv_qp) {
        let (qa, qb) = (self.pair.a.qp(IBV_QPT_RC), self.pair.b.qp(IBV_QPT_RC));
        for (qp, peer, change) in
            [(qb, qa, &target as &dyn Fn(&mut ibv_qp_attr)), (qa, qb, &origin)]
        {
            let mut attr = usual_attr(peer);
            change(&mut attr);
            bring_up(qp, &attr);
        }
        (qa, qb)
    }

    /// A receive into the first `length` bytes of the target's buffer.
    pub fn recv(&self, qp: *mut ibv_qp, wr_id: u64, length: u32) {
        recv(qp, wr_id, &mut [sge(self.far.addr(), length, self.mb)]);
    }

    /// A region of the target over part of its buffer.
    pub fn part(&self, at: usize, length: usize, access: c_int) -> *mut ibv_mr {
        try_reg(self.pair.b.pd, self.far.addr() + at as u64, length, access).expect("a region")
    }

    /// The present bytes of both buffers: the origin's, the target's.
    pub fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        (self.near.read(0, self.near.len()), self.far.read(0, self.far.len()))
    }
}
