//! The objects of all processes, each as a row. The numbers of objects are unique on the device: that of the process is
//! in their top byte.

use super::Numbered;
use super::rows::{Place, Row, Value};
use crate::devices;
use crate::failure::Result;
use std::collections::HashMap;
use transom_device::protection::{Kind as KeyKind, Snapshot, State};
use transom_device::qp::{QpState, QpSummary, Service, SharedQueue};
use transom_system::catalog::{Listed, Number, SharedKind};
use transom_system::port_counters;
use transom_system::registry::connections::Connections;
use transom_system::registry::{Process, Registry};
use transom_system::segment::{QP_SLOTS, Segment};
use transom_wire::cm::PortSpace;

/// What is shown one by one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    QueuePair,
    ConnectionId,
    CompletionQueue,
    Region,
    Domain,
    Context,
    SharedReceiveQueue,
    /// The kernel does not show its windows.
    Window,
    /// What a queue pair has counted.
    Counters,
}

impl Kind {
    /// By its name or the beginning of it, in the real command's order.
    pub(super) fn named(word: &str) -> Option<Self> {
        let names = [
            ("qp", Self::QueuePair),
            ("cm_id", Self::ConnectionId),
            ("cq", Self::CompletionQueue),
            ("mr", Self::Region),
            ("pd", Self::Domain),
            ("ctx", Self::Context),
            ("srq", Self::SharedReceiveQueue),
            ("mw", Self::Window),
        ];
        names.into_iter().find(|(name, _)| name.starts_with(word)).map(|(_, kind)| kind)
    }

    pub(super) fn is_of_port(self) -> bool {
        matches!(self, Self::QueuePair | Self::ConnectionId | Self::Counters)
    }

    /// What its objects can be chosen by.
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::QueuePair => &[
                "lqpn",
                "rqpn",
                "pid",
                "sq-psn",
                "rq-psn",
                "type",
                "path-mig-state",
                "state",
                "pdn",
            ],
            Self::ConnectionId => &[
                "lqpn", "qp-type", "state", "ps", "pid", "src-addr", "src-port", "dst-addr",
                "dst-port", "cm-idn",
            ],
            Self::CompletionQueue => &["users", "pid", "cqn", "ctxn"],
            Self::Region => &["rkey", "lkey", "mrlen", "pid", "mrn", "pdn"],
            Self::Domain => &["users", "pid", "pdn", "ctxn"],
            Self::Context => &["pid", "ctxn"],
            Self::SharedReceiveQueue => &["pid", "srqn", "type", "pdn", "cqn", "lqpn"],
            Self::Window => &["rkey", "mwlen", "type", "pid", "mwn", "pdn", "lqpn"],
            Self::Counters => &["cntn", "lqpn", "pid", "qp-type"],
        }
    }
}

/// Counters are not bound to kinds of queue pairs or processes: each queue pair has its own.
pub(super) fn mode((number, device): Numbered<'_>) -> Row {
    let off = Value::Text("qp auto off".into());
    Row::new((number, &device.name.to_string()), Place::Port, [("mode", off)])
}

/// All objects of a kind on a device.
pub(super) fn all(kind: Kind, (number, device): Numbered<'_>) -> Result<Vec<Row>> {
    let registry = devices::registry()?;
    let name = device.name.to_string();
    let processes = devices::running(registry).into_iter().filter(|it| it.device == number);
    let rows = processes.flat_map(|process| {
        let owner = Segment::of(&process).map(|segment| Owner { segment, process, name: &name });
        owner.map_or_else(Vec::new, |owner| owner.rows(kind, registry))
    });
    Ok(rows.collect())
}

/// A process, and what it shows.
struct Owner<'a> {
    process: Process,
    segment: Segment,
    name: &'a str,
}

