//! `ibv_create_ah(3)`: address handles.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering::*};

use transom_abi::*;
use transom_check::ledger::Thing;
use transom_device::queue::{Address, Datagram};
use transom_host::Limits;
use transom_rehearse::Feature;
use transom_system::addresses::{Addresses, NoSource, ip, is_multicast};
use transom_system::fork::HeldOverForks;
use transom_system::registry::CallFault;
use transom_wire::grh::{GRH_BYTES, Route};

use crate::check;
use crate::context::Context;
use crate::entry::{errno_always, errno_of, number_of, pointer_of};
use crate::gids;
use crate::object::{Table, trusted};
use crate::pd::{self, Pd};
use crate::profile;
use crate::sanitized;
use crate::wrong::Wrong;

/// An address handle.
pub(crate) struct Ah {
    address: Address,
    pd: Pd,
}

static AHS: Table<ibv_ah, Ah> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &AHS
}

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The destination of a datagram that is sent with this address handle. Posts trust the pointer, as C allows.
///
/// # Safety
/// `ah` is null or live.
#[inline]
pub(crate) unsafe fn datagram(
    verb: &'static str,
    ah: *mut ibv_ah,
    qp: u32,
    qkey: u32,
) -> Result<Datagram, c_int> {
    // SAFETY: by the contract of this function.
    let ours = unsafe { trusted::<ibv_ah, Ah>(ah) }.ok_or_else(|| {
        check::is_dead(verb, Thing::AddressHandle, ah);
        libc::EINVAL
    })?;
    Ok(Datagram { pd: ours.pd.domain.number(), address: ours.address, qp, qkey })
}

/// The highest service level that has an Ethernet priority (rule NET-15).
const MAX_SERVICE_LEVEL: u8 = 7;

/// The address in an address vector (rule ST-09). RoCE addresses are GIDs only.
pub(crate) fn address(attr: &ibv_ah_attr, addresses: &Addresses) -> Result<Address, Wrong> {
    Wrong::check_port("ah_attr.port_num", attr.port_num.into(), "ST-09")?;
    if attr.sl > MAX_SERVICE_LEVEL {
        return Err(Wrong::too_much("ah_attr.sl", attr.sl.into(), 7, "NET-15"));
    }
    if attr.is_global == 0 {
        return Err(Wrong::with(libc::EINVAL, CallFault::NoGrh, 0, "ST-09"));
    }
    let grh = &attr.grh;
    // SAFETY: both variants are plain bytes.
    let gid = unsafe { grh.dgid.raw };
    let index = grh.sgid_index;
    let place = gids::place(index.into()).ok_or(NoSource::Empty);
    let source =
        place.and_then(|place| addresses.source(place, &gid)).map_err(|why| match why {
            NoSource::Empty => {
                let entries = gids::used(addresses) as u64;
                Wrong::no_entry("grh.sgid_index", index.into(), entries, "ST-09")
            }
            NoSource::OtherFamily => {
                let wrong =
                    Wrong::with(libc::EINVAL, CallFault::OtherFamily, index.into(), "ST-09");
                wrong.and(ip(&gid).is_ipv4().into())
            }
        })?;
    Ok(Address {
        gid,
        source,
        traffic_class: grh.traffic_class,
        // A packet with hop limit zero would not leave the host. Programs that leave it out mean the default.
        hop_limit: if grh.hop_limit == 0 { 64 } else { grh.hop_limit },
        flow_label: grh.flow_label & 0xf_ffff,
    })
}

/// Makes an address handle.
///
/// # Safety
/// `pd` is null or readable; `attr` is null or readable.
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    pointer_of("ibv_create_ah", || {
        // SAFETY: by the contract of this verb.
        unsafe { create(pd, attr.as_ref()).map_err(|wrong| wrong.told(None, "ibv_create_ah", 0)) }
    })
}

/// # Safety
/// `pd` is null or readable.
unsafe fn create(
    pd_pointer: *mut ibv_pd,
    attr: Option<&ibv_ah_attr>,
) -> Result<*mut ibv_ah, Wrong> {
    profile::needs(Feature::AddressHandles)?;
    let attr = attr.ok_or(libc::EINVAL)?;
    // SAFETY: by the contract of this function.
    let pd = unsafe { pd::find(pd_pointer) };
    let pd = pd.map_err(|errno| Wrong::unknown("pd", errno, "PD-08"))?;
    // SAFETY: a protection domain's context is open.
    let context = unsafe { Context::to_make_in(pd.context) }?;
    let address = address(attr, &context.device().port().addresses())?;
    context.device().port().check_reachable(&address, true).map_err(Wrong::unreachable)?;
    let limit = Limits::here().address_handles;
    let one_more = |count| (count < limit).then(|| count + 1);
    COUNT.fetch_update(AcqRel, Relaxed, one_more).map_err(|_| Wrong::exhausted(""))?;
    if pd.domain.adopt().is_err() {
        COUNT.fetch_sub(1, AcqRel);
        return Err(libc::EBUSY.into());
    }
    let abi = ibv_ah { context: pd.context, pd: pd_pointer, handle: 0 };
    Ok(AHS.insert(abi, |_| Ah { address, pd }))
}

