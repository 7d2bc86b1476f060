//! What the device lacks because it stands for another adapter (`transom rehearse --as`). Outside such a rehearsal
//! nothing is lacking.

use std::ffi::{c_int, c_uint};

use transom_abi::*;
use transom_device::Access;
use transom_device::qp::Service;
use transom_host::Limits;
use transom_rehearse::Feature;
use transom_rehearse::profile::{AtomicCap, Carries, Node, Operations, Wanted};
use transom_system::rehearsal;

use crate::wrong::Wrong;

/// Whether the device has something.
pub(crate) fn has(feature: Feature) -> bool {
    rehearsal::profile().is_none_or(|profile| profile.has(feature))
}

/// The node type of the devices, and their transport. Programs see them before they open one.
pub(crate) fn node() -> (ibv_node_type, ibv_transport_type) {
    match rehearsal::planned_profile().map_or(Node::Ca, |profile| profile.node) {
        Node::Ca => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        Node::Rnic => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
        Node::Unspecified => (IBV_NODE_UNSPECIFIED, IBV_TRANSPORT_UNSPECIFIED),
    }
}

/// `EOPNOTSUPP` if the device lacks what a verb needs.
pub(crate) fn needs(feature: Feature) -> Result<(), c_int> {
    if has(feature) { Ok(()) } else { Err(libc::EOPNOTSUPP) }
}

/// `EOPNOTSUPP` if the device lacks a type of queue pair.
pub(crate) fn needs_service(service: Service, kind: ibv_qp_type) -> Result<(), Wrong> {
    let feature = match service {
        Service::Rc => Feature::Rc,
        Service::Uc => Feature::Uc,
        Service::Ud => Feature::Ud,
        Service::XrcInitiator | Service::XrcTarget => Feature::Xrc,
    };
    needs(feature).map_err(|_| Wrong::unsupported("qp_type", kind.into(), "REH-52"))
}

/// The operations that no queue pair can build: bits of `ibv_qp_create_send_ops_flags`.
pub(crate) fn lacking_operations() -> u64 {
    let all = [
        (Feature::Atomics, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
        (Feature::AtomicWrites, IBV_QP_EX_WITH_ATOMIC_WRITE),
        (Feature::Flushes, IBV_QP_EX_WITH_FLUSH),
        (Feature::RemoteInvalidate, IBV_QP_EX_WITH_SEND_WITH_INV),
        (Feature::LocalInvalidate, IBV_QP_EX_WITH_LOCAL_INV),
        (Feature::Windows, IBV_QP_EX_WITH_BIND_MW),
        (Feature::Immediates, IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM),
        (
            Feature::OneSided,
            IBV_QP_EX_WITH_RDMA_READ
                | IBV_QP_EX_WITH_RDMA_WRITE
                | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
        ),
    ];
    let lacking = all.into_iter().filter(|(feature, _)| !has(*feature));
    lacking.fold(0, |all, (_, bits)| all | u64::from(bits))
}

/// The fault of rights that no region can have.
pub(crate) fn check_rights(bits: c_uint) -> Result<(), Wrong> {
    const USUAL: Access =
        Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);
    let all = [
        (Feature::OnDemandPaging, Access::ON_DEMAND.bits()),
        (Feature::ZeroBased, Access::ZERO_BASED.bits()),
        (Feature::HugePages, Access::HUGETLB.bits()),
        (Feature::OtherRights, !(USUAL.bits() | IBV_ACCESS_OPTIONAL_RANGE)),
    ];
    let refused = |(feature, right): &(Feature, c_uint)| bits & right != 0 && !has(*feature);
    match all.into_iter().find(refused) {
        Some((_, right)) => Err(Wrong::unsupported("access", (bits & right).into(), "REH-52")),
        None => Ok(()),
    }
}

/// Whether the post of a request is refused. `signals_all` is true of a queue pair whose requests all have a completion.
pub(crate) fn refuses(wr: &ibv_send_wr, signals_all: bool) -> bool {
    let needed = match wr.opcode {
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => Some(Feature::Atomics),
        IBV_WR_ATOMIC_WRITE => Some(Feature::AtomicWrites),
        IBV_WR_SEND_WITH_INV => Some(Feature::RemoteInvalidate),
        IBV_WR_LOCAL_INV => Some(Feature::LocalInvalidate),
        IBV_WR_BIND_MW => Some(Feature::Windows),
        IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM => Some(Feature::Immediates),
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ => Some(Feature::OneSided),
        _ => None,
    };
    let is_read = wr.opcode == IBV_WR_RDMA_READ;
    needed.is_some_and(|feature| !has(feature))
        || refuses_shape(is_read, wr.num_sge, wr.send_flags, signals_all)
}

