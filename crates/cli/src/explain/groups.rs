//! Refusals for people: equal ones once, with a count.

use super::asked::{Asked, Refused};
use super::{Told, who};
use crate::clock::{self, Ago};
use crate::failure::Result;
use crate::layout::Page;
use crate::sentence::without_numbers;
use anstyle::{AnsiColor, Style};
use std::io::Write;
use transom_system::registry::Record;

/// Equal refusals. The newest one is shown.
struct Group<'a> {
    newest: &'a Refused,
    first: u64,
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

/// Groups refusals that are sorted newest first. The groups have the order of their newest.
fn groups(refusals: &[Refused]) -> Vec<Group<'_>> {
    let mut groups: Vec<(String, Group<'_>)> = Vec::new();
    for refused in refusals {
        let (kind, time) = (kind(refused), refused.record.time());
        match groups.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, group)) => {
                group.first = time;
                group.count += 1;
            }
            None => groups.push((kind, Group { newest: refused, first: time, count: 1 })),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The same, to keep.
pub(super) fn told(refusals: &[Refused]) -> Vec<Told> {
    let keep = |group: Group<'_>| {
        let Group { newest, first, count } = group;
        Told { newest: newest.clone(), first, count }
    };
    groups(refusals).into_iter().map(keep).collect()
}

/// Prints at most this many, or that there are none.
pub(super) fn print(
    out: &mut Page<impl Write>,
    refusals: &[Refused],
    limit: usize,
    asked: &Asked,
) -> Result {
    let groups = groups(refusals);
    if groups.is_empty() {
        let whose = match (asked.pid, &asked.process) {
            (Some(pid), _) => format!(" of process {pid}"),
            (None, Some(name)) => format!(" of {name}"),
            (None, None) => String::new(),
        };
        let since = if asked.since > 0 { " since then" } else { "" };
        out.text(format_args!("No refusals{whose}{since}."))?;
        out.text(
            "If the device refuses a READ, WRITE, atomic, bind or invalidation, you see the reason here: the \
             key and the range, the window or region with its bounds and rights, and how far outside the \
             access was. If it refuses a call at once, you see the argument, and what it may be. `transom \
             demo` shows two refused accesses.",
        )?;
    }
    for group in groups.iter().take(limit) {
        print_one(out, group.newest)?;
        if group.count > 1 {
            let first = clock::local(group.first, clock::now());
            out.item("  ", format_args!("{} times, the first at {first}", group.count))?;
        }
    }
    let left = groups.len().saturating_sub(limit);
    if left > 0 {
        out.text(format_args!("{left} older; --limit {} shows all.", groups.len()))?;
    }
    Ok(())
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
    use transom_system::registry::{CallFault, CallRecord, CallRefusal, Fate, Name, WorkRecord};

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
        let told = groups.iter().map(|it| (it.newest.record.time(), it.first, it.count));
        let told: Vec<_> = told.collect();
        assert_eq!(told, [(5, 2, 3), (4, 4, 1)]);
        let mut out = Page::new(Vec::new(), 80);
        print(&mut out, &all, 1, &Asked::default()).unwrap();
        let out = String::from_utf8(out.to).unwrap();
        assert!(out.contains("num_sge cannot be 0x9\n  3 times, the first at"), "{out}");
        assert!(out.ends_with("1 older; --limit 2 shows all.\n"), "{out}");
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
