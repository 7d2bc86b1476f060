//! The timeline: what events become on the tracks of their processes.

use std::collections::HashMap;

use transom_system::trace::{Event, What};

use super::ids::Ids;
use super::lanes::{Lane, Lanes};
use super::limit::{LeftOut, Limit};
use super::looks::{HELD, Look};
use super::named;
use super::packets::{Argument, Flows, Packets, Title, Track};
use super::pair::{self, Pair};
use super::shared::SharedQueues;

/// All processes, and the packets that tell of them.
pub(super) struct Timeline {
    pub(super) packets: Packets,
    processes: Vec<Process>,
    limit: Limit,
    left_out: Option<Track>,
    anomalies: Option<Track>,
    /// What has been told so far.
    pub(super) told: Told,
    /// Processes that ended before anything of them could be read.
    pub(super) unheard: usize,
}

/// How much was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) requests: u64,
    pub(super) refusals: u64,
    /// Requests that had not ended when their process did, or the trace.
    pub(super) under_way: u64,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// How often it is told how many requests are under way, in nanoseconds, while that changes.
const OFTEN: u64 = 1_000_000;

/// A process by its number here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(usize);

/// A process.
struct Process {
    slot: u8,
    /// It may still be reached.
    runs: bool,
    /// It has stopped recording, and has not begun again, nor has anybody looked at it since.
    is_paused: bool,
    track: Track,
    refused: Option<Track>,
    revocations: Option<Track>,
    /// One of them waits, and that is shown.
    is_revoking: bool,
    memory: Lanes,
    /// What is open, by slot.
    objects: HashMap<u64, Open>,
    pairs: HashMap<u32, Pair>,
    /// Those that something has happened to since they were idle.
    busy: Vec<u32>,
    shared: SharedQueues,
    ids: Ids,
    sent: Track,
    under_way: UnderWay,
    /// How many bytes it had sent at the last look, and when that was.
    bytes: Option<(u64, u64)>,
    missed: u64,
}

/// How many requests are under way.
struct UnderWay {
    track: Track,
    count: u64,
    /// Since when it is so.
    since: u64,
    /// What was told of it, and since when that is so.
    told: (u64, u64),
}

/// A region or window that is open.
struct Open {
    lane: Lane,
    track: Track,
    what: Range,
    /// Since when it is shown.
    since: u64,
}

/// What is open: its key, place and rights.
type Range = (u32, u64, u64, u64);

/// Whether an event neither begins nor ends anything that others tell of.
fn is_whole(what: What) -> bool {
    match what {
        What::CarriedOut
        | What::Refused
        | What::Changed
        | What::Counted
        | What::Connects
        | What::Managed
        | What::ReceivePosted
        | What::Received => true,
        What::Posted
        | What::Sent
        | What::Waits
        | What::Ended
        | What::Reached
        | What::Came
        | What::Touched
        | What::Opened
        | What::Closed => false,
    }
}

fn what_is_open(event: &Event) -> Range {
    (event.key, event.address, event.length, event.detail & 0xffff_ffff)
}

