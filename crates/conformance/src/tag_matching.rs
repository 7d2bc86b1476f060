//! Helpers for the tests of tag matching: a sender, and a receiver whose shared receive queue matches tags
//! (`ibv_post_srq_ops(3)`).

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;
use transom_wire::tmh::{RVH_BYTES, TMH_BYTES, TagHeader, TagOperation};

use crate::extended::*;
use crate::harness::*;

/// The length of each side's buffer in bytes.
pub const ROOM: usize = 2 << 20;
/// The number of tagged buffers in the shared receive queue.
pub const TAGS: u32 = 64;

/// Attributes of a shared receive queue that matches tags.
pub fn srq_attr(pd: *mut ibv_pd, cq: *mut ibv_cq) -> ibv_srq_init_attr_ex {
    ibv_srq_init_attr_ex {
        attr: ibv_srq_attr { max_wr: 64, max_sge: 1, srq_limit: 0 },
        comp_mask: IBV_SRQ_INIT_ATTR_TYPE
            | IBV_SRQ_INIT_ATTR_PD
            | IBV_SRQ_INIT_ATTR_CQ
            | IBV_SRQ_INIT_ATTR_TM,
        srq_type: IBV_SRQT_TM,
        pd,
        cq,
        tm_cap: ibv_tm_cap { max_num_tags: TAGS, max_ops: 10 },
        ..ibv_srq_init_attr_ex::default()
    }
}

/// `ibv_create_srq_ex`. The error is the errno.
pub fn try_srq(
    context: *mut ibv_context,
    init: &ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, i32> {
    let mut init = *init;
    let create = verbs(context).create_srq_ex.expect("it is there");
    // SAFETY: the context is open, and the attributes name only live objects.
    let srq = unsafe { create(context, &mut init) };
    if srq.is_null() { Err(errno()) } else { Ok(srq) }
}

/// `ibv_post_srq_ops` for a list. The error is the errno and the index of the bad one.
pub fn try_ops(srq: *mut ibv_srq, ops: &mut [ibv_ops_wr]) -> Result<(), (c_int, usize)> {
    let first = ops.as_mut_ptr();
    for at in 1..ops.len() {
        ops[at - 1].next = first.wrapping_add(at);
    }
    let mut bad = null_mut();
    // SAFETY: a live queue; the list ends with a null.
    let errno =
        unsafe { verbs((*srq).context).post_srq_ops.expect("it is there")(srq, first, &mut bad) };
    match errno {
        0 => Ok(()),
        // SAFETY: the provider returns an element of the list.
        errno => Err((errno, unsafe { bad.offset_from(first) } as usize)),
    }
}

/// A signaled list operation with this `wr_id`.
pub fn op(opcode: ibv_ops_wr_opcode, wr_id: u64) -> ibv_ops_wr {
    ibv_ops_wr { wr_id, opcode, flags: IBV_OPS_SIGNALED as c_int, ..ibv_ops_wr::default() }
}

/// The addition of a tagged buffer. Its SGEs must live until it is posted.
pub fn add_op(wr_id: u64, tag: u64, mask: u64, sges: &mut [ibv_sge]) -> ibv_ops_wr {
    let mut add = op(IBV_WR_TAG_ADD, wr_id);
    add.tm.add = ibv_ops_wr_tm_add {
        recv_wr_id: wr_id,
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as c_int,
        tag,
        mask,
    };
    add
}

/// A completion, with its tag information.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// The completion.
    pub wc: ibv_wc,
    /// Tag and sender's data.
    pub info: (u64, u32),
}

impl Done {
    /// Its status, opcode and `wr_id`.
    pub fn summary(&self) -> (ibv_wc_status, ibv_wc_opcode, u64) {
        (self.wc.status, self.wc.opcode, self.wc.wr_id)
    }
}

/// A sender `a` and a receiver `b` with a shared receive queue that matches tags.
pub struct Matching {
    /// The sender.
    pub a: End,
    /// The receiver. Its own completion queue is for its sends.
    pub b: End,
    /// The sender's queue pair.
    pub qa: *mut ibv_qp,
    /// The receiver's queue pair.
    pub qb: *mut ibv_qp,
    /// The shared receive queue.
    pub srq: *mut ibv_srq,
    /// The completion queue of the shared receive queue.
    pub cq: *mut ibv_cq_ex,
    /// The sender's memory. Messages begin at its start.
    pub near: Buffer,
    /// The receiver's memory.
    pub far: Buffer,
    /// The sender's region.
    pub from: *mut ibv_mr,
    /// The receiver's region.
    pub to: *mut ibv_mr,
}

impl Matching {
    /// Both ends over a link, connected.
    pub fn new(link: Link) -> Self {
        let matching = Self::unconnected(link);
        connect(matching.qa, matching.qb);
        matching
    }

    /// Both ends over a link, with queue pairs in RESET. The receiver's queue pair has no room for work of the program.
    pub fn unconnected(link: Link) -> Self {
        let (a, b) = ends(link, Default::default());
        let attr = cq_attr(FIELDS);
        let cq = try_cq_ex(b.context, &attr).expect("a queue");
        let srq = try_srq(b.context, &srq_attr(b.pd, cq.cast())).expect("it is created");
        let cap = ibv_qp_cap::default();
        let qa = a.qp(IBV_QPT_RC);
        let qb = b.qp_with(&mut ibv_qp_init_attr { srq, cap, ..b.init(IBV_QPT_RC) });
        let (near, far) = (Buffer::filled(ROOM, 7), Buffer::new(ROOM));
        let (from, to) = (a.reg(&near, ALL), b.reg(&far, ALL));
        Self { a, b, qa, qb, srq, cq, near, far, from, to }
    }

