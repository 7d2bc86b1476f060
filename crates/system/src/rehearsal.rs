//! The rehearsal that this process is part of: its plan, and the record of everything that was provoked.
//!
//! The directory of [`REHEARSE`] has the plan, as the command wrote it. Each process that opens a device takes the next
//! number there, and writes each provocation into its file. So the record of a killed process is complete.
//!
//! | module | holds |
//! |---|---|
//! | [`provoked`] | the record of a process |
//! | [`ends`] | by what a process has ended, for the command |

pub mod ends;
pub mod provoked;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use transom_rehearse::{Decisions, Order, Place, Plan, Profile, Provocation};

use crate::environment::REHEARSE;
use crate::say;
use crate::this_process::this_process;
use crate::tools::{self, Tool};

use provoked::Record;

/// The name of the plan in the directory.
pub const PLAN: &str = "plan";

/// The rehearsal of this process.
#[derive(Debug)]
pub struct Rehearsal {
    profile: Option<&'static Profile>,
    order: Order,
    decisions: Decisions,
    /// The PID of the process that has joined. In a forked child it may be the parent.
    owner: u32,
    record: Record,
    /// How often each provocation was asked for, in the order of [`Provocation::ALL`]: of those that belong to no object.
    asked: Box<[AtomicU64]>,
    /// That the MTU is small, if it is.
    small_mtu: OnceLock<Option<Lasting>>,
    /// That requests do not wait for a listener, if they do not.
    refuses_early: OnceLock<Option<Lasting>>,
}

/// Something that was decided once and lasts. It is written down when it first makes a difference to the program.
#[derive(Debug)]
pub struct Lasting {
    place: Place,
    is_told: AtomicBool,
}

impl Lasting {
    /// It makes a difference.
    #[inline]
    pub fn note(&self) {
        if !self.is_told.load(Relaxed) {
            self.note_first();
        }
    }

    #[cold]
    fn note_first(&self) {
        if let Some(rehearsal) = on().filter(|it| !it.is_inherited())
            && !self.is_told.swap(true, Relaxed)
        {
            rehearsal.record.write(&self.place, "");
        }
    }
}

/// The rehearsal of this process, or null. Every request asks, so it is one load.
static REHEARSAL: AtomicPtr<Rehearsal> = AtomicPtr::new(null_mut());

/// Joins the rehearsal, if there is one. Call it when a device is opened. A forked child joins anew when it opens one
/// itself: it has a number and a record of its own, and counts from 0.
pub fn begin() {
    static JOINING: Turn = Turn(AtomicU32::new(0));
    let has_joined = || on().is_some_and(|joined| !joined.is_inherited());
    let Some(directory) = REHEARSE.text().map(PathBuf::from).filter(|_| !has_joined()) else {
        return;
    };
    JOINING.take(|| {
        if has_joined() {
            return;
        }
        match Rehearsal::join(&directory) {
            Ok(joined) => {
                let others = REHEARSAL.swap(Box::into_raw(Box::new(joined)), AcqRel);
                // A forked child has it on already.
                if others.is_null() {
                    tools::turn_on(Tool::Rehearsal);
                }
            }
            Err(problem) => {
                // A forked child has nothing of its parent's provoked.
                REHEARSAL.store(null_mut(), Release);
                let directory = directory.display();
                say(format_args!("nothing is provoked: the rehearsal in {directory}: {problem}"));
            }
        }
    });
}

/// The turn of one thread. A fork may copy a process while another of its threads has it, so it names the process.
struct Turn(AtomicU32);

impl Turn {
    fn take(&self, act: impl FnOnce()) {
        let this = this_process();
        loop {
            let now = self.0.load(Acquire);
            if now == this {
                std::thread::yield_now();
            } else if self.0.compare_exchange(now, this, AcqRel, Relaxed).is_ok() {
                break;
            }
        }
        let _turn = Over(&self.0);
        act();
    }
}

/// Ends a turn, also if what was done in it has panicked.
struct Over<'a>(&'a AtomicU32);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// The adapter that the device stands for in a rehearsal.
#[inline]
pub fn profile() -> Option<&'static Profile> {
    on()?.profile()
}

