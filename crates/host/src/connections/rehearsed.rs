//! What a rehearsal (`transom rehearse`) knows of the ids of a program.

use std::collections::BTreeMap;
use std::net::IpAddr;

use transom_cm::refused::Errno;
use transom_cm::{ConnectionState, Happened, Route};
use transom_net::management::ManagementDatagram;
use transom_rehearse::Provocation;
use transom_system::rehearsal;
use transom_wire::cm::{CommId, Mad, Message, Receiver};

use super::gone::Gone;

/// The shortest time that a message is late, in nanoseconds. It may be doubled [`DOUBLINGS`] times.
const SHORTEST: u64 = 400_000;
const DOUBLINGS: u64 = 8;
/// The same of the end of a time wait, which takes seconds on adapters.
const TIMEWAIT: u64 = 200_000_000;
const TIMEWAIT_DOUBLINGS: u64 = 4;

/// The ids of the program. Empty in a process without a rehearsal.
#[derive(Debug, Default)]
pub(super) struct Rehearsed {
    ids: BTreeMap<CommId, Id>,
    /// How many ids the program has got.
    given: u32,
    late: Vec<Late>,
    /// Events, addresses and routes that come later.
    to_come: Vec<ToCome>,
    pub(super) gone: Gone,
}

/// A message that comes late.
#[derive(Debug)]
struct Late {
    id: CommId,
    until: u64,
    datagram: ManagementDatagram,
}

/// What comes later.
#[derive(Debug)]
struct ToCome {
    id: CommId,
    until: u64,
    coming: Coming,
}

/// What may come later to an id, other than a message.
#[derive(Debug)]
pub(super) enum Coming {
    /// An event, on which nothing depends.
    Event(Happened),
    /// Its address is resolved, or not.
    Address(Result<Route, Errno>),
    /// Its route is.
    Route(Result<(), Errno>),
}

#[derive(Debug, Default)]
struct Id {
    /// Its number, in the order in which the program gets its ids. Its number in messages would not do: that differs
    /// from run to run.
    number: u32,
    /// How many of its calls could come to nothing.
    calls: u64,
    /// How many messages confirmed its connection.
    confirmations: u64,
    /// How many messages ended its connection.
    ends: u64,
    /// How many connections of it were established.
    established: u64,
    /// How many addresses and routes it has asked for.
    resolved: u64,
    /// How many of its time waits have ended.
    timewaits: u64,
    /// Nobody confirms its connection.
    is_unconfirmed: bool,
}

impl Rehearsed {
    /// The program gets an id: a new one, or that of a request.
    pub(super) fn give(&mut self, id: CommId) {
        if rehearsal::on().is_some() {
            self.ids.insert(id, Id { number: self.given, ..Id::default() });
            self.given += 1;
        }
    }

    /// An id ends.
    pub(super) fn forget(&mut self, id: CommId) {
        self.ids.remove(&id);
        self.to_come.retain(|it| it.id != id);
        self.gone.forget(id);
    }

    /// The peers of these connections are gone.
    pub(super) fn lose_peers(
        &mut self,
        connections: impl Iterator<Item = (CommId, (IpAddr, CommId))>,
        number: u64,
        now: u64,
    ) {
        self.gone.lose(connections, number, now);
        self.late.retain(|it| !self.gone.has(it.id));
    }

    /// Whether this call of an id comes to nothing. If so, the answer is a random number.
    pub(super) fn refuses(&mut self, id: CommId) -> Option<u64> {
        let rehearsal = rehearsal::on()?;
        let id = self.ids.get_mut(&id)?;
        let nth = id.calls;
        id.calls += 1;
        rehearsal.provokes(Provocation::RefusedConnections, id.number, nth)
    }

    /// The messages that would confirm the connection of an id are lost from now on.
    pub(super) fn lose_confirmation(&mut self, id: CommId) {
        self.ids.get_mut(&id).into_iter().for_each(|id| id.is_unconfirmed = true);
    }

    /// The id whose connection this arriving message would confirm, if the message is lost.
    pub(super) fn loses(&self, datagram: &ManagementDatagram) -> Option<CommId> {
        rehearsal::on()?;
        let mad = Mad::parse(&datagram.mad).ok()?;
        let (Message::Rtu(_), Receiver::Id(id)) = (&mad.message, mad.receiver()) else {
            return None;
        };
        self.ids.get(&id).filter(|id| id.is_unconfirmed).map(|_| id)
    }

