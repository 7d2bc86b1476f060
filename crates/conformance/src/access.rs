//! Remote accesses through a key, with their expected results: bytes in the right place, or all effects of a violation
//! (rules RA-40 to RA-45).

use std::ffi::c_int;
use std::ptr::null_mut;

use strum::{EnumCount, VariantArray};
use transom_abi::*;
use transom_ibverbs::ibv_destroy_qp;
use transom_system::rehearsal;

use crate::harness::*;

/// An operation that touches the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantArray)]
pub enum Op {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// Fetch-and-add of 8 bytes.
    Add,
}

impl Op {
    /// All operations.
    pub const ALL: [Self; Self::COUNT] =
        *Self::VARIANTS.first_chunk().expect("as many as there are");

    /// The right that it needs.
    pub const fn needs(self) -> u32 {
        match self {
            Self::Read => IBV_ACCESS_REMOTE_READ,
            Self::Write => IBV_ACCESS_REMOTE_WRITE,
            Self::Add => IBV_ACCESS_REMOTE_ATOMIC,
        }
    }
}

/// Two connected queue pairs, the origin's first.
pub type Qps = (*mut ibv_qp, *mut ibv_qp);

impl MemoryPair {
    /// Two pages of target memory with all rights, for windows to be bound to.
    pub fn pages(link: Link) -> Self {
        Self::granting(link, 8192, ALL)
    }

    /// Target memory of this length, registered with these rights.
    pub fn granting(link: Link, length: usize, access: c_int) -> Self {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::new(length), Buffer::filled(length, 7));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, access));
        Self { pair, near, ma, far, mb }
    }

    /// The first pair of queue pairs.
    pub fn qps(&self) -> Qps {
        (self.pair.qa, self.pair.qb)
    }

    /// Another pair of queue pairs.
    pub fn more(&self) -> Qps {
        self.pair.another(IBV_QPT_RC)
    }

    /// Resets failed queue pairs and connects them again. Drops completions that still wait.
    pub fn reconnect(&self, qps: Qps) {
        assert_eq!((set_state(qps.0, IBV_QPS_RESET), set_state(qps.1, IBV_QPS_RESET)), (0, 0));
        for cq in [self.pair.a.cq, self.pair.b.cq] {
            while poll(cq).is_some() {}
        }
        connect(qps.0, qps.1);
    }

    /// Part of the target's memory.
    pub fn range(&self, at: usize, length: u64, access: u32) -> Range {
        Range { mr: self.mb, addr: self.far.addr() + at as u64, length, access }
    }

    /// A window of this type, bound by the target's first queue pair.
    pub fn bound(&self, kind: ibv_mw_type, range: Range) -> (*mut ibv_mw, u32) {
        let mw = self.pair.b.mw(kind);
        let key = bind(&self.pair.b, self.pair.qb, mw, range);
        (mw, key)
    }

    /// Posts the operation and returns the status of its completion. Nothing may complete at the target.
    pub fn attempt(&self, qps: Qps, op: Op, addr: u64, length: u32, key: u32) -> ibv_wc_status {
        let mut sges = [sge(self.near.addr(), length, self.ma)];
        post(qps.0, &mut op_wr(op, &mut sges, addr, key));
        let wc = until("the access", || {
            assert_eq!(poll(self.pair.b.cq).map(|wc| wc.status), None);
            poll(self.pair.a.cq)
        });
        // SAFETY: a live queue pair.
        assert_eq!((wc.wr_id, wc.qp_num), (1, unsafe { (*qps.0).qp_num }));
        wc.status
    }

    /// The operation succeeds on these queue pairs and moves the right bytes. The addresses are those of the
    /// target's memory.
    pub fn allowed_on(&self, qps: Qps, op: Op, addr: u64, length: u32, key: u32) {
        let (place, size) = ((addr - self.far.addr()) as usize, length as usize);
        let mut expected = self.far.read(0, self.far.len());
        let fresh: Vec<u8> = expected[place..place + size].iter().map(|byte| !byte).collect();
        self.near.write(0, &fresh);
        let status = self.attempt(qps, op, addr, length, key);
        assert_eq!(status, IBV_WC_SUCCESS, "{op:?} of {length} bytes at {place}");
        match op {
            Op::Read => {}
            Op::Write => expected[place..place + size].copy_from_slice(&fresh),
            Op::Add => {
                let old = u64::from_ne_bytes(expected[place..place + 8].try_into().expect("8"));
                assert_eq!(self.near.word(0), old, "the old value comes back");
                expected[place..place + 8].copy_from_slice(&(old.wrapping_add(5)).to_ne_bytes());
            }
        }
        let is_there = || self.far.read(0, self.far.len()) == expected;
        if op == Op::Write && rehearsal::on().is_some() {
            // It is complete, and need not be seen yet (rule REH-90).
            until("what was written", || is_there().then_some(()));
        }
        assert!(is_there(), "{op:?} at {place}: the bytes");
        if op == Op::Read {
            assert!(self.near.read(0, size) == expected[place..place + size], "READ at {place}");
        }
    }

    /// The operation fails remotely on these queue pairs, which are then in error (rules RA-40 to RA-45).
    pub fn refused_on(&self, qps: Qps, op: Op, addr: u64, length: u32, key: u32) {
        let before = (self.near.read(0, self.near.len()), self.far.read(0, self.far.len()));
        let status = self.attempt(qps, op, addr, length, key);
        assert_eq!(status, IBV_WC_REM_ACCESS_ERR, "{op:?} of {length} bytes at {addr:#x}");
        assert_eq!((state(qps.0), state(qps.1)), (IBV_QPS_ERR, IBV_QPS_ERR));
        assert_eq!(self.pair.b.event(), (IBV_EVENT_QP_ACCESS_ERR, qps.1.cast()));
        let mut after = (self.near.read(0, self.near.len()), self.far.read(0, self.far.len()));
        let size = (length as usize).min(self.near.len());
        if op == Op::Read && rehearsal::on().is_some() && is_rubbish(&after.0[..size]) {
            // Only a success says what the target of a READ holds (rule REH-13).
            after.0[..size].copy_from_slice(&before.0[..size]);
        }
        assert!(before == after, "a refused {op:?} moved bytes");
    }

    /// [`MemoryPair::allowed_on`] with queue pairs of its own.
    pub fn allowed(&self, op: Op, addr: u64, length: u32, key: u32) {
        let qps = self.more();
        self.allowed_on(qps, op, addr, length, key);
        end_qps(qps);
    }

    /// [`MemoryPair::refused_on`] with queue pairs of its own.
    pub fn refused(&self, op: Op, addr: u64, length: u32, key: u32) {
        let qps = self.more();
        self.refused_on(qps, op, addr, length, key);
        end_qps(qps);
    }

    /// The target refuses every operation on 8 bytes, each on queue pairs of its own.
    pub fn all_refused(&self, addr: u64, key: u32) {
        for op in Op::ALL {
            self.refused(op, addr, 8, key);
        }
    }
}

