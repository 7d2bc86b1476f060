//! A command in the program's memory, and the place for its answer.

use std::ffi::c_int;
use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::Arc;

use transom_abi::*;
use transom_cm::Refused;
use transom_host::Adapter;
use transom_host::connections::manager::Manager;
use transom_system::memory::{Destination, Readable, Source, Writable};
use transom_wire::cm::CommId;

use super::files::{File, other_device};
use super::parts::Part;
use super::places::{Moved, Place};
use super::refusal::Refusal;

/// An address is not mapped in the program.
pub(super) const FAULT: Refusal =
    Refusal::new(libc::EFAULT, "a pointer does not point into the program's memory");

/// Structs of plain numbers. Any bytes are a valid value.
///
/// # Safety
/// All bit patterns of the type are valid.
pub(super) unsafe trait Plain: Copy + Default {}

macro_rules! plain {
    ($($name:ty)+) => {
        $(
            // SAFETY: it has only numbers, and arrays and unions of numbers.
            unsafe impl Plain for $name {}
        )+
    };
}

plain! {
    u8 u32
    ib_uverbs_qp_attr
    rdma_ucm_accept rdma_ucm_bind rdma_ucm_bind_ip rdma_ucm_cmd_hdr rdma_ucm_connect
    rdma_ucm_create_id rdma_ucm_create_id_resp rdma_ucm_destroy_id rdma_ucm_destroy_id_resp
    rdma_ucm_disconnect rdma_ucm_event_resp rdma_ucm_get_event rdma_ucm_init_qp_attr
    rdma_ucm_join_ip_mcast rdma_ucm_join_mcast rdma_ucm_listen rdma_ucm_migrate_id
    rdma_ucm_migrate_resp rdma_ucm_notify rdma_ucm_query rdma_ucm_query_addr_resp
    rdma_ucm_query_path_resp rdma_ucm_query_route_resp rdma_ucm_reject rdma_ucm_resolve_addr
    rdma_ucm_resolve_ip rdma_ucm_resolve_route rdma_ucm_set_option rdma_ucm_write_cm_event
    ib_path_rec_data
}

/// A command of a file.
#[derive(Clone)]
pub(super) struct Command<'a> {
    pub(super) own: &'a File,
    /// The part of the file that it is for.
    pub(super) part: Arc<Part>,
    header: rdma_ucm_cmd_hdr,
    /// The address of the bytes after the header.
    body: u64,
    /// The id in it, if it may be at another device than the first.
    id: Option<Named>,
}

/// An id in a command.
#[derive(Clone, Copy)]
struct Named {
    /// Its place behind the header.
    at: usize,
    /// What the program calls it.
    named: u32,
    /// Its number at its device.
    id: CommId,
}

/// The place of the id behind the header of a command. A command that moves an id names it in another file.
fn place_of_id(number: u32) -> Option<usize> {
    Some(match number {
        RDMA_USER_CM_CMD_DESTROY_ID | RDMA_USER_CM_CMD_LEAVE_MCAST => {
            offset_of!(rdma_ucm_destroy_id, id)
        }
        RDMA_USER_CM_CMD_BIND_IP => offset_of!(rdma_ucm_bind_ip, id),
        RDMA_USER_CM_CMD_RESOLVE_IP => offset_of!(rdma_ucm_resolve_ip, id),
        RDMA_USER_CM_CMD_RESOLVE_ROUTE => offset_of!(rdma_ucm_resolve_route, id),
        RDMA_USER_CM_CMD_QUERY_ROUTE | RDMA_USER_CM_CMD_QUERY => offset_of!(rdma_ucm_query, id),
        RDMA_USER_CM_CMD_CONNECT => offset_of!(rdma_ucm_connect, id),
        RDMA_USER_CM_CMD_LISTEN => offset_of!(rdma_ucm_listen, id),
        RDMA_USER_CM_CMD_ACCEPT => offset_of!(rdma_ucm_accept, id),
        RDMA_USER_CM_CMD_REJECT => offset_of!(rdma_ucm_reject, id),
        RDMA_USER_CM_CMD_DISCONNECT => offset_of!(rdma_ucm_disconnect, id),
        RDMA_USER_CM_CMD_INIT_QP_ATTR => offset_of!(rdma_ucm_init_qp_attr, id),
        RDMA_USER_CM_CMD_SET_OPTION => offset_of!(rdma_ucm_set_option, id),
        RDMA_USER_CM_CMD_NOTIFY => offset_of!(rdma_ucm_notify, id),
        RDMA_USER_CM_CMD_JOIN_IP_MCAST => offset_of!(rdma_ucm_join_ip_mcast, id),
        RDMA_USER_CM_CMD_BIND => offset_of!(rdma_ucm_bind, id),
        RDMA_USER_CM_CMD_RESOLVE_ADDR => offset_of!(rdma_ucm_resolve_addr, id),
        RDMA_USER_CM_CMD_JOIN_MCAST => offset_of!(rdma_ucm_join_mcast, id),
        RDMA_USER_CM_CMD_WRITE_CM_EVENT => offset_of!(rdma_ucm_write_cm_event, id),
        _ => return None,
    })
}