/// Makes an address handle to reply to a received datagram.
///
/// # Safety
/// As [`ibv_create_ah`]; `wc` and `grh` are null or readable.
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    pointer_of("ibv_create_ah_from_wc", || {
        // SAFETY: by the contract of this verb.
        unsafe {
            let context = pd.as_ref().map_or(std::ptr::null_mut(), |pd| pd.context);
            let attr = from_wc(context, port, wc, grh)?;
            create(pd, Some(&attr)).map_err(|wrong| wrong.told(None, "ibv_create_ah_from_wc", 0))
        }
    })
}

/// Fills in the address of a datagram's sender (`ibv_init_ah_from_wc(3)`).
///
/// # Safety
/// `context` is null or open; `wc`, `grh` and `attr` are null or valid; `grh` is the first 40 bytes of the receive buffer.
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    number_of("ibv_init_ah_from_wc", || {
        // SAFETY: by the contract of this verb.
        let attr = unsafe { attr.as_mut() }.ok_or(libc::EINVAL)?;
        // SAFETY: by the contract of this verb.
        *attr = unsafe { from_wc(context, port, wc, grh) }?;
        sanitized::has_filled(attr);
        Ok(0)
    })
}

/// The index of the GID that replies to a datagram come from. It is the GID that the datagram was sent to. `None` if the
/// area does not hold the header of a datagram to this port, and for a datagram to a group, as in rdma-core: a group is
/// in no GID table, so the program must choose the address that it answers from.
fn answering(route: &Route, addresses: &Addresses) -> Option<usize> {
    if is_multicast(&route.destination) {
        None
    } else if ip(&route.destination).is_loopback() {
        // Every loopback address reaches this host.
        addresses.own().map(|(index, _)| index)
    } else {
        addresses.index_of(&route.destination)
    }
}

/// The address of a datagram's sender.
///
/// # Safety
/// As [`ibv_init_ah_from_wc`].
unsafe fn from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
) -> Result<ibv_ah_attr, c_int> {
    // SAFETY: by the contract of this function.
    let wc = unsafe { wc.as_ref() }.filter(|_| port == 1).ok_or(libc::EINVAL)?;
    let mut answer = ibv_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..ibv_ah_attr::default()
    };
    if wc.wc_flags & IBV_WC_GRH != 0 {
        // SAFETY: by the contract of this function.
        let area = unsafe { grh.cast::<[u8; GRH_BYTES]>().as_ref() };
        let route = area.and_then(Route::read).ok_or(libc::EINVAL)?;
        // SAFETY: by the contract of this function.
        let ours = unsafe { Context::of(context) }.ok_or(libc::EINVAL)?;
        let index = answering(&route, &ours.device().port().addresses()).ok_or(libc::EINVAL)?;
        answer.is_global = 1;
        let index = u8::try_from(gids::index_of(index));
        answer.grh.sgid_index = index.map_err(|_| libc::EINVAL)?;
        answer.grh.dgid = ibv_gid { raw: route.source };
        answer.grh.traffic_class = route.traffic_class;
        answer.grh.flow_label = route.flow_label;
        answer.grh.hop_limit = route.hop_limit;
    }
    Ok(answer)
}

/// Ends an address handle. Datagrams posted with it are still sent.
///
/// # Safety
/// `ah` is null or readable.
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    errno_always("ibv_destroy_ah", || {
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { AHS.take(ah) }?;
        let ours = taken.inner.take().ok_or(libc::ENOENT)?;
        ours.pd.domain.release();
        COUNT.fetch_sub(1, AcqRel);
        Ok(())
    })
}

/// The Ethernet address and VLAN of a GID. This device's own GIDs have neither. Those of other hosts are left to the
/// kernel, because packets go by UDP.
///
/// # Safety
/// `context` is null or open; `attr` is null or readable; `mac` is writable for six bytes, `vlan` is writable; either may be null.
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    mac: *mut u8,
    vlan: *mut u16,
) -> c_int {
    const NO_VLAN: u16 = 0xffff;
    errno_of("ibv_resolve_eth_l2_from_gid", || {
        // SAFETY: by the contract of this verb.
        let (Some(attr), Some(ours)) = (unsafe { attr.as_ref() }, unsafe { Context::of(context) })
        else {
            return Err(libc::EINVAL);
        };
        let addresses = ours.device().port().addresses();
        if addresses.index_of(&address(attr, &addresses)?.gid).is_none() {
            return Err(libc::EHOSTUNREACH);
        }
        // SAFETY: by the contract of this verb.
        unsafe {
            if !mac.is_null() {
                mac.cast::<[u8; 6]>().write([0; 6]);
            }
            if !vlan.is_null() {
                vlan.write(NO_VLAN);
            }
        }
        Ok(())
    })
}

/// Ends the address handles of a context, which is being closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in AHS.take_all(context) {
        if let Some(ours) = taken.inner.take() {
            ours.pd.domain.release();
            COUNT.fetch_sub(1, AcqRel);
        }
    }
}
