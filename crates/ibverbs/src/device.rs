//! The list of devices, and queries of the device: `ibv_get_device_list(3)`, `ibv_query_device(3)` and others.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::LazyLock;

use transom_abi::*;
use transom_host::{Limits, Options};
use transom_system::addresses::{Address, Addresses, GID_TABLE};
use transom_system::{node_guid, rehearsal, system_image_guid};
use transom_thread::set_errno;

use crate::context::Context;
use crate::description::Description;
use crate::entry::{errno_of, guarded, number_of, pointer_always};
use crate::gids;
use crate::profile;
use crate::sanitized;
use crate::told;
use crate::wrong::Wrong;

/// The device's vendor.
pub const VENDOR_ID: u32 = 0x0074_736d;
/// The vendor's number for this kind of device.
pub const VENDOR_PART_ID: u32 = 1;
/// The version of the hardware.
pub const HW_VER: u32 = 1;
/// The port's only P_Key, which is the default one.
pub const PKEY: u16 = 0xffff;

/// The C struct with zeroed words behind it. Provider libraries of other vendors read these words to see whether a
/// device is theirs.
#[repr(C)]
struct Device {
    abi: ibv_device,
    not_theirs: [u64; 8],
}

struct Listed(*mut Device);

// SAFETY: the device is never changed after it is made.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

/// The devices of this process, by number.
static LISTED: LazyLock<Vec<Listed>> =
    LazyLock::new(|| (0..).zip(described()).map(|(number, device)| list(number, device)).collect());

/// The descriptions of the devices. If the environment describes none, a device is listed but cannot be opened.
fn described() -> &'static [Description] {
    static ANY: LazyLock<[Description; 1]> = LazyLock::new(Default::default);
    Description::chosen().unwrap_or(&*ANY)
}

fn list(number: u8, device: &Description) -> Listed {
    let text = |text: String| CString::new(text).unwrap_or_default();
    let (node_type, transport_type) = profile::node();
    let abi = ibv_device {
        _ops: _ibv_device_ops::default(),
        node_type,
        transport_type,
        name: padded(device.name.as_c_str()),
        dev_name: padded(&text(dev_name(number))),
        dev_path: padded(&text(dev_path(number))),
        ibdev_path: padded(&text(device.name.ibdev_path())),
    };
    Listed(Box::leak(Box::new(Device { abi, not_theirs: [0; 8] })))
}

/// The name of the character device that a host's device of this number has.
pub fn dev_name(number: u8) -> String {
    format!("uverbs{number}")
}

/// The path of that character device in sysfs.
pub fn dev_path(number: u8) -> String {
    format!("/sys/class/infiniband_verbs/{}", dev_name(number))
}

fn padded<const N: usize>(text: &CStr) -> [c_char; N] {
    let bytes = text.to_bytes();
    std::array::from_fn(|index| bytes.get(index).map_or(0, |byte| *byte as c_char))
}

/// The device of this number, as programs find it in the list. A device that the program has not opened itself may have
/// any number; it goes by the first.
pub(crate) fn listed(number: u8) -> *mut ibv_device {
    LISTED.get(usize::from(number)).unwrap_or(&LISTED[0]).0.cast()
}

/// How the device of this number is described.
fn description(number: u8) -> &'static Description {
    let all = described();
    all.get(usize::from(number)).unwrap_or(&all[0])
}

/// The number of a device that [`ibv_get_device_list`] returns. Any other pointer, null or a device of another library
/// in the process, is not read: `EINVAL`.
pub(crate) fn number_of_device(verb: &'static str, device: *const ibv_device) -> Option<u8> {
    let place = LISTED.iter().position(|listed| std::ptr::eq(device, listed.0.cast()));
    if place.is_none() {
        told::answered(verb, libc::EINVAL);
        set_errno(libc::EINVAL);
    }
    place.and_then(|place| u8::try_from(place).ok())
}

