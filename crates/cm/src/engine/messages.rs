//! Messages of peers.

use std::net::{IpAddr, SocketAddr};

use transom_wire::cm::message::Answered;
use transom_wire::cm::{
    Bits, CommId, Dreq, Ignored, IpHeader, Mad, Message, Rej, RejectReason, Rejected, Rep, Req,
    ServiceId, SidrReq, SidrStatus, Transport,
};

use super::{Engine, Entry, Handled, State};
use crate::attributes::{AddressVector, HOP_LIMIT};
use crate::connection::{Connection, ConnectionState, Outcome};
use crate::datagram::{Resolution, refusal};
use crate::event::{Happened, Offer};
use crate::host::Host;
use crate::nodes::Node;
use crate::options::Kind;
use crate::shared::{Arrival, Shared, gid};

/// A request that a listener takes.
struct Admitted {
    listener: CommId,
    /// Its source.
    from: IpAddr,
    /// The addresses in its header.
    source: SocketAddr,
    destination: SocketAddr,
    address: AddressVector,
}

/// The reason why no listener takes a request.
enum NotAdmitted {
    /// The listeners of the service do not take it (rules CM-21, CM-24).
    Refused,
    BacklogFull(CommId),
}

impl Engine {
    /// Handles the payload of a datagram for queue pair 1.
    pub fn handle(
        &mut self,
        now: u64,
        arrival: Arrival,
        bytes: &[u8],
        host: &mut impl Host,
    ) -> Handled {
        match Mad::parse(bytes) {
            Ok(mad) => self.on_message(now, arrival, mad, host),
            Err(Ignored::Impossible { transaction, local_id, reason }) => {
                let ids = (CommId(0), local_id);
                self.shared.refuse(arrival, transaction, ids, Rejected::Req, reason);
                Handled::Refused(reason)
            }
            Err(ignored) => Handled::Ignored(ignored),
        }
    }

    pub(super) fn on_message(
        &mut self,
        now: u64,
        arrival: Arrival,
        Mad { transaction, message }: Mad,
        host: &mut impl Host,
    ) -> Handled {
        match message {
            Message::Req(req) => self.on_req(now, arrival, transaction, &req, host),
            Message::SidrReq(request) => self.on_sidr_req(now, arrival, transaction, request, host),
            Message::Rep(rep) => self.on_rep(now, arrival, transaction, &rep),
            Message::Rej(rej) => self.on_rej(now, arrival, &rej),
            Message::Dreq(dreq) => self.on_dreq(arrival, transaction, &dreq),
            Message::Mra(mra) => {
                let known = if mra.answered == Answered::Req { CommId(0) } else { mra.local_id };
                self.on_answer(mra.remote_id, known, arrival, |connection, shared| {
                    connection.on_mra(&mra, now, shared)
                })
            }
            Message::Rtu(rtu) => {
                let (id, peer) = (rtu.remote_id, rtu.local_id);
                if self.known(id, peer, arrival).is_none() {
                    // Without an answer, the sender would wait for ever for a connection that does not exist (rule
                    // CM-49).
                    let reason = RejectReason::InvalidCommId;
                    self.shared.refuse(arrival, transaction, (id, peer), Rejected::Other, reason);
                    return Handled::Refused(reason);
                }
                self.on_answer(id, peer, arrival, |connection, shared| connection.on_rtu(shared))
            }
            Message::Drep(drep) => {
                self.on_answer(drep.remote_id, drep.local_id, arrival, |connection, shared| {
                    connection.on_drep(now, shared)
                })
            }
            Message::SidrRep(reply) => {
                let Some(State::Resolution(resolution)) =
                    self.ids.get_mut(&reply.request_id).map(|entry| &mut entry.state)
                else {
                    return Handled::Unknown;
                };
                if !arrival.is_by(resolution.address())
                    || !resolution.on_reply(&reply, &mut self.shared)
                {
                    return Handled::Unknown;
                }
                Handled::Taken(reply.request_id)
            }
        }
    }

    /// Refuses a connection request unexamined, for a reason of the host.
    pub fn refuse(&mut self, arrival: Arrival, bytes: &[u8], reason: RejectReason) {
        if let Ok(Mad { transaction, message: Message::Req(req) }) = Mad::parse(bytes) {
            let ids = (CommId(0), req.local_id);
            self.shared.refuse(arrival, transaction, ids, Rejected::Req, reason);
        }
    }

