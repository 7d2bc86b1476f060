//! The functions of librdmacm, and their source.

#[cfg(feature = "software")]
mod linked;

use crate::functions::{functions, unusable};
use crate::{Error, Result};
use libloading::Library;
#[cfg(feature = "software")]
use linked::Linked;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;
use transom_abi::*;

/// The name by which the dynamic loader finds a librdmacm.
const NAME: &str = "librdmacm.so.1";

/// A provider's source for the functions of librdmacm.
pub(crate) enum ConnectionLibrary {
    /// Linked in, over the linked verbs.
    #[cfg(feature = "software")]
    Linked(ConnectionCalls),
    /// A library, loaded at the first use: a system without one still has verbs.
    Loaded { path: String, calls: OnceLock<Result<ConnectionCalls>> },
}

impl ConnectionLibrary {
    #[cfg(feature = "software")]
    pub(crate) const fn software() -> Self {
        Self::Linked(ConnectionCalls::software())
    }

    /// The library that belongs to a libibverbs at this path.
    pub(crate) fn beside(libibverbs: &Path) -> Self {
        let name = libibverbs.file_name().unwrap_or_default().to_string_lossy();
        let neighbour = libibverbs.with_file_name(name.replace("libibverbs", "librdmacm"));
        // A bare name is for the dynamic loader. It is not a file of this directory.
        let is_path = libibverbs.components().count() > 1;
        let path = if is_path && neighbour != libibverbs && neighbour.exists() {
            neighbour.to_string_lossy().into_owned()
        } else {
            NAME.to_owned()
        };
        Self::Loaded { path, calls: OnceLock::new() }
    }

    pub(crate) fn calls(&self) -> Result<&ConnectionCalls> {
        match self {
            #[cfg(feature = "software")]
            Self::Linked(calls) => Ok(calls),
            Self::Loaded { path, calls } => {
                calls.get_or_init(|| load(path)).as_ref().map_err(Error::clone)
            }
        }
    }
}

fn load(path: &str) -> Result<ConnectionCalls> {
    // SAFETY: by its usual name the loader finds a librdmacm, or the library that the user who runs the program has put
    // in its place, as with all dynamic linking. For a library at a path, the caller that opened the provider vouches.
    let library =
        unsafe { Library::new(path) }.map_err(|error| unusable("librdmacm", path, &error))?;
    // SAFETY: it is a librdmacm.
    let calls = unsafe { ConnectionCalls::load(&library, path) }?;
    // It keeps pointers to its code, so it must stay loaded.
    std::mem::forget(library);
    Ok(calls)
}

functions! {
    /// The functions of librdmacm that this crate calls, under their C names.
    ConnectionCalls of transom_rdmacm, in "librdmacm";
    fn rdma_create_event_channel<Linked>() -> *mut rdma_event_channel;
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    fn rdma_create_id<Linked>(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: rdma_port_space
    ) -> c_int;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    // A thread may be cancelled while these wait for an event. With a channel they do not wait.
    extern "C-unwind" fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        src_addr: *mut sockaddr,
        dst_addr: *mut sockaddr,
        timeout_ms: c_int
    ) -> c_int;
    extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    extern "C-unwind" fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param)
        -> c_int;
    extern "C-unwind" fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param)
        -> c_int;
    extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int;
    fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8)
        -> c_int;
    fn rdma_init_qp_attr(
        id: *mut rdma_cm_id,
        qp_attr: *mut ibv_qp_attr,
        qp_attr_mask: *mut c_int
    ) -> c_int;
    extern "C-unwind" fn rdma_get_cm_event(
        channel: *mut rdma_event_channel,
        event: *mut *mut rdma_cm_event
    ) -> c_int;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
}
