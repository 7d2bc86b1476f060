//! What the device says it is: in short and in full, to programs older and newer than this one.

use std::mem::{MaybeUninit, offset_of};
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_device::queue::TAG_MAX_SGE;
use transom_host::{Adapter, Limits, Options};
use transom_ibverbs::*;
use transom_system::addresses::ip;

fn end() -> End {
    End::new(Default::default())
}

/// `ibv_query_device_ex` of a struct of `size` bytes at `attr`; zero or an errno.
fn query_raw(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut u8,
    size: usize,
) -> i32 {
    // SAFETY: an open context; the attributes are null or writable for so many bytes.
    unsafe { verbs(context).query_device_ex.expect("there")(context, input, attr.cast(), size) }
}

fn query(context: *mut ibv_context) -> ibv_device_attr_ex {
    let mut attr = MaybeUninit::<ibv_device_attr_ex>::zeroed();
    let size = size_of::<ibv_device_attr_ex>();
    let input = ibv_query_device_ex_input::default();
    assert_eq!(query_raw(context, &input, attr.as_mut_ptr().cast(), size), 0);
    // SAFETY: plain numbers, all of which were written.
    unsafe { attr.assume_init() }
}

/// The plain attributes are the limits of the device, and a longer answer begins with them.
#[test]
fn the_plain_attributes_are_the_limits() {
    let end = end();
    let (attr, limits) = (device_attr(end.context), Limits::DEVICE);
    let told = [
        (attr.max_qp, limits.queue_pairs),
        (attr.max_qp_wr, limits.work_requests),
        (attr.max_sge, limits.max_sge),
        (attr.max_sge_rd, limits.max_sge),
        (attr.max_cq, limits.completion_queues),
        (attr.max_cqe, limits.completions),
        (attr.max_mr, limits.regions),
        (attr.max_mw, limits.windows),
        (attr.max_pd, limits.domains),
        (attr.max_srq, limits.shared_receive_queues),
        (attr.max_srq_wr, limits.shared_work_requests),
        (attr.max_srq_sge, limits.max_sge),
        (attr.max_ah, limits.address_handles),
        (attr.max_mcast_grp, limits.multicast_groups),
        (attr.max_mcast_qp_attach, limits.multicast_members),
        (attr.max_total_mcast_qp_attach, limits.multicast_groups * limits.multicast_members),
        (attr.max_qp_rd_atom, limits.read_resources.into()),
        (attr.max_qp_init_rd_atom, limits.read_resources.into()),
    ];
    for (at, (told, limit)) in told.into_iter().enumerate() {
        assert_eq!(i64::from(told), i64::from(limit), "number {at}");
    }
    assert_eq!(format!("{:?}", query(end.context).orig_attr), format!("{attr:?}"));
}

/// The flags say what there is and nothing else: windows of one kind of type 2, XRC, shared receive
/// queues that can be resized; no hardware's or Ethernet's features.
/// Rules: MWA-07
#[test]
fn the_flags_say_what_there_is() {
    for windows_2a in [false, true] {
        let adapter = Adapter::open(Options { windows_2a, ..Options::default() }).unwrap();
        let end = End::of_device(adapter);
        let flags = device_attr(end.context).device_cap_flags;
        let kind =
            if windows_2a { IBV_DEVICE_MEM_WINDOW_TYPE_2A } else { IBV_DEVICE_MEM_WINDOW_TYPE_2B };
        let expected = kind
            | IBV_DEVICE_MEM_WINDOW
            | IBV_DEVICE_MEM_MGT_EXTENSIONS
            | IBV_DEVICE_RC_RNR_NAK_GEN
            | IBV_DEVICE_CURR_QP_STATE_MOD
            | IBV_DEVICE_SYS_IMAGE_GUID
            | IBV_DEVICE_SRQ_RESIZE
            | IBV_DEVICE_XRC;
        assert_eq!(flags, expected, "{flags:#x}");
        let extended = u64::from(flags) | IBV_DEVICE_FLUSH_GLOBAL | IBV_DEVICE_ATOMIC_WRITE;
        assert_eq!(query(end.context).device_cap_flags_ex, extended);
    }
}