/// The devices, ended by null. The program frees the list by [`ibv_free_device_list`].
///
/// # Safety
/// `count` is null or writable.
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    pointer_always("ibv_get_device_list", || {
        if !count.is_null() {
            // SAFETY: by the contract of this verb.
            unsafe { *count = LISTED.len() as c_int };
        }
        let (room, each) = (LISTED.len() + 1, size_of::<*mut ibv_device>());
        // SAFETY: there is room for all of them and a zero behind them, checked before the write.
        unsafe {
            let list = libc::calloc(room, each).cast::<*mut ibv_device>();
            if list.is_null() {
                return Err(libc::ENOMEM);
            }
            for (index, listed) in LISTED.iter().enumerate() {
                *list.add(index) = listed.0.cast();
            }
            Ok(list)
        }
    })
}

/// Frees a list. Devices opened from it stay open.
///
/// # Safety
/// `list` is from [`ibv_get_device_list`] and not freed.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: `ibv_get_device_list` made it by `calloc`.
    unsafe { libc::free(list.cast()) };
}

/// The name in a device's struct. As in rdma-core's library, a program may have made up that struct itself. Null,
/// `EINVAL`, for a null pointer.
///
/// # Safety
/// `device` is null or names a device that does not change.
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: by the contract of this function.
    match unsafe { device.as_ref() } {
        Some(device) => device.name.as_ptr(),
        None => {
            told::answered("ibv_get_device_name", libc::EINVAL);
            set_errno(libc::EINVAL);
            std::ptr::null()
        }
    }
}

/// The node GUID in network order. Zero, `EINVAL`, if it is no device of this library.
pub extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    number_of_device("ibv_get_device_guid", device).map_or(0, |number| node_guid(number).to_be())
}

/// The kernel's index of the device. It has none, so -1; with `EINVAL` if it is no device of this library.
pub extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    number_of_device("ibv_get_device_index", device);
    -1
}

/// The attributes and limits of the device (`ibv_query_device(3)`).
///
/// # Safety
/// `context` is open; `attr` is writable.
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    errno_of("ibv_query_device", || {
        // SAFETY: by the contract of this verb.
        let Some(ours) = (unsafe { Context::of(context) }) else { return Err(libc::EINVAL) };
        if attr.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        unsafe { attr.write(device_attributes(&ours.device().options())) };
        sanitized::has_filled(attr);
        Ok(())
    })
}

/// The result of [`ibv_query_device`] for a device that is opened so.
pub fn device_attributes(options: &Options) -> ibv_device_attr {
    let limits = Limits::here();
    let type2 = if options.windows_2a {
        IBV_DEVICE_MEM_WINDOW_TYPE_2A
    } else {
        IBV_DEVICE_MEM_WINDOW_TYPE_2B
    };
    let firmware = profile::firmware().and_then(|version| CString::new(version).ok());
    let count = |limit: u32| limit as c_int;
    let reads = c_int::from(limits.read_resources);
    profile::attributes(ibv_device_attr {
        fw_ver: padded(firmware.as_deref().unwrap_or(FW_VER)),
        node_guid: node_guid(options.number).to_be(),
        sys_image_guid: system_image_guid().to_be(),
        max_mr_size: limits.region_bytes,
        page_size_cap: 0xffff_ffff_ffff_f000,
        vendor_id: VENDOR_ID,
        vendor_part_id: VENDOR_PART_ID,
        hw_ver: HW_VER,
        max_qp: count(limits.queue_pairs),
        max_qp_wr: count(limits.work_requests),
        device_cap_flags: IBV_DEVICE_MEM_WINDOW
            | IBV_DEVICE_MEM_MGT_EXTENSIONS
            | IBV_DEVICE_RC_RNR_NAK_GEN
            | IBV_DEVICE_CURR_QP_STATE_MOD
            | IBV_DEVICE_SYS_IMAGE_GUID
            | IBV_DEVICE_SRQ_RESIZE
            | IBV_DEVICE_XRC
            | type2,
        max_sge: count(limits.max_sge),
        max_sge_rd: count(limits.read_sge),
        max_cq: count(limits.completion_queues),
        max_cqe: count(limits.completions),
        max_mr: count(limits.regions),
        max_pd: count(limits.domains),
        max_qp_rd_atom: reads,
        max_ee_rd_atom: 0,
        max_res_rd_atom: reads * count(limits.queue_pairs),
        max_qp_init_rd_atom: limits.initiated_reads.into(),
        max_ee_init_rd_atom: 0,
        atomic_cap: IBV_ATOMIC_HCA,
        max_ee: 0,
        max_rdd: 0,
        max_mw: count(limits.windows),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: count(limits.multicast_groups),
        max_mcast_qp_attach: count(limits.multicast_members),
        max_total_mcast_qp_attach: count(limits.multicast_groups * limits.multicast_members),
        max_ah: count(limits.address_handles),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: count(limits.shared_receive_queues),
        max_srq_wr: count(limits.shared_work_requests),
        max_srq_sge: count(limits.shared_sge),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
    })
}

