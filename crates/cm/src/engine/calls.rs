//! Calls of programs about connections and datagram services.

use std::net::{Ipv4Addr, SocketAddr};

use transom_wire::Psn;
use transom_wire::cm::service::Addresses;
use transom_wire::cm::{
    Bits, CommId, Ece, IpHeader, Path, Qpn, RejectReason, Req, ServiceId, SidrReq, SidrStatus,
    TimeCode, Transport,
};
use transom_wire::packet::DEFAULT_PKEY;

use super::backlog::Backlog;
use super::{Accept, Connect, Engine, Entry, State};
use crate::attributes::{Access, AddressVector, Attributes, DEFAULT_QKEY, HOP_LIMIT, QpState};
use crate::connection::{Connection, ReplyParameters, path};
use crate::datagram::Resolution;
use crate::host::{Host, Route};
use crate::options::{Kind, Options};
use crate::refused::Refused;
use crate::shared::{Shared, padded};
use crate::timing::{LIFE_TIME, ack_timeout};

impl Engine {
    // The passive end.

    /// Makes an id listen. An unbound id gets any free port. `backlog` is the number of requests that may wait for the
    /// program (rule CM-22). Requests that came earlier are taken now (rule CM-56).
    pub fn listen(
        &mut self,
        id: CommId,
        backlog: i32,
        now: u64,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let backlog = self.waiting_at_most(backlog);
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Idle) {
            return Err(entry.state.not_now("an id listens once, and instead of connecting"));
        }
        let was_bound = entry.claim.is_some();
        if !was_bound {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
            entry.bind(id, any, host)?;
        }
        let Some(claim) = entry.claim else {
            return Err(entry.state.not_now("rdma_listen takes an id that has a port"));
        };
        if let Err(refused) = host.listen(claim) {
            if !was_bound {
                entry.unbind(host);
            }
            return Err(refused);
        }
        entry.state = State::Listening(Backlog::new(backlog));
        let service = ServiceId::of(claim.space, claim.address.port());
        self.listeners.entry(service).or_default().push(id);
        self.admit_early(now, service, host);
        Ok(())
    }

    /// The number of requests that may wait at a listener whose program asks for this backlog.
    pub(super) fn waiting_at_most(&self, asked: i32) -> usize {
        let max = self.shared.config.max_backlog;
        let asked = u32::try_from(asked).ok().filter(|asked| (1..=max).contains(asked));
        asked.unwrap_or(max) as usize
    }

    /// The program has fetched the CONNECT_REQUEST of this id, so another request may wait.
    pub fn fetched(&mut self, id: CommId) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if let Some((listener, from)) = entry.waits_for.take()
            && let Some(State::Listening(backlog)) =
                self.ids.get_mut(&listener).map(|listener| &mut listener.state)
        {
            backlog.remove(from, id);
        }
        Ok(())
    }

    /// Accepts. The queue pair of a connection must be in RTS before (rule CM-03).
    pub fn accept(&mut self, id: CommId, with: &Accept<'_>, now: u64) -> Result<(), Refused> {
        let entry = self.ids.get_mut(&id).ok_or(Refused::NoSuchId)?;
        match &mut entry.state {
            State::Connection(connection) => {
                let parameters = ReplyParameters {
                    qpn: with.qpn,
                    srq: with.srq,
                    responder_resources: with.responder_resources,
                    initiator_depth: with.initiator_depth,
                    flow_control: with.flow_control,
                    rnr_retry_count: with.rnr_retry_count,
                    ece: entry.ece,
                    private_data: with.private_data,
                };
                connection.accept(&parameters, now, &mut self.shared)
            }
            State::Resolution(resolution) => {
                let qp = (with.qpn, with.qkey.unwrap_or(DEFAULT_QKEY));
                let (valid, ece) = (SidrStatus::Valid, entry.ece);
                resolution.answer(valid, qp, ece, with.private_data, &mut self.shared)
            }
            state => Err(state.not_now("rdma_accept takes the id of a CONNECT_REQUEST")),
        }
    }

    /// Refuses a request, or a reply at the active end.
    pub fn reject(
        &mut self,
        id: CommId,
        reason: RejectReason,
        private_data: &[u8],
        now: u64,
    ) -> Result<(), Refused> {
        let entry = self.ids.get_mut(&id).ok_or(Refused::NoSuchId)?;
        match &mut entry.state {
            State::Connection(connection) => {
                connection.reject(reason, private_data, now, &mut self.shared)
            }
            State::Resolution(resolution) => {
                let (status, none) = (SidrStatus::Rejected, (Qpn::default(), 0));
                resolution.answer(status, none, Ece::default(), private_data, &mut self.shared)
            }
            state => Err(state.not_now("rdma_reject takes the id of a CONNECT_REQUEST")),
        }
    }

    /// Data has come from the peer, so the peer has received the reply (rule CM-47).
    pub fn notify(&mut self, id: CommId) -> Result<(), Refused> {
        self.connection(id, |connection, shared| connection.notify(shared))
    }

    // The active end.

    /// Asks for a connection, or for the queue pair of a datagram service.
    pub fn connect(&mut self, id: CommId, with: &Connect<'_>, now: u64) -> Result<(), Refused> {
        let shared = &mut self.shared;
        let entry = self.ids.get_mut(&id).ok_or(Refused::NoSuchId)?;
        let takes = "rdma_connect comes after rdma_resolve_addr and rdma_resolve_route, once each";
        let State::RouteResolved(route) = entry.state else {
            return Err(entry.state.not_now(takes));
        };
        let (Some(source), Some(destination)) = (entry.source, entry.destination) else {
            return Err(entry.state.not_now(takes));
        };
        let addresses = Addresses::new(source.ip(), destination.ip()).ok_or(Refused::Family)?;
        let header = IpHeader { source_port: source.port(), addresses }.write();
        let service = ServiceId::of(entry.service.space(), destination.port());
        let address = entry.way(route);
        let transport = match entry.service.kind() {
            Kind::Rc => Transport::Rc,
            Kind::Uc => Transport::Uc,
            Kind::Xrc => Transport::Xrc,
            Kind::Ud => {
                let private_data =
                    behind::<_, { SidrReq::PRIVATE - 36 }>(header, with.private_data)?;
                let request = SidrReq { request_id: id, pkey: DEFAULT_PKEY, service, private_data };
                let resolution = Resolution::ask(id, address, request, now, shared);
                entry.state = State::Resolution(Box::new(resolution));
                return Ok(());
            }
        };
        let life_time = entry.options.life_time();
        let on_wire = ack_timeout(shared.config.ack_delay, life_time);
        let timing = shared.config.timing;
        let req = Req {
            local_id: id,
            ece: entry.ece,
            service,
            ca_guid: shared.config.node_guid,
            qkey: 0,
            qpn: with.qpn,
            responder_resources: with.responder_resources,
            eecn: Bits::default(),
            initiator_depth: with.initiator_depth,
            remote_eecn: Bits::default(),
            remote_response_timeout: timing.response,
            transport,
            flow_control: with.flow_control,
            starting_psn: entry.psn,
            local_response_timeout: timing.response,
            retry_count: with.retry_count,
            pkey: DEFAULT_PKEY,
            mtu: route.mtu,
            rdc_exists: false,
            rnr_retry_count: with.rnr_retry_count,
            max_cm_retries: timing.retries,
            srq: with.srq,
            primary: path(&address, on_wire),
            alternate: Path::ABSENT,
            private_data: behind::<_, { Req::PRIVATE - 36 }>(header, with.private_data)?,
        };
        let connection = Connection::request(id, req, address, life_time, now, shared);
        entry.state = State::Connection(Box::new(connection));
        Ok(())
    }

    /// The queue pair is ready. This confirms the reply to the peer, and the connection is established.
    pub fn establish(&mut self, id: CommId) -> Result<(), Refused> {
        self.connection(id, |connection, shared| connection.establish(shared))
    }

    // Both ends.

    /// Ends a connection, or confirms that the peer has ended it. The queue pair must be in error before.
    pub fn disconnect(&mut self, id: CommId, now: u64) -> Result<(), Refused> {
        let entry = self.ids.get_mut(&id).ok_or(Refused::NoSuchId)?;
        match &mut entry.state {
            State::Connection(connection) => connection.disconnect(now, &mut self.shared),
            // A datagram service has no connection to end.
            State::Resolution(_) => {}
            state => return Err(state.not_now("rdma_disconnect takes an id that was connected")),
        }
        Ok(())
    }

    /// The attributes for a state of the id's queue pair (rule CM-34).
    pub fn attributes(&self, id: CommId, state: QpState) -> Result<Attributes, Refused> {
        let entry = self.ids.get(&id).ok_or(Refused::NoSuchId)?;
        let datagrams = entry.service.kind() == Kind::Ud;
        match (&entry.state, state) {
            (State::Removed, _) => Err(Refused::Removed),
            (_, QpState::Init) if datagrams => Ok(Attributes::InitDatagram { qkey: DEFAULT_QKEY }),
            (_, QpState::ReadyToReceive) if datagrams => Ok(Attributes::ReadyToReceiveDatagram),
            (_, QpState::ReadyToSend) if datagrams => {
                Ok(Attributes::ReadyToSend { psn: Psn::default(), timeout: None, retries: None })
            }
            (State::Connection(connection), state) => {
                let mut attributes = connection.attributes(state, self.shared.config.flush)?;
                // What the program has set counts at each end, whatever the messages have agreed on (rule CM-38).
                if let Attributes::ReadyToSend { timeout: Some(timeout), .. } = &mut attributes {
                    *timeout = entry.options.ack_timeout.unwrap_or(*timeout);
                }
                Ok(attributes)
            }
            (_, QpState::Init) => Ok(Attributes::Init { access: Access::default() }),
            (state, _) => Err(state.not_now("RTR and RTS need the peer's answer or request")),
        }
    }

    fn connection<T>(
        &mut self,
        id: CommId,
        call: impl FnOnce(&mut Connection, &mut Shared) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let entry = self.ids.get_mut(&id).ok_or(Refused::NoSuchId)?;
        match &mut entry.state {
            State::Connection(connection) => call(connection, &mut self.shared),
            state => Err(state.not_now("the call takes an id whose connection is being made")),
        }
    }
}

