//! Refusals for people: equal ones once, with a count.

use super::asked::{Refused, ends};
use super::{Told, json, who};
use crate::clock::{self, Ago};
use crate::failure::Result;
use crate::layout::Page;
use crate::sentence::without_numbers;
use anstyle::{AnsiColor, Style};
use std::io::Write;
use transom_system::registry::Record;

/// The order of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    NewestFirst,
    OldestFirst,
}

/// Equal refusals. The first one, in their order, is shown.
struct Group<'a> {
    shown: &'a Refused,
    /// When the last one was, in their order.
    last: u64,
    count: usize,
}

/// The text that equal refusals share. Accesses may differ in the address, calls and work in the numbers of their
/// sentence, and connections in the end that asked.
fn kind(refused: &Refused) -> String {
    let of = &refused.process.announcer;
    match &refused.record {
        Record::Access(record) => {
            let (attempt, object) = (&record.refusal.attempt, &record.refusal.object);
            let thing = (object.kind, object.base, object.length, object.access);
            format!("{of:?} {:?}", (record.refusal.reason, attempt.operation, attempt.qp, thing))
        }
        Record::Call(record) => {
            format!("{of:?} {}", without_numbers(&record.call.to_string()))
        }
        Record::Work(record) => {
            let ends = (record.qp, record.peer);
            format!("{of:?} {ends:?} {}", without_numbers(&record.to_string()))
        }
        Record::Connection(record) => {
            let ends = (record.source.ip(), record.destination);
            format!("{of:?} {:?}", (record.fault, record.code, ends))
        }
    }
}

/// Groups refusals. The groups have the order of those that are shown.
fn groups(refusals: &[Refused]) -> Vec<Group<'_>> {
    let mut groups: Vec<(String, Group<'_>)> = Vec::new();
    for refused in refusals {
        let (kind, time) = (kind(refused), refused.record.time());
        match groups.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, group)) => {
                group.last = time;
                group.count += 1;
            }
            None => groups.push((kind, Group { shown: refused, last: time, count: 1 })),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The same of refusals that are sorted newest first, to keep.
pub(super) fn told(refusals: &[Refused]) -> Vec<Told> {
    let keep = |group: Group<'_>| {
        let Group { shown, last, count } = group;
        Told { newest: shown.clone(), first: last, count }
    };
    groups(refusals).into_iter().map(keep).collect()
}

/// Whether a call was refused only because an event says that the connection has failed.
fn follows(group: &Group<'_>) -> bool {
    matches!(&group.shown.record, Record::Call(record)
        if record.call.said.to_string().ends_with("see the record of that event"))
}

/// For each call that only follows from a connection that has failed: the connection of its process that failed last
/// before it, and the call in words.
fn following(groups: &[Group<'_>]) -> Vec<(usize, usize, String)> {
    let calls = groups.iter().enumerate().filter(|(_, group)| follows(group));
    let with_cause = calls.filter_map(|(call, group)| {
        let Refused { process, record, .. } = group.shown;
        let is_cause = |it: &Group<'_>| {
            matches!(it.shown.record, Record::Connection(_))
                && it.shown.process.announcer == process.announcer
                && it.shown.record.time() <= record.time()
        };
        let before = groups.iter().enumerate().filter(|(_, it)| is_cause(it));
        let (cause, _) = before.max_by_key(|(_, it)| it.shown.record.time())?;
        let said = record.to_string();
        Some((call, cause, said.trim_end_matches("; see the record of that event").to_owned()))
    });
    with_cause.collect()
}

