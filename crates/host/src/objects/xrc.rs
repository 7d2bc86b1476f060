//! XRC domains: they decide who may send into which shared receive queues (`ibv_open_xrcd(3)`).

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{Adapter, Busy};
use crate::device::Device;

/// The file that stands for a domain. Processes that open the same file open the same domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XrcFile {
    /// Its file system.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
}

/// An XRC domain.
#[derive(Debug)]
pub struct XrcDomain {
    device: Arc<Device>,
    file: Option<XrcFile>,
    /// Keeps the file, even if it has no name and the program has closed it. Otherwise the file system could give
    /// another file its inode, which would be taken for this domain's.
    _held: Option<OwnedFd>,
    /// Its number in this process. Other processes tell by it which domain a queue pair and a shared receive queue
    /// belong to. Zero means that no number was left; then all messages go to the responder.
    number: u32,
    /// The number of its queue pairs and shared receive queues.
    users: AtomicU32,
    /// How often it is open.
    opened: AtomicU32,
}

/// The domains of a device.
#[derive(Default)]
pub(crate) struct XrcDomains {
    by_file: Mutex<HashMap<XrcFile, Weak<XrcDomain>>>,
    /// How many domains have been made, with a file or without.
    made: AtomicU64,
}

/// Why a domain is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XrcOpenError {
    /// The domain is not open, and the program did not ask to make it: `ENOENT`.
    #[error("no such domain is open")]
    Absent,
    /// It exists already, and the program asked for a new one: `EEXIST`.
    #[error("the domain is there already")]
    Present,
}

impl XrcDomains {
    /// Whether a domain was ever made. Then another process may carry out requests for this one.
    pub(crate) fn were_made(&self) -> bool {
        self.made.load(Relaxed) > 0
    }
}

impl XrcDomain {
    /// Opens the domain of a file, by a descriptor that it keeps, or a private domain. `create` makes it if it does not
    /// exist; `exclusive` refuses it if it does.
    pub fn open(
        adapter: &Adapter,
        file: Option<(XrcFile, OwnedFd)>,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<Self>, XrcOpenError> {
        let fresh = |file, _held| {
            let number = adapter.xrc_domains.made.fetch_add(1, Relaxed) + 1;
            let number = u32::try_from(number).unwrap_or(0);
            let (users, opened) = (AtomicU32::new(0), AtomicU32::new(1));
            let device = adapter.device().clone();
            Arc::new(Self { device, file, _held, number, users, opened })
        };
        let Some((file, held)) = file else { return Ok(fresh(None, None)) };
        let mut domains = adapter.xrc_domains.by_file.lock();
        domains.retain(|_, domain| domain.strong_count() > 0);
        match domains.get(&file).and_then(Weak::upgrade) {
            Some(_) if exclusive => Err(XrcOpenError::Present),
            Some(domain) => {
                domain.opened.fetch_add(1, AcqRel);
                Ok(domain)
            }
            None if !create => Err(XrcOpenError::Absent),
            None => {
                let domain = fresh(Some(file), Some(held));
                domains.insert(file, Arc::downgrade(&domain));
                Ok(domain)
            }
        }
    }

    /// Whether it is one of this device.
    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// The file, as two numbers: domains of one file are one domain in all processes.
    pub(crate) fn file(&self) -> Option<[u64; 2]> {
        self.file.map(|file| [file.device, file.inode])
    }

    /// Its number in this process, unique here. Zero means none.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Checks that nothing belongs to it that its last close would leave behind.
    pub fn check_unused(&self) -> Result<(), Busy> {
        let in_use = self.opened.load(Acquire) == 1 && self.users.load(Acquire) > 0;
        if in_use { Err(Busy) } else { Ok(()) }
    }

    /// Closes one handle. The last close is refused while something belongs to the domain.
    pub fn close(&self) -> Result<(), Busy> {
        let last = |count: u32| {
            let in_use = count == 1 && self.users.load(Acquire) > 0;
            (count > 0 && !in_use).then(|| count - 1)
        };
        self.opened.fetch_update(AcqRel, Acquire, last).map(drop).map_err(|_| Busy)
    }

    pub(crate) fn adopt(&self) {
        self.users.fetch_add(1, AcqRel);
    }

    pub(crate) fn release(&self) {
        self.users.fetch_sub(1, AcqRel);
    }
}
