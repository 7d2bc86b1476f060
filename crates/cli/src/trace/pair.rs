//! A queue pair in the timeline: its requests, what it carries out for its peer, its receives.

use std::collections::VecDeque;

use transom_device::execution::Tally;
use transom_device::qp::QpState;
use transom_system::trace::{self, Event, Handed, What};

use super::lanes::{Lane, Lanes};
use super::named;
use super::packets::{Argument, Flows, Packets, Title, Track};
use super::shared;
use crate::sentence::counted;

/// How long an access of a peer's is waited for after its request has come, in nanoseconds.
const PATIENCE: u64 = 100_000_000;

/// The tracks and the open work of a queue pair.
#[derive(Debug)]
pub(super) struct Pair {
    marks: Track,
    requests: Lanes,
    peer: Track,
    receives: Track,
    /// In the order of their positions.
    open: VecDeque<Open>,
    serves: Option<Serves>,
    /// For want of a receive at its peer, and of its own.
    sends_again: Again,
    comes_again: Again,
    /// The position of a request that was posted before anything was told of the queue pair, and has not ended.
    before: Option<u64>,
    state: Option<u8>,
    /// Something has happened to it since it was idle.
    is_busy: bool,
}

/// A request that has not ended.
#[derive(Debug)]
struct Open {
    position: u64,
    lane: Lane,
    track: Track,
    /// It waits, and that is on its track.
    waits: bool,
}

/// A peer's request that is being carried out.
#[derive(Debug)]
struct Serves {
    message: u64,
    offset: u64,
    /// How much is left to be touched.
    left: u64,
    /// When it last went on.
    last: u64,
}

/// What comes again and again because a receive is missing: a thousand times a second. The first times are told, and how
/// many more there were.
#[derive(Debug, Default)]
struct Again {
    /// How often a receive was missing, without a pause.
    times: u64,
    /// What may be the next time, or the one that succeeds.
    held: Option<Event>,
}

impl Again {
    /// So often it is told.
    const TOLD: u64 = 8;

    /// Whether an event is held until what follows says whether it was one more time.
    fn holds(&mut self, event: &Event) -> bool {
        let holds = self.times >= Self::TOLD;
        self.held = holds.then_some(*event);
        holds
    }

    /// A receive was missing. Whether that is told.
    fn is_told(&mut self) -> bool {
        (self.times, self.held) = (self.times + 1, None);
        self.times <= Self::TOLD
    }

    /// It goes on otherwise: what was held, and how many times were not told.
    fn end(&mut self) -> (Option<Event>, u64) {
        let Self { times, held } = std::mem::take(self);
        (held, times.saturating_sub(Self::TOLD))
    }
}

/// The name of a flow from a segment that is sent to where it is carried out.
fn flow(from: u32, to: u32, message: u64, offset: u64) -> u64 {
    // Within the host the number of the attempt is known at both ends; in packets it is not.
    let message = message & 0xff_ffff;
    trace::flow([from.into(), to.into(), message, offset])
}

/// The name of a flow from a request to its access on the direct way.
fn direct_flow(event: &Event) -> u64 {
    flow(event.qp, event.peer, event.time, event.detail)
}

/// The name of a queue pair's track.
fn track_name(number: u32) -> String {
    format!("QP {number:#x}")
}

/// The number of a queue pair in the name of its track.
pub(super) fn number_in(name: &str) -> Option<u32> {
    u32::from_str_radix(name.strip_prefix("QP 0x")?, 16).ok()
}

/// An argument that names a queue pair at the other end. None if there is none: it is not connected yet.
pub(super) fn other_end(name: &'static str, number: u32) -> Option<(&'static str, Argument)> {
    (number != 0).then(|| (name, Argument::Hex(number.into())))
}

