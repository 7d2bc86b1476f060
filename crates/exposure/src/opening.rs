//! A region or a bound window while it is open to peers.

use crate::doors::{Reach, Scope};
use crate::touched::{Moment, Touched};
use crate::{Deed, Rights};

/// How many pairs of a peer and an operation are kept of each.
pub const USERS: usize = 6;

/// The kind of object that a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// A memory region.
    Region,
    /// A window of type 1.
    Window1,
    /// A window of type 2.
    Window2,
}

impl Object {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Region, Self::Window1, Self::Window2];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Window1 => "type 1 window",
            Self::Window2 => "type 2 window",
        }
    }
}

/// How often something was done, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many operations.
    pub count: u64,
    /// How many bytes they touched, all together.
    pub bytes: u64,
    /// When the first one did, in nanoseconds of the steady clock.
    pub first: u64,
    /// When the last one did.
    pub last: u64,
}

impl Times {
    /// Once more.
    fn add(&mut self, bytes: u64, begins: bool, now: u64) {
        if self.bytes == 0 {
            self.first = now;
        }
        self.count = self.count.saturating_add(begins.into());
        self.bytes = self.bytes.saturating_add(bytes);
        self.last = self.last.max(now);
    }

    /// Both together.
    pub fn and(&mut self, other: &Self) {
        let first = [&*self, other].into_iter().filter(|it| it.bytes > 0).map(|it| it.first).min();
        self.first = first.unwrap_or(0);
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.last = self.last.max(other.last);
    }
}

/// What the peer of one queue pair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The queue pair of this process.
    pub pair: u32,
    /// What its peer did.
    pub deed: Deed,
    /// How often, and when.
    pub times: Times,
}

/// A region or a bound window, from when it is open until it is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Which one of this process, in the order in which they opened.
    pub number: u64,
    /// Whether it is a region or a window.
    pub object: Object,
    /// Its device, by a number of the process.
    pub device: u64,
    /// Its key.
    pub key: u32,
    /// Who can use it.
    pub scope: Scope,
    /// A window: the number of its region, if that is known.
    pub region: u64,
    /// Where it was registered or bound, by a number of the process. Zero is unknown.
    pub site: u32,
    /// What peers may do.
    pub rights: Rights,
    /// The address of its first byte in the process.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The first address by which requests name it.
    pub base: u64,
    /// From when on it is open, in nanoseconds of the steady clock.
    pub since: u64,
    /// Until when; zero if it still is.
    pub until: u64,
    /// How long peers could have got in by [`Opening::sets`] when it opened, and then how long they could, once it is
    /// closed.
    pub open: [u64; 4],
    /// How often it was used for each operation.
    pub deeds: [Times; 3],
    /// Who did. There may be more than room.
    pub users: Vec<User>,
    /// How many operations are of others.
    pub others: u64,
    /// The bytes that peers touched.
    pub touched: Touched,
}

impl Opening {
    /// The sets of rights whose time is kept: any right that it has, and each of them alone.
    pub fn sets(&self) -> [Rights; 4] {
        let alone = |deed: Deed| deed.right().both(self.rights);
        [self.rights, alone(Deed::Read), alone(Deed::Write), alone(Deed::Atomic)]
    }

    /// For how many nanoseconds peers could get in until `now`, by each of the sets.
    pub fn open_until(&self, reach: Option<&Reach>, now: u64) -> [u64; 4] {
        let Some(reach) = reach.filter(|_| self.until == 0) else { return self.open };
        let mut open = self.sets().map(|set| reach.total(set, now));
        open.iter_mut().zip(self.open).for_each(|(open, before)| *open -= before.min(*open));
        open
    }

    /// It opens.
    pub(crate) fn begin(&mut self, reach: &Reach) {
        self.open = self.sets().map(|set| reach.total(set, self.since));
    }

    /// It closes.
    pub(crate) fn end(&mut self, reach: &Reach, now: u64) {
        self.open = self.open_until(Some(reach), now);
        self.until = now.max(self.since + 1);
    }

    /// The peer of a queue pair has touched memory from `address` on.
    pub(crate) fn touch(&mut self, touch: &Touch, reach: &Reach, now: u64) {
        let open = self.open_until(Some(reach), now)[0];
        let start = touch.address.saturating_sub(self.base).min(self.length);
        let end = start.saturating_add(touch.length).min(self.length);
        self.touched.touch(start, end, Moment { at: now, open });
        self.deeds[touch.deed as usize].add(end - start, touch.begins, now);
        let (pair, deed) = (touch.pair, touch.deed);
        let is_known = self.users.iter().any(|it| (it.pair, it.deed) == (pair, deed));
        if !is_known && self.users.len() < USERS {
            self.users.push(User { pair, deed, times: Times::default() });
        }
        match self.users.iter_mut().find(|it| (it.pair, it.deed) == (pair, deed)) {
            Some(user) => user.times.add(end - start, touch.begins, now),
            None => self.others += u64::from(touch.begins),
        }
    }
}

/// A peer touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The queue pair of this process that it comes by.
    pub pair: u32,
    /// What it does.
    pub deed: Deed,
    /// The first byte, as requests name it.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The operation begins with it, or goes on.
    pub begins: bool,
}
