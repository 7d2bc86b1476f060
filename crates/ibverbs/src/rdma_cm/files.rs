//! A program's open files, each with a part at every device that ids of it belong to.
//!
//! Nobody knows the device of an id when it is made, so it is made at the first. If it then gets an address of another
//! device, or its destination is reached from one, it moves there ([`Command::at_its_device`]). The program goes on
//! naming it by its first number. `removal` says what becomes of it when its device is removed.
//!
//! [`Command::at_its_device`]: super::command::Command::at_its_device

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use transom_cm::Refused;
use transom_host::Adapter;
use transom_host::connections::source_towards;
use transom_system::addresses::{Addresses, gid};
use transom_system::lock::SleepingMutex;
use transom_system::say;
use transom_wire::cm::CommId;

use super::parts::{self, Part};
use super::places::{Moved, Place, Places};
use super::refusal::Refusal;
use crate::adapters;
use crate::description::Description;

/// The open files.
pub(super) static FILES: SleepingMutex<Vec<Arc<File>>> = SleepingMutex::new(Vec::new());

/// How many files this process has opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A file.
pub(super) struct File {
    /// Its number among all that this process has opened.
    pub(super) number: u64,
    /// The descriptor that the program has.
    descriptor: c_int,
    /// The program may have several devices. Then the descriptor is readable while that of any part is.
    may_have_several: bool,
    /// That descriptor, until the file is closed.
    all: Mutex<Option<OwnedFd>>,
    parts: Mutex<Vec<Arc<Part>>>,
    places: Mutex<Places>,
    /// A thread moves an id to another device.
    moves: Mutex<()>,
}

impl File {
    /// Opens a file at the first device that is there.
    pub(super) fn open() -> Result<c_int, Refusal> {
        let adapter = adapters::open_first().map_err(|error| {
            say(format_args!("{error}"));
            let said = "the device cannot be opened; standard error has the reason";
            Refusal::new(error.errno().unwrap_or(libc::ENODEV), said)
        })?;
        let may_have_several = Description::chosen().is_ok_and(|all| all.len() > 1);
        let first = Arc::new(Part::open(adapter)?);
        let all = may_have_several.then(|| parts::all_of(&first)).transpose();
        let all = match all {
            Ok(all) => all,
            Err(refusal) => {
                let _ = Part::end(first);
                return Err(refusal);
            }
        };
        let numbers = [Some(first.file), all.as_ref().map(OwnedFd::as_raw_fd)];
        let descriptor = numbers[1].unwrap_or(first.file);
        let (all, parts) = (Mutex::new(all), Mutex::new(vec![first]));
        let (places, moves) = (Mutex::default(), Mutex::default());
        let number = OPENED.fetch_add(1, Relaxed);
        let file = Self { number, descriptor, may_have_several, all, parts, places, moves };
        let mut files = FILES.lock();
        let stale: Vec<_> =
            numbers.iter().flatten().flat_map(|it| stale(&mut files, *it)).collect();
        files.push(Arc::new(file));
        drop(files);
        stale.iter().for_each(|it| it.end_abandoned());
        Ok(descriptor)
    }

    /// The file of a descriptor.
    pub(super) fn of(descriptor: c_int) -> Result<Arc<Self>, Refusal> {
        let files = FILES.lock();
        let found = files.iter().find(|file| file.descriptor == descriptor);
        found.cloned().ok_or(Refused::NoFile.into())
    }

    /// Closes a file and ends its ids. `None` if there is none of this descriptor.
    pub(super) fn close(descriptor: c_int) -> Option<Result<(), Refused>> {
        let mut files = FILES.lock();
        let place = files.iter().position(|file| file.descriptor == descriptor)?;
        let file = files.swap_remove(place);
        drop(files);
        // `part_at` locks the parts before the descriptor.
        let first = file.first();
        let all = file.all.lock().take();
        if let Some(all) = all {
            // If the program has closed it itself, something else may have its number.
            match first.is_ok_and(|first| parts::watches(&all, &first)) {
                true => drop(all),
                false => drop(all.into_raw_fd()),
            }
        }
        Some(file.end_parts())
    }

