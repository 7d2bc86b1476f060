//! The accounts as lines of JSON.

use std::io::{self, Write};

use serde::Serialize;
use transom_exposure::opening::{Object, Opening, Times};
use transom_exposure::report::{Account, Measured};
use transom_exposure::sums::{Change, Sums, total};
use transom_exposure::{Deed, Rights};

use super::peers::Peer;
use super::{Names, incomplete, object_of};
use crate::check::json::{At, Of, at};
use crate::explain::json::length;
use crate::lines::{self, Exact};

#[derive(Serialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(flatten)]
    process: Of<'a>,
    kind: &'a str,
    instance: Option<u64>,
    region: Option<u64>,
    key: Option<u32>,
    base: Option<Exact>,
    length: Option<Exact>,
    access: Vec<&'a str>,
    call: Option<At<'a>>,
    since_ns: Exact,
    until_ns: Exact,
    at_end: bool,
    peers: Vec<Could<'a>>,
    uses: Vec<Did>,
    touched: Vec<Touched>,
    #[serde(flatten)]
    sums: Amounts,
}

/// A peer that could use it.
#[derive(Serialize)]
struct Could<'a> {
    qp: u32,
    peer_qp: u32,
    peer_ip: String,
    peer_pid: Option<u32>,
    access: Vec<&'a str>,
    since_ns: Exact,
    until_ns: Option<Exact>,
}

/// What a peer did with it.
#[derive(Serialize)]
struct Did {
    qp: u32,
    operation: &'static str,
    #[serde(flatten)]
    times: Done,
}

#[derive(Serialize)]
struct Done {
    count: u64,
    bytes: Exact,
    first_ns: Option<Exact>,
    last_ns: Option<Exact>,
}

#[derive(Serialize)]
struct Touched {
    start: Exact,
    end: Exact,
    first_ns: Exact,
    last_ns: Exact,
}

#[derive(Serialize)]
struct Amounts {
    openings: u64,
    untouched: u64,
    open_bytes: Exact<u128>,
    touched_bytes: Exact<u128>,
    open_byte_ns: Exact<u128>,
    used_byte_ns: Exact<u128>,
    excess_byte_ns: Exact<u128>,
    unused_percent: f64,
    by_right: Vec<ByRight>,
    changes: Vec<Closes>,
}

/// What one right comes to.
#[derive(Serialize)]
struct ByRight {
    right: &'static str,
    open_byte_ns: Exact<u128>,
    #[serde(flatten)]
    times: Done,
}

#[derive(Serialize)]
struct Closes {
    change: &'static str,
    right: Option<&'static str>,
    closes_byte_ns: Exact<u128>,
}

#[derive(Serialize)]
struct Summary {
    r#type: &'static str,
    opened: usize,
    stopped: usize,
    openings_left_out: u64,
    pairs_left_out: u64,
    refused: u64,
    #[serde(flatten)]
    sums: Amounts,
}

/// The steady clock, by which accounts have their times.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// How many nanoseconds after 1970 it began.
    pub(super) began: u64,
}

impl Clock {
    /// A time of it in nanoseconds since 1970, as other commands have them.
    fn wall(self, time: u64) -> Exact {
        Exact(time.saturating_add(self.began))
    }
}

/// Each region and window of a process, and those that share a place.
pub(super) fn print(
    out: &mut dyn Write,
    account: &Account,
    accounts: &[Account],
    names: &Names,
    clock: Clock,
) -> io::Result<()> {
    for measured in &account.openings {
        lines::print(out, &opening(account, measured, accounts, names, clock))?;
    }
    for it in &account.folded {
        let sums = amounts(&it.sums, object_of(it.object), clock);
        let call = names.call(account, it.site).map(at);
        let of = (it.object, it.rights, it.since, it.until);
        lines::print(out, &line("folded", account, of, call, sums, clock))?;
    }
    Ok(())
}

/// The line of one, or of several that share it, without what only one has.
fn line<'a>(
    r#type: &'a str,
    account: &'a Account,
    (object, rights, since, until): (Object, Rights, u64, u64),
    call: Option<At<'a>>,
    sums: Amounts,
    clock: Clock,
) -> Line<'a> {
    Line {
        r#type,
        process: Of::new(account.names.pid, &account.names.program),
        kind: kind(object),
        instance: None,
        region: None,
        key: None,
        base: None,
        length: None,
        access: access(rights),
        call,
        since_ns: clock.wall(since),
        until_ns: clock.wall(until),
        at_end: false,
        peers: Vec::new(),
        uses: Vec::new(),
        touched: Vec::new(),
        sums,
    }
}

