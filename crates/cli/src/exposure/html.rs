//! The accounts as one page: a picture of each process's memory over time, and the worst. It needs no network.

use std::fmt::{self, Write};
use std::ops::Range;

use transom_exposure::report::{Account, Group};
use transom_exposure::sums::Sums;

use super::peers::process;
use super::people::{self, advice};
use super::words::{bytes_by_time, escaped, rights};
use super::{Names, object_of, picture};
use crate::check::shown;

/// How many of the worst are listed.
const LISTED: usize = 10;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2733;--soft:#5d6b7a;--line:#dde3ea;--paper:#fff;--read:#2b7de0;--write:#d9730d;\
--pair:#8a99a8}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf1;--soft:#98a6b5;--line:#313b46;--paper:#161b21;--read:#5aa2f5;\
--write:#f0954a;--pair:#6c7b8a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1160px;margin:2em auto;\
padding:0 1em}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}
svg{width:100%;height:auto;font:11px system-ui,sans-serif}
svg text{fill:var(--soft)}.head{font-weight:600}.time{text-anchor:middle}.address{font-family:ui-monospace,monospace;\
font-size:10px}
.tick{stroke:var(--line)}.pair{fill:var(--pair);opacity:.6}
.read{--hue:var(--read)}.written{--hue:var(--write)}
.open{fill:var(--hue);fill-opacity:.16;stroke:var(--hue);stroke-opacity:.8}
.window .open{fill-opacity:.3;stroke-dasharray:4 2}
.used{fill:var(--hue);fill-opacity:.85}.touch{stroke:var(--ink)}
.key{display:inline-block;width:1.6em;height:.9em;border:1px solid var(--hue);vertical-align:-1px;margin:0 .3em 0 1em}
.key i{display:block;height:100%;background:var(--hue);opacity:.2}.key.full i{opacity:.85}.key.dashed{border-style:dashed}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.4em .8em .4em 0;\
border-top:1px solid var(--line)}td.number{white-space:nowrap;font-variant-numeric:tabular-nums}
code{font-size:.9em}";

const LEGEND: &str = "\
<p class=\"read\"><span class=\"key\"><i></i></span>open for reading<span class=\"written\"><span class=\"key\"><i></i>\
</span>open for writing</span><span class=\"key full\"><i></i></span>used: until the last touch<span class=\"key \
dashed\"><i></i></span>a window; a solid line is a region. A dark stroke is a first or last touch. \
The bars above the memory are queue pairs that let a peer in; without one, nothing below is open.</p>";

/// The page.
pub(super) fn page(
    accounts: &[Account],
    groups: &[Group<'_>],
    names: &Names,
    sums: &Sums,
) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let summary = escaped(&people::summary(accounts, sums));
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>What was open to peers</title>\n<style>{STYLE}</style></head>\n\
         <body><h1>What was open to peers</h1>\n<p>{summary}</p>\n{LEGEND}\n"
    )?;
    let of = span(accounts);
    for account in accounts.iter().filter(|it| !it.openings.is_empty()) {
        writeln!(out, "<h2>{}</h2>", escaped(&process(account)))?;
        picture::draw(&mut out, account, accounts, names, &of)?;
    }
    worst(&mut out, groups, names)?;
    out.push_str("</body></html>\n");
    Ok(out)
}

/// From the first thing that is drawn to the last.
fn span(accounts: &[Account]) -> Range<u64> {
    let openings = || accounts.iter().flat_map(|account| &account.openings);
    let start = openings().map(|it| it.opening.since).min().unwrap_or(0).min(u64::MAX - 1);
    let end = openings().map(|it| it.opening.until).max().unwrap_or(1);
    start..end.max(start + 1)
}

fn worst(out: &mut String, groups: &[Group<'_>], names: &Names) -> fmt::Result {
    let mut worst = groups.iter().filter(|it| it.sums.unused() > 0).take(LISTED).peekable();
    if worst.peek().is_none() {
        return Ok(());
    }
    out.push_str(
        "<h2>The worst, and what would close them</h2>\n<table><tr><th>unused<th>what<th>closes</tr>\n",
    );
    let from = std::env::current_dir().unwrap_or_default();
    for group in worst {
        let sums = &group.sums;
        let call = names.call(group.account, group.site);
        let place = call
            .and_then(|call| shown::places(call).first().map(|place| shown::place(place, &from)));
        let place = escaped(&place.unwrap_or_default());
        let changes = sums.changes(object_of(group.object));
        let changes =
            changes.iter().map(|(change, closes)| escaped(&advice(*change, *closes, sums)));
        writeln!(
            out,
            "<tr><td class=\"number\">{}<td>{}, open for {}<br><code>{place}</code><td>{}</tr>",
            bytes_by_time(sums.unused()),
            people::what(group),
            rights(group.rights),
            changes.collect::<Vec<_>>().join("<br>"),
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}
