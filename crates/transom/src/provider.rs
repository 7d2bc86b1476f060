//! The source of the verbs: the software device, or a library.

use crate::Error;
use crate::error::check;
use crate::functions::{functions, unusable};
use crate::rdma_cm::{ConnectionCalls, ConnectionLibrary};
use libloading::Library;
use std::ffi::{OsStr, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use transom_abi::*;

/// A libibverbs: the software device in this crate, or a library opened at run time.
///
/// You cannot mix objects of different providers. The compiler does not see a mix, but this crate checks and
/// returns [`Error::OtherContext`].
///
/// ```
/// use transom::{Provider, devices};
///
/// // An adapter of this machine, if there is one, else the device that is part of this crate.
/// let adapters = Provider::system().and_then(|provider| devices(&provider)).unwrap_or_default();
/// let device = match adapters.into_iter().next() {
///     Some(adapter) => adapter,
///     None => devices(&Provider::software())?.remove(0),
/// };
/// println!("{}", device.name());
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Provider {
    pub(crate) verbs: &'static Verbs,
    connections: &'static ConnectionLibrary,
    name: &'static str,
}

impl Provider {
    /// The software device. It needs no hardware, no kernel module and no privilege. It needs this crate's feature
    /// `software`, which is on by default.
    #[cfg(feature = "software")]
    pub fn software() -> Self {
        static SOFTWARE: Verbs = Verbs::software();
        static CONNECTIONS: ConnectionLibrary = ConnectionLibrary::software();
        Self { verbs: &SOFTWARE, connections: &CONNECTIONS, name: "software" }
    }

    /// The software device with some verbs replaced.
    #[cfg(all(test, feature = "software"))]
    pub(crate) fn changed(change: impl FnOnce(&mut Verbs)) -> Self {
        let mut verbs = Verbs::software();
        change(&mut verbs);
        Self { verbs: Box::leak(Box::new(verbs)), ..Self::software() }
    }

    /// The system's `libibverbs.so.1`, as the dynamic loader finds it, with the devices it drives.
    /// Connections also need the system's `librdmacm.so.1`. The first connection loads it.
    ///
    /// # Errors
    /// [`Error::Library`] if there is no such library, or if it lacks a verb.
    pub fn system() -> Result<Self, Error> {
        static SYSTEM: OnceLock<Result<Provider, Error>> = OnceLock::new();
        // SAFETY: by this name the loader finds the C library whose ABI `Verbs` describes. As with all dynamic linking,
        // the user who runs the program is responsible for any other library of that name.
        SYSTEM.get_or_init(|| unsafe { Self::open("libibverbs.so.1") }).clone()
    }

    /// A libibverbs at a path of your choice. It is never unloaded. Connections use the librdmacm beside it, if there
    /// is one with otherwise the same name. If not, they use the one that the dynamic loader finds.
    ///
    /// # Errors
    /// [`Error::Library`] if the file does not load, or if it lacks a verb.
    ///
    /// # Safety
    /// The file must be a libibverbs: its constructors run, and each verb is called as its manual page says. The same
    /// holds for a librdmacm beside it.
    pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        // SAFETY: the caller vouches for the file.
        let library =
            unsafe { Library::new(path) }.map_err(|error| unusable("libibverbs", &name, &error))?;
        // SAFETY: the caller vouches for the types of its functions.
        let verbs = unsafe { Verbs::load(&library, &name) }?;
        // Providers start threads and keep pointers to their code, so the library must stay loaded.
        std::mem::forget(library);
        let connections = ConnectionLibrary::beside(Path::new(path));
        Ok(Self {
            verbs: Box::leak(Box::new(verbs)),
            connections: Box::leak(Box::new(connections)),
            name: String::leak(name.into_owned()),
        })
    }

    /// Prepares this library for a program that forks; see `ibv_fork_init(3)`. Adapters pin registered memory. Without
    /// this call the parent of a child can lose a pinned page to that child: the adapter then no longer sees what the
    /// parent writes there. Call it before you register memory. On some kernels the child does not have the registered
    /// pages. The software device pins nothing, and needs no call.
    ///
    /// ```
    /// use transom::Provider;
    ///
    /// let provider = Provider::software();
    /// provider.fork_init()?;
    /// let context = transom::devices(&provider)?[0].open()?;
    /// # Ok::<(), transom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Verb`]: EINVAL if memory is registered already, ENOSYS if the system cannot do it.
    pub fn fork_init(&self) -> Result<(), Error> {
        // SAFETY: it has no arguments.
        let result = unsafe { (self.verbs.ibv_fork_init)() };
        check("ibv_fork_init", format_args!("preparing {} for a fork", self.name), result)
    }

    /// Whether both are the same library, though it may have been opened twice.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let function = |provider: &Self| provider.verbs.ibv_get_device_guid;
        ptr::fn_addr_eq(function(self), function(other))
    }

    /// The functions of librdmacm that belong to its verbs.
    pub(crate) fn connections(&self) -> Result<&'static ConnectionCalls, Error> {
        self.connections.calls()
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Provider").field(&self.name).finish()
    }
}

functions! {
    /// The verbs that libibverbs exports and this crate calls, under their C names.
    ///
    /// The functions that `<infiniband/verbs.h>` defines inline go through the context's operations.
    Verbs of transom_ibverbs, in "libibverbs";
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
    fn ibv_fork_init() -> c_int;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid)
        -> c_int;
    // A thread may be cancelled while it waits for an event.
    extern "C-unwind" fn ibv_get_async_event(
        context: *mut ibv_context,
        event: *mut ibv_async_event
    ) -> c_int;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int)
        -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int
    ) -> *mut ibv_cq;
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    extern "C-unwind" fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void
    ) -> c_int;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: u32);
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init_attr: *mut ibv_qp_init_attr
    ) -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    fn ibv_create_ah_from_wc(
        pd: *mut ibv_pd,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        port_num: u8
    ) -> *mut ibv_ah;
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    may lack fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        size: usize
    ) -> c_int;
}
