//! What the rule tests share: queue pairs connected over each link, and verbs that panic with a
//! sentence instead of returning a code.
//!
//! A test is written once inside [`on_each_link!`](crate::on_each_link) and runs over
//!
//! * loopback: both ends on one device,
//! * local: each end on a device of its own, as two processes have; data goes straight into the
//!   other's memory,
//! * shared: the same where the kernel would forbid that, so everything travels as messages.
//!
//! Tests never sleep: they poll until the completion is there, with a limit that only a failure
//! meets.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_host::{Adapter, Copying, Options};
use transom_ibverbs::*;

/// All rights a region can have.
pub const ALL: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND) as c_int;

/// The remote rights.
pub const REMOTE: u32 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// How long a completion may take before the test has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the two ends are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// One device.
    Loopback,
    /// Two devices, copying straight.
    Local,
    /// Two devices, copying through shared memory.
    Shared,
}

/// Runs each test over each [`Link`]: a test is a function of the link.
#[macro_export]
macro_rules! on_each_link {
    ($($(#[$doc:meta])* fn $name:ident($link:ident: Link) $body:block)+) => {
        $($(#[$doc])* mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn run($link: Link) $body

            #[test]
            fn loopback() {
                run(Link::Loopback);
            }

            #[test]
            fn local() {
                run(Link::Local);
            }

            #[test]
            fn shared() {
                run(Link::Shared);
            }
        })+
    };
}

/// A context with a protection domain and a completion queue.
pub struct End {
    /// The context.
    pub context: *mut ibv_context,
    /// Its protection domain.
    pub pd: *mut ibv_pd,
    /// Where all its queue pairs complete.
    pub cq: *mut ibv_cq,
}

impl End {
    /// An end on a device of its own.
    pub fn new(options: Options) -> Self {
        let adapter = Adapter::open(options).expect("a device opens");
        Self::on(open_context(adapter))
    }

    /// An end in a context.
    pub fn on(context: *mut ibv_context) -> Self {
        assert!(!context.is_null());
        // SAFETY: a fresh context.
        let (pd, cq) = unsafe {
            (ibv_alloc_pd(context), ibv_create_cq(context, 4096, null_mut(), null_mut(), 0))
        };
        assert!(!pd.is_null() && !cq.is_null());
        Self { context, pd, cq }
    }

    /// Another protection domain.
    pub fn another_pd(&self) -> *mut ibv_pd {
        // SAFETY: the context is open.
        let pd = unsafe { ibv_alloc_pd(self.context) };
        assert!(!pd.is_null());
        pd
    }

    /// A queue pair of the usual size in RESET.
    pub fn qp(&self, kind: ibv_qp_type) -> *mut ibv_qp {
        self.qp_with(&mut self.init(kind))
    }

    /// The usual creation attributes: 64 requests each way, 4 pieces, 256 bytes inline, unsignaled
    /// unless asked.
    pub fn init(&self, kind: ibv_qp_type) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
            qp_type: kind,
            cap: ibv_qp_cap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 256,
            },
            ..ibv_qp_init_attr::default()
        }
    }

    /// A queue pair with these attributes.
    pub fn qp_with(&self, init: &mut ibv_qp_init_attr) -> *mut ibv_qp {
        // SAFETY: everything named is live.
        let qp = unsafe { ibv_create_qp(self.pd, init) };
        assert!(!qp.is_null(), "ibv_create_qp: {}", std::io::Error::last_os_error());
        qp
    }

    /// Registers a buffer in the end's domain.
    pub fn reg(&self, buffer: &Buffer, access: c_int) -> *mut ibv_mr {
        reg(self.pd, buffer, access)
    }

    /// A window of type 1 or 2.
    pub fn mw(&self, kind: ibv_mw_type) -> *mut ibv_mw {
        alloc_mw(self.pd, kind).expect("a window")
    }

    /// Polls until a completion is there.
    pub fn wait(&self) -> ibv_wc {
        wait(self.cq)
    }

    /// Polls until a completion is there and expects this status.
    pub fn expect(&self, status: ibv_wc_status) -> ibv_wc {
        let wc = self.wait();
        assert_eq!(wc.status, status, "{wc:?}");
        wc
    }

    /// Nothing is there now.
    pub fn expect_nothing(&self) {
        let wc = poll(self.cq);
        assert!(wc.is_none(), "{wc:?}");
    }

    /// Takes the next asynchronous event, acknowledged; waits for it.
    pub fn event(&self) -> (ibv_event_type, *mut c_void) {
        until("an event", || self.has_event().then_some(()));
        let mut event = ibv_async_event::default();
        // SAFETY: the context is open; the event is acknowledged before it goes out of scope.
        unsafe {
            assert_eq!(ibv_get_async_event(self.context, &mut event), 0);
            let element = event.element.qp.cast();
            ibv_ack_async_event(&mut event);
            (event.event_type, element)
        }
    }

    /// Whether an asynchronous event is there now.
    pub fn has_event(&self) -> bool {
        // SAFETY: the context is open.
        readable(unsafe { (*self.context).async_fd })
    }
}

