//! An id's own completion queues, with their channels.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;

use crate::id::Id;
use crate::verbs::made;
use crate::wrong::Wrong;

/// Makes completion queues for this many sends and receives. For zero, it makes none.
pub(crate) fn create(id: &Id, sends: u32, receives: u32) -> Result<(), Wrong> {
    if receives > 0 {
        let (cq, channel) = pair(id, receives)?;
        id.change(|seen| (seen.recv_cq, seen.recv_cq_channel) = (cq, channel));
    }
    if sends > 0 {
        let undo = |_: &Wrong| destroy(id, false, receives > 0);
        let (cq, channel) = pair(id, sends).inspect_err(undo)?;
        id.change(|seen| (seen.send_cq, seen.send_cq_channel) = (cq, channel));
    }
    Ok(())
}

fn pair(id: &Id, requests: u32) -> Result<(*mut ibv_cq, *mut ibv_comp_channel), Wrong> {
    let (verbs, context) = (&id.provider.verbs, id.seen().verbs);
    let cqe = c_int::try_from(requests);
    let cqe = cqe.map_err(|_| Wrong::invalid("max_send_wr or max_recv_wr is above 2^31"))?;
    // SAFETY: the device of an id is open.
    let channel = unsafe { (verbs.ibv_create_comp_channel)(context) };
    let channel = made("ibv_create_comp_channel", channel)?;
    // SAFETY: the device and the channel are open. Only the program reads the queue's context.
    let cq = unsafe { (verbs.ibv_create_cq)(context, cqe, id.pointer().cast(), channel, 0) };
    match made("ibv_create_cq", cq) {
        Ok(cq) => Ok((cq, channel)),
        Err(errno) => {
            // SAFETY: the channel was just made, and nobody else has it.
            unsafe { (verbs.ibv_destroy_comp_channel)(channel) };
            Err(errno)
        }
    }
}

/// Ends the id's completion queues, as far as they exist.
pub(crate) fn destroy(id: &Id, sends: bool, receives: bool) {
    let verbs = &id.provider.verbs;
    let (queues, channels) = id.change(|seen| {
        let mut queues = [null_mut(); 2];
        let mut channels = [null_mut(); 2];
        if receives {
            queues[0] = std::mem::replace(&mut seen.recv_cq, null_mut());
            channels[0] = std::mem::replace(&mut seen.recv_cq_channel, null_mut());
        }
        if sends {
            queues[1] = std::mem::replace(&mut seen.send_cq, null_mut());
            channels[1] = std::mem::replace(&mut seen.send_cq_channel, null_mut());
        }
        (queues, channels)
    });
    for queue in queues.into_iter().filter(|queue| !queue.is_null()) {
        // SAFETY: the queue belonged to the id, and is taken from it once.
        unsafe { (verbs.ibv_destroy_cq)(queue) };
    }
    for channel in channels.into_iter().filter(|channel| !channel.is_null()) {
        // SAFETY: as for the queue, which has ended before.
        unsafe { (verbs.ibv_destroy_comp_channel)(channel) };
    }
}
