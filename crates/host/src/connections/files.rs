//! A program's side of the connection manager: files with ids, and the events that wait there.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use transom_cm::Happened;
use transom_wire::cm::CommId;

/// An event, and the id it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The id that the event happened to. For an event of a group, the group's number.
    pub id: u32,
    /// The program's own value for that id. For a request for a connection, the listener's.
    pub uid: u64,
    /// The index of the GID that the id is bound to. Zero if it is bound to none.
    pub gid_index: u8,
    /// What happened.
    pub happened: Happened,
}

/// An event that waits, and the id that it is counted for.
#[derive(Debug)]
struct Waiting {
    /// Its number among all events there were. Later events have higher numbers.
    number: u64,
    /// The id that it is counted for. For a request for a connection, the listener's id.
    counted: CommId,
    delivered: Delivered,
}

/// A program's file, known by its descriptor.
#[derive(Debug)]
struct File {
    /// Readable while an event waits.
    signal: OwnedFd,
    events: VecDeque<Waiting>,
}

impl File {
    fn signal(&self) {
        let _ = rustix::io::write(&self.signal, &1_u64.to_ne_bytes());
    }

    /// Takes the signal back if no event waits any more. The descriptor may block, and the program may have read it, so
    /// this looks first whether there is something to read. Nothing else in this library reads it.
    fn clear_signal(&self) {
        let mut readable = [PollFd::new(&self.signal, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if self.events.is_empty() && transom_system::wait::poll(&mut readable, Some(&now)) == Ok(1)
        {
            let _ = rustix::io::read(&self.signal, &mut [0; 8]);
        }
    }

    fn retain(&mut self, keep: impl FnMut(&Waiting) -> bool) {
        if self.events.is_empty() {
            return;
        }
        self.events.retain(keep);
        self.clear_signal();
    }
}

/// An id of a program.
#[derive(Clone, Copy, Debug)]
struct Id {
    file: RawFd,
    /// The program's own value. Zero for a request that is not accepted yet.
    uid: u64,
    /// How many of its events have been taken.
    reported: u32,
    /// The number of the last event about it.
    last: u64,
    /// It has been told that its device is gone, and gets no events after that; or it is not told: it stands in for
    /// another, or another has its port.
    removed: bool,
}

/// All files and ids.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: HashMap<RawFd, File>,
    ids: HashMap<CommId, Id>,
}

/// Events that there were, at all devices: a program's file may have parts at several.
static RAISED: AtomicU64 = AtomicU64::new(0);

impl Files {
    /// Opens a new file. Returns its descriptor, and the ids of an earlier file that had the same number.
    pub(super) fn open(&mut self) -> io::Result<(RawFd, Vec<CommId>)> {
        let signal = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let file = signal.as_raw_fd();
        let mut ids = Vec::new();
        if let Some(closed) = self.files.remove(&file) {
            // The program closed the descriptor itself, and the number belongs to this file now.
            let _ = closed.signal.into_raw_fd();
            ids = self.ids_of(file);
        }
        self.files.insert(file, File { signal, events: VecDeque::new() });
        Ok((file, ids))
    }

    pub(super) fn has(&self, file: RawFd) -> bool {
        self.files.contains_key(&file)
    }

    /// Ends a file; false if there is none. A thread that waits for an event of it goes on waiting, as with the
    /// kernel's file. Programs leave such threads behind when they end.
    pub(super) fn close(&mut self, file: RawFd) -> bool {
        self.files.remove(&file).is_some()
    }

    /// The ids of a file.
    pub(super) fn ids_of(&self, file: RawFd) -> Vec<CommId> {
        let of_file = self.ids.iter().filter(|(_, it)| it.file == file);
        of_file.map(|(id, _)| *id).collect()
    }

    pub(super) fn add(&mut self, id: CommId, file: RawFd, uid: u64) {
        self.ids.insert(id, Id { file, uid, reported: 0, last: 0, removed: false });
    }

    /// Adds a listener that stands in for one of another device. The program, which does not know it, is not told when
    /// its device goes.
    pub(super) fn add_stand_in(&mut self, id: CommId, file: RawFd, uid: u64) {
        self.ids.insert(id, Id { file, uid, reported: 0, last: 0, removed: true });
    }

    /// A listener, which may have stood in for another before, is told when its device goes.
    pub(super) fn tell_of_removal(&mut self, id: CommId) {
        if let Some(it) = self.ids.get_mut(&id) {
            it.removed = false;
        }
    }

    /// A listener is not told when its device goes, because another has its port.
    pub(super) fn tell_nothing(&mut self, id: CommId) {
        if let Some(it) = self.ids.get_mut(&id) {
            it.removed = true;
        }
    }

    /// Whether an id is not told that its device goes: it has been told, or stands in for another.
    pub(super) fn is_told_nothing(&self, id: CommId) -> bool {
        self.ids.get(&id).is_some_and(|it| it.removed)
    }

    /// Whether an id is one of a file's.
    pub(super) fn is_of(&self, id: CommId, file: RawFd) -> bool {
        self.ids.get(&id).is_some_and(|it| it.file == file)
    }

