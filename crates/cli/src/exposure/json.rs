//! The accounts as lines of JSON.

use std::io::{self, Write};

use serde::Serialize;
use transom_exposure::opening::{Opening, Times};
use transom_exposure::report::{Account, Measured};
use transom_exposure::sums::{Change, Sums, total};
use transom_exposure::{Deed, Rights};

use super::peers::Peer;
use super::{Names, incomplete, object_of};
use crate::check::json::{At, Of, at};
use crate::lines;

#[derive(Serialize)]
struct Line<'a> {
    r#type: &'a str,
    process: Of<'a>,
    object: &'a str,
    number: Option<u64>,
    region: Option<u64>,
    key: Option<u32>,
    address: Option<u64>,
    length: Option<u64>,
    rights: Vec<&'a str>,
    call: Option<At<'a>>,
    since: u64,
    until: u64,
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
    queue_pair: u32,
    peer_queue_pair: u32,
    peer_address: String,
    peer_pid: Option<u32>,
    rights: Vec<&'a str>,
    since: u64,
    until: Option<u64>,
}

/// What a peer did with it.
#[derive(Serialize)]
struct Did {
    queue_pair: u32,
    operation: &'static str,
    #[serde(flatten)]
    times: Done,
}

#[derive(Serialize)]
struct Done {
    count: u64,
    bytes: u64,
    first: u64,
    last: u64,
}

#[derive(Serialize)]
struct Touched {
    start: u64,
    end: u64,
    first: u64,
    last: u64,
}

#[derive(Serialize)]
struct Amounts {
    openings: u64,
    untouched: u64,
    bytes_open: u128,
    bytes_touched: u128,
    open_byte_ns: u128,
    used_byte_ns: u128,
    excess_byte_ns: u128,
    unused_percent: f64,
    by_right: Vec<ByRight>,
    changes: Vec<Closes>,
}

/// What one right comes to.
#[derive(Serialize)]
struct ByRight {
    right: &'static str,
    open_byte_ns: u128,
    #[serde(flatten)]
    times: Done,
}

#[derive(Serialize)]
struct Closes {
    change: &'static str,
    right: Option<&'static str>,
    closes_byte_ns: u128,
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

/// Each region and window of a process, and those that share a place.
pub(super) fn print(
    out: &mut dyn Write,
    account: &Account,
    accounts: &[Account],
    names: &Names,
) -> io::Result<()> {
    let line = Line {
        r#type: "opening",
        process: process(account),
        object: "",
        number: None,
        region: None,
        key: None,
        address: None,
        length: None,
        rights: Vec::new(),
        call: None,
        since: 0,
        until: 0,
        at_end: false,
        peers: Vec::new(),
        uses: Vec::new(),
        touched: Vec::new(),
        sums: amounts(&Sums::default(), false),
    };
    for Measured { opening: it, at_end, sums } in &account.openings {
        let did = it.users.iter().map(|user| Did {
            queue_pair: user.pair,
            operation: user.deed.name(),
            times: done(&user.times),
        });
        let ranges = it.touched.ranges.iter().map(|range| Touched {
            start: range.start,
            end: range.end,
            first: range.first.at,
            last: range.last.at,
        });
        let line = Line {
            object: it.object.name(),
            number: Some(it.number),
            region: Some(it.region).filter(|number| *number > 0),
            key: Some(it.key),
            address: Some(it.address),
            length: Some(it.length).filter(|length| *length != u64::MAX),
            rights: rights(it.rights),
            call: names.call(account, it.site).map(at),
            since: it.since,
            until: it.until,
            at_end: *at_end,
            peers: peers(account, it, accounts),
            uses: did.collect(),
            touched: ranges.collect(),
            sums: amounts(sums, object_of(it.object)),
            process: process(account),
            ..line
        };
        lines::print(out, &line)?;
    }
    for it in &account.folded {
        let line = Line {
            r#type: "folded",
            object: it.object.name(),
            rights: rights(it.rights),
            call: names.call(account, it.site).map(at),
            since: it.since,
            until: it.until,
            sums: amounts(&it.sums, object_of(it.object)),
            process: process(account),
            peers: Vec::new(),
            uses: Vec::new(),
            touched: Vec::new(),
            ..line
        };
        lines::print(out, &line)?;
    }
    Ok(())
}

/// The last line.
pub(super) fn print_summary(
    out: &mut dyn Write,
    accounts: &[Account],
    sums: &Sums,
) -> io::Result<()> {
    let summary = Summary {
        r#type: "summary",
        opened: accounts.len(),
        stopped: accounts.iter().filter(|it| incomplete(it).is_some()).count(),
        openings_left_out: total(accounts.iter().map(|it| it.process.openings_left_out)),
        pairs_left_out: total(accounts.iter().map(|it| it.process.pairs_left_out)),
        refused: total(accounts.iter().map(|it| it.process.refused)),
        sums: amounts(sums, true),
    };
    lines::print(out, &summary)
}

fn process(account: &Account) -> Of<'_> {
    Of { pid: account.names.pid, program: &account.names.program }
}

