//! Fetching events.

use std::ffi::c_int;
use std::mem::offset_of;

use transom_abi::*;
use transom_cm::attributes::{HOP_LIMIT, PORT};
use transom_cm::event::{Group, Offer};
use transom_cm::options::Kind;
use transom_cm::{Happened, Refused};
use transom_host::connections::Delivered;
use transom_system::addresses::gid;
use transom_wire::cm::{CommId, Ece};

use super::command::Command;
use super::queries::ah_attr;
use super::refusal::Refusal;
use crate::gids;

unsafe extern "C-unwind" {
    /// The C library's `poll`. A thread that is cancelled meanwhile unwinds from here. It is declared by its other
    /// name, because other declarations of `poll` promise the compiler that it does not unwind.
    #[link_name = "__poll"]
    fn poll(files: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
}

/// Fetches an event, if there is one.
pub(super) fn fetch(command: &Command<'_>) -> Result<bool, Refusal> {
    let whole = size_of::<rdma_ucm_event_resp>();
    // The last two fields are newer, and may be missing.
    command.check_room(offset_of!(rdma_ucm_event_resp, reserved).min(whole))?;
    let body: rdma_ucm_get_event = command.body()?;
    let event = command.call(|manager| {
        let Some(event) = manager.next_event(command.file())? else {
            return Ok::<_, Refused>(None);
        };
        // An event of a group has the datagram form.
        let of_group =
            matches!(event.happened, Happened::MulticastJoin(_) | Happened::MulticastError(..));
        let service = manager.service(CommId(event.id));
        let datagrams = of_group || service.is_some_and(|it| it.kind() == Kind::Ud);
        Ok(Some((event, datagrams)))
    })?;
    let Some((mut event, datagrams)) = event else { return Ok(false) };
    event.id = match event.happened {
        Happened::MulticastJoin(_) | Happened::MulticastError(..) => {
            command.part.name_of_group(event.id)
        }
        _ => command.own.name_of(CommId(event.id)),
    };
    command.answer(body.response, &response(&event, datagrams))?;
    Ok(true)
}

/// Waits for an event, if the descriptor blocks. `EAGAIN` otherwise.
pub(super) fn wait(file: c_int) -> Result<(), Refusal> {
    // SAFETY: this only queries the kernel about the number.
    let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
    if flags < 0 {
        return Err(Refused::NoFile.into());
    }
    if flags & libc::O_NONBLOCK != 0 {
        return Err(Refusal::new(libc::EAGAIN, "no event waits"));
    }
    // Wait without taking anything from the descriptor. The thread that takes the last event clears it, under the
    // manager's lock. If a waiting thread cleared it here, the other one, which has just seen it readable, would block
    // for ever while it holds that lock.
    let mut readable = libc::pollfd { fd: file, events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one descriptor, with room for its events.
    let count = unsafe { poll(&mut readable, 1, -1) };
    if count < 0 {
        return Err(Refusal::new(transom_thread::errno(), "the wait for an event was interrupted"));
    }
    if readable.revents & libc::POLLNVAL != 0 { Err(Refused::NoFile.into()) } else { Ok(()) }
}

/// An event in its C form.
fn response(event: &Delivered, datagrams: bool) -> rdma_ucm_event_resp {
    let happened = &event.happened;
    let (ece, param) = match happened {
        Happened::Written { argument, .. } => (Ece::default(), argument_of(*argument)),
        _ if datagrams => ud_param(event),
        _ => conn_param(happened),
    };
    rdma_ucm_event_resp {
        uid: event.uid,
        id: event.id,
        event: happened.code(),
        status: happened.status() as u32,
        param,
        reserved: 0,
        ece: rdma_ucm_ece { vendor_id: ece.vendor.get(), attr_mod: ece.options },
    }
}

/// Private data in the field of events, and its length.
fn private_data(happened: &Happened) -> ([u8; RDMA_MAX_PRIVATE_DATA], u8) {
    let mut room = [0; RDMA_MAX_PRIVATE_DATA];
    let data = happened.private_data();
    let length = data.len().min(usize::from(u8::MAX));
    room[..length].copy_from_slice(&data[..length]);
    (room, length as u8)
}

/// The argument of a program's own event. It is in the first two words, for every kind of id.
fn argument_of(argument: u64) -> rdma_ucm_event_param {
    let conn = rdma_ucm_conn_param {
        qp_num: argument as u32,
        qkey: (argument >> 32) as u32,
        ..rdma_ucm_conn_param::default()
    };
    whole(|param| param.conn = conn)
}

/// The parameters of an event of a connection.
fn conn_param(happened: &Happened) -> (Ece, rdma_ucm_event_param) {
    let (private_data, private_data_len) = private_data(happened);
    let mut conn =
        rdma_ucm_conn_param { private_data, private_data_len, ..rdma_ucm_conn_param::default() };
    let offer = match happened {
        Happened::ConnectRequest { offer, .. } => offer.as_ref(),
        Happened::ConnectResponse { offer, .. } => Some(offer),
        _ => None,
    };
    if let Some(offer) = offer {
        let Offer { qpn, srq, responder_resources, initiator_depth, .. } = *offer;
        conn.qp_num = qpn.get();
        conn.srq = srq.into();
        (conn.responder_resources, conn.initiator_depth) = (responder_resources, initiator_depth);
        conn.flow_control = offer.flow_control.into();
        conn.retry_count = offer.retry_count.get() as u8;
        conn.rnr_retry_count = offer.rnr_retry_count.get() as u8;
    }
    (offer.map(|offer| offer.ece).unwrap_or_default(), whole(|param| param.conn = conn))
}

/// The parameters of an event of datagrams or of a group.
fn ud_param(event: &Delivered) -> (Ece, rdma_ucm_event_param) {
    let happened = &event.happened;
    let (private_data, private_data_len) = private_data(happened);
    let mut ud =
        rdma_ucm_ud_param { private_data, private_data_len, ..rdma_ucm_ud_param::default() };
    let mut offered = Ece::default();
    match happened {
        Happened::Resolved { address, qpn, qkey, ece, .. } => {
            (ud.qp_num, ud.qkey, ud.ah_attr) = (qpn.get(), *qkey, ah_attr(address));
            offered = *ece;
        }
        Happened::MulticastJoin(group) => {
            (ud.qp_num, ud.qkey) = (Group::QPN, group.qkey);
            let grh = ib_uverbs_global_route {
                dgid: gid(group.address),
                sgid_index: gids::index_of(event.gid_index.into()) as u8,
                hop_limit: HOP_LIMIT,
                ..ib_uverbs_global_route::default()
            };
            ud.ah_attr = ib_uverbs_ah_attr {
                grh,
                is_global: 1,
                port_num: PORT,
                ..ib_uverbs_ah_attr::default()
            };
        }
        _ => {}
    }
    (offered, whole(|param| param.ud = ud))
}

/// Parameters with every byte initialized, whichever kind is set.
fn whole(set: impl FnOnce(&mut rdma_ucm_event_param)) -> rdma_ucm_event_param {
    let mut param = rdma_ucm_event_param::default();
    set(&mut param);
    param
}
