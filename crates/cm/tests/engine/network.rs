//! Engines that deliver their messages to each other at once, unless a test intercepts them.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use transom_cm::{
    Accept, Arrival, Config, Connect, Engine, Event, Handled, Happened, Host, Ports, Service,
    Transmit,
};
use transom_wire::cm::{Bits, CommId, Message, Qpn, RejectReason};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const PORT: u16 = 7174;

/// A host with one process.
pub(crate) struct End {
    pub(crate) address: IpAddr,
    pub(crate) engine: Engine,
    pub(crate) host: Ports,
    pub(crate) events: VecDeque<Event>,
}

/// Hosts on a network without faults.
pub(crate) struct Network {
    pub(crate) now: u64,
    pub(crate) ends: Vec<End>,
    /// All sent messages, with their senders.
    pub(crate) sent: Vec<(usize, Transmit)>,
    /// The outcomes of all arrived messages.
    pub(crate) handled: Vec<Handled>,
}

pub(crate) fn address(end: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + end as u8])
}

pub(crate) fn config(end: usize) -> Config {
    Config::new(7 + end as u8, 0x5054_00ff_fe00_0000 + end as u64, 11 + end as u128)
}

pub(crate) fn qpn(number: u32) -> Qpn {
    Bits::new(number).unwrap()
}

impl Network {
    pub(crate) fn new(ends: usize) -> Self {
        Self::with(ends, config)
    }

