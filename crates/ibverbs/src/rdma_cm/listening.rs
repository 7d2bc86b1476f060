//! Listeners. One at the wildcard address serves all devices.

use std::sync::Arc;

use transom_host::Adapter;
use transom_wire::cm::CommId;

use super::command::Command;
use super::parts::Part;
use super::places::Place;
use super::refusal::Refusal;
use crate::adapters;
use crate::description::Description;

/// Makes the id of a command listen.
pub(super) fn listen(command: &Command<'_>, id: CommId, backlog: i32) -> Result<(), Refusal> {
    let listen = || command.call(|manager| manager.listen(command.file(), id, backlog));
    let Some(named) = command.named() else { return listen() };
    let others = others(&command.part);
    if others.is_empty() {
        return listen();
    }
    let what = command.call(|manager| manager.about_to_listen(command.file(), id))?;
    let Some(what) = what else { return listen() };
    let moves = command.own.moves();
    let place = command.own.last_place_of(named)?;
    if place.id != id {
        // Another thread has moved it.
        drop(moves);
        return self::listen(&command.at(&place.part), place.id, backlog);
    }
    let before = command.own.places_of(named);
    let mut places = before.clone();
    if places.is_empty() {
        places.push(Place { part: command.part.clone(), id });
    }
    let known = places.len();
    let own = (places[0].id, command.part.adapter.device().clone());
    places.extend(others.into_iter().filter_map(|adapter| {
        let there = command.at(&command.own.part_at(adapter).ok()?);
        let id = there.call(|manager| manager.stand_in(there.file(), what, backlog)).ok()?;
        Some(Place { part: there.part, id })
    }));
    let stand_ins = &places[known..];
    let at = |place: &Place| (place.id, place.part.adapter.device().clone());
    let others: Vec<_> = stand_ins.iter().map(at).collect();
    // Any of them may get the port, if the devices before it are removed.
    for Place { part, id } in stand_ins {
        let own = std::iter::once(&own).chain(&others).filter(|(it, _)| it != id);
        let all: Vec<_> = own.cloned().collect();
        part.call(|manager| {
            manager.serve_with(*id, what, &all);
            Ok::<_, Refusal>(())
        })?;
    }
    // Its numbers there end with it, and a request that comes to one of them is a request to it.
    command.own.set_places(named, places.clone());
    let listened =
        command.call(|manager| manager.listen_with((command.file(), id, backlog), what, &others));
    if listened.is_err() {
        command.own.set_places(named, before);
        for Place { part, id } in places.drain(known..) {
            let _ = part.call(|manager| manager.destroy(part.file, id));
        }
    }
    listened
}

/// The devices beside that of a part, as far as they can be opened. They serve addresses that it does not have, and
/// those that it has once it is removed. Nothing comes to a port that is down.
fn others(part: &Part) -> Vec<Arc<Adapter>> {
    let own = part.adapter.device().options().number;
    let described = Description::chosen().unwrap_or_default();
    let others = (0..).zip(described).filter(|(number, it)| *number != own && !it.port_is_down);
    others.filter_map(|(number, _)| adapters::open(number).ok()).collect()
}