impl<'a> Command<'a> {
    /// Reads the header of a command of `n` bytes, and finds the part of the file that it is for.
    pub(super) fn read(own: &'a File, address: u64, n: usize) -> Result<Self, Refusal> {
        let (part, header) = (own.first()?, rdma_ucm_cmd_hdr::default());
        let mut command = Self { own, part, header, body: address, id: None };
        let header = size_of::<rdma_ucm_cmd_hdr>();
        let short = Refusal::invalid("the command is shorter than its header says");
        if n < header {
            return Err(short);
        }
        command.header = command.get(address)?;
        if header + usize::from(command.header.in_) > n {
            return Err(short);
        }
        command.body = address.checked_add(header as u64).ok_or(FAULT)?;
        if own.may_have_several() {
            command.find_part()?;
        }
        Ok(command)
    }

    fn find_part(&mut self) -> Result<(), Refusal> {
        let number = self.number();
        if number == RDMA_USER_CM_CMD_CREATE_ID {
            self.part = self.own.part_for_new()?;
        }
        let there = usize::from(self.header.in_);
        let place = place_of_id(number).filter(|at| at + size_of::<u32>() <= there);
        let Some(at) = place else { return Ok(()) };
        let named = self.get(self.body.checked_add(at as u64).ok_or(FAULT)?)?;
        let Place { part, id } = match number {
            RDMA_USER_CM_CMD_LEAVE_MCAST => self.own.place_by_slot(named),
            _ => self.own.place_of(named),
        }?;
        (self.part, self.id) = (part, Some(Named { at, named, id }));
        Ok(())
    }

    /// The same command at another part.
    pub(super) fn at(&self, part: &Arc<Part>) -> Self {
        Self { part: part.clone(), ..self.clone() }
    }

    /// The same command at the device that its id is to be bound to, by one of these addresses. An id that belongs to
    /// another stays there.
    pub(super) fn at_its_device(
        &self,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
    ) -> Result<Self, Refusal> {
        let Some(Named { at, named, id }) = self.id else { return Ok(self.clone()) };
        if self.call(|manager| manager.unbound(self.file(), id))?.is_none() {
            return Ok(self.clone());
        }
        let _moves = self.own.moves();
        let here = self.own.last_place_of(named)?;
        let at_place = |place: Place| Self {
            id: Some(Named { at, named, id: place.id }),
            ..self.at(&place.part)
        };
        let unbound = here.part.call(|manager| manager.unbound(here.part.file, here.id))?;
        let Some(unbound) = unbound else { return Ok(at_place(here)) };
        // An id that has the wildcard address begins where the kernel begins.
        let source = source.filter(|_| !unbound.has_port());
        let other = other_device(&here.part, source, destination);
        let Some(adapter) = other else { return Ok(at_place(here)) };
        let moved = self.own.move_id(named, &here, unbound, adapter)?;
        Ok(at_place(moved.unwrap_or(here)))
    }

    /// Whether its device was removed.
    pub(super) fn has_no_device(&self) -> bool {
        self.part.is_removed()
    }

    /// The id of the command, whose number it has there.
    pub(super) fn id(&self, number: u32) -> CommId {
        self.id.map_or(CommId(number), |it| it.id)
    }

    /// What the program calls the id of the command, if it may be at several devices.
    pub(super) fn named(&self) -> Option<u32> {
        self.id.map(|it| it.named)
    }