    pub(crate) fn with(ends: usize, config: impl Fn(usize) -> Config) -> Self {
        let v6 = |end| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1 + end as u16]);
        let end = |end| End {
            address: address(end),
            engine: Engine::new(config(end)),
            host: Ports::new([address(end), v6(end)]),
            events: VecDeque::new(),
        };
        let ends = (0..ends).map(end).collect();
        Self { now: 5 * SECOND, ends, sent: Vec::new(), handled: Vec::new() }
    }

    /// Two ends. End 1 listens.
    pub(crate) fn with_listener() -> Self {
        let mut network = Self::new(2);
        network.listen(1, Service::TCP, 10);
        network
    }

    /// The same, with a connection that end 0 asks for, when end 1 has the REQ. Returns the connection's ids.
    pub(crate) fn with_request() -> (Self, CommId, CommId) {
        let mut network = Self::with_listener();
        let active = network.connect(0, 1, Service::TCP, 1);
        let passive = network.requested(1);
        (network, active, passive)
    }

    /// The same, when end 0 has the REP.
    pub(crate) fn with_reply() -> (Self, CommId, CommId) {
        let (mut network, active, passive) = Self::with_request();
        network.accept(1, passive, 2);
        network.event(0);
        (network, active, passive)
    }

    /// The same, when both ends are connected, and no message has been sent since.
    pub(crate) fn with_connection() -> (Self, CommId, CommId) {
        let mut network = Self::with_listener();
        let (active, passive) = network.connected(1);
        (network, active, passive)
    }

    /// Takes the outgoing messages of an end, without delivering them.
    pub(crate) fn outgoing(&mut self, end: usize) -> Vec<Transmit> {
        let taken: Vec<_> = std::iter::from_fn(|| self.ends[end].engine.poll_transmit()).collect();
        self.sent.extend(taken.iter().map(|transmit| (end, transmit.clone())));
        taken
    }

    pub(crate) fn deliver(&mut self, transmit: &Transmit) -> Handled {
        let arrival = Arrival { source: transmit.source, destination: transmit.destination };
        self.deliver_bytes(arrival, &transmit.mad.write())
    }

    pub(crate) fn deliver_bytes(&mut self, arrival: Arrival, bytes: &[u8]) -> Handled {
        let to = self
            .ends
            .iter_mut()
            .find(|end| end.host.clone().route(arrival.destination, arrival.source).is_some());
        let to = to.expect("an end with this address");
        let handled = to.engine.handle(self.now, arrival, bytes, &mut to.host);
        while let Some(id) = to.engine.poll_displaced() {
            to.events.retain(|event| event.id != id);
        }
        self.handled.push(handled);
        handled
    }

    /// Delivers all messages, until nobody sends any more.
    pub(crate) fn run(&mut self) {
        self.run_but(|_| false);
    }

    /// Delivers all messages except the lost ones.
    pub(crate) fn run_but(&mut self, mut lost: impl FnMut(&Transmit) -> bool) {
        loop {
            let mut idle = true;
            for end in 0..self.ends.len() {
                for transmit in self.outgoing(end) {
                    idle = false;
                    if !lost(&transmit) {
                        self.deliver(&transmit);
                    }
                }
                let end = &mut self.ends[end];
                end.events.extend(std::iter::from_fn(|| end.engine.poll_event()));
            }
            if idle {
                break;
            }
        }
    }

    /// The outcomes of requests that had to wait at an end.
    pub(crate) fn answered(&mut self, end: usize) -> Vec<Handled> {
        let engine = &mut self.ends[end].engine;
        std::iter::from_fn(|| engine.poll_answered()).map(|it| it.handled).collect()
    }

    /// Goes to the next deadline. Returns how long that took.
    pub(crate) fn skip(&mut self) -> u64 {
        let next = self.ends.iter().filter_map(|end| end.engine.poll_timeout()).min();
        let next = next.expect("a deadline");
        let passed = next - self.now;
        self.now = next;
        for end in &mut self.ends {
            end.engine.handle_timeout(next);
        }
        passed
    }

    /// Lets this time pass, and delivers messages that are sent meanwhile.
    pub(crate) fn pass(&mut self, time: u64, mut lost: impl FnMut(&Transmit) -> bool) {
        let end = self.now + time;
        self.run_but(&mut lost);
        while self.ends.iter().filter_map(|end| end.engine.poll_timeout()).any(|at| at <= end) {
            self.skip();
            self.run_but(&mut lost);
        }
        self.now = end;
    }

    pub(crate) fn event(&mut self, end: usize) -> Event {
        self.run();
        self.ends[end].events.pop_front().expect("an event")
    }

    #[track_caller]
    pub(crate) fn no_events(&mut self) {
        self.run();
        for end in &self.ends {
            assert!(end.events.is_empty(), "{:?}", end.events);
        }
    }

    /// The names of the messages sent since the last look.
    pub(crate) fn said(&mut self) -> Vec<&'static str> {
        self.sent.drain(..).map(|(_, transmit)| transmit.mad.message.name()).collect()
    }

    // Calls of programs.

    pub(crate) fn listen(&mut self, end: usize, service: Service, backlog: i32) -> CommId {
        let id = self.bound(end, service);
        let End { engine, host, .. } = &mut self.ends[end];
        engine.listen(id, backlog, self.now, host).unwrap();
        id
    }

    /// An id that has the port, but does not listen yet.
    pub(crate) fn bound(&mut self, end: usize, service: Service) -> CommId {
        let End { engine, host, .. } = &mut self.ends[end];
        let id = engine.create(service).unwrap();
        engine.bind(id, SocketAddr::new([0, 0, 0, 0].into(), PORT), host).unwrap();
        id
    }

    /// An id at one end with a route to the other.
    pub(crate) fn resolved(&mut self, from: usize, to: usize, service: Service) -> CommId {
        self.resolved_to(from, SocketAddr::new(address(to), PORT), service)
    }

    pub(crate) fn resolved_to(&mut self, from: usize, to: SocketAddr, service: Service) -> CommId {
        let End { engine, host, address, events } = &mut self.ends[from];
        let id = engine.create(service).unwrap();
        engine.resolve_address(id, None, to, host).unwrap();
        let route = host.route(*address, to.ip()).unwrap();
        engine.address_resolved(id, Ok(route)).unwrap();
        engine.resolve_route(id, Ok(())).unwrap();
        let resolved = [Happened::AddressResolved, Happened::RouteResolved];
        events.extend(std::iter::from_fn(|| engine.poll_event()));
        let own = events.split_off(events.len() - 2);
        assert_eq!(own, resolved.map(|happened| Event { id, happened }));
        id
    }

    pub(crate) fn connect(
        &mut self,
        from: usize,
        to: usize,
        service: Service,
        number: u32,
    ) -> CommId {
        let id = self.resolved(from, to, service);
        self.ends[from].engine.connect(id, &request(number), self.now).unwrap();
        id
    }

    /// Fetches the request that waits at an end.
    #[track_caller]
    pub(crate) fn requested(&mut self, end: usize) -> CommId {
        let event = self.event(end);
        assert!(matches!(event.happened, Happened::ConnectRequest { .. }), "{event:?}");
        self.ends[end].engine.fetched(event.id).unwrap();
        event.id
    }

    pub(crate) fn accept(&mut self, end: usize, id: CommId, number: u32) {
        self.ends[end].engine.accept(id, &acceptance(number), self.now).unwrap();
    }

    /// Makes a connection between ends 0 and 1, by the listener at end 1. Returns its ids.
    pub(crate) fn connected(&mut self, number: u32) -> (CommId, CommId) {
        let active = self.connect(0, 1, Service::TCP, number);
        let passive = self.requested(1);
        self.accept(1, passive, number + 1);
        let event = self.event(0);
        assert!(matches!(event.happened, Happened::ConnectResponse { .. }), "{event:?}");
        self.ends[0].engine.establish(active).unwrap();
        assert_eq!(self.event(1), Event { id: passive, happened: Happened::Established });
        self.said();
        (active, passive)
    }

    pub(crate) fn destroy(&mut self, end: usize, id: CommId) {
        let End { engine, host, .. } = &mut self.ends[end];
        engine.destroy(id, self.now, host).unwrap();
    }

    pub(crate) fn remove_device(&mut self, end: usize) {
        let End { engine, host, .. } = &mut self.ends[end];
        engine.device_removed(self.now, host, false);
    }

    /// Destroys all ids, and checks that nothing is left.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        for end in 0..self.ends.len() {
            for id in self.ends[end].engine.ids().collect::<Vec<_>>() {
                if self.ends[end].engine.has(id) {
                    self.destroy(end, id);
                }
            }
        }
        self.run();
        while self.ends.iter().any(|end| end.engine.poll_timeout().is_some()) {
            self.skip();
            self.run();
        }
        for End { engine, host, .. } in &self.ends {
            assert!(engine.is_empty(), "{engine:#?}");
            assert!(host.is_empty(), "{host:?}");
        }
    }
}

