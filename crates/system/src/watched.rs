//! A process that is watched: its segment, and its events from the beginning of the watch on.

use std::os::fd::OwnedFd;

use transom_device::protection::Announcer;

use crate::clock;
use crate::registry::{Process, Registry};
use crate::segment::Segment;
use crate::tools::Tool;
use crate::trace::{Event, Tail};
use crate::wanted::{LASTS, Turn};

/// How often to ask again for what is wanted, in nanoseconds.
const RENEWED: u64 = LASTS / 4;

/// A process of the registry whose events are recorded as long as this is [refreshed](Watched::refresh).
pub struct Watched {
    registry: &'static Registry,
    process: Process,
    segment: Segment,
    wake: Option<OwnedFd>,
    tools: &'static [Tool],
    /// Where the watch began, and how far it has come.
    began: Tail,
    tail: Tail,
    asked: u64,
}

impl Watched {
    /// Begins to watch a process, and has it turn on these tools. `None` if it cannot be reached.
    pub fn new(
        registry: &'static Registry,
        process: &Process,
        tools: &'static [Tool],
    ) -> Option<Self> {
        let mut watched = Self::reached(registry, process, tools)?;
        watched.begin();
        Some(watched)
    }

    /// Reaches a process, and does not ask it for anything yet. What it records from now on, because somebody else asks,
    /// is seen, even if it has ended until then.
    pub fn reached(
        registry: &'static Registry,
        process: &Process,
        tools: &'static [Tool],
    ) -> Option<Self> {
        let segment = Segment::of(process)?;
        let began = Tail::from_now(segment.events());
        let wake = registry.wake_of(process.announcer.slot).ok();
        let process = process.clone();
        Some(Self { registry, process, segment, wake, tools, began, tail: began, asked: 0 })
    }

    /// Has it turn on the tools.
    pub fn begin(&mut self) {
        self.asked = clock::steady();
        self.ask();
        self.wake();
    }

    fn ask(&self) {
        self.tools.iter().for_each(|tool| self.segment.header().wanted.ask(*tool));
    }

    fn wake(&self) {
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &[0]);
        }
    }

    /// Asks again for what is wanted, when it is time. Call it at least twice a second.
    pub fn refresh(&mut self) {
        if clock::steady().saturating_sub(self.asked) >= RENEWED {
            // It wakes the process too: its tools may be off, if this process was stopped.
            self.begin();
        }
    }

    /// Reads the events since the last time.
    pub fn events(&mut self, each: impl FnMut(Event)) {
        self.tail.read(self.segment.events(), clock::steady(), each);
    }

    /// Reads the last events of a process that has ended, or that nobody watches any longer. It waits for none.
    pub fn last_events(&mut self, each: impl FnMut(Event)) {
        self.tail.read_last(self.segment.events(), each);
    }

    /// Goes back to the beginning of the watch. What is read next is the oldest event since then that is still there;
    /// those before it count as missed.
    pub fn rewind(&mut self) {
        self.tail = self.began;
    }

    /// How many events could not be read.
    pub fn missed(&self) -> u64 {
        self.tail.missed()
    }

    /// Whether the process records its events now. It needs a moment for that, and may have no memory for them.
    pub fn turn(&self) -> Turn {
        self.segment.header().wanted.turn(Tool::Events)
    }

    /// When it began to record them at this turn, and when it ceased, as [`Wanted::times`].
    ///
    /// [`Wanted::times`]: crate::wanted::Wanted::times
    pub fn times(&self, turn: Turn) -> Option<(u64, u64)> {
        self.segment.header().wanted.times(Tool::Events, turn)
    }

    /// Whether it is stopped, by a signal or a debugger.
    pub fn is_stopped(&self) -> bool {
        self.process.is_stopped(self.process.pid)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its slot and stay.
    pub fn announcer(&self) -> Announcer {
        self.process.announcer
    }

    /// What it shares. It stays after the process has ended.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether it still has its device. What it has recorded before it ended can be read after that.
    pub fn is_alive(&self) -> bool {
        self.registry.is_alive(self.process.announcer)
    }
}
