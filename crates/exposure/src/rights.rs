//! Rights of peers, and the operations that use them.

/// Rights of peers to memory: a set of [`Deed`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rights(u8);

/// What a peer does to memory. Each needs the right of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Deed {
    /// RDMA READ.
    Read,
    /// RDMA WRITE and ATOMIC WRITE.
    Write,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
}

impl Deed {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Atomic];

    /// What it is called in a report for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
        }
    }

    /// The flag of `ibv_access_flags` that allows it.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Read => "IBV_ACCESS_REMOTE_READ",
            Self::Write => "IBV_ACCESS_REMOTE_WRITE",
            Self::Atomic => "IBV_ACCESS_REMOTE_ATOMIC",
        }
    }

    /// What a report for programs calls the right that it needs.
    pub const fn right_name(self) -> &'static str {
        match self {
            Self::Read => "REMOTE_READ",
            Self::Write => "REMOTE_WRITE",
            Self::Atomic => "REMOTE_ATOMIC",
        }
    }

    /// The right that it needs.
    pub const fn right(self) -> Rights {
        Rights(1 << self as u8)
    }
}

impl Rights {
    /// None.
    pub const NONE: Self = Self(0);

    /// The rights in a byte.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// The byte with the rights.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The rights in both.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether they allow this.
    pub const fn allow(self, deed: Deed) -> bool {
        self.0 & deed.right().0 != 0
    }

    /// What they allow.
    pub fn deeds(self) -> impl Iterator<Item = Deed> {
        Deed::ALL.into_iter().filter(move |deed| self.allow(*deed))
    }
}

impl FromIterator<Deed> for Rights {
    fn from_iter<T: IntoIterator<Item = Deed>>(deeds: T) -> Self {
        Self(deeds.into_iter().fold(0, |bits, deed| bits | deed.right().0))
    }
}
