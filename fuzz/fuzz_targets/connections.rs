//! A connection manager that listens, connects and accepts, while messages come that are its own, its
//! peer's, or anybody's, with any bytes changed: it says nothing without end, keeps no more than its
//! backlogs allow, and nothing once its ids are gone.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use transom_cm::{Accept, Arrival, Config, Connect, Engine, Happened, Host, Ports, Service};
use transom_wire::cm::{Bits, CommId, MAD_BYTES, RejectReason};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const BACKLOG: i32 = 3;

/// One engine is both ends: what it says comes back to it.
struct World {
    now: u64,
    engine: Engine,
    host: Ports,
    said: Vec<(Arrival, [u8; MAD_BYTES])>,
    ids: Vec<CommId>,
    accepted: usize,
}

impl World {
    fn new() -> Self {
        let mut host = Ports::new([HERE]);
        let mut engine = Engine::new(Config::new(1, 2, 3));
        for service in [Service::TCP, Service::UDP] {
            let id = engine.create(service).unwrap();
            engine.bind(id, "0.0.0.0:7174".parse().unwrap(), &mut host).unwrap();
            engine.listen(id, BACKLOG, &mut host).unwrap();
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
        self.accepted += usize::from(what % 6 == 0);
    }
}

fuzz_target!(|script: &[u8]| {
    let mut world = World::new();
    for step in script.chunks(4).take(300) {
        let [what, which, at, change] = [0, 1, 2, 3].map(|at| step.get(at).copied().unwrap_or(0));
        match what % 8 {
            0 if world.ids.len() < 50 => world.connect(Service::TCP),
            1 if world.ids.len() < 50 => world.connect(Service::UDP),
            2 => {
                world.now = world.engine.poll_timeout().unwrap_or(world.now).max(world.now);
                world.engine.handle_timeout(world.now);
            }
            3 | 4 if !world.ids.is_empty() => {
                let id = world.ids[usize::from(which) % world.ids.len()];
                world.program(at, id);
            }
            _ if !world.said.is_empty() => {
                let last = world.said.len() - 1;
                let (mut arrival, mut bytes) =
                    world.said[last - usize::from(which) % (last + 1).min(64)];
                bytes[usize::from(at)] ^= change;
                if what & 0x80 != 0 {
                    arrival.source = THERE;
                }
                world.engine.handle(world.now, arrival, &bytes, &mut world.host);
            }
            _ => {}
        }
        world.drain();
    }
    // Two listeners; what programs have made or fetched; what waits.
    let most = 2 + 50 + world.accepted + 2 * BACKLOG as usize;
    assert!(world.engine.ids().count() <= most);
    for id in world.engine.ids().collect::<Vec<_>>() {
        if world.engine.has(id) {
            world.engine.destroy(id, world.now, &mut world.host).unwrap();
        }
    }
    while let Some(at) = world.engine.poll_timeout() {
        world.engine.handle_timeout(at);
        world.drain();
    }
    world.drain();
    assert!(world.engine.is_empty() && world.host.is_empty());
});
