//! The notes of a process for `transom explain`: its last records, in its slot of the registry.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};

use super::call::CallRecord;
use super::record::{RECORD_WORDS, RefusalRecord};
use super::unconnected::ConnectionRecord;
use super::work::WorkRecord;

/// Records kept of each process.
const RECORDS: usize = 64;
/// How many records are kept of what correct programs meet too. There may be many, and they must not replace the
/// records of errors.
const ORDINARY: usize = 16;

/// What was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// An access to memory, a bind or an invalidation was refused.
    Access(RefusalRecord),
    /// A call was refused at once.
    Call(CallRecord),
    /// A connection did not come about.
    Connection(ConnectionRecord),
    /// Work came to nothing.
    Work(WorkRecord),
}

impl Record {
    /// Its time, in nanoseconds since 1970.
    pub fn time(&self) -> u64 {
        match self {
            Self::Access(record) => record.time,
            Self::Call(record) => record.time,
            Self::Connection(record) => record.time,
            Self::Work(record) => record.time,
        }
    }

    /// Whether a correct program may meet it in the ordinary course of things. Then nobody is told of it unasked.
    pub fn is_ordinary(&self) -> bool {
        match self {
            Self::Access(_) | Self::Connection(_) => false,
            Self::Call(record) => record.call.is_ordinary(),
            Self::Work(record) => record.is_ordinary(),
        }
    }

    fn to_words(self) -> [u64; RECORD_WORDS] {
        match self {
            Self::Access(record) => record.to_words(),
            Self::Call(record) => record.to_words(),
            Self::Connection(record) => record.to_words(),
            Self::Work(record) => record.to_words(),
        }
    }

    fn from_words(words: &[u64; RECORD_WORDS]) -> Option<Self> {
        let access = || RefusalRecord::from_words(words).map(Self::Access);
        let call = || CallRecord::from_words(words).map(Self::Call);
        let connection = || ConnectionRecord::from_words(words).map(Self::Connection);
        let work = || WorkRecord::from_words(words).map(Self::Work);
        access().or_else(call).or_else(connection).or_else(work)
    }
}

/// The sentence for a person.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(record) => record.fmt(f),
            Self::Call(record) => record.call.fmt(f),
            Self::Connection(record) => record.fmt(f),
            Self::Work(record) => record.fmt(f),
        }
    }
}

/// The records of one process.
#[repr(C)]
pub(super) struct Noted {
    wrong: Last<RECORDS>,
    ordinary: Last<ORDINARY>,
}

impl Noted {
    /// Adds one.
    pub(super) fn add(&self, record: &Record) {
        match record.is_ordinary() {
            true => self.ordinary.add(record),
            false => self.wrong.add(record),
        }
    }

    /// All there are, the oldest first.
    pub(super) fn all(&self) -> Vec<Record> {
        let mut all = Vec::new();
        self.wrong.read(&mut all);
        self.ordinary.read(&mut all);
        all.sort_by_key(Record::time);
        all
    }

    /// How many are no longer kept, because newer ones replaced them.
    pub(super) fn lost(&self) -> u64 {
        self.wrong.lost() + self.ordinary.lost()
    }

    /// How many there have been of what correct programs do not meet, kept or not.
    pub(super) fn errors(&self) -> u64 {
        self.wrong.noted()
    }

    /// Forgets the records of the slot's previous process.
    pub(super) fn clear(&self) {
        self.wrong.clear();
        self.ordinary.clear();
    }
}

/// The last `N` records of one kind. Several threads write at the same time, and none waits for another: who finds its
/// place being written, or taken by a later record, gives its own up. So no place is ever written by two.
#[repr(C)]
struct Last<const N: usize> {
    /// How many there have been in all, and how many before the slot's current process.
    count: AtomicU64,
    before: AtomicU64,
    /// Each begins with its number plus one, with [`WRITING`] while it is written. Zero is none.
    records: [[AtomicU64; RECORD_WORDS]; N],
}