    /// Ends all ids, although some refuse.
    fn end_parts(&self) -> Result<(), Refused> {
        *self.places.lock() = Places::default();
        let parts = std::mem::take(&mut *self.parts.lock());
        let ended: Vec<_> = parts.into_iter().map(Part::end).collect();
        ended.into_iter().collect()
    }

    /// Ends all ids of a file whose descriptor the program has closed itself.
    fn end_abandoned(&self) {
        // The only descriptor of other files is that of their part, and the connection manager has ended that.
        if self.may_have_several {
            let _ = self.end_parts();
        }
    }

    /// Ends a part that nothing is left in.
    pub(super) fn end_part(&self, part: Arc<Part>) -> Result<(), Refused> {
        self.parts.lock().retain(|it| !Arc::ptr_eq(it, &part));
        Part::end(part)
    }

    /// Its parts now.
    pub(super) fn parts(&self) -> Vec<Arc<Part>> {
        self.parts.lock().clone()
    }

    /// The first part.
    pub(super) fn first(&self) -> Result<Arc<Part>, Refusal> {
        self.parts.lock().first().cloned().ok_or(Refused::NoFile.into())
    }

    /// The part at a device. Makes it if there is none.
    pub(super) fn part_at(&self, adapter: Arc<Adapter>) -> Result<Arc<Part>, Refusal> {
        let mut parts = self.parts.lock();
        if let Some(part) = parts.iter().find(|part| Arc::ptr_eq(&part.adapter, &adapter)) {
            return Ok(part.clone());
        }
        // A forked child has this file of its parent, and may only close it.
        if parts.iter().any(|part| part.adapter.device().process().is_inherited()) {
            return Err(Refused::Inherited.into());
        }
        let part = Arc::new(Part::open(adapter)?);
        let stale = stale(&mut FILES.lock(), part.file);
        // Who closes the file takes its descriptor first, and its parts then.
        let all = self.all.lock();
        let watched = all.as_ref().ok_or(Refused::NoFile.into());
        let watched = watched.and_then(|all| parts::watch(all, &part));
        drop(all);
        if watched.is_ok() {
            parts.push(part.clone());
        }
        drop(parts);
        stale.iter().for_each(|it| it.end_abandoned());
        if let Err(refusal) = watched {
            let _ = Part::end(part);
            return Err(refusal);
        }
        Ok(part)
    }

    /// The part for a new id: at the first device that is there, or else where the first error is.
    pub(super) fn part_for_new(&self) -> Result<Arc<Part>, Refusal> {
        let first = self.first()?;
        let is_inherited = first.adapter.device().process().is_inherited();
        if !self.may_have_several || is_inherited || first.adapter.device().check().is_ok() {
            return Ok(first);
        }
        adapters::open_first().map_or(Ok(first), |adapter| self.part_at(adapter))
    }

    /// Whether ids of it may be at several devices.
    pub(super) fn may_have_several(&self) -> bool {
        self.may_have_several
    }

    /// Whether a part is among its parts still.
    pub(super) fn has_part(&self, part: &Arc<Part>) -> bool {
        self.parts.lock().iter().any(|it| Arc::ptr_eq(it, part))
    }

    /// The part that has the oldest event, and whether to look again if its event is gone. Any part if none has one, or
    /// if there is one part only.
    pub(super) fn part_of_oldest_event(&self) -> Result<(Arc<Part>, bool), Refusal> {
        if !self.may_have_several {
            return Ok((self.first()?, false));
        }
        let mut oldest = None;
        for part in self.parts() {
            let number = part.adapter.connections().call(|it| it.oldest_event(part.file));
            if number.is_err() && !self.has_part(&part) {
                // Another thread has given it up, and there may be new ones.
                return self.part_of_oldest_event();
            }
            let number = number?.unwrap_or(u64::MAX);
            if oldest.as_ref().is_none_or(|(least, _)| number < *least) {
                oldest = Some((number, part));
            }
        }
        let found = oldest.map(|(number, part)| (part, number != u64::MAX));
        found.ok_or(Refused::NoFile.into())
    }

