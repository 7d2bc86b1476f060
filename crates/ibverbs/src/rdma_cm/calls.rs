//! Commands about ids.

use std::ffi::c_int;
use std::mem::offset_of;
use std::net::SocketAddr;

use transom_abi::*;
use transom_cm::options::Kind;
use transom_cm::{Accept, Connect, Refused, Service};
use transom_host::connections::manager::Manager;
use transom_wire::cm::{Bits, CommId, Ece, Qpn, RejectReason, TimeCode};

use super::addresses;
use super::command::{self, Command};
use super::files::File;
use super::listening;
use super::places::Place;
use super::queries::PRIMARY;
use super::refusal::Refusal;
use crate::rehearse;

/// A reserved field is set.
const RESERVED: Refusal = Refusal::invalid("a reserved field of the command is not zero");
/// An address is missing.
const NO_ADDRESS: Refusal = Refusal::invalid("no address is given: its family is 0");
/// The length of an option's value is wrong.
const OPTION_LENGTH: Refusal =
    Refusal::invalid("optlen does not fit the option: TOS and ACK_TIMEOUT take 1, the others 4");

/// The most bytes of a list of paths, as on Linux.
const PATHS: usize = 4 << 20;
/// No path of a list is one that a connection takes.
const NO_PATH: Refusal = Refusal::invalid(
    "no path has just the flags IBV_PATH_FLAG_GMP, _PRIMARY and _BIDIRECTIONAL: a connection takes such a one",
);

/// Makes an id.
pub(super) fn create_id(command: &Command<'_>) -> Result<(), Refusal> {
    command.check_room(size_of::<rdma_ucm_create_id_resp>())?;
    let body: rdma_ucm_create_id = command.body()?;
    let service = match rdma_port_space::from(body.ps) {
        RDMA_PS_TCP => Service::TCP,
        RDMA_PS_UDP => Service::UDP,
        RDMA_PS_IPOIB => Service::IPOIB,
        RDMA_PS_IB => Service::ib(match ibv_qp_type::from(body.qp_type) {
            IBV_QPT_RC => Kind::Rc,
            IBV_QPT_UC => Kind::Uc,
            IBV_QPT_UD => Kind::Ud,
            IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => Kind::Xrc,
            _ => return Err(Refusal::invalid("RDMA_PS_IB takes the QP types RC, UC, UD and XRC")),
        }),
        _ => return Err(Refusal::invalid("ps is none of RDMA_PS_TCP, _UDP, _IPOIB and _IB")),
    };
    let may_make = rehearse::may_make_id();
    may_make.map_err(|errno| Refusal::new(errno, "the rehearsal refuses to make an id"))?;
    command.call(|manager| {
        let id = manager.create(command.file(), body.uid, service)?;
        let answered = command.answer(body.response, &rdma_ucm_create_id_resp { id: id.0 });
        if answered.is_err() {
            manager.destroy(command.file(), id)?;
        }
        answered
    })
}

/// Ends an id.
pub(super) fn destroy_id(command: &Command<'_>) -> Result<(), Refusal> {
    command.check_room(size_of::<rdma_ucm_destroy_id_resp>())?;
    let body: rdma_ucm_destroy_id = command.body()?;
    let ended = command.call(|manager| manager.destroy(command.file(), CommId(body.id)))?;
    let events_reported = ended.wrapping_add(command.forget_id());
    command.answer(body.response, &rdma_ucm_destroy_id_resp { events_reported })
}

/// Binds an id to an IP address.
pub(super) fn bind_ip(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_bind_ip = command.body_of(offset_of!(rdma_ucm_bind_ip, id) + 4)?;
    bind_to(command, body.id, addresses::of_ip(&body.addr)?)
}

/// Binds an id to an address.
pub(super) fn bind(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_bind = command.body()?;
    if body.reserved != 0 {
        return Err(RESERVED);
    }
    bind_to(command, body.id, addresses::of(&body.addr, body.addr_size)?)
}

fn bind_to(command: &Command<'_>, id: u32, address: Option<SocketAddr>) -> Result<(), Refusal> {
    let address = address.ok_or(NO_ADDRESS)?;
    let command = command.at_its_device(Some(address), None)?;
    command.call(|manager| manager.bind(command.file(), command.id(id), address))
}