impl Entry {
    /// The address vector of a route that was found for it.
    pub(super) fn way(&self, route: Route) -> AddressVector {
        let port = |of: Option<SocketAddr>| of.map_or(0, |it| it.port());
        AddressVector {
            route,
            flow_label: flow_label(port(self.source), port(self.destination)),
            traffic_class: self.options.tos.unwrap_or(route.traffic_class),
            hop_limit: HOP_LIMIT,
        }
    }
}

impl Options {
    /// The packet life time for the timeouts in messages.
    pub(super) fn life_time(&self) -> TimeCode {
        let set = self.ack_timeout.and_then(|timeout| timeout.code().checked_sub(1));
        set.and_then(TimeCode::new).unwrap_or(LIFE_TIME)
    }
}

/// The flow label of a connection. Networks use it to distinguish flows.
fn flow_label(source: u16, destination: u16) -> Bits<20> {
    Bits::low(u32::from(source) * 31 + u32::from(destination))
}

/// The header with the addresses, and the private data after it.
fn behind<const ALL: usize, const ROOM: usize>(
    header: [u8; IpHeader::BYTES],
    private_data: &[u8],
) -> Result<[u8; ALL], Refused> {
    let private_data: [u8; ROOM] = padded(private_data)?;
    let mut bytes = [0; ALL];
    bytes[..IpHeader::BYTES].copy_from_slice(&header);
    bytes[IpHeader::BYTES..].copy_from_slice(&private_data);
    Ok(bytes)
}
