//! A connection manager that listens, connects and accepts, while messages come that are its own, its
//! peer's, or anybody's, with any bytes changed: it says nothing without end, keeps no more than its
//! backlogs allow, and nothing once its ids are gone.

use std::net::IpAddr;

use transom_cm::{Accept, Arrival, Config, Connect, Engine, Happened, Host, Ports, Service};
use transom_wire::cm::{Bits, CommId, MAD_BYTES, RejectReason};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const BACKLOG: i32 = 3;

/// One engine is both ends: what it says comes back to it.
struct Process {
    now: u64,
    engine: Engine,
    host: Ports,
    said: Vec<(Arrival, [u8; MAD_BYTES])>,
    ids: Vec<CommId>,
    accepted: usize,
}

impl Process {
    fn new() -> Self {
        let mut host = Ports::new([HERE]);
        let mut engine = Engine::new(Config::new(1, 2, 3));
        for service in [Service::TCP, Service::UDP] {
            let id = engine.create(service).unwrap();
            engine.bind(id, "0.0.0.0:7174".parse().unwrap(), &mut host).unwrap();
            engine.listen(id, BACKLOG, 0, &mut host).unwrap();
        }
        Self { now: 0, engine, host, said: Vec::new(), ids: Vec::new(), accepted: 0 }
    }

    fn connect(&mut self, service: Service) {
        let Self { engine, host, .. } = self;
        let id = engine.create(service).unwrap();
        engine.resolve_address(id, None, (HERE, 7174).into(), host).unwrap();
        let route = host.route(HERE, HERE).unwrap();
        engine.address_resolved(id, Ok(route)).unwrap();
        engine.resolve_route(id, Ok(())).unwrap();
        let with = Connect { qpn: Bits::low(id.0), private_data: &[7; 9], ..Connect::default() };
        engine.connect(id, &with, self.now).unwrap();
        self.ids.push(id);
    }

    /// Takes what has come out; programs hear of it.
    fn drain(&mut self) {
        let mut count = 0;
        while let Some(transmit) = self.engine.poll_transmit() {
            count += 1;
            let arrival = Arrival { source: transmit.source, destination: transmit.destination };
            self.said.push((arrival, transmit.mad.write()));
        }
        assert!(count < 100, "{count} messages at once");
        while self.engine.poll_answered().is_some() {}
        while let Some(id) = self.engine.poll_displaced() {
            assert!(!self.engine.has(id));
        }
        while let Some(event) = self.engine.poll_event() {
            assert!(self.engine.has(event.id));
            if matches!(event.happened, Happened::ConnectRequest { .. }) {
                self.ids.push(event.id);
            }
        }
    }

    fn program(&mut self, what: u8, id: CommId) {
        let (engine, now) = (&mut self.engine, self.now);
        // Programs do anything, and are refused what they may not.
        _ = match what % 6 {
            0 => engine.fetched(id),
            1 => engine.accept(id, &Accept { qpn: Bits::low(id.0), ..Accept::default() }, now),
            2 => engine.reject(id, RejectReason::Consumer, &[1], now),
            3 => engine.establish(id),
            4 => engine.disconnect(id, now),
            _ => engine.destroy(id, now, &mut self.host).map(drop),
        };
        self.accepted += usize::from(what.is_multiple_of(6));
    }
}

/// Takes what happens, in steps of four bytes.
pub fn connections(script: &[u8]) {
    let mut process = Process::new();
    for step in script.chunks(4).take(300) {
        let [what, which, at, change] = [0, 1, 2, 3].map(|at| step.get(at).copied().unwrap_or(0));
        match what % 8 {
            0 if process.ids.len() < 50 => process.connect(Service::TCP),
            1 if process.ids.len() < 50 => process.connect(Service::UDP),
            2 => {
                process.now = process.engine.poll_timeout().unwrap_or(process.now).max(process.now);
                process.engine.handle_timeout(process.now);
            }
            3 | 4 if !process.ids.is_empty() => {
                let id = process.ids[usize::from(which) % process.ids.len()];
                process.program(at, id);
            }
            _ if !process.said.is_empty() => {
                let last = process.said.len() - 1;
                let (mut arrival, mut bytes) =
                    process.said[last - usize::from(which) % (last + 1).min(64)];
                bytes[usize::from(at)] ^= change;
                if what & 0x80 != 0 {
                    arrival.source = THERE;
                }
                process.engine.handle(process.now, arrival, &bytes, &mut process.host);
            }
            _ => {}
        }
        process.drain();
    }
    // Two listeners; what programs have made or fetched; what waits.
    let most = 2 + 50 + process.accepted + 2 * BACKLOG as usize;
    assert!(process.engine.ids().count() <= most);
    for id in process.engine.ids().collect::<Vec<_>>() {
        if process.engine.has(id) {
            process.engine.destroy(id, process.now, &mut process.host).unwrap();
        }
    }
    while let Some(at) = process.engine.poll_timeout() {
        process.engine.handle_timeout(at);
        process.drain();
    }
    process.drain();
    assert!(process.engine.is_empty() && process.host.is_empty());
}
