//! Many connections between two processes: how much memory and time each takes, and what a flood of
//! requests does. With `TRANSOM_LONG=1` there are as many as the words below say, else fewer; what was measured
//! is then printed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use transom_cm::{Config, Connect, Engine, Host, Ports, Service};
use transom_conformance::connections::*;
use transom_conformance::forger::{Forger, PEER, STRANGER};
use transom_conformance::harness::Over;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_wire::Psn;
use transom_wire::cm::{Bits, CommId, GSI_QKEY, GSI_QPN, Mad, Message};
use transom_wire::packet::{Ending, Operation, Packet, Transport};

/// Private data of requests that are served.
const HONEST: &[u8] = b"honest";
/// So many requests come at once: several times what a listener keeps.
const BURST: u32 = 5_000;
/// By how much a flood may make a process's memory grow, in bytes.
const MORE: u64 = 16 << 20;
/// What one end of a connection may take of memory, in bytes.
const PER_CONNECTION: u64 = 6 * 1024;

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("server", server), ("client", client)]);
}

/// What they are told to do.
mod order {
    /// Makes so many connections to a port, which stay open; answers the nanoseconds.
    pub(super) const OPEN: u64 = 1;
    /// Makes and ends as many, one after the other; answers the nanoseconds.
    pub(super) const OPEN_AND_END: u64 = 2;
    /// Ends those that are open; answers the nanoseconds.
    pub(super) const END: u64 = 3;
    /// Answers the bytes of memory that are this process's alone.
    pub(super) const MEMORY: u64 = 4;
    /// Makes and ends one connection to a port; answers the nanoseconds, or zero if nobody answers in time.
    pub(super) const ATTEMPT: u64 = 5;
}

/// Bytes of memory that a process has and shares with nobody.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kilobytes * 1024
}

/// Accepts what is honest, refuses all else, and ends what its peer ends.
fn server(channel: &mut Channel) {
    let file = File::open();
    let listener = file.listener(&format!("{PEER}:0"));
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    channel.tell(&[address.port().into()]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&file, &over));
        let _over = Over(&over);
        while let Some(&order::MEMORY) = channel.hear_all().first() {
            channel.tell(&[memory()]);
        }
    });
}

fn serve(file: &File, over: &AtomicBool) {
    while !over.load(Relaxed) {
        if !file.is_readable(Duration::from_millis(100)) {
            continue;
        }
        let Ok(event) = file.try_event() else { continue };
        let id = Id(event.id);
        // A peer may have given up meanwhile.
        match event.event {
            event::CONNECT_REQUEST if private_data(&event).starts_with(HONEST) => {
                let _ = file.accept(id, 2, qpns()[0], &[]);
            }
            event::CONNECT_REQUEST => {
                let _ = file.reject(id, &[]);
                file.destroy(id).expect("it is there");
            }
            event::ESTABLISHED => {}
            event::DISCONNECTED => {
                let _ = file.disconnect(id);
                file.destroy(id).expect("it is there");
            }
            _ => drop(file.destroy(id)),
        }
    }
}

/// Connects and parts as it is told.
fn client(channel: &mut Channel) {
    let file = File::open();
    let mut open = Vec::new();
    loop {
        let order = channel.hear_all();
        let begun = Instant::now();
        let [what, rest @ ..] = &order[..] else { return };
        match (*what, rest) {
            (order::OPEN, &[port, count]) => {
                open.extend((0..count).map(|_| connect(&file, port)));
            }
            (order::OPEN_AND_END, &[port, count]) => {
                (0..count).for_each(|_| end(&file, connect(&file, port)));
            }
            (order::ATTEMPT, &[port]) => match attempt(&file, port) {
                Some(id) => end(&file, id),
                None => {
                    channel.tell(&[0]);
                    continue;
                }
            },
            (order::END, _) => open.drain(..).for_each(|id| end(&file, id)),
            (order::MEMORY, _) => {
                channel.tell(&[memory()]);
                continue;
            }
            other => panic!("what is {other:?}?"),
        }
        channel.tell(&[begun.elapsed().as_nanos() as u64]);
    }
}

fn connect(file: &File, port: u64) -> Id {
    attempt(file, port).expect("somebody answers")
}

/// Nothing if nobody answers in time.
fn attempt(file: &File, port: u64) -> Option<Id> {
    let id = file.id();
    file.resolve(id, &format!("{PEER}:{port}"));
    file.connect(id, qpns()[0], HONEST).expect("asked");
    let answer = file.event();
    if answer.event == event::UNREACHABLE {
        file.destroy(id).expect("it is there");
        return None;
    }
    assert_eq!((answer.event, Id(answer.id)), (event::CONNECT_RESPONSE, id));
    file.establish(id).expect("established");
    Some(id)
}

fn end(file: &File, id: Id) {
    file.disconnect(id).expect("disconnected");
    file.expect(event::DISCONNECTED, id);
    file.destroy(id).expect("it is there");
}

/// A server and a client, and the server's port.
struct Ends {
    server: Child,
    client: Child,
    port: u64,
}

