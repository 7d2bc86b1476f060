//! The calls of programs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use transom_wire::cm::service::Addresses;
use transom_wire::cm::{
    Bits, CommId, Ece, IpHeader, Path, Qpn, RejectReason, Req, ServiceId, SidrReq, SidrStatus,
    TimeCode, Transport,
};
use transom_wire::packet::DEFAULT_PKEY;

use super::backlog::Backlog;
use super::{Accept, Connect, Engine, Entry, MAX_LINGERING, State};
use crate::attributes::{Access, AddressVector, Attributes, DEFAULT_QKEY, HOP_LIMIT, QpState};
use crate::connection::{Connection, ReplyParameters, path};
use crate::datagram::Resolution;
use crate::event::{Group, Happened};
use crate::host::{Claim, Host, Route};
use crate::options::{Kind, Options, Service};
use crate::refused::{Errno, Refused};
use crate::shared::padded;
use crate::timing::{LIFE_TIME, ack_timeout};

impl Engine {
    /// A new id.
    pub fn create(&mut self, service: Service) -> Result<CommId, Refused> {
        let id = self.new_id().ok_or(Refused::NoIds)?;
        let psn = self.shared.new_psn();
        self.ids.insert(id, Entry::new(service, psn));
        Ok(id)
    }

    // Options (rule CM-38).

    /// Sets the type of service.
    pub fn set_tos(&mut self, id: CommId, tos: u8) -> Result<(), Refused> {
        self.entry(id)?.options.tos = Some(tos);
        Ok(())
    }