impl Timeline {
    /// Nothing yet; at most so many bytes a second.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            packets: Packets::new(),
            processes: Vec::new(),
            limit: Limit::new(limit),
            left_out: None,
            anomalies: None,
            told: Told::default(),
            unheard: 0,
        }
    }

    /// How many processes there were.
    pub(super) fn processes(&self) -> usize {
        self.processes.len()
    }

    /// How many events are left out for the limit.
    pub(super) fn left_out(&self) -> u64 {
        self.limit.total()
    }

    /// How many events were missed.
    pub(super) fn missed(&self) -> u64 {
        self.processes.iter().map(|process| process.missed).sum()
    }

    /// A process comes.
    pub(super) fn process(&mut self, pid: u32, name: &str, slot: u8) -> Number {
        let packets = &mut self.packets;
        let track = packets.process(pid, name);
        let memory = packets.below(track, "memory", 2);
        self.processes.push(Process {
            slot,
            runs: true,
            is_paused: false,
            track,
            refused: None,
            revocations: None,
            is_revoking: false,
            memory: Lanes::new(memory, "regions and windows", 0),
            objects: HashMap::new(),
            pairs: HashMap::new(),
            busy: Vec::new(),
            shared: SharedQueues::new(track),
            ids: Ids::new(track),
            sent: packets.counter(track, "sent", "bytes/s", 3),
            under_way: UnderWay {
                track: packets.counter(track, "requests under way", "requests", 4),
                count: 0,
                since: 0,
                told: (0, 0),
            },
            bytes: None,
            missed: 0,
        });
        Number(self.processes.len() - 1)
    }

    /// Takes an event. They come in order of time. `sentence` knows why something was refused.
    pub(super) fn event(
        &mut self,
        of: Number,
        event: &Event,
        sentence: impl FnOnce(&Event) -> Option<String>,
    ) {
        // A thread that had seen that it is recorded may still record a beginning, but not the end. What is whole in
        // itself is told all the same.
        if self.processes[of.0].is_paused && !is_whole(event.what) {
            return;
        }
        if self.told.first == 0 {
            self.told.first = event.time;
        }
        self.told.last = self.told.last.max(event.time);
        if let Some(left) = self.limit.advance(event.time, self.packets.bytes()) {
            self.say_left_out(left);
        }
        let written = self.packets.bytes();
        let leaves = match event.what {
            // They say how something goes on that is told of.
            What::Ended | What::Closed | What::Touched => false,
            What::Opened
            | What::Refused
            | What::Changed
            | What::Sent
            | What::Waits
            | What::Connects
            | What::Managed => self.limit.leaves_out_rare(event.time, written),
            _ => self.limit.leaves_out(event.time, written),
        };
        match leaves {
            true => self.processes[of.0].goes_on(&mut self.packets, event),
            false => self.tell(of, event, sentence),
        }
    }

    fn tell(&mut self, of: Number, event: &Event, sentence: impl FnOnce(&Event) -> Option<String>) {
        let Self { packets, processes, told, .. } = self;
        let process = &mut processes[of.0];
        match event.what {
            What::Opened => return process.opened(packets, event),
            What::Closed => return process.closed(packets, event),
            What::Connects | What::Managed => return process.ids.tell(packets, event),
            What::Refused => {
                told.refusals += 1;
                let sentence = sentence(event);
                return process.refused(packets, event, sentence);
            }
            What::ReceivePosted if event.qp == 0 => return process.shared.posted(packets, event),
            What::Received if event.key != 0 => process.shared.received(packets, event),
            _ => {}
        }
        let pair = process.pair(packets, event.qp);
        let depth = pair.depth();
        let reached = match event.what {
            What::Posted => {
                told.requests += 1;
                pair.posted(packets, event);
                None
            }
            What::CarriedOut => {
                told.requests += 1;
                Some((event.detail, pair.carried_out(packets, event)))
            }
            What::Reached => pair.reached(packets, event).map(|flow| (event.time, flow)),
            other => {
                match other {
                    What::Ended => pair.ended(packets, event),
                    What::Sent => pair.sent(packets, event),
                    What::Waits => pair.waits(packets, event),
                    What::Came => pair.came(packets, event),
                    What::Touched => pair.touched(packets, event),
                    What::Received => pair.received(packets, event),
                    What::ReceivePosted => pair.receive_posted(packets, event),
                    _ => pair.changed(packets, event),
                }
                None
            }
        };
        let change = pair.depth().cast_signed() - depth.cast_signed();
        process.under_way.change(packets, event.time, change);
        if let Some((begun, flow)) = reached {
            self.is_reached(event, begun, flow);
        }
    }

    /// The target of the direct way, which does not see it itself.
    fn is_reached(&mut self, event: &Event, begun: u64, flow: u64) {
        let slot = (event.peer >> 16) as u8;
        let packets = &mut self.packets;
        // Those that run are among the last ones.
        let mut newest = self.processes.iter_mut().rev();
        if let Some(target) = newest.find(|it| it.runs && it.slot == slot) {
            target.pair(packets, event.peer).is_reached(packets, event, begun, flow);
        }
    }

    fn say_left_out(&mut self, left: LeftOut) {
        let packets = &mut self.packets;
        let track = *self.left_out.get_or_insert_with(|| packets.alone("left out by --limit"));
        let title = Title::Once(format!("{} events are left out", left.events));
        let arguments = [("events", Argument::Number(left.events))];
        packets.begin(track, left.since, &title, Flows::default(), &arguments);
        packets.end(track, left.until, &[]);
    }

    /// Marks what went wrong, beside the processes.
    pub(super) fn anomaly(&mut self, time: u64, words: String) {
        let packets = &mut self.packets;
        let track = *self.anomalies.get_or_insert_with(|| packets.alone("anomalies"));
        packets.mark(track, time, &Title::Once(words), Flows::default(), &[]);
    }

    /// Marks something about a process.
    pub(super) fn note(&mut self, of: Number, time: u64, words: String) {
        let track = self.processes[of.0].track;
        self.packets.mark(track, time, &Title::Once(words), Flows::default(), &[]);
    }

    /// So many events of a process were missed so far.
    pub(super) fn note_missed(&mut self, of: Number, time: u64, missed: u64) {
        let process = &mut self.processes[of.0];
        if missed > process.missed {
            let words = format!("{} events were missed", missed - process.missed);
            process.missed = missed;
            self.note(of, time, words);
        }
    }

    /// Tells the values of a process: how much it has sent since the last look, and how much is under way. `sent` adds up
    /// how many bytes it has sent so far, which takes a while. It is asked ten times a second, and at the last look.
    pub(super) fn look(&mut self, of: Number, now: u64, is_last: bool, sent: impl FnOnce() -> u64) {
        let packets = &mut self.packets;
        let process = &mut self.processes[of.0];
        let is_due = |(_, last)| is_last || now.saturating_sub(last) >= 100_000_000;
        if process.bytes.is_none_or(is_due) {
            let sent = sent();
            if let Some((before, last)) = process.bytes.replace((sent, now)) {
                let rate = u128::from(sent.saturating_sub(before)) * 1_000_000_000;
                let rate = rate.checked_div(now.saturating_sub(last).into()).unwrap_or(0);
                packets.value(process.sent, last, u64::try_from(rate).unwrap_or(u64::MAX));
            }
            if is_last {
                packets.value(process.sent, now, 0);
            }
        }
        let pairs = &mut process.pairs;
        process.busy.retain(|number| {
            let Some(pair) = pairs.get_mut(number) else { return false };
            pair.look(packets, now.saturating_sub(HELD));
            pair.stays_busy()
        });
        process.under_way.tell(packets);
    }

    /// A process ends, or the trace does.
    pub(super) fn end(&mut self, of: Number, time: u64) {
        let (packets, process) = (&mut self.packets, &mut self.processes[of.0]);
        if std::mem::take(&mut process.runs) {
            self.told.under_way += process.pairs.values().map(Pair::under_way).sum::<u64>();
            process.close(packets, time);
            process.forget();
        }
    }

    /// How many objects of processes are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        let of = |it: &Process| it.objects.len() + it.pairs.len() + it.busy.len();
        self.processes.iter().map(of).sum()
    }

    /// Somebody has looked what is open of a process at this moment. All its events until then are told.
    pub(super) fn looked(&mut self, of: Number, time: u64, look: &Look) {
        let process = &mut self.processes[of.0];
        process.is_paused = false;
        process.close_ended(&mut self.packets, time, &look.ended);
        let new: Vec<_> = look.open.iter().filter(|event| !process.has(event)).collect();
        new.into_iter().for_each(|event| self.event(of, event, |_| None));
    }

    /// A process has stopped recording. Nobody knows how what it has begun goes on.
    pub(super) fn pause(&mut self, of: Number, time: u64) {
        let time = time.max(self.told.last);
        let process = &mut self.processes[of.0];
        process.is_paused = true;
        process.close(&mut self.packets, time);
        self.note(of, time, "nothing is recorded from here on".into());
    }

    /// A process records again. What it begins from now on is shown. What is open, the next look tells.
    pub(super) fn resume(&mut self, of: Number) {
        self.processes[of.0].is_paused = false;
    }

    /// A revocation of a process waits for the one with this PID, or none does any more.
    pub(super) fn revoking(&mut self, of: Number, time: u64, whom: Option<u32>) {
        let (packets, process) = (&mut self.packets, &mut self.processes[of.0]);
        process.end_revoking(packets, time);
        if let Some(pid) = whom {
            let below = || packets.below(process.track, "revocations", 2);
            let track = *process.revocations.get_or_insert_with(below);
            let title = Title::Once(format!("waits for process {pid}"));
            packets.begin(track, time, &title, Flows::default(), &[]);
            process.is_revoking = true;
        }
    }

    /// The slot of a process.
    pub(super) fn slot(&self, of: Number) -> u8 {
        self.processes[of.0].slot
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self, time: u64) {
        let time = time.max(self.told.last);
        (0..self.processes.len()).for_each(|number| self.end(Number(number), time));
        if let Some(left) = self.limit.end(time) {
            self.say_left_out(left);
        }
    }
}

