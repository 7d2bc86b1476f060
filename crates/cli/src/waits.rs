//! What processes wait for: requests that have not ended, and completions that are not polled or will never come.
//!
//! A process shows in its segment how its queues stand, when somebody asks. What two looks find unmoved has waited for
//! the time between them. So posts and polls do nothing for it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use transom_device::execution::Tally;
use transom_device::protection::Announcer;
use transom_device::qp::{Gate, Presence, QpNumber, QpState, QpSummary, Service};
use transom_system::catalog::{Listed, Number, Standing};
use transom_system::clock::steady;
use transom_system::registry::{Found, Process, Registry};
use transom_system::segment::Segment;
use transom_system::traffic::{Carried, Depths, Totals, Way};
use transom_system::wanted::Question;

use crate::sentence::counted;

/// Nothing that has waited for less than this is told of, in nanoseconds.
pub(crate) const LONG: u64 = 1_000_000_000;
/// Two looks that are a second apart may be as much nearer.
const ABOUT: u64 = LONG - LONG / 20;
/// What a process has given up is told of for this long.
const KEPT: u64 = 10_000_000_000;
/// How long a look waits for the answers of processes. One that is stopped does not answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// The processes that are looked at.
pub(crate) struct Waits {
    registry: &'static Registry,
    processes: HashMap<(u8, u32), Looked>,
}

/// A process that is looked at.
struct Looked {
    process: Process,
    /// What it shows, and the pipe that wakes it. Not held after its end: its memory goes with its last user.
    reached: Option<(Segment, Option<OwnedFd>)>,
    things: Vec<Thing>,
    /// The empty polls of its completion queues at the last look.
    polls: HashMap<Number, u32>,
}

/// Something that waits, as two looks tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Requests of a queue pair have not ended.
    Requests(u16),
    /// Requests of a queue pair have ended without a completion.
    Silent(u16),
    /// Completions are not polled.
    Completions(Number),
}

/// Something that waits.
struct Thing {
    what: What,
    /// If this changes, something has moved.
    mark: [u64; 2],
    /// When it was first and last seen so, on the steady clock.
    since: u64,
    last: u64,
    /// How often the peer had asked to wait for a receive.
    not_ready: u64,
    /// It has asked meanwhile.
    lacks_receive: bool,
    /// The queue pair, or the first one that completes to the queue.
    qp: QpNumber,
    sentence: String,
}

/// Something that has waited for long.
pub(crate) struct Told<'a> {
    pub(crate) process: &'a Process,
    pub(crate) reason: &'static str,
    pub(crate) qp: u32,
    /// When it was first and last seen to wait, on the steady clock.
    pub(crate) since: u64,
    pub(crate) last: u64,
    /// The same for people.
    pub(crate) sentence: &'a str,
}

/// A queue pair.
struct Pair<'a> {
    index: u16,
    number: QpNumber,
    summary: &'a QpSummary,
    gate: Gate,
    depths: Depths,
    totals: Totals,
}

impl Waits {
    pub(crate) fn new(registry: &'static Registry) -> Self {
        Self { registry, processes: HashMap::new() }
    }