    /// Something has happened to an id. Returns it if the id is told now. Or it is told later, or something else follows.
    pub(super) fn follow(&mut self, id: CommId, happened: Happened, now: u64) -> Option<Happened> {
        let (Some(rehearsal), Some(its)) = (rehearsal::on(), self.ids.get_mut(&id)) else {
            return Some(happened);
        };
        let (provocation, count) = match happened {
            Happened::Established => (Provocation::AddressChanges, &mut its.established),
            Happened::TimewaitExit => (Provocation::LateTimewaits, &mut its.timewaits),
            _ => return Some(happened),
        };
        let nth = *count;
        *count += 1;
        let Some(number) = rehearsal.provokes(provocation, its.number, nth) else {
            return Some(happened);
        };
        if let Happened::TimewaitExit = happened {
            let until = now + (TIMEWAIT << (number % (TIMEWAIT_DOUBLINGS + 1)));
            self.to_come.push(ToCome { id, until, coming: Coming::Event(happened) });
            return None;
        }
        let until = now + (SHORTEST << (number % (DOUBLINGS + 1)));
        self.to_come.push(ToCome { id, until, coming: Coming::Event(Happened::AddressChange) });
        Some(happened)
    }

    /// An address or a route of an id is resolved. Returns it if that is so now, and not later.
    pub(super) fn resolve(&mut self, id: CommId, coming: Coming, now: u64) -> Option<Coming> {
        let (Some(rehearsal), Some(its)) = (rehearsal::on(), self.ids.get_mut(&id)) else {
            return Some(coming);
        };
        let nth = its.resolved;
        its.resolved += 1;
        let Some(number) = rehearsal.provokes(Provocation::LateAddresses, its.number, nth) else {
            return Some(coming);
        };
        let until = now + (SHORTEST << (number % (DOUBLINGS + 1)));
        self.to_come.push(ToCome { id, until, coming });
        None
    }

    /// Whether a route is to come to an id.
    pub(super) fn awaits_route(&self, id: CommId) -> bool {
        self.to_come.iter().any(|it| it.id == id && matches!(it.coming, Coming::Route(_)))
    }

    /// Takes what comes now.
    pub(super) fn take_coming(&mut self, now: u64) -> Vec<(CommId, Coming)> {
        let due = self.to_come.extract_if(.., |it| it.until <= now);
        due.map(|it| (it.id, it.coming)).collect()
    }

    /// Whether an arriving message comes late. If so, it is kept until then. `state` is that of the id's connection.
    pub(super) fn delays(
        &mut self,
        datagram: &ManagementDatagram,
        state: impl FnOnce(CommId) -> Option<ConnectionState>,
        now: u64,
    ) -> bool {
        let until = || {
            let rehearsal = rehearsal::on()?;
            let mad = Mad::parse(&datagram.mad).ok()?;
            let Receiver::Id(comm_id) = mad.receiver() else { return None };
            let id = self.ids.get_mut(&comm_id)?;
            let (provocation, count) = match (&mad.message, state(comm_id)?) {
                (Message::Rtu(_), ConnectionState::ReplySent) => {
                    (Provocation::EarlyData, &mut id.confirmations)
                }
                (Message::Dreq(_), ConnectionState::Established)
                | (Message::Drep(_), ConnectionState::DisconnectSent) => {
                    (Provocation::LateDisconnects, &mut id.ends)
                }
                _ => return None,
            };
            let nth = *count;
            *count += 1;
            let number = rehearsal.provokes(provocation, id.number, nth)?;
            Some((comm_id, now + (SHORTEST << (number % (DOUBLINGS + 1)))))
        };
        let Some((id, until)) = until() else { return false };
        self.late.push(Late { id, until, datagram: *datagram });
        true
    }

    /// Takes the late messages that come now: those whose time has come, and those that another message of their
    /// connection would overtake.
    pub(super) fn take_due(
        &mut self,
        now: u64,
        before: Option<&ManagementDatagram>,
    ) -> Vec<ManagementDatagram> {
        if self.late.is_empty() {
            return Vec::new();
        }
        let mad = before.and_then(|datagram| Mad::parse(&datagram.mad).ok());
        let receiver = mad.map(|mad| mad.receiver());
        let of_it = |id| matches!(&receiver, Some(Receiver::Id(of)) if *of == id);
        let due = self.late.extract_if(.., |it| it.until <= now || of_it(it.id));
        due.map(|it| it.datagram).collect()
    }

    /// When the next late message or event comes.
    pub(super) fn deadline(&self) -> Option<u64> {
        let events = self.to_come.iter().map(|it| it.until);
        let late = self.late.iter().map(|it| it.until);
        late.chain(events).chain(self.gone.deadline()).min()
    }
}
