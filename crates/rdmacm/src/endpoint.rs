//! Ids made in one call, and ids of requests: `rdma_create_ep(3)`, `rdma_get_request(3)`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use transom_abi::*;

use crate::arrival;
use crate::entry::{attempt, effect_of, pointer_of, zero};
use crate::event::Event;
use crate::id::Id;
use crate::provider::{Source, provider};
use crate::sanitized;
use crate::wrong::Wrong;
use crate::{address, migrate, qp, resolve, srq};

/// The timeout for addresses and routes, in milliseconds.
const RESOLVE_TIMEOUT: c_int = 2000;

/// Ends an id whose set-up has failed.
fn undo(id: *mut rdma_cm_id) {
    // SAFETY: the id was just made, and nobody else has it.
    let _ = attempt(|| unsafe {
        qp::destroy(Id::of(id)?);
        Id::destroy(id)
    });
}

/// Makes a synchronous id from the answer of `rdma_getaddrinfo`. It is bound; or it is resolved and has a queue pair.
///
/// # Safety
/// All pointers are null or valid.
pub unsafe extern "C-unwind" fn rdma_create_ep<S: Source>(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: by the contract of this function.
    let created = attempt(|| unsafe { create::<S>(res, id.is_null()) });
    let made = created.and_then(|made| {
        // SAFETY: both are valid, and the id was just made.
        let set_up = unsafe {
            if (*res).ai_flags & RAI_PASSIVE != 0 {
                attempt(|| passive(Id::of(made)?, &*res, pd, qp_init_attr.as_mut()))
            } else {
                active(made, &*res, pd, qp_init_attr)
            }
        };
        set_up.inspect_err(|_| undo(made)).map(|()| made)
    });
    // SAFETY: by the contract of this function.
    zero(c"rdma_create_ep", made.map(|made| unsafe { sanitized::give(id, made) }))
}

/// # Safety
/// `res` is null or valid.
unsafe fn create<S: Source>(
    res: *const rdma_addrinfo,
    no_place: bool,
) -> Result<*mut rdma_cm_id, Wrong> {
    // SAFETY: by the contract of this function.
    let res = unsafe { res.as_ref() }.filter(|_| !no_place);
    let res = res.ok_or(Wrong::invalid("id or res is null"))?;
    let port_space = res.ai_port_space as rdma_port_space;
    Id::synchronous(provider::<S>()?, null_mut(), port_space, res.ai_qp_type as u32)
}

/// # Safety
/// The addresses are as long as their families say.
unsafe fn passive(
    id: &Id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    resolve::bind(id, unsafe { address::read(res.ai_src_addr) }?)?;
    if !pd.is_null() {
        id.change(|seen| seen.pd = pd);
    }
    if let Some(attr) = attr {
        attr.qp_type = res.ai_qp_type as u32;
        sanitized::written(&raw const attr.qp_type);
        id.own(|own| own.endpoint = Some((pd, *attr)));
    }
    Ok(())
}

/// # Safety
/// The addresses are as long as their families say; the id is live.
unsafe fn active(
    made: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    attempt(|| unsafe {
        let source = if res.ai_src_len > 0 { Some(address::read(res.ai_src_addr)?) } else { None };
        let destination = address::read(res.ai_dst_addr)?;
        resolve::resolve_address(Id::of(made)?, source, destination, RESOLVE_TIMEOUT)
    })?;
    // SAFETY: the id is live.
    unsafe { arrival::complete(made) }?;
    attempt(|| {
        // SAFETY: the id is live.
        let id = unsafe { Id::of(made) }?;
        if res.ai_route_len == 0 {
            return resolve::resolve_route(id, RESOLVE_TIMEOUT);
        }
        let (level, name) = (RDMA_OPTION_IB as c_int, RDMA_OPTION_IB_PATH as c_int);
        migrate::set_option(id, level, name, res.ai_route, res.ai_route_len)
    })?;
    // SAFETY: the id is live.
    unsafe { arrival::complete(made) }?;
    attempt(|| {
        // SAFETY: by the contract of this function.
        let (id, attr) = unsafe { (Id::of(made)?, attr.as_mut()) };
        if let Some(attr) = attr {
            attr.qp_type = res.ai_qp_type as u32;
            sanitized::written(&raw const attr.qp_type);
            qp::create_plain(id, pd, attr)?;
        }
        if res.ai_connect_len > 0 && !res.ai_connect.is_null() {
            // SAFETY: `ai_connect` has `ai_connect_len` bytes.
            let data = unsafe {
                std::slice::from_raw_parts(res.ai_connect.cast::<u8>(), res.ai_connect_len)
            };
            id.own(|own| own.connect_data = data.to_vec());
        }
        Ok(())
    })
}