    /// The connection with the ids `id` at this end and `peer` at the other. Its own id may be gone.
    fn known(
        &mut self,
        id: CommId,
        peer: CommId,
        arrival: Arrival,
    ) -> Option<(&mut Connection, &mut Shared)> {
        let connection = match self.ids.get_mut(&id).map(|entry| &mut entry.state) {
            Some(State::Connection(connection)) => connection,
            Some(_) => return None,
            None => self.lingering.get_mut(&id)?,
        };
        is_with(connection, peer, arrival).then_some((connection, &mut self.shared))
    }

    fn on_answer(
        &mut self,
        id: CommId,
        peer: CommId,
        arrival: Arrival,
        taken: impl FnOnce(&mut Connection, &mut Shared) -> Outcome,
    ) -> Handled {
        let Some((connection, shared)) = self.known(id, peer, arrival) else {
            return Handled::Unknown;
        };
        let outcome = taken(connection, shared);
        self.forget_lingered(id);
        match outcome {
            Outcome::Taken => Handled::Taken(id),
            Outcome::Ignored => Handled::Unknown,
        }
    }

    // Requests.

    fn on_req(
        &mut self,
        now: u64,
        arrival: Arrival,
        transaction: u64,
        req: &Req,
        host: &mut impl Host,
    ) -> Handled {
        let node = Node { guid: req.ca_guid, address: arrival.source };
        let known = self.shared.nodes.connected(node, req.local_id, req.qpn);
        if let Some(known) = known
            && let Some((connection, shared)) = self.known(known, req.local_id, arrival)
            && connection.began_with(req)
        {
            connection.on_req_again(shared);
            return Handled::Duplicate(known);
        }
        let refuse = |engine: &mut Self, reason| {
            let ids = (CommId(0), req.local_id);
            engine.shared.refuse(arrival, transaction, ids, Rejected::Req, reason);
            Handled::Refused(reason)
        };
        if let Some(stale) = known {
            let refused = refuse(self, RejectReason::StaleConnection);
            self.disconnect_stale(stale, now, arrival);
            return refused;
        }
        let ways = (gid(arrival.source), gid(arrival.destination));
        let kind = match req.transport {
            Transport::Rc => Kind::Rc,
            Transport::Uc => Kind::Uc,
            Transport::Xrc => Kind::Xrc,
        };
        if self.listeners_of(req.service).is_empty() {
            let request = Mad { transaction, message: Message::Req(req.clone()) };
            return self.nobody_listens(now, req.service, arrival, request, host);
        }
        if ways != (req.primary.local_gid, req.primary.remote_gid) {
            return refuse(self, RejectReason::InvalidGid);
        }
        let (header, private_data) = header(&req.private_data);
        let class = (req.primary.traffic_class, req.primary.flow_label);
        let admitted = match self.admit(req.service, header, kind, class, arrival, host) {
            Ok(admitted) => admitted,
            Err(NotAdmitted::BacklogFull(listener)) => return Handled::BacklogFull(listener),
            Err(NotAdmitted::Refused) => return refuse(self, RejectReason::Consumer),
        };
        let offer = Offer {
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.flow_control,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            srq: req.srq,
            qpn: req.qpn,
            ece: req.ece,
        };
        let private_data = private_data.into();
        let listener = admitted.listener;
        let Some((id, entry)) = self.child(&admitted) else {
            return Handled::BacklogFull(listener);
        };
        let (psn, address) = (entry.psn, admitted.address);
        let connection =
            Connection::requested(id, transaction, req, address, psn, &mut self.shared);
        self.add(id, entry, State::Connection(Box::new(connection)));
        let happened = Happened::ConnectRequest { listener, offer: Some(offer), private_data };
        self.shared.happened(id, happened);
        Handled::Taken(id)
    }

    fn on_sidr_req(
        &mut self,
        now: u64,
        arrival: Arrival,
        transaction: u64,
        request: SidrReq,
        host: &mut impl Host,
    ) -> Handled {
        let key = (arrival.source, request.request_id);
        if let Some(known) = self.shared.asked.get(&key).copied()
            && let Some(State::Resolution(resolution)) =
                self.ids.get(&known).map(|entry| &entry.state)
            && resolution.on_again(transaction, &request, &mut self.shared)
        {
            return Handled::Duplicate(known);
        }
        if self.listeners_of(request.service).is_empty() {
            let service = request.service;
            let request = Mad { transaction, message: Message::SidrReq(request) };
            return self.nobody_listens(now, service, arrival, request, host);
        }
        let (header, private_data) = header(&request.private_data);
        let class = (0, Bits::default());
        let admitted = self.admit(request.service, header, Kind::Ud, class, arrival, host);
        let status = match admitted {
            Ok(admitted) => {
                let (listener, private_data) = (admitted.listener, private_data.into());
                let Some((id, entry)) = self.child(&admitted) else {
                    return Handled::BacklogFull(listener);
                };
                let address = admitted.address;
                let resolution =
                    Resolution::asked(id, address, transaction, request, &mut self.shared);
                self.add(id, entry, State::Resolution(Box::new(resolution)));
                let happened = Happened::ConnectRequest { listener, offer: None, private_data };
                self.shared.happened(id, happened);
                return Handled::Taken(id);
            }
            Err(NotAdmitted::BacklogFull(listener)) => return Handled::BacklogFull(listener),
            Err(NotAdmitted::Refused) => SidrStatus::Rejected,
        };
        self.shared.answer(arrival, transaction, refusal(&request, status));
        Handled::NotServed(status)
    }

