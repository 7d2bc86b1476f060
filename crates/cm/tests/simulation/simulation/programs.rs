//! The calls and events of the programs of a process.

use std::net::SocketAddr;

use transom_cm::{Accept, Connect, ConnectionState, Event, Happened, Host, Record, Service};
use transom_wire::cm::{Bits, CommId, Qpn, RejectReason};

use super::{PROCESSES, Process, Simulation, address, host_of, port};
use crate::model::{Name, Step};

/// A scheduled action of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Connect,
    ConnectTo(usize),
    Listen(CommId),
    Answer(CommId),
    GoOn(CommId),
    Notify(CommId),
    Disconnect(CommId),
    Destroy(CommId),
    Die,
}

/// An id's name in private data.
fn tag((process, life, id): Name) -> Vec<u8> {
    [&[process as u8][..], &life.to_be_bytes(), &id.0.to_be_bytes()].concat()
}

fn name_of(private_data: &[u8]) -> Name {
    let word = |at: usize| u32::from_be_bytes(private_data[at..at + 4].try_into().unwrap());
    (private_data[0].into(), word(1), CommId(word(5)))
}

/// The length of an event's private data (rule CM-33).
fn room_of(happened: &Happened) -> Option<usize> {
    match happened {
        Happened::ConnectRequest { offer: Some(_), .. } => Some(56),
        Happened::ConnectRequest { offer: None, .. } => Some(180),
        Happened::ConnectResponse { .. } => Some(196),
        Happened::Rejected { .. } => Some(148),
        Happened::Resolved { .. } => Some(136),
        _ => None,
    }
}

impl Simulation {
    pub(super) fn hear(&mut self, process: usize, Event { id, happened }: Event) {
        let name = self.name(process, id);
        self.say(|| format!("{process} {id:x?} hears {happened:?}"));
        let private = happened.private_data();
        assert!(room_of(&happened).is_none_or(|room| private.len() == room), "{happened:?}");
        let peer = private.first().is_some_and(|first| *first != 0xff).then(|| name_of(private));
        if let Happened::ConnectRequest { offer, private_data, .. } = &happened {
            self.model.hears_of_request(name, name_of(private_data), offer.as_ref());
            self.check_backlog(process, offer.is_none());
            self.act(process, Action::Answer(id));
            return;
        }
        if !matches!(happened, Happened::AddressResolved | Happened::RouteResolved) {
            self.model.hears(name, &happened, peer);
        }
        match happened {
            Happened::ConnectResponse { .. } => self.act(process, Action::GoOn(id)),
            Happened::Established => {
                self.counts.established += 1;
                self.after(process, id, [200, 200]);
            }
            Happened::Resolved { .. } => {
                self.counts.resolved += 1;
                self.after(process, id, [0, 800]);
            }
            Happened::Rejected { .. } | Happened::NotServed { .. } => {
                self.counts.rejected += 1;
                self.after(process, id, [100, 800]);
            }
            Happened::Unreachable => {
                self.counts.unreachable += 1;
                self.check_timeout(name);
                self.after(process, id, [0, 800]);
            }
            Happened::Disconnected { timed_out } => {
                self.counts.disconnected += 1;
                self.counts.timed_out += u64::from(timed_out);
                self.after(process, id, [600, 350]);
            }
            _ => {}
        }
    }

    /// Disconnects or destroys, with these chances in 1000.
    fn after(&mut self, process: usize, id: CommId, [disconnect, destroy]: [u32; 2]) {
        if self.random.chance(disconnect) {
            self.act(process, Action::Disconnect(id));
        }
        if self.random.chance(destroy) {
            self.act(process, Action::Destroy(id));
        }
    }

    pub(super) fn carry_out(&mut self, process: usize, action: Action) {
        self.say(|| format!("{process} {action:x?}"));
        let now = self.now;
        match action {
            Action::Connect => {
                let peer = self.random.below(PROCESSES as u64) as usize;
                self.connect(process, peer);
            }
            Action::ConnectTo(peer) => self.connect(process, peer),
            Action::Listen(id) => {
                let host = &mut self.hosts[host_of(process)];
                self.processes[process].engine.listen(id, 0, now, host).unwrap();
            }
            Action::Answer(id) => self.answer(process, id),
            Action::GoOn(id) => {
                let name = self.name(process, id);
                if self.model.step(name) != Some(Step::Answered)
                    || !self.processes[process].engine.has(id)
                {
                    return;
                }
                let engine = &mut self.processes[process].engine;
                if self.random.chance(50) {
                    engine.reject(id, RejectReason::Consumer, &[0xff], now).unwrap();
                    self.model.refuses(name);
                } else {
                    engine.establish(id).unwrap();
                    self.model.is_up(name);
                    self.after(process, id, [200, 200]);
                }
            }
            Action::Notify(id) => {
                // Data has come, so the peer is ready.
                if self.peer_is_up(process, id) {
                    _ = self.processes[process].engine.notify(id);
                }
            }
            Action::Disconnect(id) => _ = self.processes[process].engine.disconnect(id, now),
            Action::Destroy(id) => self.destroy(process, id),
            Action::Die => self.die(process),
        }
        self.drain(process);
    }