    pub(super) fn file_of(&self, id: CommId) -> Option<(RawFd, u64)> {
        self.ids.get(&id).map(|it| (it.file, it.uid))
    }

    pub(super) fn set_uid(&mut self, id: CommId, uid: u64) {
        if let Some(it) = self.ids.get_mut(&id) {
            it.uid = uid;
        }
    }

    /// Ends an id and drops its waiting events. Returns how many of its events were taken, and the ids of requests that
    /// nobody will fetch any more.
    pub(super) fn remove(&mut self, id: CommId) -> (u32, Vec<CommId>) {
        let Some(Id { file, reported, last, .. }) = self.ids.remove(&id) else {
            return (0, Vec::new());
        };
        let mut requests = Vec::new();
        let file = self.files.get_mut(&file);
        // Most ids end with no event waiting, and the list of waiting events may be long.
        let waits = |file: &&mut File| file.events.front().is_some_and(|it| it.number <= last);
        if let Some(file) = file.filter(waits) {
            file.retain(|waiting| {
                let of_it = waiting.counted == id || waiting.delivered.id == id.0;
                if of_it && waiting.delivered.id != id.0 && waiting.is_request() {
                    requests.push(CommId(waiting.delivered.id));
                }
                !of_it
            });
        }
        for request in &requests {
            self.ids.remove(request);
        }
        (reported, requests)
    }

    /// Moves an id and its waiting events to another file. Returns how many of its events were taken.
    pub(super) fn migrate(&mut self, id: CommId, to: RawFd) -> Option<u32> {
        let it = self.ids.get_mut(&id).filter(|_| self.files.contains_key(&to))?;
        let from = std::mem::replace(&mut it.file, to);
        let reported = it.reported;
        if from != to {
            let mut moved = VecDeque::new();
            if let Some(file) = self.files.get_mut(&from) {
                let events = std::mem::take(&mut file.events);
                let had_some = !events.is_empty();
                let (of_it, others) = events.into_iter().partition(|it| it.counted == id);
                (moved, file.events) = (of_it, others);
                if had_some {
                    file.clear_signal();
                }
            }
            // Requests that nobody has fetched go with their listener.
            for waiting in moved.iter().filter(|waiting| waiting.is_request()) {
                if let Some(it) = self.ids.get_mut(&CommId(waiting.delivered.id)) {
                    it.file = to;
                }
            }
            for Waiting { counted, delivered, .. } in moved {
                self.append(to, counted, delivered);
            }
        }
        Some(reported)
    }

    /// Appends an event to the file of the id that it is counted for.
    pub(super) fn raise(&mut self, counted: CommId, delivered: Delivered) {
        let Some(it) = self.ids.get_mut(&counted) else { return };
        it.removed |= delivered.happened == Happened::DeviceRemoval;
        let file = it.file;
        self.append(file, counted, delivered);
    }

    /// Tells every id that its device is gone, except those told before, and those that stay.
    pub(super) fn device_removed(&mut self, stays: impl Fn(CommId) -> bool) {
        let untold = self.ids.iter().filter(|(_, it)| it.uid != 0 && !it.removed);
        let untold = untold.filter(|(id, _)| !stays(**id));
        for (id, uid) in untold.map(|(id, it)| (*id, it.uid)).collect::<Vec<_>>() {
            let happened = Happened::DeviceRemoval;
            self.raise(id, Delivered { id: id.0, uid, gid_index: 0, happened });
        }
    }

    /// Appends an event behind all others of a file.
    fn append(&mut self, file: RawFd, counted: CommId, delivered: Delivered) {
        let Some(file) = self.files.get_mut(&file) else { return };
        let number = RAISED.fetch_add(1, Relaxed) + 1;
        for about in [counted, CommId(delivered.id)] {
            if let Some(it) = self.ids.get_mut(&about) {
                it.last = number;
            }
        }
        file.events.push_back(Waiting { number, counted, delivered });
        file.signal();
    }

    /// The number of the oldest event of a file.
    pub(super) fn oldest(&self, file: RawFd) -> Option<u64> {
        Some(self.files.get(&file)?.events.front()?.number)
    }

    /// Takes the oldest event of a file.
    pub(super) fn take(&mut self, file: RawFd) -> Option<Delivered> {
        let file = self.files.get_mut(&file)?;
        let Waiting { counted, delivered, .. } = file.events.pop_front()?;
        file.clear_signal();
        if let Some(it) = self.ids.get_mut(&counted) {
            it.reported = it.reported.wrapping_add(1);
        }
        Some(delivered)
    }

    /// Takes back the events of a group that has been left.
    pub(super) fn drop_events_of(&mut self, file: RawFd, id: u32) {
        if let Some(file) = self.files.get_mut(&file) {
            file.retain(|waiting| waiting.delivered.id != id);
        }
    }
}

impl Waiting {
    fn is_request(&self) -> bool {
        matches!(self.delivered.happened, Happened::ConnectRequest { .. })
    }
}