/// Resolves an IP address.
pub(super) fn resolve_ip(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_resolve_ip = command.body()?;
    let source = addresses::of_ip(&body.src_addr)?;
    resolve(command, body.id, source, addresses::of_ip(&body.dst_addr)?)
}

/// Resolves an address.
pub(super) fn resolve_addr(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_resolve_addr = command.body()?;
    if body.reserved != 0 {
        return Err(RESERVED);
    }
    let source = addresses::of(&body.src_addr, body.src_size)?;
    resolve(command, body.id, source, addresses::of(&body.dst_addr, body.dst_size)?)
}

/// It does not wait: the host knows the answer at once or never.
fn resolve(
    command: &Command<'_>,
    id: u32,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> Result<(), Refusal> {
    let destination = destination.ok_or(NO_ADDRESS)?;
    let command = command.at_its_device(source, Some(destination))?;
    let id = command.id(id);
    command.call(|manager| manager.resolve_address(command.file(), id, source, destination))
}

/// Looks for a path.
pub(super) fn resolve_route(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_resolve_route = command.body()?;
    if body.timeout_ms == 0 {
        return Err(Refusal::invalid("timeout_ms is 0: it takes the milliseconds to wait"));
    }
    command.call(|manager| manager.resolve_route(command.file(), CommId(body.id)))
}

/// Makes an id listen.
pub(super) fn listen(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_listen = command.body()?;
    command.call(|manager| manager.may_listen(command.file(), CommId(body.id)))?;
    listening::listen(command, CommId(body.id), body.backlog as i32)
}

/// The private data of a command.
fn private_data(of: &rdma_ucm_conn_param) -> &[u8] {
    &of.private_data[..usize::from(of.private_data_len)]
}

/// A number of retries has three bits. A larger one means the maximum.
fn retries(count: u8) -> Bits<3> {
    Bits::low(u32::from(count).min(Bits::<3>::MAX.get()))
}

fn ece(of: &rdma_ucm_ece) -> Ece {
    Ece { vendor: Bits::low(of.vendor_id), options: of.attr_mod }
}

/// Asks for a connection.
pub(super) fn connect(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_connect = command.body_of(offset_of!(rdma_ucm_connect, ece))?;
    let (id, with) = (CommId(body.id), &body.conn_param);
    if with.valid == 0 {
        return Err(Refusal::invalid("the command has no connection parameters"));
    }
    let connect = Connect {
        qpn: Qpn::low(with.qp_num),
        srq: with.srq != 0,
        responder_resources: with.responder_resources,
        initiator_depth: with.initiator_depth,
        flow_control: with.flow_control != 0,
        retry_count: retries(with.retry_count),
        rnr_retry_count: retries(with.rnr_retry_count),
        private_data: private_data(with),
    };
    command.adapter().note_connecting(with.qp_num);
    let keep_back = || command.adapter().keep_back(with.qp_num);
    let connect = |manager: &mut Manager| {
        manager.connect(command.file(), id, ece(&body.ece), &connect, keep_back)
    };
    command.call(connect)
}

/// Accepts a request. Without parameters, it confirms an accepted connection.
pub(super) fn accept(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_accept = command.body_of(offset_of!(rdma_ucm_accept, ece))?;
    let (id, with) = (CommId(body.id), &body.conn_param);
    let accept = Accept {
        qpn: Qpn::low(with.qp_num),
        srq: with.srq != 0,
        responder_resources: with.responder_resources,
        initiator_depth: with.initiator_depth,
        flow_control: with.flow_control != 0,
        rnr_retry_count: retries(with.rnr_retry_count),
        qkey: (with.qkey != 0).then_some(with.qkey),
        private_data: private_data(with),
    };
    if with.valid == 0 {
        return command
            .call(|manager| manager.with_id(command.file(), id, |engine, _| engine.establish(id)));
    }
    command.adapter().note_connecting(with.qp_num);
    command.call(|manager| manager.accept(command.file(), id, body.uid, ece(&body.ece), &accept))
}

/// Refuses a request.
pub(super) fn reject(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_reject = command.body()?;
    let reason = match body.reason {
        0 => RejectReason::Consumer,
        reason if u16::from(reason) == RejectReason::Consumer.code() => RejectReason::Consumer,
        reason if u16::from(reason) == RejectReason::VendorOption.code() => {
            RejectReason::VendorOption
        }
        _ => return Err(Refusal::invalid("a program rejects for reason 28 or 35 only")),
    };
    let private_data = &body.private_data[..usize::from(body.private_data_len)];
    let id = CommId(body.id);
    command.call(|manager| {
        manager
            .with_id(command.file(), id, |engine, now| engine.reject(id, reason, private_data, now))
    })
}

/// Ends a connection.
pub(super) fn disconnect(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_disconnect = command.body()?;
    let id = CommId(body.id);
    command.call(|manager| {
        manager.with_id(command.file(), id, |engine, now| engine.disconnect(id, now))
    })
}

/// Reports an event of the queue pair.
pub(super) fn notify(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_notify = command.body()?;
    if body.event != IBV_EVENT_COMM_EST {
        return Err(Refusal::invalid("rdma_notify takes IBV_EVENT_COMM_EST only"));
    }
    let id = CommId(body.id);
    command.call(|manager| manager.with_id(command.file(), id, |engine, _| engine.notify(id)))
}

/// Sets an option.
pub(super) fn set_option(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_set_option = command.body_of(offset_of!(rdma_ucm_set_option, optlen) + 4)?;
    let (id, length) = (CommId(body.id), body.optlen as usize);
    let of_length = |right: usize| if length == right { Ok(()) } else { Err(OPTION_LENGTH) };
    let byte = || of_length(1).and_then(|()| command.get::<u8>(body.optval));
    let flag = || of_length(4).and_then(|()| command.get::<u32>(body.optval)).map(|it| it != 0);
    let path = size_of::<ib_path_rec_data>();
    match (body.level, body.optname) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
            let tos = byte()?;
            command.call(|it| it.with_id(command.file(), id, |engine, _| engine.set_tos(id, tos)))
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
            let reuse = flag()?;
            command.call(|it| it.set_reuse_address(command.file(), id, reuse))
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
            let only = flag()?;
            command.call(|it| it.set_v6_only(command.file(), id, only))
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            let timeout = TimeCode::new(byte()?);
            let timeout = timeout.ok_or(Refusal::invalid("an ACK timeout is at most 31"))?;
            command.call(|it| {
                it.with_id(command.file(), id, |engine, _| engine.set_ack_timeout(id, timeout))
            })
        }
        // The path leads to the address, so its content does not matter.
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) if length <= PATHS && length.is_multiple_of(path) => {
            let mut places = (0..length as u64).step_by(path).map(|at| body.optval.checked_add(at));
            let is_primary = |place: Option<u64>| {
                let record: ib_path_rec_data = command.get(place.ok_or(command::FAULT)?)?;
                Ok::<_, Refusal>(record.flags == PRIMARY)
            };
            while !is_primary(places.next().ok_or(NO_PATH)?)? {}
            command.call(|it| {
                it.with_id(command.file(), id, |engine, _| engine.resolve_route(id, Ok(())))
            })
        }
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => Err(Refusal::invalid(
            "optlen is no multiple of the size of an ibv_path_data, or too large",
        )),
        _ => Err(Refusal::new(libc::ENOSYS, "there is no such option of this level")),
    }
}

