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
