//! Arriving events, and the library's own work on each before the program gets it: `rdma_get_cm_event(3)`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use transom_abi::*;

use crate::channel::Channel;
use crate::entry::{answered, attempt, note, restarts, zero};
use crate::event::Event;
use crate::event_name::name_of;
use crate::id::{Group, Id, New};
use crate::sanitized;
use crate::verbs::done;
use crate::wrong::Wrong;
use crate::{migrate, qp, query};

/// Fetches events until one is for the program, or fails with the reason. A waiting thread may be cancelled, so nothing
/// is held meanwhile.
///
/// # Safety
/// The channel is this one. It is not destroyed meanwhile, or only just (see [`fetch`]).
unsafe fn next(
    channel: *mut rdma_event_channel,
    known: &Channel,
) -> Result<*mut rdma_cm_event, Wrong> {
    let file = known.file();
    loop {
        let mut fetched = rdma_ucm_event_resp::default();
        let response = (&raw mut fetched).expose_provenance() as u64;
        let command = rdma_ucm_get_event { response };
        let room = size_of_val(&fetched);
        match file.tell_with_room(RDMA_USER_CM_CMD_GET_EVENT, command, room) {
            Ok(()) => {
                // SAFETY: by the contract of this function.
                if let Some(event) = attempt(|| Ok(unsafe { arrived(channel, &fetched) }))? {
                    return Ok(event.given());
                }
            }
            // After such a signal, the kernel's file repeats the call, but Transom's file does not. Of a destroyed
            // channel, another file may have the descriptor's number.
            Err(wrong) if wrong.errno() == libc::EINTR && !known.is_closed() && restarts() => {}
            Err(wrong) => return Err(wrong),
        }
    }
}

/// The program's event for a fetched event, if any.
///
/// # Safety
/// The event belongs to this channel: its `uid` stands for a live id or group, or is 0.
unsafe fn arrived(
    channel: *mut rdma_event_channel,
    fetched: &rdma_ucm_event_resp,
) -> Option<Box<Event>> {
    if fetched.uid == 0 {
        // The event belongs to a request that the program has not answered. Its answer will show the outcome.
        return None;
    }
    let owner = std::ptr::with_exposed_provenance::<c_void>(fetched.uid as usize);
    if matches!(fetched.event, RDMA_CM_EVENT_MULTICAST_JOIN | RDMA_CM_EVENT_MULTICAST_ERROR) {
        // SAFETY: by the contract of this function. Such events belong to groups.
        let group = unsafe { &*owner.cast::<Group>() };
        // SAFETY: an id lives longer than its groups.
        return Some(of_group(group, unsafe { &*group.id }, fetched));
    }
    // SAFETY: by the contract of this function.
    let id = unsafe { &*owner.cast::<Id>() };
    let owners = [Some(id.acknowledged.clone()), None];
    let mut event = Event::new(fetched, id.is_datagram(), owners);
    event.public.id = id.pointer();
    let status = match fetched.event {
        RDMA_CM_EVENT_ADDR_RESOLVED => or(query::addresses(id), RDMA_CM_EVENT_ADDR_ERROR),
        RDMA_CM_EVENT_ROUTE_RESOLVED => or(query::paths(id), RDMA_CM_EVENT_ROUTE_ERROR),
        RDMA_CM_EVENT_CONNECT_REQUEST => return request(channel, id, fetched.id, event),
        RDMA_CM_EVENT_CONNECT_RESPONSE => {
            id.own(|own| own.remote_ece = event.ece);
            respond(id, &mut event)
        }
        // For the program, the connection has ended with CONNECT_ERROR.
        RDMA_CM_EVENT_REJECTED | RDMA_CM_EVENT_DISCONNECTED if id.own(|own| own.failed) => {
            event.acknowledge();
            return None;
        }
        RDMA_CM_EVENT_REJECTED => {
            id.own(|own| own.remote_ece = event.ece);
            // The queue pair may have left RESET already.
            let _ = qp::fail(id);
            None
        }
        RDMA_CM_EVENT_DEVICE_REMOVAL => {
            id.own(|own| own.removed = true);
            None
        }
        RDMA_CM_EVENT_USER => {
            // SAFETY: any bytes are a number.
            let [low, high] = unsafe { [fetched.param.conn.qp_num, fetched.param.conn.qkey] };
            let argument = u64::from(high) << 32 | u64::from(low);
            event.public.param.conn.private_data = std::ptr::without_provenance(argument as usize);
            None
        }
        RDMA_CM_EVENT_INTERNAL if fetched.status == 0 => Some((RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0)),
        RDMA_CM_EVENT_INTERNAL => Some((RDMA_CM_EVENT_ADDRINFO_ERROR, event.public.status)),
        _ => None,
    };
    if let Some((instead, status)) = status {
        event.public.event = instead;
        event.public.status = status;
    }
    Some(event)
}

