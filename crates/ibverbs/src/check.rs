//! The hooks of `transom check`. They tell the ledger what the program calls.
//!
//! Nothing of this runs without that command. Only in a checked process does a context get the functions of
//! [`checked`](crate::checked), so posts and polls of other processes do not even ask. The other hooks ask [`on`].
//!
//! | module | holds |
//! |---|---|
//! | `work` | requests and completions, as the ledger keeps them |
//! | `end` | what the process leaves when it ends |
//! | `events` | events that the program gets, acknowledges and waits for |
//! | `claims` | calls of the functions of `transom.h` |
//! | `forks` | forks, and what a child does with its parent's objects |
//! | `given_back` | memory that the program gives back |
//! | `memory` | regions, and the memory that requests name |
//! | `names` | the names of operations |
//! | `rights` | the rights of peers, and their use |
//! | `sleep` | threads that sleep while completions wait |
//! | `threads` | whether the program has other threads, or timers |
//! | `waits` | the system call that a thread sleeps in |
//! | `sink` | the file with the findings |

mod claims;
mod end;
mod events;
mod forks;
mod given_back;
mod memory;
mod names;
mod rights;
mod sink;
mod sleep;
mod threads;
mod waits;
mod work;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use transom_abi::{
    IBV_QPS_RESET, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, ibv_qp_attr, ibv_qp_cap,
    ibv_qp_init_attr_ex, ibv_qp_state,
};
use transom_check::ledger::{Asked, Ends, Peer, Thing};
use transom_check::record::UNWANTED;
use transom_check::{Call, Kind, Ledger};
use transom_device::qp::{QpNumber, Service};
use transom_host::device::Device;
use transom_host::events::{AsyncEvent, EventQueue};
use transom_host::objects::{QueuePair, SharedReceiveQueue};
use transom_system::ThisProcess;
use transom_system::environment::CHECK;
use transom_system::failure::caught_aside;
use transom_system::fork::Owner;
use transom_system::memory::{Maps, Reader};
use transom_thread::uncancelled;

use self::claims::take_logged;
use self::end::{Left, PATIENCE};
pub(crate) use self::events::fatal;
pub(crate) use self::forks::{is_fork_safe, uses};
pub(crate) use self::rights::rights;
use self::sink::Sink;
use self::sleep::Sleepers;
pub(crate) use self::work::{bind_of, buffer, called, written};
use crate::{site, told};

/// The ledger of this process, and the file for its findings.
pub(crate) struct Checker {
    ledger: Mutex<Ledger>,
    sink: Mutex<Sink>,
    sleepers: Sleepers,
    /// The program has polled an error.
    has_errors: AtomicBool,
    /// All queue pairs tell of each write by a peer at once.
    watches_writes: AtomicBool,
    /// There are some of `logging`.
    has_logs: AtomicBool,
    /// The processes in whose logs peers log what they do.
    logging: Mutex<Vec<Weak<ThisProcess>>>,
    /// Queue pairs, by the addresses of their `ibv_qp`.
    pairs: Mutex<BTreeMap<usize, Weak<QueuePair>>>,
    /// Shared receive queues of XRC, by the addresses of their `ibv_srq`.
    xrc_queues: Mutex<BTreeMap<usize, Weak<SharedReceiveQueue>>>,
    /// Devices, by the numbers that the ledger has for them.
    devices: Mutex<BTreeMap<usize, Weak<Device>>>,
    /// The asynchronous events of the open contexts.
    contexts: Mutex<Vec<Weak<EventQueue<AsyncEvent>>>>,
    /// One thread polls at a time. So the ledger hears of completions in the order of the polls, and the sources of the
    /// requests are compared before another thread can know of the completions.
    polling: Mutex<()>,
    reader: Reader,
    maps: Maps,
    /// The process that this checker belongs to.
    owner: Owner,
    /// The directory of the file.
    directory: PathBuf,
}

/// Null if the process is not checked, or has opened no device. The checker is never freed.
static CHECKER: AtomicPtr<Checker> = AtomicPtr::new(null_mut());

/// A mistake in the check itself has ended the check.
static HAS_STOPPED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread does librdmacm's own work.
    static OWN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// The checker, in a process that is checked.
#[inline]
fn checker() -> Option<&'static Checker> {
    // SAFETY: null, or a box that was leaked.
    unsafe { CHECKER.load(Acquire).as_ref() }
}

/// Whether this process is checked.
pub(crate) fn is_on() -> bool {
    checker().is_some()
}