/// The title and the arguments of a request.
fn request(event: &Event) -> (Title, Vec<(&'static str, Argument)>) {
    let mut arguments =
        vec![("bytes", Argument::Number(event.length)), ("wr_id", Argument::Number(event.number))];
    if event.key != 0 {
        arguments.push(("key", Argument::Hex(event.key.into())));
        arguments.push(("address", Argument::Hex(event.address)));
    }
    arguments.extend(other_end("to queue pair", event.peer));
    (Title::Often(named::operation(event.code).to_owned()), arguments)
}

impl Pair {
    /// The tracks of a queue pair below that of its process.
    pub(super) fn new(packets: &mut Packets, process: Track, number: u32) -> Self {
        let group = packets.below(process, &track_name(number), 10);
        Self {
            marks: packets.below(group, "events", 0),
            requests: Lanes::new(group, "requests", 1),
            peer: packets.below(group, "for the peer", 2),
            receives: packets.below(group, "receives", 3),
            open: VecDeque::new(),
            serves: None,
            sends_again: Again::default(),
            comes_again: Again::default(),
            before: None,
            state: None,
            is_busy: false,
        }
    }

    /// Something happens to it. Whether it was idle.
    pub(super) fn becomes_busy(&mut self) -> bool {
        !std::mem::replace(&mut self.is_busy, true)
    }

    /// Whether something is under way. If not, it is idle from now on.
    pub(super) fn stays_busy(&mut self) -> bool {
        self.is_busy = !self.open.is_empty() || self.serves.is_some();
        self.is_busy
    }

    /// How many requests are known to be under way, also one that is not shown.
    pub(super) fn under_way(&self) -> u64 {
        self.depth() + u64::from(self.before.is_some())
    }

    /// How many requests are open.
    pub(super) fn depth(&self) -> u64 {
        self.open.len() as u64
    }

    /// A request was posted.
    pub(super) fn posted(&mut self, packets: &mut Packets, event: &Event) {
        // After a reset the queue begins with position zero again.
        if self.open.back().is_some_and(|last| last.position >= event.detail) {
            self.end_all(packets, event.time, "was not seen");
        }
        let (lane, track) = self.requests.take(packets);
        let (title, arguments) = request(event);
        packets.begin(track, event.time, &title, Flows::default(), &arguments);
        self.open.push_back(Open { position: event.detail, lane, track, waits: false });
    }

    /// A request was carried out as it was posted. Returns the flow to its access.
    pub(super) fn carried_out(&mut self, packets: &mut Packets, event: &Event) -> u64 {
        let (lane, track) = self.requests.take(packets);
        let (title, arguments) = request(event);
        let flow = direct_flow(event);
        let flows = Flows { on: Some(flow), end: None };
        packets.begin(track, event.detail, &title, flows, &arguments);
        packets.end(track, event.time, &[("status", Argument::Word(named::status(0)))]);
        self.requests.give_back(lane);
        flow
    }

    /// A request of the queue was carried out directly. Returns the flow to its access.
    pub(super) fn reached(&mut self, packets: &mut Packets, event: &Event) -> Option<u64> {
        let flow = direct_flow(event);
        let open = self.find(event.detail)?;
        open.end_wait(packets, event.time);
        let flows = Flows { on: Some(flow), end: None };
        packets.mark(open.track, event.time, &Title::Often("direct".into()), flows, &[]);
        Some(flow)
    }

    /// This process's peer has carried out a request in its memory.
    pub(super) fn is_reached(
        &mut self,
        packets: &mut Packets,
        event: &Event,
        begun: u64,
        flow: u64,
    ) {
        let (title, _) = request(event);
        let arguments = access(event, event.qp);
        let flows = Flows { on: None, end: Some(flow) };
        self.end_service(packets);
        packets.begin(self.peer, begun, &title, flows, &arguments);
        packets.end(self.peer, event.time, &[]);
    }

    fn find(&mut self, position: u64) -> Option<&mut Open> {
        let index = self.open.binary_search_by_key(&position, |open| open.position).ok()?;
        self.open.get_mut(index)
    }

    /// The wait of a request is over.
    pub(super) fn end_wait(&mut self, packets: &mut Packets, time: u64, position: u64) {
        if let Some(open) = self.find(position) {
            open.end_wait(packets, time);
        }
    }

    /// A segment was handed to its link.
    pub(super) fn sent(&mut self, packets: &mut Packets, event: &Event) {
        let again = self.sends_again.holds(event);
        let Some(open) = self.find(event.number) else { return self.goes_on(event.number) };
        open.end_wait(packets, event.time);
        if !again {
            self.tell_sent(packets, event);
        }
    }

    fn tell_sent(&mut self, packets: &mut Packets, event: &Event) {
        let Some(open) = self.find(event.number) else { return };
        let attempt = event.detail >> 32;
        let mut arguments = vec![
            ("offset", Argument::Number(event.address)),
            ("bytes", Argument::Number(event.length)),
            ("message", Argument::Number(event.detail & 0xff_ffff)),
            ("attempt", Argument::Number(attempt)),
        ];
        if event.key != 0 {
            arguments.push(("packets", Argument::Number(event.key.into())));
        }
        let handed = u8::try_from(event.more).ok().and_then(Handed::from_code);
        let title = match handed {
            Some(Handed::Unreachable) => "sent to nobody",
            Some(Handed::Failed) => "not sent: its own memory cannot be read",
            _ => "sent",
        };
        let on = Some(flow(event.qp, event.peer, event.detail, event.address));
        let flows = Flows { on, end: None };
        packets.mark(open.track, event.time, &Title::Often(title.into()), flows, &arguments);
    }

    /// The oldest request that is not sent whole waits.
    pub(super) fn waits(&mut self, packets: &mut Packets, event: &Event) {
        let is_again = self.sends_again.times >= Again::TOLD;
        let Some(open) = self.find(event.number) else { return self.goes_on(event.number) };
        open.end_wait(packets, event.time);
        if is_again {
            return;
        }
        let title = Title::Often(named::awaited(event.code).to_owned());
        packets.begin(open.track, event.time, &title, Flows::default(), &[]);
        open.waits = true;
    }

    /// Something is told of a request that is not open here.
    fn goes_on(&mut self, position: u64) {
        if self.open.front().is_none_or(|first| position < first.position) {
            self.before = Some(position);
        }
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, packets: &mut Packets, event: &Event) {
        self.before = self.before.filter(|position| *position > event.detail);
        self.end_sends_again(packets, event.time);
        // They end in order. The end of an older one was missed.
        while let Some(open) = self.open.front()
            && open.position < event.detail
        {
            self.end_oldest(packets, event.time, &[("status", Argument::Word("was not seen"))]);
        }
        if self.open.front().is_some_and(|open| open.position == event.detail) {
            let status = Argument::Word(named::status(event.more));
            self.end_oldest(packets, event.time, &[("status", status)]);
        }
    }

    fn end_oldest(
        &mut self,
        packets: &mut Packets,
        time: u64,
        arguments: &[(&'static str, Argument)],
    ) {
        if let Some(mut open) = self.open.pop_front() {
            open.end_wait(packets, time);
            packets.end(open.track, time, arguments);
            self.requests.give_back(open.lane);
        }
    }

    /// It no longer waits for a receive of its peer's.
    fn end_sends_again(&mut self, packets: &mut Packets, time: u64) {
        let (held, more) = self.sends_again.end();
        held.iter().for_each(|event| self.tell_sent(packets, event));
        self.say_again(packets, time, more, "asked to wait", "the peer has no receive");
    }

    /// A message has found a receive, or does not come again.
    fn end_comes_again(&mut self, packets: &mut Packets, time: u64) {
        let (held, more) = self.comes_again.end();
        held.iter().for_each(|event| self.tell_came(packets, event));
        self.say_again(packets, time, more, "a message came again", "no receive");
    }

    fn say_again(&mut self, packets: &mut Packets, time: u64, more: u64, what: &str, why: &str) {
        if more > 0 {
            let times = counted(usize::try_from(more).unwrap_or(usize::MAX), "time", "times");
            let title = Title::Once(format!("{what} {times} more: {why}"));
            packets.mark(self.marks, time, &title, Flows::default(), &[]);
        }
    }

    /// A segment of the peer's has come.
    pub(super) fn came(&mut self, packets: &mut Packets, event: &Event) {
        if !self.comes_again.holds(event) {
            self.tell_came(packets, event);
        }
    }

    fn tell_came(&mut self, packets: &mut Packets, event: &Event) {
        self.end_service(packets);
        let title = Title::Often(named::operation(event.code).to_owned());
        let end = Some(flow(event.peer, event.qp, event.detail, event.number));
        let arguments = access(event, event.peer);
        packets.begin(self.peer, event.time, &title, Flows { on: None, end }, &arguments);
        self.serves = Some(Serves {
            message: event.detail,
            offset: event.number,
            left: event.length,
            last: event.time,
        });
    }

    /// Memory was touched for it.
    pub(super) fn touched(&mut self, packets: &mut Packets, event: &Event) {
        self.end_comes_again(packets, event.time);
        let Some(serves) = &mut self.serves else { return };
        if (serves.message, serves.offset) == (event.detail, event.number) {
            serves.last = event.time;
            serves.left = serves.left.saturating_sub(event.length);
            if serves.left == 0 {
                self.end_service(packets);
            }
        }
    }

    /// Ends what is carried out for the peer.
    fn end_service(&mut self, packets: &mut Packets) {
        self.end_service_with(packets, &[]);
    }

    fn end_service_with(&mut self, packets: &mut Packets, told: &[(&'static str, Argument)]) {
        if let Some(serves) = self.serves.take() {
            packets.end(self.peer, serves.last, told);
        }
    }

    /// Ends it if it has been going on for long, for its end is not told.
    pub(super) fn look(&mut self, packets: &mut Packets, now: u64) {
        if self.serves.as_ref().is_some_and(|it| now.saturating_sub(it.last) > PATIENCE) {
            self.end_service(packets);
        }
    }

    /// A receive has completed.
    pub(super) fn received(&mut self, packets: &mut Packets, event: &Event) {
        self.end_comes_again(packets, event.time);
        if let Some(serves) = &mut self.serves {
            serves.last = event.time;
        }
        self.end_service(packets);
        let mut arguments = shared::receive(event);
        arguments.push(("status", Argument::Word(named::status(event.more))));
        if event.key != 0 {
            arguments.push(("shared queue", Argument::Hex(event.key.into())));
        }
        let title = shared::title("completed");
        packets.mark(self.receives, event.time, &title, Flows::default(), &arguments);
    }

    /// A receive was posted.
    pub(super) fn receive_posted(&mut self, packets: &mut Packets, event: &Event) {
        let (title, arguments) = (shared::title("posted"), shared::receive(event));
        packets.mark(self.receives, event.time, &title, Flows::default(), &arguments);
    }

    /// Something happens to the queue pair as a whole.
    pub(super) fn changed(&mut self, packets: &mut Packets, event: &Event) {
        match event.what {
            What::Changed if self.state.replace(event.code) != Some(event.code) => {
                let title = Title::Often(named::state(event.code).into());
                // Without a connection it has none, even if there was one.
                let is_apart =
                    matches!(QpState::new(event.code.into()), Some(QpState::Reset | QpState::Init));
                let peer = if is_apart { 0 } else { event.peer };
                let peer = other_end("to queue pair", peer);
                packets.mark(self.marks, event.time, &title, Flows::default(), peer.as_slice());
            }
            What::Counted => {
                let is_told = match Tally::from_code(event.code) {
                    Some(Tally::NoReceive) => {
                        let status = Argument::Word("not taken: no receive");
                        self.end_service_with(packets, &[("status", status)]);
                        self.comes_again.is_told()
                    }
                    Some(Tally::NotReady) => self.sends_again.is_told(),
                    _ => true,
                };
                if !is_told {
                    return;
                }
                if let Some(words) = named::counted(event.code) {
                    let title = Title::Often(words.into());
                    packets.mark(self.marks, event.time, &title, Flows::default(), &[]);
                }
            }
            _ => {}
        }
    }

    /// Ends everything that is open, because the trace ends.
    pub(super) fn close(&mut self, packets: &mut Packets, time: u64) {
        self.end_comes_again(packets, time);
        self.end_sends_again(packets, time);
        self.end_service(packets);
        self.end_all(packets, time, "had not ended");
    }

    fn end_all(&mut self, packets: &mut Packets, time: u64, status: &'static str) {
        while !self.open.is_empty() {
            self.end_oldest(packets, time, &[("status", Argument::Word(status))]);
        }
    }
}

impl Open {
    fn end_wait(&mut self, packets: &mut Packets, time: u64) {
        if std::mem::take(&mut self.waits) {
            packets.end(self.track, time, &[]);
        }
    }
}

/// The arguments of an access by a queue pair.
fn access(event: &Event, by: u32) -> Vec<(&'static str, Argument)> {
    let mut arguments = vec![("bytes", Argument::Number(event.length))];
    arguments.extend(other_end("by queue pair", by));
    if event.key != 0 {
        arguments.push(("key", Argument::Hex(event.key.into())));
        arguments.push(("address", Argument::Hex(event.address)));
    }
    arguments
}
