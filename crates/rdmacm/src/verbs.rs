//! The verbs that this library calls: exported ones, and those that the header defines inline.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

use libloading::Library;
use transom_abi::*;

use crate::wrong::{Wrong, last_errno};

/// Declares the table of exported verbs, and the function that fills it from a library.
macro_rules! verbs {
    ($($abi:literal: $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*)*) => {
        /// The verbs that this library calls, under their C names.
        #[derive(Clone, Copy)]
        #[allow(missing_docs)]
        pub struct Verbs {
            $($(pub $name: unsafe extern $abi fn($($type),*) $(-> $result)?,)*)*
        }

        impl Verbs {
            /// # Safety
            /// The library is a libibverbs.
            pub(crate) unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the function of this name has this type in every libibverbs.
                    $($($name: *unsafe { library.get(concat!(stringify!($name), "\0")) }?,)*)*
                })
            }

            /// A table whose verbs must not be called. A test replaces those that it needs.
            #[cfg(test)]
            pub(crate) fn none() -> Self {
                $($(
                    unsafe extern $abi fn $name($(_: $type),*) $(-> $result)? {
                        unreachable!()
                    }
                )*)*
                Self { $($($name,)*)* }
            }
        }

        impl std::fmt::Debug for Verbs {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct("Verbs").finish_non_exhaustive()
            }
        }
    };
}

verbs! {
    "C":
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_query_gid(
        context: *mut ibv_context,
        port_num: u8,
        index: c_int,
        gid: *mut ibv_gid
    ) -> c_int;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int
    ) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;

    // A thread may be cancelled while it waits here.
    "C-unwind":
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void
    ) -> c_int;
}

/// The libibverbs does not have this verb.
const NOT_THERE: Wrong = Wrong::new(
    libc::EOPNOTSUPP,
    "the libibverbs of this process, or its provider, does not have the verb for it",
);

/// The result of a verb that makes an object.
pub(crate) fn made<T>(verb: &str, object: *mut T) -> Result<*mut T, Wrong> {
    if object.is_null() { Err(Wrong::of_verb(verb, last_errno())) } else { Ok(object) }
}

/// The result of a verb that returns an errno. Some providers return -1 and set `errno`.
pub(crate) fn done(verb: &str, answer: c_int) -> Result<(), Wrong> {
    match answer {
        0 => Ok(()),
        ..0 => Err(Wrong::of_verb(verb, last_errno())),
        errno => Err(Wrong::of_verb(verb, errno)),
    }
}

/// The table of newer operations that contains a context, if it has the operation at `offset`.
///
/// # Safety
/// The context is open.
unsafe fn extended(
    context: *mut ibv_context,
    offset: usize,
) -> Result<*const verbs_context, Wrong> {
    // SAFETY: by the contract of this function.
    if unsafe { (*context).abi_compat } != __VERBS_ABI_IS_EXTENDED {
        return Err(NOT_THERE);
    }
    let table = context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast();
    let table: *const verbs_context = table;
    // SAFETY: the mark says that the context is the last part of a `verbs_context`.
    let size = unsafe { (*table).sz };
    let known = size >= size_of::<verbs_context>() - offset;
    if known { Ok(table) } else { Err(NOT_THERE) }
}

impl Verbs {
    /// `ibv_create_qp_ex(3)`.
    ///
    /// # Safety
    /// The objects are live.
    pub(crate) unsafe fn create_qp_ex(
        &self,
        context: *mut ibv_context,
        attr: &mut ibv_qp_init_attr_ex,
    ) -> Result<*mut ibv_qp, Wrong> {
        if attr.comp_mask == IBV_QP_INIT_ATTR_PD {
            // SAFETY: the extended struct begins with the fields of the plain one.
            return made("ibv_create_qp", unsafe {
                (self.ibv_create_qp)(attr.pd, (&raw mut *attr).cast())
            });
        }
        // SAFETY: by the contract of this function.
        let table = unsafe { extended(context, offset_of!(verbs_context, create_qp_ex)) }?;
        // SAFETY: the table has this field.
        let create = unsafe { (*table).create_qp_ex }.ok_or(NOT_THERE)?;
        // SAFETY: by the contract of this function.
        made("ibv_create_qp_ex", unsafe { create(context, attr) })
    }

