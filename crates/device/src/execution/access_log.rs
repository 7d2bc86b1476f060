//! The log of the accesses that go around the responder, for a process that wants to know of each and need not be asked
//! before.
//!
//! It lies in the target's segment. Initiators add to it, and the process itself takes from it. A WRITE is logged before
//! any of it is copied. So once somebody may see the data, the process finds the WRITE in its log. A READ and an atomic
//! are logged after their copy. So whoever knows what they fetched finds them behind the WRITEs that they fetched from.
//!
//! Nobody waits for anybody. An initiator takes a turn, fills the turn's place, and publishes it. If the process comes
//! between, it passes the place over, and the initiator learns that it is not logged. If there is no room, the initiator
//! goes to the responder, by which the process hears of the access too.

use crate::operation::Operation;
use crate::protection::{Attempt, Key};
use crate::sync::{AtomicU64, Ordering::*, fence};

/// Accesses that fit into a log.
#[cfg(not(loom))]
const PLACES: usize = 1024;
/// Accesses, few enough for the model checker.
#[cfg(loom)]
const PLACES: usize = 4;

/// The log. It begins as zeros.
#[repr(C)]
#[derive(Debug)]
pub struct AccessLog {
    /// How many turns initiators have taken.
    taken: AtomicU64,
    /// How many of them the process has been through.
    passed: AtomicU64,
    /// 1 if an access that was carried out found no room since the process looked last.
    missed: AtomicU64,
    places: [Place; PLACES],
}

/// What a process finds in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// An access.
    Access(Attempt),
    /// Accesses are missing here. Anybody may know of everything before.
    Gap,
}

/// The room for one access. It serves a turn, then the turn that is [`PLACES`] later, and so on.
#[repr(C)]
#[derive(Debug, Default)]
struct Place {
    /// Twice the number of turns that it has served. One more while it holds an access.
    state: AtomicU64,
    /// The operation and the queue pair, see [`words`].
    what: AtomicU64,
    key: AtomicU64,
    address: AtomicU64,
    length: AtomicU64,
    /// All of these and the turn, see [`check_of`]. Without it, an initiator that was stopped while it filled the place
    /// could spoil what a later turn has put there.
    check: AtomicU64,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self {
            taken: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            places: std::array::from_fn(|_| Place::default()),
        }
    }
}

/// The state of a place that waits for this turn.
const fn waits_for(turn: u64) -> u64 {
    turn / PLACES as u64 * 2
}

/// The words that say what an access is.
fn words(attempt: &Attempt) -> [u64; 4] {
    let what = u64::from(attempt.operation.code()) << 32 | u64::from(attempt.qp);
    [what, attempt.key.0.into(), attempt.address, attempt.length]
}

