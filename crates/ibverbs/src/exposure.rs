//! The hooks of `transom exposure`. They tell the account of the process what it opens to peers, and what they touch.
//!
//! Nothing of this runs without that command. Only in a process with an account does a context get the functions of
//! `binds`, and the device tell a listener.
//!
//! | module | holds |
//! |---|---|
//! | `binds` | where windows are bound |
//! | `room` | the memory for the account, which outlives the process |

mod binds;
mod room;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use transom_check::Call;
use transom_check::record::{Record, Site};
use transom_device::Access;
use transom_device::operation::Subject;
use transom_device::protection::{Attempt, Kind, Operation, Refusal, Snapshot};
use transom_device::qp::{Gate, QpNumber, Service};
use transom_exposure::audit::Opens;
use transom_exposure::doors::{Pair, Scope};
use transom_exposure::opening::{Object, Touch};
use transom_exposure::{Audit, Deed, Rights, names};
use transom_host::device::{Device, Door, Listener, listen};
use transom_system::clock;
use transom_system::environment::EXPOSURE;
use transom_system::failure::caught_aside;
use transom_system::fork::Owner;
use transom_system::watch_refusals;
use transom_thread::uncancelled;

pub(crate) use self::binds::{operations, posts};
use self::room::Room;
use crate::records::Records;
use crate::site;

/// The most call sites that have a number.
const SITES: usize = 512;

/// How long the end of the process waits for the account.
const PATIENCE: Duration = Duration::from_millis(100);

/// The most binds that are on their way.
const BINDS: usize = 1 << 16;

/// The account of this process, and its files.
struct Auditor {
    account: Mutex<Account>,
    /// A mistake in the account itself has ended it.
    has_stopped: AtomicBool,
}

struct Account {
    audit: Audit,
    room: Room,
    records: Records,
    /// The numbers of call sites.
    sites: HashMap<Call, u32>,
    /// The posts of binds that are not carried out yet, by the keys that the windows will have.
    binds: HashMap<u32, Call>,
}

/// Where the account of a process is.
struct Place {
    /// The process that it belongs to.
    owner: Owner,
    /// The auditor, once an account was begun. `None` if it could not begin.
    auditor: OnceLock<Option<Auditor>>,
}

/// Null if this process has no account, or has opened no device. The place is never freed.
static PLACE: AtomicPtr<Place> = AtomicPtr::new(null_mut());

impl Place {
    /// That of this process, if it has one. A forked child finds its parent's here, in which a thread that the child
    /// does not have may be beginning an account. So a child makes a place of its own.
    #[inline]
    fn known() -> Option<&'static Self> {
        // SAFETY: null, or a box that was leaked.
        unsafe { PLACE.load(Acquire).as_ref() }.filter(|place| !place.owner.is_another())
    }

    /// That of this process.
    fn own() -> &'static Self {
        loop {
            let there = PLACE.load(Acquire);
            if let Some(place) = Self::known() {
                return place;
            }
            let place = Box::new(Self { owner: Owner::this(), auditor: OnceLock::new() });
            let place = Box::into_raw(place);
            if PLACE.compare_exchange(there, place, AcqRel, Acquire).is_err() {
                // SAFETY: it is of this call, and nobody else has seen it.
                drop(unsafe { Box::from_raw(place) });
            }
        }
    }
}

/// The auditor, in a process with an account. In a forked child there is none until it opens a device.
#[inline]
fn on() -> Option<&'static Auditor> {
    Place::known()?.auditor.get()?.as_ref()
}

/// Begins the account of this process, if `transom exposure` runs it. Called when it opens a device.
pub(crate) fn begin() {
    let Some(directory) = EXPOSURE.text() else { return };
    // An account has files, so only one thread makes it, and the others wait for it.
    let auditor = Place::own().auditor.get_or_init(|| {
        let begun = caught_aside(|| Auditor::of(directory.as_ref()));
        begun.ok().flatten()
    });
    if auditor.is_some() {
        listen(&Hears);
        watch_refusals(refused);
    }
}

/// Something is refused.
fn refused(refusal: &Refusal) {
    let is_access = refusal.attempt.operation.needs().subject == Subject::RemoteMemory;
    if let Some(auditor) = on().filter(|_| is_access) {
        auditor.tell(|account| account.audit.refuses());
    }
}