/// Whether these bytes can be those of a rehearsal that scribbles on targets: all are the same.
fn is_rubbish(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == bytes[0])
}

/// The request for an operation on one SGE. An [`Op::Add`] adds 5.
pub fn op_wr(op: Op, sges: &mut [ibv_sge], addr: u64, key: u32) -> ibv_send_wr {
    match op {
        Op::Read => rdma_wr(IBV_WR_RDMA_READ, sges, addr, key),
        Op::Write => rdma_wr(IBV_WR_RDMA_WRITE, sges, addr, key),
        Op::Add => atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, sges, addr, key, 5, 0),
    }
}

/// Destroys a queue pair.
pub fn end_qp(qp: *mut ibv_qp) {
    // SAFETY: a live queue pair of the test, not used again.
    assert_eq!(unsafe { ibv_destroy_qp(qp) }, 0);
}

/// Destroys two queue pairs.
pub fn end_qps(qps: Qps) {
    end_qp(qps.0);
    end_qp(qps.1);
}

/// Posts an unsignaled SEND that the peer has no receive for. Requests posted behind it wait until
/// [`release`].
pub fn hold_back(qp: *mut ibv_qp) {
    post(qp, &mut ibv_send_wr { send_flags: 0, ..wr(IBV_WR_SEND) });
}

/// Lets the SEND of [`hold_back`] arrive, and takes the peer's completion.
pub fn release(peer: *mut ibv_qp, end: &End) {
    recv(peer, 99, &mut []);
    let wc = end.expect(IBV_WC_SUCCESS);
    assert_eq!((wc.wr_id, wc.opcode), (99, IBV_WC_RECV));
}

/// No region, for an unbind.
pub const NOTHING: Range = Range { mr: null_mut(), addr: 0, length: 0, access: 0 };