/// The same in a process that has not joined the rehearsal yet: before it opens a device, it looks for one.
pub fn planned_profile() -> Option<&'static Profile> {
    if let Some(rehearsal) = on() {
        return rehearsal.profile();
    }
    let directory = REHEARSE.text().map(PathBuf::from)?;
    let plan = fs::read_to_string(directory.join(PLAN)).ok()?;
    plan.parse::<Plan>().ok()?.profile
}

/// The rehearsal, in a process that has one.
#[inline]
pub fn on() -> Option<&'static Rehearsal> {
    // SAFETY: it is null, or a box that is never freed, and was whole when it was stored.
    unsafe { REHEARSAL.load(Acquire).as_ref() }
}

/// Whether a new object gets the number that came free last, in place of one that has rested. Ask only if there is one.
pub fn comes_again() -> bool {
    on().is_some_and(|rehearsal| rehearsal.provokes_next(Provocation::NumbersAgain).is_some())
}

/// By which bits the L_Keys of this process differ from the keys of its table.
static L_KEYS: AtomicU32 = AtomicU32::new(0);
/// That they do, for as long as no region has one. No lock, because a fork may copy a process while a thread has one.
static NO_L_KEY_YET: AtomicPtr<Lasting> = AtomicPtr::new(null_mut());

/// The bits by which they differ in a rehearsal. A key gets to the one that differs by them 128 regions later.
const DIFFERENCE: u32 = 0x80;

/// A key table is about to be made. Returns by which bits its L_Keys differ from its keys, from now on.
pub fn choose_l_keys() -> u32 {
    let differ = on().and_then(|rehearsal| {
        let nth = rehearsal.next(Provocation::DifferentKeys);
        rehearsal.lasting(Provocation::DifferentKeys, nth)
    });
    let difference = if differ.is_some() { DIFFERENCE } else { 0 };
    // It is never freed. Only a rehearsal has any.
    let untold = differ.map_or(null_mut(), |it| Box::into_raw(Box::new(it)));
    NO_L_KEY_YET.store(untold, Release);
    L_KEYS.store(difference, Relaxed);
    difference
}

/// The L_Key of a new region.
pub fn new_l_key(key: u32) -> u32 {
    if on().is_some() {
        let untold = NO_L_KEY_YET.swap(null_mut(), AcqRel);
        // SAFETY: it is null, or a box that is never freed, and was whole when it was stored.
        unsafe { untold.as_ref() }.inspect(|differ| differ.note());
    }
    l_key(key)
}

/// The number of an object in its process, by its handle. Handles count up from 1, and none comes again.
pub fn number_of(handle: u32) -> u32 {
    handle.wrapping_sub(1)
}

/// The L_Key that stands for a key, or the key that an L_Key stands for.
#[inline]
pub fn l_key(key: u32) -> u32 {
    key ^ L_KEYS.load(Relaxed)
}

/// The most bytes that a packet of the port may have, with its headers.
pub fn most_mtu() -> u32 {
    small_mtu().map_or(u32::MAX, |_| ETHERNET)
}

/// That the MTU is small: note it where the program hears of it.
pub fn small_mtu() -> Option<&'static Lasting> {
    let rehearsal = on().filter(|it| !it.is_inherited())?;
    rehearsal.small_mtu.get_or_init(|| rehearsal.lasting(Provocation::SmallMtu, 0)).as_ref()
}

/// That requests do not wait for a listener: note it when one is refused.
pub fn refuses_early() -> Option<&'static Lasting> {
    let rehearsal = on().filter(|it| !it.is_inherited())?;
    let lasting = || rehearsal.lasting(Provocation::RefusedEarlyRequests, 0);
    rehearsal.refuses_early.get_or_init(lasting).as_ref()
}

/// The MTU of an Ethernet.
const ETHERNET: u32 = 1500;

/// Where to look for the number of a new queue pair, if numbers do not count up. It is the same in each process, because
/// queue pairs of two hosts may have the same number.
pub fn scattered() -> Option<u16> {
    let rehearsal = on()?;
    let nth = rehearsal.next(Provocation::ScatteredNumbers);
    rehearsal.provokes(Provocation::ScatteredNumbers, 0, nth)?;
    Some(rehearsal.decisions.number(Provocation::ScatteredNumbers, nth) as u16)
}