/// Two connected queue pairs: requests go from `a`, the origin, to `b`, the target.
pub struct Pair {
    /// The origin's end.
    pub a: End,
    /// The target's end; on loopback another context of the same device.
    pub b: End,
    /// The origin queue pair.
    pub qa: *mut ibv_qp,
    /// The target queue pair.
    pub qb: *mut ibv_qp,
}

impl Pair {
    /// Two ends over a link, with queue pairs in RTS.
    pub fn new(link: Link, kind: ibv_qp_type) -> Self {
        let pair = Self::unconnected(link, kind);
        connect(pair.qa, pair.qb);
        pair
    }

    /// Two ends over a link, with RC queue pairs in RTS.
    pub fn rc(link: Link) -> Self {
        Self::new(link, IBV_QPT_RC)
    }

    /// Two ends over a link, with queue pairs in RESET.
    pub fn unconnected(link: Link, kind: ibv_qp_type) -> Self {
        let (a, b) = ends(link, Options::default());
        let (qa, qb) = (a.qp(kind), b.qp(kind));
        Self { a, b, qa, qb }
    }

    /// Another queue pair of each end, connected.
    pub fn another(&self, kind: ibv_qp_type) -> (*mut ibv_qp, *mut ibv_qp) {
        let (qa, qb) = (self.a.qp(kind), self.b.qp(kind));
        connect(qa, qb);
        (qa, qb)
    }

    /// Carries out one request on RC queue pairs of its own, so that earlier failures do not count;
    /// how it completed.
    pub fn request(&self, wr: &mut ibv_send_wr) -> ibv_wc_status {
        let (qa, _) = self.another(IBV_QPT_RC);
        post(qa, wr);
        self.a.wait().status
    }

    /// The same for a SEND of these pieces into a receive of those: how each end completed.
    pub fn message(
        &self,
        from: &mut [ibv_sge],
        to: &mut [ibv_sge],
    ) -> (ibv_wc_status, ibv_wc_status) {
        let (qa, qb) = self.another(IBV_QPT_RC);
        recv(qb, 9, to);
        post(qa, &mut with_sges(wr(IBV_WR_SEND), from));
        // On loopback too each end has a queue of its own.
        (self.a.wait().status, self.b.wait().status)
    }
}

// SAFETY: pointers to verbs objects only, which any thread may use at any time.
unsafe impl Sync for Pair {}

/// Two ends over a link, on devices opened with `options` but for their copying.
pub fn ends(link: Link, options: Options) -> (End, End) {
    let copying = if link == Link::Shared { Copying::SharedMemory } else { Copying::Best };
    let options = Options { copying, ..options };
    let adapter = Adapter::open(options).expect("a device opens");
    let a = End::on(open_context(adapter.clone()));
    let b = match link {
        Link::Loopback => End::on(open_context(adapter)),
        Link::Local | Link::Shared => End::new(options),
    };
    (a, b)
}

/// What [`connect`] uses; change fields for other timeouts or rights.
pub fn usual_attr(peer: *mut ibv_qp) -> ibv_qp_attr {
    let mut attr = ibv_qp_attr {
        path_mtu: IBV_MTU_1024,
        // SAFETY: the queue pair is live.
        dest_qp_num: if peer.is_null() { 0 } else { unsafe { (*peer).qp_num } },
        rq_psn: 17,
        sq_psn: 17,
        qp_access_flags: REMOTE,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        port_num: 1,
        timeout: 8,
        retry_cnt: 1,
        rnr_retry: 7,
        ..ibv_qp_attr::default()
    };
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = ibv_gid { raw: GID };
    attr
}

