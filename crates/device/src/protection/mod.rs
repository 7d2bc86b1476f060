//! Protection: every R_Key and L_Key resolves through one table, and one function decides.
//!
//! ```text
//!  key ── Scramble ──► slot ──► KeyEntry ──► Snapshot ─┐
//!                                 ▲                    ├─ decide ──► Grant (a place) or Reason
//!  Announcement (hazard cell) ────┘     Attempt ───────┘
//! ```
//!
//! A [`Grant`] is the only way to a place in memory. It holds the announcement of its key, so a thread that revokes the
//! key waits for it. When a bind, invalidate, dealloc or deregister returns, no access through the old key touches
//! memory any more (rules INV-23, DR-15, MWA-14).

mod decide;
mod entry;
mod hazard;
mod key;
mod owner;
mod reason;
mod refusal;
mod region;
mod scramble;
mod table;
mod window;
mod witness;

pub use crate::operation::Operation;
pub use decide::{
    Attempt, Bind, MAX_MESSAGE, Stamp, WindowType, admit, decide, may_carry, may_grant,
};
pub use entry::{KeyEntry, Kind, Place, SHARED, Snapshot, State};
pub use hazard::{Announcement, Announcer, CELLS, Hazards, PROCESSES, Rank, Use, Waiter};
pub use key::{Key, RemoteAddress};
pub use owner::{Exhausted, KeyOwner};
pub use reason::Reason;
pub use refusal::Refusal;
pub use region::{InUse, Region};
pub use scramble::{RecentSlots, Scramble};
pub use table::{Grant, KeyTable};
pub use window::{WindowKind, bind_type1, bind_type2, invalidate, release_window, unbind_type1};
pub use witness::Witness;
