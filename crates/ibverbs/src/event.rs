//! `ibv_get_async_event(3)`.

use std::ffi::c_int;

use transom_abi::*;
use transom_check::ledger::{Event, Owner};

use crate::check::{self, Checker};
use crate::context::Context;
use crate::entry::{effect_always, guarded_always, number_always};
use crate::{cq, qp, rehearsed, sanitized, srq};

/// Takes the next asynchronous event. It blocks if `async_fd` does; otherwise it returns -1 with `EAGAIN` (rules AE-06,
/// AE-07). If the thread is cancelled meanwhile, it unwinds through this function.
///
/// # Safety
/// `context` is open; `event` is writable.
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: by the contract of this verb.
    let Some(ours) = (unsafe { Context::of(context) }).filter(|_| !event.is_null()) else {
        return number_always("ibv_get_async_event", || Err(libc::EINVAL));
    };
    loop {
        // Outside the verb's guard, because a thread that waits here may be cancelled.
        let taken = ours.events.take();
        let delivered = guarded_always("ibv_get_async_event", || {
            let taken = taken.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            Ok(deliver(taken.0 as ibv_event_type, taken.1 as u32))
        });
        match delivered {
            Ok(Some(delivered)) => {
                tell(&delivered, |checker, owner| checker.got(owner));
                // SAFETY: by the contract of this verb.
                unsafe { event.write(delivered) };
                sanitized::has_filled(event);
                sanitized::event_taken();
                return 0;
            }
            // An event of an object destroyed meanwhile is dropped.
            Ok(None) => {}
            Err(_) => return -1,
        }
    }
}

/// An event in its C form, counted as delivered. `None` if its object is gone.
fn deliver(event_type: ibv_event_type, handle: u32) -> Option<ibv_async_event> {
    let element = match event_type {
        IBV_EVENT_CQ_ERR => cq::deliver_event(handle).map(|cq| ibv_async_event_element { cq }),
        IBV_EVENT_SRQ_LIMIT_REACHED => {
            srq::deliver_event(handle).map(|srq| ibv_async_event_element { srq })
        }
        IBV_EVENT_DEVICE_FATAL
        | IBV_EVENT_GID_CHANGE
        | IBV_EVENT_PORT_ACTIVE
        | IBV_EVENT_PORT_ERR => Some(ibv_async_event_element { port_num: handle as c_int }),
        _ => qp::deliver_event(handle).map(|qp| {
            // SAFETY: nobody destroys it before the program has acknowledged this event.
            unsafe { rehearsed::event_taken(event_type, qp) };
            ibv_async_event_element { qp }
        }),
    };
    element.map(|element| ibv_async_event { element, event_type })
}

/// Tells the checker, if there is one, about an event of an object.
fn tell(event: &ibv_async_event, what: impl FnOnce(&'static Checker, Owner)) {
    let Some(checker) = check::on() else { return };
    // SAFETY: the element's variant is that of its event type.
    let owner = unsafe {
        match event.event_type {
            IBV_EVENT_CQ_ERR => cq::owner(Event::Asynchronous, event.element.cq),
            IBV_EVENT_SRQ_LIMIT_REACHED => srq::owner(event.element.srq),
            IBV_EVENT_DEVICE_FATAL
            | IBV_EVENT_GID_CHANGE
            | IBV_EVENT_PORT_ACTIVE
            | IBV_EVENT_PORT_ERR => return,
            _ => qp::owner(event.element.qp),
        }
    };
    what(checker, owner);
}

/// Acknowledges an event.
///
/// # Safety
/// `event` is from [`ibv_get_async_event`].
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: by the contract of this verb. The element's variant is that of its event type.
    effect_always(|| unsafe {
        let Some(event) = event.as_ref() else { return };
        tell(event, |checker, owner| checker.acknowledged(owner, 1));
        match event.event_type {
            IBV_EVENT_CQ_ERR => cq::acknowledge_event(event.element.cq),
            IBV_EVENT_SRQ_LIMIT_REACHED => srq::acknowledge_event(event.element.srq),
            IBV_EVENT_DEVICE_FATAL
            | IBV_EVENT_GID_CHANGE
            | IBV_EVENT_PORT_ACTIVE
            | IBV_EVENT_PORT_ERR => {}
            _ => qp::acknowledge_event(event.element.qp),
        }
    });
}
