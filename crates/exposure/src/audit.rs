//! The account of a process: which memory it has open to peers, and what they touch. It keeps its state in cells, and
//! says which of them have changed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;

use crate::Rights;
use crate::cell::{Cell, Folded, Process, WORDS};
use crate::doors::{Pair, Reach, Scope};
use crate::opening::{Object, Opening, Times, Touch};
use crate::sums::Sums;
use crate::touched::Touched;

/// How many cells there are at most. When they are full, regions and windows that are closed share one for each call.
pub const ROOM: usize = 2048;

/// How many cells anything that is told takes at most.
const AT_ONCE: usize = 2;

/// How many queue pairs are kept that let peers in or did.
const PAIRS: usize = 512;

/// A region that is registered, or a window that is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opens {
    /// Its device, by a number of the process.
    pub device: u64,
    /// Its place in the device's key table, and that of a window's region.
    pub slots: (u32, Option<u32>),
    /// Its key.
    pub key: u32,
    /// Whether it is a region or a window.
    pub object: Object,
    /// Who can use it.
    pub scope: Scope,
    /// Where the program made it, by a number of the process; zero is unknown.
    pub site: u32,
    /// What peers may do.
    pub rights: Rights,
    /// The address of its first byte in the process.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The first address by which requests name it.
    pub base: u64,
}

/// A queue pair, and what it lets in.
#[derive(Debug)]
struct Door {
    pair: Pair,
    cell: Option<usize>,
}

/// The reach of a scope, while something of it is open.
#[derive(Debug)]
struct InReach {
    reach: Reach,
    cell: usize,
    openings: usize,
}

/// The account of a process.
#[derive(Debug)]
pub struct Audit {
    process: Process,
    doors: BTreeMap<(u64, u32), Door>,
    reaches: HashMap<(u64, Scope), InReach>,
    /// What is open, by its device and its place in the key table.
    openings: HashMap<(u64, u32), (Opening, usize)>,
    opened: u64,
    cells: Vec<Cell>,
    /// How many there is room for now.
    room: usize,
    free: Vec<usize>,
    /// The cells of what is closed, the oldest first.
    closed: VecDeque<usize>,
    /// The cells of queue pairs that let nobody in any more.
    shut: VecDeque<usize>,
    pairs: usize,
    folded: HashMap<(Object, u32, Rights), usize>,
    changed: Vec<usize>,
}

impl Audit {
    /// The account of a process that has opened its first device.
    pub fn begin(now: u64) -> Self {
        let mut audit = Self {
            process: Process { began: now, ..Process::default() },
            doors: BTreeMap::new(),
            reaches: HashMap::new(),
            openings: HashMap::new(),
            opened: 0,
            cells: vec![Cell::Empty],
            room: ROOM,
            free: Vec::new(),
            closed: VecDeque::new(),
            shut: VecDeque::new(),
            pairs: 0,
            folded: HashMap::new(),
            changed: Vec::new(),
        };
        audit.put(0, Cell::Process(audit.process));
        audit
    }

    /// From now on there is room for so many cells. Unless this is called, for [`ROOM`].
    pub fn gets_room(&mut self, cells: usize) {
        self.room = cells.min(ROOM);
    }

    /// Whether what is told next may find no cell, and there could be more.
    pub fn needs_room(&self) -> bool {
        let left = self.room.saturating_sub(self.cells.len());
        self.room < ROOM && left + self.free.len() < AT_ONCE
    }

    /// The cells that have changed since the last call, each with its index.
    pub fn changed(&mut self) -> impl Iterator<Item = (usize, [u64; WORDS])> {
        let mut changed = mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().map(|at| (at, self.cells[at].words()))
    }

    /// The process ends.
    pub fn end(&mut self, now: u64) {
        self.process.ended = now;
        self.put(0, Cell::Process(self.process));
    }

    /// An access of a peer to memory is refused.
    pub fn refuses(&mut self) {
        self.process.refused += 1;
        self.put(0, Cell::Process(self.process));
    }

    /// A region or window opens.
    pub fn opens(&mut self, it: &Opens, now: u64) {
        self.closes(it.device, it.slots.0, now);
        self.opened += 1;
        if it.rights.is_empty() || it.length == 0 {
            return;
        }
        let region = it.slots.1.and_then(|slot| self.openings.get(&(it.device, slot)));
        let region = region.map_or(0, |(opening, _)| opening.number);
        let reach = self.reach(it.device, it.scope, now);
        let place = reach.and_then(|reach| Some((reach, self.take_cell()?)));
        let Some((reach, cell)) = place else {
            self.process.openings_left_out += 1;
            self.put(0, Cell::Process(self.process));
            self.leave(it.device, it.scope);
            return;
        };
        let mut opening = Opening {
            number: self.opened,
            object: it.object,
            device: it.device,
            key: it.key,
            scope: it.scope,
            region,
            site: it.site,
            rights: it.rights,
            address: it.address,
            length: it.length,
            base: it.base,
            since: now,
            until: 0,
            open: [0; 4],
            deeds: [Times::default(); 3],
            users: Vec::new(),
            others: 0,
            touched: Touched::default(),
        };
        opening.begin(&reach);
        if let Some(reach) = self.reaches.get_mut(&(it.device, it.scope)) {
            reach.openings += 1;
        }
        self.put(cell, Cell::Opening(Box::new(opening.clone())));
        self.openings.insert((it.device, it.slots.0), (opening, cell));
    }

    /// What is in a place of a key table is closed, if it was open.
    pub fn closes(&mut self, device: u64, slot: u32, now: u64) {
        let Some((mut opening, cell)) = self.openings.remove(&(device, slot)) else { return };
        if let Some(reach) = self.reaches.get_mut(&(device, opening.scope)) {
            opening.end(&reach.reach, now);
            reach.openings -= 1;
        }
        self.leave(device, opening.scope);
        self.put(cell, Cell::Opening(Box::new(opening)));
        self.closed.push_back(cell);
    }

