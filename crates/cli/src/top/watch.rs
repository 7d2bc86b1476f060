//! Looks at all processes again and again, and tells rates from two looks.

use super::touches::Touches;
use super::view::{
    Connection, Flow, Latency, Links, Load, Process, QueuePair, Refusal, Span, Stage, Stay, View,
    Window,
};
use crate::clock;
use crate::devices::{self, Ports};
use crate::explain::Told;
use crate::lines::Exact;
use crate::metrics::held::Held;
use crate::metrics::seen::SeenProcess;
use std::collections::HashMap;
use std::time::Duration;
use transom_device::execution::Tally;
use transom_device::protection::{Announcer, Key, Snapshot, State};
use transom_device::qp::{Presence, QpNumber};
use transom_system::clock::steady;
use transom_system::latency::{Timed, Times};
use transom_system::registry::{self, Registry};
use transom_system::segment::Segment;
use transom_system::tools::Tool;
use transom_system::traffic::{Amount, Carried, Totals, Traffic, Way};

/// How many regions and windows of a process are shown.
const MOST_KEYS: usize = 4096;
/// How many kinds of refusals are shown.
const MOST_REFUSALS: usize = 200;
/// How many looks the history has.
const HISTORY: usize = 240;

pub(super) struct Watch {
    registry: &'static Registry,
    held: Held,
    /// What was counted at the last look.
    before: HashMap<Counted, Counts>,
    /// How long requests had taken at the last look.
    times_before: HashMap<(Stay, Timed), Times>,
    /// When that was, on the steady clock.
    last: Option<u64>,
    history: Vec<u64>,
    touches: Touches,
    /// The newest refusal of the last look.
    newest: u64,
}

/// A process or one of its queue pairs.
type Counted = (Stay, Option<u32>);

/// Messages and bytes: sent, then received, each by link.
type Counts = [[(u64, u64); 2]; 2];

fn counts(totals: &Totals) -> Counts {
    let of = |get: fn(&Totals, Way, Carried) -> Amount| {
        Way::ALL.map(|way| {
            let mut sum = Amount::default();
            Carried::ALL.iter().for_each(|kind| sum.add(get(totals, way, *kind)));
            (sum.messages, sum.bytes)
        })
    };
    [of(Totals::sent), of(Totals::received)]
}

/// The rates between two looks.
fn load(now: &Counts, before: &Counts, interval: Duration) -> Load {
    let seconds = interval.as_secs_f64();
    let rate = |now: u64, before: u64| match seconds > 0.0 {
        true => now.saturating_sub(before) as f64 / seconds,
        false => 0.0,
    };
    let links = |now: &[(u64, u64); 2], before: &[(u64, u64); 2]| {
        let flow = |way: Way| {
            let ((messages, bytes), old) = (now[way as usize], before[way as usize]);
            let (message_rate, byte_rate) = (rate(messages, old.0), rate(bytes, old.1));
            Flow { messages, bytes, message_rate, byte_rate }
        };
        Links { host: flow(Way::Host), wire: flow(Way::Wire) }
    };
    Load { sent: links(&now[0], &before[0]), received: links(&now[1], &before[1]) }
}

impl Watch {
    pub(super) fn new(registry: &'static Registry) -> Self {
        Self {
            registry,
            held: Held::default(),
            before: HashMap::new(),
            times_before: HashMap::new(),
            last: None,
            history: Vec::new(),
            touches: Touches::default(),
            newest: clock::now(),
        }
    }

    /// Reads what processes record meanwhile. Call it at least twice a second.
    pub(super) fn tick(&mut self) {
        self.touches.tick();
    }

    /// Everything now. Rates are since the last look.
    pub(super) fn look(&mut self) -> View {
        self.held.refresh(self.registry);
        let now = steady();
        let since = self.last.replace(now).map_or(0, |last| now.saturating_sub(last));
        let mut look = Look {
            watch: self,
            view: View {
                time: clock::now(),
                interval: Duration::from_nanos(since),
                ..View::default()
            },
            counted: HashMap::new(),
            times: HashMap::new(),
        };
        let processes = devices::running(look.watch.registry);
        processes.iter().for_each(|process| look.process(process));
        look.connections(&processes);
        look.refusals();
        let Look { mut view, counted, times, .. } = look;
        self.before = counted;
        self.times_before = times;
        self.touches.watch(self.registry, &processes);
        self.touches.tick();
        self.touches.show(&mut view);
        let load = view.load();
        if since > 0 {
            self.history.push(load.sent.both().message_rate as u64);
            let excess = self.history.len().saturating_sub(HISTORY);
            self.history.drain(..excess);
        }
        view.history.clone_from(&self.history);
        view.find_peers();
        view
    }
}

