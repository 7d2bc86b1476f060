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
    /// The process that it belongs to.
    owner: Owner,
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

/// Null if this process has no account, or has opened no device. The auditor is never freed.
static AUDITOR: AtomicPtr<Auditor> = AtomicPtr::new(null_mut());

/// Held by the thread that begins the account.
static BEGINS: Mutex<()> = Mutex::new(());

/// The account could not begin, or a mistake in the account itself has ended it.
static HAS_STOPPED: AtomicBool = AtomicBool::new(false);

/// The auditor, in a process with an account. In a forked child there is none until it opens a device.
#[inline]
fn on() -> Option<&'static Auditor> {
    // SAFETY: null, or a box that was leaked.
    unsafe { AUDITOR.load(Acquire).as_ref() }.filter(|auditor| !auditor.owner.is_another())
}

/// Begins the account of this process, if `transom exposure` runs it. Called when it opens a device.
pub(crate) fn begin() {
    if HAS_STOPPED.load(Acquire) || on().is_some() {
        return;
    }
    let Some(directory) = EXPOSURE.text() else { return };
    // An account has files, so only one thread makes it.
    let _begins = BEGINS.lock();
    if HAS_STOPPED.load(Acquire) || on().is_some() {
        return;
    }
    let Ok(Some(auditor)) = caught_aside(|| Auditor::of(directory.as_ref())) else {
        HAS_STOPPED.store(true, Release);
        return;
    };
    AUDITOR.store(Box::into_raw(Box::new(auditor)), Release);
    listen(&Hears);
    watch_refusals(refused);
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
        let audit = Audit::begin(clock::steady());
        let (sites, binds) = (HashMap::new(), HashMap::new());
        let account = Mutex::new(Account { audit, room, records, sites, binds });
        let auditor = Self { account, owner: Owner::this() };
        auditor.tell(|_| ());
        Some(auditor)
    }

    /// Tells the account something, and writes the cells that change. If it panics, by a mistake in the account itself,
    /// the account of this process ends, and the program goes on.
    fn tell(&self, what: impl FnOnce(&mut Account)) {
        if !HAS_STOPPED.load(Acquire) {
            self.tell_locked(self.account.lock(), what);
        }
    }

    /// The process ends. It may do so in the handler of a signal that interrupted this very thread while it told the
    /// account something. Then the account does not say when it ended.
    fn end(&self) {
        if let Some(account) = self.account.try_lock_for(PATIENCE)
            && !HAS_STOPPED.load(Acquire)
        {
            self.tell_locked(account, |account| account.audit.end(clock::steady()));
        }
    }

    fn tell_locked(&self, mut account: MutexGuard<'_, Account>, what: impl FnOnce(&mut Account)) {
        let told = caught_aside(move || {
            let account = &mut *account;
            what(account);
            account.audit.changed().for_each(|(at, words)| account.room.write(at, &words));
        });
        if let Err(says) = told {
            HAS_STOPPED.store(true, Release);
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
