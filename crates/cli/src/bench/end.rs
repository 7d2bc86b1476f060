//! One end of a measurement: queue pairs on the software device. It calls the verbs as a C program does, with nothing
//! in between.

use std::ffi::c_int;
use std::net::Ipv4Addr;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_host::{Adapter, Memory as Registered, Options};
use transom_ibverbs::*;
use transom_system::memory::Allocation;

use super::setup::Mtu;
use crate::failure::{Failure, Result};

/// The facts that the other end needs.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Card {
    pub(super) pid: u32,
    pub(super) qps: Vec<u32>,
    pub(super) address: u64,
    pub(super) key: u32,
}

/// Rights enough for everything measured.
const ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND;

/// The size of the largest message in bytes.
pub(super) const LARGEST: usize = 1 << 20;

/// How many sends, and how many receives, a queue pair holds.
pub(super) const DEPTH: u32 = 128;

/// How long one end waits for the other.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// A device, its queue pairs, and a registered buffer. Outgoing bytes are in its first half, and incoming bytes go to
/// the second.
pub(super) struct End {
    pub(super) adapter: Arc<Adapter>,
    pub(super) pd: *mut ibv_pd,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    qps: Vec<*mut ibv_qp>,
    pub(super) region: *mut ibv_mr,
    pub(super) memory: Memory,
}

/// New memory that nothing else uses. It is freed with the value. It is shared memory if this process has
/// any.
pub(super) struct Memory {
    memory: Allocation,
    length: usize,
}

impl Memory {
    pub(super) fn new(length: usize) -> Result<Self> {
        let memory = Allocation::new(length);
        let memory = memory.map_err(|error| Failure::new(format!("mapping memory: {error}")))?;
        Ok(Self { memory, length })
    }

    fn first(&self) -> *mut u8 {
        self.memory.first().as_ptr()
    }

    pub(super) fn address(&self) -> u64 {
        self.first() as u64
    }

    /// Touches every page, so that none is missing during the measurement.
    pub(super) fn fill(&self) {
        // SAFETY: our own mapping.
        unsafe { self.first().write_bytes(0x5a, self.length) };
    }

    /// Reads one byte, which others may write meanwhile.
    pub(super) fn byte(&self, at: usize) -> u8 {
        assert!(at < self.length);
        // SAFETY: in our own mapping.
        unsafe { self.first().add(at).read_volatile() }
    }

    pub(super) fn set_byte(&self, at: usize, byte: u8) {
        assert!(at < self.length);
        // SAFETY: in our own mapping.
        unsafe { self.first().add(at).write_volatile(byte) };
    }
}

fn failed(what: &str) -> Failure {
    Failure::new(format!("{what}: {}", std::io::Error::last_os_error()))
}

fn not_null<T>(pointer: *mut T, what: &str) -> Result<*mut T> {
    if pointer.is_null() { Err(failed(what)) } else { Ok(pointer) }
}

impl End {
    /// An end without queue pairs. Its memory is shared, or not.
    pub(super) fn new(is_shared: bool) -> Result<Self> {
        let memory = if is_shared { Registered::Shared } else { Registered::Private };
        let adapter = Adapter::open(Options { memory, ..Options::default() })
            .map_err(|e| Failure::new(e.to_string()))?;
        let context = not_null(open_context(adapter.clone()), "opening the device")?;
        let memory = Memory::new(2 * LARGEST)?;
        memory.fill();
        // SAFETY: each verb gets the results of the ones before.
        let (pd, channel, cq) = unsafe {
            let pd = not_null(ibv_alloc_pd(context), "ibv_alloc_pd")?;
            let channel = not_null(ibv_create_comp_channel(context), "ibv_create_comp_channel")?;
            let cq = ibv_create_cq(context, 8192, null_mut(), channel, 0);
            (pd, channel, not_null(cq, "ibv_create_cq")?)
        };
        let region = register(pd, &memory)?;
        Ok(Self { adapter, pd, channel, cq, qps: Vec::new(), region, memory })
    }