/// Prints at most this many, of refusals in this order. Returns how many are left.
pub(super) fn print(
    out: &mut Page<impl Write>,
    refusals: &[Refused],
    order: Order,
    limit: usize,
) -> Result<usize> {
    let groups = groups(refusals);
    let following = following(&groups);
    let is_told = |at: usize| following.iter().any(|(call, ..)| *call == at);
    let shown: Vec<_> = groups.iter().enumerate().filter(|(at, _)| !is_told(*at)).collect();
    let mut connections = Vec::new();
    for (at, group) in shown.iter().take(limit) {
        print_one(out, group.shown)?;
        for (_, _, call) in following.iter().filter(|(_, cause, _)| cause == at) {
            out.item("  ", call)?;
        }
        if let Record::Connection(record) = &group.shown.record {
            let (ends, passive) = (ends(&group.shown.record), json::is_passive(record));
            if connections.contains(&(ends, !passive)) {
                out.item("  ", "It is the same connection as above, seen by its other end.")?;
            }
            connections.push((ends, passive));
        }
        if group.count > 1 {
            let time = clock::local(group.last, clock::now());
            let last = if order == Order::NewestFirst { "first" } else { "last" };
            out.item("  ", format_args!("{} times, the {last} at {time}", group.count))?;
        }
    }
    Ok(shown.len().saturating_sub(limit))
}