/// The attributes each step needs, by service.
pub fn mask_for(kind: ibv_qp_type, to: ibv_qp_state) -> u32 {
    let rc = kind == IBV_QPT_RC;
    IBV_QP_STATE
        | match to {
            IBV_QPS_INIT => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            IBV_QPS_RTR => {
                let uc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
                uc | if rc { IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER } else { 0 }
            }
            IBV_QPS_RTS => {
                let more =
                    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
                IBV_QP_SQ_PSN | if rc { more } else { 0 }
            }
            _ => 0,
        }
}

/// Moves a queue pair to a state with what that takes; the errno if it is refused.
pub fn modify(qp: *mut ibv_qp, attr: &ibv_qp_attr, to: ibv_qp_state) -> c_int {
    let mut attr = *attr;
    attr.qp_state = to;
    // SAFETY: the queue pair is live.
    unsafe { ibv_modify_qp(qp, &mut attr, mask_for((*qp).qp_type, to) as c_int) }
}

/// Moves a queue pair through INIT and RTR to RTS with these attributes.
pub fn bring_up(qp: *mut ibv_qp, attr: &ibv_qp_attr) {
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        assert_eq!(modify(qp, attr, state), 0, "to state {state}");
    }
}

/// Connects two queue pairs, RESET to RTS.
pub fn connect(a: *mut ibv_qp, b: *mut ibv_qp) {
    bring_up(a, &usual_attr(b));
    bring_up(b, &usual_attr(a));
}

/// Sets only the state.
pub fn set_state(qp: *mut ibv_qp, state: ibv_qp_state) -> c_int {
    let mut attr = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
    // SAFETY: the queue pair is live.
    unsafe { ibv_modify_qp(qp, &mut attr, IBV_QP_STATE as c_int) }
}

/// The state the device says the queue pair is in.
pub fn state(qp: *mut ibv_qp) -> ibv_qp_state {
    query(qp).qp_state
}

/// All attributes.
pub fn query(qp: *mut ibv_qp) -> ibv_qp_attr {
    let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
    // SAFETY: the queue pair is live.
    assert_eq!(unsafe { ibv_query_qp(qp, &mut attr, -1, &mut init) }, 0);
    attr
}

/// What the device says it is.
pub fn device_attr(context: *mut ibv_context) -> ibv_device_attr {
    let mut attr = std::mem::MaybeUninit::zeroed();
    // SAFETY: an open context, and a struct of plain numbers that the verb fills.
    unsafe {
        assert_eq!(ibv_query_device(context, attr.as_mut_ptr()), 0);
        attr.assume_init()
    }
}

/// Memory of whole pages, zeroed, given back to the system with the buffer.
pub struct Buffer {
    address: *mut u8,
    length: usize,
}

