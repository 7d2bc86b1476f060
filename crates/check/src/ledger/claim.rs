//! Memory that the program claims for itself.

use std::collections::BTreeMap;
use std::ops::Range;

use super::arrived::Space;
use super::span::overlap;
use super::{Buffer, Ledger, Posted, SHOWN, Thing, UnderWay};
use crate::{Call, Kind};

/// The claimed ranges, by their start: the end, and the call that claimed them. No two of them overlap.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<u64, (u64, Call)>);

impl Claims {
    /// Removes some bytes from the claims.
    fn cut(&mut self, range: &Range<u64>) {
        while let Some((start, (end, call))) = self.last_in(range) {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, (range.start, call));
            }
            if end > range.end {
                self.0.insert(range.end, (end, call));
            }
        }
    }

    fn last_in(&self, range: &Range<u64>) -> Option<(u64, (u64, Call))> {
        let before = self.0.range(..range.end).next_back();
        before.map(|(start, it)| (*start, *it)).filter(|(_, (end, _))| *end > range.start)
    }

    fn add(&mut self, range: &Range<u64>, call: &Call) {
        self.cut(range);
        if !range.is_empty() {
            self.0.insert(range.start, (range.end, *call));
        }
    }

    /// The call that claimed some of these bytes.
    fn of(&self, range: &Range<u64>) -> Option<Call> {
        self.last_in(range).map(|(_, (_, call))| call)
    }
}

impl Posted {
    fn names_bytes(&self, range: &Range<u64>) -> bool {
        self.buffers.iter().any(|it| it.range().is_some_and(|it| overlap(&it, range)))
    }
}

impl Ledger {
    /// The program claims these bytes.
    pub fn claims(&mut self, range: &Range<u64>, call: &Call) {
        self.arrived.forget();
        self.claims.add(range, call);
    }

    /// The program releases these bytes: the device may use them.
    pub fn releases(&mut self, range: &Range<u64>) {
        self.arrived.forget();
        self.claims.cut(range);
    }

    /// A region of these bytes has ended. Claims of what no region has any more end too: the memory may become somebody
    /// else's, and nobody says so.
    pub(super) fn claims_end(&mut self, range: &Range<u64>) {
        if !self.claims.0.is_empty() && self.memory.regions_in(range).is_empty() {
            self.claims.cut(range);
        }
    }

    /// The queue pairs with requests that name some of these bytes, and the number of sends posted to each.
    pub fn pairs_at(&self, range: &Range<u64>) -> Vec<(usize, u64)> {
        self.pairs_with(|posted| posted.names_bytes(range))
    }

    /// These bytes have just been claimed. `under_way` has the device's counts for the queue pairs whose requests name
    /// them.
    pub fn claimed_in_flight(&mut self, range: &Range<u64>, under_way: &[UnderWay], call: &Call) {
        let [in_flight, _, waiting] = self.under_way(under_way, |it| it.names_bytes(range));
        let requests = if in_flight.is_empty() { waiting } else { in_flight };
        let Some(first) = requests.first() else { return };
        let says = match requests.len() {
            1 => format!("The program claims memory, and a posted {} names it.", first.what),
            count => format!("The program claims memory, and {count} posted requests name it."),
        };
        let mut calls = vec![("claimed here".to_owned(), *call)];
        calls.extend(requests.iter().take(SHOWN).map(|it| it.here()));
        calls.extend(self.region_made(first));
        self.found(Kind::ClaimedInUse, says, calls);
    }

    /// Reports the requests that name claimed memory. They are about to be posted.
    pub(super) fn tell_claimed<'a>(&mut self, requests: impl Iterator<Item = &'a Posted>) {
        if self.claims.0.is_empty() {
            return;
        }
        for posted in requests {
            let mut ranges = posted.buffers.iter().filter_map(Buffer::range);
            let Some(claim) = ranges.find_map(|range| self.claims.of(&range)) else { continue };
            let says = format!("A {} names memory that the program has claimed.", posted.what);
            let mut calls = vec![posted.here(), ("claimed here".to_owned(), claim)];
            calls.extend(self.region_made(posted));
            self.found(Kind::ClaimedInUse, says, calls);
        }
    }

    /// Something has happened by which peers may know of all that was written so far.
    pub fn peers_may_know(&mut self) {
        self.arrived.forget();
    }

    /// A peer has written to some bytes, by the queue pair of this number. `address` counts as the region or window of
    /// `key` does.
    pub fn written(&mut self, what: &str, number: u32, key: u32, address: u64, length: u64) {
        let Some(device) = self.device_of(number) else { return };
        let buffer = Buffer::new(key, address, length);
        let region = self.memory.region_with(device, key);
        // No region has this key, so it is a window's. Windows use their regions' addresses, except zero-based ones.
        let at = region.map_or(Some(address), |(_, region)| region.at(&buffer));
        let Some(range) = at.map(|at| at..at.saturating_add(length)) else { return };
        let registration = region.map(|(number, _)| number);
        let made = region.map(|(_, region)| region.object);
        let made = match made {
            Some(object) => self.made_by(Thing::Region, object),
            None => self.window_made(key),
        };
        if let Some(claim) = self.claims.of(&range) {
            let says = format!(
                "A peer's {what} of {length} bytes went to memory that the program has claimed."
            );
            let mut calls = vec![("claimed here".to_owned(), claim)];
            calls.extend(made.clone());
            self.found(Kind::ClaimedInUse, says, calls);
        }
        let space = registration.map_or(Space::Window(device, key), |_| Space::Program);
        match what {
            "WRITE" => self.arrived(number, space, &range, made.clone()),
            // An atomic may tell of earlier WRITEs.
            _ => self.arrived.forget(),
        }
        if let Some(registration) = registration {
            self.tell_written_to_gone(what, registration, &range, made);
        }
    }
}