/// Another event, if the work before this event has failed.
fn or(
    result: Result<(), Wrong>,
    instead: rdma_cm_event_type,
) -> Option<(rdma_cm_event_type, c_int)> {
    result.err().map(|wrong| {
        say(instead, &wrong);
        (instead, -wrong.errno())
    })
}

/// Records why an event replaces another.
fn say(event: rdma_cm_event_type, wrong: &Wrong) {
    let name = name_of(event);
    let said = format!("{name} comes instead: {}", wrong.said().unwrap_or("it was interrupted"));
    note(c"rdma_get_cm_event", &Wrong::told(wrong.errno(), said));
}

/// The peer has accepted. This makes the library's queue pair ready, and confirms to the peer (rule CM-03). A program
/// with its own queue pair does so itself.
fn respond(id: &Id, event: &mut Event) -> Option<(rdma_cm_event_type, c_int)> {
    let seen = id.seen();
    if seen.qp.is_null() {
        return None;
    }
    let verbs = &id.provider.verbs;
    // SAFETY: the queue pair belongs to the id, and is live.
    let up = unsafe { verbs.ece_of(seen.qp) }
        .map(|own| match event.ece.vendor_id {
            // The peer agrees to nothing.
            0 => ibv_ece { options: 0, ..own },
            _ => event.ece,
        })
        // SAFETY: as above.
        .and_then(|ece| unsafe { verbs.set_ece(seen.qp, ece) })
        .and_then(|()| qp::ready_to_receive(id, seen.qp, None))
        .and_then(|()| qp::ready_to_send(id, seen.qp, None))
        .and_then(|()| confirm(id));
    if up.is_err() {
        let _ = qp::fail(id);
        id.own(|own| own.failed = true);
    }
    Some(or(up, RDMA_CM_EVENT_CONNECT_ERROR).unwrap_or((RDMA_CM_EVENT_ESTABLISHED, 0)))
}

/// Confirms to the peer that its answer has arrived, so that the connection is established.
pub(crate) fn confirm(id: &Id) -> Result<(), Wrong> {
    let confirmed = rdma_ucm_accept { id: id.handle, ..Default::default() };
    id.file()?.tell(RDMA_USER_CM_CMD_ACCEPT, confirmed)
}

/// Makes the id of a request: a synchronous one for a synchronous listener. If that fails, the request is refused, and
/// the program does not see it.
fn request(
    channel: *mut rdma_event_channel,
    listener: &Id,
    handle: u32,
    mut event: Box<Event>,
) -> Option<Box<Event>> {
    let seen = listener.seen();
    let new = New {
        channel,
        context: seen.context,
        ps: seen.ps,
        qp_type: seen.qp_type,
        synchronous: false,
    };
    let id = Id::of_request(listener.provider, new, handle).given();
    // SAFETY: it was just made.
    let this = unsafe { &*id.cast::<Id>() };
    let moved = match listener.own(|own| own.synchronous) {
        // SAFETY: nobody else has it.
        true => unsafe { migrate::migrate(id, std::ptr::null_mut()) },
        false => Ok(()),
    };
    let made = moved.and_then(|()| query::addresses(this)).and_then(|()| query::paths(this));
    if let Err(wrong) = made {
        let said = format!("a request was refused: {}", wrong.said().unwrap_or_default());
        note(c"rdma_get_cm_event", &Wrong::told(wrong.errno(), said));
        // SAFETY: nobody else has it.
        let _ = unsafe { Id::destroy(id) };
        event.acknowledge();
        return None;
    }
    if !this.is_datagram() {
        // SAFETY: the parameters have the form of a connection.
        let conn = unsafe { event.public.param.conn };
        this.own(|own| own.asked = (conn.responder_resources, conn.initiator_depth));
    }
    this.own(|own| own.remote_ece = event.ece);
    event.public.listen_id = event.public.id;
    event.public.id = id;
    Some(event)
}

