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
    let before = command.own.places_of(named);
    let mut places = before.clone();
    if places.is_empty() {
        places.push(Place { part: command.part.clone(), id });
    }
    let known = places.len();
    places.extend(others.into_iter().filter_map(|adapter| {
        let there = command.at(&command.own.part_at(adapter).ok()?);
        let id = there.call(|manager| manager.stand_in(there.file(), what, backlog)).ok()?;
        Some(Place { part: there.part, id })
    }));
    let devices = places[known..].iter().map(|place| place.part.adapter.device().clone());
    let devices: Vec<_> = devices.collect();
    // Its numbers there end with it, and a request that comes to one of them is a request to it.
    command.own.has_moved(named, places.clone());
    let listened =
        command.call(|manager| manager.listen_with((command.file(), id, backlog), what, &devices));
    if listened.is_err() {
        command.own.has_moved(named, before);
        for Place { part, id } in places.drain(known..) {
            let there = command.at(&part);
            let _ = there.call(|manager| manager.destroy(there.file(), id));
        }
    }
    listened
}

/// The devices that have addresses which that of a part does not have, as far as they can be opened.
fn others(part: &Part) -> Vec<Arc<Adapter>> {
    let own = part.adapter.device().options().interface;
    let described = own.and_then(|_| Description::chosen().ok()).unwrap_or_default();
    let others = (0..).zip(described).filter(|(_, device)| device.interface() != own);
    others.filter_map(|(number, _)| adapters::open(number).ok()).collect()
}
