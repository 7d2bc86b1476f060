//! `ibv_query_device_ex(3)`, `ibv_query_rt_values_ex(3)`.

use std::ffi::c_int;
use std::mem::offset_of;

use transom_abi::*;
use transom_device::queue::TAG_MAX_SGE;
use transom_host::{Limits, Options};
use transom_system::clock;

use crate::context::Context;
use crate::device;
use crate::entry::errno_of;
use crate::{profile, sanitized};

/// Ticks of the device's clock in a millisecond. A tick is a nanosecond.
const CLOCK_KHZ: u64 = 1_000_000;

/// The attributes of the device, with those that `ibv_query_device(3)` lacks. It fills the fields of the caller's
/// struct, and a newer caller's unknown fields with zeros.
///
/// # Safety
/// `context` is null or open; `input` is null or readable; `attr` is null or writable for `size`
/// bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    errno_of("ibv_query_device_ex", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { Context::of(context) }.ok_or(libc::EINVAL)?;
        // SAFETY: by the contract of this verb.
        let unknown = unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0);
        let least = offset_of!(ibv_device_attr_ex, odp_caps);
        if unknown || attr.is_null() || size < least {
            return Err(libc::EINVAL);
        }
        let full = attributes(&ours.device().options());
        let known = size.min(size_of::<ibv_device_attr_ex>());
        let (to, from) = (attr.cast::<u8>(), (&raw const full).cast::<u8>());
        // SAFETY: `size` bytes are writable, by the contract of this verb. The struct is plain data.
        unsafe {
            to.copy_from_nonoverlapping(from, known);
            to.add(known).write_bytes(0, size - known);
        }
        sanitized::has_filled_bytes(to, size);
        Ok(())
    })
}

/// All attributes. Everything about Ethernet frames and hardware is zero: raw packets, checksums,
/// segmentation, spreading of received packets, pacing, atomics of the PCI bus.
fn attributes(options: &Options) -> ibv_device_attr_ex {
    let plain = device::device_attributes(options);
    profile::extended_attributes(ibv_device_attr_ex {
        orig_attr: plain,
        comp_mask: 0,
        odp_caps: on_demand_paging(),
        completion_timestamp_mask: u64::MAX,
        hca_core_clock: CLOCK_KHZ,
        device_cap_flags_ex: u64::from(plain.device_cap_flags)
            | IBV_DEVICE_FLUSH_GLOBAL
            | IBV_DEVICE_ATOMIC_WRITE,
        tso_caps: ibv_tso_caps::default(),
        rss_caps: ibv_rss_caps::default(),
        max_wq_type_rq: 0,
        packet_pacing_caps: ibv_packet_pacing_caps::default(),
        raw_packet_caps: 0,
        tm_caps: tag_matching(),
        cq_mod_caps: ibv_cq_moderation_caps { max_cq_count: u16::MAX, max_cq_period: u16::MAX },
        max_dm_size: Limits::DEVICE.device_memory,
        pci_atomic_caps: ibv_pci_atomic_caps::default(),
        xrc_odp_caps: ONE_SIDED | IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_SRQ_RECV,
        phys_port_cnt_ex: plain.phys_port_cnt.into(),
    })
}

/// The bytes that a rendezvous request may bring beside the 32 bytes of its headers. Software uses them if no tagged
/// buffer matches.
const RENDEZVOUS_HEADER: u32 = 256;

fn tag_matching() -> ibv_tm_caps {
    ibv_tm_caps {
        max_rndv_hdr_size: RENDEZVOUS_HEADER,
        max_num_tags: Limits::DEVICE.tags,
        flags: IBV_TM_CAP_RC,
        max_ops: Limits::DEVICE.tag_operations,
        max_sge: TAG_MAX_SGE as u32,
    }
}

/// The operations of reliable services only.
const ONE_SIDED: u32 = IBV_ODP_SUPPORT_WRITE
    | IBV_ODP_SUPPORT_READ
    | IBV_ODP_SUPPORT_ATOMIC
    | IBV_ODP_SUPPORT_FLUSH
    | IBV_ODP_SUPPORT_ATOMIC_WRITE;

/// No region is ever pinned, so every operation works on demand-paged memory.
fn on_demand_paging() -> ibv_odp_caps {
    let messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    ibv_odp_caps {
        general_caps: u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT),
        per_transport_caps: ibv_odp_caps_per_transport {
            rc_odp_caps: messages | ONE_SIDED,
            uc_odp_caps: messages | IBV_ODP_SUPPORT_WRITE,
            ud_odp_caps: messages,
        },
    }
}

/// Reads the device's clock. As for other devices, all its ticks are in `tv_nsec`.
///
/// # Safety
/// `context` is null or open; `values` is null or writable.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    errno_of("ibv_query_rt_values", || {
        // SAFETY: by the contract of this verb.
        let (ours, values) = unsafe { (Context::of(context), values.as_mut()) };
        let (_, values) = (ours.ok_or(libc::EINVAL)?, values.ok_or(libc::EINVAL)?);
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(libc::EINVAL);
        }
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            values.raw_clock = timespec { tv_sec: 0, tv_nsec: clock::steady() as i64 };
            sanitized::has_filled(&raw const values.raw_clock);
        }
        Ok(())
    })
}