/// Runs after the program's own `atexit` functions and destructors.
extern "C" fn at_end() {
    if let Some(auditor) = on() {
        auditor.end();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

impl Auditor {
    /// An account with files in a directory. None if it cannot have them.
    fn of(directory: &Path) -> Option<Self> {
        let mut records = Records::later(directory);
        records.append(&Record::Opened.to_string()).ok()?;
        let mut cells = PathBuf::from(records.path());
        cells.set_extension(names::CELLS);
        let room = match Room::make(&cells) {
            Ok(room) => room,
            Err(error) => {
                // Without this the process would look like one that opened nothing.
                let record = Record::Stopped { says: error.to_string() };
                let _ = records.append(&record.to_string());
                return None;
            }
        };
        let mut audit = Audit::begin(clock::steady());
        audit.gets_room(room.cells());
        let (sites, binds) = (HashMap::new(), HashMap::new());
        let account = Mutex::new(Account { audit, room, records, sites, binds });
        let auditor = Self { account, has_stopped: AtomicBool::new(false) };
        auditor.tell(|_| ());
        Some(auditor)
    }

    /// Tells the account something, and writes the cells that change. If it panics, by a mistake in the account itself,
    /// the account of this process ends, and the program goes on.
    fn tell(&self, what: impl FnOnce(&mut Account)) {
        if !self.has_stopped.load(Acquire) {
            self.tell_locked(self.account.lock(), what);
        }
    }

    /// The process ends. It may do so in the handler of a signal that interrupted this very thread while it told the
    /// account something. Then the account does not say when it ended.
    fn end(&self) {
        if let Some(account) = self.account.try_lock_for(PATIENCE)
            && !self.has_stopped.load(Acquire)
        {
            self.tell_locked(account, |account| account.audit.end(clock::steady()));
        }
    }

    fn tell_locked(&self, mut account: MutexGuard<'_, Account>, what: impl FnOnce(&mut Account)) {
        let told = caught_aside(move || {
            let account = &mut *account;
            account.make_room();
            what(account);
            account.audit.changed().for_each(|(at, words)| account.room.write(at, &words));
        });
        if let Err(says) = told {
            self.has_stopped.store(true, Release);
            let record = Record::Stopped { says }.to_string();
            // A write is a cancellation point.
            uncancelled(|| _ = self.account.lock().records.append(&record));
        }
    }

    /// A call posts binds of windows that will have these keys.
    fn binds(&self, keys: impl IntoIterator<Item = u32>, call: &Call) {
        self.tell(|account| {
            if account.binds.len() > BINDS {
                // Binds that failed are never looked for.
                account.binds.clear();
            }
            account.binds.extend(keys.into_iter().map(|key| (key, *call)));
        });
    }
}

impl Account {
    /// Sees to it that what comes next has room, if the disk has some.
    fn make_room(&mut self) {
        if self.audit.needs_room() && self.room.grow() {
            self.audit.gets_room(self.room.cells());
        }
    }

    /// The number of a call site. Zero if there is no room.
    fn site(&mut self, call: &Call, what: &str) -> u32 {
        if let Some(number) = self.sites.get(call) {
            return *number;
        }
        if self.sites.len() >= SITES {
            return 0;
        }
        let number = self.sites.len() as u32 + 1;
        self.sites.insert(*call, number);
        let frames = call.frames().iter().map(|address| site::frame(*address)).collect();
        let site = Site { what: what.to_owned(), thread: call.thread, frames };
        // There is no other place to report that the write failed.
        uncancelled(|| _ = self.records.append(&names::site(number, &site)));
        number
    }
}

/// Tells the account of what the device says.
struct Hears;

impl Listener for Hears {
    fn hears_all(&self) -> bool {
        on().is_some()
    }

    fn opened(&self, device: &Device, slot: u32, region: Option<u32>, object: &Snapshot) {
        let Some(auditor) = on() else { return };
        let key = device.process().segment().keys().key_of(slot, object.byte).0;
        let (is_region, scope) = match object.kind {
            // It has no bytes.
            Kind::Null => return,
            Kind::Region => (Object::Region, Scope::Domain(object.pd)),
            Kind::Window1 => (Object::Window1, Scope::Domain(object.pd)),
            Kind::Window2A | Kind::Window2B => (Object::Window2, Scope::Pair(object.qp)),
        };
        let here = (is_region == Object::Region).then(site::call);
        auditor.tell(|account| {
            let (call, what) = match here {
                Some(call) => (Some(call), "registered here"),
                None => (account.binds.remove(&key), "bound here"),
            };
            let site = call.map_or(0, |call| account.site(&call, what));
            let opens = Opens {
                device: number_of(device),
                slots: (slot, region),
                key,
                object: is_region,
                scope,
                site,
                rights: rights(object.access),
                address: object.place,
                length: object.length,
                base: object.base,
            };
            account.audit.opens(&opens, clock::steady());
        });
    }

    fn closed(&self, device: &Device, slot: u32) {
        if let Some(auditor) = on() {
            let device = number_of(device);
            auditor.tell(|account| account.audit.closes(device, slot, clock::steady()));
        }
    }

    fn touched(&self, device: &Device, attempt: &Attempt, begins: bool) {
        let Some(auditor) = on() else { return };
        let slot = device.process().segment().keys().slot_of(attempt.key);
        let deed = rights(attempt.operation.rights()).deeds().next();
        let (Some(slot), Some(deed)) = (slot, deed) else { return };
        let Attempt { address, length, qp: pair, .. } = *attempt;
        let touch = Touch { pair, deed, address, length, begins };
        let device = number_of(device);
        auditor.tell(|account| account.audit.touches(device, slot, &touch, clock::steady()));
    }

    fn lets_in(&self, device: &Device, pair: QpNumber, door: &Door) {
        let Some(auditor) = on() else { return };
        let Door { gate, peer, gid } = *door;
        let pair = Pair {
            device: number_of(device),
            number: pair.bits(),
            // The receiving end of XRC has no domain of its own.
            domain: (gate.service != Service::XrcTarget).then_some(gate.pd),
            peer: peer.bits(),
            gid: gid.unwrap_or_default(),
            rights: let_in(&gate),
            since: 0,
            until: 0,
        };
        auditor.tell(|account| account.audit.lets_in(&pair, clock::steady()));
    }
}

/// The number that the account has for a device.
fn number_of(device: &Device) -> u64 {
    let announcer = device.process().announcer();
    u64::from(announcer.slot) << 32 | u64::from(announcer.generation)
}

/// Rights in the account's form.
fn rights(access: Access) -> Rights {
    let all = [
        (Access::REMOTE_READ, Deed::Read),
        (Access::REMOTE_WRITE, Deed::Write),
        (Access::REMOTE_ATOMIC, Deed::Atomic),
    ];
    all.into_iter().filter(|(right, _)| access.contains(*right)).map(|(_, deed)| deed).collect()
}

/// What a queue pair lets its peer do.
fn let_in(gate: &Gate) -> Rights {
    if !gate.receives() {
        return Rights::NONE;
    }
    let all = [
        (Operation::Read, Deed::Read),
        (Operation::Write, Deed::Write),
        (Operation::FetchAdd, Deed::Atomic),
    ];
    let lets_in = |operation: Operation| {
        let needs = operation.needs();
        let has_resources = gate.read_resources > 0 || !needs.responder_resources;
        let may = gate.access.contains(needs.queue_pair) && has_resources;
        may && needs.services.include(gate.service)
    };
    all.into_iter().filter(|(operation, _)| lets_in(*operation)).map(|(_, deed)| deed).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("transom-account-{name}-{}", std::process::id());
        let directory = Path::new("/tmp").join(name);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// Rule: EXP-10
    #[test]
    fn an_exit_while_the_account_is_told_something_does_not_wait_for_itself() {
        let directory = scratch("exit");
        let auditor = Auditor::of(&directory).unwrap();
        let tells = auditor.account.lock();
        auditor.end();
        drop(tells);
        fs::remove_dir_all(&directory).unwrap();
    }

    /// What the parent's thread has begun, nobody ends in the child.
    ///
    /// Rule: EXP-07
    #[test]
    fn a_child_that_is_forked_while_an_account_begins_begins_its_own() {
        let (begins, has_begun) = std::sync::mpsc::channel();
        let (ends, may_end) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            Place::own().auditor.get_or_init(|| {
                begins.send(()).unwrap();
                may_end.recv().unwrap();
                None
            });
        });
        has_begun.recv().unwrap();
        // SAFETY: the child takes memory, which the C library lets it do, and makes system calls.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                // If it waits for the thread, this ends it.
                libc::alarm(10);
                let is_new = Place::known().is_none();
                let begins = Place::own().auditor.get_or_init(|| None).is_none();
                libc::_exit(if is_new && begins { 7 } else { 1 });
            }
            child
        };
        let mut status = 0;
        // SAFETY: the status is this test's own.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        ends.send(()).unwrap();
        thread.join().unwrap();
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
        assert!(on().is_none(), "it could not begin");
    }

    /// Rule: EXP-10
    #[test]
    fn a_panic_ends_the_account_and_nothing_else() {
        let directory = scratch("panic");
        let auditor = Auditor::of(&directory).unwrap();
        auditor.tell(|_| panic!("there is no\nregion {}", 3));
        auditor.tell(|_| panic!("it is not told any more"));
        let files = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
        let text = files.filter(|file| file.extension().is_none()).map(fs::read_to_string);
        let text: String = text.map(Result::unwrap).collect();
        fs::remove_dir_all(&directory).unwrap();
        let names = names::Names::read(&text);
        assert_eq!(names.stopped.as_deref(), Some("there is no?region 3"));
        assert_eq!(names.pid, std::process::id());
        assert!(!transom_system::failure::has_failed());
    }
}