fn opening<'a>(
    account: &'a Account,
    measured: &'a Measured,
    accounts: &'a [Account],
    names: &'a Names,
    clock: Clock,
) -> Line<'a> {
    let Measured { opening: it, at_end, sums } = measured;
    let did = it.users.iter().map(|user| Did {
        qp: user.pair,
        operation: user.deed.name(),
        times: done(&user.times, clock),
    });
    let ranges = it.touched.ranges.iter().map(|range| Touched {
        start: Exact(range.start),
        end: Exact(range.end),
        first_ns: clock.wall(range.first.at),
        last_ns: clock.wall(range.last.at),
    });
    let sums = amounts(sums, object_of(it.object), clock);
    let call = names.call(account, it.site).map(at);
    let of = (it.object, it.rights, it.since, it.until);
    Line {
        instance: Some(it.number),
        region: Some(it.region).filter(|number| *number > 0),
        key: Some(it.key),
        base: Some(Exact(it.base)),
        length: length(it.length),
        at_end: *at_end,
        peers: peers(account, it, accounts, clock),
        uses: did.collect(),
        touched: ranges.collect(),
        ..line("opening", account, of, call, sums, clock)
    }
}

/// The last line.
pub(super) fn print_summary(
    out: &mut dyn Write,
    accounts: &[Account],
    sums: &Sums,
    clock: Clock,
) -> io::Result<()> {
    let summary = Summary {
        r#type: "summary",
        opened: accounts.len(),
        stopped: accounts.iter().filter(|it| incomplete(it).is_some()).count(),
        openings_left_out: total(accounts.iter().map(|it| it.process.openings_left_out)),
        pairs_left_out: total(accounts.iter().map(|it| it.process.pairs_left_out)),
        refused: total(accounts.iter().map(|it| it.process.refused)),
        sums: amounts(sums, true, clock),
    };
    lines::print(out, &summary)
}

/// What kind of object it is. The account does not tell the two checks of type 2 apart.
fn kind(object: Object) -> &'static str {
    match object {
        Object::Region => "region",
        Object::Window1 => "window_1",
        Object::Window2 => "window_2",
    }
}

fn access(rights: Rights) -> Vec<&'static str> {
    rights.deeds().map(Deed::right_name).collect()
}

fn done(times: &Times, clock: Clock) -> Done {
    let Times { count, bytes, first, last } = *times;
    let was = |time| (count > 0).then(|| clock.wall(time));
    Done { count, bytes: Exact(bytes), first_ns: was(first), last_ns: was(last) }
}

fn peers<'a>(
    account: &Account,
    it: &Opening,
    accounts: &'a [Account],
    clock: Clock,
) -> Vec<Could<'a>> {
    let could = account.could_use(it).map(|(pair, common)| {
        let peer = Peer::of(pair, accounts);
        Could {
            qp: pair.number,
            peer_qp: pair.peer,
            peer_ip: peer.address.to_string(),
            peer_pid: peer.account.map(|it| it.names.pid),
            access: access(common),
            since_ns: clock.wall(pair.since),
            until_ns: (pair.until > 0).then(|| clock.wall(pair.until)),
        }
    });
    could.collect()
}

