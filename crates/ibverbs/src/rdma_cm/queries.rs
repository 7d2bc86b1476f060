//! Commands that query an id: its addresses, its device, its path, and the attributes of its queue pair for a state.

use std::mem::offset_of;
use std::net::SocketAddr;

use transom_abi::*;
use transom_cm::attributes::{Access, AddressVector, PORT, Path, Retries};
use transom_cm::{Attributes, Engine, QpState, Route, is_any};
use transom_system::addresses::gid;
use transom_wire::cm::{CommId, ServiceId};
use transom_wire::packet::DEFAULT_PKEY;

use super::addresses::{self, AF_IB, IB};
use super::command::Command;
use super::refusal::Refusal;
use crate::gids;

/// The device has no number in the kernel. `ibv_get_device_index(3)` returns the same.
const NO_INDEX: u32 = u32::MAX;

/// The values of an id that can be queried.
struct Told {
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    service: ServiceId,
    route: Option<Route>,
    /// The path, once it is known with all that a connection needs.
    path: Option<Path>,
}

impl Told {
    fn of(engine: &Engine, id: CommId) -> Self {
        let (source, destination) = (engine.source(id), engine.destination(id));
        let space = engine.service(id).map(|service| service.space());
        let port = source.map_or(0, |source| source.port());
        let service = space.map_or(ServiceId(0), |space| ServiceId::of(space, port));
        let (route, path) = (engine.route(id), engine.path(id));
        Self { source, destination, service, route, path }
    }

    /// Whether it belongs to a device, by the address that it is bound to or by the route that was found.
    fn has_device(&self) -> bool {
        self.route.is_some() || self.source.is_some_and(|source| !is_any(source.ip()))
    }

    /// The device's GUID and port. Zero if it belongs to none.
    fn device(&self, command: &Command<'_>) -> (u64, u8) {
        match self.has_device() {
            true => {
                let number = command.adapter().device().options().number;
                (transom_system::node_guid(number).to_be(), PORT)
            }
            false => (0, 0),
        }
    }

    fn gids(&self) -> [Option<[u8; 16]>; 2] {
        let of_source = self.source.filter(|source| !is_any(source.ip()));
        match self.route {
            Some(route) => [Some(gid(route.source)), Some(gid(route.destination))],
            None => [of_source.map(|source| gid(source.ip())), None],
        }
    }
}

fn told(command: &Command<'_>, id: u32) -> Result<Told, Refusal> {
    let id = CommId(id);
    command
        .call(|manager| manager.with_id(command.file(), id, |engine, _| Ok(Told::of(engine, id))))
}

/// All values, for IP addresses only.
pub(super) fn query_route(command: &Command<'_>) -> Result<(), Refusal> {
    command.check_room(offset_of!(rdma_ucm_query_route_resp, ibdev_index))?;
    let body: rdma_ucm_query = command.body_of(offset_of!(rdma_ucm_query, option))?;
    let told = told(command, body.id)?;
    let (node_guid, port_num) = told.device(command);
    let mut answer = rdma_ucm_query_route_resp {
        node_guid,
        src_addr: addresses::to_ip(told.source),
        dst_addr: addresses::to_ip(told.destination),
        num_paths: told.path.is_some().into(),
        port_num,
        ibdev_index: NO_INDEX,
        ..rdma_ucm_query_route_resp::default()
    };
    let [sgid, dgid] = told.gids();
    let shown = &mut answer.ib_route[0];
    (shown.sgid, shown.dgid) = (sgid.unwrap_or_default(), dgid.unwrap_or_default());
    shown.pkey = DEFAULT_PKEY.to_be();
    if let Some(Path { address, mtu, life_time }) = told.path {
        shown.reversible = 1;
        shown.numb_path = 1;
        shown.mtu = mtu.code().into();
        shown.mtu_selector = EXACTLY;
        shown.rate_selector = EXACTLY;
        shown.packet_life_time_selector = EXACTLY;
        shown.packet_life_time = life_time.code();
        shown.flow_label = address.flow_label.get().to_be();
        shown.hop_limit = address.hop_limit;
        shown.traffic_class = address.traffic_class;
    }
    command.answer(body.response, &answer)
}