fn rights(rights: Rights) -> Vec<&'static str> {
    rights.deeds().map(Deed::name).collect()
}

fn done(times: &Times) -> Done {
    let Times { count, bytes, first, last } = *times;
    Done { count, bytes, first, last }
}

fn peers<'a>(account: &Account, it: &Opening, accounts: &'a [Account]) -> Vec<Could<'a>> {
    let could = account.could_use(it).map(|(pair, common)| {
        let peer = Peer::of(pair, accounts);
        Could {
            queue_pair: pair.number,
            peer_queue_pair: pair.peer,
            peer_address: peer.address.to_string(),
            peer_pid: peer.account.map(|it| it.names.pid),
            rights: rights(common),
            since: pair.since,
            until: Some(pair.until).filter(|until| *until > 0),
        }
    });
    could.collect()
}

fn amounts(sums: &Sums, is_region: bool) -> Amounts {
    let by_right = Deed::ALL.map(|deed| ByRight {
        right: deed.name(),
        open_byte_ns: sums.by_right[deed as usize],
        times: done(&sums.deeds[deed as usize]),
    });
    let changes = sums.changes(is_region).into_iter().map(|(change, closes)| Closes {
        change: change.name(),
        right: match change {
            Change::FewerRights(deed) => Some(deed.name()),
            _ => None,
        },
        closes_byte_ns: closes,
    });
    Amounts {
        openings: sums.openings,
        untouched: sums.untouched,
        bytes_open: sums.bytes,
        bytes_touched: sums.touched,
        open_byte_ns: sums.open,
        used_byte_ns: sums.used,
        excess_byte_ns: sums.excess,
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
        print(&mut out, &accounts[0], &accounts, &names).unwrap();
        print_summary(&mut out, &accounts, &accounts[0].sums()).unwrap();
        let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    #[test]
    fn a_line_has_the_numbers_of_its_region() {
        let lines = printed();
        let [opening, folded, summary] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((&opening["type"], &folded["type"]), (&"opening".into(), &"folded".into()));
        assert_eq!((&opening["since"], &opening["until"]), (&20.into(), &40.into()));
        assert_eq!(opening["open_byte_ns"], 4096 * 20);
        assert_eq!(opening["used_byte_ns"], 8 * 10);
        let touched = serde_json::json!([{ "start": 16, "end": 24, "first": 30, "last": 30 }]);
        assert_eq!(opening["touched"], touched);
        assert_eq!(opening["peers"][0]["peer_address"], "10.0.0.7");
        assert_eq!(opening["changes"][3]["right"], "write");
        assert_eq!((&folded["number"], &folded["key"]), (&Value::Null, &Value::Null));
        assert_eq!(summary["openings"], 2);
    }

    /// 2^64 - 1 is beyond what readers keep exactly, and not the number of its bytes.
    ///
    /// Rules: EXP-01
    #[test]
    fn the_length_of_a_region_of_all_addresses_is_null() {
        let length = |length| printed_of([account_of(0, length)])[0]["length"].clone();
        assert_eq!(length(u64::MAX), Value::Null);
        assert_eq!(length(u64::MAX - 1), u64::MAX - 1);
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
