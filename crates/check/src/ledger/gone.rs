//! Memory that the program gives back while a region has it.
//!
//! An adapter keeps the pages that a region was registered with. After the program unmaps or empties memory, it never
//! sees these pages again. So a request that names such memory is a mistake. After the program frees memory, the
//! allocator may give it out again with the same pages. Then only a request under way is certainly a mistake.

use std::ops::Range;

use super::span::{Gone, How, overlap};
use super::{Buffer, Ledger, Posted, SHOWN, Thing, UnderWay};
use crate::{Call, Kind};

/// Memory that a call is about to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The addresses.
    pub range: Range<u64>,
    /// The registrations that contain some of it.
    pub regions: Vec<u64>,
    /// Nobody else has these pages, so the program cannot get them back.
    pub is_private: bool,
    /// The call.
    pub call: Call,
}

/// The most ranges of given-back memory that are remembered.
const GONE: usize = 1024;

impl Posted {
    /// Whether it names some of these bytes through one of these registrations.
    fn names_in(&self, regions: &[u64], range: &Range<u64>) -> bool {
        let is_there = |it: &Buffer| it.range().is_some_and(|it| overlap(&it, range));
        let of_one = |it: &Buffer| it.region.is_some_and(|it| regions.contains(&it.get()));
        self.buffers.iter().any(|it| of_one(it) && is_there(it))
    }
}

impl Ledger {
    /// The registrations that contain some of these bytes, except on-demand ones.
    pub fn regions_in(&self, range: &Range<u64>) -> Vec<u64> {
        self.memory.regions_in(range)
    }

    /// The queue pairs with requests that name the given-back memory, and the number of sends posted to each.
    pub fn pairs_in(&self, leaving: &Leaving) -> Vec<(usize, u64)> {
        self.pairs_with(|posted| posted.names_in(&leaving.regions, &leaving.range))
    }

    /// Memory was given back. `under_way` has the device's counts for the queue pairs whose requests name it.
    pub fn given_back(&mut self, leaving: &Leaving, how: How, under_way: &[UnderWay]) {
        let Leaving { range, regions, is_private, call } = leaving;
        // A region may have ended since `leaving` was made.
        let living = regions.iter().filter_map(|it| Some((*it, *self.memory.region(*it)?.1)));
        let living: Vec<_> = living.collect();
        let Some(&(first, region)) = living.first() else { return };
        if how != How::Freed && *is_private {
            for (region, _) in &living {
                let gone = Gone { region: *region, range: range.clone(), how, call: *call };
                if self.memory.gone.len() < GONE {
                    self.memory.gone.push(gone);
                }
            }
        }
        let [in_flight, _, waiting] =
            self.under_way(under_way, |posted| posted.names_in(regions, range));
        let named = self.memory.region(first).map_or(0, |(key, _)| key);
        let (of, was) = (Thing::Region.called(named), how.was());
        let posts: Vec<_> = match in_flight.is_empty() {
            true => waiting.into_iter().take(SHOWN).map(Posted::here).collect(),
            false => in_flight.iter().take(SHOWN).map(|it| it.here()).collect(),
        };
        let (kind, says) = match (in_flight.len(), posts.len()) {
            (0, 0) => {
                (Kind::GivenBack, format!("Memory of {of} was {was} before the region ended."))
            }
            (0, _) => {
                let says = format!(
                    "Memory of {of} was {was} while receives that name it are posted, and messages may arrive."
                );
                (Kind::GivenBack, says)
            }
            (count, _) => {
                let requests = match count {
                    1 => "1 request that names it is".to_owned(),
                    count => format!("{count} requests that name it are"),
                };
                (Kind::MemoryGone, format!("Memory of {of} was {was} while {requests} under way."))
            }
        };
        let mut calls = vec![(how.here(), *call)];
        calls.extend(posts);
        calls.extend(self.made_by(Thing::Region, region.object));
        self.found(kind, says, calls);
    }

    /// Reports the requests that name given-back memory. They are about to be posted.
    pub(super) fn tell_gone<'a>(&mut self, requests: impl Iterator<Item = &'a Posted>) {
        if self.memory.gone.is_empty() {
            return;
        }
        for posted in requests {
            let is_named = |it: &&Gone| posted.names_in(&[it.region], &it.range);
            let Some(gone) = self.memory.gone.iter().find(is_named).cloned() else { continue };
            let says = format!(
                "A {} names memory that was {} after it was registered.",
                posted.what,
                gone.how.was()
            );
            let mut calls = vec![posted.here(), (gone.how.here(), gone.call)];
            let object = self.memory.region(gone.region).map(|(_, region)| region.object);
            calls.extend(object.and_then(|object| self.made_by(Thing::Region, object)));
            self.found(Kind::MemoryGone, says, calls);
        }
    }

    /// A peer has written to these addresses through a registration. Reports it if they were given back since. By the
    /// key of a window nobody knows the registration.
    pub(super) fn tell_written_to_gone(
        &mut self,
        what: &str,
        region: u64,
        range: &Range<u64>,
        made: Option<(String, Call)>,
    ) {
        let is_it = |gone: &&Gone| gone.region == region && overlap(&gone.range, range);
        let Some(gone) = self.memory.gone.iter().find(is_it).cloned() else { return };
        let was = gone.how.was();
        let says =
            format!("A peer's {what} went to memory that was {was} after it was registered.");
        let mut calls = vec![(gone.how.here(), gone.call)];
        calls.extend(made);
        self.found(Kind::MemoryGone, says, calls);
    }

    /// An access by the queue pair of this number to memory of a region failed because nothing is mapped there.
    pub fn not_there(&mut self, what: &str, number: u32, key: u32, address: u64, length: u64) {
        let Some(device) = self.device_of(number) else { return };
        let buffer = Buffer::new(key, address, length);
        let Some((registration, region)) = self.memory.region_with(device, key) else { return };
        let Some(at) = region.at(&buffer) else { return };
        let range = at..at.saturating_add(length);
        let is_it = |gone: &&Gone| gone.region == registration && overlap(&gone.range, &range);
        let Some(gone) = self.memory.gone.iter().find(is_it).cloned() else { return };
        let says = format!(
            "{what} failed: memory of {} was {} after it was registered.",
            Thing::Region.called(key),
            gone.how.was()
        );
        let mut calls = vec![(gone.how.here(), gone.call)];
        let object = self.memory.region(gone.region).map(|(_, region)| region.object);
        calls.extend(object.and_then(|object| self.made_by(Thing::Region, object)));
        self.found(Kind::MemoryGone, says, calls);
    }
}