/// The version of Transom, in place of a firmware's.
pub const FW_VER: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero inside"),
    };

/// The longest message of the port, in bytes.
const MAX_MESSAGE: u32 = 1 << 31;

/// The result of [`ibv_query_port`] for such a device on a host with these addresses.
pub fn port_attributes(device: &Description, addresses: &Addresses) -> ibv_port_attr {
    let down = device.port_is_down || addresses.has_lost_network();
    let (active_width, active_speed) = device.speed.codes();
    ibv_port_attr {
        state: if down { IBV_PORT_DOWN } else { IBV_PORT_ACTIVE },
        max_mtu: IBV_MTU_4096,
        active_mtu: mtu_code(addresses.path_mtu()),
        gid_tbl_len: GID_TABLE as c_int,
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: MAX_MESSAGE,
        pkey_tbl_len: 1,
        // No Ethernet port has a LID.
        lid: 0,
        active_width,
        active_speed,
        phys_state: if down { DISABLED } else { LINK_UP },
        link_layer: IBV_LINK_LAYER_ETHERNET,
        ..ibv_port_attr::default()
    }
}

/// `phys_state` of a port with a link, and of one without.
const LINK_UP: u8 = 5;
const DISABLED: u8 = 3;

/// The `enum ibv_mtu` of a path MTU in bytes.
pub(crate) fn mtu_code(bytes: u32) -> u32 {
    bytes.ilog2().saturating_sub(7)
}

/// Runs `look` on the addresses of the device.
///
/// # Safety
/// `context` is null or open.
unsafe fn with_addresses<T>(
    context: *mut ibv_context,
    look: impl FnOnce(&Addresses) -> T,
) -> Option<T> {
    // SAFETY: by the contract of this function.
    let ours = unsafe { Context::of(context) }?;
    Some(look(&ours.device().port().addresses()))
}

/// Fills the fields of the caller's struct (`ibv_query_port(3)`), and a newer caller's unknown fields with zeros.
///
/// # Safety
/// `context` is null or open; `attr` is writable for `length` bytes.
pub(crate) unsafe extern "C" fn query_port_ex(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    errno_of("ibv_query_port", || {
        if attr.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this function.
        let full = unsafe { port_of(context, port) }?;
        let known = length.min(size_of::<ibv_port_attr>());
        let (to, from) = (attr.cast::<u8>(), (&raw const full).cast::<u8>());
        // SAFETY: `length` bytes are writable, by the contract of this function. The struct is plain data.
        unsafe {
            to.copy_from_nonoverlapping(from, known);
            to.add(known).write_bytes(0, length - known);
        }
        sanitized::has_filled_bytes(to, length);
        Ok(())
    })
}

