//! The device of this process.

mod domains;
mod driver;
mod keys;
mod limits;
mod observer;
mod outages;
mod port_events;
mod process;
mod queue_pairs;
mod tables;
mod work;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Instant;

use tracing::{debug, info, warn};
use transom_device::queue::Completion;
use transom_net::faults::{Faults, Injector};
use transom_net::{DevicePort, OutOfReach, Peer, Peers};
use transom_system::ThisProcess;
use transom_system::addresses::GroupGid;

pub(crate) use self::driver::Driver;
pub use self::limits::Limits;
pub(crate) use self::observer::{Answered, Direction, Interface, Observer};
pub(crate) use self::outages::PortChange;
pub use self::port_events::PortEvents;
use self::tables::Tables;
use self::work::Work;
pub(crate) use self::work::{Deferred, Due};
use crate::objects::{
    AsyncEvent, Busy, Cq, JoinError, NotAMember, ProtectionDomain, QueuePair, RegisterError,
};

/// How bytes get from one process to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// By the kernel, straight from memory to memory; by shared memory where it forbids that. Where
    /// `kernel.yama.ptrace_scope` is 1 the process has to agree to it: it lets all processes of its
    /// user trace it (`PR_SET_PTRACER_ANY`, see `prctl(2)`).
    #[default]
    Best,
    /// By shared memory always.
    SharedMemory,
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Type 2 windows are of kind 2A instead of 2B (rule MWA-07).
    pub windows_2a: bool,
    /// How bytes get from one process to another.
    pub copying: Copying,
    /// Everything goes over the wire, also within this host.
    pub wire_only: bool,
    /// Packets say that they may be marked where the network is congested, and the sender of marked
    /// ones is told (rules H.5).
    pub congestion: bool,
    /// What goes wrong on purpose.
    pub faults: Option<&'static Faults>,
    /// The file to write down what crosses the links to.
    pub capture: Option<&'static Path>,
}

/// A device could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the Transom device: {doing}: {cause}")]
pub struct OpenError {
    doing: String,
    #[source]
    cause: io::Error,
}

impl OpenError {
    /// What could not be done, and why.
    pub fn new(doing: impl Into<String>, cause: io::Error) -> Self {
        Self { doing: doing.into(), cause }
    }

    /// The system's error number, if it was the system that refused.
    pub fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error().or(match self.cause.kind() {
            io::ErrorKind::StorageFull => Some(libc::ENOSPC),
            io::ErrorKind::FileTooLarge => Some(libc::EFBIG),
            io::ErrorKind::QuotaExceeded => Some(libc::EAGAIN),
            io::ErrorKind::ReadOnlyFilesystem => Some(libc::EROFS),
            io::ErrorKind::PermissionDenied => Some(libc::EACCES),
            io::ErrorKind::InvalidInput => Some(libc::EINVAL),
            _ => None,
        })
    }
}

/// The device of this process: one for all its contexts.
pub struct Adapter {
    options: Options,
    process: Arc<ThisProcess>,
    port: DevicePort,
    pub(crate) peers: Peers,
    pub(crate) tables: Tables,
    port_events: PortEvents,
    observer: Option<Arc<dyn Observer>>,
    /// Requests that are answered without being carried out.
    pub(crate) injector: Injector,
    pub(crate) work: Work,
    driver: &'static dyn Driver,
    /// It is of no use any more, and the program has been told.
    pub(crate) failed: AtomicBool,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({:?})", self.process.announcer())
    }
}

impl Adapter {
    /// Puts a device together, which nobody drives yet. Its segment says already that everything is to
    /// come by message if there is an observer or something to inject.
    pub(crate) fn new(
        options: Options,
        process: Arc<ThisProcess>,
        port: DevicePort,
        observer: Option<Arc<dyn Observer>>,
        driver: &'static dyn Driver,
        first_qp: u16,
    ) -> Self {
        let injector = Injector::new(options.faults.map_or(&[], |faults| &faults.rules));
        Self {
            options,
            port,
            peers: Peers::new(process.clone()),
            tables: Tables::new(process.clone(), first_qp),
            work: Work::new(process.clone()),
            process,
            port_events: PortEvents::default(),
            observer,
            injector,
            driver,
            failed: AtomicBool::new(false),
        }
    }

    /// Tells peers that nothing comes from here any more, and the background thread to end.
    pub(crate) fn depart(&self) {
        self.process.segment().header().departed.store(1, SeqCst);
        self.peers.all().iter().for_each(|peer| peer.notify());
        self.process.wake();
    }

    /// How it was opened.
    pub fn options(&self) -> Options {
        self.options
    }

    /// The process that it is of, among the others.
    #[inline]
    pub fn process(&self) -> &Arc<ThisProcess> {
        &self.process
    }

    /// Its port.
    #[inline]
    pub fn port(&self) -> &DevicePort {
        &self.port
    }

    /// The process in a slot, attached to if it is not yet; `None` if nobody is there, or nobody whom
    /// the local link leads to.
    pub(crate) fn reach(&self, slot: u8) -> Result<Option<Arc<Peer>>, OutOfReach> {
        // The caller may hold a queue's lock, so the queue pairs that a loss concerns are told later.
        self.peers.reach(slot, |lost| self.work.defer(Deferred::PeerLost(lost)))
    }