    /// The id of the command has ended. Ends its numbers where it was before it moved, and says how many of its events
    /// were taken there.
    pub(super) fn forget_id(&self) -> u32 {
        let Some(Named { named, id: ended, .. }) = self.id else { return 0 };
        let Moved { places, taken } = self.own.forget(named);
        let end =
            |Place { part, id }| part.call(|manager| manager.destroy(part.file, id)).unwrap_or(0);
        places.into_iter().filter(|place| place.id != ended).map(end).fold(taken, u32::wrapping_add)
    }

    /// Its device.
    pub(super) fn adapter(&self) -> &Adapter {
        &self.part.adapter
    }

    /// The descriptor by which the connection manager of the device knows the file.
    pub(super) fn file(&self) -> c_int {
        self.part.file
    }

    /// The number of the command.
    pub(super) fn number(&self) -> u32 {
        self.header.cmd
    }

    /// Makes a call of the connection manager.
    pub(super) fn call<T, E: From<Refused> + Into<Refusal>>(
        &self,
        call: impl FnOnce(&mut Manager) -> Result<T, E>,
    ) -> Result<T, Refusal> {
        self.part.call(call)
    }

    /// The struct after the header. `EINVAL` if the command is too short for it.
    pub(super) fn body<T: Plain>(&self) -> Result<T, Refusal> {
        self.body_of(size_of::<T>())
    }

    /// The same for a struct that has grown. `least` bytes must be there; missing ones after that are zero.
    pub(super) fn body_of<T: Plain>(&self, least: usize) -> Result<T, Refusal> {
        let there = usize::from(self.header.in_);
        if there < least {
            return Err(Refusal::invalid("the command is too short for its number"));
        }
        let mut body: T = self.get_part(self.body, there.min(size_of::<T>()))?;
        if let Some(Named { at, id, .. }) = self.id
            && at + size_of::<u32>() <= size_of::<T>()
        {
            let place = (&raw mut body).cast::<u8>();
            // SAFETY: it lies in the value, and any bytes are a valid `T`.
            unsafe { place.add(at).cast::<u32>().write_unaligned(id.0) };
        }
        Ok(body)
    }

    /// A value in the program's memory.
    pub(super) fn get<T: Plain>(&self, address: u64) -> Result<T, Refusal> {
        self.get_part(address, size_of::<T>())
    }

    /// The first bytes of a value. The rest is zero.
    fn get_part<T: Plain>(&self, address: u64, length: usize) -> Result<T, Refusal> {
        let mut value = T::default();
        // SAFETY: the value belongs to this function, and any bytes are a valid `T`.
        let to = unsafe { Writable::shared((&raw mut value).cast(), size_of::<T>() as u64) };
        self.copy(Destination::Own(to), Source::Program(address), length)?;
        Ok(value)
    }

    /// The room for the answer, in bytes.
    pub(super) fn room(&self) -> usize {
        self.header.out.into()
    }

    /// Checks the room for the answer. `ENOSPC` if it has less than `least` bytes.
    pub(super) fn check_room(&self, least: usize) -> Result<(), Refusal> {
        let refusal = Refusal::new(libc::ENOSPC, "the command has no room for its answer");
        if self.room() < least { Err(refusal) } else { Ok(()) }
    }

    /// Writes the answer, or the part of it that there is room for.
    pub(super) fn answer<T: Plain>(&self, response: u64, answer: &T) -> Result<(), Refusal> {
        self.answer_at(response, 0, answer)
    }

    /// Writes a part of the answer that begins at `offset`.
    pub(super) fn answer_at<T: Plain>(
        &self,
        response: u64,
        offset: usize,
        answer: &T,
    ) -> Result<(), Refusal> {
        let length = self.room().saturating_sub(offset).min(size_of::<T>());
        let to = response.checked_add(offset as u64).ok_or(FAULT)?;
        let from = std::ptr::from_ref(answer).cast();
        // SAFETY: it is borrowed for longer than this call.
        let from = unsafe { Readable::shared(from, size_of::<T>() as u64) };
        self.copy(Destination::Program(to), Source::Own(from), length)
    }

    fn copy(&self, to: Destination<'_>, from: Source<'_>, length: usize) -> Result<(), Refusal> {
        if length == 0 {
            return Ok(());
        }
        let copier = self.adapter().device().process().copier();
        // No region holds this memory, so the kernel must check the address.
        copier.copy(to, from, length as u64).map_err(|_| FAULT)
    }
}