    /// Where an id was when it was last looked for.
    pub(super) fn last_place_of(&self, named: u32) -> Result<Place, Refusal> {
        if let Some(place) = self.places.lock().now(named) {
            return Ok(place);
        }
        self.place_by_slot(named)
    }

    /// Where an id is that has not moved, or a group: the slot of its device is in the number.
    pub(super) fn place_by_slot(&self, named: u32) -> Result<Place, Refusal> {
        let slot = parts::slot_in(named);
        let part = self.parts().into_iter().find(|part| part.slot() == slot);
        Ok(Place { part: part.map_or_else(|| self.first(), Ok)?, id: CommId(named) })
    }

    /// Where an id is and has been, if it has moved.
    pub(super) fn places_of(&self, named: u32) -> Vec<Place> {
        self.places.lock().all(named)
    }

    /// An id is at the first of these places now, and has been at the others.
    pub(super) fn set_places(&self, named: u32, places: Vec<Place>) {
        self.places.lock().set(named, places);
    }

    /// An id goes on at this one of its places.
    pub(super) fn set_place(&self, named: u32, id: CommId) {
        self.places.lock().go_on_at(named, id);
    }

    /// So many of an id's events were taken where it is not known any more.
    pub(super) fn add_taken(&self, named: u32, taken: u32) {
        self.places.lock().add_taken(named, taken);
    }

    /// How many of an id's events were taken where it is not known any more.
    pub(super) fn taken(&self, named: u32) -> u32 {
        self.places.lock().taken(named)
    }

    /// Keeps other threads from moving an id, from the look where it is until it has moved.
    pub(super) fn moves(&self) -> MutexGuard<'_, ()> {
        self.moves.lock()
    }

    /// A number of an id ends. `end` says how many of its events were taken there.
    pub(super) fn end_number(&self, id: CommId, end: impl FnOnce() -> u32) {
        self.places.lock().end_number(id, end);
    }

    /// An id has ended, or is another file's.
    pub(super) fn forget(&self, named: u32) -> Moved {
        self.places.lock().forget(named)
    }

    /// The program's number for an id.
    pub(super) fn name_of(&self, id: CommId) -> u32 {
        self.places.lock().name_of(id)
    }
}

/// Takes out the files whose descriptor has this number: the program has closed it itself, and it is another's now.
fn stale(files: &mut Vec<Arc<File>>, number: c_int) -> Vec<Arc<File>> {
    let stale: Vec<_> = files.extract_if(.., |file| file.descriptor == number).collect();
    for file in &stale {
        let _ = file.all.lock().take().map(IntoRawFd::into_raw_fd);
    }
    stale
}

/// Another device than this part's, which an id has to move to: it has the address that the id is to be bound to, or
/// from which its destination is reached.
pub(super) fn other_device(
    part: &Part,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> Option<Arc<Adapter>> {
    let named = |address: &IpAddr| !address.is_unspecified() && !address.is_loopback();
    let source = source.map(|it| it.ip()).filter(named);
    let reached = || source_towards(destination.filter(|it| named(&it.ip()))?);
    let address = gid(source.or_else(reached).filter(named)?);
    if part.adapter.device().port().has(&address) {
        return None;
    }
    let described = Description::chosen().ok()?;
    // An open device knows its addresses.
    let has = |number, device: &Description| match adapters::if_open(number) {
        Some(adapter) => adapter.device().port().has(&address),
        None => Addresses::of(device.interface())
            .is_ok_and(|addresses| addresses.index_of(&address).is_some()),
    };
    let mut others = (0..).zip(described).filter(|(number, device)| has(*number, device));
    others.find_map(|(number, _)| adapters::open(number).ok())
}
