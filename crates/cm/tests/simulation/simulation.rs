//! Hosts and their processes, in virtual time.

mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use transom_cm::{
    Arrival, Attributes, Config, ConnectionState, Engine, Handled, Ports, QpState, Service, Timing,
    Transmit,
};
use transom_simulation::faults::{FaultInjector, Faults};
use transom_simulation::network::Network;
use transom_simulation::random::Random;
use transom_wire::cm::message::Receiver;
use transom_wire::cm::{CommId, Mad, Message, RejectReason};

use self::programs::Action;
use crate::model::{Model, Name, Step};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const HOSTS: usize = 3;
const PROCESSES: usize = 2 * HOSTS;
/// For how long programs begin connections.
const BUSY: u64 = 300 * SECOND;
/// The most requests that wait for a program.
const BACKLOG: usize = 2;
/// More events than any run has.
const MOST_EVENTS: u64 = 500_000;

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) messages: u64,
    pub(crate) lost: u64,
    pub(crate) mras: u64,
    /// Requests that found no room at their listener, and requests that were displaced.
    pub(crate) full: u64,
    pub(crate) displaced: u64,
    pub(crate) duplicates: u64,
    /// Requests that waited for their listener.
    pub(crate) early: u64,
    pub(crate) established: u64,
    pub(crate) resolved: u64,
    pub(crate) rejected: u64,
    pub(crate) stale: u64,
    pub(crate) unreachable: u64,
    pub(crate) disconnected: u64,
    pub(crate) timed_out: u64,
    pub(crate) deaths: u64,
    /// Connections that were established at the end.
    pub(crate) pairs: u64,
    /// Half connections: the other end was gone and could not tell, because its process had died or its REJ was lost.
    pub(crate) half: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.messages, other.messages),
            (&mut self.lost, other.lost),
            (&mut self.mras, other.mras),
            (&mut self.full, other.full),
            (&mut self.displaced, other.displaced),
            (&mut self.duplicates, other.duplicates),
            (&mut self.early, other.early),
            (&mut self.established, other.established),
            (&mut self.resolved, other.resolved),
            (&mut self.rejected, other.rejected),
            (&mut self.stale, other.stale),
            (&mut self.unreachable, other.unreachable),
            (&mut self.disconnected, other.disconnected),
            (&mut self.timed_out, other.timed_out),
            (&mut self.deaths, other.deaths),
            (&mut self.pairs, other.pairs),
            (&mut self.half, other.half),
        ];
        for (sum, count) in pairs {
            *sum += count;
        }
    }
}

#[derive(Debug)]
enum Due {
    /// The network's next message arrives at a host.
    Arrive(usize),
    /// An action of a process in one of its lives.
    Act(usize, u32, Action),
}

struct Process {
    engine: Engine,
    slot: u8,
    life: u32,
    next_qpn: u32,
}

pub(crate) struct Simulation {
    random: Random,
    trace: bool,
    now: u64,
    due: BTreeMap<(u64, u64), Due>,
    scheduled: u64,
    network: Network,
    faults: FaultInjector,
    /// Whether so little is lost that 16 losses in a row do not happen.
    is_fair: bool,
    hosts: Vec<Ports>,
    processes: Vec<Process>,
    timing: Timing,
    model: Model,
    /// Connections whose peer's REJ was lost: the host, the receiver's id, and the peer's id.
    orphans: BTreeSet<(usize, CommId, CommId)>,
    /// Ends whose process has died, by host and id.
    abandoned: BTreeSet<(usize, CommId)>,
    /// Messages that are repeated until they are answered, by host, id and name.
    said: BTreeMap<(usize, CommId, &'static str), Vec<u8>>,
    counts: Counts,
}

fn address(host: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, host as u8])
}

fn host_of(process: usize) -> usize {
    process / 2
}

fn port(process: usize) -> u16 {
    7_000 + process as u16
}