/// Ends an id, with its queue pair and shared receive queue.
///
/// # Safety
/// The id is null or live, and nobody uses it.
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    effect_of(c"rdma_destroy_ep", || {
        // SAFETY: by the contract of this function.
        let this = unsafe { Id::of(id) }?;
        qp::destroy(this);
        srq::destroy(this);
        // SAFETY: by the contract of this function.
        unsafe { Id::destroy(id) }
    });
}

/// Waits for a request to a synchronous listener, and returns an id for it. The id is synchronous too. It has a queue
/// pair if the listener was made with queue pair attributes.
///
/// # Safety
/// All pointers are null or valid.
pub unsafe extern "C-unwind" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    let ready = attempt(|| {
        // SAFETY: by the contract of this function.
        let listener = unsafe { Id::of(listen) }?;
        if id.is_null() {
            return Err(Wrong::invalid("id is null"));
        }
        if !listener.own(|own| own.synchronous) {
            return Err(Wrong::invalid(
                "the listener has a channel: rdma_get_cm_event gets its requests",
            ));
        }
        if listener.own(|own| own.removed) {
            return Err(Wrong::new(libc::ENODEV, "the listener's device is gone"));
        }
        listener.acknowledge_shown();
        Ok(listener.seen().channel)
    });
    // SAFETY: the channel belongs to the listener.
    let event = ready.and_then(|channel| unsafe { arrival::fetch(channel) });
    let request = event.and_then(|event| {
        attempt(|| {
            // SAFETY: the event was just fetched.
            let rdma_cm_event { event: what, status, id: made, .. } = unsafe { *event };
            let request = if status != 0 || what == RDMA_CM_EVENT_DEVICE_REMOVAL {
                Err(Wrong::of_event(what, status))
            } else if what != RDMA_CM_EVENT_CONNECT_REQUEST {
                Err(Wrong::invalid("the event is not a connection request"))
            } else {
                // SAFETY: both are live.
                unsafe { requested(listen, made, event) }
            };
            match request {
                // SAFETY: by the contract of this function.
                Ok(()) => unsafe { sanitized::give(id, made) },
                Err(wrong) => {
                    // SAFETY: the event is acknowledged once.
                    if let Some(event) = unsafe { Event::back(event) } {
                        event.acknowledge();
                    }
                    return Err(wrong);
                }
            }
            Ok(())
        })
    });
    zero(c"rdma_get_request", request)
}

/// # Safety
/// Listener, id and event are live, and the id belongs to the event.
unsafe fn requested(
    listen: *mut rdma_cm_id,
    made: *mut rdma_cm_id,
    event: *mut rdma_cm_event,
) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    let (listener, id) = unsafe { (Id::of(listen)?, Id::of(made)?) };
    let with_queue_pair = match listener.own(|own| own.endpoint) {
        Some((pd, mut attr)) => qp::create_plain(id, pd, &mut attr),
        None => Ok(()),
    };
    with_queue_pair.inspect_err(|_| {
        qp::destroy(id);
        // SAFETY: nobody else has the id.
        let _ = unsafe { Id::destroy(made) };
    })?;
    id.change(|seen| seen.event = event);
    Ok(())
}

/// Opens all devices. The list ends with a null.
///
/// # Safety
/// `num_devices` is null or writable.
pub unsafe extern "C" fn rdma_get_devices<S: Source>(
    num_devices: *mut c_int,
) -> *mut *mut ibv_context {
    pointer_of(c"rdma_get_devices", || {
        let devices = provider::<S>()?.all_devices()?;
        let size = size_of::<*mut ibv_context>();
        // SAFETY: the call takes any size.
        let list = unsafe { libc::calloc(devices.len() + 1, size) }.cast::<*mut ibv_context>();
        if list.is_null() {
            return Err(Wrong::no_memory());
        }
        for (at, device) in devices.iter().enumerate() {
            // SAFETY: the list has room for all of them.
            unsafe { sanitized::give(list.add(at), device.context) };
        }
        if !num_devices.is_null() {
            // SAFETY: by the contract of this function.
            unsafe {
                sanitized::give(num_devices, c_int::try_from(devices.len()).unwrap_or(c_int::MAX))
            };
        }
        Ok(list)
    })
}

/// Frees a list of devices. The devices stay open.
///
/// # Safety
/// The list is null, or `rdma_get_devices` returned it and it was not freed.
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: by the contract of this function.
    unsafe { libc::free(list.cast::<c_void>()) };
}
