//! The rights of peers to memory, and their use.
//!
//! Rights that are granted at one place of the program belong together: a right is unused if no peer has used it with
//! any key that got it there.

use std::collections::BTreeMap;

use super::bind::{Bind, Rights};
use super::{Ledger, Posted, Thing};
use crate::{Call, Kind};

/// A bind whose completion is not polled, or has failed.
#[derive(Clone, Debug)]
struct Bound {
    pair: usize,
    posted: (String, Call),
    is_type1: bool,
    /// The call that polled its failure.
    failed: Option<Call>,
}

/// A place of the program that grants rights.
#[derive(Clone, Debug)]
struct Place {
    thing: Thing,
    call: Call,
    /// The number of regions or windows that were opened there.
    count: usize,
    granted: Rights,
    used: Rights,
}

impl Place {
    fn things(&self, count: usize) -> String {
        match count {
            1 => format!("A {}", self.thing.name()),
            count => format!("{count} {}", self.thing.plural()),
        }
    }
}

/// Keys that peers have.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// By device and key.
    binds: BTreeMap<(usize, u32), Bound>,
    places: Vec<Place>,
    /// The place that granted the rights of a key.
    granted: BTreeMap<(usize, u32), usize>,
}

impl Keys {
    fn place(&mut self, thing: Thing, call: &Call) -> usize {
        let same = |it: &Place| it.thing == thing && it.call.frames() == call.frames();
        self.places.iter().position(same).unwrap_or_else(|| {
            let (granted, used) = (Rights::default(), Rights::default());
            self.places.push(Place { thing, call: *call, count: 0, granted, used });
            self.places.len() - 1
        })
    }

    /// A queue pair has ended or was reset. Forgets its binds.
    pub(super) fn forget_binds(&mut self, pair: usize) {
        self.binds.retain(|_, bound| bound.pair != pair || bound.failed.is_some());
    }

    /// Requests were refused.
    pub(super) fn take_back(&mut self, refused: &[Posted]) {
        for bind in refused.iter().filter_map(|it| it.binds) {
            self.binds.remove(&(bind.device, bind.key));
        }
    }

    /// Requests have ended. The call polled the completion of the last one: a success, or not.
    pub(super) fn ended<'a>(
        &mut self,
        ended: impl ExactSizeIterator<Item = &'a Posted>,
        is_success: bool,
        call: &Call,
    ) {
        let count = ended.len();
        for (at, bind) in ended.enumerate().filter_map(|(at, it)| Some((at, it.binds?))) {
            let key = (bind.device, bind.key);
            if !is_success && at + 1 == count {
                self.binds.entry(key).and_modify(|bound| bound.failed = Some(*call));
            } else {
                self.binds.remove(&key);
            }
        }
    }

    /// A region ends.
    pub(super) fn forget(&mut self, device: usize, key: u32) {
        self.granted.remove(&(device, key));
    }
}