impl Ends {
    fn start(environment: &[&str]) -> Self {
        let environment = [&["env"], environment].concat();
        let mut server = Child::start_under(path_of!("server"), &environment);
        let [port] = server.hear();
        Self { server, client: Child::start_under(path_of!("client"), &environment), port }
    }

    fn ask(&mut self, order: &[u64]) -> u64 {
        self.client.tell(order);
        let [answer] = self.client.hear();
        answer
    }

    /// Has the client make so many connections, a thousand at a time: the nanoseconds of the first thousand,
    /// of the last, and of all.
    fn make(&mut self, order: u64, count: u64) -> [u64; 3] {
        let mut times = Vec::new();
        for begun in (0..count).step_by(1_000) {
            times.push(self.ask(&[order, self.port, (count - begun).min(1_000)]));
            // Nobody waits for a word for longer than a minute.
            self.memory();
        }
        [times[0], *times.last().expect("one"), times.iter().sum()]
    }

    /// The memory of both.
    fn memory(&mut self) -> [u64; 2] {
        self.server.tell(&[order::MEMORY]);
        let [server] = self.server.hear();
        [server, self.ask(&[order::MEMORY])]
    }

    fn finish(mut self) {
        self.client.tell(&[]);
        self.server.tell(&[]);
        self.client.finish();
        self.server.finish();
    }
}

/// 10,000 connections are open at once: each takes so much memory and no more, and it comes back.
#[test]
fn many_connections_are_open_at_once() {
    alone(path_of!("many_connections_are_open_at_once"), Way::Network, || {
        let count = if is_long() { 10_000 } else { 500 };
        let mut ends = Ends::start(&[]);
        let port = ends.port;
        ends.ask(&[order::OPEN_AND_END, port, 10]);
        let before = ends.memory();
        let [first, last, opened] = ends.make(order::OPEN, count);
        let open = ends.memory();
        let ended = ends.ask(&[order::END]);
        let each = [0, 1].map(|end| open[end].saturating_sub(before[end]) / count);
        tell(format_args!(
            "{count} connections open at once: {} us to make one (of the first {}, of the last {}), \
            {} us to end it; {} bytes of the passive end's memory and {} of the active end's for one",
            opened / count / 1_000,
            first / count.min(1_000) / 1_000,
            last / count.min(1_000) / 1_000,
            ended / count / 1_000,
            each[0],
            each[1]
        ));
        assert!(each.into_iter().all(|it| it < PER_CONNECTION), "{each:?}");
        // The room of the first is the room of the next.
        ends.make(order::OPEN, count);
        let again = ends.memory();
        ends.ask(&[order::END]);
        let more = [0, 1].map(|end| again[end].saturating_sub(open[end]) / count);
        assert!(more.into_iter().all(|it| it < PER_CONNECTION / 4), "{more:?}");
        ends.finish();
    });
}

/// 100,000 connections are made and ended, one after the other: the first leave no more behind than
/// the last.
#[test]
fn many_connections_are_made_and_ended() {
    alone(path_of!("many_connections_are_made_and_ended"), Way::Network, || {
        let count = if is_long() { 100_000 } else { 1_000 };
        let mut ends = Ends::start(&[]);
        // The peer's DREP ends a connection here, and there is room for what takes longer.
        ends.make(order::OPEN_AND_END, count / 2);
        let before = ends.memory();
        let [.., time] = ends.make(order::OPEN_AND_END, count / 2);
        let after = ends.memory();
        let more = [0, 1].map(|end| after[end].saturating_sub(before[end]));
        tell(format_args!(
            "{count} connections one after the other: {} us each; \
            the memory of the passive end grows by {} bytes in the second half, the active end's by {}",
            time / (count / 2) / 1_000,
            more[0],
            more[1]
        ));
        assert!(more.into_iter().all(|it| it < 1 << 20), "{more:?}");
        ends.finish();
    });
}

/// Tells what was measured, if that was the purpose.
fn tell(what: std::fmt::Arguments<'_>) {
    if is_long() {
        eprintln!("{what}");
    }
}

/// The REQ of somebody at an address who asks for a connection to a port.
fn request(from: Ipv4Addr, port: u64) -> Mad {
    let mut host = Ports::new([from.into()]);
    let mut engine = Engine::new(Config::new(1, 1, 1));
    let id = engine.create(Service::TCP).unwrap();
    let to = SocketAddr::from((PEER, port as u16));
    engine.resolve_address(id, Some((from, 0).into()), to, &mut host).unwrap();
    let route = host.route(from.into(), PEER.into()).unwrap();
    engine.address_resolved(id, Ok(route)).unwrap();
    engine.resolve_route(id, Ok(())).unwrap();
    engine.connect(id, &Connect::default(), 0).unwrap();
    engine.poll_transmit().expect("a message").mad
}