    /// Refuses a request because nobody listens on its service (rule CM-21).
    pub(super) fn refuse_service(&mut self, arrival: Arrival, request: &Mad) -> Handled {
        let transaction = request.transaction;
        match &request.message {
            Message::Req(req) => {
                let (ids, reason) = ((CommId(0), req.local_id), RejectReason::InvalidServiceId);
                self.shared.refuse(arrival, transaction, ids, Rejected::Req, reason);
                Handled::Refused(reason)
            }
            Message::SidrReq(request) => {
                let status = SidrStatus::NotSupported;
                self.shared.answer(arrival, transaction, refusal(request, status));
                Handled::NotServed(status)
            }
            _ => Handled::Unknown,
        }
    }

    /// The listener for a request, if it takes it (rules CM-21, CM-22, CM-24).
    fn admit(
        &self,
        service: ServiceId,
        header: Option<IpHeader>,
        kind: Kind,
        (traffic_class, flow_label): (u8, Bits<20>),
        arrival: Arrival,
        host: &mut impl Host,
    ) -> Result<Admitted, NotAdmitted> {
        let listeners = self.listeners_of(service);
        let header = header.filter(|header| {
            let (source, destination) = (header.addresses.source(), header.addresses.destination());
            is_of_one_host(source) && is_of_one_host(destination)
        });
        let (Some(header), Some((_, port))) = (header, service.port()) else {
            return Err(NotAdmitted::Refused);
        };
        let source = SocketAddr::new(header.addresses.source(), header.source_port);
        let destination = SocketAddr::new(header.addresses.destination(), port);
        let from_here = host.is_here(arrival.source);
        let takes = |id: &&CommId| {
            let entry = self.ids.get(id);
            entry.is_some_and(|entry| entry.takes(kind, destination.ip(), from_here))
        };
        let listener = *listeners.iter().find(takes).ok_or(NotAdmitted::Refused)?;
        // Check first what costs nothing, so that a flood of requests does not keep the process busy.
        match self.ids.get(&listener).map(|entry| &entry.state) {
            Some(State::Listening(backlog)) if backlog.takes(arrival.source) => {}
            _ => return Err(NotAdmitted::BacklogFull(listener)),
        }
        // The route back begins at the address where the request has arrived.
        let route = host.route(arrival.destination, arrival.source).ok_or(NotAdmitted::Refused)?;
        let address = AddressVector { route, flow_label, traffic_class, hop_limit: HOP_LIMIT };
        Ok(Admitted { listener, from: arrival.source, source, destination, address })
    }

    /// A new id for a request. `None` if there is none left.
    fn child(&mut self, admitted: &Admitted) -> Option<(CommId, Entry)> {
        let id = self.new_id()?;
        let psn = self.shared.numbers.psn();
        let listener = self.ids.get(&admitted.listener)?;
        let mut entry = Entry::new(listener.service, psn);
        entry.source = Some(admitted.destination);
        entry.destination = Some(admitted.source);
        entry.waits_for = Some((admitted.listener, admitted.from));
        Some((id, entry))
    }

    /// Adds the new id, and puts it into its listener's backlog.
    fn add(&mut self, id: CommId, mut entry: Entry, state: State) {
        entry.state = state;
        if let Some((listener, from)) = entry.waits_for
            && let Some(State::Listening(backlog)) =
                self.ids.get_mut(&listener).map(|listener| &mut listener.state)
            && let Some(displaced) = backlog.add(from, id)
        {
            self.displace(displaced);
        }
        self.count_served(&entry);
        self.ids.insert(id, entry);
    }

    /// Drops a waiting request, as if there had been no room for it. Its sender will repeat it.
    fn displace(&mut self, id: CommId) {
        let Some(entry) = self.ids.remove(&id) else { return };
        self.uncount_served(&entry);
        match entry.state {
            State::Connection(mut connection) => connection.abandon(&mut self.shared),
            State::Resolution(mut resolution) => resolution.abandon(&mut self.shared),
            _ => {}
        }
        self.shared.events.retain(|event| event.id != id);
        self.displaced.push(id);
    }