impl UnderWay {
    /// So many more are under way, or fewer.
    fn change(&mut self, packets: &mut Packets, time: u64, by: i64) {
        self.set(packets, time, self.count.saturating_add_signed(by));
    }

    fn set(&mut self, packets: &mut Packets, time: u64, count: u64) {
        if self.count == count {
            return;
        }
        (self.count, self.since) = (count, time);
        // A busy program changes it a million times a second.
        if time.saturating_sub(self.told.1) >= OFTEN {
            self.tell(packets);
        }
    }

    fn tell(&mut self, packets: &mut Packets) {
        if self.told.0 != self.count {
            packets.value(self.track, self.since, self.count);
            self.told = (self.count, self.since);
        }
    }
}

impl Process {
    fn pair(&mut self, packets: &mut Packets, number: u32) -> &mut Pair {
        let track = self.track;
        let pair = self.pairs.entry(number).or_insert_with(|| Pair::new(packets, track, number));
        if pair.becomes_busy() {
            self.busy.push(number);
        }
        pair
    }

    /// An event is not told. If it ends a wait that is, the wait ends all the same.
    fn goes_on(&mut self, packets: &mut Packets, event: &Event) {
        let position = match event.what {
            What::Sent | What::Waits => event.number,
            What::Reached => event.detail,
            _ => return,
        };
        if let Some(pair) = self.pairs.get_mut(&event.qp) {
            pair.end_wait(packets, event.time, position);
        }
    }

