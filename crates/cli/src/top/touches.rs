//! What peers touch and what is revoked, as it happens: from the events that processes record while somebody watches.
//!
//! Recording costs the programs time. So it is asked for only while this command looks, and not while it is paused.

use super::revocations::{self, Revocations};
use super::view::{Span, Stay, Touch, View};
use std::collections::HashMap;
use std::time::Duration;
use transom_device::qp::QpNumber;
use transom_system::Watched;
use transom_system::clock::steady;
use transom_system::registry::{Process, Registry};
use transom_system::tools::Tool;
use transom_system::trace::{Event, What};

/// How long a touch or a revocation is seen.
const LIT: Duration = Duration::from_secs(3);
/// How many different ones are kept.
const MOST: usize = 8192;

/// The processes that are watched, and what was touched in their memory.
#[derive(Default)]
pub(super) struct Touches {
    watched: HashMap<Stay, Watched>,
    /// When each range was touched last.
    last: HashMap<Range, u64>,
    /// What was revoked in each range last.
    closed: HashMap<Range, Event>,
    revocations: Revocations,
    /// Where the windows were at the last look.
    places: HashMap<(Stay, u32), u64>,
}

/// A range, as a request names it: whose memory, key, address, length.
type Range = (Stay, u32, u64, u64);

impl Touches {
    /// Watches these processes, and no others. They take the times of their requests too.
    pub(super) fn watch(&mut self, registry: &'static Registry, processes: &[Process]) {
        let stay = |process: &Process| (process.announcer.slot, process.announcer.generation);
        self.watched.retain(|known, _| processes.iter().any(|process| stay(process) == *known));
        for process in processes {
            if !self.watched.contains_key(&stay(process)) {
                let watched = Watched::new(registry, process, &[Tool::Events, Tool::Latencies]);
                self.watched.extend(watched.map(|watched| (stay(process), watched)));
            }
        }
    }

    /// Reads what has been recorded, and has it go on. Call it at least twice a second.
    pub(super) fn tick(&mut self) {
        let stays: HashMap<u8, Stay> = self.watched.keys().map(|stay| (stay.0, *stay)).collect();
        for (stay, watched) in &mut self.watched {
            watched.refresh();
            watched.events(|event| {
                let owner = match event.what {
                    What::Closed => {
                        let range = (*stay, event.key, event.address, event.length);
                        if self.closed.len() < MOST {
                            self.closed.insert(range, event);
                        }
                        return self.revocations.note(*stay, event);
                    }
                    What::Touched => Some(*stay),
                    // These are only recorded of peers on this host, whose slot is in the number.
                    What::CarriedOut | What::Reached => {
                        stays.get(&QpNumber::from_bits(event.peer).slot()).copied()
                    }
                    _ => None,
                };
                note(&mut self.last, owner, &event);
            });
        }
        let now = steady();
        let is_lit = |time: u64| now.saturating_sub(time) < LIT.as_nanos() as u64;
        self.last.retain(|_, time| is_lit(*time));
        self.closed.retain(|_, event| is_lit(event.time));
    }

    /// Shows where the touched ranges are, and what was revoked.
    pub(super) fn show(&mut self, view: &mut View) {
        let now = steady();
        self.revocations.show(view);
        let revoked = |((owner, ..), event): (&Range, &Event)| {
            // A window that the last look has seen lies where it lay. Another is named as its region is.
            let has = |span: &&Span| span.owner == *owner && span.has(event.address);
            let place = self.places.get(&(*owner, event.key)).copied().or_else(|| {
                let region = view.regions.iter().find(has)?;
                region.place.checked_add(event.address - region.base)
            })?;
            let age = Duration::from_nanos(now.saturating_sub(event.time));
            Some(Touch { span: revocations::span(*owner, event, place), age })
        };
        let revoked: Vec<_> = self.closed.iter().filter_map(revoked).collect();
        view.revoked = revoked.into_iter().filter(|it| !it.span.kind.is_region()).collect();
        let windows = view.windows.iter().map(|window| &window.span);
        self.places = windows.map(|span| ((span.owner, span.key), span.place)).collect();
        let windows = view.windows.iter().map(|window| &window.span);
        let spans: HashMap<_, _> =
            view.regions.iter().chain(windows).map(|span| ((span.owner, span.key), span)).collect();
        let shown = |(range, time): (&Range, &u64)| {
            let (owner, key, address, length) = *range;
            // The key may have ended since. Then the region that has the address tells.
            let has = |span: &&Span| span.owner == owner && span.has(address);
            let span = spans.get(&(owner, key)).copied();
            let span = span.or_else(|| view.regions.iter().find(has))?;
            let place = span.place.checked_add(address.checked_sub(span.base)?)?;
            let age = Duration::from_nanos(now.saturating_sub(*time));
            Some(Touch { span: Span { place, base: address, length, ..*span }, age })
        };
        view.touches = self.last.iter().filter_map(shown).collect();
    }
}

fn note(last: &mut HashMap<Range, u64>, owner: Option<Stay>, event: &Event) {
    let Some(owner) = owner.filter(|_| event.length > 0) else { return };
    let range = (owner, event.key, event.address, event.length);
    if last.len() < MOST || last.contains_key(&range) {
        last.insert(range, event.time);
    }
}
