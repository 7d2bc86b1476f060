//! The multicast groups that ids belong to.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::RawFd;

use transom_cm::Refused;
use transom_cm::attributes::DEFAULT_QKEY;
use transom_cm::event::Group;
use transom_cm::refused::Errno;
use transom_system::addresses::gid;
use transom_wire::cm::CommId;

use super::Manager;

/// A group that an id belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    of: CommId,
    group: Group,
    uid: u64,
    /// The id is in the group.
    is_member: bool,
    /// Its event waits or has been taken. A second event of the same group belongs to another membership.
    is_told: bool,
    /// How many of its events have been taken.
    reported: u32,
}

/// All memberships, each under the number that names it to the program.
#[derive(Default)]
pub(super) struct Memberships(HashMap<u32, Membership>);

impl Memberships {
    /// Adds one under a number that no other has. `None` if there is no such number.
    fn add(&mut self, of: CommId, group: Group, uid: u64, is_member: bool) -> Option<u32> {
        let number = (0..=u32::MAX).find(|number| !self.0.contains_key(number))?;
        let membership = Membership { of, group, uid, is_member, is_told: false, reported: 0 };
        self.0.insert(number, membership);
        Some(number)
    }

    /// Finds the membership that an event of a group is for. Returns its number, and the program's own value for it.
    pub(super) fn tell(&mut self, of: CommId, group: Group) -> Option<(u32, u64)> {
        let mut all = self.0.iter_mut();
        let (number, it) = all.find(|(_, it)| !it.is_told && (it.of, it.group) == (of, group))?;
        it.is_told = true;
        Some((*number, it.uid))
    }

    /// An event of the membership with this number has been taken.
    pub(super) fn note_taken(&mut self, number: u32) {
        if let Some(it) = self.0.get_mut(&number) {
            it.reported = it.reported.wrapping_add(1);
        }
    }

    /// Ends those of an id.
    pub(super) fn remove_those_of(&mut self, id: CommId) {
        self.0.retain(|_, it| it.of != id);
    }
}

impl Manager {
    /// Makes an id of a file a member of a group. The program calls the membership `uid`; the number returned names it
    /// here.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`]; in a rehearsal `ENOMEM`. Or the id hears that it is no member.
    pub fn join(
        &mut self,
        file: RawFd,
        id: CommId,
        uid: u64,
        address: IpAddr,
        send_only: bool,
    ) -> Result<u32, Refused> {
        self.check(file, id)?;
        // Queue pairs join by themselves. The network then brings the group's messages.
        let joined = match self.rehearsed.refuses(id) {
            Some(number) if number % 2 == 0 => return Err(Refused::Rehearsed(Errno::ENOMEM)),
            Some(_) => Err(Errno::ETIMEDOUT),
            None => Ok(()),
        };
        self.engine.join(id, address, send_only, joined)?;
        let group = Group { address, send_only, qkey: DEFAULT_QKEY };
        self.memberships.add(id, group, uid, joined.is_ok()).ok_or(Refused::NoIds)
    }

    /// The index of the GID from which an id reaches a group. It is the id's own, if that has the group's family and an
    /// entry in the table (a loopback address has none). Otherwise it is the first GID of the group's family.
    pub(super) fn source_of_group(&self, id: CommId, group: IpAddr) -> u8 {
        let addresses = self.device.port().addresses();
        let own = self.engine.source(id).map(|source| source.ip());
        let own = own.filter(|own| own.is_ipv4() == group.is_ipv4());
        let own = own.and_then(|own| addresses.index_of(&gid(own)));
        let index = own.or_else(|| addresses.towards(&gid(group)).map(|(index, _)| index));
        index.and_then(|index| u8::try_from(index).ok()).unwrap_or(0)
    }

    /// Ends a membership, and says how many of its events have been taken.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is no such membership of an id of the file.
    pub fn leave(&mut self, file: RawFd, number: u32) -> Result<u32, Refused> {
        let membership = self.memberships.0.get(&number).copied();
        let it = membership.filter(|it| self.files.is_of(it.of, file)).ok_or(Refused::NoGroup)?;
        self.memberships.0.remove(&number);
        if it.is_member {
            self.engine.leave(it.of, it.group.address)?;
        }
        self.files.drop_events_of(file, number);
        Ok(it.reported)
    }
}