/// The checker, in a process that is checked, while this thread does the program's work.
#[inline]
pub(crate) fn on() -> Option<&'static Checker> {
    checker().filter(|_| !OWN_WORK.get())
}

/// A verb got a pointer to an object that is not there any more, and refuses it.
#[cold]
pub(crate) fn is_dead<T>(verb: &str, thing: Thing, object: *const T) {
    if let Some(checker) = on() {
        checker.not_alive_in(verb, thing, object.addr());
    }
}

/// Says whether this thread now does librdmacm's own work, such as that of a socket. The objects that it makes are not
/// the program's, and the ledger does not know them.
pub extern "C" fn transom_rdma_cm_own_work(own: c_int) {
    OWN_WORK.set(own != 0);
}

/// Begins to check this process, if `transom check` runs it. Called when it opens a device.
pub(crate) fn begin() {
    if HAS_STOPPED.load(Acquire) {
        return;
    }
    let Some(directory) = CHECK.text().filter(|_| !is_on()) else { return };
    let Ok(Some(checker)) = caught_aside(|| Checker::of(directory.as_ref())) else { return };
    let checker = Box::into_raw(Box::new(checker));
    if CHECKER.compare_exchange(null_mut(), checker, AcqRel, Acquire).is_err() {
        // Another thread was first.
        // SAFETY: made above, and nobody else has it.
        drop(unsafe { Box::from_raw(checker) });
    } else {
        // SAFETY: it was leaked, and is never freed.
        let checker = unsafe { &*checker };
        // Only now, so that a process has one file.
        if !checker.attempt(|| uncancelled(|| checker.sink.lock().open())) {
            CHECKER.store(null_mut(), Release);
            return;
        }
    }
    given_back::watch();
    forks::watch();
    rights::begin();
}

/// The number that the ledger has for a device.
pub(crate) fn id_of(device: &Arc<Device>) -> usize {
    Arc::as_ptr(device).addr()
}

thread_local! {
    /// This thread tells the ledger something, and has locked it.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// The checker, unless this thread has locked its ledger, or this is a forked child of its process.
fn on_outside() -> Option<&'static Checker> {
    on().filter(|checker| !TELLS.get() && !checker.owner.is_another())
}

/// This thread has locked the ledger, until this is dropped.
struct Telling;

impl Telling {
    fn begin() -> Self {
        TELLS.set(true);
        Self
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        TELLS.set(false);
    }
}

impl Checker {
    /// A checker that writes its findings into a directory.
    fn of(directory: &Path) -> Option<Self> {
        let (sink, reader) = (Mutex::new(Sink::later(directory)), Reader::new().ok()?);
        let unwanted = fs::read_to_string(directory.join(UNWANTED)).unwrap_or_default();
        let is_unwanted = |kind: Kind| unwanted.lines().any(|name| name == kind.name());
        let ledger = Mutex::new(Ledger::looking_for(|kind| !is_unwanted(kind)));
        let polling = Mutex::default();
        let (pairs, xrc_queues) = (Mutex::default(), Mutex::default());
        let (devices, contexts) = (Mutex::default(), Mutex::default());
        let (sleepers, maps, owner) = (Sleepers::new(), Maps::default(), Owner::this());
        let directory = directory.to_owned();
        Some(Self {
            ledger,
            sink,
            sleepers,
            has_errors: AtomicBool::new(false),
            watches_writes: AtomicBool::new(false),
            has_logs: AtomicBool::new(false),
            logging: Mutex::default(),
            pairs,
            xrc_queues,
            devices,
            contexts,
            polling,
            reader,
            maps,
            owner,
            directory,
        })
    }

    /// Tells the ledger something, and writes down the mistakes that it finds.
    pub(crate) fn tell<T: Default>(&self, what: impl FnOnce(&mut Ledger) -> T) -> T {
        self.tell_and_keep(|_| true, what)
    }

    /// The same about work of a device. A program cannot poll one that has failed.
    fn tell_of<T: Default>(&self, device: &Device, what: impl FnOnce(&mut Ledger) -> T) -> T {
        let has_failed = device.check().is_err();
        self.tell_and_keep(|kind| !has_failed || !kind.needs_device(), what)
    }

    /// The same, of the mistakes of these kinds.
    fn tell_and_keep<T: Default>(
        &self,
        keeps: impl Fn(Kind) -> bool,
        what: impl FnOnce(&mut Ledger) -> T,
    ) -> T {
        self.attempt(|| self.told(keeps, what))
    }

