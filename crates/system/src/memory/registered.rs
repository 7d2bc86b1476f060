//! Which pages have regions, and which lie in the address-space file.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of a process by number, as far as they have regions.
#[derive(Debug, Default)]
pub(super) struct Registered {
    /// By their first page; they do not overlap.
    runs: BTreeMap<u64, Run>,
    /// Some in no region could not leave the file yet.
    has_kept: bool,
}

/// Pages, one after the other, that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    end: u64,
    /// How many regions they are in; if none, they lie in the file.
    regions: u32,
    /// They lie in the file.
    mapped: bool,
    /// A region of them was paged on demand: they are not to be moved there.
    on_demand: bool,
}

impl Registered {
    /// Counts a region of these pages; answers those that were in none, and are not in the file.
    pub(super) fn add(&mut self, pages: Range<u64>, on_demand: bool) -> Vec<Range<u64>> {
        self.split(pages.start);
        self.split(pages.end);
        let mut fresh = Vec::new();
        let mut from = pages.start;
        for (&start, run) in self.runs.range_mut(pages.clone()) {
            if from < start {
                fresh.push(from..start);
            }
            run.regions += 1;
            run.on_demand |= on_demand;
            from = run.end;
        }
        if from < pages.end {
            fresh.push(from..pages.end);
        }
        for pages in &fresh {
            let run = Run { end: pages.end, regions: 1, mapped: false, on_demand };
            self.runs.insert(pages.start, run);
        }
        fresh
    }

    /// Notes whether pages lie in the file; all of them have regions.
    pub(super) fn set_mapped(&mut self, pages: Range<u64>, mapped: bool) {
        self.split(pages.start);
        self.split(pages.end);
        self.runs.range_mut(pages).for_each(|(_, run)| run.mapped = mapped);
    }

    /// Counts one region less; answers those in no other that lie in the file.
    pub(super) fn remove(&mut self, pages: Range<u64>) -> Vec<Range<u64>> {
        self.split(pages.start);
        self.split(pages.end);
        self.runs.range_mut(pages.clone()).for_each(|(_, run)| run.regions -= 1);
        let ended = |run: &Run, mapped| run.regions == 0 && run.mapped == mapped;
        self.runs.extract_if(pages.clone(), |_, run| ended(run, false)).for_each(drop);
        let runs = self.runs.range(pages).filter(|(_, run)| ended(run, true));
        joined(runs.map(|(start, run)| (*start, *run)))
    }

    /// Pages have left the file: forgets those in no region.
    pub(super) fn forget(&mut self, pages: Range<u64>) {
        self.split(pages.start);
        self.split(pages.end);
        self.runs.extract_if(pages, |_, run| run.regions == 0).for_each(drop);
    }

    /// Some in no region could not leave the file.
    pub(super) fn keep(&mut self) {
        self.has_kept = true;
    }

    /// Those in no region that could not leave the file: they are to try again.
    pub(super) fn take_kept(&mut self) -> Vec<Range<u64>> {
        if !std::mem::take(&mut self.has_kept) {
            return Vec::new();
        }
        joined(self.runs.iter().map(|(start, run)| (*start, *run)).filter(|it| it.1.regions == 0))
    }

    /// Those of some pages that lie in the file.
    pub(super) fn mapped_of(&self, pages: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.of(pages, |run| run.mapped)
    }

    /// Those of some pages that do not lie in the file, and may be moved there.
    pub(super) fn private_of(&self, pages: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.of(pages, |run| !run.mapped && !run.on_demand)
    }

    /// Those of some pages whose run is such.
    fn of(
        &self,
        pages: &Range<u64>,
        is_such: impl Fn(&Run) -> bool,
    ) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = *pages;
        let before = self.runs.range(..start).next_back();
        let within = move |(first, run): (&u64, &Run)| {
            let part = start.max(*first)..end.min(run.end);
            (is_such(run) && !part.is_empty()).then_some(part)
        };
        before.into_iter().chain(self.runs.range(start..end)).filter_map(within)
    }

    /// Has a run begin at `page` if it lies within one.
    fn split(&mut self, page: u64) {
        let Some((_, run)) = self.runs.range_mut(..page).next_back() else { return };
        if run.end > page {
            let rest = *run;
            run.end = page;
            self.runs.insert(page, rest);
        }
    }
}