/// A look that is under way.
struct Look<'a> {
    watch: &'a mut Watch,
    view: View,
    counted: HashMap<Counted, Counts>,
    times: HashMap<(Stay, Timed), Times>,
}

fn stay(of: Announcer) -> Stay {
    (of.slot, of.generation)
}

impl Look<'_> {
    fn process(&mut self, process: &registry::Process) {
        let registry = self.watch.registry;
        let seen = self.watch.held.look(process.announcer, |segment| {
            let seen = SeenProcess::of(registry, process, "", segment);
            (seen, queue_pairs(process, segment), keys(segment))
        });
        let mut shown = Process {
            stay: stay(process.announcer),
            pid: process.pid,
            name: process.name.clone(),
            device: process.device,
            is_far: seen.is_none(),
            shares_pids: process.shares_pids,
            waits_for: process.waits_for,
            ..Process::default()
        };
        if let Some((seen, queue_pairs, keys)) = seen {
            self.fill(&mut shown, &seen);
            self.latencies(&shown, &seen);
            for (qp, totals) in queue_pairs {
                let load = self.load((shown.stay, Some(qp.number)), &totals);
                self.view.queue_pairs.push(QueuePair { load, ..qp });
            }
            shown.left_out = keys.len().saturating_sub(MOST_KEYS);
            let (regions, windows) = regions_and_windows(shown.stay, keys);
            self.view.regions.extend(regions);
            self.view.windows.extend(windows);
        }
        self.view.processes.push(shown);
    }

    fn fill(&mut self, shown: &mut Process, seen: &SeenProcess) {
        let all = seen.all();
        shown.load = self.load((shown.stay, None), all);
        shown.objects.clone_from(&seen.objects);
        shown.windows = seen.open.windows;
        shown.in_windows = seen.open.in_windows;
        shown.in_regions = seen.open.in_regions;
        let reasons = transom_device::protection::Reason::ALL;
        shown.refusals = reasons.iter().map(|reason| seen.totals.refusals(*reason)).sum();
        shown.binds = all.tally(Tally::Bound);
        shown.invalidations = all.tally(Tally::Invalidated) + all.tally(Tally::InvalidatedByPeer);
        shown.not_ready = all.tally(Tally::NotReady);
        shown.retransmissions = retransmissions(all);
    }

    /// What was carried, with rates since the last look. Who was not there then began with nothing.
    fn load(&mut self, what: Counted, totals: &Totals) -> Load {
        let now = counts(totals);
        let before = self.watch.before.get(&what).copied().unwrap_or_default();
        self.counted.insert(what, now);
        load(&now, &before, self.view.interval)
    }

    /// How long requests took since the last look.
    fn latencies(&mut self, shown: &Process, seen: &SeenProcess) {
        for operation in Timed::ALL {
            let of_it = seen.times.iter().filter(|(it, ..)| *it == operation);
            let now = of_it.fold(Times::NONE, |sum, (.., times)| sum.and(times));
            let before = self.watch.times_before.get(&(shown.stay, operation));
            let new = now.since(before.unwrap_or(&Times::NONE));
            self.times.insert((shown.stay, operation), now);
            let requests = new.count();
            if requests == 0 || self.view.interval.is_zero() {
                continue;
            }
            self.view.latencies.push(Latency {
                owner: shown.stay,
                pid: shown.pid,
                process: shown.name.clone(),
                operation: operation.name(),
                requests,
                p50: new.quantile(0.5),
                p99: new.quantile(0.99),
            });
        }
    }

    fn connections(&mut self, processes: &[registry::Process]) {
        let ports = Ports::seen(self.watch.registry);
        for process in processes {
            let of = |stage, space, local: String, peer: Option<String>, waits| Connection {
                owner: stay(process.announcer),
                pid: process.pid,
                process: process.name.clone(),
                stage,
                space,
                local,
                peer,
                waits,
            };
            let listening = ports.listeners_of(process).map(|it| {
                let space = devices::space_name(it.claim.space);
                of(Stage::Listening, space, it.claim.address.to_string(), None, None)
            });
            let connected = ports.connections_of(process).map(|it| {
                let [local, peer] = devices::ends(it).map(|end| end.to_string());
                of(Stage::Connected, "", local, Some(peer), None)
            });
            let asking = ports.waiting_of(process).map(|it| {
                let peer = Some(it.destination.to_string());
                let waits = Some(it.sentence(self.view.time));
                of(Stage::Asking, "", it.source.to_string(), peer, waits)
            });
            let all: Vec<_> = listening.chain(connected).chain(asking).collect();
            self.view.connections.extend(all);
        }
    }

    fn refusals(&mut self) {
        let told = Told::all(self.watch.registry);
        let before = self.watch.newest;
        self.watch.newest = told.first().map_or(before, |newest| newest.time().max(before));
        self.view.refusals =
            told.iter().take(MOST_REFUSALS).map(|it| refusal(it, before)).collect();
    }
}