// SAFETY: plain memory; tests order their own accesses.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// At least `length` bytes.
    pub fn new(length: usize) -> Self {
        let length = length.next_multiple_of(4096).max(4096);
        // SAFETY: a fresh private mapping.
        let address = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        Self { address: address.cast(), length }
    }

    /// At least `length` bytes, far from where the system puts mappings by itself: parts given back
    /// with [`Buffer::unmap`] stay unmapped.
    pub fn apart(length: usize) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
        let length = length.next_multiple_of(4096).max(4096);
        let address = NEXT.fetch_add(length.next_multiple_of(1 << 20) + (1 << 20), Relaxed);
        // SAFETY: a fresh private mapping; the flag keeps it from replacing another.
        let address = unsafe {
            libc::mmap(
                address as *mut c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        Self { address: address.cast(), length }
    }

    /// Gives some pages of a [`Buffer::apart`] back to the system; the test must not read or
    /// write them afterwards.
    pub fn unmap(&self, at: usize, length: usize) {
        assert!(at + length <= self.length);
        // SAFETY: within our own mapping, which nothing else has moved into.
        assert_eq!(unsafe { libc::munmap(self.address.add(at).cast(), length) }, 0);
    }

    /// At least `length` bytes, filled with a pattern that depends on `seed`.
    pub fn filled(length: usize, seed: u8) -> Self {
        let buffer = Self::new(length);
        let pattern: Vec<u8> = (0..buffer.length).map(|at| pattern(at, seed)).collect();
        buffer.write(0, &pattern);
        buffer
    }

    /// First address.
    pub fn addr(&self) -> u64 {
        self.address as u64
    }

    /// Bytes, a multiple of the page size.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies bytes out.
    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        assert!(at + length <= self.length);
        // SAFETY: within the mapping.
        (at..at + length).map(|at| unsafe { self.address.add(at).read_volatile() }).collect()
    }

    /// Copies bytes in.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length);
        for (offset, byte) in bytes.iter().enumerate() {
            // SAFETY: within the mapping.
            unsafe { self.address.add(at + offset).write_volatile(*byte) };
        }
    }

    /// Sets `length` bytes from `at` on to `byte`, at once.
    pub fn fill_part(&self, at: usize, length: usize, byte: u8) {
        assert!(at + length <= self.length);
        // SAFETY: within the mapping.
        unsafe { self.address.add(at).write_bytes(byte, length) };
    }

    /// The eight bytes at `at` as a number.
    pub fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.read(at, 8).try_into().expect("eight bytes"))
    }

    /// Sets the eight bytes at `at`.
    pub fn set_word(&self, at: usize, value: u64) {
        self.write(at, &value.to_ne_bytes());
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        // SAFETY: our own mapping.
        unsafe { self.address.write_bytes(byte, self.length) };
    }

    /// Whether any byte is `byte`; nobody may be writing now.
    pub fn contains(&self, byte: u8) -> bool {
        // SAFETY: our own mapping, which is not written to meanwhile.
        unsafe { std::slice::from_raw_parts(self.address, self.length) }.contains(&byte)
    }

    /// Whether every byte is `byte`; nobody may be writing now.
    pub fn is_all(&self, byte: u8) -> bool {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(self.address, self.length) };
        // Each byte is like the one before it.
        bytes[0] == byte && bytes[1..] == bytes[..bytes.len() - 1]
    }

    /// Changes the protection of all pages.
    pub fn protect(&self, protection: c_int) {
        self.protect_part(0, self.length, protection);
    }

    /// Changes the protection of some pages.
    pub fn protect_part(&self, at: usize, length: usize, protection: c_int) {
        assert!(at + length <= self.length);
        // SAFETY: our own mapping; the test does not touch it against its protection.
        let done = unsafe { libc::mprotect(self.address.add(at).cast(), length, protection) };
        assert_eq!(done, 0);
    }

    /// Takes the pages away, leaving the addresses mapped to nothing; the buffer must not be read
    /// or written by the test afterwards.
    pub fn vanish(&self) {
        self.protect(libc::PROT_NONE);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}

/// What [`Buffer::filled`] puts at a place.
pub fn pattern(at: usize, seed: u8) -> u8 {
    (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed)
}

/// Registers a whole buffer.
pub fn reg(pd: *mut ibv_pd, buffer: &Buffer, access: c_int) -> *mut ibv_mr {
    try_reg(pd, buffer.addr(), buffer.len(), access).expect("the buffer registers")
}

/// Registers a range; the errno if it is refused.
pub fn try_reg(
    pd: *mut ibv_pd,
    addr: u64,
    length: usize,
    access: c_int,
) -> Result<*mut ibv_mr, i32> {
    // SAFETY: registering touches no memory.
    let mr = unsafe { ibv_reg_mr(pd, addr as *mut c_void, length, access) };
    if mr.is_null() { Err(errno()) } else { Ok(mr) }
}

/// Registers a range under the addresses from `iova` on; the errno if it is refused.
pub fn try_reg_iova(
    pd: *mut ibv_pd,
    addr: u64,
    length: usize,
    iova: u64,
    access: c_int,
) -> Result<*mut ibv_mr, i32> {
    // SAFETY: registering touches no memory.
    let mr = unsafe { ibv_reg_mr_iova(pd, addr as *mut c_void, length, iova, access) };
    if mr.is_null() { Err(errno()) } else { Ok(mr) }
}

/// What [`rereg`] shall change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// The range: address and length.
    pub range: Option<(u64, usize)>,
    /// The domain.
    pub pd: Option<*mut ibv_pd>,
    /// The rights.
    pub access: Option<c_int>,
}

