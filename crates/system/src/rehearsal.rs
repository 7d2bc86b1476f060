//! The rehearsal that this process is part of: its plan, and the record of everything that was provoked.
//!
//! The directory of [`REHEARSE`] has the plan, as the command wrote it. Each process that opens a device takes the next
//! number there, and appends each provocation to its file. So the record of a killed process is complete. The file is
//! opened for each record, because the program could close a descriptor of ours.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Once, OnceLock};

use parking_lot::Mutex;
use transom_rehearse::{Decisions, Order, Place, Plan, Profile, Provocation};
use transom_thread::uncancelled;

use crate::environment::REHEARSE;
use crate::say;
use crate::tools::{self, Tool};

/// The name of the plan in the directory.
pub const PLAN: &str = "plan";
/// The beginning of the names of the processes' files. The number of the process follows.
pub const PROVOKED: &str = "provoked-";

/// The most provocations of one kind that a process writes down. More still happen.
const MOST: u64 = 1000;
/// The most processes of a run.
const PROCESSES: u32 = 10_000;

/// The rehearsal of this process.
#[derive(Debug)]
pub struct Rehearsal {
    profile: Option<&'static Profile>,
    order: Order,
    decisions: Decisions,
    /// The number of this process in the run.
    process: u32,
    file: PathBuf,
    /// How many provocations of each kind there were, in the order of [`Provocation::ALL`].
    provoked: Box<[AtomicU64]>,
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
        if let Some(rehearsal) = on()
            && !self.is_told.swap(true, Relaxed)
        {
            rehearsal.write(&self.place);
        }
    }
}

/// The rehearsal of this process, or null. Every request asks, so it is one load.
static REHEARSAL: AtomicPtr<Rehearsal> = AtomicPtr::new(null_mut());

/// Joins the rehearsal, if there is one. Call it when a device is opened.
pub fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let Some(directory) = REHEARSE.text().map(PathBuf::from) else { return };
        match Rehearsal::join(&directory) {
            Ok(joined) => {
                REHEARSAL.store(Box::into_raw(Box::new(joined)), Release);
                tools::turn_on(Tool::Rehearsal);
            }
            Err(problem) => {
                let directory = directory.display();
                say(format_args!("nothing is provoked: the rehearsal in {directory}: {problem}"));
            }
        }
    });
}

/// The adapter that the device stands for in a rehearsal.
#[inline]
pub fn profile() -> Option<&'static Profile> {
    on()?.profile()
}

/// The rehearsal, in a process that has one.
#[inline]
pub fn on() -> Option<&'static Rehearsal> {
    // SAFETY: it is null, or a box that is never freed, and was whole when it was stored.
    unsafe { REHEARSAL.load(Acquire).as_ref() }
}

/// Whether a new object gets the number that came free last, in place of one that has rested. Ask only if there is one.
pub fn comes_again() -> bool {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    on().is_some_and(|rehearsal| {
        let nth = ASKED.fetch_add(1, Relaxed);
        rehearsal.provokes(Provocation::NumbersAgain, 0, nth).is_some()
    })
}

/// By which bits the L_Keys of this process differ from the keys of its table.
static L_KEYS: AtomicU32 = AtomicU32::new(0);
/// That they do, for as long as no region has one.
static NO_L_KEY_YET: Mutex<Option<Lasting>> = Mutex::new(None);

/// The bits by which they differ in a rehearsal. A key gets to the one that differs by them 128 regions later.
const DIFFERENCE: u32 = 0x80;

/// A key table is about to be made. Returns by which bits its L_Keys differ from its keys, from now on.
pub fn choose_l_keys() -> u32 {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let differ = on().and_then(|rehearsal| {
        let nth = ASKED.fetch_add(1, Relaxed);
        rehearsal.lasting(Provocation::DifferentKeys, nth)
    });
    let difference = if differ.is_some() { DIFFERENCE } else { 0 };
    *NO_L_KEY_YET.lock() = differ;
    L_KEYS.store(difference, Relaxed);
    difference
}

/// The L_Key of a new region.
pub fn new_l_key(key: u32) -> u32 {
    if on().is_some()
        && let Some(differ) = NO_L_KEY_YET.lock().take()
    {
        differ.note();
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
    static SMALL: OnceLock<Option<Lasting>> = OnceLock::new();
    let rehearsal = on()?;
    SMALL.get_or_init(|| rehearsal.lasting(Provocation::SmallMtu, 0)).as_ref()
}

/// The MTU of an Ethernet.
const ETHERNET: u32 = 1500;

/// Where to look for the number of a new queue pair, if numbers do not count up. It is the same in each process, because
/// queue pairs of two hosts may have the same number.
pub fn scattered() -> Option<u16> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let rehearsal = on()?;
    let nth = MADE.fetch_add(1, Relaxed);
    rehearsal.provokes(Provocation::ScatteredNumbers, 0, nth)?;
    Some(rehearsal.decisions.number(Provocation::ScatteredNumbers, nth) as u16)
}

impl Rehearsal {
    fn join(directory: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(directory.join(PLAN))?;
        let plan = text.parse::<Plan>().map_err(io::Error::other)?;
        let made = |process: u32| {
            let file = directory.join(format!("{PROVOKED}{process}"));
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            options.open(&file).map(|_| (process, file))
        };
        let taken = (0..PROCESSES).map(made).find(|made| match made {
            Err(error) => error.kind() != io::ErrorKind::AlreadyExists,
            Ok(_) => true,
        });
        let none_left = || Err(io::Error::other("too many processes"));
        let (process, file) = taken.unwrap_or_else(none_left)?;
        let provoked = Provocation::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        let (profile, order, decisions) = (plan.profile, plan.order, plan.decisions());
        Ok(Self { profile, order, decisions, process, file, provoked })
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
        self.decisions.may_provoke_at(provocation, self.process, object)
    }

    /// Whether something is provoked at the n-th operation on an object. If so, it is written down, and the answer is a
    /// random number, for what is left to choose.
    #[inline]
    pub fn provokes(&self, provocation: Provocation, object: u32, nth: u64) -> Option<u64> {
        let place = Place { provocation, process: self.process, object, nth };
        let number = self.decisions.provokes(&place)?;
        self.write(&place);
        Some(number)
    }

    /// As [`Self::provokes`] of the whole process, for what makes no difference yet.
    pub fn lasting(&self, provocation: Provocation, nth: u64) -> Option<Lasting> {
        let place = Place { provocation, process: self.process, object: 0, nth };
        self.decisions.provokes(&place)?;
        Some(Lasting { place, is_told: AtomicBool::new(false) })
    }

    fn write(&self, place: &Place) {
        if self.provoked[place.provocation as usize].fetch_add(1, Relaxed) >= MOST {
            return;
        }
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
        // Posts and polls write it, at which no thread is cancelled. There is no other place to report that it failed.
        let _ = uncancelled(|| {
            options
                .open(&self.file)
                .and_then(|mut file| file.write_all(format!("{place}\n").as_bytes()))
        });
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
        assert_eq!((first.process, second.process), (0, 1));
        assert!(first.provokes(Provocation::PoisonedFields, 2, 5).is_some());
        assert!(second.provokes(Provocation::LateWork, 2, 5).is_none());
        let read = |process| fs::read_to_string(directory.join(format!("{PROVOKED}{process}")));
        let (one, two) = (read(0).unwrap(), read(1).unwrap());
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!((one.as_str(), two.as_str()), ("poisoned-fields:0.2.5\n", ""));
    }
}