fn refusal(told: &Told, before: u64) -> Refusal {
    let process = told.process();
    let mut fields = serde_json::Map::new();
    fields.insert("count".to_owned(), told.count.into());
    fields.insert("first_ns".to_owned(), serde_json::json!(Exact(told.first)));
    if let serde_json::Value::Object(more) = told.json() {
        fields.extend(more);
    }
    Refusal {
        owner: stay(process.announcer),
        pid: process.pid,
        process: process.name.clone(),
        who: told.who(),
        time: told.time(),
        count: told.count,
        sentence: told.sentence(),
        is_new: told.time() > before,
        fields,
    }
}

fn retransmissions(totals: &Totals) -> u64 {
    [Tally::Timeout, Tally::SequenceError, Tally::ImpliedSequenceError]
        .iter()
        .map(|tally| totals.tally(*tally))
        .sum()
}

/// The queue pairs of a process, and what each has carried.
fn queue_pairs(process: &registry::Process, segment: &Segment) -> Vec<(QueuePair, Totals)> {
    // Numbers from before somebody asked are old.
    let are_told = segment.header().wanted.turn(Tool::Latencies).is_on();
    let of = |(index, traffic): (u16, &Traffic)| {
        let totals = traffic.get();
        let summary = segment.qps().summary(index)?;
        if summary.presence() != Presence::Here {
            return None;
        }
        let (gate, peering) = (summary.gate(), summary.peering());
        let peer = peering.from.bits();
        let qp = QueuePair {
            owner: stay(process.announcer),
            pid: process.pid,
            process: process.name.clone(),
            number: QpNumber::new(process.announcer.slot, index).bits(),
            service: gate.service,
            state: gate.state,
            peer: (peer != 0).then_some(peer),
            peer_process: None,
            load: Load::default(),
            depths: are_told.then(|| traffic.depths()),
            most_sends: totals.most_sends,
            most_receives: totals.most_receives,
            failed: totals.tally(Tally::SendFailed) + totals.tally(Tally::ReceiveFailed),
            not_ready: totals.tally(Tally::NotReady),
            retransmissions: retransmissions(&totals),
        };
        Some((qp, totals))
    };
    segment.traffic_of_each().filter_map(of).collect()
}

/// The regions and bound windows of a process.
fn keys(segment: &Segment) -> Vec<(Key, Snapshot)> {
    let valid = |(_, object): &(Key, Snapshot)| object.state == State::Valid;
    segment.keys().seen(usize::MAX).filter(valid).collect()
}

/// Regions, and windows, each by place.
fn regions_and_windows(owner: Stay, mut keys: Vec<(Key, Snapshot)>) -> (Vec<Span>, Vec<Window>) {
    // Regions first, so that none is left out for windows.
    keys.sort_by_key(|(_, object)| (!object.kind.is_region(), object.place, object.length));
    keys.truncate(MOST_KEYS);
    let first_window = keys.partition_point(|(_, object)| object.kind.is_region());
    let (regions, windows) = keys.split_at(first_window);
    let span = |(key, object): &(Key, Snapshot)| Span {
        owner,
        key: key.0,
        place: object.place,
        base: object.base,
        length: object.length,
        access: object.access,
        kind: object.kind,
    };
    let window = |it: &(Key, Snapshot)| Window { span: span(it), qp: it.1.qp };
    (regions.iter().map(span).collect(), windows.iter().map(window).collect())
}