    /// Makes queue pairs, in RESET.
    pub(super) fn add_queue_pairs(&mut self, count: usize) -> Result {
        let mut init = ibv_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
            qp_type: IBV_QPT_RC,
            cap: ibv_qp_cap {
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 64,
            },
            ..ibv_qp_init_attr::default()
        };
        for _ in 0..count {
            // SAFETY: all objects named are live.
            let qp = unsafe { ibv_create_qp(self.pd, &mut init) };
            self.qps.push(not_null(qp, "ibv_create_qp")?);
        }
        Ok(())
    }

    pub(super) fn card(&self) -> Card {
        // SAFETY: made by `new`, and live.
        let qps = self.qps.iter().map(|qp| unsafe { (**qp).qp_num }).collect();
        // SAFETY: as above.
        let key = unsafe { (*self.region).rkey };
        Card { pid: std::process::id(), qps, address: self.memory.address(), key }
    }

    /// Connects each queue pair to the one of the same place at the other end. `over` has the MTU and the addresses here
    /// and there, unless both ends are on one host.
    pub(super) fn connect(&self, peer: &Card, over: Option<(Mtu, [Ipv4Addr; 2])>) -> Result {
        self.connect_last(&peer.qps, over)
    }

    /// Connects the last queue pairs to those with these numbers, RESET to RTS.
    pub(super) fn connect_last(
        &self,
        theirs: &[u32],
        over: Option<(Mtu, [Ipv4Addr; 2])>,
    ) -> Result {
        let mut attr = ibv_qp_attr {
            path_mtu: over.map_or(IBV_MTU_4096, |(mtu, _)| mtu.path().0),
            qp_access_flags: ACCESS & !(IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            ..ibv_qp_attr::default()
        };
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = ibv_gid { raw: LOOPBACK_GID };
        if let Some((_, [here, there])) = over {
            attr.ah_attr.grh.dgid = ibv_gid { raw: there.to_ipv6_mapped().octets() };
            attr.ah_attr.grh.sgid_index = self.gid_index(here)?;
            attr.ah_attr.grh.hop_limit = 64;
        }
        for (qp, number) in self.qps.iter().rev().zip(theirs.iter().rev()) {
            attr.dest_qp_num = *number;
            for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
                attr.qp_state = state;
                let mask = required_attributes(IBV_QPT_RC, state) as c_int;
                // SAFETY: a live queue pair.
                let errno = unsafe { ibv_modify_qp(*qp, &mut attr, mask) };
                if errno != 0 {
                    let error = std::io::Error::from_raw_os_error(errno);
                    return Err(Failure::new(format!("ibv_modify_qp to state {state}: {error}")));
                }
            }
        }
        Ok(())
    }

    /// The index of the port's GID with this address.
    fn gid_index(&self, address: Ipv4Addr) -> Result<u8> {
        let wanted = address.to_ipv6_mapped().octets();
        let is_it = |index: &u8| {
            let mut gid = ibv_gid { raw: [0; 16] };
            // SAFETY: the context is open, and the GID this call's own.
            let code = unsafe { ibv_query_gid((*self.pd).context, 1, (*index).into(), &mut gid) };
            // SAFETY: any bytes are a GID.
            code == 0 && unsafe { gid.raw } == wanted
        };
        // The system tells the device of new addresses, so this may take a moment.
        spin("an address of the device", || Ok((0..=u8::MAX).find(is_it)))
    }

    /// The SGE for the first bytes of the outgoing half.
    pub(super) fn outgoing(&self, size: usize) -> ibv_sge {
        // SAFETY: the region is live.
        let lkey = unsafe { (*self.region).lkey };
        ibv_sge { addr: self.memory.address(), length: size as u32, lkey }
    }

    /// The SGE for the first bytes of the incoming half.
    pub(super) fn incoming(&self, size: usize) -> ibv_sge {
        let sge = self.outgoing(size);
        ibv_sge { addr: sge.addr + LARGEST as u64, ..sge }
    }

    #[inline]
    pub(super) fn post(&self, qp: usize, wr: &mut ibv_send_wr) -> Result {
        let (qp, mut bad) = (self.qps[qp], null_mut());
        // SAFETY: a live queue pair and a valid request.
        let errno =
            unsafe { (*(*qp).context).ops.post_send.expect("never null")(qp, wr, &mut bad) };
        if errno == 0 { Ok(()) } else { Err(Failure::new(format!("ibv_post_send: errno {errno}"))) }
    }

    /// Posts a receive to the first queue pair.
    #[inline]
    pub(super) fn receive(&self, sge: &mut ibv_sge) -> Result {
        let mut wr = ibv_recv_wr { sg_list: sge, num_sge: 1, ..ibv_recv_wr::default() };
        let (qp, mut bad) = (self.qps[0], null_mut());
        // SAFETY: a live queue pair and a valid request.
        let errno =
            unsafe { (*(*qp).context).ops.post_recv.expect("never null")(qp, &mut wr, &mut bad) };
        if errno == 0 { Ok(()) } else { Err(Failure::new(format!("ibv_post_recv: errno {errno}"))) }
    }

    /// The next completion, if there is one.
    #[inline]
    pub(super) fn poll(&self) -> Result<Option<ibv_wc>> {
        let mut wc = ibv_wc::default();
        // SAFETY: a live queue; one entry.
        let count =
            unsafe { (*(*self.cq).context).ops.poll_cq.expect("never null")(self.cq, 1, &mut wc) };
        match count {
            0 => Ok(None),
            1 if wc.status == IBV_WC_SUCCESS => Ok(Some(wc)),
            _ => Err(Failure::new(format!("a work request ended with status {}", wc.status))),
        }
    }

    /// Polls until there is a completion.
    #[inline]
    pub(super) fn wait(&self) -> Result<ibv_wc> {
        spin("a completion", || self.poll())
    }

    /// Waits for a completion asleep in the kernel.
    pub(super) fn wait_asleep(&self) -> Result<ibv_wc> {
        loop {
            if let Some(wc) = self.poll()? {
                return Ok(wc);
            }
            // SAFETY: a live queue.
            unsafe { (*(*self.cq).context).ops.req_notify_cq.expect("never null")(self.cq, 0) };
            if let Some(wc) = self.poll()? {
                return Ok(wc);
            }
            let (mut cq, mut tag) = (null_mut(), null_mut());
            // SAFETY: a live channel; the event is acknowledged at once.
            unsafe {
                if ibv_get_cq_event(self.channel, &mut cq, &mut tag) != 0 {
                    return Err(failed("ibv_get_cq_event"));
                }
                ibv_ack_cq_events(cq, 1);
            }
        }
    }

    /// Posts a work request and polls until it has completed.
    #[inline]
    pub(super) fn carry_out(&self, wr: &mut ibv_send_wr) -> Result {
        self.post(0, wr)?;
        self.wait().map(drop)
    }

    /// A window of type 2.
    pub(super) fn window(&self) -> Result<*mut ibv_mw> {
        // SAFETY: a live domain.
        let mw = unsafe {
            (*(*self.pd).context).ops.alloc_mw.expect("never null")(self.pd, IBV_MW_TYPE_2)
        };
        not_null(mw, "ibv_alloc_mw")
    }

    pub(super) fn free_window(&self, mw: *mut ibv_mw) {
        // SAFETY: a window of ours.
        unsafe { (*(*mw).context).ops.dealloc_mw.expect("never null")(mw) };
    }
}

