//! Access rights of regions, windows and queue pairs.

use bitflags::bitflags;

bitflags! {
    /// Rights, with the values of `enum ibv_access_flags` (rule MR-01).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The local adapter may write.
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read.
        const REMOTE_READ = 1 << 2;
        /// Peers may use atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses count from zero.
        const ZERO_BASED = 1 << 5;
        /// Pages may come and go.
        const ON_DEMAND = 1 << 6;
        /// With `ON_DEMAND`: huge pages.
        const HUGETLB = 1 << 7;
        /// Peers may flush to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may flush to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Writes may become visible in any order before their completion.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// The rights that a peer can have: a window or a queue pair may grant them.
    pub const REMOTE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC);

    /// Where the bits of withheld rights are, above their own. No right has them.
    const WITHHELD: u32 = 24;

    /// The same with some remote rights withheld: nobody has them, but they can be given back.
    pub(crate) const fn withholding(self, rights: Self) -> Self {
        let taken = self.bits() & rights.bits() & Self::REMOTE.bits();
        Self::from_bits_retain(self.bits() & !taken | taken << Self::WITHHELD)
    }

    /// The rights that `other` has too. What is withheld stays withheld.
    pub(crate) const fn within(self, other: Self) -> Self {
        let remote = other.bits() & Self::REMOTE.bits();
        Self::from_bits_retain(self.bits() & (other.bits() | remote << Self::WITHHELD))
    }

    /// The same with these rights given back, as far as they were withheld.
    pub(crate) const fn giving_back(self, rights: Self) -> Self {
        let given = self.bits() >> Self::WITHHELD & rights.bits() & Self::REMOTE.bits();
        Self::from_bits_retain(self.bits() & !(given << Self::WITHHELD) | given)
    }
}

impl core::fmt::Display for Access {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.is_empty() {
            return f.write_str("no remote rights");
        }
        bitflags::parser::to_writer(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: CHK-96
    #[test]
    fn withheld_rights_come_back_and_no_others() {
        let (write, read) = (Access::REMOTE_WRITE, Access::REMOTE_READ);
        let granted = Access::LOCAL_WRITE | write | Access::RELAXED_ORDERING;
        let withheld = granted.withholding(Access::REMOTE | Access::LOCAL_WRITE);
        assert!(!withheld.intersects(Access::REMOTE) && withheld.contains(Access::LOCAL_WRITE));
        assert_eq!(withheld.giving_back(read), withheld);
        assert_eq!(withheld.giving_back(Access::REMOTE | Access::MW_BIND), granted);
        assert_eq!(withheld.withholding(write), withheld);
        assert_eq!(granted.giving_back(Access::all()), granted);
        let narrow = withheld.within(Access::LOCAL_WRITE | write | read);
        assert_eq!(narrow.giving_back(Access::all()), Access::LOCAL_WRITE | write);
        let without = withheld.within(Access::LOCAL_WRITE);
        assert_eq!(without.giving_back(Access::all()), Access::LOCAL_WRITE);
    }
}