    /// Whether the peer's queue pair is ready and sends to this end's.
    fn peer_is_up(&self, process: usize, id: CommId) -> bool {
        let Some(record) = self.processes[process].engine.record(id) else { return false };
        let host = self.host_at(record.destination);
        let Some(peer) = self.process_of(host, record.peer_id) else { return false };
        let engine = &self.processes[peer].engine;
        engine.connection_state(record.peer_id) == Some(ConnectionState::Established)
            && engine.record(record.peer_id).is_some_and(|record| record.peer_id == id)
    }

    fn qpn(&mut self, process: usize) -> Qpn {
        let Process { slot, next_qpn, .. } = &mut self.processes[process];
        *next_qpn += 1;
        Bits::low(u32::from(*slot) << 16 | *next_qpn)
    }

    fn connect(&mut self, process: usize, peer: usize) {
        let datagram = self.random.chance(200);
        let service = if datagram { Service::UDP } else { Service::TCP };
        // Sometimes nobody listens there.
        let to_port = if self.random.chance(50) { 7_900 } else { port(peer) };
        let (from, to) = (address(host_of(process)), address(host_of(peer)));
        let qpn = self.qpn(process);
        let reads = (self.random.below(8) as u8, self.random.below(8) as u8);
        let host = &mut self.hosts[host_of(process)];
        let engine = &mut self.processes[process].engine;
        let id = engine.create(service).unwrap();
        engine.resolve_address(id, None, SocketAddr::new(to, to_port), host).unwrap();
        let route = host.route(from, to).unwrap();
        engine.address_resolved(id, Ok(route)).unwrap();
        engine.resolve_route(id, Ok(())).unwrap();
        let name = self.name(process, id);
        let private_data = tag(name);
        let with = Connect {
            qpn,
            responder_resources: reads.0,
            initiator_depth: reads.1,
            private_data: &private_data,
            ..Connect::default()
        };
        self.processes[process].engine.connect(id, &with, self.now).unwrap();
        self.model.connects(name, datagram, qpn, reads);
        if self.random.chance(30) {
            self.act(process, Action::Destroy(id));
        }
    }

    fn answer(&mut self, process: usize, id: CommId) {
        let name = self.name(process, id);
        if !self.processes[process].engine.has(id) {
            return;
        }
        self.processes[process].engine.fetched(id).unwrap();
        self.model.fetches(name);
        // The request may be void already.
        if self.model.step(name) != Some(Step::Asked) {
            self.after(process, id, [0, 800]);
            return;
        }
        match self.random.below(10) {
            0 => {
                let engine = &mut self.processes[process].engine;
                engine.reject(id, RejectReason::Consumer, &[0xff], self.now).unwrap();
                self.model.refuses(name);
                self.after(process, id, [0, 900]);
            }
            1 => self.destroy(process, id),
            _ => {
                let qpn = self.qpn(process);
                let reads = (self.random.below(8) as u8, self.random.below(8) as u8);
                let private_data = tag(name);
                let with = Accept {
                    qpn,
                    responder_resources: reads.0,
                    initiator_depth: reads.1,
                    private_data: &private_data,
                    ..Accept::default()
                };
                self.processes[process].engine.accept(id, &with, self.now).unwrap();
                self.model.accepts(name, qpn, reads);
                if self.random.chance(200) {
                    self.act(process, Action::Notify(id));
                }
                self.after(process, id, [50, 100]);
            }
        }
    }

    pub(super) fn destroy(&mut self, process: usize, id: CommId) {
        let engine = &mut self.processes[process].engine;
        if !engine.has(id) {
            return;
        }
        let mut gone: Vec<_> = engine.ids().collect();
        engine.destroy(id, self.now, &mut self.hosts[host_of(process)]).unwrap();
        gone.retain(|id| !engine.has(*id));
        for id in gone {
            self.model.destroys(self.name(process, id));
        }
        self.drain(process);
    }

    /// A process dies. Another process of its host may notice, and sends its final messages.
    fn die(&mut self, process: usize) {
        self.counts.deaths += 1;
        let noticed = self.random.chance(600);
        let engine = &self.processes[process].engine;
        let records: Vec<Record> = engine.ids().filter_map(|id| engine.record(id)).collect();
        // Only the process knew of these.
        self.abandoned.extend(engine.lingering().map(|id| (host_of(process), id)));
        let waiting = engine
            .ids()
            .filter(|id| engine.connection_state(*id) == Some(ConnectionState::DisconnectSent));
        self.abandoned.extend(waiting.map(|id| (host_of(process), id)));
        for id in engine.ids().collect::<Vec<_>>() {
            self.model.destroys(self.name(process, id));
        }
        let slot = self.processes[process].slot;
        let engine = self.engine(process, slot);
        let next_qpn = self.random.one_of(&[1, 1, 1_000 * (self.processes[process].life + 2)]);
        let life = self.processes[process].life + 1;
        self.processes[process] = Process { engine, slot, life, next_qpn };
        self.hosts[host_of(process)].release_slot(slot);
        self.listen(process);
        for record in records {
            // The message is sent only once.
            if !noticed || !self.send(&record.final_message()) {
                self.abandoned.insert((host_of(process), record.id));
            }
        }
        for _ in 0..self.random.below(4) {
            self.act(process, Action::Connect);
        }
    }
}
