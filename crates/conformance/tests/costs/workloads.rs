//! The operations whose costs are counted, step by step, between two devices that one thread drives.

use transom_abi::*;
use transom_conformance::harness::*;

/// How often an operation is carried out before it is counted: rings have gone round, and what is made
/// at the first use is there.
pub(crate) const WARM_UP: usize = 300;

/// What the operations are carried out on.
pub(crate) struct Stage {
    memory: MemoryPair,
    window: *mut ibv_mw,
}

impl Stage {
    /// Two ends over a link.
    pub(crate) fn new(link: Link) -> Self {
        Self::with_timeout(link, usual_attr(std::ptr::null_mut()).timeout)
    }

    /// The same with this `timeout`.
    pub(crate) fn with_timeout(link: Link, timeout: u8) -> Self {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        connect_with(pair.qa, pair.qb, |attr| attr.timeout = timeout);
        let memory = MemoryPair::of(pair, 1 << 16);
        let window = memory.pair.a.mw(IBV_MW_TYPE_2);
        Self { memory, window }
    }

    /// Whether registered memory is reached without the kernel.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_shared(&self) -> bool {
        transom_system::memory::is_shared(self.memory.near.addr(), 8)
    }

    /// The origin posts a request of so many bytes.
    fn post(&self, opcode: ibv_wr_opcode, length: u32) {
        let (remote, key) = (self.memory.far.addr(), self.memory.key());
        self.memory.post_op(self.memory.pair.qa, opcode, remote, key, length);
    }

    /// The origin posts a WRITE of so many bytes, which are copied as it is posted.
    fn post_inline(&self, length: u32) {
        let near = &self.memory.near;
        let mut sges = [sge(near.addr(), length, std::ptr::null_mut())];
        let write =
            rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, self.memory.far.addr(), self.memory.key());
        let send_flags = write.send_flags | IBV_SEND_INLINE;
        post(self.memory.pair.qa, &mut ibv_send_wr { send_flags, ..write });
    }

    /// The target posts a receive for so many bytes.
    fn receive(&self, length: u32) {
        self.memory.recv(self.memory.pair.qb, 1, length);
    }

    /// The origin polls until its request has completed.
    fn complete(&self) {
        self.memory.pair.a.expect(IBV_WC_SUCCESS);
    }

    /// The target polls until it has received.
    fn received(&self) {
        self.memory.pair.b.expect(IBV_WC_SUCCESS);
    }

    /// The target polls once, and has no completion: it is driven by that, where the operation needs it.
    fn drive(&self) {
        self.memory.pair.b.expect_nothing();
    }

    /// Both ends are about to sleep: neither looks at the other's rings by itself any more, until its device's
    /// thread allows that again.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn end_watching(&self) {
        for end in [&self.memory.pair.a, &self.memory.pair.b] {
            // SAFETY: the queue is there, on an open context.
            let armed = unsafe { (*end.context).ops.req_notify_cq.expect("never null")(end.cq, 0) };
            assert_eq!(armed, 0);
        }
    }

    /// The origin posts a bind of the first page of its buffer, unsignaled.
    fn bind(&self) {
        let (addr, mr) = (self.memory.near.addr(), self.memory.ma);
        let range = Range { mr, addr, length: 4096, access: REMOTE };
        let key = rkey(self.window).wrapping_add(1);
        let bind = bind2_wr(self.window, key, range);
        post(self.memory.pair.qa, &mut ibv_send_wr { send_flags: 0, ..bind });
    }

    /// The origin posts the end of that.
    fn invalidate(&self) {
        post(self.memory.pair.qa, &mut local_inv_wr(rkey(self.window)));
    }
}

/// An operation.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// What is done one after the other.
    pub(crate) steps: &'static [Step],
}

/// A step of an operation.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Stage),
}

/// All of them.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "WRITE of 8 bytes",
        steps: &[
            Step { name: "post", run: |on| on.post(IBV_WR_RDMA_WRITE, 8) },
            Step { name: "poll", run: Stage::complete },
        ],
    },
    Workload {
        name: "WRITE of 8 bytes, inline",
        steps: &[
            Step { name: "post", run: |on| on.post_inline(8) },
            Step { name: "poll", run: Stage::complete },
        ],
    },
    Workload {
        name: "READ of 8 bytes",
        steps: &[
            Step { name: "post", run: |on| on.post(IBV_WR_RDMA_READ, 8) },
            Step { name: "poll", run: Stage::complete },
        ],
    },
    Workload {
        name: "SEND of 8 bytes",
        steps: &[
            Step { name: "post the receive", run: |on| on.receive(8) },
            Step { name: "post", run: |on| on.post(IBV_WR_SEND, 8) },
            Step { name: "poll at the target", run: Stage::received },
            Step { name: "poll", run: Stage::complete },
        ],
    },
    Workload {
        name: "fetch-and-add",
        steps: &[
            Step { name: "post", run: |on| on.post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8) },
            Step { name: "poll at the target", run: Stage::drive },
            Step { name: "poll", run: Stage::complete },
        ],
    },
    Workload {
        name: "bind and LOCAL_INV",
        steps: &[
            Step { name: "post the bind", run: Stage::bind },
            Step { name: "post the LOCAL_INV", run: Stage::invalidate },
            Step { name: "poll", run: Stage::complete },
        ],
    },
    Workload {
        name: "WRITE of 64 KiB",
        steps: &[
            Step { name: "post", run: |on| on.post(IBV_WR_RDMA_WRITE, 1 << 16) },
            Step { name: "poll", run: Stage::complete },
        ],
    },
    Workload {
        name: "SEND of 64 KiB",
        steps: &[
            Step { name: "post the receive", run: |on| on.receive(1 << 16) },
            Step { name: "post", run: |on| on.post(IBV_WR_SEND, 1 << 16) },
            Step { name: "poll at the target", run: Stage::received },
            Step { name: "poll", run: Stage::complete },
        ],
    },
    Workload { name: "nothing", steps: &[Step { name: "poll at the target", run: Stage::drive }] },
];