    /// Tells the ledger something of the program's call that runs now.
    fn tell_of_call<T: Default>(&self, what: impl FnOnce(&mut Ledger, &Call) -> T) -> T {
        self.attempt(|| {
            let call = site::call();
            self.told(|_| true, |ledger| what(ledger, &call))
        })
    }

    fn told<T>(&self, keeps: impl Fn(Kind) -> bool, what: impl FnOnce(&mut Ledger) -> T) -> T {
        let _telling = Telling::begin();
        let logging = self.logging();
        let mut ledger = self.ledger.lock();
        // What peers have done so far comes before what is told now.
        logging.iter().for_each(|it| take_logged(&mut ledger, it.segment().access_log()));
        let answer = what(&mut ledger);
        let mut found = ledger.take();
        drop(ledger);
        found.retain(|mistake| keeps(mistake.kind));
        if !found.is_empty() {
            // A write is a cancellation point.
            uncancelled(|| {
                let mut sink = self.sink.lock();
                found.into_iter().for_each(|mistake| sink.write(mistake));
            });
        }
        answer
    }

    /// Does something for the check. If it panics, by a mistake in the check itself, the check of this process ends,
    /// and the program goes on.
    fn attempt<T: Default>(&self, what: impl FnOnce() -> T) -> T {
        // Another thread may still have a reference to the checker.
        if HAS_STOPPED.load(Acquire) {
            return T::default();
        }
        caught_aside(what).unwrap_or_else(|says| {
            HAS_STOPPED.store(true, Release);
            CHECKER.store(null_mut(), Release);
            uncancelled(|| self.sink.lock().stop(says));
            T::default()
        })
    }

    /// The program's call that runs now.
    pub(crate) fn call(&self) -> Call {
        self.attempt(site::call)
    }

    /// An object is made.
    pub(crate) fn made(&self, thing: Thing, address: usize, context: usize, number: u32) {
        let call = self.call();
        self.tell(|ledger| ledger.made(thing, address, context, number, &call));
    }

    /// An object has ended.
    pub(crate) fn ended(&self, thing: Thing, address: usize) {
        let call = self.call();
        self.tell(|ledger| ledger.ended(thing, address, &call));
    }

    /// The running verb returns EBUSY for an object.
    pub(crate) fn busy(&self, thing: Thing, address: usize) {
        let call = self.call();
        self.tell(|ledger| ledger.busy(thing, address, &call));
    }

    /// The running verb got a pointer to no living object.
    pub(crate) fn not_alive(&self, thing: Thing, address: usize) {
        self.not_alive_in(told::verb(), thing, address);
    }

    /// The verb of this name got a pointer to no living object.
    pub(crate) fn not_alive_in(&self, verb: &str, thing: Thing, address: usize) {
        let call = self.call();
        self.tell(|ledger| ledger.not_alive(verb, thing, address, &call));
    }

    /// A context closes.
    pub(crate) fn context_closes(&self, context: usize) {
        let call = self.call();
        for address in self.tell(|ledger| ledger.pairs_of(context)) {
            let pair = self.pairs.lock().remove(&address).and_then(|pair| pair.upgrade());
            let Some(pair) = pair else { continue };
            pair.adapter().progress();
            let left = Left::of(&pair);
            self.tell_of(pair.device(), |ledger| {
                left.tell(ledger, address, Ends::Closed(&call));
                ledger.pair_closed(address, left.dry, &call);
            });
        }
        for address in self.tell(|ledger| ledger.shared_queues_of(context)) {
            let queue = self.xrc_queues.lock().remove(&address).and_then(|queue| queue.upgrade());
            let Some(queue) = queue else { continue };
            let messages = queue.unpolled_messages(PATIENCE);
            self.tell_of(queue.device(), |ledger| {
                ledger.shared_messages_unread(address, messages, Ends::Closed(&call));
            });
        }
        self.tell(|ledger| ledger.context_closes(context, &call));
    }

    /// A shared receive queue of XRC is made. `completes_to` is the address of its completion queue.
    pub(crate) fn xrc_queue_made(
        &self,
        address: usize,
        queue: &Arc<SharedReceiveQueue>,
        completes_to: usize,
    ) {
        self.xrc_queues.lock().insert(address, Arc::downgrade(queue));
        self.tell(|ledger| ledger.shared_completes_into(address, completes_to));
    }

