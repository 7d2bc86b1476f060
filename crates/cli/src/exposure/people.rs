//! The accounts for people: what was open for nothing, the ten worst, and what would close them.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use transom_exposure::Deed;
use transom_exposure::opening::{Object, Opening, Times};
use transom_exposure::report::{Account, Group};
use transom_exposure::sums::{Change, Sums, total};

use super::peers::{Peer, process};
use super::words::{bytes, bytes_by_time, doing, percent, rights, time};
use super::{Names, object_of};
use crate::check::shown;
use crate::layout::Page;
use crate::sentence::counted;

const WORST: Style = AnsiColor::Yellow.on_default().bold();
const FRAME: Style = AnsiColor::Blue.on_default().bold();
const BOLD: Style = Style::new().bold();

/// How many are reported.
const SHOWN: usize = 10;

/// At most this many peers are named.
const NAMED: usize = 3;

/// What people read.
pub(super) struct People<'a> {
    accounts: &'a [Account],
    names: &'a Names,
    /// Names of files below this directory are relative to it.
    from: PathBuf,
}

impl<'a> People<'a> {
    pub(super) fn new(accounts: &'a [Account], names: &'a Names) -> Self {
        Self { accounts, names, from: env::current_dir().unwrap_or_default() }
    }

    /// The worst, each with what would close it.
    pub(super) fn worst(&self, out: &mut Page<impl Write>, groups: &[Group<'_>]) -> io::Result<()> {
        let bad: Vec<_> = groups.iter().filter(|it| it.sums.unused() > 0).collect();
        for (index, group) in bad.iter().take(SHOWN).enumerate() {
            self.one(out, index + 1, group)?;
        }
        match bad.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => {
                let more = counted(more, "more call", "more calls");
                out.text(format_args!(
                    "{more} opened something for nothing: `--json` tells of all."
                ))?;
                writeln!(out.to)
            }
        }
    }

    fn one(&self, out: &mut Page<impl Write>, rank: usize, group: &Group<'_>) -> io::Result<()> {
        let sums = &group.sums;
        let what = what(group);
        let (unused, may) = (bytes_by_time(sums.unused()), rights(group.rights));
        out.text(format_args!(
            "{WORST}{rank}.{WORST:#} {BOLD}{unused} unused: {what}, open for {may}{BOLD:#}"
        ))?;
        let call = self.names.call(group.account, group.site);
        let places = call.map(shown::places).unwrap_or_default();
        let done = if group.object == Object::Region { "registered" } else { "bound" };
        let arrow = format!("  {FRAME}-->{FRAME:#} ");
        match places.split_first() {
            None => out.item(arrow, format_args!("{done} at a place that is not known"))?,
            Some((first, callers)) => {
                let first = shown::place(first, &self.from);
                out.item(arrow, format_args!("{first}, {done} here"))?;
                let bar = format!("   {FRAME}|{FRAME:#}  ");
                for caller in callers {
                    let caller = shown::place(caller, &self.from);
                    out.item(&bar, format_args!("called from {caller}"))?;
                }
            }
        }
        let row = |name: &str| format!("   {FRAME}={FRAME:#}  {BOLD}{name:<7}{BOLD:#}");
        out.item(row("open"), self.open(group))?;
        out.item(row("used"), self.used(group))?;
        for (index, (change, closes)) in sums.changes(object_of(group.object)).iter().enumerate() {
            let name = if index == 0 { "closes" } else { "" };
            out.item(row(name), advice(*change, *closes, sums))?;
        }
        writeln!(out.to)
    }

    /// For how long it was open, and to whom.
    fn open(&self, group: &Group<'_>) -> String {
        let of = process(group.account);
        let longest = group.openings.iter().map(|it| it.opening.open[0]).max();
        let time = match (longest, group.sums.openings) {
            (Some(longest), 1) => time(longest),
            (Some(longest), _) => format!("up to {}", time(longest)),
            (None, _) => "a time".to_owned(),
        };
        let mut peers: Vec<String> = Vec::new();
        for it in &group.openings {
            for (pair, _) in group.account.could_use(&it.opening) {
                let name = Peer::of(pair, self.accounts).name();
                if !peers.contains(&name) {
                    peers.push(name);
                }
            }
        }
        let left = if group.openings.iter().any(|it| it.at_end) { ", until it ended" } else { "" };
        let to = match peers.len() {
            0 => "nobody".to_owned(),
            count if count > NAMED => {
                format!("{} and {} more", peers[..NAMED].join(", "), count - NAMED)
            }
            _ => peers.join(", "),
        };
        format!("for {time} in {of}{left}, to {to}")
    }

    /// What was used of it.
    fn used(&self, group: &Group<'_>) -> String {
        let sums = &group.sums;
        let begin = group.openings.iter().map(|it| opened(group.account, &it.opening)).min();
        let begin = begin.unwrap_or(0);
        let deeds = Deed::ALL.into_iter().map(|deed| (deed, &sums.deeds[deed as usize]));
        let deeds: Vec<_> = deeds
            .filter(|(_, times)| times.count > 0)
            .map(|(deed, times)| uses(deed, times, begin, sums.openings == 1))
            .collect();
        if deeds.is_empty() {
            return "by nobody".to_owned();
        }
        let touched = bytes(sums.touched);
        format!("{}: {touched}, {}", percent(sums.used, sums.open), deeds.join("; "))
    }
}

/// From when on a peer could use it: the key was good, and a queue pair let a peer in.
fn opened(account: &Account, it: &Opening) -> u64 {
    let doors = account.could_use(it).map(|(pair, _)| pair.since).min();
    it.since.max(doors.unwrap_or(0))
}

