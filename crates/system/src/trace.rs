//! The last events of a process, for `transom trace` and `transom top`: a ring in its segment, which others read.
//!
//! They are recorded only while somebody [wants](crate::wanted) them. The ring has room for the last [`EVENTS`]. A
//! reader that comes late learns how many it has missed.
//!
//! | module | holds |
//! |---|---|
//! | `event` | what an event is |
//! | `ring` | the ring |
//! | `tail` | a reader's place in a ring |

mod event;
mod ring;
mod tail;

pub use event::{Event, Handed, What};
pub use ring::{EVENTS, Ring};
pub use tail::Tail;

/// The name of a flow, of words that both its ends know. It is the same whatever compiler each end was built by.
pub fn flow(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    })
}
