//! The other processes of this host that take messages, watched for their ends.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use transom_device::protection::Announcer;
use transom_net::management::ManagementPipe;
use transom_system::ThisProcess;
use transom_system::registry::Life;

/// The processes that are watched.
#[derive(Default)]
pub(super) struct Neighbours {
    watched: Vec<Life>,
    /// Those that ended before they could be watched. [`Neighbours::take_ended`] takes them.
    ended: Vec<Announcer>,
    /// Some could not be watched, for example because no descriptor was left.
    some_unwatched: bool,
}

impl Neighbours {
    /// Watches those that take messages now.
    pub(super) fn watch(&mut self, this: &ThisProcess, pipe: &ManagementPipe) {
        let (registry, me) = (this.registry(), this.announcer().slot);
        self.some_unwatched = false;
        for slot in registry.taken().filter(|slot| *slot != me) {
            let known = |it: Announcer| self.watched.iter().any(|other| other.process() == it);
            let unknown = registry.process(slot).filter(|it| !known(it.announcer));
            let Some(other) = unknown.filter(|_| pipe.may_be_at(slot)) else { continue };
            match registry.watch(other.announcer) {
                Ok(Some(life)) => self.watched.push(life),
                // It may still have its lock, so that the table of connections counts it as alive.
                Ok(None) => self.ended.push(other.announcer),
                Err(_) => self.some_unwatched = true,
            }
        }
    }

    /// Takes the processes that have ended. They are no longer watched.
    pub(super) fn take_ended(
        &mut self,
        this: &ThisProcess,
        pipe: &ManagementPipe,
    ) -> Vec<Announcer> {
        if self.some_unwatched {
            self.watch(this, pipe);
        }
        let ended = self.watched.extract_if(.., |other| other.has_ended());
        let mut ended: Vec<_> = ended.map(|other| other.process()).collect();
        ended.append(&mut self.ended);
        ended
    }

    /// Their slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = u8> {
        self.watched.iter().map(|other| other.process().slot)
    }

    /// The descriptors to wait for: their ends.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = Arc<OwnedFd>> {
        self.watched.iter().map(|other| other.descriptor().clone())
    }
}
