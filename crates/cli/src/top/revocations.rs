//! What is closed to peers, as it happens: from the events that processes record while somebody watches.

use super::view::{Revocation, Span, Stay, View};
use crate::explain::json::{kind as kind_name, length as length_of};
use crate::lines::Exact;
use serde_json::{Value, json};
use std::collections::VecDeque;
use transom_device::Access;
use transom_device::operation::Operation;
use transom_device::protection::Kind;
use transom_system::clock::wall_time;
use transom_system::trace::Event;

/// How many different revocations are kept.
const MOST: usize = 100;

/// The last revocations, the newest first. Equal ones are one: of the same process, in the same way.
#[derive(Default)]
pub(super) struct Revocations(VecDeque<Closed>);

struct Closed {
    owner: Stay,
    /// The newest of them.
    event: Event,
    count: usize,
    /// It was not there at the look before.
    is_new: bool,
}

impl Closed {
    /// Whose it was, of what kind, and by what it was closed.
    fn way(&self) -> (Stay, u8, u16, u32, u32) {
        let Event { code, more, qp, peer, .. } = self.event;
        (self.owner, code, more, qp, peer)
    }
}

impl Revocations {
    /// Something is closed. What no peer could use is left out.
    pub(super) fn note(&mut self, owner: Stay, event: Event) {
        let is_region = [Kind::Region as u8, Kind::Null as u8].contains(&event.code);
        if is_region && !rights(&event).intersects(Access::REMOTE) {
            return;
        }
        let mut closed = Closed { owner, event, count: 1, is_new: true };
        if let Some(known) = self.0.iter().position(|it| it.way() == closed.way()) {
            closed.count += self.0.remove(known).map_or(0, |it| it.count);
        }
        self.0.push_front(closed);
        self.0.truncate(MOST);
    }

    /// Shows them in a view that has the processes.
    pub(super) fn show(&mut self, view: &mut View) {
        let shown = |closed: &Closed| {
            let owner = view.processes.iter().find(|it| it.stay == closed.owner)?;
            let Closed { owner: stay, event, count, is_new } = closed;
            let (time, sentence) = (wall_time(event.time), sentence(event));
            let number = |qp: u32| (qp != 0).then_some(qp);
            let access: Vec<_> = rights(event).iter_names().map(|(name, _)| name).collect();
            let fields = json!({
                "count": count,
                "time_ns": Exact(time),
                "pid": owner.pid,
                "process": owner.name,
                "kind": kind(event).map(kind_name),
                "key": event.key,
                "base": Exact(event.address),
                "length": length_of(event.length),
                "access": access,
                "operation": operation(event).map(|it| it.needs().label),
                "qp": number(event.qp),
                "peer_qp": number(event.peer),
                "sentence": sentence,
            });
            Some(Revocation {
                owner: *stay,
                pid: owner.pid,
                process: owner.name.clone(),
                time,
                count: *count,
                sentence,
                is_new: *is_new,
                fields: match fields {
                    Value::Object(fields) => fields,
                    _ => serde_json::Map::new(),
                },
            })
        };
        view.revocations = self.0.iter().filter_map(shown).collect();
        self.0.iter_mut().for_each(|closed| closed.is_new = false);
    }
}

fn rights(event: &Event) -> Access {
    Access::from_bits_truncate(event.detail as u32)
}

fn kind(event: &Event) -> Option<Kind> {
    let all = [Kind::Region, Kind::Null, Kind::Window1, Kind::Window2A, Kind::Window2B];
    all.into_iter().find(|kind| *kind as u8 == event.code)
}

/// What closed it. `None` if it has ended itself.
fn operation(event: &Event) -> Option<Operation> {
    u8::try_from(event.more).ok().and_then(Operation::from_code)
}