impl Ledger {
    /// Requests are posted to a queue pair.
    pub(super) fn binds_posted<'a>(
        &mut self,
        pair: usize,
        posted: impl Iterator<Item = &'a Posted>,
    ) {
        for it in posted {
            let Some(Bind { device, key, is_type1, .. }) = it.binds else { continue };
            let bound = Bound { pair, posted: it.here(), is_type1, failed: None };
            self.keys.binds.insert((device, key), bound);
        }
    }

    /// A key has these rights from now on. Returns those that no peer has used yet with a key of the same place.
    pub fn granted(
        &mut self,
        device: usize,
        key: u32,
        thing: Thing,
        rights: Rights,
        call: &Call,
    ) -> Rights {
        self.arrived.forget();
        if thing == Thing::Region {
            // A window had this key before.
            self.keys.binds.remove(&(device, key));
        }
        let index = self.keys.place(thing, call);
        let before = self.keys.granted.insert((device, key), index);
        let place = &mut self.keys.places[index];
        // A region that gets other rights there is no other region.
        let is_known = thing == Thing::Region && before == Some(index);
        place.count += usize::from(!is_known);
        place.granted = place.granted.and(rights);
        rights.without(place.used)
    }

    /// A bind is carried out, and its key has these rights from now on. Returns those whose use the ledger must hear of:
    /// all, because each early use of a key counts.
    pub fn bind_opens(&mut self, device: usize, key: u32, rights: Rights) -> Rights {
        let Some(bound) = self.keys.binds.get(&(device, key)) else { return Rights::default() };
        let call = bound.posted.1;
        self.granted(device, key, Thing::Window, rights, &call);
        rights
    }

    /// A peer asks for an access with a key, by these rights.
    pub fn peer_uses(&mut self, device: usize, key: u32, rights: Rights) {
        if rights.read || rights.atomic {
            self.arrived.forget();
        }
        let keys = &mut self.keys;
        if let Some(place) = keys.granted.get(&(device, key)) {
            let place = &mut keys.places[*place];
            place.used = place.used.and(rights);
        }
        let Some(bound) = keys.binds.get(&(device, key)) else { return };
        let Bound { pair, posted, is_type1, failed } = bound.clone();
        if let Some(polled) = failed {
            let says = format!("A peer uses key {key:#010x}, of a bind that has failed.");
            let mut calls = vec![posted, ("polled here".to_owned(), polled)];
            calls.extend(self.window_made(key));
            self.found(Kind::FailedBindUsed, says, calls);
            return;
        }
        // A request behind the bind may have told the peer. And a completion counter may have told the program of the
        // bind.
        let is_it = |it: &Posted| it.binds.is_some_and(|it| (it.device, it.key) == (device, key));
        let tells = self
            .pairs
            .get(&pair)
            .is_none_or(|pair| !pair.sends.iter().next_back().is_some_and(is_it));
        if !tells && !self.counts_completions() {
            let (kind, of, and) = match is_type1 {
                true => {
                    (Kind::KeyBeforeBind, "", "It was not sent on the queue pair that binds it.")
                }
                false => (
                    Kind::KeyEarly,
                    ", of a type 2 window,",
                    "Nothing behind the bind on its queue pair can have told the peer.",
                ),
            };
            let says = format!(
                "A peer uses key {key:#010x}{of} before the completion of its bind is polled. {and}"
            );
            let calls = std::iter::once(posted).chain(self.window_made(key)).collect();
            self.found(kind, says, calls);
        }
    }

    /// A region has no rights for peers any more.
    pub fn grants_nothing(&mut self, device: usize, key: u32) {
        self.keys.forget(device, key);
    }

    /// The keys with rights, by device.
    pub fn granted_keys(&self) -> Vec<(usize, u32)> {
        self.keys.granted.keys().copied().collect()
    }

    /// These keys are open to peers when the process ends.
    pub fn open_at_end(&mut self, keys: &[(usize, u32)]) {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for place in keys.iter().filter_map(|key| self.keys.granted.get(key)) {
            *counts.entry(*place).or_default() += 1;
        }
        for (place, count) in counts {
            let place = &self.keys.places[place];
            let Some(rights) = place.granted.names() else { continue };
            let (things, call) = (place.things(count), place.call);
            let are = if count == 1 { "is" } else { "are" };
            let says =
                format!("{things} {are} open to peers when the process ends, with {rights}.");
            self.found(Kind::OpenAtEnd, says, vec![("opened here".to_owned(), call)]);
        }
    }

    /// Reports rights that no peer has used.
    pub(super) fn tell_unused(&mut self) {
        for place in self.keys.places.clone() {
            let unused = place.granted.without(Rights { read: true, ..place.used });
            let Some(rights) = unused.names() else { continue };
            let (things, grants) =
                (place.things(place.count), if place.count == 1 { "grants" } else { "grant" });
            let says = format!("{things} {grants} {rights}, and no peer has used that.");
            self.found(Kind::RightsUnused, says, vec![("granted here".to_owned(), place.call)]);
        }
    }
}
