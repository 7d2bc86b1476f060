//! A refusal as `transom explain` gets it, and its sentence.

mod sentence;

use transom_device::Access;
use transom_device::operation::Operation;
use transom_device::protection::{
    Attempt, Key, KeyTable, Kind as ObjectKind, Reason, Refusal, Snapshot, State,
};

/// Words of a record in the registry: its number, its time, and its kind ([`Kind`]) with small values. The kind defines
/// the rest.
pub(crate) const RECORD_WORDS: usize = 40;

/// The kind of a record. It stands in the lowest byte of its third word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A [`RefusalRecord`].
    Access = 1,
    /// A [`CallRecord`](super::CallRecord).
    Call = 2,
    /// A [`ConnectionRecord`](super::ConnectionRecord).
    Connection = 3,
    /// A [`WorkRecord`](super::WorkRecord).
    Work = 4,
}

/// Whose queue pair refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The process refused its own work.
    Origin,
    /// The process refused a peer's request.
    Target,
}

/// A refusal, its time, and its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalRecord {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The refusal. `object.since` counts on the steady clock of the host.
    pub refusal: Refusal,
    /// How long before it the region was registered or the window bound, in nanoseconds.
    pub age: u64,
    /// The number of the queue pair at the other end. Zero if none.
    pub peer: u32,
    /// The rights of the queue pair itself.
    pub qp_access: Access,
    /// An access that would have been allowed.
    pub meant: Option<Meant>,
}

/// The likely intention behind an access that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meant {
    /// The key with its bytes in the other order.
    SwappedKey,
    /// The address with its bytes in the other order.
    SwappedAddress,
    /// Another region, which has the memory.
    OtherRegion {
        /// Its first address.
        base: u64,
        /// Its bytes.
        length: u64,
    },
    /// Memory that no region has.
    Unregistered,
    /// A rehearsal has made it fail.
    Rehearsed,
}

/// How many regions are looked at for the one that was meant.
const LOOKED_AT: usize = 4096;

impl Meant {
    /// The likely intention of a peer whose access is refused, by the keys of this process.
    pub(crate) fn by(keys: KeyTable<'_>, refusal: &Refusal) -> Option<Self> {
        let Refusal { reason, attempt, object } = refusal;
        match reason {
            Reason::UnknownIndex | Reason::StaleKey => {
                let key = Key(attempt.key.0.swap_bytes());
                let there = keys.look_up(key);
                let named = there.state == State::Valid && there.byte == key.byte();
                (named && there.pd == attempt.pd).then_some(Self::SwappedKey)
            }
            Reason::BelowStart | Reason::PastEnd => {
                let offset = attempt.address.swap_bytes().checked_sub(object.base);
                let within = offset.is_some_and(|offset| offset < object.length);
                if within { Some(Self::SwappedAddress) } else { Self::by_address(keys, refusal) }
            }
            // What a rehearsal spoils is a receive of this domain.
            Reason::OtherPd => (attempt.pd == u32::MAX).then_some(Self::Rehearsed),
            Reason::ReceiveTooSmall => (object.pd == u32::MAX).then_some(Self::Rehearsed),
            _ => None,
        }
    }

    /// The same by the memory, which is not that of the key.
    fn by_address(keys: KeyTable<'_>, refusal: &Refusal) -> Option<Self> {
        let Refusal { attempt, object, .. } = refusal;
        let end = |base: u64, length: u64| u128::from(base) + u128::from(length);
        let range_end = end(attempt.address, attempt.length);
        let meets = |it: &Snapshot| {
            u128::from(it.base) < range_end && u128::from(attempt.address) < end(it.base, it.length)
        };
        // A part of the range is in what was named.
        if attempt.address == 0 || meets(object) {
            return None;
        }
        let is_region = |it: &Snapshot| it.state == State::Valid && it.kind == ObjectKind::Region;
        let has =
            |it: &Snapshot| it.base <= attempt.address && range_end <= end(it.base, it.length);
        let mut none_is_near = true;
        for (_, it) in keys.seen(LOOKED_AT).filter(|(_, it)| is_region(it)) {
            if has(&it) {
                return Some(Self::OtherRegion { base: it.base, length: it.length });
            }
            none_is_near &= !meets(&it);
        }
        let is_own = !attempt.operation.needs().subject.is_remote();
        (none_is_near && is_own).then_some(Self::Unregistered)
    }