/// Prints a refusal: its time and process, and below that its sentence.
pub(super) fn print_one(out: &mut Page<impl Write>, refused: &Refused) -> Result {
    const TIME: Style = AnsiColor::Cyan.on_default();
    const DIM: Style = Style::new().dimmed();
    let Refused { process, record, .. } = refused;
    let now = clock::now();
    let time = clock::local(record.time(), now);
    let ago = Ago(now.saturating_sub(record.time()));
    out.item(format_args!("{TIME}{time}{TIME:#} {DIM}({ago}){DIM:#}  "), who(process))?;
    out.item("  ", record)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::json::tests::process;
    use super::*;
    use transom_device::execution::Unheard;
    use transom_device::qp::Mask;
    use transom_system::registry::{
        CallFault, CallRecord, CallRefusal, ConnectionFault, ConnectionRecord, Fate, Name,
        WorkRecord,
    };

    #[test]
    fn the_same_thing_is_told_once_with_how_often_it_was() {
        let refused = |time, verb, value| {
            let call = CallRefusal {
                verb: Name::new(verb),
                errno: 22,
                fault: CallFault::Invalid,
                field: Name::new("num_sge"),
                value,
                ..CallRefusal::default()
            };
            let record = Record::Call(CallRecord { time, call });
            Refused { process: process(), record, lost: 0 }
        };
        let all = [
            refused(5, "ibv_post_send", 9),
            refused(4, "ibv_post_recv", 9),
            refused(3, "ibv_post_send", 8),
            refused(2, "ibv_post_send", 9),
        ];
        let groups = groups(&all);
        let told = groups.iter().map(|it| (it.shown.record.time(), it.last, it.count));
        let told: Vec<_> = told.collect();
        assert_eq!(told, [(5, 2, 3), (4, 4, 1)]);
        let printed = |all: &[Refused], order| {
            let mut out = Page::new(Vec::new(), 80);
            let left = print(&mut out, all, order, 1).unwrap();
            (left, String::from_utf8(out.to).unwrap())
        };
        let (left, out) = printed(&all, Order::NewestFirst);
        assert!(out.contains("num_sge cannot be 0x9\n  3 times, the first at"), "{out}");
        assert_eq!((left, out.lines().count()), (1, 3), "{out}");
        let mut all = all;
        all.reverse();
        let (_, out) = printed(&all, Order::OldestFirst);
        assert!(out.contains("num_sge cannot be 0x9\n  3 times, the last at"), "{out}");
    }

    /// A connection from this port that has failed.
    fn connection(time: u64, fault: ConnectionFault, port: u16) -> Refused {
        let record = ConnectionRecord {
            time,
            fault,
            code: 8,
            source: ([127, 0, 0, 1], port).into(),
            destination: ([127, 0, 0, 1], 7999).into(),
            nearest: 0,
            listens_at: None,
            other_space: None,
            cause: None,
            said: Name::new(""),
        };
        Refused { process: process(), record: Record::Connection(record), lost: 0 }
    }

    #[test]
    fn of_a_connection_that_both_ends_tell_of_it_is_said() {
        let refused = |fault, port| connection(5, fault, port);
        let printed = |all: &[Refused]| {
            let mut out = Page::new(Vec::new(), 80);
            print(&mut out, all, Order::OldestFirst, 9).unwrap();
            String::from_utf8(out.to).unwrap().matches("seen by its other end").count()
        };
        let passive = refused(ConnectionFault::Refused, 40_000);
        assert_eq!(printed(&[passive.clone(), refused(ConnectionFault::Rejected, 40_000)]), 1);
        assert_eq!(printed(&[passive.clone(), refused(ConnectionFault::Rejected, 40_001)]), 0);
        assert_eq!(printed(&[passive, refused(ConnectionFault::BacklogFull, 40_000)]), 0);
    }

    #[test]
    fn a_call_that_only_waited_for_a_connection_is_told_with_it() {
        let connection = |time| connection(time, ConnectionFault::Rejected, 40_000);
        let call = |time| {
            let call = CallRefusal {
                verb: Name::new("rdma_connect"),
                errno: libc::ECONNREFUSED,
                fault: CallFault::Told,
                said: Name::new(
                    "RDMA_CM_EVENT_REJECTED has come, status 8; see the record of that event",
                ),
                ..CallRefusal::default()
            };
            Refused { process: process(), record: Record::Call(CallRecord { time, call }), lost: 0 }
        };
        let printed = |all: &[Refused], order| {
            let mut out = Page::new(Vec::new(), 200);
            print(&mut out, all, order, 9).unwrap();
            String::from_utf8(out.to).unwrap()
        };
        let told =
            "\n  rdma_connect answered ECONNREFUSED: RDMA_CM_EVENT_REJECTED has come, status 8\n";
        for out in [
            printed(&[connection(3), call(4)], Order::OldestFirst),
            printed(&[call(4), connection(3)], Order::NewestFirst),
        ] {
            assert_eq!(out.lines().count(), 3, "{out}");
            assert!(out.ends_with(told), "{out}");
        }
        // Its event may be lost.
        let out = printed(&[call(4)], Order::NewestFirst);
        assert!(out.contains("see the record of that event"), "{out}");
    }

    /// In one group, the sentence of one of them would be lost.
    #[test]
    fn what_differs_in_more_than_numbers_is_told_apart() {
        let refused = |record| Refused { process: process(), record, lost: 0 };
        let out_of_range = |mask: Mask, is, most| {
            let call = CallRefusal {
                verb: Name::new("ibv_modify_qp"),
                errno: 22,
                fault: CallFault::OutOfRange,
                value: mask.bits().into(),
                more: [is, most],
                ..CallRefusal::default()
            };
            refused(Record::Call(CallRecord { time: 1, call }))
        };
        let dropped = |why| {
            let fate = Fate::Dropped(why);
            refused(Record::Work(WorkRecord { time: 1, qp: 7, peer: 8, work: None, fate }))
        };
        let all = [
            out_of_range(Mask::PATH_MTU, 1024, 5),
            out_of_range(Mask::PATH_MTU, 6, 5),
            out_of_range(Mask::MIN_RNR_TIMER, 40, 31),
            out_of_range(Mask::MIN_RNR_TIMER, 41, 31),
            dropped(Unheard::NoReceive),
            dropped(Unheard::TooSmall { needed: 104, room: 103 }),
            dropped(Unheard::TooSmall { needed: 104, room: 39 }),
            dropped(Unheard::OtherQkey { own: 1, came: 2 }),
        ];
        let counts: Vec<_> = groups(&all).iter().map(|group| group.count).collect();
        assert_eq!(counts, [1, 1, 2, 1, 2, 1]);
    }
}
