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
}

impl core::fmt::Display for Access {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.is_empty() {
            return f.write_str("no remote rights");
        }
        bitflags::parser::to_writer(self, f)
    }
}