pub(crate) fn request(number: u32) -> Connect<'static> {
    Connect {
        qpn: qpn(number),
        responder_resources: 4,
        initiator_depth: 2,
        retry_count: Bits::MAX,
        rnr_retry_count: Bits::low(6),
        private_data: b"please",
        ..Connect::default()
    }
}

pub(crate) fn acceptance(number: u32) -> Accept<'static> {
    Accept {
        qpn: qpn(number),
        responder_resources: 1,
        initiator_depth: 3,
        rnr_retry_count: Bits::low(5),
        private_data: b"gladly",
        ..Accept::default()
    }
}

pub(crate) fn disconnected(id: CommId, timed_out: bool) -> Event {
    Event { id, happened: Happened::Disconnected { timed_out } }
}

/// A test whether a message has this name.
pub(crate) fn is(name: &'static str) -> impl Fn(&Transmit) -> bool {
    move |transmit| transmit.mad.message.name() == name
}

pub(crate) fn message(transmits: &[Transmit]) -> &Message {
    let [transmit] = transmits else { panic!("{transmits:?}") };
    &transmit.mad.message
}

/// The reason of a REJECTED for this id.
#[track_caller]
pub(crate) fn reason(event: &Event, id: CommId) -> RejectReason {
    match &event.happened {
        Happened::Rejected { reason, .. } if event.id == id => *reason,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn unreachable(id: CommId) -> Event {
    Event { id, happened: Happened::Unreachable }
}