/// What a group is: `a region of 4 KiB`.
pub(super) fn what(group: &Group<'_>) -> String {
    let (object, size) = (group.object.name(), bytes(group.sums.bytes));
    match group.sums.openings {
        1 => format!("a {object} of {size}"),
        count => format!("{count} {object}s of {size} in all"),
    }
}

/// How often something was done, and when.
fn uses(deed: Deed, times: &Times, begin: u64, with_times: bool) -> String {
    let (one, many) = match deed {
        Deed::Read => ("READ", "READs"),
        Deed::Write => ("WRITE", "WRITEs"),
        Deed::Atomic => ("atomic", "atomics"),
    };
    let count = counted(usize::try_from(times.count).unwrap_or(usize::MAX), one, many);
    let after = |at: u64| time(at.saturating_sub(begin));
    match (with_times, times.count) {
        (false, _) => count,
        (true, 1) => format!("{count} after {}", after(times.first)),
        (true, _) => {
            format!("{count} from {} to {} after it opened", after(times.first), after(times.last))
        }
    }
}

/// What would close how much of it.
pub(super) fn advice(change: Change, closes: u128, sums: &Sums) -> String {
    let part = percent(closes, sums.open);
    match change {
        Change::Window => {
            format!("{part} by a window over the bytes in use, while they are in use")
        }
        Change::NoRights if sums.untouched == sums.openings => {
            format!("{part} without rights for peers: none used it")
        }
        Change::NoRights => {
            let idle = counted(sums.untouched as usize, "that", "those");
            format!("{part} without rights for peers in the {idle} that none used")
        }
        Change::FewerBytes => format!("{part} with the bytes alone that peers touch"),
        Change::ShorterLife => format!("{part} by closing it after its last use"),
        Change::FewerRights(deed) => {
            let of = percent(closes, sums.by_right[deed as usize]);
            format!("{of} of {} without {}", doing(deed), deed.flag())
        }
    }
}

/// What was open, what was used of it, and what would close most.
pub(crate) fn sentence(group: &Group<'_>) -> String {
    let sums = &group.sums;
    let (may, touched) = (rights(group.rights), bytes(sums.touched));
    let closes = sums.changes(object_of(group.object)).into_iter().next();
    let closes = closes.map(|(change, closes)| advice(change, closes, sums));
    let closes = closes.map_or_else(String::new, |advice| format!(" You can close {advice}."));
    format!("For {may}, {} was open, and peers used {touched} of it.{closes}", what(group))
}

/// A sentence about all of it.
pub(super) fn summary(accounts: &[Account], sums: &Sums) -> String {
    if accounts.is_empty() {
        return "No process opened a device, so nothing was open.".to_owned();
    }
    let count = |object: Object| -> u64 {
        let single = |account: &Account| {
            account.openings.iter().filter(|it| it.opening.object == object).count() as u64
        };
        let folded = accounts.iter().flat_map(|account| &account.folded);
        let folded = folded.filter(|it| it.object == object).map(|it| it.sums.openings);
        total(accounts.iter().map(single).chain(folded))
    };
    let [regions, windows] =
        [count(Object::Region), total([count(Object::Window1), count(Object::Window2)])]
            .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let what = [(regions, "region", "regions"), (windows, "window", "windows")];
    let what: Vec<_> = what
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| counted(count, one, many))
        .collect();
    if what.is_empty() {
        return "Nothing had rights for peers.".to_owned();
    }
    let what = what.join(" and ");
    if sums.open == 0 {
        return format!("{what} had rights for peers. No peer could get in.");
    }
    let (open, unused) = (bytes_by_time(sums.open), percent(sums.unused(), sums.open));
    format!(
        "{what} had rights for peers: {open} (bytes × the time that they were open), {unused} of it for nothing."
    )
}

#[cfg(test)]
mod tests {
    use transom_exposure::Audit;
    use transom_exposure::audit::Opens;
    use transom_exposure::cell::Cell;
    use transom_exposure::doors::{Pair, Scope};
    use transom_exposure::opening::Touch;
    use transom_exposure::report::groups;

    use super::*;

    /// The time before a queue pair lets a peer in is no time in which it was open.
    ///
    /// Rules: EXP-02, EXP-08
    #[test]
    fn a_use_is_timed_from_when_a_peer_could_come() {
        let deed = Deed::Read;
        let rights = [deed].into_iter().collect();
        let (device, object, scope) = (1, Object::Region, Scope::Domain(1));
        let (slots, key, site, address, length, base) =
            ((0, None), 0x1234, 1, 0x1000, 4096, 0x1000);
        let opens =
            Opens { device, slots, key, object, scope, site, rights, address, length, base };
        let (number, peer, domain, gid, since, until) = (3, 4, Some(1), [0; 16], 0, 0);
        let pair = Pair { device, number, domain, peer, gid, rights, since, until };
        let touch = Touch { pair: 3, deed, address: 0x1010, length: 8, begins: true };
        let mut audit = Audit::begin(0);
        audit.opens(&opens, 20);
        audit.lets_in(&pair, 100);
        audit.touches(1, 0, &touch, 130);
        audit.closes(1, 0, 140);
        let cells = audit.changed().map(|(_, words)| Cell::of(&words)).collect::<Vec<_>>();
        let accounts = [Account::of(transom_exposure::names::Names::default(), cells, 150)];
        let (groups, names) = (groups(&accounts), Names::of(&accounts));
        let people = People::new(&accounts, &names);
        assert!(people.open(&groups[0]).starts_with("for 40 ns "), "{}", people.open(&groups[0]));
        assert!(people.used(&groups[0]).ends_with(": 8 bytes, 1 READ after 30 ns"));
    }
}
