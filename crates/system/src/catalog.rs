//! The objects of a process that its keys and queue pairs do not show, in its segment: contexts, protection domains,
//! completion queues and shared receive queues. An object is written here when it is made, and taken out when it ends;
//! nothing else touches it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use parking_lot::Mutex;

/// Most objects that are shown. Any others are there all the same.
pub(crate) const ROOM: usize = 1 << 18;

/// How many entries get memory at once.
const CHUNK: u32 = 256;

/// An object of a process, with the number that it has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// An opened device.
    Context,
    /// A protection domain.
    Domain {
        /// Its number in keys and queue pairs.
        number: u32,
        /// The context that it was made in.
        context: Option<Number>,
    },
    /// A completion queue.
    CompletionQueue {
        /// The context that it was made in.
        context: Option<Number>,
        /// How many completions it holds.
        capacity: u32,
    },
    /// A shared receive queue.
    SharedReceiveQueue {
        /// The low half of its number.
        index: u16,
        /// What it is for.
        kind: SharedKind,
        /// The number of its protection domain.
        domain: u32,
        /// Where it completes, if that is the same for all its receives.
        completes_to: Option<Number>,
    },
}

/// What a shared receive queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SharedKind {
    /// Receives of queue pairs.
    Basic = 0,
    /// Those of XRC.
    Xrc = 1,
    /// It matches tags.
    TagMatching = 2,
}

/// The number of a listed object in its process. It is never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number(u32);

impl Number {
    /// The number, or zero for none.
    pub fn bits(number: Option<Self>) -> u32 {
        number.map_or(0, |it| it.0)
    }

    /// The same back.
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }
}

/// How a completion queue stood when somebody last asked ([`crate::wanted`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The completions that nobody had polled.
    pub waiting: u32,
    /// A number that changes with polls that find nothing, and with completions that are taken.
    pub polls: u32,
    /// It has a completion channel.
    pub has_channel: bool,
    /// The next completion raises an event there.
    pub is_armed: bool,
}

impl Standing {
    const POLLS: u64 = u32::MAX as u64 >> 2;

    fn pack(self) -> u64 {
        u64::from(self.waiting)
            | (u64::from(self.polls) & Self::POLLS) << 32
            | u64::from(self.has_channel) << 62
            | u64::from(self.is_armed) << 63
    }

    fn unpack(word: u64) -> Self {
        Self {
            waiting: word as u32,
            polls: (word >> 32 & Self::POLLS) as u32,
            has_channel: word >> 62 & 1 == 1,
            is_armed: word >> 63 == 1,
        }
    }
}

/// An entry of the table. All zeros is no object.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// Its kind in eight bits, the number of its context in the 24 above, and a number in the upper half. Written last,
    /// and cleared first.
    what: AtomicU64,
    more: AtomicU64,
}

impl Entry {
    fn set(&self, listed: Listed) {
        let (kind, context, number, more) = match listed {
            Listed::Domain { number, context } => (1, context, number, 0),
            Listed::CompletionQueue { context, capacity } => (2, context, capacity, 0),
            Listed::SharedReceiveQueue { index, kind, domain, completes_to } => {
                let number = u32::from(index) | (kind as u32) << 16;
                (3, None, number, u64::from(domain) | u64::from(Number::bits(completes_to)) << 32)
            }
            Listed::Context => (4, None, 0, 0),
        };
        const { assert!(ROOM < 1 << 24) };
        let low = kind | Number::bits(context) << 8;
        self.more.store(more, Relaxed);
        self.what.store(u64::from(low) | u64::from(number) << 32, Release);
    }

    /// Another process may have written anything.
    fn get(&self) -> Option<Listed> {
        let what = self.what.load(Acquire);
        let (number, more) = ((what >> 32) as u32, self.more.load(Relaxed));
        let context = Number::from_bits(what as u32 >> 8);
        Some(match what as u8 {
            1 => Listed::Domain { number, context },
            2 => Listed::CompletionQueue { context, capacity: number },
            3 => Listed::SharedReceiveQueue {
                index: number as u16,
                kind: match number >> 16 {
                    0 => SharedKind::Basic,
                    1 => SharedKind::Xrc,
                    _ => SharedKind::TagMatching,
                },
                domain: more as u32,
                completes_to: Number::from_bits((more >> 32) as u32),
            },
            4 => Listed::Context,
            _ => return None,
        })
    }
}

/// The table in a segment.
#[derive(Debug)]
#[repr(C)]
pub struct Catalog {
    /// No entry from this one on was ever used.
    high: AtomicU32,
    entries: [Entry; ROOM],
}