    /// Lets other ids that say so too have the same port.
    pub fn set_reuse_address(&mut self, id: CommId, reuse: bool) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        let idle = matches!(entry.state, State::Idle) && entry.claim.is_none();
        if !idle && (!reuse || matches!(entry.state, State::Listening { .. })) {
            return Err(Refused::State);
        }
        entry.options.reuse_address = reuse;
        Ok(())
    }

    /// Makes an IPv6 wildcard one of IPv6 alone.
    pub fn set_v6_only(&mut self, id: CommId, only: bool) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Idle) {
            return Err(Refused::State);
        }
        entry.options.v6_only = only;
        Ok(())
    }

    /// Sets the ACK timeout of the connection's queue pair.
    pub fn set_ack_timeout(&mut self, id: CommId, timeout: TimeCode) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.service.kind(), Kind::Rc | Kind::Xrc) {
            return Err(Refused::Service);
        }
        entry.options.ack_timeout = Some(timeout);
        Ok(())
    }

    /// Sets what the adapter offers, or agrees to, beside (rule CM-40).
    pub fn set_ece(&mut self, id: CommId, ece: Ece) -> Result<(), Refused> {
        self.entry(id)?.ece = ece;
        Ok(())
    }

    // Addresses.

    /// Gives an id an address and a port; 0 for any.
    pub fn bind(
        &mut self,
        id: CommId,
        address: SocketAddr,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Idle) || entry.claim.is_some() {
            return Err(Refused::State);
        }
        entry.bind(id, address, host)
    }

    /// Begins to look for the way to a destination, from the address that the id is bound to, or else
    /// from `source`, or from any. The host finds it and says so by [`Engine::address_resolved`].
    pub fn resolve_address(
        &mut self,
        id: CommId,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Idle) {
            return Err(Refused::State);
        }
        let bound = entry.source.or(source);
        if bound.is_some_and(|source| source.is_ipv4() != destination.is_ipv4()) {
            return Err(Refused::Family);
        }
        if entry.claim.is_none() {
            let any = match destination {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            entry.bind(id, source.unwrap_or(SocketAddr::new(any, 0)), host)?;
        }
        entry.destination = Some(destination);
        entry.state = State::ResolvingAddress;
        Ok(())
    }

    /// The way to the destination was found, or why not. After an error another can be looked for.
    pub fn address_resolved(
        &mut self,
        id: CommId,
        found: Result<Route, Errno>,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::ResolvingAddress) {
            return Err(Refused::State);
        }
        let happened = match found {
            Ok(route) => {
                if let Some(source) = &mut entry.source {
                    source.set_ip(route.source);
                }
                entry.state = State::AddressResolved(route);
                Happened::AddressResolved
            }
            Err(errno) => {
                entry.state = State::Idle;
                Happened::AddressError(errno)
            }
        };
        self.shared.happened(id, happened);
        Ok(())
    }

    /// What a connection needs of the way was found, or why not.
    pub fn resolve_route(&mut self, id: CommId, found: Result<(), Errno>) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        let State::AddressResolved(route) = entry.state else { return Err(Refused::State) };
        let happened = match found {
            Ok(()) => {
                entry.state = State::RouteResolved(route);
                Happened::RouteResolved
            }
            Err(errno) => Happened::RouteError(errno),
        };
        self.shared.happened(id, happened);
        Ok(())
    }

    // The passive end.

    /// Lets an id listen; one that is not bound gets any port. `backlog`: how many requests may wait to be
    /// fetched (rule CM-22). Requests that were there first are taken now (rule CM-56).
    pub fn listen(
        &mut self,
        id: CommId,
        backlog: i32,
        now: u64,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let max = self.shared.config.max_backlog;
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Idle) {
            return Err(Refused::State);
        }
        let was_bound = entry.claim.is_some();
        if !was_bound {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
            entry.bind(id, any, host)?;
        }
        let Some(claim) = entry.claim else { return Err(Refused::State) };
        if let Err(refused) = host.listen(claim) {
            if !was_bound {
                entry.unbind(host);
            }
            return Err(refused);
        }
        let asked = u32::try_from(backlog).ok().filter(|asked| (1..=max).contains(asked));
        let backlog = asked.unwrap_or(max) as usize;
        entry.state = State::Listening(Backlog::new(backlog));
        let service = ServiceId::of(claim.space, claim.address.port());
        self.listeners.entry(service).or_default().push(id);
        self.admit_early(now, service, host);
        Ok(())
    }

    /// The program has fetched the CONNECT_REQUEST that brought this id: another may wait.
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

    /// Accepts. The queue pair of a connection is in RTS then (rule CM-03).
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
            _ => Err(Refused::State),
        }
    }

    /// Refuses: a request, or at the active end a reply.
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
            _ => Err(Refused::State),
        }
    }

    /// Data has come from the peer: it has what it needs (rule CM-47).
    pub fn notify(&mut self, id: CommId) -> Result<(), Refused> {
        self.connection(id, |connection, shared| connection.notify(shared))
    }

    // The active end.

    /// Asks for a connection, or for the queue pair of a datagram service.
    pub fn connect(&mut self, id: CommId, with: &Connect<'_>, now: u64) -> Result<(), Refused> {
        let shared = &mut self.shared;
        let entry = self.ids.get_mut(&id).ok_or(Refused::NoSuchId)?;
        let State::RouteResolved(route) = entry.state else { return Err(Refused::State) };
        let (Some(source), Some(destination)) = (entry.source, entry.destination) else {
            return Err(Refused::State);
        };
        let addresses = Addresses::new(source.ip(), destination.ip()).ok_or(Refused::Family)?;
        let header = IpHeader { source_port: source.port(), addresses }.write();
        let service = ServiceId::of(entry.service.space(), destination.port());
        let address = AddressVector {
            route,
            flow_label: flow_label(source.port(), destination.port()),
            traffic_class: entry.options.tos.unwrap_or(route.traffic_class),
            hop_limit: HOP_LIMIT,
        };
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

    /// The queue pair is up: tells the peer, and the connection stands.
    pub fn establish(&mut self, id: CommId) -> Result<(), Refused> {
        self.connection(id, |connection, shared| connection.establish(shared))
    }

    // Both ends.

    /// Ends a connection, or confirms that the peer has. The queue pair is in error then.
    pub fn disconnect(&mut self, id: CommId, now: u64) -> Result<(), Refused> {
        let entry = self.ids.get_mut(&id).ok_or(Refused::NoSuchId)?;
        match &mut entry.state {
            State::Connection(connection) => connection.disconnect(now, &mut self.shared),
            // There is nothing to be said of datagrams.
            State::Resolution(_) => {}
            _ => return Err(Refused::State),
        }
        Ok(())
    }

    /// The attributes for a state of the id's queue pair (rule CM-34).
    pub fn attributes(&self, id: CommId, state: QpState) -> Result<Attributes, Refused> {
        let entry = self.ids.get(&id).ok_or(Refused::NoSuchId)?;
        let datagrams = entry.service.kind() == Kind::Ud;
        match (&entry.state, state) {
            (State::Removed, _) => Err(Refused::State),
            (_, QpState::Init) if datagrams => Ok(Attributes::InitDatagram { qkey: DEFAULT_QKEY }),
            (_, QpState::ReadyToReceive) if datagrams => Ok(Attributes::ReadyToReceiveDatagram),
            (_, QpState::ReadyToSend) if datagrams => Ok(Attributes::ReadyToSend {
                psn: transom_wire::Psn::default(),
                timeout: None,
                retries: None,
            }),
            (State::Connection(connection), state) => {
                connection.attributes(state, self.shared.config.flush)
            }
            (_, QpState::Init) => Ok(Attributes::Init { access: Access::default() }),
            _ => Err(Refused::State),
        }
    }

    /// Joins a multicast group: the host has done so, or could not (rule CM-39).
    pub fn join(
        &mut self,
        id: CommId,
        address: IpAddr,
        send_only: bool,
        joined: Result<(), Errno>,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if entry.service.kind() != Kind::Ud {
            return Err(Refused::Service);
        }
        let bound = entry.source.is_some_and(|source| source.is_ipv4() == address.is_ipv4());
        if !bound || !address.is_multicast() || matches!(entry.state, State::Removed) {
            return Err(Refused::State);
        }
        let group = Group { address, send_only, qkey: DEFAULT_QKEY };
        let happened = match joined {
            Ok(()) => {
                entry.groups.push(group);
                Happened::MulticastJoin(group)
            }
            Err(errno) => Happened::MulticastError(group, errno),
        };
        self.shared.happened(id, happened);
        Ok(())
    }

    /// Leaves a group, of which no event comes any more.
    pub fn leave(&mut self, id: CommId, address: IpAddr) -> Result<Group, Refused> {
        let entry = self.entry(id)?;
        let place = entry.groups.iter().position(|group| group.address == address);
        let group = entry.groups.swap_remove(place.ok_or(Refused::NotAvailable)?);
        let of_group = |happened: &Happened| matches!(happened, Happened::MulticastJoin(other) if *other == group);
        self.shared.events.retain(|event| event.id != id || !of_group(&event.happened));
        Ok(group)
    }

    /// Ends an id, and says so to its peer (rule CM-28). Requests that wait at a listener are refused.
    /// Returns the groups that the host is to leave.
    pub fn destroy(
        &mut self,
        id: CommId,
        now: u64,
        host: &mut impl Host,
    ) -> Result<Vec<Group>, Refused> {
        self.fetched(id)?;
        let Some(entry) = self.ids.remove(&id) else { return Err(Refused::NoSuchId) };
        match entry.state {
            State::Connection(mut connection) => {
                connection.destroy(now, &mut self.shared);
                if connection.is_lingering() && self.lingering.len() < MAX_LINGERING {
                    self.lingering.insert(id, connection);
                } else {
                    self.shared.sleep(id);
                }
            }
            State::Resolution(mut resolution) => resolution.destroy(&mut self.shared),
            State::Listening(backlog) => {
                if let Some(claim) = entry.claim {
                    self.listens_no_more(ServiceId::of(claim.space, claim.address.port()), id);
                }
                for waiting in backlog.into_ids() {
                    self.destroy(waiting, now, host)?;
                }
            }
            _ => {}
        }
        if let Some(claim) = entry.claim {
            host.release(claim);
        }
        self.shared.events.retain(|event| event.id != id);
        Ok(entry.groups)
    }

    /// The device goes: every id hears of it, once, and does nothing more; peers are told what they would
    /// be if the ids were destroyed (rule CM-46).
    pub fn device_removed(&mut self, now: u64, host: &mut impl Host) {
        for (id, entry) in &mut self.ids {
            match &mut entry.state {
                State::Removed => continue,
                State::Connection(connection) => {
                    connection.destroy(now, &mut self.shared);
                    // Nobody is left to say it again.
                    connection.abandon(&mut self.shared);
                }
                State::Resolution(resolution) => resolution.destroy(&mut self.shared),
                _ => {}
            }
            entry.state = State::Removed;
            entry.unbind(host);
            self.shared.happened(*id, Happened::DeviceRemoval);
        }
        self.listeners.clear();
        self.early.clear();
        for (_, mut connection) in std::mem::take(&mut self.lingering) {
            connection.abandon(&mut self.shared);
        }
    }

    /// Whether the device of an id is gone, which hears of nothing else any more.
    pub fn is_removed(&self, id: CommId) -> bool {
        self.ids.get(&id).is_some_and(|entry| matches!(entry.state, State::Removed))
    }

    /// An address is that of another interface, or its interface has another hardware address: the ids
    /// that are bound to it hear of it (rule CM-55).
    pub fn address_changed(&mut self, address: IpAddr) {
        for (id, entry) in &self.ids {
            let has_it = entry.source.is_some_and(|source| source.ip() == address);
            if has_it && !matches!(entry.state, State::Removed) {
                self.shared.happened(*id, Happened::AddressChange);
            }
        }
    }

    fn listens_no_more(&mut self, service: ServiceId, id: CommId) {
        if let Some(ids) = self.listeners.get_mut(&service) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.listeners.remove(&service);
            }
        }
    }

    fn connection<T>(
        &mut self,
        id: CommId,
        call: impl FnOnce(&mut Connection, &mut crate::shared::Shared) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let entry = self.ids.get_mut(&id).ok_or(Refused::NoSuchId)?;
        match &mut entry.state {
            State::Connection(connection) => call(connection, &mut self.shared),
            _ => Err(Refused::State),
        }
    }
}