/// The same of what does not depend on the operation, but that it is a READ. It is all that can be wrong with a request
/// that the program has built call by call: a queue pair has no builders for what the adapter lacks.
pub(crate) fn refuses_shape(is_read: bool, sges: c_int, flags: c_uint, signals_all: bool) -> bool {
    let asks = |bits| flags & bits != 0;
    is_read && sges > Limits::here().read_sge as c_int
        || !(signals_all || asks(IBV_SEND_SIGNALED) || has(Feature::Unsignaled))
        || asks(IBV_SEND_SOLICITED | IBV_SEND_FENCE) && !has(Feature::SolicitedAndFence)
}

/// How much inline data the adapter grants to a queue pair that asks for this. `None` if it stands for no adapter.
pub(crate) fn inline(cap: &ibv_qp_cap, service: Service, operations: Option<u64>) -> Option<u32> {
    let profile = rehearsal::profile()?;
    let is_datagram = service == Service::Ud;
    let made_for = |bits: ibv_qp_create_send_ops_flags| {
        operations.map_or(!is_datagram, |made| made & u64::from(bits) != 0)
    };
    let operations = Operations {
        one_sided: made_for(
            IBV_QP_EX_WITH_RDMA_WRITE
                | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
                | IBV_QP_EX_WITH_RDMA_READ,
        ),
        atomics: made_for(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
        keys: made_for(IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV),
    };
    let carries = match service {
        Service::Ud => Carries::Address,
        Service::XrcInitiator | Service::XrcTarget => Carries::SharedQueue,
        Service::Rc | Service::Uc => Carries::Nothing,
    };
    let (inline, sges) = (cap.max_inline_data, cap.max_send_sge);
    Some(profile.inline.granted(&Wanted { inline, sges, carries, operations }))
}

/// The operations of a context: those that the provider lacks are null, and the inlines of `verbs.h` answer
/// `EOPNOTSUPP`.
pub(crate) fn operations(all: verbs_context) -> verbs_context {
    let mut left = all;
    macro_rules! without {
        ($feature:ident: $($place:expr),+) => {
            if !has(Feature::$feature) {
                $($place = None;)+
            }
        };
    }
    let ops = &mut left.context.ops;
    without!(Windows: ops.alloc_mw, ops.bind_mw, ops.dealloc_mw);
    without!(SharedReceives: left.create_srq_ex, left.get_srq_num);
    without!(TagMatching: left.post_srq_ops);
    without!(Xrc: left.open_xrcd, left.close_xrcd, left.open_qp, left.get_srq_num);
    without!(ExtendedQueuePairs: left.create_qp_ex);
    without!(ExtendedQueues: left.create_cq_ex);
    without!(Timestamps: left.query_rt_values);
    without!(Moderation: left.modify_cq);
    without!(Domains: left.alloc_td, left.dealloc_td, left.alloc_parent_domain);
    without!(NullRegions: left.alloc_null_mr);
    without!(DeviceMemory: left.alloc_dm, left.free_dm, left.reg_dm_mr);
    without!(OnDemandPaging: left.advise_mr);
    left
}

/// The version of its firmware.
pub(crate) fn firmware() -> Option<&'static str> {
    Some(rehearsal::profile()?.firmware)
}

/// The attributes of the adapter. `own` are those of Transom's device, with the adapter's limits.
pub(crate) fn attributes(own: ibv_device_attr) -> ibv_device_attr {
    let Some(profile) = rehearsal::profile() else { return own };
    ibv_device_attr {
        vendor_id: profile.vendor_id,
        vendor_part_id: profile.part_id,
        device_cap_flags: own.device_cap_flags & profile.flags as c_uint,
        page_size_cap: profile.page_sizes.unwrap_or(own.page_size_cap),
        atomic_cap: match profile.atomics {
            AtomicCap::None => IBV_ATOMIC_NONE,
            // No more than this device keeps: in private memory its atomics are none against the processor.
            AtomicCap::Hca | AtomicCap::Glob => IBV_ATOMIC_HCA,
        },
        local_ca_ack_delay: profile.ack_delay.unwrap_or(own.local_ca_ack_delay),
        ..own
    }
}

/// The same for the attributes that only the longer answer has.
pub(crate) fn extended_attributes(own: ibv_device_attr_ex) -> ibv_device_attr_ex {
    let Some(profile) = rehearsal::profile() else { return own };
    let mut left = own;
    left.device_cap_flags_ex &= profile.flags;
    if !has(Feature::OnDemandPaging) {
        (left.odp_caps, left.xrc_odp_caps) = (ibv_odp_caps::default(), 0);
    }
    if !has(Feature::Timestamps) {
        (left.completion_timestamp_mask, left.hca_core_clock) = (0, 0);
    }
    if !has(Feature::TagMatching) {
        left.tm_caps = ibv_tm_caps::default();
    }
    if !has(Feature::Moderation) {
        left.cq_mod_caps = ibv_cq_moderation_caps::default();
    }
    if !has(Feature::DeviceMemory) {
        left.max_dm_size = 0;
    }
    left
}
