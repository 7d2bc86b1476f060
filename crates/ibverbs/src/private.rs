//! The functions that libibverbs has for the provider libraries of rdma-core: `IBVERBS_PRIVATE_*`.
//!
//! Programs load libmlx5 or libefa beside libibverbs even without such an adapter, and the loader needs every symbol.
//! Providers announce themselves, but this library never asks one for a device: its own devices are the only ones in the
//! list. So no provider has a context, and commands to the kernel have no receiver. They do nothing and return
//! `EOPNOTSUPP`, each as its return type demands.
//!
//! These answers do not depend on the arguments, and C allows a function to ignore its arguments, so they are not
//! declared. Their types also differ between versions of rdma-core.

use std::ffi::{c_char, c_int, c_uint, c_void};

use transom_abi::{ibv_context, ibv_device};

use crate::entry::{errno_of, number_of, pointer_of};
use crate::ibv_open_device;
use crate::wrong::Wrong;

/// Notes why a command is refused. Returns the errno.
fn refused(command: &'static str) -> c_int {
    const SAID: &str = "it is for a provider of a kernel device, and this device has no provider";
    Wrong::because(libc::EOPNOTSUPP, SAID, "").told(None, command, 0)
}

/// Commands that return an errno value and set `errno`.
macro_rules! errno {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])* /// `EOPNOTSUPP`.
        pub extern "C" fn $name() -> c_int {
            errno_of(stringify!($name), || Err(refused(stringify!($name))))
        }
    };
}

/// Functions that return a number, or -1 and set `errno`.
macro_rules! minus_one {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])* /// -1, `EOPNOTSUPP`.
        pub extern "C" fn $name() -> c_int {
            number_of(stringify!($name), || Err(refused(stringify!($name))))
        }
    };
}

/// Functions that return a pointer, or null and set `errno`.
macro_rules! null {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])* /// Null, `EOPNOTSUPP`.
        pub extern "C" fn $name() -> *mut c_void {
            pointer_of(stringify!($name), || Err(refused(stringify!($name))))
        }
    };
}

/// Functions that return nothing and do nothing.
macro_rules! nothing {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub extern "C" fn $name() {}
    };
}

/// Functions that post work to a queue, and return the first request that they did not post.
macro_rules! post {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])* /// `EOPNOTSUPP`, from the first request on.
        ///
        /// # Safety
        /// `bad` is null or writable.
        pub unsafe extern "C" fn $name(
            _queue: *mut c_void,
            requests: *mut c_void,
            bad: *mut *mut c_void,
        ) -> c_int {
            if !bad.is_null() {
                // SAFETY: by the contract of this function.
                unsafe { *bad = requests };
            }
            errno_of(stringify!($name), || Err(refused(stringify!($name))))
        }
    };
}

