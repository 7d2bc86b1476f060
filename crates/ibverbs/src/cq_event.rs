//! `ibv_get_cq_event(3)`, `ibv_ack_cq_events(3)`.

use std::ffi::{c_int, c_uint, c_void};

use transom_abi::{ibv_comp_channel, ibv_cq};
use transom_check::ledger::{Event, Thing};

use crate::comp_channel::Channel;
use crate::entry::{effect_always, guarded_always, number_always};
use crate::{check, cq, sanitized};

/// Takes the next event of a channel. It blocks if the channel's descriptor does (rules CQ-11, CR-18). If the thread is
/// cancelled meanwhile, it unwinds through this function.
///
/// # Safety
/// All pointers are null or valid.
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the contract of this verb.
    let ours = unsafe { Channel::of(channel) };
    let Some(ours) = ours.filter(|_| !cq.is_null() && !cq_context.is_null()) else {
        return number_always("ibv_get_cq_event", || {
            if ours.is_none() {
                check::is_dead("ibv_get_cq_event", Thing::Channel, channel);
            }
            Err(libc::EINVAL)
        });
    };
    let used = Some((Thing::Channel, channel.addr()));
    check::uses(|| "ibv_get_cq_event", ours.adapter.device(), used);
    // Under the check another thread may destroy the channel meanwhile, by mistake.
    let kept = check::on().map(|_| (ours.adapter.clone(), ours.events.clone()));
    let (adapter, events) = match &kept {
        Some((adapter, events)) => (adapter, events),
        None => (&ours.adapter, &ours.events),
    };
    loop {
        if let Some(checker) = check::on() {
            checker.may_sleep(channel.addr(), events);
        }
        // Outside the verb's guard, because a thread that waits here may be cancelled.
        let taken = adapter.take_event(events);
        if let Some(checker) = check::on() {
            checker.is_awake();
        }
        let delivered = guarded_always("ibv_get_cq_event", || {
            let (_, handle) = taken.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            // An event of a queue destroyed meanwhile is dropped.
            Ok(cq::deliver_completion(handle as u32))
        });
        match delivered {
            // SAFETY: by the contract of this verb.
            Ok(Some((found, context))) => unsafe {
                *cq = found;
                *cq_context = context;
                sanitized::has_filled(cq);
                sanitized::has_filled(cq_context);
                sanitized::event_taken();
                if let Some(checker) = check::on() {
                    checker.got(cq::owner(Event::Completion, found));
                }
                return 0;
            },
            Ok(None) => {}
            Err(_) => return -1,
        }
    }
}

/// Acknowledges events.
///
/// # Safety
/// `cq` is live.
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    effect_always(|| {
        // SAFETY: by the contract of this verb.
        if let Some(queue) = unsafe { cq::of(cq) } {
            let used = Some((Thing::CompletionQueue, cq.addr()));
            check::uses(|| "ibv_ack_cq_events", queue.adapter.device(), used);
            if let Some(checker) = check::on() {
                checker.acknowledged(cq::owner(Event::Completion, cq), count.into());
            }
            queue.events.acknowledged(u64::from(count));
        } else {
            check::is_dead("ibv_ack_cq_events", Thing::CompletionQueue, cq);
        }
    })
}
