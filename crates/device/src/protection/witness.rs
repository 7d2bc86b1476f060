//! Who hears of what a key table opens to peers.

use super::{Attempt, Operation, Snapshot};
use crate::Access;

/// Hears what windows open and close to peers, and what peers touch.
///
/// A binding is told of while its entry is being changed, and a touch while its grant stands. So calls about one key
/// come in the order in which things happen: nothing is touched before it is told of as bound, or after as unbound.
pub trait Witness {
    /// A window is about to be bound so, to the region of a slot. Returns the rights that it withholds from the
    /// beginning, until they are [given back](super::KeyTable::give_back).
    fn bound(&self, slot: u32, region: u32, window: &Snapshot) -> Access;
    /// A binding has ended, by a bind or an invalidation: nobody gets in through it any more.
    fn unbound(&self, slot: u32, by: Operation);
    /// A peer has touched this memory. The operation begins with it, or goes on.
    fn touched(&self, attempt: &Attempt, begins: bool);
}