    /// An SGE of the receiver's memory.
    pub fn sge(&self, at: usize, length: u32) -> ibv_sge {
        sge(self.far.addr() + at as u64, length, self.to)
    }

    /// Adds a tagged buffer. Returns its handle. Receive and operation have the same `wr_id`.
    pub fn add(&self, wr_id: u64, tag: u64, mask: u64, sges: &mut [ibv_sge]) -> u32 {
        self.add_with(wr_id, tag, mask, sges, 0)
    }

    /// The same. Its completion has these flags.
    pub fn add_with(
        &self,
        wr_id: u64,
        tag: u64,
        mask: u64,
        sges: &mut [ibv_sge],
        flags: u32,
    ) -> u32 {
        let mut ops = [add_op(wr_id, tag, mask, sges)];
        assert_eq!(try_ops(self.srq, &mut ops), Ok(()));
        let done = self.next();
        assert_eq!(done.summary(), (IBV_WC_SUCCESS, IBV_WC_TM_ADD, wr_id));
        assert_eq!((done.wc.wc_flags, done.info), (flags, (0, 0)));
        ops[0].tm.handle
    }

    /// Removes a tagged buffer. Returns the status.
    pub fn remove(&self, handle: u32) -> ibv_wc_status {
        let mut remove = op(IBV_WR_TAG_DEL, 70);
        remove.tm.handle = handle;
        assert_eq!(try_ops(self.srq, &mut [remove]), Ok(()));
        let done = self.next();
        assert_eq!((done.wc.opcode, done.wc.wr_id), (IBV_WC_TM_DEL, 70));
        done.wc.status
    }

    /// Reports how many unexpected messages were handled. Returns the flags of the completion.
    pub fn sync(&self, count: u32) -> u32 {
        let mut sync = op(IBV_WR_TAG_SYNC, 71);
        sync.tm.unexpected_cnt = count;
        assert_eq!(try_ops(self.srq, &mut [sync]), Ok(()));
        let done = self.next();
        assert_eq!(done.summary(), (IBV_WC_SUCCESS, IBV_WC_TM_SYNC, 71));
        done.wc.wc_flags
    }

    /// Posts an ordinary receive of 4096 bytes at `at`.
    pub fn receive(&self, wr_id: u64, at: usize) {
        let mut sges = [self.sge(at, 4096)];
        let mut wr =
            ibv_recv_wr { wr_id, sg_list: sges.as_mut_ptr(), num_sge: 1, ..Default::default() };
        let mut bad = null_mut();
        // SAFETY: a live queue and a valid request.
        let errno = unsafe {
            (*self.b.context).ops.post_srq_recv.expect("never null")(self.srq, &mut wr, &mut bad)
        };
        assert_eq!(errno, 0);
    }

    /// Sends the first `length` bytes of the sender's memory, which begin with this header.
    pub fn send(&self, header: &[u8], length: u32) {
        self.near.write(0, header);
        let mut sges = [sge(self.near.addr(), length, self.from)];
        post(self.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
    }

    /// Asks the receiver to read `length` bytes at `at` of the sender's memory, and posts a receive for the answer at
    /// `answer`.
    pub fn request(&self, tag: u64, at: usize, length: u32, answer: usize) {
        recv(self.qa, 80 + tag, &mut [sge(self.near.addr() + answer as u64, 16, self.from)]);
        self.send(&rendezvous(tag, self.near.addr() + at as u64, keys(self.from).1, length), 32);
    }

    /// The next completion of the shared receive queue.
    pub fn next(&self) -> Done {
        take_one(self.cq)
    }

    /// There is no completion now.
    pub fn expect_nothing(&self) {
        assert_eq!(take_batch(self.cq, |cq| read_wc(cq).wr_id), [0_u64; 0]);
    }

    /// The next completion is the receive of a message that matched no tagged buffer.
    pub fn expect_unexpected(&self, wr_id: u64, flags: u32) {
        let done = self.next();
        assert_eq!(done.summary(), (IBV_WC_SUCCESS, IBV_WC_TM_RECV, wr_id));
        assert_eq!((done.wc.wc_flags, done.info), (flags, (0, 0)));
    }
}

/// Takes one completion, with its tag information.
fn take_one(cq: *mut ibv_cq_ex) -> Done {
    until("a completion", || (start_poll(cq) == 0).then_some(()));
    let wc = read_wc(cq);
    let mut info = ibv_wc_tm_info { tag: 99, priv_: 99 };
    // SAFETY: a live extended queue within a batch.
    unsafe { (*cq).read_tm_info.expect("asked for")(cq, &mut info) };
    end_poll(cq);
    Done { wc, info: (info.tag, info.priv_) }
}

/// The sender's own data in the headers.
pub const CONTEXT: u32 = 0x0506_0708;

/// The header of a message whose data follows.
pub fn eager(tag: u64) -> [u8; TMH_BYTES] {
    TagHeader { operation: TagOperation::Eager, context: CONTEXT, tag }.write()
}

/// The headers of a message whose data the receiver must read.
pub fn rendezvous(tag: u64, address: u64, key: u32, length: u32) -> Vec<u8> {
    let tmh = TagHeader { operation: TagOperation::Rendezvous, context: CONTEXT, tag }.write();
    let parts: [&[u8]; 4] =
        [&tmh, &address.to_be_bytes(), &key.to_be_bytes(), &length.to_be_bytes()];
    let headers = parts.concat();
    assert_eq!(headers.len(), TMH_BYTES + RVH_BYTES);
    headers
}
