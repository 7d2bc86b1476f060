//! Multicast groups: `rdma_join_multicast(3)`, `rdma_leave_multicast(3)`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use transom_abi::*;

use crate::check::Owner;
use crate::entry::{attempt, zero, zero_of};
use crate::event::Waits;
use crate::id::{Group, Id};
use crate::wrong::Wrong;
use crate::{address, arrival};

fn join(
    id: &Id,
    (addr, addr_size): (sockaddr_storage, u16),
    flags: rdma_cm_mc_join_flags,
    context: *mut c_void,
) -> Result<(), Wrong> {
    id.device()?;
    let group = Arc::new(Group {
        id: id.pointer().cast(),
        context,
        address: addr,
        send_only: flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        acknowledged: Arc::default(),
        state: Default::default(),
    });
    let uid = Arc::as_ptr(&group).expose_provenance() as u64;
    // Add it before the file has it, because the event may come at once.
    id.own(|own| own.groups.push(group.clone()));
    let made = id.file().and_then(|file| {
        file.ask(RDMA_USER_CM_CMD_JOIN_MCAST, |response| rdma_ucm_join_mcast {
            response,
            uid,
            id: id.handle,
            addr_size,
            join_flags: flags as u16,
            addr,
        })
    });
    let forget = |_: &Wrong| id.own(|own| own.groups.retain(|other| !Arc::ptr_eq(other, &group)));
    let made: rdma_ucm_create_id_resp = made.inspect_err(forget)?;
    group.state.lock().handle = made.id;
    Ok(())
}

/// Joins a group. The id's queue pair is attached to it when the program fetches the event.
///
/// # Safety
/// The pointers are null or valid, the address as long as its family says.
pub unsafe extern "C-unwind" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    let begun = attempt(|| {
        // SAFETY: by the contract of this function.
        let (id, address) = unsafe { (Id::of(id)?, address::read(addr)?) };
        join(id, address, RDMA_MC_JOIN_FLAG_FULLMEMBER, context)
    });
    // SAFETY: the id is live.
    zero(c"rdma_join_multicast", begun.and_then(|()| unsafe { arrival::complete(id) }))
}

/// Like [`rdma_join_multicast`]. The program may choose to send only.
///
/// # Safety
/// The pointers are null or valid, the address as long as its family says.
pub unsafe extern "C-unwind" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    let begun = attempt(|| {
        // SAFETY: by the contract of this function.
        let (id, attr) = unsafe { (Id::of(id)?, mc_join_attr.as_ref()) };
        let attr = attr.ok_or(Wrong::invalid("mc_join_attr is null"))?;
        if attr.comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED {
            return Err(Wrong::new(libc::ENOTSUP, "comp_mask has an unknown bit"));
        }
        if attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 {
            return Err(Wrong::invalid("comp_mask lacks RDMA_CM_JOIN_MC_ATTR_ADDRESS"));
        }
        if attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS == 0 {
            return Err(Wrong::invalid("comp_mask lacks RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS"));
        }
        if attr.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED {
            return Err(Wrong::invalid("join_flags has an unknown value"));
        }
        // SAFETY: by the contract of this function.
        join(id, unsafe { address::read(attr.addr) }?, attr.join_flags, context)
    });
    // SAFETY: the id is live.
    zero(c"rdma_join_multicast_ex", begun.and_then(|()| unsafe { arrival::complete(id) }))
}

