//! Verbs that exist for the loader and answer "unsupported" until the libibverbs work: address
//! handles, multicast, shared receive queues, imports, ECE. Fork needs nothing of us: regions are
//! not pinned, and a child opens a device of its own.

use std::ffi::{c_char, c_int, c_void};

use transom_abi::*;

use crate::null_with;

/// Nothing needs to be prepared for `fork`.
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `fork` is always safe here.
pub extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

/// Nothing is pinned here, so a child may have every page: success.
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Undoes what [`ibv_dontfork_range`] did, which is nothing: success.
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// How a provider announced itself before rdma-core; those have been ignored since.
pub extern "C" fn ibv_register_driver(_name: *const c_char, _init: *mut c_void) {}

macro_rules! unsupported {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> null $target:ty;)+) => {
        $($(#[$doc])*
        pub extern "C" fn $name($($argument: $kind),*) -> *mut $target {
            $(let _ = $argument;)*
            null_with(libc::EOPNOTSUPP)
        })+
    };
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> errno;)+) => {
        $($(#[$doc])*
        pub extern "C" fn $name($($argument: $kind),*) -> c_int {
            $(let _ = $argument;)*
            libc::EOPNOTSUPP
        })+
    };
}

unsupported! {
    /// Address handles: later. Null, `EOPNOTSUPP`.
    ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> null ibv_ah;
    /// Address handles: later. Null, `EOPNOTSUPP`.
    ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port: u8) -> null ibv_ah;
    /// Shared receive queues: later. Null, `EOPNOTSUPP`.
    ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> null ibv_srq;
    /// dma-buf regions: later. Null, `EOPNOTSUPP`.
    ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) -> null ibv_mr;
    /// Imports: later. Null, `EOPNOTSUPP`.
    ibv_import_device(fd: c_int) -> null ibv_context;
    /// Imports: later. Null, `EOPNOTSUPP`.
    ibv_import_pd(context: *mut ibv_context, handle: u32) -> null ibv_pd;
    /// Imports: later. Null, `EOPNOTSUPP`.
    ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> null ibv_mr;
    /// Imports: later. Null, `EOPNOTSUPP`.
    ibv_import_dm(context: *mut ibv_context, handle: u32) -> null c_void;
}

unsupported! {
    /// Address handles: later. `EOPNOTSUPP`.
    ibv_destroy_ah(ah: *mut ibv_ah) -> errno;
    /// Address handles: later. `EOPNOTSUPP`.
    ibv_init_ah_from_wc(context: *mut ibv_context, port: u8, wc: *mut ibv_wc, grh: *mut ibv_grh, attr: *mut ibv_ah_attr) -> errno;
    /// Address handles: later. `EOPNOTSUPP`.
    ibv_resolve_eth_l2_from_gid(context: *mut ibv_context, attr: *mut ibv_ah_attr, mac: *mut u8, vlan: *mut u16) -> errno;
    /// Multicast: later. `EOPNOTSUPP`.
    ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> errno;
    /// Multicast: later. `EOPNOTSUPP`.
    ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> errno;
    /// Shared receive queues: later. `EOPNOTSUPP`.
    ibv_destroy_srq(srq: *mut ibv_srq) -> errno;
    /// Shared receive queues: later. `EOPNOTSUPP`.
    ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> errno;
    /// Shared receive queues: later. `EOPNOTSUPP`.
    ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> errno;
    /// ECE: later. `EOPNOTSUPP`.
    ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> errno;
    /// ECE: later. `EOPNOTSUPP`.
    ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> errno;
}

/// No promise that the bytes of a message land in order (rule ORD-24).
pub extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    0
}

/// Imports: later. Nothing was imported, so nothing is undone.
pub extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}

/// Imports: later. Nothing was imported, so nothing is undone.
pub extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

/// Imports: later. Nothing was imported, so nothing is undone.
pub extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}
