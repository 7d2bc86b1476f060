//! The names of events: `rdma_event_str(3)`.

use std::ffi::c_char;

use transom_abi::*;

/// The name of an event.
pub(crate) fn name_of(event: rdma_cm_event_type) -> &'static str {
    rdma_cm_event_name(event).to_str().unwrap_or_default()
}

/// The name of an event.
pub extern "C" fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
    rdma_cm_event_name(event).as_ptr()
}