/// Leaves a group. It waits until the group's events are acknowledged.
///
/// # Safety
/// The pointers are null or valid, the address as long as its family says.
pub unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    zero_of(c"rdma_leave_multicast", || {
        // SAFETY: by the contract of this function.
        let (id, (address, _)) = unsafe { (Id::of(id)?, address::read(addr)?) };
        let found = id.own(|own| {
            let at = own.groups.iter().position(|group| group.address == address)?;
            Some(own.groups.swap_remove(at))
        });
        let group = found.ok_or(Wrong::new(
            libc::EADDRNOTAVAIL,
            "the id has not joined the group of this address",
        ))?;
        let handle = {
            let mut state = group.state.lock();
            state.left = true;
            state.handle
        };
        let left = id.file().and_then(|file| {
            file.ask(RDMA_USER_CM_CMD_LEAVE_MCAST, |response| rdma_ucm_destroy_id {
                response,
                id: handle,
                reserved: 0,
            })
        });
        let left: rdma_ucm_destroy_id_resp = left.inspect_err(|_| {
            // The id is a member still, and an event that names the group may come.
            group.state.lock().left = false;
            id.own(|own| own.groups.push(group.clone()));
        })?;
        let (attached, qp) = (group.state.lock().attached.take(), id.seen().qp);
        if let Some((gid, lid)) = attached.filter(|_| !qp.is_null()) {
            // SAFETY: the queue pair belongs to the id, and is live. If the program has detached it already, the call
            // only fails.
            unsafe { (id.provider.verbs.ibv_detach_mcast)(qp, &ibv_gid { raw: gid }, lid) };
        }
        if id.own(|own| own.synchronous) {
            id.acknowledge_shown();
        }
        let owner = Owner::Group(Arc::as_ptr(&group.acknowledged).cast());
        let waits = Waits { function: c"rdma_leave_multicast", owner };
        group.acknowledged.wait_for(left.events_reported, &waits);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::*};

    use super::*;
    use crate::channel::Channel;
    use crate::file::FileCalls;
    use crate::id::New;
    use crate::provider::Provider;
    use crate::verbs::Verbs;

    /// How many times the queue pair is attached.
    static ATTACHED: AtomicI32 = AtomicI32::new(0);
    static GROUP: AtomicPtr<Group> = AtomicPtr::new(std::ptr::null_mut());
    /// Whether the file refuses that a group is left.
    static REFUSES: AtomicBool = AtomicBool::new(false);

    unsafe extern "C" fn attach(_: *mut ibv_qp, _: *const ibv_gid, _: u16) -> c_int {
        ATTACHED.fetch_add(1, SeqCst);
        0
    }

    unsafe extern "C" fn detach(_: *mut ibv_qp, _: *const ibv_gid, _: u16) -> c_int {
        ATTACHED.fetch_sub(1, SeqCst);
        0
    }

    /// Handles the event of the join now, as a thread would that has already fetched it from the file.
    fn arrive() {
        // SAFETY: the leave of the group waits for this event.
        let group = unsafe { &*GROUP.load(SeqCst) };
        // SAFETY: the id lives longer than its groups.
        let id = unsafe { &*group.id };
        let event = RDMA_CM_EVENT_MULTICAST_JOIN;
        let fetched = rdma_ucm_event_resp { event, ..Default::default() };
        arrival::of_group(group, id, &fetched).acknowledge();
    }

    /// A file that lets a thread handle one event at the moment when a group is left.
    unsafe extern "C-unwind" fn write(_: c_int, bytes: *const c_void, count: usize) -> isize {
        let header = bytes.cast::<rdma_ucm_cmd_hdr>();
        // SAFETY: the command has this header, and after it the address for its answer.
        unsafe {
            if (*header).cmd == RDMA_USER_CM_CMD_LEAVE_MCAST {
                if REFUSES.load(SeqCst) {
                    transom_thread::set_errno(libc::ENOENT);
                    return -1;
                }
                let command = header.add(1).cast::<rdma_ucm_destroy_id>().read_unaligned();
                let answer = rdma_ucm_destroy_id_resp { events_reported: 1 };
                std::ptr::with_exposed_provenance_mut::<rdma_ucm_destroy_id_resp>(
                    command.response as usize,
                )
                .write(answer);
                arrive();
            }
        }
        count as isize
    }

    unsafe extern "C" fn open() -> c_int {
        0
    }

    unsafe extern "C" fn close(_: c_int) -> c_int {
        0
    }

    #[test]
    fn who_leaves_while_the_event_is_fetched_is_attached_no_more() {
        let verbs = Verbs { ibv_attach_mcast: attach, ibv_detach_mcast: detach, ..Verbs::none() };
        let provider = Box::leak(Box::new(Provider::new(
            verbs,
            FileCalls { open, write, close, explain: None, check: None },
        )));
        let channel = Channel::open(provider).unwrap();
        let new = New {
            channel,
            context: std::ptr::null_mut(),
            ps: RDMA_PS_UDP,
            qp_type: IBV_QPT_UD,
            synchronous: false,
        };
        // SAFETY: the channel was just opened.
        let id = unsafe { Id::create(provider, new) }.unwrap();
        // SAFETY: the id was just made, and addresses are long enough.
        unsafe {
            let this = Id::of(id).unwrap();
            this.change(|seen| seen.qp = std::ptr::dangling_mut());
            let mut address =
                sockaddr_in6 { sin6_family: libc::AF_INET6 as u16, ..Default::default() };
            let name = (&raw mut address).cast();
            let group = Arc::new(Group {
                id: this,
                context: std::ptr::null_mut(),
                address: address::read(name).unwrap().0,
                send_only: false,
                acknowledged: Arc::default(),
                state: Default::default(),
            });
            GROUP.store(Arc::as_ptr(&group).cast_mut(), SeqCst);
            this.own(|own| own.groups.push(group));
            // Who may not leave is a member still, whose event may come.
            REFUSES.store(true, SeqCst);
            assert_eq!(rdma_leave_multicast(id, name), -1);
            assert!(this.own(|own| std::ptr::eq(&*own.groups[0], GROUP.load(SeqCst))));
            arrive();
            assert_eq!(ATTACHED.load(SeqCst), 1);
            REFUSES.store(false, SeqCst);
            assert_eq!(rdma_leave_multicast(id, name), 0);
            assert_eq!(ATTACHED.load(SeqCst), 0);
            assert_eq!(Id::destroy(id), Ok(()));
            Channel::close(channel);
        }
    }
}