    /// As [`Adapter::reach`], for those who can do nothing about a process that is out of reach:
    /// the program is told once.
    pub(crate) fn peer(&self, slot: u8) -> Option<Arc<Peer>> {
        self.reach(slot).unwrap_or_else(|unreachable| {
            unreachable.say_once();
            None
        })
    }

    /// Sends all acknowledgements that were kept back, for the program exits. In a forked child they are
    /// the parent's.
    pub(crate) fn acknowledge_all(&self, until: Instant) {
        if self.port.wire().is_some() && !self.process.is_inherited() {
            self.tables.queue_pairs.all().iter().for_each(|qp| qp.acknowledge_at_exit(until));
        }
    }

    /// Takes in what has changed of the addresses, and tells the program (rule AE-05).
    pub(crate) fn refresh_addresses(&self) {
        // What cannot be read now is read at the next change.
        let changes = match self.port.refresh_addresses() {
            Ok(changes) => changes,
            Err(error) => return warn!(%error, "the addresses cannot be read"),
        };
        debug!(?changes, "addresses read again");
        if !changes.added.is_empty() || !changes.removed.is_empty() {
            self.port_events.raise(AsyncEvent::GidChange);
        }
        match changes.network {
            Some(true) => self.port_events.raise(AsyncEvent::PortActive),
            Some(false) => self.port_events.raise(AsyncEvent::PortError),
            None => {}
        }
    }

    /// Who is told of events of the port and of the device.
    pub fn port_events(&self) -> &PortEvents {
        &self.port_events
    }

    /// Makes a queue pair a member of a group; one that is one already stays one.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if it does not become one.
    pub fn join_group(&self, group: GroupGid, qp: &Arc<QueuePair>) -> Result<(), JoinError> {
        self.tables.groups.join(&self.port, group, qp)
    }

    /// Ends a membership.
    ///
    /// # Errors
    ///
    /// [`NotAMember`] if it is none.
    pub fn leave_group(&self, group: GroupGid, qp: &Arc<QueuePair>) -> Result<(), NotAMember> {
        self.tables.groups.leave(&self.port, group, qp)
    }

    /// A new protection domain; `None` at the limit (rule PD-11), or without memory.
    pub fn allocate_domain(&self) -> Option<Arc<ProtectionDomain>> {
        self.tables.domains.allocate()
    }

    /// Ends a protection domain that nothing belongs to.
    ///
    /// # Errors
    ///
    /// [`Busy`] if something does.
    pub fn free_domain(&self, domain: &ProtectionDomain) -> Result<(), Busy> {
        self.tables.domains.free(domain)
    }

    /// Refuses to make something on an inherited device.
    pub(crate) fn check_own(&self) -> Result<(), RegisterError> {
        if self.process.is_inherited() { Err(RegisterError::Inherited) } else { Ok(()) }
    }

    /// Whether every request travels as a message, even where the direct way is open, because this
    /// process looks at each.
    #[inline]
    pub(crate) fn by_message(&self) -> bool {
        self.observer.is_some() || !self.injector.is_empty()
    }

    /// Who is shown what crosses the links, if anybody wants to know.
    #[inline]
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }

    /// Does what had to wait for locks. Call it with none held.
    #[inline]
    pub(crate) fn run_deferred(&self) {
        if self.work.is_deferred() {
            self.driver.run_deferred(self);
        }
    }

    /// What a poll does when it finds its queue empty.
    #[inline]
    pub fn progress_from_poll(&self) {
        self.driver.poll(self);
    }

    /// Carries out all that has arrived until now over the wire, and from this peer.
    pub(crate) fn take_all(&self, from: Option<&Arc<Peer>>) {
        self.driver.take_all(self, from);
    }

    /// The program is about to sleep until it is told: have new messages wake the thread.
    pub fn expect_sleep(&self) {
        self.driver.expect_sleep(self);
    }

    /// Takes up to `limit` completions of a queue, making progress if there are none; `None` if the
    /// queue has overrun.
    #[inline]
    pub fn poll(
        &self,
        cq: &Cq,
        limit: usize,
        mut each: impl FnMut(usize, &Completion),
    ) -> Option<usize> {
        match cq.take(limit, &mut each) {
            Some(0) if limit > 0 => {
                self.progress_from_poll();
                cq.take(limit, &mut each)
            }
            other => other,
        }
    }

    /// Hands a completion to its queue; true if the queue has just overrun, which its queue pairs
    /// learn soon.
    #[inline]
    pub(crate) fn complete_to(
        &self,
        cq: &Arc<Cq>,
        completion: Completion,
        solicited: bool,
    ) -> bool {
        let overrun = cq.push(&completion, solicited);
        if overrun {
            self.work.defer(Deferred::Overrun(cq.id()));
        }
        overrun
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        if self.process.is_inherited() {
            return;
        }
        self.depart();
        self.port.send_rest();
        info!(slot = self.process.announcer().slot, "device closed");
    }
}
