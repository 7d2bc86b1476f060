//! Advice about regions that are paged on demand: which pages will be needed (rule MR-39).

use std::io;

use transom_device::Access;
use transom_device::protection::{Attempt, Operation, Reason};
use transom_device::queue::Sge;
use transom_system::memory::{self, page_size};

use super::ProtectionDomain;

/// The kind of page to bring in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Pages for reading.
    Read,
    /// Pages for writing.
    Write,
    /// Only pages that are present already. There is nothing to do for them: memory needs no table of the device's.
    Present,
}

/// Why advice is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefetchError {
    /// The key names no region that is paged on demand: `EINVAL`.
    #[error("the key names no region that is paged on demand")]
    Invalid,
    /// No object has this key: `ENOENT`.
    #[error("no object has this key")]
    UnknownKey,
    /// The range is not within the region or not mapped, or the region is of another domain:
    /// `EFAULT`.
    #[error("the range is not within the region or not mapped, or the region is of another domain")]
    Fault,
    /// The advice is for writing, and the region is not writable: `EPERM`.
    #[error("the region is not writable")]
    NotWritable,
    /// The device belongs to the process that this one was forked from: `EIO`.
    #[error("the device is of the process that this one was forked from")]
    Inherited,
}

impl ProtectionDomain {
    /// Takes advice about parts of its regions. All parts are checked before any page is touched. With `wait` the pages
    /// are present when it returns.
    pub fn prefetch(
        &self,
        advice: Prefetch,
        wait: bool,
        sges: &[Sge],
    ) -> Result<(), PrefetchError> {
        if self.device().process().is_inherited() {
            return Err(PrefetchError::Inherited);
        }
        for sge in sges {
            address_of(self, advice, sge)?;
        }
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let address = address_of(self, advice, sge)?;
            bring_in(address, u64::from(sge.length), advice, wait)?;
        }
        Ok(())
    }
}

/// The address in the program's memory of an SGE's range.
fn address_of(pd: &ProtectionDomain, advice: Prefetch, sge: &Sge) -> Result<u64, PrefetchError> {
    let operation = match advice {
        Prefetch::Write => Operation::LocalWrite,
        Prefetch::Read | Prefetch::Present => Operation::LocalRead,
    };
    let (address, length) = (sge.address, u64::from(sge.length));
    let process = pd.device().process();
    let keys = process.segment().keys();
    let key = keys.local_key(sge.key);
    let attempt = Attempt { operation, key, address, length, qp: 0, pd: pd.number() };
    let granted = keys.grant(attempt, process.announcer(), &**process);
    let place = granted.map(|grant| grant.place()).map_err(|refusal| refused(refusal.reason))?;
    // The grant is over: bringing pages in harms nobody, even if the region has just ended.
    if !keys.look_up(key).access.contains(Access::ON_DEMAND) {
        return Err(PrefetchError::Invalid);
    }
    memory::address_of(place).ok_or(PrefetchError::Fault)
}

fn refused(reason: Reason) -> PrefetchError {
    match reason {
        Reason::UnknownIndex | Reason::StaleKey => PrefetchError::UnknownKey,
        Reason::RightMissing => PrefetchError::NotWritable,
        Reason::NotARegion | Reason::FreeWindow => PrefetchError::Invalid,
        _ => PrefetchError::Fault,
    }
}

fn bring_in(address: u64, length: u64, advice: Prefetch, wait: bool) -> Result<(), PrefetchError> {
    let how = match advice {
        Prefetch::Present => return Ok(()),
        _ if !wait => libc::MADV_WILLNEED,
        Prefetch::Read => libc::MADV_POPULATE_READ,
        Prefetch::Write => libc::MADV_POPULATE_WRITE,
    };
    let start = address - address % page_size();
    let length = address + length - start;
    // SAFETY: these kinds of advice change no contents and take no page away; the kernel checks the
    // range.
    let done = unsafe { libc::madvise(start as *mut _, length as usize, how) };
    if done == 0 || !wait {
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error() {
        // A kernel before 5.14 brings the pages at their first use.
        Some(libc::EINVAL) => Ok(()),
        _ => Err(PrefetchError::Fault),
    }
}