impl Simulation {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut random = Random::new(seed);
        let faults = draw_faults(&mut random);
        let timing = match random.below(4) {
            0 => Timing::giving_up_after(2_000 + random.below(20_000)),
            _ => Timing::LINUX,
        };
        let mut simulation = Self {
            random,
            trace,
            now: SECOND,
            due: BTreeMap::new(),
            scheduled: 0,
            network: Network::new(HOSTS, 1),
            is_fair: faults.loss <= 100,
            faults: FaultInjector::new(HOSTS, faults, Random::new(seed ^ 0x5eed)),
            hosts: (0..HOSTS).map(|host| Ports::new([address(host)])).collect(),
            processes: Vec::new(),
            timing,
            model: Model::default(),
            orphans: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            said: BTreeMap::new(),
            counts: Counts::default(),
        };
        for process in 0..PROCESSES {
            let slot = 1 + process as u8 % 2;
            let engine = simulation.engine(process, slot);
            simulation.processes.push(Process { engine, slot, life: 0, next_qpn: 1 });
            simulation.listen(process);
            for _ in 0..3 + simulation.random.below(8) {
                let at = simulation.random.below(BUSY);
                simulation.act_at(at, process, Action::Connect);
            }
            if simulation.random.chance(250) {
                let at = simulation.random.below(BUSY);
                simulation.act_at(at, process, Action::Die);
            }
        }
        simulation
    }

    /// The processes of a host share their GUID.
    fn engine(&mut self, process: usize, slot: u8) -> Engine {
        let guid = 0x5054_00ff_fe00_0000 + host_of(process) as u64;
        let config = Config::new(slot, guid, self.random.number().into());
        let max_backlog = BACKLOG as u32;
        Engine::new(Config { timing: self.timing, max_backlog, ..config })
    }

    fn listen(&mut self, process: usize) {
        for service in [Service::TCP, Service::UDP] {
            let late = self.random.chance(200);
            let (host, Process { engine, .. }) =
                (&mut self.hosts[host_of(process)], &mut self.processes[process]);
            let id = engine.create(service).unwrap();
            let any = SocketAddr::new([0, 0, 0, 0].into(), port(process));
            engine.bind(id, any, host).unwrap();
            if late {
                // The program has told its port, and a peer connects at once.
                let after = self.random.below(150) * MILLISECOND;
                self.act_at(self.now + after, process, Action::Listen(id));
                let peer = self.random.below(self.processes.len() as u64) as usize;
                self.act_at(self.now + after / 2, peer, Action::ConnectTo(process));
            } else {
                engine.listen(id, 0, self.now, host).unwrap();
            }
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>10.3} {}", self.now as f64 / SECOND as f64, what());
        }
    }

    fn schedule(&mut self, at: u64, due: Due) {
        self.scheduled += 1;
        self.due.insert((at, self.scheduled), due);
    }

    fn act_at(&mut self, at: u64, process: usize, action: Action) {
        let life = self.processes[process].life;
        self.schedule(at, Due::Act(process, life, action));
    }

    /// Schedules an action, mostly soon.
    fn act(&mut self, process: usize, action: Action) {
        let longest = self.random.one_of(&[1, 10, 10, 100, 8_000, 100_000]);
        let at = self.now + self.random.below(longest * MILLISECOND) + 1;
        self.act_at(at, process, action);
    }

    fn name(&self, process: usize, id: CommId) -> Name {
        (process, self.processes[process].life, id)
    }

    /// Runs until nothing is under way, and checks the connections. Then ends everything, and checks that nothing is
    /// left.
    pub(crate) fn run(mut self) -> Counts {
        self.settle();
        self.check_pairs();
        for process in 0..PROCESSES {
            for id in self.processes[process].engine.ids().collect::<Vec<_>>() {
                self.destroy(process, id);
            }
        }
        self.settle();
        for process in &self.processes {
            assert!(process.engine.is_empty(), "left: {:#?}", process.engine);
        }
        assert!(self.hosts.iter().all(Ports::is_empty), "ports are left: {:#?}", self.hosts);
        self.counts
    }

    fn settle(&mut self) {
        for _ in 0..MOST_EVENTS {
            let due = self.due.first_key_value().map(|((at, _), _)| *at);
            let engines = self.processes.iter().map(|process| process.engine.poll_timeout());
            let alarm = engines.flatten().min();
            let Some(at) = due.into_iter().chain(alarm).min() else { return };
            self.now = self.now.max(at);
            if alarm == Some(at) && due != Some(at) {
                for process in 0..PROCESSES {
                    self.processes[process].engine.handle_timeout(self.now);
                    self.drain(process);
                }
            } else if let Some((_, due)) = self.due.pop_first() {
                match due {
                    Due::Arrive(host) => self.arrive(host),
                    Due::Act(process, life, action) if life == self.processes[process].life => {
                        self.carry_out(process, action);
                    }
                    Due::Act(..) => {}
                }
            }
        }
        panic!("it goes on for ever");
    }

    /// Takes the outgoing messages of a process, and gives its programs their events.
    fn drain(&mut self, process: usize) {
        while let Some(transmit) = self.processes[process].engine.poll_transmit() {
            self.send(&transmit);
        }
        // For the model, a displaced request is like one that its program has destroyed.
        while let Some(id) = self.processes[process].engine.poll_displaced() {
            self.counts.displaced += 1;
            self.model.destroys(self.name(process, id));
        }
        while let Some(event) = self.processes[process].engine.poll_event() {
            self.hear(process, event);
        }
    }

    /// Sends a message. Returns whether it arrives.
    fn send(&mut self, transmit: &Transmit) -> bool {
        self.counts.messages += 1;
        self.counts.mras += u64::from(matches!(transmit.mad.message, Message::Mra(_)));
        let [from, to] = [transmit.source, transmit.destination].map(|at| self.host_at(at));
        let bytes = transmit.mad.write();
        self.check_said(from, &transmit.mad, &bytes);
        let (arrivals, _) = self.faults.send(&mut self.network, from, to, self.now, &bytes);
        self.say(|| {
            format!("{} -> {} {:?}", transmit.source, transmit.destination, brief(&transmit.mad))
        });
        let arrives = arrivals.iter().any(|arrival| {
            let packet = self.network.packet(arrival.to, arrival.place);
            arrival.to == to && packet.is_some_and(|packet| packet.bytes == bytes)
        });
        if !arrives {
            self.counts.lost += 1;
            self.say(|| "    lost".into());
            // A REJ is sent once. A DREQ is repeated until it is confirmed.
            if let Message::Rej(rej) = &transmit.mad.message {
                self.orphans.insert((to, rej.remote_id, rej.local_id));
            }
        }
        for arrival in arrivals {
            self.schedule(arrival.place.0, Due::Arrive(arrival.to));
        }
        arrives
    }

    fn host_at(&self, address: IpAddr) -> usize {
        (0..HOSTS).find(|host| crate::simulation::address(*host) == address).expect("a host")
    }

    /// A host gives a message to its process (rule CM-20): by port, or by the upper byte of the id. If it has no such
    /// process, any process may answer.
    fn arrive(&mut self, host: usize) {
        let packet = self.network.arrive(host).expect("each message on its way has an event");
        let mad = Mad::parse(&packet.bytes).expect("nothing changes it");
        let of_host = [2 * host, 2 * host + 1];
        let to: Vec<usize> = match mad.receiver() {
            Receiver::Service(service) => {
                let to = service.port().map(|(_, port)| usize::from(port - 7_000));
                vec![to.filter(|to| of_host.contains(to)).unwrap_or(of_host[0])]
            }
            Receiver::Id(id) => {
                let slot = (id.0 >> 24) as u8;
                let found = of_host.into_iter().find(|to| self.processes[*to].slot == slot);
                vec![found.unwrap_or(of_host[0])]
            }
            Receiver::Peer(..) => of_host.into(),
        };
        let arrival = Arrival { source: address(packet.from), destination: address(host) };
        for process in to {
            let (engine, host) = (&mut self.processes[process].engine, &mut self.hosts[host]);
            let handled = engine.handle(self.now, arrival, &packet.bytes, host);
            self.say(|| format!("    {process} {:?}: {handled:?}", brief(&mad)));
            // Whether its sender must get an MRA because the program is slow (rule CM-16).
            let (mut waits, mras) = (false, self.counts.mras);
            match handled {
                Handled::Duplicate(id) => {
                    self.counts.duplicates += 1;
                    let step = self.model.step(self.name(process, id));
                    waits = matches!(
                        (&mad.message, step),
                        (Message::Req(_), Some(Step::Asked))
                            | (Message::Rep(_), Some(Step::Answered))
                    );
                }
                Handled::BacklogFull(_) => self.counts.full += 1,
                Handled::Waits => self.counts.early += 1,
                Handled::Refused(RejectReason::StaleConnection) => self.counts.stale += 1,
                Handled::Ignored(ignored) => panic!("{ignored}"),
                _ => {}
            }
            self.drain(process);
            assert!(!waits || self.counts.mras == mras + 1, "{:?} gets no MRA", brief(&mad));
        }
    }

    fn process_of(&self, host: usize, id: CommId) -> Option<usize> {
        let slot = (id.0 >> 24) as u8;
        [2 * host, 2 * host + 1].into_iter().find(|process| self.processes[*process].slot == slot)
    }

    // Checks.

    /// No more requests wait for a program than its listener has room for (rule CM-22). Each process has one listener
    /// for connections and one for datagrams.
    fn check_backlog(&self, process: usize, datagram: bool) {
        let Process { engine, life, .. } = &self.processes[process];
        let waits = self.model.unfetched((process, *life), datagram);
        let waits = waits.filter(|id| engine.has(*id)).count();
        assert!(waits <= BACKLOG, "{waits} requests wait for {process}");
    }

    /// Each end of a connection expects the PSN with which the other begins (rule CM-44).
    fn check_numbers(&self, process: usize, id: CommId) {
        let engine = &self.processes[process].engine;
        let record = engine.record(id).expect("a connection");
        let peer = self.process_of(self.host_at(record.destination), record.peer_id);
        let peer = &self.processes[peer.expect("its peer")].engine;
        let expected = engine.attributes(id, QpState::ReadyToReceive);
        let begun = peer.attributes(record.peer_id, QpState::ReadyToSend);
        let (
            Ok(Attributes::ReadyToReceive { psn: expected, .. }),
            Ok(Attributes::ReadyToSend { psn: begun, .. }),
        ) = (&expected, &begun)
        else {
            panic!("{process} {id:x?} has no attributes: {expected:?} {begun:?}");
        };
        assert_eq!(expected, begun, "{process} {id:x?} and {:x?} count otherwise", record.peer_id);
    }

    /// A repeated message is the identical datagram (rule CM-15).
    fn check_said(&mut self, host: usize, mad: &Mad, bytes: &[u8]) {
        let id = match &mad.message {
            Message::Req(req) => req.local_id,
            Message::Rep(rep) => rep.local_id,
            Message::Dreq(dreq) => dreq.local_id,
            Message::SidrReq(request) => request.request_id,
            _ => return,
        };
        let name = mad.message.name();
        let said = self.said.entry((host, id, name)).or_insert_with(|| bytes.to_vec());
        assert!(said == bytes, "{name} of {id:x?} is not what was said before");
    }

    /// A passive end gives up. Then its peer must not be connected with it, because 16 tries in a row do not get lost
    /// where one in ten does.
    fn check_timeout(&self, name: Name) {
        let Some(asker) = self.model.asker(name) else { return };
        let process = &self.processes[asker.0];
        let is_up = asker.1 == process.life
            && self.model.step(asker) == Some(Step::Up)
            && process.engine.record(asker.2).is_some_and(|record| record.peer_id == name.2);
        let long_enough = self.timing == Timing::LINUX && self.is_fair;
        assert!(
            !(is_up && long_enough),
            "{name:?} has given up, and {asker:?} is connected with it"
        );
    }

    /// Checks all connections when nothing is under way.
    fn check_pairs(&mut self) {
        for process in 0..PROCESSES {
            let engine = &self.processes[process].engine;
            for id in engine.ids() {
                let Some(phase) = engine.connection_state(id) else { continue };
                let waits = matches!(
                    phase,
                    ConnectionState::RequestSent
                        | ConnectionState::ReplySent
                        | ConnectionState::DisconnectSent
                        | ConnectionState::TimeWait
                );
                assert!(!waits, "{process} {id:x?} waits in {phase:?} for what does not come");
                // If an end is over and has reported the disconnect, it has reported the end of the time wait too (rule
                // CM-29).
                let told = self.model.step(self.name(process, id)) != Some(Step::Disconnected);
                let is_over = phase == ConnectionState::Over;
                assert!(told || !is_over, "{process} {id:x?} has not heard that its time is over");
                if phase != ConnectionState::Established {
                    continue;
                }
                let record = engine.record(id).expect("a connection");
                let host = self.host_at(record.destination);
                let peer = self.process_of(host, record.peer_id).map(|peer| {
                    let engine = &self.processes[peer].engine;
                    (engine.connection_state(record.peer_id), engine.record(record.peer_id))
                });
                if let Some((Some(ConnectionState::Established), Some(other))) = peer
                    && other.peer_id == id
                    && other.destination == record.source
                {
                    self.check_numbers(process, id);
                    self.counts.pairs += 1;
                    continue;
                }
                let orphan = (host_of(process), id, record.peer_id);
                assert!(
                    self.orphans.contains(&orphan)
                        || self.abandoned.contains(&(host, record.peer_id)),
                    "{process} {id:x?} is established, its peer {:x?} is {peer:x?}",
                    record.peer_id
                );
                self.counts.half += 1;
            }
        }
        self.counts.pairs /= 2;
    }
}

/// Draws the faults of a network: some, or none.
fn draw_faults(random: &mut Random) -> Faults {
    let mut drawn = |rates: &[u32]| random.one_of(rates);
    let loss = drawn(&[0, 10, 100, 350]);
    let duplication = drawn(&[0, 50, 300]);
    let delay = drawn(&[0, 100, 500]);
    let replay = drawn(&[0, 20, 200]);
    let longest_delay = random.one_of(&[10, 1_000, 20_000]) * MILLISECOND;
    let latency = MILLISECOND;
    Faults { loss, duplication, delay, replay, longest_delay, latency, ..Faults::default() }
}

/// A message's name and ids.
fn brief(mad: &Mad) -> (&'static str, Receiver) {
    (mad.message.name(), mad.receiver())
}
