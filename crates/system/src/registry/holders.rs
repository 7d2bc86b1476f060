//! The holders that keep an object from being destroyed, as `transom explain` gets them.

use std::fmt;

/// A kind of holder, which keeps another object from being destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Holder {
    /// A memory region, named by its key.
    Region = 0,
    /// A memory window; by its key.
    Window = 1,
    /// A queue pair; by its number.
    QueuePair = 2,
    /// A shared receive queue.
    SharedReceiveQueue = 3,
    /// An address handle.
    AddressHandle = 4,
    /// A parent domain.
    ParentDomain = 5,
    /// A completion queue.
    CompletionQueue = 6,
    /// A multicast group.
    Group = 7,
}

impl Holder {
    const ALL: [Self; 8] = [
        Self::Region,
        Self::Window,
        Self::QueuePair,
        Self::SharedReceiveQueue,
        Self::AddressHandle,
        Self::ParentDomain,
        Self::CompletionQueue,
        Self::Group,
    ];

    /// The word for the kind.
    fn name(self) -> &'static str {
        match self {
            Self::Region => "memory region",
            Self::Window => "memory window",
            Self::QueuePair => "queue pair",
            Self::SharedReceiveQueue => "shared receive queue",
            Self::AddressHandle => "address handle",
            Self::ParentDomain => "parent domain",
            Self::CompletionQueue => "completion queue",
            Self::Group => "multicast group",
        }
    }

    /// The name of a number that programs know it by, if there is one.
    fn named_by(self) -> Option<&'static str> {
        match self {
            Self::Region | Self::Window => Some("key"),
            Self::QueuePair => Some("number"),
            _ => None,
        }
    }
}

/// The holders of an object: the number of each kind, and one of the first kind present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    counts: u64,
    first: u64,
}

impl Holders {
    /// Adds one of a kind, by its name.
    pub fn add(&mut self, kind: Holder, name: u64) {
        let shift = kind as u32 * 8;
        // The first kind present has the lowest bits.
        if self.counts & (((1 << shift) - 1) | (0xff << shift)) == 0 {
            self.first = name;
        }
        if self.counts >> shift & 0xff < 0xff {
            self.counts += 1 << shift;
        }
    }

    /// Their number in all, as far as they are counted.
    pub fn count(&self) -> u64 {
        self.counts.to_le_bytes().iter().map(|count| u64::from(*count)).sum()
    }

    /// Encodes them for a refusal: `value` and `limit` of a `CallRefusal`.
    pub fn numbers(self) -> (u64, u64) {
        (self.counts, self.first)
    }

    pub(super) fn from_numbers(counts: u64, first: u64) -> Self {
        Self { counts, first }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |kind: Holder| self.counts >> (kind as u32 * 8) & 0xff;
        let mut kinds = Holder::ALL.into_iter().filter(|kind| count(*kind) > 0).peekable();
        let Some(first) = kinds.peek().copied() else {
            return f.write_str("something holds it still");
        };
        f.write_str("still there:")?;
        for kind in kinds {
            let (count, comma) = (count(kind), if kind == first { "" } else { "," });
            let (more, plural) = match count {
                1 => ("", ""),
                0xff => (" or more", "s"),
                _ => ("", "s"),
            };
            write!(f, "{comma} {count}{more} {}{plural}", kind.name())?;
            if kind == first
                && self.first != 0
                && let Some(named_by) = kind.named_by()
            {
                let one = if count == 1 { "" } else { "one " };
                // A key has eight digits everywhere.
                let width = if named_by == "key" { 10 } else { 0 };
                write!(f, " ({one}with {named_by} {:#0width$x})", self.first)?;
            }
        }
        f.write_str(". Destroy these first")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_counted_by_kind_and_one_is_named() {
        let mut holders = Holders::default();
        assert_eq!(holders.to_string(), "something holds it still");
        holders.add(Holder::AddressHandle, 0);
        (0..300).for_each(|number| holders.add(Holder::QueuePair, 0x10_0000 + number));
        holders.add(Holder::Region, 0x77);
        let told = "still there: 1 memory region (with key 0x00000077), 255 or more queue pairs, 1 address \
                    handle. Destroy these first";
        assert_eq!(holders.to_string(), told);
    }
}