/// The current attributes of a port.
///
/// # Safety
/// `context` is null or open.
pub(crate) unsafe fn port_of(context: *mut ibv_context, port: u8) -> Result<ibv_port_attr, c_int> {
    // SAFETY: by the contract of this function.
    let ours = unsafe { Context::of(context) }.filter(|_| port == 1).ok_or(libc::EINVAL)?;
    let described = description(ours.device().options().number);
    let mut full = port_attributes(described, &ours.device().port().addresses());
    full.gid_tbl_len = gids::length() as c_int;
    rehearsal::small_mtu().inspect(|it| it.note());
    if ours.device().port().outages().is_down() {
        (full.state, full.phys_state) = (IBV_PORT_DOWN, DISABLED);
    }
    Ok(full)
}

/// The exported form, which older programs call. It fills their shorter struct.
///
/// # Safety
/// `context` is null or open; `attr` is writable for 48 bytes.
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    const OLD_SIZE: usize = 48;
    // SAFETY: by the contract of this verb.
    unsafe { query_port_ex(context, port, attr, OLD_SIZE) }
}

/// The GID at an index of the port.
///
/// # Safety
/// `context` is null or open; `gid` is writable.
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    number_of("ibv_query_gid", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { Context::of(context) }.filter(|_| !gid.is_null());
        let ours = ours.ok_or(libc::EINVAL)?;
        let index = gid_index(port.into(), index.into());
        let index = index.map_err(|wrong| wrong.told(None, "ibv_query_gid", 0))?;
        let raw = gid_at(&ours.device().port().addresses(), index);
        // SAFETY: by the contract of this verb.
        unsafe { *gid = ibv_gid { raw } };
        sanitized::has_filled(gid);
        Ok(0)
    })
}

/// Checks an index of the port's GID table.
fn gid_index(port: u32, index: i64) -> Result<usize, Wrong> {
    Wrong::check_port("port_num", port, "")?;
    let entries = gids::length();
    let place = usize::try_from(index).ok().filter(|index| *index < entries);
    place.ok_or(match u64::try_from(index) {
        Ok(index) => Wrong::no_entry("index", index, entries as u64, ""),
        Err(_) => Wrong::invalid("index", u64::from(index as u32), ""),
    })
}

/// The GID at an index. Zeros if there is none.
fn gid_at(addresses: &Addresses, index: usize) -> [u8; 16] {
    gids::entry(addresses, index).map_or([0; 16], |(address, _)| address.gid)
}

/// The type of a GID, by the older enum: 1 is RoCE v2.
///
/// # Safety
/// `context` is null or open; `kind` is writable.
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    number_of("ibv_query_gid_type", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { Context::of(context) }.filter(|_| !kind.is_null());
        let ours = ours.ok_or(libc::EINVAL)?;
        let index = gid_index(port.into(), index.into());
        let index = index.map_err(|wrong| wrong.told(None, "ibv_query_gid_type", 0))?;
        let addresses = ours.device().port().addresses();
        let is_v2 = |(_, kind)| kind == IBV_GID_TYPE_ROCE_V2;
        let is_v2 = gids::entry(&addresses, index).is_some_and(is_v2);
        // SAFETY: by the contract of this verb.
        unsafe { *kind = c_uint::from(is_v2) };
        sanitized::has_filled(kind);
        Ok(0)
    })
}

fn gid_entry(index: usize, (address, kind): (&Address, ibv_gid_type)) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: address.gid },
        gid_index: index as u32,
        port_num: 1,
        gid_type: kind,
        ndev_ifindex: address.interface,
    }
}