/// A selector in path records: exactly this value.
const EXACTLY: u8 = 2;

/// One kind of values, chosen by the option.
pub(super) fn query(command: &Command<'_>) -> Result<(), Refusal> {
    let body: rdma_ucm_query = command.body()?;
    let ask = match body.option {
        RDMA_USER_CM_QUERY_ADDR => query_addr,
        RDMA_USER_CM_QUERY_PATH => query_path,
        RDMA_USER_CM_QUERY_GID => query_gid,
        _ => return Err(Refusal::new(libc::ENOSYS, "there is no such query")),
    };
    let told = told(command, body.id)?;
    ask(command, body.response, &told)
}

fn query_addr(command: &Command<'_>, response: u64, told: &Told) -> Result<(), Refusal> {
    command.check_room(offset_of!(rdma_ucm_query_addr_resp, ibdev_index))?;
    let (node_guid, port_num) = told.device(command);
    let (src_addr, src_size) = addresses::to_storage(told.source);
    let (dst_addr, dst_size) = addresses::to_storage(told.destination);
    let pkey = if told.has_device() { DEFAULT_PKEY.to_be() } else { 0 };
    let answer = rdma_ucm_query_addr_resp {
        node_guid,
        port_num,
        pkey,
        src_size,
        dst_size,
        src_addr,
        dst_addr,
        ibdev_index: NO_INDEX,
        ..rdma_ucm_query_addr_resp::default()
    };
    command.answer(response, &answer)
}

fn query_gid(command: &Command<'_>, response: u64, told: &Told) -> Result<(), Refusal> {
    command.check_room(offset_of!(rdma_ucm_query_addr_resp, ibdev_index))?;
    let (node_guid, port_num) = told.device(command);
    let address = |gid: Option<[u8; 16]>, service: u64| {
        let mut address = sockaddr_storage { ss_family: AF_IB, ..sockaddr_storage::default() };
        // struct sockaddr_ib: P_Key, flow label, GID, service id, its mask, scope.
        address.ss_data[..2].copy_from_slice(&DEFAULT_PKEY.to_be_bytes());
        address.ss_data[6..22].copy_from_slice(&gid.unwrap_or_default());
        address.ss_data[22..30].copy_from_slice(&service.to_be_bytes());
        address.ss_data[30..38].copy_from_slice(&u64::MAX.to_be_bytes());
        address
    };
    let [sgid, dgid] = told.gids();
    let there = told.destination.map_or(0, |destination| destination.port());
    let service = told.service.0 & !u64::from(u16::MAX) | u64::from(there);
    let answer = rdma_ucm_query_addr_resp {
        node_guid,
        port_num,
        pkey: DEFAULT_PKEY.to_be(),
        src_size: IB as u16,
        dst_size: IB as u16,
        src_addr: address(sgid, told.service.0),
        dst_addr: address(dgid, service),
        ibdev_index: NO_INDEX,
        ..rdma_ucm_query_addr_resp::default()
    };
    command.answer(response, &answer)
}

fn query_path(command: &Command<'_>, response: u64, told: &Told) -> Result<(), Refusal> {
    let head = size_of::<rdma_ucm_query_path_resp>();
    command.check_room(head)?;
    let room = command.room() - head >= size_of::<ib_path_rec_data>();
    let path = told.path.filter(|_| room);
    let num_paths = path.is_some().into();
    command.answer(response, &rdma_ucm_query_path_resp { num_paths, reserved: 0 })?;
    let Some(path) = path else { return Ok(()) };
    command.answer_at(response, head, &path_record(&path))
}

/// The flags of the path that a connection takes.
pub(super) const PRIMARY: u32 =
    IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;

