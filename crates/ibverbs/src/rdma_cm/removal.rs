//! Devices that are removed while a program has files with ids.
//!
//! What belongs to a device goes with it. An id without an address belongs to none: it goes on at another when the
//! program next names it. Of a listener at the wildcard address the port goes to another at once, by the connection
//! manager. A file goes on at another device too, before the program opens the removed one anew.

use std::sync::Arc;

use transom_cm::Refused;
use transom_host::Adapter;
use transom_host::connections::manager::Unbound;
use transom_wire::cm::CommId;

use super::files::{FILES, File};
use super::parts::Part;
use super::places::Place;
use super::refusal::Refusal;
use crate::adapters;

impl File {
    /// Where an id is. If its device was removed, and the id belongs to none, it goes on at another.
    pub(super) fn place_of(&self, named: u32) -> Result<Place, Refusal> {
        let place = self.last_place_of(named)?;
        if !self.may_have_several() || !place.part.is_removed() {
            return Ok(place);
        }
        let _moves = self.moves();
        // Another thread may have moved it.
        let place = self.last_place_of(named)?;
        if !place.part.is_removed() {
            return Ok(place);
        }
        if let Some(heir) = self.places_of(named).into_iter().find(serves_on) {
            self.set_place(named, heir.id);
            return Ok(heir);
        }
        let unbound = place.part.call(|manager| manager.unbound(place.part.file, place.id));
        let Ok(Some(unbound)) = unbound else { return Ok(place) };
        let Ok(other) = adapters::open_first() else { return Ok(place) };
        Ok(self.move_id(named, &place, unbound, other)?.unwrap_or(place))
    }

    /// Moves an id that belongs to no device to this one. Where it is then, or `None` if it has got a device meanwhile.
    /// The caller has [the lock](File::moves).
    pub(super) fn move_id(
        &self,
        named: u32,
        from: &Place,
        unbound: Unbound,
        to: Arc<Adapter>,
    ) -> Result<Option<Place>, Refusal> {
        let part = self.part_at(to)?;
        let id = part.call(|manager| manager.create_like(part.file, unbound))?;
        let now = Place { part, id };
        let before = self.places_of(named);
        let from_here = before.is_empty().then(|| from.clone());
        let places = [now.clone()].into_iter().chain(from_here).chain(before.iter().cloned());
        self.set_places(named, places.collect());
        let other = (id, now.part.adapter.device().process().announcer());
        let Place { part, id: left } = from;
        let moved = part.call(|manager| manager.move_away(part.file, *left, unbound, other));
        if matches!(moved, Ok(true)) {
            return Ok(Some(now));
        }
        self.set_places(named, before);
        now.part.call(|manager| manager.destroy(now.part.file, id))?;
        moved.map(|_| None)
    }

    /// Gives up its part at a device that was removed, if nothing is left there that belongs to the device.
    fn let_go(&self, part: Arc<Part>) -> Result<(), Refusal> {
        let (ids, an_event_waits) = part.call(|manager| manager.contents(part.file))?;
        let is_here =
            |id: &CommId| self.place_of(self.name_of(*id)).map_or(true, |it| it.id == *id);
        if an_event_waits || ids.iter().any(is_here) {
            return Ok(());
        }
        if self.parts().iter().all(|part| part.is_removed()) {
            let other = adapters::open_first();
            self.part_at(other.map_err(|_| Refused::DeviceFailed)?)?;
        }
        for id in ids {
            let end = || part.call(|manager| manager.destroy(part.file, id)).unwrap_or(0);
            self.end_number(id, end);
        }
        Ok(self.end_part(part)?)
    }
}

/// Whether a listener serves at this place, now that another device has gone.
fn serves_on(Place { part, id }: &Place) -> bool {
    let serves = |id| part.call(|it| Ok::<_, Refusal>(it.serves_with_others(id)));
    !part.is_removed() && serves(*id).is_ok_and(|it| it)
}

/// The program opens a device that was removed. No file keeps it, as far as nothing is left that belongs to it.
pub(crate) fn let_go(number: u8) {
    let files = FILES.lock().clone();
    for file in files.iter().filter(|file| file.may_have_several()) {
        for part in file.parts() {
            if part.is_removed() && part.adapter.device().options().number == number {
                // It cannot be opened then, and the program is told so.
                let _ = file.let_go(part);
            }
        }
    }
}