    // Answers.

    fn on_rep(&mut self, now: u64, arrival: Arrival, transaction: u64, rep: &Rep) -> Handled {
        let id = rep.remote_id;
        if let Some((connection, shared)) = self.known(id, rep.local_id, arrival) {
            connection.on_rep_again(shared);
            return Handled::Duplicate(id);
        }
        let Some((connection, shared)) = self.known(id, CommId(0), arrival) else {
            return Handled::Unknown;
        };
        let node = Node { guid: rep.ca_guid, address: arrival.source };
        let stale = shared.nodes.connected(node, rep.local_id, connection.qpn_of(rep));
        // A copy of a refused REP is refused too, because its sender has ended that connection.
        if stale.is_some() || connection.has_refused(rep.local_id) {
            let (reason, ids) = (RejectReason::StaleConnection, (id, rep.local_id));
            connection.refuse(rep.local_id);
            shared.refuse(arrival, transaction, ids, Rejected::Rep, reason);
            if let Some(stale) = stale {
                self.disconnect_stale(stale, now, arrival);
            }
            return Handled::Refused(reason);
        }
        match connection.on_rep(rep, shared) {
            Outcome::Taken => Handled::Taken(id),
            Outcome::Ignored => Handled::Unknown,
        }
    }

    fn on_rej(&mut self, now: u64, arrival: Arrival, rej: &Rej) -> Handled {
        // A peer that has given up may not know this end's id of the connection (rule CM-27).
        let (id, peer) = match (rej.timed_out(), rej.rejected) {
            (Some(guid), _) => {
                let node = Node { guid, address: arrival.source };
                match self.shared.nodes.called(node, rej.local_id) {
                    Some(id) => (id, rej.local_id),
                    None => {
                        self.forget_early(arrival, rej);
                        return Handled::Unknown;
                    }
                }
            }
            (None, Rejected::Req) => (rej.remote_id, CommId(0)),
            // The REJ may have overtaken the REP. No later message would say that the REP is void.
            (None, Rejected::Other) if self.awaits_reply(rej.remote_id) => {
                (rej.remote_id, CommId(0))
            }
            (None, Rejected::Rep | Rejected::Other) => (rej.remote_id, rej.local_id),
        };
        self.on_answer(id, peer, arrival, |connection, shared| connection.on_rej(rej, now, shared))
    }

    fn awaits_reply(&self, id: CommId) -> bool {
        self.connection_state(id) == Some(ConnectionState::RequestSent)
    }

    fn on_dreq(&mut self, arrival: Arrival, transaction: u64, dreq: &Dreq) -> Handled {
        let (id, peer) = (dreq.remote_id, dreq.local_id);
        if self.known(id, peer, arrival).is_none() {
            self.shared.confirm_end(arrival, transaction, id, peer);
            return Handled::Unknown;
        }
        self.on_answer(id, peer, arrival, |connection, shared| {
            connection.on_dreq(dreq, transaction, shared)
        })
    }

    /// The peer has connected the same queue pair again, so its earlier connection has ended (rule CM-19).
    fn disconnect_stale(&mut self, id: CommId, now: u64, arrival: Arrival) {
        if let Some(State::Connection(connection)) =
            self.ids.get_mut(&id).map(|entry| &mut entry.state)
            && connection.connection_state() == ConnectionState::Established
            && connection.is_from(arrival)
        {
            connection.disconnect(now, &mut self.shared);
        }
    }
}

impl Entry {
    /// Whether it takes requests for this kind of queue pair at this address.
    fn takes(&self, kind: Kind, address: IpAddr, from_here: bool) -> bool {
        let Some(claim) = self.claim else { return false };
        self.service.kind() == kind && claim.takes(address, from_here)
    }
}

/// Whether a connection has the id `peer` at the other end, and that end has the address that the message came from.
/// The id is zero until it is known (rules CM-20, CM-45).
fn is_with(connection: &Connection, peer: CommId, arrival: Arrival) -> bool {
    connection.peer_id() == peer && connection.is_from(arrival)
}

/// The header of an IP service's request, and the private data after it.
fn header(private_data: &[u8]) -> (Option<IpHeader>, &[u8]) {
    match private_data.split_first_chunk() {
        Some((header, private_data)) => (IpHeader::read(header), private_data),
        None => (None, &[]),
    }
}

/// Whether an address can belong to one host (rule CM-24).
fn is_of_one_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_multicast() && !address.is_unspecified() && !broadcast
}