/// Joins a group by its IP address.
pub(super) fn join_ip_mcast(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_join_ip_mcast =
        command.body_of(offset_of!(rdma_ucm_join_ip_mcast, id) + 4)?;
    let group = addresses::of_ip(&body.addr)?;
    join(command, (body.id, body.uid, body.response), group, false)
}

/// Joins a group.
pub(super) fn join_mcast(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_join_mcast = command.body()?;
    let send_only = match rdma_cm_mc_join_flags::from(body.join_flags) {
        RDMA_MC_JOIN_FLAG_FULLMEMBER => false,
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => true,
        _ => return Err(Refusal::invalid("join_flags are FULLMEMBER or SENDONLY_FULLMEMBER")),
    };
    let group = addresses::of(&body.addr, body.addr_size)?;
    join(command, (body.id, body.uid, body.response), group, send_only)
}

fn join(
    command: &Command<'_>,
    (id, uid, response): (u32, u64, u64),
    group: Option<SocketAddr>,
    send_only: bool,
) -> Result<(), Refusal> {
    command.check_room(size_of::<rdma_ucm_create_id_resp>())?;
    let group = group.ok_or(NO_ADDRESS)?.ip();
    command.call(|manager| {
        let number = manager.join(command.file(), CommId(id), uid, group, send_only)?;
        let id = command.part.name_of_group(number);
        let answered = command.answer(response, &rdma_ucm_create_id_resp { id });
        if answered.is_err() {
            manager.leave(command.file(), number)?;
        }
        answered
    })
}