/// Paging on demand for every operation of each transport, a clock of nanoseconds, moderation with
/// any numbers, memory on the device; nothing of Ethernet frames.
#[test]
fn the_extended_attributes_are_those_of_this_device() {
    let attr = query(end().context);
    let messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let fetching = IBV_ODP_SUPPORT_READ
        | IBV_ODP_SUPPORT_ATOMIC
        | IBV_ODP_SUPPORT_FLUSH
        | IBV_ODP_SUPPORT_ATOMIC_WRITE;
    let paging = attr.odp_caps;
    assert_eq!(paging.general_caps, u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
    let each = paging.per_transport_caps;
    assert_eq!(each.rc_odp_caps, messages | IBV_ODP_SUPPORT_WRITE | fetching);
    assert_eq!(each.uc_odp_caps, messages | IBV_ODP_SUPPORT_WRITE);
    assert_eq!(each.ud_odp_caps, messages);
    // XRC receives through shared receive queues only.
    assert_eq!(attr.xrc_odp_caps, each.rc_odp_caps & !IBV_ODP_SUPPORT_RECV);

    assert_eq!((attr.completion_timestamp_mask, attr.hca_core_clock), (u64::MAX, 1_000_000));
    let moderation = attr.cq_mod_caps;
    assert_eq!((moderation.max_cq_count, moderation.max_cq_period), (u16::MAX, u16::MAX));
    assert_eq!(attr.max_dm_size, Limits::DEVICE.device_memory);
    assert_eq!(attr.phys_port_cnt_ex, u32::from(attr.orig_attr.phys_port_cnt));

    assert_eq!((attr.comp_mask, attr.raw_packet_caps, attr.max_wq_type_rq), (0, 0, 0));
    assert_eq!((attr.tso_caps.max_tso, attr.rss_caps.supported_qpts), (0, 0));
    assert_eq!(attr.packet_pacing_caps.supported_qpts, 0);
    let tags = attr.tm_caps;
    assert_eq!((tags.flags, tags.max_num_tags), (IBV_TM_CAP_RC, Limits::DEVICE.tags));
    assert_eq!((tags.max_ops, tags.max_sge), (Limits::DEVICE.tag_operations, TAG_MAX_SGE as u32));
    assert!(tags.max_rndv_hdr_size >= 32);
    let atomics = attr.pci_atomic_caps;
    assert_eq!((atomics.fetch_add, atomics.swap, atomics.compare_swap), (0, 0, 0));
}

/// An older program's shorter struct is filled to its end and not beyond; a newer one's unknown
/// fields are zeroed.
#[test]
fn a_struct_of_any_age_is_filled() {
    const SIZE: usize = size_of::<ibv_device_attr_ex>();
    let end = end();
    let mut full = [0; SIZE];
    assert_eq!(query_raw(end.context, &Default::default(), full.as_mut_ptr(), SIZE), 0);
    let least = offset_of!(ibv_device_attr_ex, odp_caps);
    for size in [least, offset_of!(ibv_device_attr_ex, max_dm_size), SIZE, SIZE + 64] {
        let mut bytes = [0xa5; SIZE + 128];
        assert_eq!(query_raw(end.context, &Default::default(), bytes.as_mut_ptr(), size), 0);
        assert!(bytes[size..].iter().all(|byte| *byte == 0xa5), "{size}");
        if size > SIZE {
            assert!(bytes[SIZE..size].iter().all(|byte| *byte == 0));
        }
        let at = offset_of!(ibv_device_attr_ex, hca_core_clock);
        let clock = u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(clock == 1_000_000, size >= at + 8, "{size}");
    }
    for size in [0, 1, least - 1] {
        let answer = query_raw(end.context, &Default::default(), full.as_mut_ptr(), size);
        assert_eq!(answer, libc::EINVAL);
    }
}

/// So are those of a port. rdma-core's has grown by `active_speed_ex`, which programs take for the speed if it
/// is not zero, and they give it room on their stacks.
#[test]
fn a_ports_struct_of_any_age_is_filled() {
    const SIZE: usize = size_of::<ibv_port_attr>();
    let end = end();
    let query = verbs(end.context).query_port.expect("there");
    for size in [0, offset_of!(ibv_port_attr, link_layer), SIZE, SIZE + 4, SIZE + 64] {
        let mut bytes = [0xa5_a5_a5_a5_u32; SIZE / 4 + 32];
        // SAFETY: an open context, and room for more than that.
        assert_eq!(unsafe { query(end.context, 1, bytes.as_mut_ptr().cast(), size) }, 0);
        let bytes: Vec<_> = bytes.into_iter().flat_map(u32::to_ne_bytes).collect();
        assert!(bytes[size..].iter().all(|byte| *byte == 0xa5), "{size}");
        assert!(bytes[SIZE.min(size)..size].iter().all(|byte| *byte == 0), "{size}");
        let at = offset_of!(ibv_port_attr, state);
        let state = u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(state == IBV_PORT_ACTIVE, size > 0, "{size}");
    }
}

/// Questions that the device does not know are refused.
#[test]
fn unknown_questions_are_refused() {
    let end = end();
    let mut attr = MaybeUninit::<ibv_device_attr_ex>::zeroed();
    let (attr, size) = (attr.as_mut_ptr().cast(), size_of::<ibv_device_attr_ex>());
    for comp_mask in [1, 1 << 31] {
        let input = ibv_query_device_ex_input { comp_mask };
        assert_eq!(query_raw(end.context, &input, attr, size), libc::EINVAL);
    }
    assert_eq!(query_raw(end.context, &Default::default(), null_mut(), size), libc::EINVAL);
    // No input asks nothing in particular.
    assert_eq!(query_raw(end.context, null_mut(), attr, size), 0);

    for comp_mask in [IBV_VALUES_MASK_RESERVED, !0] {
        let mut values = ibv_values_ex { comp_mask, ..ibv_values_ex::default() };
        assert_eq!(query_rt_values(end.context, &mut values), libc::EINVAL);
    }
    assert_eq!(query_rt_values(end.context, null_mut()), libc::EINVAL);
}

/// The device's clock goes on.
#[test]
fn the_raw_clock_rises() {
    let end = end();
    let first = raw_clock(end.context);
    until("the next tick", || (raw_clock(end.context) > first).then_some(()));
    let mut nothing = ibv_values_ex::default();
    assert_eq!(query_rt_values(end.context, &mut nothing), 0);
    assert_eq!((nothing.comp_mask, nothing.raw_clock.tv_nsec), (0, 0));
}

/// Every GID below the length of the table can be asked for, one by one or all at once; each is one of
/// RoCE version 2.
/// Rules: NET-09
#[test]
fn the_gid_table_is_as_long_as_the_port_says() {
    let end = end();
    let mut port = ibv_port_attr::default();
    let size = size_of::<ibv_port_attr>();
    let query_port = verbs(end.context).query_port.expect("there");
    // SAFETY: an open context and a struct of this size.
    assert_eq!(unsafe { query_port(end.context, 1, &mut port, size) }, 0);
    let length = port.gid_tbl_len;
    assert!(length > 0);
    let query_gid = |port, index| {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: an open context and a GID of this call's own.
        let answer = unsafe { ibv_query_gid(end.context, port, index, &mut gid) };
        // SAFETY: sixteen plain bytes.
        if answer == 0 { Ok(unsafe { gid.raw }) } else { Err(errno()) }
    };
    for index in 0..length {
        let mut entry = ibv_gid_entry::default();
        let size = size_of::<ibv_gid_entry>();
        // SAFETY: an open context and an entry of this size.
        let answer =
            unsafe { _ibv_query_gid_ex(end.context, 1, index as u32, &mut entry, 0, size) };
        // An index may be empty.
        assert!(answer == 0 || answer == libc::ENODATA);
        let gid = query_gid(1, index).unwrap();
        if answer == 0 {
            // SAFETY: sixteen plain bytes.
            assert_eq!((gid, entry.gid_index), (unsafe { entry.gid.raw }, index as u32));
            assert_eq!(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
        }
    }
    // Loopback addresses are there where nothing else is.
    let all: Vec<_> = (0..length).map(|index| query_gid(1, index).unwrap()).collect();
    let used = || all.iter().filter(|gid| **gid != [0; 16]);
    let loopback = used().filter(|gid| ip(gid).is_loopback()).count();
    assert!(used().count() > 0 && [0, used().count()].contains(&loopback), "{all:?}");
    for (port, index) in [(1, length), (1, -1), (0, 0), (2, 0)] {
        assert_eq!(query_gid(port, index), Err(libc::EINVAL));
    }
}

/// All GIDs at once, if there is room for all.
/// Rules: NET-09
#[test]
fn the_gid_table_is_told_at_once() {
    let end = end();
    let mut entries = [ibv_gid_entry::default(); 200];
    let mut table = |max, flags, size| {
        // SAFETY: an open context, and room for so many entries.
        unsafe { _ibv_query_gid_table(end.context, entries.as_mut_ptr(), max, flags, size) }
    };
    let (refused, size) = (-(libc::EINVAL as isize), size_of::<ibv_gid_entry>());
    assert_eq!(table(0, 0, size), refused);
    assert_eq!(table(4, 1, size), refused);
    assert_eq!(table(4, 0, size - 1), refused);
    let count = table(128, 0, size);
    assert!((1..=128).contains(&count));
    // A newer program's entries may be longer, by anything.
    assert_eq!(table(128, 0, size + 1), count);
    // As many as there are, and one less.
    assert_eq!(table(count as usize, 0, size), count);
    assert_eq!(table(count as usize - 1, 0, size), refused);
    for entry in &entries[..count as usize] {
        assert_eq!((entry.port_num, entry.gid_type), (1, IBV_GID_TYPE_ROCE_V2));
    }
}
