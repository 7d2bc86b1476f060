//! Verbs that exist for the loader and answer "unsupported" until the libibverbs work: address
//! handles, multicast, shared receive queues, ECE.

use std::ffi::c_int;

use transom_abi::*;

use crate::null_with;

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