/// Changes a registration; the code and the errno if it is refused.
pub fn rereg(mr: *mut ibv_mr, change: Change) -> Result<(), (c_int, i32)> {
    let Change { range, pd, access } = change;
    let flags = range.map_or(0, |_| IBV_REREG_MR_CHANGE_TRANSLATION)
        | pd.map_or(0, |_| IBV_REREG_MR_CHANGE_PD)
        | access.map_or(0, |_| IBV_REREG_MR_CHANGE_ACCESS);
    let (addr, length) = range.unwrap_or_default();
    rereg_raw(mr, flags, pd.unwrap_or(null_mut()), addr, length, access.unwrap_or(0))
}

/// `ibv_rereg_mr` with any arguments; the code and the errno if it is refused.
pub fn rereg_raw(
    mr: *mut ibv_mr,
    flags: u32,
    pd: *mut ibv_pd,
    addr: u64,
    length: usize,
    access: c_int,
) -> Result<(), (c_int, i32)> {
    // SAFETY: null or a region and a domain of this test; it touches no memory.
    let code = unsafe { ibv_rereg_mr(mr, flags as c_int, pd, addr as *mut c_void, length, access) };
    if code == 0 { Ok(()) } else { Err((code, errno())) }
}

/// Ends a protection domain; zero or an errno.
pub fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: null or a domain of this test.
    unsafe { ibv_dealloc_pd(pd) }
}

/// Ends a registration; zero or an errno.
pub fn dereg(mr: *mut ibv_mr) -> c_int {
    // SAFETY: null or a region of this test.
    unsafe { ibv_dereg_mr(mr) }
}

/// The keys of a region: local, remote.
pub fn keys(mr: *mut ibv_mr) -> (u32, u32) {
    // SAFETY: a live region.
    unsafe { ((*mr).lkey, (*mr).rkey) }
}

/// `ibv_alloc_mw`, as the inline of `verbs.h` calls it.
pub fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> Result<*mut ibv_mw, i32> {
    // SAFETY: a live domain.
    let mw = unsafe { (*(*pd).context).ops.alloc_mw.expect("never null")(pd, kind) };
    if mw.is_null() { Err(errno()) } else { Ok(mw) }
}

/// `ibv_dealloc_mw`.
pub fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: a window of this test; its struct stays readable after it is freed.
    unsafe { (*(*mw).context).ops.dealloc_mw.expect("never null")(mw) }
}

/// The window's key as the library has it.
pub fn rkey(mw: *mut ibv_mw) -> u32 {
    // SAFETY: a live window.
    unsafe { (*mw).rkey }
}

/// What a window shall be bound to.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The region.
    pub mr: *mut ibv_mr,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// Rights.
    pub access: u32,
}

impl Range {
    /// As a bind names it.
    pub fn info(self) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: self.mr,
            addr: self.addr,
            length: self.length,
            mw_access_flags: self.access,
        }
    }
}

/// `ibv_bind_mw`, straight to the provider's operation; zero or an errno.
pub fn bind1(qp: *mut ibv_qp, mw: *mut ibv_mw, wr_id: u64, flags: u32, range: Range) -> c_int {
    let mut bind = ibv_mw_bind { wr_id, send_flags: flags, bind_info: range.info() };
    // SAFETY: everything named is live or null as the test wants.
    unsafe { (*(*qp).context).ops.bind_mw.expect("never null")(qp, mw, &mut bind) }
}

/// A work request that binds a type 2 window with the low byte of `key`.
pub fn bind2_wr(mw: *mut ibv_mw, key: u32, range: Range) -> ibv_send_wr {
    let mut wr = wr(IBV_WR_BIND_MW);
    wr.op.bind_mw = ibv_send_wr_bind_mw { mw, rkey: key, bind_info: range.info() };
    wr
}

/// Binds a window of either type, signaled, and waits for success on the end's queue.
pub fn bind(end: &End, qp: *mut ibv_qp, mw: *mut ibv_mw, range: Range) -> u32 {
    // SAFETY: a live window.
    if unsafe { (*mw).type_ } == IBV_MW_TYPE_1 {
        assert_eq!(bind1(qp, mw, 77, IBV_SEND_SIGNALED, range), 0);
    } else {
        post(qp, &mut bind2_wr(mw, rkey(mw).wrapping_add(1), range));
    }
    let wc = end.expect(IBV_WC_SUCCESS);
    assert_eq!(wc.opcode, IBV_WC_BIND_MW);
    rkey(mw)
}