/// Tries again and again until there is a result. It reads the clock only now and then.
#[inline]
pub(super) fn spin<T>(what: &str, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let mut since = None;
    loop {
        for _ in 0..10_000 {
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            std::hint::spin_loop();
        }
        if since.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
            return Err(Failure::new(format!("{what} did not come in time")));
        }
    }
}

/// A signaled request for these bytes. The caller sets the rest.
pub(super) fn request(opcode: ibv_wr_opcode, sge: &mut ibv_sge) -> ibv_send_wr {
    ibv_send_wr {
        sg_list: sge,
        num_sge: 1,
        opcode,
        send_flags: IBV_SEND_SIGNALED,
        ..ibv_send_wr::default()
    }
}

/// A signaled WRITE or READ between these bytes and the incoming half of the other end.
pub(super) fn one_sided(opcode: ibv_wr_opcode, sge: &mut ibv_sge, peer: &Card) -> ibv_send_wr {
    let mut wr = request(opcode, sge);
    let remote_addr = peer.address + LARGEST as u64;
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr, rkey: peer.key };
    wr
}

/// Registers a whole piece of memory.
pub(super) fn register(pd: *mut ibv_pd, memory: &Memory) -> Result<*mut ibv_mr> {
    // SAFETY: a live domain; registering touches no memory.
    let region = unsafe { ibv_reg_mr(pd, memory.first().cast(), memory.length, ACCESS as c_int) };
    not_null(region, "ibv_reg_mr")
}

/// Ends a registration.
pub(super) fn deregister(region: *mut ibv_mr) -> Result {
    // SAFETY: a region of ours.
    match unsafe { ibv_dereg_mr(region) } {
        0 => Ok(()),
        errno => Err(Failure::new(format!("ibv_dereg_mr: errno {errno}"))),
    }
}