impl Catalog {
    /// Shows how a completion queue of this process stands. It is there as long as this call.
    pub fn show(&self, Number(bits): Number, standing: Standing) {
        if let Some(entry) = self.entries.get(bits as usize - 1) {
            entry.more.store(standing.pack(), Relaxed);
        }
    }

    /// How a completion queue stood when somebody last asked. `None` if it is not there.
    pub fn standing(&self, Number(bits): Number) -> Option<Standing> {
        let high = (self.high.load(Acquire) as usize).min(ROOM);
        let entry = self.entries[..high].get(bits as usize - 1)?;
        let is_queue = matches!(entry.get()?, Listed::CompletionQueue { .. });
        is_queue.then(|| Standing::unpack(entry.more.load(Relaxed)))
    }

    /// The objects that are there now, with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (Number, Listed)> {
        let high = (self.high.load(Acquire) as usize).min(ROOM);
        (1..).zip(&self.entries[..high]).filter_map(|(bits, it)| Some((Number(bits), it.get()?)))
    }
}

/// The entries that are free, of the process whose table it is.
#[derive(Debug, Default)]
pub struct FreeEntries(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    given_back: Vec<u32>,
    next: u32,
    with_memory: u32,
}

impl FreeEntries {
    /// Shows an object. `None` if there is no room for it. `commit` puts memory behind a part of the table.
    pub(crate) fn list(
        &self,
        catalog: &Catalog,
        listed: Listed,
        commit: impl FnOnce(&[Entry]) -> std::io::Result<()>,
    ) -> Option<Number> {
        let mut free = self.0.lock();
        let index = match free.given_back.pop() {
            Some(index) => index,
            None => {
                if free.next == free.with_memory {
                    let end = (free.next + CHUNK).min(ROOM as u32);
                    let chunk = catalog.entries.get(free.next as usize..end as usize)?;
                    commit(chunk).ok().filter(|()| !chunk.is_empty())?;
                    free.with_memory = end;
                }
                let index = free.next;
                free.next += 1;
                catalog.high.store(free.next, Release);
                index
            }
        };
        drop(free);
        catalog.entries[index as usize].set(listed);
        Some(Number(index + 1))
    }

    /// An object has ended.
    pub(crate) fn remove(&self, catalog: &Catalog, number: Option<Number>) {
        let Some(Number(bits)) = number else { return };
        catalog.entries[bits as usize - 1].what.store(0, Release);
        self.0.lock().given_back.push(bits - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    #[test]
    fn an_object_is_shown_until_it_ends() {
        let segment = Segment::create().expect("memory");
        let free = FreeEntries::default();
        let list =
            |listed| free.list(segment.catalog(), listed, |entries| segment.open_catalog(entries));
        let all = || segment.catalog().all().map(|(_, listed)| listed).collect::<Vec<_>>();
        let shared = Listed::SharedReceiveQueue {
            index: 9,
            kind: SharedKind::TagMatching,
            domain: u32::MAX,
            completes_to: Number::from_bits(7),
        };
        let context = Number::from_bits(ROOM as u32);
        let domain = |number| Listed::Domain { number, context };
        let queue = Listed::CompletionQueue { context, capacity: u32::MAX };
        let kinds = [domain(u32::MAX), queue, shared, Listed::Context];
        let numbers = kinds.map(list);
        assert_eq!(all(), kinds);
        let queue = numbers[1].unwrap();
        assert_eq!(segment.catalog().standing(queue), Some(Standing::default()));
        for (has_channel, is_armed) in [(true, false), (false, true)] {
            let standing = Standing { waiting: u32::MAX, polls: 6400, has_channel, is_armed };
            segment.catalog().show(queue, standing);
            assert_eq!(segment.catalog().standing(queue), Some(standing));
        }
        assert_eq!(segment.catalog().standing(numbers[0].unwrap()), None);
        assert_eq!(all(), kinds);
        free.remove(segment.catalog(), numbers[1]);
        assert_eq!(segment.catalog().standing(queue), None);
        assert_eq!(all(), [kinds[0], shared, Listed::Context]);
        assert_eq!(list(domain(4)), numbers[1], "the room is used again");
        free.remove(segment.catalog(), None);
        assert_eq!(all(), [kinds[0], domain(4), shared, Listed::Context]);
        let refused = |_: &[Entry]| Err(std::io::ErrorKind::StorageFull.into());
        let new = FreeEntries::default();
        assert_eq!(new.list(segment.catalog(), shared, refused), None);
    }
}