const WRITING: u64 = 1 << 63;

impl<const N: usize> Last<N> {
    fn add(&self, record: &Record) {
        let number = self.count.fetch_add(1, AcqRel);
        let place = &self.records[(number % N as u64) as usize];
        let (before, word) = (place[0].load(Relaxed), number.wrapping_add(1));
        // A thread that lost its processor may still write a record of the last round here.
        if before & WRITING != 0
            || before >= word
            || place[0].compare_exchange(before, word | WRITING, Acquire, Relaxed).is_err()
        {
            return;
        }
        // A reader that sees one of the words sees that they are being written.
        fence(Release);
        for (word, value) in place.iter().zip(record.to_words()).skip(1) {
            word.store(value, Relaxed);
        }
        place[0].store(word, Release);
    }

    fn read(&self, all: &mut Vec<Record>) {
        let (before, count) = (self.before.load(Acquire), self.count.load(Acquire));
        let first = before.max(count.saturating_sub(N as u64));
        all.extend((first..count).filter_map(|number| {
            let place = &self.records[(number % N as u64) as usize];
            let words = place.each_ref().map(|word| word.load(Acquire));
            fence(Acquire);
            // It is not being written, and was not overwritten while it was read.
            let whole = words[0] == number.wrapping_add(1) && place[0].load(Relaxed) == words[0];
            whole.then(|| Record::from_words(&words)).flatten()
        }));
    }

    /// How many there have been of the slot's current process.
    fn noted(&self) -> u64 {
        self.count.load(Acquire).saturating_sub(self.before.load(Acquire))
    }

    fn lost(&self) -> u64 {
        self.noted().saturating_sub(N as u64)
    }

    fn clear(&self) {
        self.before.store(self.count.load(Relaxed), Relaxed);
        self.records.iter().for_each(|place| place[0].store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::CallRefusal;
    use super::*;

    fn empty() -> Box<Last<4>> {
        // SAFETY: all zeros is a valid value of atomics.
        unsafe { Box::<Last<4>>::new_zeroed().assume_init() }
    }

    /// A record whose numbers all tell the same.
    fn record(number: u64) -> Record {
        let more = [number; 2];
        let call = CallRefusal { value: number, limit: number, more, ..CallRefusal::default() };
        Record::Call(CallRecord { time: number, call })
    }

    fn read(last: &Last<4>) -> Vec<u64> {
        let mut all = Vec::new();
        last.read(&mut all);
        let number = |read: &Record| {
            assert_eq!(*read, record(read.time()), "it is whole");
            read.time()
        };
        all.iter().map(number).collect()
    }

    /// A thread that lost its processor comes back when its place is the next one again.
    #[test]
    fn a_record_whose_place_is_being_written_is_given_up() {
        let last = empty();
        last.count.store(1, Relaxed);
        last.records[0][0].store(1 | WRITING, Relaxed);
        (1..=4).for_each(|number| last.add(&record(number)));
        assert_eq!(read(&last), [1, 2, 3]);
        // And the other way round: the later one is there first.
        last.records[2][0].store(7, Relaxed);
        last.count.store(2, Relaxed);
        last.add(&record(9));
        assert_eq!(read(&last), [1]);
        last.clear();
        last.count.store(8, Relaxed);
        last.add(&record(5));
        assert_eq!(read(&last), [5]);
    }

    #[test]
    fn no_reader_sees_half_a_record_while_many_write() {
        let last = empty();
        let each = if cfg!(miri) { 40 } else { 20_000 };
        std::thread::scope(|scope| {
            for writer in 0..4_u64 {
                let last = &last;
                scope.spawn(move || (0..each).for_each(|n| last.add(&record(n * 4 + writer))));
            }
            while last.count.load(Acquire) < 4 * each {
                read(&last);
            }
        });
        read(&last);
    }
}