impl Owner<'_> {
    fn rows(&self, kind: Kind, registry: &'static Registry) -> Vec<Row> {
        match kind {
            Kind::QueuePair => self.queue_pairs().map(|pair| self.queue_pair(pair)).collect(),
            Kind::ConnectionId => self.connection_ids(registry),
            Kind::CompletionQueue => self.completion_queues(),
            Kind::Region | Kind::Window => self.keys(kind),
            Kind::Domain => self.domains(),
            Kind::Context => self.contexts(),
            Kind::SharedReceiveQueue => self.shared_queues(),
            Kind::Counters => self.queue_pairs().map(|pair| self.counters(pair)).collect(),
        }
    }

    fn row(&self, place: Place, fields: Vec<Option<(&'static str, Value)>>) -> Row {
        Row::new((self.process.device, self.name), place, fields.into_iter().flatten())
    }

    /// The number of one of its objects on the device.
    fn number(&self, own: u32) -> Value {
        let slot = u64::from(self.process.announcer.slot);
        Value::Number(slot << 24 | u64::from(own & 0xff_ffff))
    }

    /// The context that something was made in.
    fn context(&self, own: Option<Number>) -> Option<(&'static str, Value)> {
        own.map(|own| ("ctxn", self.number(Number::bits(Some(own)))))
    }

    fn pid(&self) -> Option<(&'static str, Value)> {
        Some(("pid", Value::Number(self.process.pid.into())))
    }

    /// The name of the program, as long as the kernel has it.
    fn comm(&self) -> Option<(&'static str, Value)> {
        let comm = self.process.name.chars().take(15).collect();
        Some(("comm", Value::Text(comm)))
    }

    /// The queue pairs, each with its number and the place where it counts.
    fn queue_pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        let slot = u32::from(self.process.announcer.slot);
        let places = self.segment.process_traffic().places().min(QP_SLOTS as u32);
        (0..places).filter_map(move |place| {
            let index = self.segment.traffic(place).user()?;
            let summary = self.segment.qps().summary(index)?;
            Some(Pair { number: slot << 16 | u32::from(index), place, summary })
        })
    }

    fn queue_pair(&self, Pair { number, summary, .. }: Pair<'_>) -> Row {
        let (gate, peering) = (summary.gate(), summary.peering());
        let is_connected = matches!(gate.service, Service::Rc | Service::Uc);
        let has_peer = !matches!(gate.state, QpState::Reset | QpState::Init);
        let of_peer = |value: u32| Value::Number(if has_peer { value.into() } else { 0 });
        let place = if gate.state == QpState::Reset { Place::NoPort } else { Place::Port };
        let migrates = gate.service != Service::Ud;
        self.row(
            place,
            vec![
                Some(("lqpn", Value::Number(number.into()))),
                is_connected.then(|| ("rqpn", of_peer(peering.from.bits()))),
                Some(("type", Value::Text(type_of(gate.service).into()))),
                Some(("state", Value::Text(gate.state.name().into()))),
                is_connected.then(|| ("rq-psn", of_peer(peering.first.value()))),
                Some(("sq-psn", Value::Number(summary.first_sent().value().into()))),
                migrates.then(|| ("path-mig-state", Value::Text("MIGRATED".into()))),
                (gate.pd != 0).then(|| ("pdn", self.number(gate.pd))),
                self.pid(),
                self.comm(),
            ],
        )
    }

    fn counters(&self, Pair { number, place, summary }: Pair<'_>) -> Row {
        let qp_type = Value::Text(type_of(summary.gate().service).into());
        let mut fields = vec![
            Some(("cntn", self.number(place))),
            Some(("qp-type", qp_type)),
            self.pid(),
            self.comm(),
        ];
        let counts = port_counters::of_queue_pair(self.segment.traffic(place).get());
        fields.extend(counts.map(|(name, count)| Some((name, Value::Counter(count)))));
        fields.push(Some(("lqpn", Value::CountedFor(number))));
        self.row(Place::Port, fields)
    }

    fn completion_queues(&self) -> Vec<Row> {
        let mut users: HashMap<u32, u64> = HashMap::new();
        for Pair { summary, .. } in self.queue_pairs() {
            for queue in summary.completes_to() {
                *users.entry(queue).or_default() += 1;
            }
        }
        for (_, listed) in self.segment.catalog().all() {
            if let Listed::SharedReceiveQueue { completes_to, .. } = listed {
                *users.entry(Number::bits(completes_to)).or_default() += 1;
            }
        }
        let row = |(number, listed): (Number, Listed)| {
            let Listed::CompletionQueue { context, capacity } = listed else { return None };
            let number = Number::bits(Some(number));
            let users = users.get(&number).copied().unwrap_or_default();
            Some(self.row(
                Place::Device,
                vec![
                    Some(("cqn", self.number(number))),
                    Some(("cqe", Value::Number(capacity.into()))),
                    Some(("users", Value::Number(users))),
                    // No queue changes how it is moderated by itself.
                    Some(("adaptive-moderation", Value::Switch(false))),
                    self.context(context),
                    self.pid(),
                    self.comm(),
                ],
            ))
        };
        self.segment.catalog().all().filter_map(row).collect()
    }

    /// The regions or the windows.
    fn keys(&self, kind: Kind) -> Vec<Row> {
        let keys = self.segment.keys();
        let l_keys = self.segment.header().l_keys.load(std::sync::atomic::Ordering::Relaxed);
        let row = |(key, object): (transom_device::protection::Key, Snapshot)| {
            if object.state == State::Vacant || object.kind.is_region() != (kind == Kind::Region) {
                return None;
            }
            let own = keys.slot_of(key)?;
            if kind == Kind::Region {
                return Some(self.row(
                    Place::Device,
                    vec![
                        Some(("mrn", self.number(own))),
                        Some(("rkey", Value::Hex(key.0.into()))),
                        Some(("lkey", Value::Hex((key.0 ^ l_keys).into()))),
                        Some(("iova", Value::Hex(object.base))),
                        Some(("mrlen", Value::Number(object.length))),
                        Some(("pdn", self.number(object.pd))),
                        self.pid(),
                        self.comm(),
                    ],
                ));
            }
            let is_bound = object.state == State::Valid;
            let type_2 = object.kind != KeyKind::Window1;
            let name = match object.kind {
                KeyKind::Window2A => "2A",
                KeyKind::Window2B => "2B",
                _ => "1",
            };
            Some(self.row(
                Place::Device,
                vec![
                    Some(("mwn", self.number(own))),
                    Some(("type", Value::Text(name.into()))),
                    Some(("state", Value::Text(if is_bound { "BOUND" } else { "FREE" }.into()))),
                    Some(("rkey", Value::Hex(key.0.into()))),
                    is_bound.then_some(("iova", Value::Hex(object.base))),
                    is_bound.then_some(("mwlen", Value::Number(object.length))),
                    (is_bound && type_2).then(|| ("lqpn", Value::Number(object.qp.into()))),
                    Some(("pdn", self.number(object.pd))),
                    self.pid(),
                    self.comm(),
                ],
            ))
        };
        keys.seen(usize::MAX).filter_map(row).collect()
    }

    fn domains(&self) -> Vec<Row> {
        let mut users: HashMap<u32, u64> = HashMap::new();
        let of_keys = self.segment.keys().seen(usize::MAX).map(|(_, object)| object);
        let of_keys = of_keys.filter(|it| it.state != State::Vacant).map(|it| it.pd);
        let of_pairs = self.queue_pairs().map(|pair| pair.summary.gate().pd);
        let of_queues = self.segment.catalog().all().filter_map(|(_, listed)| match listed {
            Listed::SharedReceiveQueue { domain, .. } => Some(domain),
            Listed::Context | Listed::Domain { .. } | Listed::CompletionQueue { .. } => None,
        });
        for domain in of_keys.chain(of_pairs).chain(of_queues) {
            *users.entry(domain).or_default() += 1;
        }
        let row = |(_, listed): (Number, Listed)| {
            let Listed::Domain { number, context } = listed else { return None };
            let users = users.get(&number).copied().unwrap_or_default();
            Some(self.row(
                Place::Device,
                vec![
                    Some(("pdn", self.number(number))),
                    Some(("local_dma_lkey", Value::Hex(0))),
                    Some(("users", Value::Number(users))),
                    self.context(context),
                    self.pid(),
                    self.comm(),
                ],
            ))
        };
        self.segment.catalog().all().filter_map(row).collect()
    }

    fn contexts(&self) -> Vec<Row> {
        let all = self.segment.catalog().all().filter(|(_, it)| *it == Listed::Context);
        let fields = |own| vec![self.context(Some(own)), self.pid(), self.comm()];
        all.map(|(own, _)| self.row(Place::Device, fields(own))).collect()
    }

    fn shared_queues(&self) -> Vec<Row> {
        let slot = u32::from(self.process.announcer.slot);
        let row = |(_, listed): (Number, Listed)| {
            let Listed::SharedReceiveQueue { index, kind, domain, completes_to } = listed else {
                return None;
            };
            let number = slot << 16 | u32::from(index);
            let is_here =
                |pair: &Pair<'_>| pair.summary.shared_queue() == SharedQueue::Number(number);
            let mut pairs: Vec<_> =
                self.queue_pairs().filter(is_here).map(|it| it.number).collect();
            let kind = match kind {
                SharedKind::Basic => "BASIC",
                SharedKind::Xrc => "XRC",
                SharedKind::TagMatching => "TM",
            };
            pairs.sort_unstable();
            Some(self.row(
                Place::Device,
                vec![
                    Some(("srqn", Value::Number(number.into()))),
                    Some(("type", Value::Text(kind.into()))),
                    (!pairs.is_empty()).then_some(("lqpn", Value::Numbers(pairs))),
                    Some(("pdn", self.number(domain))),
                    completes_to.map(|cq| ("cqn", self.number(Number::bits(Some(cq))))),
                    self.pid(),
                    self.comm(),
                ],
            ))
        };
        self.segment.catalog().all().filter_map(row).collect()
    }

    /// Those with a port here, and the connections.
    fn connection_ids(&self, registry: &'static Registry) -> Vec<Row> {
        let table = Connections::look(registry).ok().flatten();
        let locked = table.as_ref().and_then(|table| table.lock().ok());
        let Some(mut locked) = locked else { return Vec::new() };
        let (ports, connections) = (locked.all_ports(), locked.all_connections());
        drop(locked);
        let me = self.process.announcer;
        let connections = connections.into_iter().filter(|(owner, _)| *owner == me);
        let stands = connections.map(|(_, it)| it).filter(|it| it.record.rejected.is_none());
        let stands: Vec<_> = stands.collect();
        let mut rows = Vec::new();
        for port in ports.iter().filter(|port| port.owner == me) {
            if stands.iter().any(|it| it.record.id == port.claim.id) {
                continue;
            }
            let state = if port.listens { "LISTEN" } else { "ADDR_BOUND" };
            let addresses = [Some(port.claim.address), None];
            rows.push(self.connection_id(
                port.claim.id.0,
                None,
                state,
                port.claim.space,
                addresses,
            ));
        }
        for connection in &stands {
            let record = &connection.record;
            let claim = ports.iter().find(|port| port.claim.id == record.id);
            let space = claim.map_or(PortSpace::Tcp, |port| port.claim.space);
            let addresses = [
                Some((record.source, connection.ports.0).into()),
                Some((record.destination, connection.ports.1).into()),
            ];
            let peer = record.peer_qpn.get();
            let mut pairs = self.queue_pairs().filter(|pair| {
                let is_ready = !matches!(pair.summary.gate().state, QpState::Reset | QpState::Init);
                is_ready && pair.summary.peering().from.bits() == peer
            });
            let pair = pairs.next().map(|pair| pair.number).filter(|_| pairs.next().is_none());
            rows.push(self.connection_id(record.id.0, pair, "CONNECT", space, addresses));
        }
        rows
    }

    fn connection_id(
        &self,
        id: u32,
        pair: Option<u32>,
        state: &str,
        space: PortSpace,
        [source, destination]: [Option<std::net::SocketAddr>; 2],
    ) -> Row {
        let (kind, space) = match space {
            PortSpace::Tcp => ("RC", "TCP"),
            PortSpace::Udp => ("UD", "UDP"),
            PortSpace::Ipoib => ("UD", "IPoIB"),
            PortSpace::Ib => ("RC", "IPoIB"),
        };
        // Who takes connections at any address is at no port, and who has none has no queue pair.
        let is_at_any = destination.is_none() && source.is_none_or(|it| it.ip().is_unspecified());
        self.row(
            if is_at_any { Place::NoPort } else { Place::Port },
            vec![
                Some(("cm-idn", Value::Number(id.into()))),
                pair.map(|number| ("lqpn", Value::Number(number.into()))),
                destination.map(|_| ("qp-type", Value::Text(kind.into()))),
                Some(("state", Value::Text(state.into()))),
                Some(("ps", Value::Text(space.into()))),
                self.pid(),
                self.comm(),
                source.map(|it| ("src-addr", Value::Address(it))),
                destination.map(|it| ("dst-addr", Value::Address(it))),
            ],
        )
    }
}

/// A queue pair.
struct Pair<'a> {
    number: u32,
    place: u32,
    summary: &'a QpSummary,
}

fn type_of(service: Service) -> &'static str {
    match service {
        Service::Rc => "RC",
        Service::Uc => "UC",
        Service::Ud => "UD",
        Service::XrcInitiator => "XRC_INI",
        Service::XrcTarget => "XRC_TGT",
    }
}
