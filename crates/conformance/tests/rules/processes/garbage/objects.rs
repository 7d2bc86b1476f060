//! The objects that garbage names: of every kind some, in two contexts of one device, and a connected
//! pair beside them that garbage never names, which has to go on working.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::extended::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::queues::*;
use transom_conformance::random::Random;
use transom_conformance::shared_receive::*;
use transom_conformance::tag_matching;
use transom_conformance::xrc::*;
use transom_host::{Adapter, Options};
use transom_ibverbs::*;

/// What a refused call may say.
const ERRNOS: [i32; 15] = [
    libc::EINVAL,
    libc::EOPNOTSUPP,
    libc::ENOMEM,
    libc::EBUSY,
    libc::ENOENT,
    libc::EPERM,
    libc::EFAULT,
    libc::EBADF,
    libc::EEXIST,
    libc::ENODATA,
    libc::EHOSTUNREACH,
    // An address that the host has no way to (rule ST-29).
    libc::ENETUNREACH,
    libc::EIO,
    // The file of an XRC domain has none, and none is to be made.
    libc::EAGAIN,
    // A queue pair that leads over the wire needs the port, which another user may have.
    libc::EADDRINUSE,
];

/// The verb was refused for a reason that is documented.
pub(crate) fn refused(verb: &str, errno: i32) {
    assert!(ERRNOS.contains(&errno), "{verb}: errno {errno}");
}

/// Zero or a documented errno; whether it was zero.
pub(crate) fn answer(verb: &str, code: c_int) -> bool {
    if code != 0 {
        refused(verb, code);
    }
    code == 0
}

/// Zero, or -1 with a documented errno.
pub(crate) fn answer_with_errno(verb: &str, code: c_int) {
    if code != 0 {
        assert_eq!(code, -1, "{verb}");
        refused(verb, errno());
    }
}

/// The pair that garbage does not name: what is connected stays so.
struct Probe {
    ends: [*mut ibv_qp; 2],
    cqs: [*mut ibv_cq; 2],
    buffers: [Buffer; 2],
    mrs: [*mut ibv_mr; 2],
    count: u8,
}

/// Everything there is.
pub(crate) struct Objects {
    /// Where garbage comes from.
    pub(crate) random: Random,
    adapter: Weak<Adapter>,
    /// The contexts.
    pub(crate) ends: [End; 2],
    probe: Probe,
    /// Memory for garbage to read and write, far from all other.
    pub(crate) buffer: Buffer,
    /// A file, for what wants a descriptor.
    pub(crate) fd: c_int,
    pub(crate) pds: Vec<*mut ibv_pd>,
    pub(crate) tds: Vec<*mut ibv_td>,
    pub(crate) xrcds: Vec<*mut ibv_xrcd>,
    pub(crate) channels: Vec<*mut ibv_comp_channel>,
    pub(crate) cqs: Vec<*mut ibv_cq>,
    pub(crate) extended_cqs: Vec<*mut ibv_cq_ex>,
    pub(crate) srqs: Vec<*mut ibv_srq>,
    pub(crate) qps: Vec<*mut ibv_qp>,
    pub(crate) mrs: Vec<*mut ibv_mr>,
    pub(crate) mws: Vec<*mut ibv_mw>,
    pub(crate) ahs: Vec<*mut ibv_ah>,
    pub(crate) dms: Vec<*mut ibv_dm>,
    /// Memberships, to be ended before their queue pairs.
    pub(crate) members: Vec<(*mut ibv_qp, ibv_gid)>,
}