    /// A shared receive queue ends. `address` is that of its `ibv_srq`.
    pub(crate) fn shared_queue_ends(&self, address: usize, queue: &SharedReceiveQueue) {
        if self.xrc_queues.lock().remove(&address).is_none() {
            return;
        }
        let (messages, call) = (queue.unpolled_messages(PATIENCE), self.call());
        self.tell_of(queue.device(), |ledger| {
            ledger.shared_messages_unread(address, messages, Ends::Destroyed(&call));
        });
    }

    /// The program asks a completion queue to hold this many completions.
    pub(crate) fn queue_sized(&self, address: usize, asked: u32) {
        self.tell(|ledger| ledger.queue_sized(address, asked));
    }

    /// A queue pair is made with these attributes.
    pub(crate) fn pair_made(
        &self,
        address: usize,
        pair: &Arc<QueuePair>,
        cap: &ibv_qp_cap,
        init: &ibv_qp_init_attr_ex,
    ) {
        let number = pair.number().bits();
        self.pairs.lock().insert(address, Arc::downgrade(pair));
        let is_xrc_target = init.qp_type == IBV_QPT_XRC_RECV;
        let asked = Asked {
            sends: cap.max_send_wr,
            receives: cap.max_recv_wr,
            send_sges: cap.max_send_sge,
            receive_sges: cap.max_recv_sge,
            inline: cap.max_inline_data,
            signals_all: init.sq_sig_all != 0,
            receives_on: matches!(init.qp_type, IBV_QPT_UD | IBV_QPT_UC),
            is_xrc_target,
            device: id_of(pair.device()),
            shared: init.srq.addr(),
            // A receiving end of XRC has none, whatever these say.
            send_queue: if is_xrc_target { 0 } else { init.send_cq.addr() },
            receive_queue: if is_xrc_target { 0 } else { init.recv_cq.addr() },
        };
        self.tell(|ledger| ledger.pair_made(address, number, asked));
    }

    /// A queue pair is connected: its pointer is at that address.
    pub(crate) fn pair_connected(&self, address: usize, pair: &QueuePair, attr: &ibv_qp_attr) {
        // An XRC request names by a number whose keys it means.
        if !matches!(pair.summary().gate().service, Service::Rc | Service::Uc) {
            return;
        }
        // SAFETY: any bytes are a GID.
        let gid = unsafe { attr.ah_attr.grh.dgid.raw };
        let slot = QpNumber::from_bits(attr.dest_qp_num).slot();
        let counts = self.tell(|ledger| ledger.pair_connected(address, Peer { gid, slot }));
        if counts {
            self.watch_writes();
        }
    }

    /// A queue pair goes to another state.
    pub(crate) fn pair_modified(&self, address: usize, state: ibv_qp_state) {
        let call = self.call();
        self.tell(|ledger| ledger.pair_modified(address, state == IBV_QPS_RESET, &call));
    }

    /// A queue pair ends. `address` is that of its `ibv_qp`.
    pub(crate) fn pair_ends(&self, address: usize, pair: &QueuePair) {
        // A peer's answer counts, even if the program has not polled since it came.
        pair.adapter().progress();
        let (under_way, call) = (pair.sends_under_way(), self.call());
        self.pairs.lock().remove(&address);
        let (left, device) = (Left::of(pair), pair.device());
        self.tell_of(device, |ledger| {
            left.tell(ledger, address, Ends::Destroyed(&call));
            ledger.pair_ended(address, under_way, left.dry, &call);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use transom_check::record::{Record, read};

    use super::*;

    /// Rule: CHK-95
    #[test]
    fn a_panic_ends_the_check_and_nothing_else() {
        let directory = Path::new("/tmp").join(format!("transom-stopped-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let checker = Checker::of(&directory).unwrap();
        assert_eq!(checker.tell(|_| 7), 7);
        let polled: Vec<u32> = checker.tell(|_| panic!("there is no\nobject {}", 3));
        assert_eq!((polled, checker.tell(|_| 7)), (vec![], 0));
        assert!(on().is_none());
        assert_eq!(checker.call(), Call::default());
        checker.watch();
        let file = fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
        let records = read(&fs::read_to_string(file).unwrap());
        fs::remove_dir_all(&directory).unwrap();
        let stopped = Record::Stopped { says: "there is no?object 3".into() };
        assert_eq!(records.last(), Some(&stopped));
        assert!(!transom_system::failure::any_has_failed());
    }
}