/// The event of a join. If it has succeeded, the id's queue pair is attached to the group.
pub(crate) fn of_group(group: &Group, id: &Id, fetched: &rdma_ucm_event_resp) -> Box<Event> {
    let owners = [&id.acknowledged, &group.acknowledged].map(|owner| Some(Arc::clone(owner)));
    let mut event = Event::new(fetched, true, owners);
    event.public.id = id.pointer();
    // SAFETY: the parameters have the form of datagrams.
    let ud = unsafe { &mut event.public.param.ud };
    ud.private_data = group.context;
    let (grh, lid) = (ud.ah_attr.grh, ud.ah_attr.dlid);
    let qp = id.seen().qp;
    // Locked until the end, so that a thread that leaves the group meanwhile sees whether it is attached.
    let mut state = group.state.lock();
    let joined = fetched.event == RDMA_CM_EVENT_MULTICAST_JOIN && !state.left;
    if joined && !group.send_only && !qp.is_null() {
        // SAFETY: the queue pair belongs to the id, and is live.
        let attached = unsafe { (id.provider.verbs.ibv_attach_mcast)(qp, &grh.dgid, lid) };
        match done("ibv_attach_mcast", attached) {
            // SAFETY: every GID can be read as bytes.
            Ok(()) => state.attached = Some((unsafe { grh.dgid.raw }, lid)),
            Err(wrong) => {
                say(RDMA_CM_EVENT_MULTICAST_ERROR, &wrong);
                event.public.event = RDMA_CM_EVENT_MULTICAST_ERROR;
                event.public.status = -wrong.errno();
            }
        }
    }
    event
}

/// Fetches the next event of a channel. It waits for one if the descriptor blocks.
///
/// # Safety
/// The channel is null or live; `event` is null or writable.
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return zero(c"rdma_get_cm_event", Err(Wrong::invalid("event is null")));
    }
    // SAFETY: by the contract of this function.
    match answered(c"rdma_get_cm_event", unsafe { fetch(channel) }) {
        Some(next) => {
            // SAFETY: the event was just fetched, and is given to the program now.
            unsafe { Event::is_got(next) };
            // SAFETY: by the contract of this function.
            unsafe { sanitized::give(event, next) };
            0
        }
        None => -1,
    }
}

/// The next event of a channel.
///
/// # Safety
/// The channel is null or live.
pub(crate) unsafe fn fetch(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Wrong> {
    // SAFETY: by the contract of this function.
    let known = unsafe { Channel::of(channel) }?;
    // SAFETY: by the contract of this function.
    let next = unsafe { next(channel, known) };
    while next.is_err() && known.is_closed() {
        // A moment earlier, the call would have waited for ever on the closed channel. Do the same here.
        // SAFETY: nothing is held.
        unsafe { libc::pause() };
    }
    next
}

/// Makes a synchronous id wait for the event of its call, and show it. An asynchronous id gets its events by its
/// channel.
///
/// # Safety
/// The id is live.
pub(crate) unsafe fn complete(id: *mut rdma_cm_id) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    let this = unsafe { Id::of(id) }?;
    if !this.own(|own| own.synchronous) {
        return Ok(());
    }
    let channel = this.seen().channel;
    this.acknowledge_shown();
    // SAFETY: the channel belongs to the id.
    let event = unsafe { fetch(channel) }?;
    this.change(|seen| seen.event = event);
    // SAFETY: the event stays until the next call.
    let rdma_cm_event { event, status, .. } = unsafe { *event };
    match status {
        0 if event != RDMA_CM_EVENT_DEVICE_REMOVAL => Ok(()),
        _ => Err(Wrong::of_event(event, status)),
    }
}
