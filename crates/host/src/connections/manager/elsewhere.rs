//! Ids that go on at another device of the program.

use std::os::fd::RawFd;

use transom_cm::Refused;
use transom_device::protection::Announcer;
use transom_wire::cm::CommId;

use super::Manager;

/// What an id is that belongs to no device yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbound {
    pub(super) uid: u64,
    pub(super) what: transom_cm::Unbound,
}

impl Unbound {
    /// Whether it has a port already.
    pub fn has_port(&self) -> bool {
        self.what.claim.is_some()
    }
}

impl Manager {
    /// What an id is, to make it anew at another device. `None` if it belongs to this one.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is no such id, `EINVAL` if it is another file's.
    pub fn unbound(&self, file: RawFd, id: CommId) -> Result<Option<Unbound>, Refused> {
        self.check_file(file, id)?;
        let uid = self.files.file_of(id).map_or(0, |(_, uid)| uid);
        Ok(self.engine.unbound(id).map(|what| Unbound { uid, what }))
    }

    /// Makes an id that is like one of another device, which [goes on](Manager::move_away) as this one.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such file, `ENOMEM` if no id is left.
    pub fn create_like(&mut self, file: RawFd, other: Unbound) -> Result<CommId, Refused> {
        if !self.files.has(file) {
            return Err(Refused::NoFile);
        }
        let id = self.engine.create_like(other.what)?;
        self.files.add(id, file, other.uid);
        self.rehearsed.give(id);
        Ok(id)
    }

    /// An id goes on as another one, at the device of `owner`. Its port goes with it. Here it is told nothing any more,
    /// and only keeps its number. False if it has changed meanwhile: then it stays.
    ///
    /// # Errors
    ///
    /// As [`Manager::unbound`]; `ENOMEM` if the ports of this host cannot be locked.
    pub fn move_away(
        &mut self,
        file: RawFd,
        id: CommId,
        was: Unbound,
        (other, owner): (CommId, Announcer),
    ) -> Result<bool, Refused> {
        if self.unbound(file, id)? != Some(was) {
            return Ok(false);
        }
        if let Some(claim) = was.what.claim {
            let mut table = self.ports.table.lock().map_err(|_| Refused::NoTable)?;
            table.hand_over(&claim, other, owner);
        }
        self.engine.move_away(id)?;
        self.files.set_uid(id, 0);
        Ok(true)
    }

    /// What a program has of a file here: the ids, and whether an event waits.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such file.
    pub fn contents(&self, file: RawFd) -> Result<(Vec<CommId>, bool), Refused> {
        let waits = self.oldest_event(file)?.is_some();
        Ok((self.files.ids_of(file), waits))
    }

    /// Moves a number that an id has kept here to another file. How many of its events have been taken.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is no such id, `EINVAL` if it is another file's, `EBADF` if there is no such file.
    pub fn migrate_number(&mut self, file: RawFd, id: CommId, to: RawFd) -> Result<u32, Refused> {
        self.check_file(file, id)?;
        self.files.migrate(id, to).ok_or(Refused::NoFile)
    }
}