/// Leaves a group.
pub(super) fn leave_mcast(command: &Command<'_>) -> Result<(), Refusal> {
    command.check_room(size_of::<rdma_ucm_destroy_id_resp>())?;
    let body: rdma_ucm_destroy_id = command.body()?;
    let events_reported = command.call(|manager| {
        let number = command.part.number_of_group(body.id)?;
        manager.leave(command.file(), number)
    })?;
    command.answer(body.response, &rdma_ucm_destroy_id_resp { events_reported })
}

/// Moves an id from another file to this one.
pub(super) fn migrate_id(command: &Command<'_>) -> Result<(), Refusal> {
    command.check_room(size_of::<rdma_ucm_migrate_resp>())?;
    let body: rdma_ucm_migrate_id = command.body()?;
    let from = c_int::try_from(body.fd);
    let from = from.map_err(|_| Refused::NoFile)?;
    let events_reported = migrate(command, from, body.id)?;
    command.answer(body.response, &rdma_ucm_migrate_resp { events_reported })
}

/// Moves an id from the file of a descriptor to that of a command. How many of its events were taken.
fn migrate(command: &Command<'_>, from: c_int, named: u32) -> Result<u32, Refusal> {
    let Ok(source) = File::of(from) else {
        return command.call(|it| it.migrate(from, CommId(named), command.file()));
    };
    let numbers = numbers_to_move(command, &source, named)?;
    if std::ptr::eq(command.own, &*source) {
        return Ok(move_numbers(&numbers)?.wrapping_add(source.taken(named)));
    }
    if !source.places_of(named).is_empty() {
        // Its events may be fetched as soon as it is there.
        let places = numbers.iter().map(|(to, from)| Place { part: to.part.clone(), id: from.id });
        command.own.set_places(named, places.collect());
    }
    let moved = move_numbers(&numbers).inspect_err(|_| drop(command.own.forget(named)))?;
    let taken = source.forget(named).taken;
    command.own.add_taken(named, taken);
    Ok(moved.wrapping_add(taken))
}

/// The numbers of an id, each with the command at the part that gets it: first the one that it has now, then those that
/// it has kept at other devices, and those that stand in for it there. If one cannot follow, for want of a descriptor,
/// none moves: requests to it would come to a file where nobody knows it.
fn numbers_to_move<'a>(
    command: &Command<'a>,
    source: &File,
    named: u32,
) -> Result<Vec<(Command<'a>, Place)>, Refusal> {
    let now = source.place_of(named)?;
    let id = now.id;
    let kept = source.places_of(named).into_iter().filter(|it| it.id != id);
    let mut numbers = Vec::new();
    for from in std::iter::once(now).chain(kept) {
        match command.own.part_at(from.part.adapter.clone()) {
            Ok(part) => numbers.push((command.at(&part), from)),
            // Nothing comes from a device that is removed.
            Err(_) if from.id != id && from.part.is_removed() => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(numbers)
}

/// Moves the numbers of an id, if the first can be moved. How many of its events were taken.
fn move_numbers(numbers: &[(Command<'_>, Place)]) -> Result<u32, Refusal> {
    let [(to, now), kept @ ..] = numbers else { return Ok(0) };
    let moved = to.call(|it| it.migrate(now.part.file, now.id, to.file()))?;
    let kept = kept.iter().map(|(to, from)| {
        to.call(|it| it.migrate_number(from.part.file, from.id, to.file())).unwrap_or(0)
    });
    Ok(kept.fold(moved, u32::wrapping_add))
}

/// Adds an event of the program's own to the events of an id.
pub(super) fn write_cm_event(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_write_cm_event = command.body()?;
    if !matches!(body.event, RDMA_CM_EVENT_USER | RDMA_CM_EVENT_INTERNAL) {
        return Err(Refusal::invalid("a program writes RDMA_CM_EVENT_USER only"));
    }
    // SAFETY: any bytes are a number.
    let argument = unsafe { body.param.arg };
    let (id, status) = (CommId(body.id), body.status as i32);
    command.call(|manager| manager.write_event(command.file(), id, body.event, status, argument))
}