/// What differs if any of the words belongs to another turn.
fn check_of(words: &[u64; 4], turn: u64) -> u64 {
    // An odd factor, so each step is reversible.
    words.iter().fold(turn + 1, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The access that the words of another process say.
fn parse(words: [u64; 4]) -> Option<Attempt> {
    let [what, key, address, length] = words;
    let operation = Operation::from_code(u8::try_from(what >> 32).ok()?)?;
    let key = Key(u32::try_from(key).ok()?);
    Some(Attempt { operation, key, address, length, qp: what as u32, pd: 0 })
}

impl AccessLog {
    fn place(&self, turn: u64) -> &Place {
        &self.places[(turn % PLACES as u64) as usize]
    }

    /// Logs an access. False if it is not logged: there is no room, or the process has passed its turn over.
    pub fn add(&self, attempt: &Attempt) -> bool {
        let Some(turn) = self.take_turn() else { return false };
        let place = self.place(turn);
        let words = words(attempt);
        let fields = [&place.what, &place.key, &place.address, &place.length];
        fields.iter().zip(words).for_each(|(field, word)| field.store(word, Relaxed));
        place.check.store(check_of(&words, turn), Relaxed);
        let waits = waits_for(turn);
        let is_logged = place.state.compare_exchange(waits, waits + 1, SeqCst, Relaxed).is_ok();
        // Whoever sees what is copied from now on sees this too.
        fence(SeqCst);
        is_logged
    }

    /// The same, of an access that has been carried out already. If it is not logged, the process learns that one is
    /// missing.
    pub fn add_done(&self, attempt: &Attempt) {
        if !self.add(attempt) {
            self.missed.store(1, SeqCst);
        }
    }

    fn take_turn(&self) -> Option<u64> {
        loop {
            let turn = self.taken.load(SeqCst);
            let state = self.place(turn).state.load(Acquire);
            if state == waits_for(turn) {
                let taken = self.taken.compare_exchange(turn, turn + 1, SeqCst, Relaxed);
                if taken.is_ok() {
                    return Some(turn);
                }
            } else if self.taken.load(SeqCst) == turn {
                return None;
            }
        }
    }

    /// Takes everything out that was logged before this call, in its order. One thread of the process may do this at a
    /// time.
    pub fn drain(&self, mut take: impl FnMut(Logged)) {
        // In this order. If an access was missing before one that is found here, then that is known here, too. And what
        // was logged before the one that is missing is taken out with it.
        let mut taken = self.taken.load(SeqCst);
        let has_missed = self.missed.load(SeqCst) != 0 && self.missed.swap(0, SeqCst) != 0;
        if has_missed {
            taken = self.taken.load(SeqCst);
        }
        let passed = self.passed.load(Relaxed);
        // Nobody can take more turns than there are places. Other processes' numbers are not believed.
        let turns = passed..taken.min(passed.saturating_add(PLACES as u64));
        for turn in turns.clone() {
            let logged = self.take(turn);
            if !has_missed {
                logged.into_iter().for_each(&mut take);
            }
        }
        self.passed.store(turns.end.max(passed), Relaxed);
        if has_missed {
            take(Logged::Gap);
        }
    }

    /// What was logged in a turn, if it was. Its place then serves a later one.
    fn take(&self, turn: u64) -> Option<Logged> {
        let (place, waits) = (self.place(turn), waits_for(turn));
        // Its initiator may not have published it yet. Then it is not logged, and the initiator learns that.
        if place.state.compare_exchange(waits, waits + 2, SeqCst, Acquire).is_ok() {
            return None;
        }
        let fields = [&place.what, &place.key, &place.address, &place.length];
        let words = fields.map(|field| field.load(Relaxed));
        let is_whole = place.check.load(Relaxed) == check_of(&words, turn);
        place.state.store(waits + 2, SeqCst);
        Some(parse(words).filter(|_| is_whole).map_or(Logged::Gap, Logged::Access))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn write(address: u64) -> Attempt {
        Attempt { operation: Operation::Write, key: Key(7), address, length: 8, qp: 0x1234, pd: 0 }
    }

    fn drained(log: &AccessLog) -> Vec<Logged> {
        let mut all = Vec::new();
        log.drain(|logged| all.push(logged));
        all
    }

    fn all_of(addresses: impl Iterator<Item = u64>) -> Vec<Logged> {
        addresses.map(|address| Logged::Access(write(address))).collect()
    }

    #[test]
    fn accesses_come_out_once_in_their_order() {
        let log = AccessLog::default();
        for round in 0..5 {
            let addresses = round * 700..(round + 1) * 700;
            assert!(addresses.clone().all(|address| log.add(&write(address))));
            assert_eq!(drained(&log), all_of(addresses));
            assert_eq!(drained(&log), []);
        }
    }

    #[test]
    fn a_full_log_takes_nothing_until_it_is_drained() {
        let (log, room) = (AccessLog::default(), PLACES as u64);
        assert!((0..room).all(|address| log.add(&write(address))));
        assert!(!log.add(&write(room)));
        assert_eq!(drained(&log), all_of(0..room));
        assert!(log.add(&write(room)));
        assert_eq!(drained(&log), all_of(room..=room));
    }

    #[test]
    fn an_access_that_was_carried_out_and_found_no_room_leaves_a_gap() {
        let log = AccessLog::default();
        assert!((0..PLACES as u64).all(|address| log.add(&write(address))));
        log.add_done(&write(0));
        assert_eq!(drained(&log), [Logged::Gap]);
        log.add_done(&write(1));
        assert_eq!(drained(&log), all_of(1..2));
    }

    /// The initiator is stopped before it publishes what it has put there.
    #[test]
    fn a_turn_that_is_passed_over_holds_up_nobody() {
        let log = AccessLog::default();
        let turn = log.take_turn().expect("the log is empty");
        assert!(log.add(&write(1)));
        assert_eq!(drained(&log), all_of(1..2));
        let state = &log.place(turn).state;
        let waits = waits_for(turn);
        assert!(state.compare_exchange(waits, waits + 1, SeqCst, SeqCst).is_err());
        assert!((0..3 * PLACES as u64).all(|address| {
            log.add(&write(address)) && drained(&log) == all_of(address..address + 1)
        }));
    }

    /// The initiator is stopped while it fills its place, and goes on when the place serves a later turn.
    #[test]
    fn what_an_earlier_turn_stores_late_is_a_gap() {
        for field in 0..5 {
            let log = AccessLog::default();
            assert!(log.add(&write(1)));
            let place = log.place(0);
            let fields = [&place.what, &place.key, &place.address, &place.length, &place.check];
            fields[field].fetch_add(1, SeqCst);
            assert_eq!(drained(&log), [Logged::Gap]);
        }
    }

    #[test]
    fn nonsense_from_another_process_ends() {
        let log = AccessLog::default();
        log.taken.store(u64::MAX, SeqCst);
        assert_eq!(drained(&log), []);
        assert!(!log.add(&write(1)));
        log.place(3).state.store(u64::MAX - 1, SeqCst);
        log.missed.store(9, SeqCst);
        assert_eq!(drained(&log), [Logged::Gap]);
    }
}
