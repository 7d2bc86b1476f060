//! Moves of ids to another channel, and options: `rdma_migrate_id(3)`, `rdma_set_option(3)`.

use std::ffi::{c_int, c_void};

use transom_abi::*;

use crate::channel::Channel;
use crate::check::Owner;
use crate::entry::zero_of;
use crate::event::Waits;
use crate::id::{Id, Lookup};
use crate::wrong::Wrong;

/// Moves an id to a channel, or to a new one of its own. It waits until the events from the old one are acknowledged.
///
/// # Safety
/// The id is live and no other call on it is running; the channel is null or live.
pub(crate) unsafe fn migrate(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    let id = unsafe { Id::of(id) }?;
    let was_synchronous = id.own(|own| own.synchronous);
    let synchronous = channel.is_null();
    if synchronous && was_synchronous {
        return Err(Wrong::invalid("channel is null, and the id has a channel of its own already"));
    }
    let to = if synchronous { Channel::open(id.provider)? } else { channel };
    let old = id.seen().channel;
    // SAFETY: both are live.
    let (file, from) = unsafe { (Channel::of(to)?.file(), Channel::of(old)?.file()) };
    let mut lookup = id.lookup.lock();
    let moved = file.ask(RDMA_USER_CM_CMD_MIGRATE_ID, |response| rdma_ucm_migrate_id {
        response,
        id: id.handle,
        fd: from.descriptor as u32,
    });
    let moved: rdma_ucm_migrate_resp = moved.inspect_err(|_| {
        if synchronous {
            // SAFETY: the channel was just made, and nobody else has it.
            unsafe { Channel::close(to) };
        }
    })?;
    id.change(|seen| seen.channel = to);
    if let Lookup::UnderWay(by) = &mut *lookup {
        *by = file;
    }
    drop(lookup);
    id.own(|own| own.synchronous = synchronous);
    if was_synchronous {
        id.acknowledge_shown();
        // SAFETY: the channel was this id's own.
        unsafe { Channel::close(old) };
    }
    let waits = Waits { function: c"rdma_migrate_id", owner: Owner::Id(id.pointer()) };
    id.acknowledged.wait_for(moved.events_reported, &waits);
    Ok(())
}

/// Moves an id to another channel. Without a channel, its calls wait for their events.
///
/// # Safety
/// The id is null or live and no other call on it is running; the channel is null or live.
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: by the contract of this function.
    zero_of(c"rdma_migrate_id", || unsafe { migrate(id, channel) })
}

/// Sets an option.
pub(crate) fn set_option(
    id: &Id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> Result<(), Wrong> {
    let set = rdma_ucm_set_option {
        optval: value.expose_provenance() as u64,
        id: id.handle,
        level: level as u32,
        optname: name as u32,
        optlen: u32::try_from(length).map_err(|_| Wrong::invalid("optlen is too long"))?,
    };
    id.file()?.tell(RDMA_USER_CM_CMD_SET_OPTION, set)
}

/// Sets an option of an id.
///
/// # Safety
/// The id is null or live, and `optval` has `optlen` bytes.
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    zero_of(c"rdma_set_option", || {
        // SAFETY: by the contract of this function.
        set_option(unsafe { Id::of(id) }?, level, optname, optval, optlen)
    })
}
