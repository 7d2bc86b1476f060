//! A process whose threads lose their processor between any two steps, and what is shown of it.

use std::collections::{HashMap, VecDeque};

use transom_system::trace::{Event, What, flow};
use transom_system::wanted::Turn;

use super::super::held::{Held, Seen};
use super::super::looks::{Look, Looks};
use super::super::recordings::Recordings;
use super::super::shown::Reader;
use super::super::timeline::Timeline;

const MS: u64 = 1_000_000;
/// How many threads there are, each with a region of its own that it registers and gives back.
const THREADS: u32 = 4;

/// A step of a thread.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It sees whether anything is recorded.
    Look,
    /// It records this, if it has seen so.
    Record(What),
    Open,
    Close,
    /// It notes when it ended.
    Note,
}

#[derive(Default)]
struct Thread {
    steps: VecDeque<Step>,
    /// When it takes the next one.
    at: u64,
    has_seen: bool,
    key: u32,
    is_open: bool,
    ended: u64,
}

/// The threads, and what they have recorded.
struct Process {
    random: u64,
    threads: Vec<Thread>,
    ring: Vec<Event>,
    /// When each key was told of or opened, whatever came first.
    begun: HashMap<u32, u64>,
}

impl Process {
    fn new(seed: u64) -> Self {
        let threads = (0..THREADS).map(|_| Thread::default()).collect();
        Self { random: seed, threads, ring: Vec::new(), begun: HashMap::new() }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = flow([self.random, limit]);
        (self.random >> 32) % limit
    }

    /// A millisecond passes.
    fn go_on(&mut self, ms: u64, is_recorded: bool, begins: bool) {
        for slot in 0..THREADS {
            let pause = if self.below(25) == 0 { self.below(150) } else { self.below(3) };
            let thread = &mut self.threads[slot as usize];
            if thread.at > ms {
                continue;
            }
            if thread.steps.is_empty() && begins {
                let steps = if thread.is_open {
                    // The processor may let a look pass before a write.
                    match pause % 2 {
                        0 => [Step::Close, Step::Look, Step::Record(What::Closed), Step::Note],
                        _ => [Step::Look, Step::Close, Step::Record(What::Closed), Step::Note],
                    }
                    .into()
                } else {
                    thread.key += THREADS;
                    [Step::Look, Step::Record(What::Opened), Step::Open].into()
                };
                thread.steps = steps;
            }
            let time = ms * MS + 1;
            match thread.steps.pop_front() {
                Some(Step::Look) => thread.has_seen = is_recorded,
                Some(Step::Record(what)) if thread.has_seen => {
                    self.begun.entry(thread.key + slot).or_insert(time);
                    self.ring.push(event(what, time, slot, thread.key));
                }
                Some(Step::Open) => {
                    self.begun.entry(thread.key + slot).or_insert(time);
                    thread.is_open = true;
                }
                Some(Step::Close) => thread.is_open = false,
                Some(Step::Note) => thread.ended = time,
                _ => {}
            }
            thread.at = ms + 1 + pause;
        }
    }

    fn look(&self, time: u64) -> Look {
        let mut look = Look::default();
        for (slot, it) in (0..).zip(&self.threads) {
            match it.is_open {
                true => look.open.push(event(What::Opened, time, slot, it.key)),
                false => look.ended.push((slot.into(), it.ended)),
            }
        }
        look
    }
}

fn event(what: What, time: u64, slot: u32, key: u32) -> Event {
    Event { time, key: key + slot, number: slot.into(), length: 1, ..Event::of(what) }
}

/// Rules: SEE-50
#[test]
fn what_is_shown_at_the_end_is_open_whenever_threads_lose_their_processor() {
    for seed in 0..200 {
        shown_is_open(seed);
    }
}

/// The process is watched from 200 ms on. Its reader is away from 700 to 1,100 ms, and nothing is recorded from 800 ms on
/// until it is back, except from 900 to 1,000 ms, for another reader. Soon after it is watched, or watched again, the process begins nothing new: what would come later
/// would hide what was missed.
fn shown_is_open(seed: u64) {
    const PAUSED: u64 = 800;
    const AGAIN: u64 = 900;
    const PAUSED_AGAIN: u64 = 1000;
    const BACK: u64 = 1100;
    const END: u64 = 3000;
    let stops = if seed.is_multiple_of(2) { 200 } else { BACK } + seed % 40;
    let mut process = Process::new(seed);
    let mut timeline = Timeline::new(u64::MAX);
    let number = timeline.process(7, "program", 3);
    let mut recordings = Recordings::new(Turn(0), 0);
    let (mut looks, mut held, mut read) = (Looks::new(0), Held::default(), 0);
    let times = |Turn(turn)| {
        let (begun, ended) = match turn {
            1 => (200, PAUSED),
            3 => (AGAIN, PAUSED_AGAIN),
            _ => (BACK, u64::MAX / MS),
        };
        Some((begun * MS, ended * MS))
    };
    for ms in 0..=END {
        let turn = Turn(match ms {
            0..200 => 0,
            200..PAUSED => 1,
            PAUSED..AGAIN => 2,
            AGAIN..PAUSED_AGAIN => 3,
            PAUSED_AGAIN..BACK => 4,
            _ => 5,
        });
        process.go_on(ms, turn.is_on(), ms < stops);
        if (700..=BACK).contains(&ms) {
            continue;
        }
        let now = ms * MS + 2;
        for (time, change) in recordings.changes(turn, now, times) {
            held.add(time, number, change);
        }
        if looks.next(now, turn, ms == END, || false) {
            held.add(now, number, Seen::Look(process.look(now)));
        }
        for event in &process.ring[read..] {
            held.add(event.time, number, Seen::Event(*event));
        }
        read = process.ring.len();
        match ms {
            END => held.tell(u64::MAX, &mut timeline, |_, _| None),
            _ => held.tell_old(now, &mut timeline, |_, _| None),
        }
    }
    let end = (END + 1) * MS;
    timeline.finish(end);
    let mut reader = Reader::default();
    let mut open_at_the_end = Vec::new();
    let mut last_end: HashMap<u32, u64> = HashMap::new();
    let paused = [(PAUSED * MS, AGAIN * MS), (PAUSED_AGAIN * MS, BACK * MS)];
    for packet in &timeline.packets.take() {
        let Some((_, Some(bar))) = reader.take(packet) else { continue };
        let Some((_, key)) = bar.name.split_once(" 0x") else { continue };
        let key = u32::from_str_radix(key.split(',').next().unwrap(), 16).unwrap();
        let over = bar.time + bar.took.expect("it has ended");
        assert!(bar.time >= process.begun[&key], "seed {seed}: {key:#x} before it was opened");
        if over == end {
            open_at_the_end.push(key);
        }
        // It is one bar, unless nobody knew meanwhile.
        if let Some(before) = last_end.insert(key, over) {
            let nobody_knew = paused.iter().any(|(at, back)| before >= *at && bar.time >= *back);
            assert!(nobody_knew, "seed {seed}: {key:#x} ends at {before}, and is shown again");
        }
        for (paused, back) in paused {
            let is_shown = bar.time < back && over > paused;
            assert!(!is_shown, "seed {seed}: {key:#x} is shown while nobody knows");
        }
    }
    let mut open: Vec<_> = process.look(0).open.iter().map(|it| it.key).collect();
    open.sort_unstable();
    open_at_the_end.sort_unstable();
    assert_eq!(open_at_the_end, open, "seed {seed}");
}