/// Passes all of them to a macro, each with its kind, grouped by the versions that they have beside the one in the map
/// of the shared object.
#[macro_export]
macro_rules! private_functions {
    ($each:path) => {
        $each! {
            ["IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64" "IBVERBS_PRIVATE_65"] {
                own __ioctl_final_num_attrs
                /// Logs events of a provider's context.
                nothing __verbs_log
                /// Makes a provider's context on a device of the kernel.
                null _verbs_init_and_alloc_context
                /// Sends a command to the kernel by `ioctl`.
                errno execute_ioctl
                /// Gives advice about memory.
                errno ibv_cmd_advise_mr
                /// Allocates memory of a device.
                errno ibv_cmd_alloc_dm
                /// Allocates a memory window.
                errno ibv_cmd_alloc_mw
                /// Allocates a protection domain.
                errno ibv_cmd_alloc_pd
                /// Attaches a queue pair to a multicast group.
                errno ibv_cmd_attach_mcast
                /// Closes an XRC domain.
                errno ibv_cmd_close_xrcd
                /// Creates an address handle.
                errno ibv_cmd_create_ah
                /// Creates counters.
                errno ibv_cmd_create_counters
                /// Creates a completion queue.
                errno ibv_cmd_create_cq
                /// Creates an extended completion queue.
                errno ibv_cmd_create_cq_ex
                /// Creates an extended completion queue in memory of the driver.
                errno ibv_cmd_create_cq_ex2
                /// Creates a flow rule.
                errno ibv_cmd_create_flow
                /// Creates an ESP action of flow rules.
                errno ibv_cmd_create_flow_action_esp
                /// Creates a queue pair.
                errno ibv_cmd_create_qp
                /// Creates a queue pair with extended attributes.
                errno ibv_cmd_create_qp_ex
                /// Creates a queue pair with extended attributes and answers.
                errno ibv_cmd_create_qp_ex2
                /// Creates a table of receive work queues.
                errno ibv_cmd_create_rwq_ind_table
                /// Creates a shared receive queue.
                errno ibv_cmd_create_srq
                /// Creates an extended shared receive queue.
                errno ibv_cmd_create_srq_ex
                /// Creates a work queue.
                errno ibv_cmd_create_wq
                /// Frees a memory window.
                errno ibv_cmd_dealloc_mw
                /// Frees a protection domain.
                errno ibv_cmd_dealloc_pd
                /// Ends a registration.
                errno ibv_cmd_dereg_mr
                /// Destroys an address handle.
                errno ibv_cmd_destroy_ah
                /// Destroys counters.
                errno ibv_cmd_destroy_counters
                /// Destroys a completion queue.
                errno ibv_cmd_destroy_cq
                /// Destroys a flow rule.
                errno ibv_cmd_destroy_flow
                /// Destroys an action of flow rules.
                errno ibv_cmd_destroy_flow_action
                /// Destroys a queue pair.
                errno ibv_cmd_destroy_qp
                /// Destroys a table of receive work queues.
                errno ibv_cmd_destroy_rwq_ind_table
                /// Destroys a shared receive queue.
                errno ibv_cmd_destroy_srq
                /// Destroys a work queue.
                errno ibv_cmd_destroy_wq
                /// Detaches a queue pair from a multicast group.
                errno ibv_cmd_detach_mcast
                /// Frees memory of a device.
                errno ibv_cmd_free_dm
                /// Opens a context.
                errno ibv_cmd_get_context
                /// Changes a completion queue.
                errno ibv_cmd_modify_cq
                /// Changes an ESP action of flow rules.
                errno ibv_cmd_modify_flow_action_esp
                /// Changes a queue pair.
                errno ibv_cmd_modify_qp
                /// Changes a queue pair, with extended attributes.
                errno ibv_cmd_modify_qp_ex
                /// Changes a shared receive queue.
                errno ibv_cmd_modify_srq
                /// Changes a work queue.
                errno ibv_cmd_modify_wq
                /// Opens a shared XRC queue pair.
                errno ibv_cmd_open_qp
                /// Opens an XRC domain.
                errno ibv_cmd_open_xrcd
                /// Polls a completion queue.
                minus_one ibv_cmd_poll_cq
                /// Posts receive requests.
                post ibv_cmd_post_recv
                /// Posts send requests.
                post ibv_cmd_post_send
                /// Posts receive requests to a shared queue.
                post ibv_cmd_post_srq_recv
                /// Queries a context.
                errno ibv_cmd_query_context
                /// Queries a device.
                errno ibv_cmd_query_device_any
                /// Queries an imported region.
                errno ibv_cmd_query_mr
                /// Queries a port.
                errno ibv_cmd_query_port
                /// Queries a queue pair.
                errno ibv_cmd_query_qp
                /// Queries a shared receive queue.
                errno ibv_cmd_query_srq
                /// Reads counters.
                errno ibv_cmd_read_counters
                /// Registers memory of a device.
                errno ibv_cmd_reg_dm_mr
                /// Registers a dma-buf.
                errno ibv_cmd_reg_dmabuf_mr
                /// Registers memory.
                errno ibv_cmd_reg_mr
                /// Asks for the next completion event.
                errno ibv_cmd_req_notify_cq
                /// Changes a registration.
                errno ibv_cmd_rereg_mr
                /// Resizes a completion queue.
                errno ibv_cmd_resize_cq
                /// Reads a file of a device in sysfs. Our device has none there.
                minus_one ibv_read_ibdev_sysfs_file
                /// Fills in a provider's completion queue. None was created.
                nothing verbs_init_cq
                own verbs_open_device
                /// Gives a provider's context its functions. There is no such context.
                nothing verbs_set_ops
                /// Ends a provider's context. There is no such context.
                nothing verbs_uninit_context
            }
            ["IBVERBS_PRIVATE_64" "IBVERBS_PRIVATE_65"] {
                /// Allocates a DMA handle.
                errno ibv_cmd_alloc_dmah
                /// Exports pages of a device as a dma-buf.
                minus_one ibv_cmd_export_dmabuf_fd
                /// Frees a DMA handle.
                errno ibv_cmd_free_dmah
                /// Queries the speed of a port.
                errno ibv_cmd_query_port_speed
                /// Registers memory, with extended attributes.
                errno ibv_cmd_reg_mr_ex
            }
            ["IBVERBS_PRIVATE_65"] {
                /// Allocates from a dma-buf heap.
                null ibv_dmabuf_heap_alloc
                /// Opens the dma-buf heap that confidential guests share.
                null ibv_dmabuf_heap_cc_shared_init
                /// Closes a dma-buf heap. None was opened.
                nothing ibv_dmabuf_heap_destroy
                /// Frees memory of a dma-buf heap. None was allocated.
                nothing ibv_dmabuf_heap_free
            }
            [] {
                /// Creates a completion counter.
                errno ibv_cmd_create_comp_cntr
                /// Destroys a completion counter.
                errno ibv_cmd_destroy_comp_cntr
                /// Adds to a completion counter.
                errno ibv_cmd_inc_comp_cntr
                /// Adds to the errors of a completion counter.
                errno ibv_cmd_inc_err_comp_cntr
                /// Makes a completion counter count operations of a queue pair.
                errno ibv_cmd_qp_attach_comp_cntr
                /// Queries the limits of completion counters.
                errno ibv_cmd_query_comp_cntr_caps
                /// Reads a completion counter.
                errno ibv_cmd_read_comp_cntr
                /// Reads the errors of a completion counter.
                errno ibv_cmd_read_err_comp_cntr
                /// Sets a completion counter.
                errno ibv_cmd_set_comp_cntr
                /// Sets the errors of a completion counter.
                errno ibv_cmd_set_err_comp_cntr
                /// Announces a provider of rdma-core up to version 56.
                nothing verbs_register_driver_34
                /// Announces a provider of rdma-core 57 or 58.
                nothing verbs_register_driver_57
                /// Announces a provider of rdma-core 59 to 63.
                nothing verbs_register_driver_59
                /// Announces a provider of rdma-core 64.
                nothing verbs_register_driver_64
                /// Announces a provider of rdma-core 65.
                nothing verbs_register_driver_65
            }
        }
    };
}

/// Defines the functions that only refuse. The other functions follow below.
macro_rules! define {
    ($($later:tt { $($(#[$doc:meta])* $kind:ident $name:ident)+ })+) => {
        $($($kind! { $(#[$doc])* $name })+)+
    };
}

/// A function that is written out below.
macro_rules! own {
    ($name:ident) => {};
}

private_functions!(define);

/// Opens a device with its provider's private data. Our device needs none: with null this is [`ibv_open_device`],
/// otherwise null, `EOPNOTSUPP`.
pub extern "C" fn verbs_open_device(
    device: *mut ibv_device,
    private_data: *mut c_void,
) -> *mut ibv_context {
    if !private_data.is_null() {
        return pointer_of("verbs_open_device", || Err(refused("verbs_open_device")));
    }
    ibv_open_device(device)
}

/// The number of a command's attributes, with those of the buffers linked to it. No buffer can be linked to a command
/// that is never sent, so it is the given number.
pub extern "C" fn __ioctl_final_num_attrs(attributes: c_uint, _link: *mut c_void) -> c_uint {
    attributes
}

/// The call by which providers announced themselves before rdma-core. rdma-core ignores it too.
pub extern "C" fn ibv_register_driver(_name: *const c_char, _init: *mut c_void) {}