/// A GID table entry (`ibv_query_gid_ex(3)`).
///
/// # Safety
/// `context` is null or open; `entry` is writable for `size` bytes.
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    errno_of("_ibv_query_gid_ex", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { Context::of(context) }.filter(|_| !entry.is_null() && flags == 0);
        let ours = ours.ok_or(libc::EINVAL)?;
        let told = |wrong: Wrong| wrong.told(None, "_ibv_query_gid_ex", 0);
        let index = gid_index(port, index.into()).map_err(told)?;
        let addresses = ours.device().port().addresses();
        let found = gids::entry(&addresses, index).map(|found| gid_entry(index, found));
        // Programs search the table in this way, so an empty entry is no fault.
        let found = found.ok_or_else(|| {
            told::is_no_fault();
            libc::ENODATA
        })?;
        if size < size_of::<ibv_gid_entry>() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        unsafe { entry.write(found) };
        sanitized::has_filled(entry);
        Ok(())
    })
}

/// Reads all GID table entries (`ibv_query_gid_table(3)`). Returns their number, or a negative errno: `EINVAL` if there
/// is no room for all.
///
/// # Safety
/// `context` is null or open; `entries` is writable for `max` entries of `size` bytes.
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    let fill_table = || {
        let wrong = context.is_null() || entries.is_null() || flags != 0;
        if wrong || max == 0 || size < size_of::<ibv_gid_entry>() {
            return Err(libc::EINVAL);
        }
        let fill = |addresses: &Addresses| {
            let mut count = 0;
            let all = (0..gids::used(addresses)).map(|it| (it, gids::entry(addresses, it)));
            for (index, found) in all.filter_map(|(it, found)| Some((it, found?))) {
                if count == max {
                    return Err(libc::EINVAL);
                }
                // SAFETY: by the contract of this verb, there is room for `max` entries of `size` bytes. `size` may be
                // any number, so the write is unaligned.
                unsafe { entries.byte_add(count * size).write_unaligned(gid_entry(index, found)) };
                count += 1;
            }
            sanitized::has_filled_bytes(entries.cast(), count * size);
            Ok(count as isize)
        };
        // SAFETY: by the contract of this verb.
        unsafe { with_addresses(context, fill) }.ok_or(libc::EINVAL)?
    };
    let told = guarded("_ibv_query_gid_table", || told::while_barred(fill_table));
    told.unwrap_or_else(|errno| -(errno as isize))
}

/// The only P_Key, the default one, in network order.
///
/// # Safety
/// `pkey` is writable.
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    number_of("ibv_query_pkey", || {
        if context.is_null() || pkey.is_null() || port != 1 || index != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        unsafe { *pkey = PKEY.to_be() };
        sanitized::has_filled(pkey);
        Ok(0)
    })
}

/// The index of a P_Key, or -1.
///
/// # Safety
/// `context` is null or open.
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    number_of("ibv_get_pkey_index", || match pkey == PKEY.to_be() {
        _ if context.is_null() || port != 1 => Err(libc::EINVAL),
        true => Ok(0),
        false => Err(libc::ENOENT),
    })
}

/// The path of sysfs.
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads `directory/file` into `buffer`, without its final newline. Returns its length, or -1.
///
/// # Safety
/// The strings are null or end in zero; `buffer` is null or writable for `size` bytes.
pub unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    use std::os::unix::ffi::OsStrExt;
    number_of("ibv_read_sysfs_file", || {
        if directory.is_null() || file.is_null() || buffer.is_null() || size == 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        let (directory, file) = unsafe { (CStr::from_ptr(directory), CStr::from_ptr(file)) };
        let path = |text: &CStr| PathBuf::from(OsStr::from_bytes(text.to_bytes()));
        let mut bytes = Vec::new();
        // Read no more than there is room for, because some files have no end.
        let room = u64::try_from(size).unwrap_or(u64::MAX);
        File::open(path(directory).join(path(file)))
            .and_then(|file| file.take(room).read_to_end(&mut bytes))
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        let length = bytes.len().min(size - 1);
        // SAFETY: `length + 1` bytes fit, by the contract of this verb.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), length);
            *buffer.add(length) = 0;
        }
        Ok(length as c_int)
    })
}