    /// `ibv_create_srq_ex(3)`.
    ///
    /// # Safety
    /// The objects are live.
    pub(crate) unsafe fn create_srq_ex(
        &self,
        context: *mut ibv_context,
        attr: &mut ibv_srq_init_attr_ex,
    ) -> Result<*mut ibv_srq, Wrong> {
        let typed = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0;
        if !typed || attr.srq_type == IBV_SRQT_BASIC {
            // SAFETY: the extended struct begins with the fields of the plain one.
            return made("ibv_create_srq", unsafe {
                (self.ibv_create_srq)(attr.pd, (&raw mut *attr).cast())
            });
        }
        // SAFETY: by the contract of this function.
        let table = unsafe { extended(context, offset_of!(verbs_context, create_srq_ex)) }?;
        // SAFETY: the table has this field.
        let create = unsafe { (*table).create_srq_ex }.ok_or(NOT_THERE)?;
        // SAFETY: by the contract of this function.
        made("ibv_create_srq_ex", unsafe { create(context, attr) })
    }

    /// `ibv_open_xrcd(3)`, for a private domain without a file.
    ///
    /// # Safety
    /// The context is open.
    pub(crate) unsafe fn open_xrcd(
        &self,
        context: *mut ibv_context,
    ) -> Result<*mut ibv_xrcd, Wrong> {
        // SAFETY: by the contract of this function.
        let table = unsafe { extended(context, offset_of!(verbs_context, open_xrcd)) }?;
        // SAFETY: the table has this field.
        let open = unsafe { (*table).open_xrcd }.ok_or(NOT_THERE)?;
        let comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        let mut attr = ibv_xrcd_init_attr { comp_mask, fd: -1, oflags: libc::O_CREAT };
        // SAFETY: by the contract of this function.
        made("ibv_open_xrcd", unsafe { open(context, &mut attr) })
    }

    /// `ibv_close_xrcd(3)`.
    ///
    /// # Safety
    /// The domain is open.
    pub(crate) unsafe fn close_xrcd(&self, xrcd: *mut ibv_xrcd) -> Result<(), Wrong> {
        // SAFETY: by the contract of this function.
        let context = unsafe { (*xrcd).context };
        // SAFETY: the context of an open domain is open.
        let table = unsafe { extended(context, offset_of!(verbs_context, close_xrcd)) }?;
        // SAFETY: the table has this field.
        let close = unsafe { (*table).close_xrcd }.ok_or(NOT_THERE)?;
        // SAFETY: by the contract of this function.
        done("ibv_close_xrcd", unsafe { close(xrcd) })
    }

    /// The queue pair's offer in enhanced connection establishment. It is empty if the device does not support that.
    ///
    /// # Safety
    /// The queue pair is live.
    pub(crate) unsafe fn ece_of(&self, qp: *mut ibv_qp) -> Result<ibv_ece, Wrong> {
        let mut ece = ibv_ece::default();
        // SAFETY: by the contract of this function.
        match done("ibv_query_ece", unsafe { (self.ibv_query_ece)(qp, &mut ece) }) {
            Err(wrong) if wrong.errno() == libc::EOPNOTSUPP => Ok(ibv_ece::default()),
            answer => answer.map(|()| ece),
        }
    }

    /// Gives a queue pair the peer's offer in enhanced connection establishment.
    ///
    /// # Safety
    /// The queue pair is live.
    pub(crate) unsafe fn set_ece(&self, qp: *mut ibv_qp, mut ece: ibv_ece) -> Result<(), Wrong> {
        if ece.vendor_id == 0 {
            return Ok(());
        }
        // SAFETY: by the contract of this function.
        match done("ibv_set_ece", unsafe { (self.ibv_set_ece)(qp, &mut ece) }) {
            Err(wrong) if wrong.errno() == libc::EOPNOTSUPP => Ok(()),
            answer => answer,
        }
    }
}