fn amounts(sums: &Sums, is_region: bool, clock: Clock) -> Amounts {
    let by_right = Deed::ALL.map(|deed| ByRight {
        right: deed.right_name(),
        open_byte_ns: Exact(sums.by_right[deed as usize]),
        times: done(&sums.deeds[deed as usize], clock),
    });
    let changes = sums.changes(is_region).into_iter().map(|(change, closes)| Closes {
        change: change.name(),
        right: match change {
            Change::FewerRights(deed) => Some(deed.right_name()),
            _ => None,
        },
        closes_byte_ns: Exact(closes),
    });
    Amounts {
        openings: sums.openings,
        untouched: sums.untouched,
        open_bytes: Exact(sums.bytes),
        touched_bytes: Exact(sums.touched),
        open_byte_ns: Exact(sums.open),
        used_byte_ns: Exact(sums.used),
        excess_byte_ns: Exact(sums.excess),
        unused_percent: sums.percent_unused(),
        by_right: by_right.into(),
        changes: changes.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::FIELDS;
    use super::*;
    use crate::lines::field_names;
    use serde_json::Value;
    use transom_exposure::Audit;
    use transom_exposure::audit::Opens;
    use transom_exposure::cell::{Cell, Folded};
    use transom_exposure::doors::{Pair, Scope};
    use transom_exposure::opening::{Object, Touch};

    /// A region that a peer has read, and regions that share a line.
    fn account() -> Account {
        account_of(0x1000, 4096)
    }

    /// The same with a region of this place.
    fn account_of(address: u64, length: u64) -> Account {
        let rights = [Deed::Read, Deed::Write].into_iter().collect();
        let opens = Opens {
            device: 1,
            slots: (0, None),
            key: 0x1234,
            object: Object::Region,
            scope: Scope::Domain(1),
            site: 1,
            rights,
            address,
            length,
            base: address,
        };
        let (number, peer, domain) = (3, 4, Some(1));
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7];
        let pair = Pair { device: 1, number, domain, peer, gid, rights, since: 0, until: 0 };
        let deed = Deed::Read;
        let touch = Touch { pair: 3, deed, address: 0x1010, length: 8, begins: true };
        let mut audit = Audit::begin(0);
        audit.lets_in(&pair, 10);
        audit.opens(&opens, 20);
        audit.touches(1, 0, &touch, 30);
        audit.closes(1, 0, 40);
        let cells = audit.changed().map(|(_, words)| Cell::of(&words)).collect::<Vec<_>>();
        let mut account = Account::of(transom_exposure::names::Names::default(), cells, 50);
        let Measured { sums, .. } = account.openings[0].clone();
        let (object, site, since, until) = (Object::Window2, 0, 1, 2);
        account.folded.push(Folded { object, site, rights, since, until, sums });
        account
    }

    fn printed() -> Vec<Value> {
        printed_of([account()])
    }

    fn printed_of(accounts: [Account; 1]) -> Vec<Value> {
        let mut out = Vec::new();
        let names = Names::of(&accounts);
        let clock = Clock { began: 1000 };
        print(&mut out, &accounts[0], &accounts, &names, clock).unwrap();
        print_summary(&mut out, &accounts, &accounts[0].sums(), clock).unwrap();
        let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    #[test]
    fn a_line_has_the_numbers_of_its_region() {
        let lines = printed();
        let [opening, folded, summary] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((&opening["type"], &folded["type"]), (&"opening".into(), &"folded".into()));
        assert_eq!((&opening["since_ns"], &opening["until_ns"]), (&"1020".into(), &"1040".into()));
        assert_eq!(opening["open_byte_ns"], (4096 * 20).to_string());
        assert_eq!(opening["used_byte_ns"], (8 * 10).to_string());
        let at = "1030";
        let touched =
            serde_json::json!([{ "start": "16", "end": "24", "first_ns": at, "last_ns": at }]);
        assert_eq!(opening["touched"], touched);
        assert_eq!(opening["peers"][0]["peer_ip"], "10.0.0.7");
        assert_eq!(opening["changes"][3]["right"], "REMOTE_WRITE");
        assert_eq!(opening["by_right"][1]["first_ns"], Value::Null, "there was none");
        assert_eq!((&folded["instance"], &folded["key"]), (&Value::Null, &Value::Null));
        assert_eq!(summary["openings"], 2);
    }

    /// 2^64 - 1 is not the number of its bytes.
    ///
    /// Rules: EXP-01
    #[test]
    fn the_length_of_a_region_of_all_addresses_is_null() {
        let length = |length| printed_of([account_of(0, length)])[0]["length"].clone();
        assert_eq!(length(u64::MAX), Value::Null);
        assert_eq!(length(u64::MAX - 1), (u64::MAX - 1).to_string());
    }

    /// The fields of a call are those of `transom check`.
    #[test]
    fn the_help_lists_every_field() {
        let mut fields = Vec::new();
        printed().iter().for_each(|line| field_names(line, &mut fields));
        let words: Vec<_> = FIELDS.split(|it: char| !it.is_alphanumeric() && it != '_').collect();
        assert!(fields.len() > 40);
        for field in fields {
            assert!(words.contains(&field.as_str()), "{field}");
        }
    }
}