    fn to_words(meant: Option<Self>) -> [u64; 3] {
        match meant {
            None => [0; 3],
            Some(Self::SwappedKey) => [1, 0, 0],
            Some(Self::SwappedAddress) => [2, 0, 0],
            Some(Self::OtherRegion { base, length }) => [3, base, length],
            Some(Self::Unregistered) => [4, 0, 0],
            Some(Self::Rehearsed) => [5, 0, 0],
        }
    }

    fn from_words(words: [u64; 3]) -> Option<Self> {
        Some(match words {
            [1, ..] => Self::SwappedKey,
            [2, ..] => Self::SwappedAddress,
            [3, base, length] => Self::OtherRegion { base, length },
            [4, ..] => Self::Unregistered,
            [5, ..] => Self::Rehearsed,
            _ => return None,
        })
    }
}

impl RefusalRecord {
    /// Whether the process's own work or a peer's request was refused.
    pub fn role(&self) -> Role {
        match self.refusal.attempt.operation.needs().subject.is_remote() {
            true => Role::Target,
            false => Role::Origin,
        }
    }

    pub(crate) fn to_words(self) -> [u64; RECORD_WORDS] {
        let Refusal { reason, attempt, object } = self.refusal;
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let [meant, base, length] = Meant::to_words(self.meant);
        let small = [
            Kind::Access as u8,
            reason.code(),
            attempt.operation.code(),
            object.kind as u8,
            object.state as u8,
            object.byte,
            0,
            0,
        ];
        let said = [
            0,
            self.time,
            u64::from_le_bytes(small),
            pair(object.access.bits(), attempt.key.0),
            attempt.address,
            attempt.length,
            pair(attempt.qp, attempt.pd),
            object.base,
            object.length,
            pair(object.qp, object.pd),
            object.wr_id,
            self.age,
            pair(self.qp_access.bits(), self.peer),
            object.since,
            meant,
            base,
            length,
        ];
        let mut words = [0; RECORD_WORDS];
        words[..said.len()].copy_from_slice(&said);
        words
    }

    pub(crate) fn from_words(words: &[u64; RECORD_WORDS]) -> Option<Self> {
        let [mark, reason, operation, kind_code, state_code, byte, ..] = words[2].to_le_bytes();
        if mark != Kind::Access as u8 {
            return None;
        }
        let high = |word: u64| (word >> 32) as u32;
        let kind = [
            ObjectKind::Region,
            ObjectKind::Window1,
            ObjectKind::Window2A,
            ObjectKind::Window2B,
            ObjectKind::Null,
        ];
        let state = [State::Vacant, State::Free, State::Valid, State::Changing];
        Some(Self {
            time: words[1],
            refusal: Refusal {
                reason: Reason::from_code(reason)?,
                attempt: Attempt {
                    operation: Operation::from_code(operation)?,
                    key: Key(words[3] as u32),
                    address: words[4],
                    length: words[5],
                    qp: high(words[6]),
                    pd: words[6] as u32,
                },
                object: Snapshot {
                    byte,
                    state: *state.get(usize::from(state_code))?,
                    kind: *kind.get(usize::from(kind_code))?,
                    access: Access::from_bits_retain(high(words[3])),
                    base: words[7],
                    length: words[8],
                    place: 0,
                    pd: words[9] as u32,
                    qp: high(words[9]),
                    wr_id: words[10],
                    since: words[13],
                },
            },
            age: words[11],
            peer: words[12] as u32,
            qp_access: Access::from_bits_retain(high(words[12])),
            meant: Meant::from_words([words[14], words[15], words[16]]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other processes write records, so their fields need not fit together.
    #[test]
    fn a_record_that_contradicts_itself_is_still_a_sentence() {
        for reason in 1..=u8::MAX {
            let mut words = [u64::MAX; RECORD_WORDS];
            let small = [Kind::Access as u8, reason, Operation::Write.code(), 0, 2, 0, 0, 0];
            words[2] = u64::from_le_bytes(small);
            for (address, length, base) in [(0, 0, u64::MAX), (u64::MAX, u64::MAX, 0), (8, 1, 8)] {
                (words[4], words[5], words[7]) = (address, length, base);
                if let Some(record) = RefusalRecord::from_words(&words) {
                    assert!(record.to_string().starts_with("WRITE of "), "{record}");
                }
            }
        }
    }
}