impl Objects {
    /// A few of everything.
    pub(crate) fn new(seed: u64) -> Self {
        let adapter = open_adapter(Options::default());
        let [a, b] = [adapter.clone(), adapter.clone()].map(End::of_device);
        let probe = Probe::new(&a, &b);
        // SAFETY: a name and a flag.
        let fd = unsafe { libc::memfd_create(c"garbage".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: a descriptor of our own.
        assert_eq!(unsafe { libc::ftruncate(fd, 1 << 16) }, 0);
        let mut objects = Self {
            random: Random::new(seed),
            adapter: Arc::downgrade(&adapter),
            probe,
            buffer: Buffer::apart(1 << 16),
            fd,
            pds: vec![a.pd, b.pd],
            tds: vec![alloc_td(a.context), alloc_td(b.context)],
            xrcds: vec![xrcd(a.context), xrcd(b.context)],
            channels: vec![channel(a.context), channel(b.context)],
            cqs: vec![a.cq, b.cq],
            extended_cqs: vec![cq_ex(a.context), cq_ex(b.context)],
            srqs: Vec::new(),
            qps: Vec::new(),
            mrs: Vec::new(),
            mws: Vec::new(),
            ahs: Vec::new(),
            dms: Vec::new(),
            members: Vec::new(),
            ends: [a, b],
        };
        objects.fill();
        objects
    }

    fn fill(&mut self) {
        let extended = self.extended_cqs.clone();
        self.cqs.extend(extended.into_iter().map(|cq| cq.cast::<ibv_cq>()));
        for (at, end) in self.ends.iter().enumerate() {
            self.mrs.push(end.reg(&self.buffer, ALL));
            self.mrs.push(try_null_mr(end.pd).expect("a null region"));
            self.mws.extend([end.mw(IBV_MW_TYPE_1), end.mw(IBV_MW_TYPE_2)]);
            self.ahs.push(ah(end.pd, &here()));
            self.dms.push(alloc_dm(end.context, 4096));
            let xrc = xrc_srq_init(end.pd, self.xrcds[at], end.cq);
            let tags = tag_matching::srq_attr(end.pd, end.cq);
            let special = [xrc, tags].map(|init| try_srq_ex(end.context, &init).expect("a queue"));
            self.srqs.push(srq(end.pd, 16));
            self.srqs.extend(special);
            for kind in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND] {
                self.qps.push(end.qp(kind));
            }
            self.qps.push(xrc_target(end.context, self.xrcds[at]));
            self.qps.push(qp_of_srq(end, IBV_QPT_RC, self.srqs[at * 3]));
            let most = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
            self.qps.push(qp_ex(end, IBV_QPT_UD, most));
            let most = most | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW;
            let most = most | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH;
            self.qps.push(qp_ex(end, IBV_QPT_RC, most));
        }
        // Those of one kind, connected; the rest as they are.
        let half = self.qps.len() / 2;
        for at in [0, 1, 5, 7] {
            connect(self.qps[at], self.qps[half + at]);
        }
        for at in [2, 6] {
            bring_up_ud(self.qps[at], QKEY);
            bring_up_ud(self.qps[half + at], QKEY);
        }
    }

    /// One of the contexts.
    pub(crate) fn context(&mut self) -> *mut ibv_context {
        self.ends[self.random.below(2)].context
    }

    /// One of the contexts, or none.
    pub(crate) fn context_or_null(&mut self) -> *mut ibv_context {
        if self.random.is_wild() { null_mut() } else { self.context() }
    }

    /// Some address: of the memory for garbage mostly, or of none.
    pub(crate) fn address(&mut self) -> u64 {
        match self.random.is_wild() {
            true if self.random.once_in(2) => self.random.below(1 << 12) as u64,
            true => self.random.number() | 1 << 63,
            false => self.buffer.addr() + self.random.below(self.buffer.len()) as u64,
        }
    }

    /// Some length: what fits mostly.
    pub(crate) fn length(&mut self) -> u64 {
        let most = self.random.one_of(&[16, 256, 4096]);
        let fits = self.random.below(most) as u64;
        self.random.mostly(fits)
    }

    /// The key of something, or of nothing.
    pub(crate) fn key(&mut self) -> u32 {
        // SAFETY: live objects.
        let known = unsafe {
            match self.random.below(3) {
                0 => (*self.mws[self.random.below(self.mws.len())]).rkey,
                1 => (*self.mrs[self.random.below(self.mrs.len())]).rkey,
                _ => (*self.mrs[self.random.below(self.mrs.len())]).lkey,
            }
        };
        self.random.mostly(known) as u32
    }

    /// The number of a queue pair, known or not: one of the probe's as well.
    pub(crate) fn qp_number(&mut self) -> u32 {
        let qps = [self.probe.ends.as_slice(), &self.qps].concat();
        let known = number(self.random.one_of(&qps));
        self.random.mostly(known) as u32
    }

    /// Up to 40 SGEs, more than any queue takes.
    pub(crate) fn sges(&mut self) -> Vec<ibv_sge> {
        let count = if self.random.is_wild() { 40 } else { self.random.below(4) };
        (0..count)
            .map(|_| {
                let (addr, length) = (self.address(), self.length() as u32);
                ibv_sge { addr, length, lkey: self.key() }
            })
            .collect()
    }

    /// Takes what has completed and what has happened, so that nothing is left to wait for.
    pub(crate) fn drain(&mut self) {
        let mut taken = vec![ibv_wc::default(); 64];
        for cq in &self.cqs {
            // SAFETY: a live queue, and room for so many.
            unsafe {
                let poll = (**cq).context.as_ref().and_then(|context| context.ops.poll_cq);
                // An overrun queue answers -1, and that is all right here.
                while poll.expect("never null")(*cq, 64, taken.as_mut_ptr()) > 0 {}
            }
        }
        for end in &self.ends {
            while end.has_event() {
                end.event();
            }
        }
    }

    /// What garbage did not name works as before.
    pub(crate) fn works(&mut self) {
        self.probe.exchange();
    }

    /// Ends everything, which all goes, and the device with it.
    pub(crate) fn end(mut self) {
        self.drain();
        self.works();
        for (qp, gid) in &self.members {
            // SAFETY: a live queue pair and the GID it has joined with.
            assert_eq!(unsafe { ibv_detach_mcast(*qp, gid, 0) }, 0);
        }
        self.probe.end();
        let gone = |what, code| assert_eq!(code, 0, "a {what} does not go");
        self.mws.iter().for_each(|mw| gone("window", dealloc_mw(*mw)));
        self.qps.iter().for_each(|qp| gone("queue pair", destroy_qp(*qp)));
        self.srqs.iter().for_each(|srq| gone("shared receive queue", destroy_srq(*srq)));
        for xrcd in &self.xrcds {
            gone("XRC domain", close_xrcd(self.ends[0].context, *xrcd));
        }
        self.ahs.iter().for_each(|ah| gone("address handle", destroy_ah(*ah)));
        self.mrs.iter().for_each(|mr| gone("region", dereg(*mr)));
        self.dms.iter().for_each(|dm| gone("device memory", free_dm(*dm)));
        self.cqs.iter().for_each(|cq| gone("completion queue", destroy_cq(*cq)));
        // Parent domains are younger than what they stand for.
        self.pds.iter().rev().for_each(|pd| gone("protection domain", dealloc_pd(*pd)));
        for td in &self.tds {
            gone("thread domain", dealloc_td(self.ends[0].context, *td));
        }
        for channel in &self.channels {
            // SAFETY: a live channel.
            gone("channel", unsafe { ibv_destroy_comp_channel(*channel) });
        }
        self.ends.iter_mut().for_each(End::close);
        // SAFETY: a descriptor of our own.
        unsafe { libc::close(self.fd) };
        until("the device to go", || (self.adapter.strong_count() == 0).then_some(()));
    }
}

/// Picks a live object, or null now and then.
macro_rules! pick {
    ($($name:ident from $pool:ident: $kind:ty)+) => {
        impl Objects {
            $(
                /// One of them, or none.
                pub(crate) fn $name(&mut self) -> *mut $kind {
                    if self.random.is_wild() { null_mut() } else { self.random.one_of(&self.$pool) }
                }
            )+
        }
    };
}

pick! {
    pd from pds: ibv_pd
    td from tds: ibv_td
    xrcd from xrcds: ibv_xrcd
    channel from channels: ibv_comp_channel
    cq from cqs: ibv_cq
    srq from srqs: ibv_srq
    qp from qps: ibv_qp
    mr from mrs: ibv_mr
    mw from mws: ibv_mw
    ah from ahs: ibv_ah
    dm from dms: ibv_dm
}

impl Probe {
    fn new(a: &End, b: &End) -> Self {
        let cqs = [a, b].map(|end| try_cq(end.context, 16, null_mut()).expect("a queue"));
        let ends = [(a, cqs[0]), (b, cqs[1])].map(|(end, cq)| {
            end.qp_with(&mut ibv_qp_init_attr { send_cq: cq, recv_cq: cq, ..end.init(IBV_QPT_RC) })
        });
        connect(ends[0], ends[1]);
        let buffers = [Buffer::apart(4096), Buffer::apart(4096)];
        let mrs = [a.reg(&buffers[0], ALL), b.reg(&buffers[1], ALL)];
        Self { ends, cqs, buffers, mrs, count: 0 }
    }

    /// A message goes over, whole.
    fn exchange(&mut self) {
        self.count = self.count.wrapping_add(1);
        let [from, to] = &self.buffers;
        (0..4096).step_by(64).for_each(|at| from.write(at, &[self.count]));
        recv(self.ends[1], 1, &mut [sge(to.addr(), 4096, self.mrs[1])]);
        let mut sges = [sge(from.addr(), 4096, self.mrs[0])];
        post(self.ends[0], &mut with_sges(wr(IBV_WR_SEND), &mut sges));
        for cq in self.cqs {
            let wc = wait(cq);
            assert_eq!(wc.status, IBV_WC_SUCCESS, "the probe: {wc:?}");
        }
        assert_eq!(from.read(0, 4096), to.read(0, 4096));
    }

    fn end(&mut self) {
        self.ends.iter().for_each(|qp| assert_eq!(destroy_qp(*qp), 0));
        self.mrs.iter().for_each(|mr| assert_eq!(dereg(*mr), 0));
        self.cqs.iter().for_each(|cq| assert_eq!(destroy_cq(*cq), 0));
    }
}
