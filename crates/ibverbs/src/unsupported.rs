//! Verbs that exist for the loader and answer "unsupported" until the libibverbs work: imports. Fork needs nothing of us: regions are
//! not pinned, and a child opens a device of its own.
//!
//! Verbs for Ethernet frames have no function at all: their operations in the context stay null, and
//! the inlines of `verbs.h` answer `EOPNOTSUPP` by themselves.
//!
//! | verbs | needs |
//! |---|---|
//! | `ibv_create_flow`, `ibv_destroy_flow` | steering of received frames |
//! | `ibv_create_flow_action_esp`, `ibv_modify_flow_action_esp`, `ibv_destroy_flow_action` | the same |
//! | `ibv_create_counters`, `ibv_attach_counters_point_flow`, `ibv_read_counters`, `ibv_destroy_counters` | flows to count |
//! | `ibv_create_wq`, `ibv_modify_wq`, `ibv_destroy_wq` | spreading of received frames |
//! | `ibv_create_rwq_ind_table`, `ibv_destroy_rwq_ind_table` | the same |
//! | `ibv_modify_qp_rate_limit` | pacing of raw packets |

use std::ffi::{c_int, c_void};

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

/// Imports: later. Nothing was imported, so nothing is undone.
pub extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}

/// Imports: later. Nothing was imported, so nothing is undone.
pub extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

/// Imports: later. Nothing was imported, so nothing is undone.
pub extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}