fn sentence(event: &Event) -> String {
    let is_region = kind(event).is_none_or(Kind::is_region);
    let thing = match kind(event) {
        Some(Kind::Window1) => "type 1 window",
        Some(Kind::Window2A | Kind::Window2B) => "type 2 window",
        _ => "region",
    };
    let range = match length_of(event.length) {
        Some(_) => format!("[{:#x}, +{})", event.address, event.length),
        None => "of all addresses".to_owned(),
    };
    let rights = rights(event) & (Access::REMOTE | Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT);
    let (qp, peer) = (event.qp, event.peer);
    let how = match operation(event) {
        Some(Operation::RemoteInvalidate) => {
            format!("revoked by SEND_WITH_INV from QP {peer:#x} to QP {qp:#x}")
        }
        Some(Operation::Bind) => format!("unbound, or bound anew, by QP {qp:#x}"),
        Some(operation) => format!("revoked by {} of QP {qp:#x}", operation.needs().name),
        None if is_region => "deregistered".to_owned(),
        None => "deallocated".to_owned(),
    };
    format!("The {thing} {range} with {rights} and key {:#010x} was {how}", event.key)
}

/// The place of what an event closed, in the memory of its process.
pub(super) fn span(owner: Stay, event: &Event, place: u64) -> Span {
    Span {
        owner,
        key: event.key,
        place,
        base: event.address,
        length: event.length,
        access: rights(event),
        kind: kind(event).unwrap_or(Kind::Region),
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::Process;
    use super::*;
    use transom_system::trace::What;

    const OWNER: Stay = (1, 2);

    fn closed(kind: Kind, by: Option<Operation>) -> Event {
        Event {
            code: kind as u8,
            more: by.map_or(0, |by| by.code().into()),
            qp: 0x1a2b3,
            peer: 0x20f00,
            key: 0x99,
            address: 0x1000,
            length: 64,
            detail: Access::REMOTE_WRITE.bits().into(),
            ..Event::of(What::Closed)
        }
    }

    fn shown(all: &mut Revocations) -> Vec<(usize, bool, String)> {
        let processes = vec![Process { stay: OWNER, ..Process::default() }];
        let mut view = View { processes, ..View::default() };
        all.show(&mut view);
        let told = view.revocations.into_iter();
        told.map(|it| (it.count, it.is_new, it.sentence)).collect()
    }

    /// Rules: SEE-30
    #[test]
    fn each_way_to_revoke_has_its_sentence() {
        let window = "The type 2 window [0x1000, +64) with REMOTE_WRITE and key 0x00000099 was ";
        let region = window.replace("type 2 window", "region");
        for (kind, by, said) in [
            (Kind::Window2B, Some(Operation::Invalidate), "revoked by LOCAL_INV of QP 0x1a2b3"),
            (
                Kind::Window2A,
                Some(Operation::RemoteInvalidate),
                "revoked by SEND_WITH_INV from QP 0x20f00 to QP 0x1a2b3",
            ),
            (Kind::Window2B, None, "deallocated"),
            (Kind::Region, None, "deregistered"),
        ] {
            let thing = if kind.is_region() { &*region } else { window };
            assert_eq!(sentence(&closed(kind, by)), format!("{thing}{said}"));
        }
        let bound = sentence(&closed(Kind::Window1, Some(Operation::Bind)));
        assert!(bound.starts_with("The type 1 window ") && bound.contains("bound anew"), "{bound}");
    }

    /// A program that binds and revokes all the time takes one line, and what peers could not use takes none.
    ///
    /// Rules: SEE-30
    #[test]
    fn equal_revocations_are_one_with_their_number() {
        let mut all = Revocations::default();
        all.note(OWNER, closed(Kind::Window1, None));
        (0..3).for_each(|_| all.note(OWNER, closed(Kind::Window2B, Some(Operation::Invalidate))));
        all.note(OWNER, Event { detail: 0, ..closed(Kind::Region, None) });
        all.note((9, 9), closed(Kind::Window1, None));
        let told: Vec<_> = shown(&mut all).iter().map(|(count, new, _)| (*count, *new)).collect();
        assert_eq!(told, [(3, true), (1, true)]);
        all.note(OWNER, closed(Kind::Window1, None));
        let told: Vec<_> = shown(&mut all).iter().map(|(count, new, _)| (*count, *new)).collect();
        assert_eq!(told, [(2, true), (3, false)]);
        for qp in 0..1000 {
            all.note(OWNER, Event { qp, ..closed(Kind::Window1, Some(Operation::Bind)) });
        }
        assert_eq!(shown(&mut all).len(), MOST);
    }
}