impl Entry {
    pub(super) fn new(service: Service, psn: transom_wire::Psn) -> Self {
        Self {
            service,
            options: Options::default(),
            psn,
            ece: Ece::default(),
            claim: None,
            source: None,
            destination: None,
            waits_for: None,
            groups: Vec::new(),
            state: State::Idle,
        }
    }

    fn bind(
        &mut self,
        id: CommId,
        mut address: SocketAddr,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let Options { v6_only, reuse_address: reuse, .. } = self.options;
        let mut claim = Claim { id, space: self.service.space(), address, v6_only, reuse };
        address.set_port(host.claim(claim)?);
        claim.address = address;
        (self.claim, self.source) = (Some(claim), Some(address));
        Ok(())
    }

    fn unbind(&mut self, host: &mut impl Host) {
        if let Some(claim) = self.claim.take() {
            host.release(claim);
        }
    }
}

impl Options {
    /// The packet life time that messages reckon with.
    fn life_time(&self) -> TimeCode {
        let set = self.ack_timeout.and_then(|timeout| timeout.code().checked_sub(1));
        set.and_then(TimeCode::new).unwrap_or(LIFE_TIME)
    }
}

/// The flow label of a connection, by which networks tell it from others.
fn flow_label(source: u16, destination: u16) -> Bits<20> {
    Bits::low(u32::from(source) * 31 + u32::from(destination))
}

/// Private data behind the header with the addresses.
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
