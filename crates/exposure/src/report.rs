//! All processes of a run: what each had open, and the sums of what was made at one place.

use crate::Rights;
use crate::cell::{Cell, Folded, Process};
use crate::doors::{Pair, Reach, Scope};
use crate::names::Names;
use crate::opening::{Object, Opening};
use crate::sums::Sums;

/// The account of one process.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Its names.
    pub names: Names,
    /// Its life.
    pub process: Process,
    /// The queue pairs that let peers in.
    pub pairs: Vec<Pair>,
    /// Its regions and windows, in the order in which they opened.
    pub openings: Vec<Measured>,
    /// Those that share a cell.
    pub folded: Vec<Folded>,
}

/// A region or window, and what it comes to.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The region or window. If it was open at the end, it ends there.
    pub opening: Opening,
    /// Whether it was open until the process ended.
    pub at_end: bool,
    /// Its sums.
    pub sums: Sums,
}

impl Account {
    /// The account in a process's cells. What is open in them is open until the process ended, or until `end` if the
    /// process could not say when.
    pub fn of(names: Names, cells: impl IntoIterator<Item = Cell>, end: u64) -> Self {
        let mut account = Self { names, ..Self::default() };
        let mut reaches: Vec<(u64, Scope, Reach)> = Vec::new();
        let mut openings = Vec::new();
        for cell in cells {
            match cell {
                Cell::Empty => {}
                Cell::Process(process) => account.process = process,
                Cell::Reach { device, scope, reach } => reaches.push((device, scope, reach)),
                Cell::Pair(pair) => account.pairs.push(pair),
                Cell::Opening(opening) => openings.push(*opening),
                Cell::Folded(folded) => account.folded.push(*folded),
            }
        }
        let end = if account.process.ended == 0 { end } else { account.process.ended };
        let measured = openings.into_iter().map(|mut opening| {
            let its = |it: &&(u64, Scope, Reach)| (it.0, it.1) == (opening.device, opening.scope);
            let reach = reaches.iter().find(its).map(|(_, _, reach)| reach);
            let open = match (opening.until, reach) {
                (0, None) => [0; 4],
                _ => opening.open_until(reach, end),
            };
            let at_end = opening.until == 0;
            if at_end {
                (opening.open, opening.until) = (open, end.max(opening.since));
            }
            Measured { sums: Sums::of(&opening, open), opening, at_end }
        });
        account.openings = measured.collect();
        account.openings.sort_by_key(|it| it.opening.number);
        account.pairs.sort_by_key(|pair| (pair.since, pair.number));
        account
    }

    /// The queue pairs whose peers could use a region or window, with the rights that both have.
    pub fn could_use<'a>(&'a self, it: &'a Opening) -> impl Iterator<Item = (&'a Pair, Rights)> {
        self.pairs.iter().filter_map(move |pair| {
            let overlap = pair.since < it.until && (pair.until == 0 || pair.until > it.since);
            let rights = pair.rights.both(it.rights);
            let could = overlap && pair.serves(it.device, it.scope) && !rights.is_empty();
            could.then_some((pair, rights))
        })
    }

    /// The sums of all that it had open. What a window shows is also open by its region, if the region itself has
    /// rights for peers: each key counts.
    pub fn sums(&self) -> Sums {
        let all = self.openings.iter().map(|it| &it.sums);
        let mut sums = Sums::default();
        all.chain(self.folded.iter().map(|it| &it.sums)).for_each(|it| sums.and(it));
        sums
    }
}

/// What one call has opened, with the same rights.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The account that it is in.
    pub account: &'a Account,
    /// Whether they are regions or windows.
    pub object: Object,
    /// The call, by the number of the account.
    pub site: u32,
    /// What peers could do.
    pub rights: Rights,
    /// Those that have a cell of their own.
    pub openings: Vec<&'a Measured>,
    /// The sums of all.
    pub sums: Sums,
}

/// What each call has opened, that with most unused first.
pub fn groups(accounts: &[Account]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for account in accounts {
        let first = groups.len();
        let single = account.openings.iter().map(|it| {
            let Opening { object, site, rights, .. } = it.opening;
            (object, site, rights, &it.sums, Some(it))
        });
        let folded = account.folded.iter();
        let folded = folded.map(|it| (it.object, it.site, it.rights, &it.sums, None));
        for (object, site, rights, sums, measured) in single.chain(folded) {
            let is_its = |it: &Group<'_>| (it.object, it.site, it.rights) == (object, site, rights);
            let at = groups[first..].iter().position(is_its).map_or(groups.len(), |at| first + at);
            if at == groups.len() {
                let (openings, sums) = (Vec::new(), Sums::default());
                groups.push(Group { account, object, site, rights, openings, sums });
            }
            groups[at].sums.and(sums);
            groups[at].openings.extend(measured);
        }
    }
    groups.sort_by_key(|it| std::cmp::Reverse(it.sums.unused()));
    groups
}