/// The datagrams of requests that are right in every way, each of another connection.
fn requests(forger: &Forger, from: Ipv4Addr, port: u64, count: u32) -> Vec<Vec<u8>> {
    let mut mad = request(from, port);
    let transport = Transport::Ud { qkey: GSI_QKEY, source: GSI_QPN };
    let of = |number| {
        let Message::Req(req) = &mut mad.message else { panic!("a REQ") };
        (req.local_id, req.qpn) = (CommId(number), Bits::low(number));
        req.ca_guid = 0x1000_0000;
        let operation = Operation::SendOnly(Ending::Plain);
        let packet = Packet::new(transport, operation, GSI_QPN, Psn::new(number));
        forger.seal(&Packet { payload: &mad.write(), ..packet })
    };
    (0..count).map(of).collect()
}

/// Somebody sends requests that are right in every way, each of another connection, by thousands at once. The
/// server keeps no more of them than its backlog, and an honest one that comes right behind finds room.
///
/// Rules: CM-22
#[test]
fn of_a_flood_of_requests_little_is_kept_and_honest_ones_get_through() {
    let name = path_of!("of_a_flood_of_requests_little_is_kept_and_honest_ones_get_through");
    alone(name, Way::Network, || {
        let bursts: u32 = if is_long() { 20 } else { 5 };
        // A request that finds no room comes again after a second.
        let mut ends = Ends::start(&["TRANSOM_LINK=wire", "TRANSOM_CONNECT_TIMEOUT=16000"]);
        let port = ends.port;
        ends.ask(&[order::OPEN_AND_END, port, 10]);
        let before = ends.memory();
        let forger = Forger::at(PEER);
        let datagrams = requests(&forger, PEER, port, BURST * bursts);
        let (mut in_all, mut longest) = (0, 0);
        for burst in datagrams.chunks(BURST as usize) {
            burst.iter().for_each(|datagram| forger.send(datagram));
            let time = ends.ask(&[order::OPEN_AND_END, port, 1]);
            (in_all, longest) = (in_all + time, longest.max(time));
        }
        let after = ends.memory();
        let more = [0, 1].map(|end| after[end].saturating_sub(before[end]));
        tell(format_args!(
            "an honest connection behind {BURST} other requests, {bursts} times: {} ms each, \
            {} ms at most; the server's memory grows by {} bytes, the client's by {}",
            in_all / u64::from(bursts) / 1_000_000,
            longest / 1_000_000,
            more[0],
            more[1]
        ));
        assert!(more.into_iter().all(|it| it < MORE), "{more:?}");
        ends.finish();
    });
}

/// Sends datagrams in turn, so many each millisecond, until it is over.
fn send_on(forger: &Forger, datagrams: &[Vec<u8>], each: u64, over: &AtomicBool) {
    let (begun, mut sent) = (Instant::now(), 0);
    for datagram in datagrams.iter().cycle() {
        while sent >= begun.elapsed().as_micros() as u64 * each / 1_000 {
            if over.load(Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        forger.send(datagram);
        sent += 1;
    }
}

/// Somebody sends such requests on and on. Honest connections are made all the while, as long as there is a
/// processor to read all that comes: how many, and how soon, is measured.
///
/// Rules: CM-22
#[test]
fn under_a_flood_that_does_not_end_connections_are_made() {
    let name = path_of!("under_a_flood_that_does_not_end_connections_are_made");
    alone(name, Way::Network, || {
        let (rates, count): (&[u64], usize) =
            if is_long() { (&[4, 16, 64], 10) } else { (&[1], 5) };
        for (&rate, from) in rates.iter().flat_map(|rate| [(rate, STRANGER), (rate, PEER)]) {
            let mut ends = Ends::start(&["TRANSOM_LINK=wire", "TRANSOM_CONNECT_TIMEOUT=16000"]);
            let port = ends.port;
            ends.ask(&[order::OPEN_AND_END, port, 10]);
            let before = ends.memory();
            let forger = Forger::at(from);
            let datagrams = requests(&forger, from, port, 1 << 15);
            let over = AtomicBool::new(false);
            let mut times = std::thread::scope(|scope| {
                scope.spawn(|| send_on(&forger, &datagrams, rate, &over));
                let _over = Over(&over);
                let one = |_| {
                    let time = ends.ask(&[order::ATTEMPT, port]);
                    // Nobody waits for a word for longer than a minute.
                    ends.memory();
                    time / 1_000
                };
                (0..count).map(one).collect::<Vec<_>>()
            });
            times.retain(|time| *time > 0);
            times.sort_unstable();
            let after = ends.memory();
            let more = [0, 1].map(|end| after[end].saturating_sub(before[end]));
            tell(format_args!(
                "while {rate} requests come each millisecond, from {from}: {} of {count} honest connections, \
                {:?} us in the middle, {:?} us at most; the server's memory grows by {} bytes, the client's by {}",
                times.len(),
                times.get(times.len() / 2),
                times.last(),
                more[0],
                more[1]
            ));
            assert!(!times.is_empty());
            assert!(more.into_iter().all(|it| it < MORE), "{more:?}");
            ends.finish();
        }
    });
}