/// Runs with those next to each other as one.
fn joined(runs: impl Iterator<Item = (u64, Run)>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for (start, run) in runs {
        match joined.last_mut() {
            Some(last) if last.end == start => last.end = run.end,
            _ => joined.push(start..run.end),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_fresh_once_and_left_once() {
        let mut registered = Registered::default();
        assert!(registered.add(10..20, false).iter().eq([&(10..20)]));
        registered.set_mapped(10..20, true);
        assert!(registered.add(5..15, false).iter().eq([&(5..10)]));
        assert!(registered.add(12..30, false).iter().eq([&(20..30)]));
        registered.set_mapped(20..25, true);
        assert_eq!(registered.remove(10..20), []);
        assert!(registered.remove(12..30).iter().eq([&(15..25)]));
        registered.forget(15..25);
        assert_eq!(registered.mapped_of(&(11..14)).collect::<Vec<_>>(), [11..12, 12..14]);
        assert!(registered.remove(5..15).iter().eq([&(10..15)]));
        registered.forget(10..15);
        assert!(registered.runs.is_empty());
    }

    #[test]
    fn pages_that_could_not_leave_the_file_are_in_it_for_their_next_region() {
        let mut registered = Registered::default();
        registered.add(10..20, false);
        registered.set_mapped(10..20, true);
        assert!(registered.remove(10..20).iter().eq([&(10..20)]));
        assert_eq!(registered.take_kept(), []);
        registered.keep();
        assert!(registered.add(15..30, false).iter().eq([&(20..30)]));
        assert!(registered.take_kept().iter().eq([&(10..15)]));
        registered.forget(10..20);
        assert!(registered.mapped_of(&(0..40)).eq(std::iter::once(15..20)));
        assert!(registered.remove(15..30).iter().eq([&(15..20)]));
    }

    /// Against a count for each page, over many regions at random.
    #[test]
    fn it_agrees_with_a_count_for_each_page() {
        const PAGES: u64 = 60;
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let (mut registered, mut regions) = (Registered::default(), Vec::new());
        let (mut counts, mut mapped) = ([0_u32; PAGES as usize], [false; PAGES as usize]);
        let all =
            |ranges: &[Range<u64>]| -> Vec<u64> { ranges.iter().cloned().flatten().collect() };
        for _ in 0..2000 {
            if regions.len() < 12 && random(2) == 0 {
                let start = random(PAGES);
                let pages = start..start + 1 + random(PAGES - start);
                let fresh = all(&registered.add(pages.clone(), false));
                let expected: Vec<_> =
                    pages.clone().filter(|page| counts[*page as usize] == 0).collect();
                assert_eq!(fresh, expected);
                pages.clone().for_each(|page| counts[page as usize] += 1);
                if random(3) > 0 {
                    for page in fresh {
                        registered.set_mapped(page..page + 1, true);
                        mapped[page as usize] = true;
                    }
                }
                regions.push(pages);
            } else if !regions.is_empty() {
                let pages = regions.swap_remove(random(regions.len() as u64) as usize);
                let left = all(&registered.remove(pages.clone()));
                pages.clone().for_each(|page| counts[page as usize] -= 1);
                let ended = |page: &u64| counts[*page as usize] == 0;
                let expected: Vec<_> =
                    pages.clone().filter(ended).filter(|page| mapped[*page as usize]).collect();
                assert_eq!(left, expected);
                registered.forget(pages.clone());
                pages.filter(ended).for_each(|page| mapped[page as usize] = false);
            }
        }
        regions.into_iter().for_each(|pages| drop(registered.remove(pages)));
        registered.forget(0..PAGES);
        assert!(registered.runs.is_empty());
    }
}