    /// Looks at these processes.
    pub(crate) fn look(&mut self, processes: impl IntoIterator<Item = Announcer>) {
        self.processes.retain(|_, looked| {
            if !self.registry.is_alive(looked.process.announcer) {
                looked.reached = None;
            }
            looked.reached.is_some() || !looked.things.is_empty()
        });
        let mut asked = Vec::new();
        for of in processes {
            if let Some(question) = self.ask(of) {
                asked.push((of, question));
            }
        }
        let end = Instant::now() + PATIENCE;
        while !asked.is_empty() {
            asked.retain(|(of, question)| {
                let key = (of.slot, of.generation);
                let Some(looked) = self.processes.get_mut(&key) else { return false };
                let Some((segment, _)) = &looked.reached else { return false };
                let has_answered = segment.header().wanted.has_answered(*question);
                if has_answered {
                    looked.read(self.registry, steady());
                }
                !has_answered && self.registry.is_alive(*of)
            });
            if Instant::now() >= end {
                return;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Asks a process how its queues stand, if it still has its device.
    fn ask(&mut self, of: Announcer) -> Option<Question> {
        let key = (of.slot, of.generation);
        let is_this = |process: &Process| process.announcer == of && process.alive;
        let process = self.registry.process(of.slot).filter(is_this)?;
        if !self.processes.contains_key(&key) {
            let segment = Segment::of(&process)?;
            let reached = Some((segment, self.registry.wake_of(of.slot).ok()));
            let (things, polls) = (Vec::new(), HashMap::new());
            self.processes.insert(key, Looked { process, reached, things, polls });
        }
        let (segment, wake) = self.processes.get(&key)?.reached.as_ref()?;
        let question = segment.header().wanted.ask_how_it_stands();
        if let Some(wake) = wake {
            let _ = rustix::io::write(wake, &[0]);
        }
        Some(question)
    }

    /// Whether anything waits.
    pub(crate) fn is_any(&self) -> bool {
        self.processes.values().any(|looked| !looked.things.is_empty())
    }

    /// What has waited for long. What processes waited for that have ended without closing their device is among it.
    pub(crate) fn told(&self) -> Vec<Told<'_>> {
        let now = steady();
        let mut all: Vec<_> = self.processes.values().collect();
        all.sort_by_key(|looked| (looked.process.pid, looked.process.device));
        let of_each = all.into_iter().flat_map(|looked| {
            let of = looked.process.announcer;
            let now_there = self.registry.process(of.slot).filter(|it| it.announcer == of);
            let was_cut_off = now_there.is_some_and(|it| !it.alive && !it.closed);
            let is_told = move |thing: &&Thing| {
                let is_lately = now.saturating_sub(thing.last) < KEPT;
                thing.last - thing.since >= ABOUT && (is_lately || was_cut_off)
            };
            let told = looked.things.iter().filter(is_told);
            told.map(|thing| thing.told(&looked.process))
        });
        of_each.collect()
    }
}

impl Looked {
    /// Reads how its queues stand.
    fn read(&mut self, registry: &Registry, now: u64) {
        let Some((segment, _)) = &self.reached else { return };
        let (pairs, queues) = (pairs(segment, self.process.announcer.slot), queues(segment));
        let mut things = Vec::new();
        for pair in &pairs {
            let (what, mark) = match pair.depths {
                Depths { sends: 1.., .. } => (What::Requests(pair.index), [ended(&pair.totals), 0]),
                Depths { silent: silent @ 1.., completions: 0, .. }
                    if pair.gate.state == QpState::Rts =>
                {
                    (What::Silent(pair.index), [ended(&pair.totals), silent.into()])
                }
                _ => continue,
            };
            let not_ready = pair.totals.tally(Tally::NotReady);
            let mut thing = self.thing(what, pair.number, mark, not_ready, now);
            thing.sentence = match what {
                What::Silent(_) => silent(pair),
                _ => requests(registry, pair, &thing),
            };
            things.push(thing);
        }
        for (number, standing) in &queues {
            if standing.waiting == 0 {
                continue;
            }
            let Some((first, is_for)) = role(*number, &pairs) else { continue };
            let mark = [standing.waiting, standing.polls].map(u64::from);
            let mut thing = self.thing(What::Completions(*number), first, mark, 0, now);
            let is_polled = |(other, now): &&(Number, Standing)| {
                self.polls.get(other).is_some_and(|before| now.waiting == 0 && *before != now.polls)
            };
            let polled = queues.iter().find(is_polled);
            let polled = polled.and_then(|(other, _)| Some(role(*other, &pairs)?.1));
            thing.sentence = completions(*standing, &is_for, polled.as_deref(), &thing);
            things.push(thing);
        }
        // The program may end something and then fail, because it has waited for long.
        let is_there = |what: What| match what {
            What::Requests(index) | What::Silent(index) => {
                pairs.iter().any(|pair| pair.index == index)
            }
            What::Completions(number) => queues.iter().any(|(it, _)| *it == number),
        };
        let given_up = |thing: &Thing| {
            !is_there(thing.what) && thing.last - thing.since >= ABOUT && now - thing.last < KEPT
        };
        things.extend(self.things.extract_if(.., |thing| given_up(thing)));
        self.polls = queues.iter().map(|(number, it)| (*number, it.polls)).collect();
        self.things = things;
    }

    /// Something that waits now, since the first look that found it so.
    fn thing(&self, what: What, qp: QpNumber, mark: [u64; 2], not_ready: u64, now: u64) -> Thing {
        let before = self.things.iter().find(|it| it.what == what && it.mark == mark);
        let has_asked = |it: &Thing| it.lacks_receive || it.not_ready != not_ready;
        Thing {
            what,
            mark,
            since: before.map_or(now, |it| it.since),
            last: now,
            not_ready,
            lacks_receive: before.is_some_and(has_asked),
            qp,
            sentence: String::new(),
        }
    }
}

impl Thing {
    fn told<'a>(&'a self, process: &'a Process) -> Told<'a> {
        let Self { what, since, last, qp, sentence, .. } = self;
        let reason = match what {
            What::Requests(_) => "not_ended",
            What::Silent(_) => "no_completion",
            What::Completions(_) => "not_polled",
        };
        Told { process, reason, qp: qp.bits(), since: *since, last: *last, sentence }
    }

    /// For how long it has been seen.
    fn time(&self) -> String {
        format!("{} s", (self.last - self.since + LONG / 2) / LONG)
    }
}

fn pairs(segment: &Segment, slot: u8) -> Vec<Pair<'_>> {
    let pair = |(index, traffic): (u16, &transom_system::traffic::Traffic)| {
        let summary = segment.qps().summary(index)?;
        let (gate, number) = (summary.gate(), QpNumber::new(slot, index));
        let (depths, totals) = (traffic.depths(), traffic.get());
        (summary.presence() == Presence::Here).then_some(Pair {
            index,
            number,
            summary,
            gate,
            depths,
            totals,
        })
    };
    segment.traffic_of_each().filter_map(pair).collect()
}

fn queues(segment: &Segment) -> Vec<(Number, Standing)> {
    let queue = |(number, listed): (Number, Listed)| {
        let is_queue = matches!(listed, Listed::CompletionQueue { .. });
        Some((number, segment.catalog().standing(number).filter(|_| is_queue)?))
    };
    segment.catalog().all().filter_map(queue).collect()
}

/// How many requests of its own a queue pair has ended.
fn ended(totals: &Totals) -> u64 {
    let sent = Way::ALL.iter().flat_map(|way| Carried::ALL.map(|kind| totals.sent(*way, kind)));
    let tallies = [Tally::SendFailed, Tally::Bound, Tally::Invalidated];
    let others = tallies.iter().map(|tally| totals.tally(*tally));
    sent.map(|amount| amount.messages).chain(others).fold(0, u64::wrapping_add)
}

/// The sentence for requests that have not ended.
fn requests(registry: &Registry, pair: &Pair<'_>, thing: &Thing) -> String {
    let Pair { number, depths, gate, .. } = pair;
    let peer = pair.summary.peering().from;
    let is_connected = matches!(gate.service, Service::Rc | Service::Uc);
    let to = if is_connected { format!(" to QP {:#x}", peer.bits()) } else { String::new() };
    let requests = counted(depths.sends as usize, "request", "requests");
    let have = if depths.sends == 1 { "has" } else { "have" };
    let mut text = format!(
        "{requests} of QP {:#x}{to} {have} not ended for {}: ",
        number.bits(),
        thing.time()
    );
    if gate.state == QpState::Sqd {
        return text
            + "the queue pair is in SQD, where nothing new begins before its program has moved it to RTS";
    }
    if thing.lacks_receive {
        text += &format!(
            "the peer has no receive posted, and has asked {} to wait for one. Have it post \
             receives before this side sends",
            times(thing.not_ready)
        );
        if depths.waits.for_a_receive {
            text += "; rnr_retry is 7, which waits for ever (rule RN-04)";
        }
        return text;
    }
    text += "no answer has come";
    if is_connected && !depths.waits.on_the_wire {
        text += &format!(". {}", found(registry, pair, peer));
    }
    if depths.waits.for_an_answer {
        text += ". timeout is 0, which waits for ever (rule RN-06)";
    }
    text
}

/// What there is at the other end, on this host.
fn found(registry: &Registry, pair: &Pair<'_>, peer: QpNumber) -> Found {
    let process = registry.process(peer.slot());
    let Some(process) = process.filter(|process| process.alive) else { return Found::Ended };
    // That of a process in other namespaces cannot be read.
    let Some(segment) = Segment::of(&process) else { return Found::NoProcess };
    let Some(summary) = segment.qps().summary(peer.index()) else { return Found::NoQueuePair };
    let (gate, peering, first) = (summary.gate(), summary.peering(), pair.summary.first_sent());
    match summary.presence() {
        Presence::Never => Found::NoQueuePair,
        Presence::Gone => Found::Destroyed,
        Presence::Here if gate.service != pair.gate.service.target() => {
            Found::OtherService(gate.service)
        }
        Presence::Here if !gate.receives() => Found::Deaf(gate.state),
        Presence::Here if peering.from != pair.number => Found::OtherPeer(peering.from.bits()),
        Presence::Here if peering.first != first => {
            Found::OtherPsn { awaited: peering.first.value(), sent: first.value() }
        }
        Presence::Here => Found::Ready,
    }
}

/// The sentence for requests that have ended without a completion.
fn silent(pair: &Pair<'_>) -> String {
    let (count, qp) = (pair.depths.silent, pair.number.bits());
    let (requests, none) = match count {
        1 => ("The last request".to_owned(), "It has no completion, for it was not posted"),
        _ => (format!("The last {count} requests"), "None has a completion, for none was posted"),
    };
    let have = if count == 1 { "has" } else { "have" };
    format!(
        "{requests} of QP {qp:#x} {have} ended. {none} with IBV_SEND_SIGNALED. A thread that waits for \
         one waits for ever"
    )
}

/// The sentence for completions that are not polled.
fn completions(standing: Standing, role: &str, polled: Option<&str>, thing: &Thing) -> String {
    let (waits, them) = match standing.waiting {
        1 => ("completion waits", "it"),
        _ => ("completions wait", "them"),
    };
    let mut text = format!(
        "{} {waits} in the {role}, and nobody has polled {them} for {}",
        standing.waiting,
        thing.time()
    );
    match polled {
        Some(other) => text += &format!(". The program polls the {other}, where none is"),
        None if !standing.has_channel => {
            text += ". This queue has no completion channel, so no event tells of it";
        }
        None if !standing.is_armed => {
            text += ". Its completion channel gets no further event before ibv_req_notify_cq is called: \
                     call it, then poll until the queue is empty, then sleep";
        }
        None => {}
    }
    text
}

/// The first queue pair that completes to a completion queue, and what the queue is for, in words.
fn role(number: Number, pairs: &[Pair<'_>]) -> Option<(QpNumber, String)> {
    let number = Number::bits(Some(number));
    let of = |pair: &Pair<'_>| match pair.summary.completes_to() {
        [sends, receives] if sends == number && receives == number => Some("completion queue"),
        [sends, _] if sends == number => Some("send_cq"),
        [_, receives] if receives == number => Some("recv_cq"),
        _ => None,
    };
    let mut all = pairs.iter().filter_map(|pair| Some((of(pair)?, pair.number)));
    let (name, first) = all.next()?;
    let more = all.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some((first, format!("{name} of QP {:#x}{more}", first.bits())))
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
