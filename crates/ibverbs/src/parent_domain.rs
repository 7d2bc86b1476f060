//! `ibv_alloc_parent_domain(3)`: a domain that stands for another one, and may belong to a thread domain.
//!
//! A parent domain's allocators provide memory that a program and its adapter share. The library owns the queues here,
//! so there is no such memory: the allocators are accepted and never called. A confidential guest can keep memory to
//! itself or share it with its host. Only the guest's own kernel accesses memory here, so permission to share it is
//! accepted and not used (rule PD-18).

use std::ffi::c_int;
use std::sync::Arc;

use transom_abi::*;
use transom_host::objects::ProtectionDomain;

use crate::context::Context;
use crate::entry::pointer_of;
use crate::{pd, td};

/// Allocates a parent domain (rule PD-10); [`crate::ibv_dealloc_pd`] frees it.
///
/// # Safety
/// `context` is open; `attr` is null or readable, and the domains it names too.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    pointer_of("ibv_alloc_parent_domain", || {
        // SAFETY: by the contract of this verb.
        unsafe { alloc(context, attr) }
    })
}

/// # Safety
/// As [`alloc_parent_domain`].
unsafe fn alloc(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> Result<*mut ibv_pd, c_int> {
    // SAFETY: by the contract of this function.
    let (ours, attr) = unsafe { (Context::to_make_in(context)?, attr.as_ref()) };
    let attr = attr.ok_or(libc::EINVAL)?;
    let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
        | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
    let allocators = attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS != 0;
    if attr.comp_mask & !known != 0 || allocators && (attr.alloc.is_none() || attr.free.is_none()) {
        return Err(libc::EINVAL);
    }
    // SAFETY: by the contract of this function.
    let found = unsafe { pd::find(attr.pd) }?;
    if !Arc::ptr_eq(found.domain.device(), ours.device()) {
        return Err(libc::EINVAL);
    }
    let thread = match attr.td.is_null() {
        true => None,
        false => Some(td::find(attr.td, context)?),
    };
    let domain = ProtectionDomain::parent_domain(&found.domain, thread.as_ref());
    Ok(pd::enter(context, ours, domain.map_err(|_| libc::ENOENT)?, false))
}
