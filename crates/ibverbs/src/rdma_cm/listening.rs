//! Listeners. One at the wildcard address serves all devices, also those that are opened later, as one is that was
//! removed.

use std::sync::Arc;

use transom_host::Adapter;
use transom_host::connections::manager::Unbound;
use transom_system::lock::SleepingMutex;
use transom_wire::cm::CommId;

use super::command::Command;
use super::files::{FILES, File};
use super::parts::Part;
use super::places::Place;
use super::refusal::Refusal;
use crate::adapters;
use crate::description::Description;

/// How many devices had been opened when every listener was last seen to serve them.
pub(super) static SERVED: SleepingMutex<u32> = SleepingMutex::new(0);

/// Makes the id of a command listen.
pub(super) fn listen(command: &Command<'_>, id: CommId, backlog: i32) -> Result<(), Refusal> {
    let openings = adapters::openings();
    listen_at_all(command, id, backlog)?;
    // Another thread may have opened a device meanwhile, and may have missed this listener.
    if adapters::openings() != openings {
        *SERVED.lock() = openings;
    }
    Ok(())
}

fn listen_at_all(command: &Command<'_>, id: CommId, backlog: i32) -> Result<(), Refusal> {
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
        return listen_at_all(&command.at(&place.part), place.id, backlog);
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

/// Devices may have been opened. The listeners at the wildcard address that were made before serve them too.
pub(crate) fn serve_opened() {
    let described = Description::chosen().unwrap_or_default();
    if described.len() < 2 {
        return;
    }
    let mut served = SERVED.lock();
    let openings = adapters::openings();
    if std::mem::replace(&mut *served, openings) == openings {
        return;
    }
    let files = FILES.lock().clone();
    for file in files.iter().filter(|file| file.may_have_several()) {
        let up = (0..).zip(described).filter(|(_, it)| !it.port_is_down);
        for adapter in up.filter_map(|(number, _)| adapters::if_open(number)) {
            serve_at(file, &adapter);
            adapter.close();
        }
    }
}

/// Has the listeners of a file serve a device. What cannot be made for want of descriptors is not there, as when an id
/// begins to listen.
fn serve_at(file: &File, adapter: &Arc<Adapter>) {
    if adapter.device().check().is_err() {
        return;
    }
    let parts = file.parts().into_iter().filter(|part| !part.is_removed());
    let listeners = parts.flat_map(|part| {
        let listeners = part.call(|it| Ok::<_, Refusal>(it.unbound_listeners(part.file)));
        listeners.unwrap_or_default()
    });
    let mut named: Vec<_> = listeners.map(|(id, ..)| file.name_of(id)).collect();
    named.sort_unstable();
    named.dedup();
    for named in named {
        // It may have to go on at a device that is there.
        let _ = file.place_of(named).and_then(|_| file.serve(named, adapter));
    }
}

impl File {
    /// Has a listener serve a device, if it does not yet.
    fn serve(&self, named: u32, adapter: &Arc<Adapter>) -> Result<(), Refusal> {
        let _moves = self.moves();
        let now = self.last_place_of(named)?;
        let mut places = self.places_of(named);
        if places.is_empty() {
            places.push(now.clone());
        }
        if places.iter().any(|place| Arc::ptr_eq(&place.part.adapter, adapter)) {
            return Ok(());
        }
        let Place { part, id } = now;
        let listeners = part.call(|it| Ok::<_, Refusal>(it.unbound_listeners(part.file)))?;
        // Another thread may have ended it.
        let Some((_, what, backlog)) = listeners.into_iter().find(|(it, ..)| *it == id) else {
            return Ok(());
        };
        let there = self.part_at(adapter.clone())?;
        let id = there.call(|manager| manager.stand_in(there.file, what, backlog))?;
        places.push(Place { part: there, id });
        // Its number there ends with it, and a request that comes to it is a request to the listener.
        self.set_places(named, places.clone());
        serve_together(&places, what)
    }
}

/// These listeners serve together. Any of them may get the port, if the devices before it are removed.
fn serve_together(places: &[Place], what: Unbound) -> Result<(), Refusal> {
    let there: Vec<_> = places.iter().filter(|place| !place.part.is_removed()).collect();
    let at = |place: &&Place| (place.id, place.part.adapter.device().clone());
    let all: Vec<_> = there.iter().map(at).collect();
    for Place { part, id } in there.into_iter().rev() {
        let others: Vec<_> = all.iter().filter(|(it, _)| it != id).cloned().collect();
        part.call(|manager| {
            manager.serve_with(*id, what, &others);
            Ok::<_, Refusal>(())
        })?;
    }
    Ok(())
}