    /// A peer touches memory by the key in a place of a key table.
    pub fn touches(&mut self, device: u64, slot: u32, touch: &Touch, now: u64) {
        let Some((opening, cell)) = self.openings.get_mut(&(device, slot)) else { return };
        let Some(reach) = self.reaches.get(&(device, opening.scope)) else { return };
        opening.touch(touch, &reach.reach, now);
        let (cell, content) = (*cell, Cell::Opening(Box::new(opening.clone())));
        self.put(cell, content);
    }

    /// A queue pair lets its peer in so from now on. With no rights, it lets nobody in. An address of zeros is that
    /// from before.
    pub fn lets_in(&mut self, pair: &Pair, now: u64) {
        let at = (pair.device, pair.number);
        let known = self.doors.get(&at).map(|door| door.pair);
        let before = known.map_or(Rights::NONE, |pair| pair.rights);
        let gid = if pair.gid == [0; 16] { known.map_or([0; 16], |it| it.gid) } else { pair.gid };
        let pair = Pair { gid, since: now, until: 0, ..*pair };
        let is_same = known.is_some_and(|it| (it.peer, it.gid) == (pair.peer, gid));
        if before == pair.rights && (is_same || before.is_empty()) {
            return;
        }
        if let Some(door) = self.doors.remove(&at) {
            self.shuts(door, now);
        }
        if !pair.rights.is_empty() {
            let cell = self.take_pair(&pair);
            self.doors.insert(at, Door { pair, cell });
        }
        self.change_reaches(&pair, before, now);
    }

    /// A queue pair lets nobody in any more, or another one.
    fn shuts(&mut self, door: Door, now: u64) {
        if let Some(cell) = door.cell {
            self.put(cell, Cell::Pair(Pair { until: now, ..door.pair }));
            self.shut.push_back(cell);
        }
    }

    fn take_pair(&mut self, pair: &Pair) -> Option<usize> {
        let cell = if self.pairs < PAIRS { self.take_cell() } else { self.shut.pop_front() };
        let Some(cell) = cell else {
            self.process.pairs_left_out += 1;
            self.put(0, Cell::Process(self.process));
            return None;
        };
        if self.pairs < PAIRS {
            self.pairs += 1;
        } else {
            self.process.pairs_left_out += 1;
            self.put(0, Cell::Process(self.process));
        }
        self.put(cell, Cell::Pair(*pair));
        Some(cell)
    }

    fn change_reaches(&mut self, pair: &Pair, before: Rights, now: u64) {
        let mut changed = Vec::new();
        for ((device, scope), it) in &mut self.reaches {
            if pair.serves(*device, *scope) {
                it.reach.change(before, pair.rights, now);
                let (device, scope, reach) = (*device, *scope, it.reach);
                changed.push((it.cell, Cell::Reach { device, scope, reach }));
            }
        }
        changed.into_iter().for_each(|(cell, content)| self.put(cell, content));
    }

    /// The reach of a scope, from now on if there is none yet.
    fn reach(&mut self, device: u64, scope: Scope, now: u64) -> Option<Reach> {
        if !self.reaches.contains_key(&(device, scope)) {
            let mut reach = Reach::default();
            let doors = self.doors.values().filter(|door| door.pair.serves(device, scope));
            doors.for_each(|door| reach.change(Rights::NONE, door.pair.rights, now));
            let cell = self.take_cell()?;
            self.put(cell, Cell::Reach { device, scope, reach });
            self.reaches.insert((device, scope), InReach { reach, cell, openings: 0 });
        }
        self.reaches.get(&(device, scope)).map(|it| it.reach)
    }

    /// If nothing of a scope is open, its reach is not needed any more.
    fn leave(&mut self, device: u64, scope: Scope) {
        let Some(it) = self.reaches.get(&(device, scope)) else { return };
        let cell = it.cell;
        if it.openings == 0 {
            self.reaches.remove(&(device, scope));
            self.put(cell, Cell::Empty);
            self.free.push(cell);
        }
    }

    fn put(&mut self, cell: usize, content: Cell) {
        self.cells[cell] = content;
        self.changed.push(cell);
    }

    /// A cell for something else. If all are taken, those of what is closed are folded.
    fn take_cell(&mut self) -> Option<usize> {
        if let Some(cell) = self.free.pop() {
            return Some(cell);
        }
        if self.cells.len() < self.room {
            self.cells.push(Cell::Empty);
            return Some(self.cells.len() - 1);
        }
        while let Some(cell) = self.closed.pop_front() {
            if self.fold(cell) {
                return Some(cell);
            }
        }
        None
    }

    /// Adds what is in a cell to others of the same call. The cell is free then, unless there are no others yet.
    fn fold(&mut self, cell: usize) -> bool {
        let Cell::Opening(opening) = &self.cells[cell] else { return true };
        let (object, site, rights) = (opening.object, opening.site, opening.rights);
        let sums = Sums::of(opening, opening.open);
        let (since, until) = (opening.since, opening.until);
        if let Some(&into) = self.folded.get(&(object, site, rights))
            && let Cell::Folded(folded) = &mut self.cells[into]
        {
            folded.sums.and(&sums);
            folded.since = folded.since.min(since);
            folded.until = folded.until.max(until);
            self.changed.push(into);
            self.put(cell, Cell::Empty);
            return true;
        }
        let folded = Folded { object, site, rights, since, until, sums };
        self.put(cell, Cell::Folded(Box::new(folded)));
        self.folded.insert((object, site, rights), cell);
        false
    }
}

#[cfg(test)]
mod tests;
