//! Events of rdma_cm, and the program's uses of them after their acknowledgement.

use std::collections::BTreeMap;

use super::{Event, Ledger, Owner, Thing};
use crate::{Call, Kind};

/// An event of rdma_cm that the program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// The address of its `rdma_cm_event`.
    pub address: usize,
    /// The number of bytes that are freed with it, including the private data.
    pub length: usize,
    /// The address of the id that waits for its acknowledgement.
    pub id: usize,
    /// The address that identifies its multicast group, or 0 if it has none.
    pub group: usize,
}

impl ConnectionEvent {
    fn owners(&self) -> impl Iterator<Item = Owner> {
        let id = Owner { event: Event::Connection, thing: Thing::Id, address: self.id };
        let group = Owner { thing: Thing::Group, address: self.group, ..id };
        std::iter::once(id).chain((self.group != 0).then_some(group))
    }
}

/// An event that the program has, or has acknowledged.
#[derive(Clone, Copy, Debug)]
struct Known {
    event: ConnectionEvent,
    got: Call,
    acknowledged: Option<Call>,
}

/// Events whose memory is not freed yet, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Connections(BTreeMap<usize, Known>);

impl Connections {
    /// The event that has this address in its memory.
    fn around(&self, address: usize) -> Option<&Known> {
        let (start, known) = self.0.range(..=address).next_back()?;
        (address - start < known.event.length).then_some(known)
    }
}

impl Ledger {
    /// The call that made the id of a multicast group of which an event is known.
    pub(super) fn id_of_group_made(&self, group: usize) -> Option<(String, Call)> {
        let known = self.connections.0.values().find(|known| known.event.group == group)?;
        let (_, made) = self.made_by(Thing::Id, known.event.id)?;
        Some(("its id was made here".to_owned(), made))
    }

    /// The program gets an event of rdma_cm.
    pub fn connection_event_got(&mut self, event: ConnectionEvent, call: &Call) {
        let known = Known { event, got: *call, acknowledged: None };
        self.connections.0.insert(event.address, known);
        event.owners().for_each(|owner| self.event_got(owner, call));
    }

    /// The program acknowledges an event. Its memory stays until
    /// [`connection_memory_freed`](Self::connection_memory_freed).
    pub fn connection_event_acknowledged(&mut self, address: usize, call: &Call) {
        let Some(known) = self.connections.0.get_mut(&address) else { return };
        known.acknowledged = Some(*call);
        let (event, got) = (known.event, known.got);
        for owner in event.owners() {
            let left = self.events.get_mut(&owner);
            left.into_iter().for_each(|left| left.remove(&got));
        }
    }

    /// The memory of an event or an id that has ended is about to be freed. Another thing may have it then.
    pub fn connection_memory_freed(&mut self, address: usize) {
        self.connections.0.remove(&address);
        self.forget_grave(Thing::Id, address);
    }

    /// Whether something at this address is a part of an acknowledged event, or a destroyed id.
    pub fn has_ended(&self, address: usize) -> bool {
        match self.connections.around(address) {
            Some(known) => known.acknowledged.is_some(),
            None => self.is_grave(Thing::Id, address),
        }
    }

    /// A function of librdmacm gets something at this address that [has ended](Self::has_ended).
    pub fn given_to_connections(&mut self, function: &str, address: usize, call: &Call) {
        let Some(Known { event, got, acknowledged: Some(acknowledged) }) =
            self.connections.around(address).copied()
        else {
            self.not_alive(function, Thing::Id, address, call);
            return;
        };
        let what = match address == event.address {
            true => "an acknowledged event",
            false => "the content of an acknowledged event",
        };
        let says = format!("{function} got {what}.");
        let calls = [
            ("used here", *call),
            ("acknowledged here", acknowledged),
            ("the event was got here", got),
        ];
        let mut calls = calls.map(|(what, call)| (what.to_owned(), call)).to_vec();
        let made = self.made_by(Thing::Id, event.id);
        calls.extend(
            made.map(|(_, call)| ("the id that it came to was made here".to_owned(), call)),
        );
        self.found(Kind::UsedAfterAck, says, calls);
    }
}