/// A path record, in the form on the wire.
fn path_record(Path { address, mtu, life_time }: &Path) -> ib_path_rec_data {
    let flow_and_hops = address.flow_label.get() << 8 | u32::from(address.hop_limit);
    let mut bytes = [0; 64];
    bytes[8..24].copy_from_slice(&gid(address.route.destination));
    bytes[24..40].copy_from_slice(&gid(address.route.source));
    bytes[44..48].copy_from_slice(&flow_and_hops.to_be_bytes());
    bytes[48] = address.traffic_class;
    // Reversible, and one path.
    bytes[49] = 0x80 | 1;
    bytes[50..52].copy_from_slice(&DEFAULT_PKEY.to_be_bytes());
    bytes[54] = EXACTLY << 6 | mtu.code();
    bytes[55] = EXACTLY << 6;
    bytes[56] = EXACTLY << 6 | life_time.code();
    let mut record = ib_path_rec_data { flags: PRIMARY, ..ib_path_rec_data::default() };
    for (word, bytes) in record.path_rec.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    record
}

/// The attributes that move a queue pair to a state.
pub(super) fn init_qp_attr(command: &Command<'_>) -> Result<(), Refusal> {
    command.check_room(size_of::<ib_uverbs_qp_attr>())?;
    let body: rdma_ucm_init_qp_attr = command.body()?;
    let (id, wanted) = (CommId(body.id), body.qp_state);
    let state = match wanted {
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::ReadyToReceive,
        IBV_QPS_RTS => QpState::ReadyToSend,
        _ => return Err(Refusal::invalid("qp_state is none of INIT, RTR and RTS")),
    };
    let attributes = command.call(|manager| {
        manager.with_id(command.file(), id, |engine, _| engine.attributes(id, state))
    })?;
    command.answer(body.response, &attributes_of(&attributes, wanted))
}

fn attributes_of(attributes: &Attributes, state: ibv_qp_state) -> ib_uverbs_qp_attr {
    let mut answer = ib_uverbs_qp_attr { qp_state: state, ..ib_uverbs_qp_attr::default() };
    let mut mask = IBV_QP_STATE;
    match attributes {
        Attributes::Init { access } => {
            mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
            (answer.qp_access_flags, answer.port_num) = (flags(access), PORT);
        }
        Attributes::InitDatagram { qkey } => {
            mask |= IBV_QP_QKEY | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
            (answer.qkey, answer.port_num) = (*qkey, PORT);
        }
        Attributes::ReadyToReceive { address, mtu, destination, psn, responder_resources } => {
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            answer.ah_attr = ah_attr(address);
            answer.path_mtu = mtu.code().into();
            answer.dest_qp_num = destination.get();
            answer.rq_psn = psn.value();
            if let Some(resources) = responder_resources {
                mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
                answer.max_dest_rd_atomic = *resources;
            }
        }
        Attributes::ReadyToReceiveDatagram => {}
        Attributes::ReadyToSend { psn, timeout, retries } => {
            mask |= IBV_QP_SQ_PSN;
            answer.sq_psn = psn.value();
            if let Some(timeout) = timeout {
                mask |= IBV_QP_TIMEOUT;
                answer.timeout = timeout.code();
            }
            if let Some(Retries { retry_count, rnr_retry_count, initiator_depth }) = retries {
                mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
                answer.retry_cnt = retry_count.get() as u8;
                answer.rnr_retry = rnr_retry_count.get() as u8;
                answer.max_rd_atomic = *initiator_depth;
            }
        }
    }
    answer.qp_attr_mask = mask;
    answer
}

fn flags(access: &Access) -> u32 {
    let flag = |flag, set| if set { flag } else { 0 };
    flag(IBV_ACCESS_REMOTE_WRITE, access.remote_write)
        | flag(IBV_ACCESS_REMOTE_READ, access.remote_read)
        | flag(IBV_ACCESS_REMOTE_ATOMIC, access.remote_atomic)
        | flag(IBV_ACCESS_FLUSH_GLOBAL, access.flush_global)
}

/// An address vector.
pub(super) fn ah_attr(address: &AddressVector) -> ib_uverbs_ah_attr {
    ib_uverbs_ah_attr {
        grh: ib_uverbs_global_route {
            dgid: gid(address.route.destination),
            flow_label: address.flow_label.get(),
            sgid_index: gids::index_of(address.route.gid_index.into()) as u8,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
            reserved: 0,
        },
        is_global: 1,
        port_num: PORT,
        ..ib_uverbs_ah_attr::default()
    }
}