    fn opened(&mut self, packets: &mut Packets, event: &Event) {
        // Who looks is told what is open, and it may have been opened just then.
        if self.has(event) {
            return;
        }
        self.closed(packets, event);
        let (lane, track) = self.memory.take(packets);
        let kind = named::kind(event.code);
        let covers_all = event.length == u64::MAX;
        let bytes = match covers_all {
            true => "all addresses".to_owned(),
            false => format!("{} bytes", event.length),
        };
        let title = Title::Once(format!("{kind} {:#010x}, {bytes}", event.key));
        let mut arguments = vec![
            ("key", Argument::Hex(event.key.into())),
            ("base", Argument::Hex(event.address)),
            ("rights", Argument::Text(named::rights(event.detail & 0xffff_ffff))),
        ];
        if !covers_all {
            arguments.insert(2, ("bytes", Argument::Number(event.length)));
        }
        if event.qp != 0 {
            arguments.push(("queue pair", Argument::Hex(event.qp.into())));
        }
        packets.begin(track, event.time, &title, Flows::default(), &arguments);
        let (what, since) = (what_is_open(event), event.time);
        self.objects.insert(event.number, Open { lane, track, what, since });
    }

    /// Whether it is shown already that this is open.
    fn has(&self, event: &Event) -> bool {
        self.objects.get(&event.number).is_some_and(|open| open.what == what_is_open(event))
    }

    /// Ends what is not open any more: it began before the last object of its slot had ended.
    fn close_ended(&mut self, packets: &mut Packets, time: u64, ended: &[(u64, u64)]) {
        for (slot, at) in ended {
            if self.objects.get(slot).is_some_and(|open| open.since < *at) {
                self.end_object(packets, time, *slot);
            }
        }
    }

    fn end_revoking(&mut self, packets: &mut Packets, time: u64) {
        if let Some(track) = self.revocations.filter(|_| std::mem::take(&mut self.is_revoking)) {
            packets.end(track, time, &[]);
        }
    }

    /// Ends all that has begun.
    fn close(&mut self, packets: &mut Packets, time: u64) {
        self.end_revoking(packets, time);
        self.pairs.values_mut().for_each(|pair| pair.close(packets, time));
        self.under_way.set(packets, time, 0);
        self.under_way.tell(packets);
        for (_, Open { lane, track, .. }) in self.objects.drain() {
            packets.end(track, time, &[]);
            self.memory.give_back(lane);
        }
    }

    /// Forgets its objects: it has ended, and the trace may go on for long.
    fn forget(&mut self) {
        (self.objects, self.pairs, self.busy) = Default::default();
        (self.shared, self.ids) = (SharedQueues::new(self.track), Ids::new(self.track));
    }

    fn closed(&mut self, packets: &mut Packets, event: &Event) {
        self.end_object(packets, event.time, event.number);
    }

    fn end_object(&mut self, packets: &mut Packets, time: u64, slot: u64) {
        if let Some(Open { lane, track, .. }) = self.objects.remove(&slot) {
            packets.end(track, time, &[]);
            self.memory.give_back(lane);
        }
    }

    fn refused(&mut self, packets: &mut Packets, event: &Event, sentence: Option<String>) {
        let process = self.track;
        let track = *self.refused.get_or_insert_with(|| packets.below(process, "refused", 1));
        let sentence = sentence.unwrap_or_else(|| named::reason(event.code, event.more));
        let mut arguments = vec![
            ("operation", Argument::Word(named::refused(event.more))),
            ("queue pair", Argument::Hex(event.qp.into())),
        ];
        arguments.extend(pair::other_end("by queue pair", event.peer));
        arguments.extend([
            ("key", Argument::Hex(event.key.into())),
            ("address", Argument::Hex(event.address)),
            ("bytes", Argument::Number(event.length)),
        ]);
        packets.mark(track, event.time, &Title::Once(sentence), Flows::default(), &arguments);
    }
}