impl Rehearsal {
    fn join(directory: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(directory.join(PLAN))?;
        let plan = text.parse::<Plan>().map_err(io::Error::other)?;
        let decisions = plan.decisions();
        let record = Record::make(directory, |kind| decisions.may_provoke(kind))?;
        // No command may listen, or the kernel may have no such descriptors. Then the command knows less.
        let _ = ends::announce(directory, record.process);
        let asked = Provocation::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        let (profile, order, owner) = (plan.profile, plan.order, this_process());
        let (small_mtu, refuses_early) = (OnceLock::new(), OnceLock::new());
        Ok(Self { profile, order, decisions, owner, record, asked, small_mtu, refuses_early })
    }

    /// The adapter that the device stands for.
    pub fn profile(&self) -> Option<&'static Profile> {
        self.profile
    }

    /// Whether something may be provoked in this run. If not, you need not look whether it could be done. But count the
    /// operation.
    #[inline]
    pub fn may_provoke(&self, provocation: Provocation) -> bool {
        self.decisions.may_provoke(provocation)
    }

    /// Whose promises of memory order the device keeps.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Whether something may be provoked at some operation on an object, or on any object of this process.
    pub fn may_provoke_at(&self, provocation: Provocation, object: Option<u32>) -> bool {
        self.decisions.may_provoke_at(provocation, self.record.process, object)
    }

    /// Whether something is provoked at the n-th operation on an object. If so, it is written down, and the answer is a
    /// random number, for what is left to choose. In a forked child nothing is until it opens a device itself, and nowhere
    /// anything that cannot be written down.
    #[inline]
    pub fn provokes(&self, provocation: Provocation, object: u32, nth: u64) -> Option<u64> {
        self.provokes_at(provocation, object, nth, "")
    }

    /// The same in this verb.
    #[inline]
    fn provokes_at(
        &self,
        provocation: Provocation,
        object: u32,
        nth: u64,
        verb: &str,
    ) -> Option<u64> {
        let place = Place { provocation, process: self.record.process, object, nth };
        let number = self.decisions.provokes(&place)?;
        (!self.is_inherited() && self.record.write(&place, verb)).then_some(number)
    }

    /// As [`Self::provokes`] of the whole process, for what makes no difference yet.
    fn lasting(&self, provocation: Provocation, nth: u64) -> Option<Lasting> {
        let place = Place { provocation, process: self.record.process, object: 0, nth };
        self.decisions.provokes(&place).filter(|_| !self.is_inherited())?;
        Some(Lasting { place, is_told: AtomicBool::new(false) })
    }

    /// The same at the next operation of this process that belongs to no object.
    pub fn provokes_next(&self, provocation: Provocation) -> Option<u64> {
        self.provokes(provocation, 0, self.next(provocation))
    }

    /// The same in this verb, whose name is written down with it.
    pub fn provokes_next_in(&self, provocation: Provocation, verb: &str) -> Option<u64> {
        self.provokes_at(provocation, 0, self.next(provocation), verb)
    }

    /// Whether it is that of the process that this one was forked from.
    fn is_inherited(&self) -> bool {
        self.owner != this_process()
    }

    fn next(&self, provocation: Provocation) -> u64 {
        self.asked[provocation as usize].fetch_add(1, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: REH-01, REH-03
    #[test]
    fn processes_are_numbered_and_write_down_what_is_provoked() {
        let directory = Path::new("/tmp").join(format!("transom-rehearsal-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let kinds = [Provocation::PoisonedFields].into();
        let plan = Plan { seed: 3, kinds, ..Plan::quiet() };
        fs::write(directory.join(PLAN), plan.to_string()).unwrap();
        let [first, second] = [(); 2].map(|()| Rehearsal::join(&directory).unwrap());
        assert_eq!((first.record.process, second.record.process), (0, 1));
        assert!(first.provokes(Provocation::PoisonedFields, 2, 5).is_some());
        assert!(second.provokes(Provocation::LateWork, 2, 5).is_none());
        let all = provoked::of_run(&directory).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let places = all.iter().map(|it| it.places.iter().map(ToString::to_string).collect());
        assert_eq!(places.collect::<Vec<Vec<_>>>(), [vec!["poisoned-fields:0.2.5"], vec![]]);
    }
}
