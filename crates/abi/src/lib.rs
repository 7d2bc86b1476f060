//! The C types and constants of the ABIs of verbs and of connection management, and nothing else.
//!
//! Every type has the layout libibverbs of rdma-core 44 gives it on x86-64 and carries its C name,
//! so a program that was compiled against `<infiniband/verbs.h>` and Rust code using this crate
//! may share the objects. So does librdmacm's `<rdma/rdma_cma.h>`, and what its library writes to the
//! kernel, `<rdma/rdma_user_cm.h>`. `tests/layout.rs` checks sizes, offsets and values against the headers.
//!
//! How C is spelled here:
//!
//! - an `enum` is an integer alias and a set of constants, since C may pass any value: `c_uint`
//!   as C compilers choose, or `c_int` for the three enums that have negative members;
//! - an anonymous struct or union gets a name made of its owner's (`ibv_send_wr_rdma`), and an
//!   anonymous member gets a field name (`ibv_wc::imm`, `ibv_send_wr::imm`, `ibv_send_wr::op`);
//! - a field whose C name is a Rust keyword has an underscore appended (`type_`, `priv_`, `in_`);
//! - big-endian fields are plain integers; their documentation says "network byte order".
//!
//! The all-zero value is `Default` for everything but the structs with arrays longer than 32.

#![no_std]
#![forbid(unsafe_code)]
#![allow(non_camel_case_types)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

/// Declares a C enum: an alias of its integer type and its members as constants.
macro_rules! c_enum {
    ($(#[$meta:meta])* $name:ident: $repr:ty { $($(#[$cmeta:meta])* $member:ident = $value:expr,)* }) => {
        $(#[$meta])*
        pub type $name = $repr;
        $($(#[$cmeta])* pub const $member: $name = $value;)*
    };
}

/// Gives a union an all-zero `Default`, by its largest member, and a `Debug` that reads nothing.
macro_rules! plain_union {
    ($name:ident, $largest:ident = $zero:expr) => {
        impl Default for $name {
            fn default() -> Self {
                Self { $largest: $zero }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

/// Declares a type that is only ever seen behind a pointer.
macro_rules! opaque {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    };
}

mod ah;
mod completion;
mod context;
mod context_ex;
mod cq;
mod cq_ex;
mod device;
mod device_attr;
mod device_attr_ex;
mod domain;
mod event;
mod flow;
mod gid;
mod ib_user;
mod memory;
mod newer;
mod port;
mod qp;
mod qp_attr;
mod qp_ex;
mod rdma_cma;
mod rdma_user_cm;
mod region;
mod rsocket;
mod sa;
mod srq;
mod sys;
mod window;
mod work;
mod wq;

pub use ah::*;
pub use completion::*;
pub use context::*;
pub use context_ex::*;
pub use cq::*;
pub use cq_ex::*;
pub use device::*;
pub use device_attr::*;
pub use device_attr_ex::*;
pub use domain::*;
pub use event::*;
pub use flow::*;
pub use gid::*;
pub use ib_user::*;
pub use memory::*;
pub use newer::*;
pub use port::*;
pub use qp::*;
pub use qp_attr::*;
pub use qp_ex::*;
pub use rdma_cma::*;
pub use rdma_user_cm::*;
pub use region::*;
pub use rsocket::*;
pub use sa::*;
pub use srq::*;
pub use sys::*;
pub use window::*;
pub use work::*;
pub use wq::*;

/// The sizes and offsets that compiled clients depend on most, checked in every build.
mod layout {
    use super::*;
    use core::mem::{offset_of, size_of};

    /// The only part that is longer on some architectures.
    const MUTEX: usize = size_of::<pthread_mutex_t>();

    const _: () = assert!(size_of::<verbs_context>() == 608 + MUTEX);
    const _: () = assert!(offset_of!(verbs_context, query_port) == 0);
    const _: () = assert!(offset_of!(verbs_context, create_cq_ex) == 200);
    const _: () = assert!(offset_of!(verbs_context, priv_) == 208);
    const _: () = assert!(offset_of!(verbs_context, query_device_ex) == 216);
    const _: () = assert!(offset_of!(verbs_context, create_qp_ex) == 264);
    const _: () = assert!(offset_of!(verbs_context, sz) == 312);
    const _: () = assert!(offset_of!(verbs_context, context) == 320);

    const _: () = assert!(size_of::<ibv_context>() == 288 + MUTEX);
    const _: () = assert!(size_of::<ibv_context_ops>() == 32 * size_of::<usize>());
    const _: () = assert!(offset_of!(ibv_context, ops) == 8);
    const _: () = assert!(offset_of!(ibv_context, cmd_fd) == 264);
    const _: () = assert!(offset_of!(ibv_context, abi_compat) == 280 + MUTEX);
    const _: () = assert!(offset_of!(ibv_context_ops, poll_cq) == 88);
    const _: () = assert!(offset_of!(ibv_context_ops, post_recv) == 208);

    const _: () = assert!(size_of::<ibv_device>() == 664);
    const _: () = assert!(offset_of!(ibv_device, name) == 24);
    const _: () = assert!(offset_of!(ibv_device, ibdev_path) == 408);

    const _: () = assert!(size_of::<ibv_qp>() == 120 + MUTEX);
    const _: () = assert!(size_of::<ibv_qp_ex>() == 312 + MUTEX);
    const _: () = assert!(offset_of!(ibv_qp_ex, wr_atomic_write) == 304 + MUTEX);
    const _: () = assert!(size_of::<ibv_cq>() == 88 + MUTEX);
    const _: () = assert!(size_of::<ibv_cq_ex>() == 248 + MUTEX);
    const _: () = assert!(offset_of!(ibv_cq_ex, start_poll) == 104 + MUTEX);
    const _: () = assert!(size_of::<ibv_mw>() == 32);
    const _: () = assert!(size_of::<ibv_mr>() == 48);
    const _: () = assert!(size_of::<ibv_port_attr>() == 52);

    const _: () = assert!(size_of::<rdma_cm_id>() == 416);
    const _: () = assert!(offset_of!(rdma_cm_id, route) == 32);
    const _: () = assert!(offset_of!(rdma_cm_id, ps) == 344);
    const _: () = assert!(offset_of!(rdma_cm_id, qp_type) == 408);
    const _: () = assert!(size_of::<rdma_cm_event>() == 80);
    const _: () = assert!(size_of::<rdma_conn_param>() == 24);
    const _: () = assert!(size_of::<rdma_ud_param>() == 56);
    const _: () = assert!(size_of::<rdma_addrinfo>() == 96);
    const _: () = assert!(size_of::<rdma_ucm_event_resp>() == 336);
}
