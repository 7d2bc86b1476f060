//! One end of a measurement: a queue pair on the software device, driven through the verbs as a C
//! program drives them, with nothing in between.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use transom_abi::*;
use transom_host::Adapter;
use transom_ibverbs::*;

use crate::failure::Failure;

/// What the other end must know.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Card {
    pub(super) pid: u32,
    pub(super) qp: u32,
    pub(super) address: u64,
    pub(super) key: u32,
}

/// Rights enough for everything measured.
const ACCESS: u32 =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;

/// Bytes of the buffer at each end.
pub(super) const BUFFER: usize = 1 << 20;

/// A device, a queue pair, and a registered buffer.
pub(super) struct End {
    pub(super) adapter: Arc<Adapter>,
    pub(super) pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    pub(super) region: *mut ibv_mr,
    pub(super) memory: Memory,
}

/// Fresh memory that nothing else uses, gone with the value.
pub(super) struct Memory {
    address: *mut c_void,
    length: usize,
}

impl Memory {
    pub(super) fn new(length: usize) -> Result<Self, Failure> {
        // SAFETY: a fresh private mapping.
        let address = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(failed("mapping memory"));
        }
        Ok(Self { address, length })
    }

    pub(super) fn address(&self) -> u64 {
        self.address as u64
    }

    /// Touches every page, so that none is missing while the clock runs.
    fn fill(&self) {
        // SAFETY: our own mapping.
        unsafe { self.address.cast::<u8>().write_bytes(0x5a, self.length) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

fn failed(what: &str) -> Failure {
    Failure::new(format!("{what}: {}", std::io::Error::last_os_error()))
}

fn not_null<T>(pointer: *mut T, what: &str) -> Result<*mut T, Failure> {
    if pointer.is_null() { Err(failed(what)) } else { Ok(pointer) }
}

impl End {
    pub(super) fn new() -> Result<Self, Failure> {
        let adapter = Adapter::open(transom_host::Options::default())
            .map_err(|e| Failure::new(e.to_string()))?;
        let context = not_null(open_context(adapter.clone()), "opening the device")?;
        let memory = Memory::new(BUFFER)?;
        memory.fill();
        // SAFETY: each verb gets what the one before has made.
        unsafe {
            let pd = not_null(ibv_alloc_pd(context), "ibv_alloc_pd")?;
            let cq =
                not_null(ibv_create_cq(context, 64, null_mut(), null_mut(), 0), "ibv_create_cq")?;
            let mut init = ibv_qp_init_attr {
                send_cq: cq,
                recv_cq: cq,
                qp_type: IBV_QPT_RC,
                cap: ibv_qp_cap {
                    max_send_wr: 16,
                    max_recv_wr: 1,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                ..ibv_qp_init_attr::default()
            };
            let qp = not_null(ibv_create_qp(pd, &mut init), "ibv_create_qp")?;
            let region = register(pd, &memory)?;
            Ok(Self { adapter, pd, cq, qp, region, memory })
        }
    }

    pub(super) fn card(&self) -> Card {
        // SAFETY: made by `new`, live.
        let (qp, key) = unsafe { ((*self.qp).qp_num, (*self.region).rkey) };
        Card { pid: std::process::id(), qp, address: self.memory.address(), key }
    }

    /// Connects to the other end, RESET to RTS.
    pub(super) fn connect(&self, peer: &Card) -> Result<(), Failure> {
        let mut attr = ibv_qp_attr {
            path_mtu: IBV_MTU_4096,
            dest_qp_num: peer.qp,
            qp_access_flags: ACCESS & !IBV_ACCESS_MW_BIND,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..ibv_qp_attr::default()
        };
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = ibv_gid { raw: LOOPBACK_GID };
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            attr.qp_state = state;
            let mask = required_attributes(IBV_QPT_RC, state) as c_int;
            // SAFETY: a live queue pair.
            let errno = unsafe { ibv_modify_qp(self.qp, &mut attr, mask) };
            if errno != 0 {
                let error = std::io::Error::from_raw_os_error(errno);
                return Err(Failure::new(format!("ibv_modify_qp to state {state}: {error}")));
            }
        }
        Ok(())
    }

    /// Posts a work request and polls until it has completed.
    #[inline]
    pub(super) fn carry_out(&self, wr: &mut ibv_send_wr) -> Result<(), Failure> {
        self.post(wr)?;
        self.wait()
    }

    #[inline]
    pub(super) fn post(&self, wr: &mut ibv_send_wr) -> Result<(), Failure> {
        let mut bad = null_mut();
        // SAFETY: a live queue pair and a valid request.
        let errno = unsafe {
            (*(*self.qp).context).ops.post_send.expect("never null")(self.qp, wr, &mut bad)
        };
        if errno == 0 { Ok(()) } else { Err(Failure::new(format!("ibv_post_send: errno {errno}"))) }
    }

    #[inline]
    fn wait(&self) -> Result<(), Failure> {
        let mut wc = ibv_wc::default();
        loop {
            // SAFETY: a live queue; one entry.
            let count = unsafe {
                (*(*self.cq).context).ops.poll_cq.expect("never null")(self.cq, 1, &mut wc)
            };
            match count {
                0 => std::hint::spin_loop(),
                1 if wc.status == IBV_WC_SUCCESS => return Ok(()),
                _ => {
                    return Err(Failure::new(format!(
                        "a work request ended with status {}",
                        wc.status
                    )));
                }
            }
        }
    }

    /// A window of type 2.
    pub(super) fn window(&self) -> Result<*mut ibv_mw, Failure> {
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

/// Registers all of a piece of memory.
pub(super) fn register(pd: *mut ibv_pd, memory: &Memory) -> Result<*mut ibv_mr, Failure> {
    // SAFETY: a live domain; registering touches no memory.
    let region = unsafe { ibv_reg_mr(pd, memory.address, memory.length, ACCESS as c_int) };
    not_null(region, "ibv_reg_mr")
}

/// Ends a registration.
pub(super) fn deregister(region: *mut ibv_mr) -> Result<(), Failure> {
    // SAFETY: a region of ours.
    match unsafe { ibv_dereg_mr(region) } {
        0 => Ok(()),
        errno => Err(Failure::new(format!("ibv_dereg_mr: errno {errno}"))),
    }
}

/// A signaled WRITE or READ of the first `length` bytes.
pub(super) fn one_sided(opcode: ibv_wr_opcode, sge: &mut ibv_sge, peer: &Card) -> ibv_send_wr {
    let mut wr = ibv_send_wr {
        sg_list: sge,
        num_sge: 1,
        opcode,
        send_flags: IBV_SEND_SIGNALED,
        ..ibv_send_wr::default()
    };
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr: peer.address, rkey: peer.key };
    wr
}

/// An unsignaled bind of the first `length` bytes of a region, and the LOCAL_INV that ends it.
pub(super) fn bind_and_invalidate(
    end: &End,
    mw: *mut ibv_mw,
    region: *mut ibv_mr,
    length: u64,
) -> Result<(), Failure> {
    // SAFETY: window and region are live.
    let (key, address) = unsafe { ((*mw).rkey.wrapping_add(1), (*region).addr as u64) };
    let mut bind = ibv_send_wr { opcode: IBV_WR_BIND_MW, ..ibv_send_wr::default() };
    bind.op.bind_mw = ibv_send_wr_bind_mw {
        mw,
        rkey: key,
        bind_info: ibv_mw_bind_info {
            mr: region,
            addr: address,
            length,
            mw_access_flags: IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
        },
    };
    end.post(&mut bind)?;
    let mut invalidate = ibv_send_wr {
        opcode: IBV_WR_LOCAL_INV,
        send_flags: IBV_SEND_SIGNALED,
        ..ibv_send_wr::default()
    };
    // SAFETY: a live window; posting has put the new key there.
    invalidate.imm.invalidate_rkey = unsafe { (*mw).rkey };
    end.carry_out(&mut invalidate)
}

/// The floor: what the kernel alone takes for the same bytes between the same processes.
pub(super) fn kernel_copy(write: bool, peer: &Card, near: u64, length: usize) -> bool {
    let near = libc::iovec { iov_base: near as *mut c_void, iov_len: length };
    let far = libc::iovec { iov_base: peer.address as *mut c_void, iov_len: length };
    // SAFETY: both ranges are buffers of this measurement; the kernel checks them.
    let moved = unsafe {
        if write {
            libc::process_vm_writev(peer.pid as i32, &near, 1, &far, 1, 0)
        } else {
            libc::process_vm_readv(peer.pid as i32, &near, 1, &far, 1, 0)
        }
    };
    usize::try_from(moved) == Ok(length)
}