/// A LOCAL_INV.
pub fn local_inv_wr(key: u32) -> ibv_send_wr {
    let mut wr = wr(IBV_WR_LOCAL_INV);
    wr.imm.invalidate_rkey = key;
    wr
}

/// A signaled work request with `wr_id` 1 and nothing else.
pub fn wr(opcode: ibv_wr_opcode) -> ibv_send_wr {
    ibv_send_wr { wr_id: 1, opcode, send_flags: IBV_SEND_SIGNALED, ..ibv_send_wr::default() }
}

/// A piece of a registered buffer.
pub fn sge(addr: u64, length: u32, mr: *mut ibv_mr) -> ibv_sge {
    // SAFETY: a live region, or null for a key of zero.
    let lkey = unsafe { mr.as_ref() }.map_or(0, |mr| mr.lkey);
    ibv_sge { addr, length, lkey }
}

/// Puts pieces into a work request; they must live as long as it is posted.
pub fn with_sges(mut wr: ibv_send_wr, sges: &mut [ibv_sge]) -> ibv_send_wr {
    wr.sg_list = sges.as_mut_ptr();
    wr.num_sge = sges.len() as c_int;
    wr
}

/// A SEND, WRITE, READ or atomic of one piece to or from a remote place.
pub fn rdma_wr(opcode: ibv_wr_opcode, sges: &mut [ibv_sge], remote: u64, key: u32) -> ibv_send_wr {
    let mut wr = with_sges(wr(opcode), sges);
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr: remote, rkey: key };
    wr
}

/// A compare-and-swap or fetch-and-add.
pub fn atomic_wr(
    opcode: ibv_wr_opcode,
    sges: &mut [ibv_sge],
    remote: u64,
    key: u32,
    compare_add: u64,
    swap: u64,
) -> ibv_send_wr {
    let mut wr = with_sges(wr(opcode), sges);
    wr.wr.atomic = ibv_send_wr_atomic { remote_addr: remote, compare_add, swap, rkey: key };
    wr
}

/// Posts a send work request; zero or an errno.
pub fn try_post(qp: *mut ibv_qp, wr: &mut ibv_send_wr) -> c_int {
    let mut bad = null_mut();
    // SAFETY: the queue pair is live and the request valid but where the test wants otherwise.
    unsafe { (*(*qp).context).ops.post_send.expect("never null")(qp, wr, &mut bad) }
}

/// Posts a send work request that must be accepted.
pub fn post(qp: *mut ibv_qp, wr: &mut ibv_send_wr) {
    assert_eq!(try_post(qp, wr), 0, "ibv_post_send of opcode {}", wr.opcode);
}

/// Posts a receive; zero or an errno.
pub fn try_recv(qp: *mut ibv_qp, wr_id: u64, sges: &mut [ibv_sge]) -> c_int {
    let mut wr = ibv_recv_wr {
        wr_id,
        next: null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as c_int,
    };
    let mut bad = null_mut();
    // SAFETY: as in `try_post`.
    unsafe { (*(*qp).context).ops.post_recv.expect("never null")(qp, &mut wr, &mut bad) }
}

/// Posts a receive that must be accepted.
pub fn recv(qp: *mut ibv_qp, wr_id: u64, sges: &mut [ibv_sge]) {
    assert_eq!(try_recv(qp, wr_id, sges), 0, "ibv_post_recv");
}

/// Takes a completion if one is there; makes progress.
pub fn poll(cq: *mut ibv_cq) -> Option<ibv_wc> {
    let mut wc = ibv_wc::default();
    // SAFETY: a live queue.
    let count = unsafe { (*(*cq).context).ops.poll_cq.expect("never null")(cq, 1, &mut wc) };
    assert!(count >= 0, "ibv_poll_cq answered {count}");
    (count == 1).then_some(wc)
}

/// Polls until a completion is there.
pub fn wait(cq: *mut ibv_cq) -> ibv_wc {
    until("a completion", || poll(cq))
}

/// Tries until there is something.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// Whether a descriptor is readable now.
pub fn readable(fd: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry of this call's own.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// This thread's errno.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
