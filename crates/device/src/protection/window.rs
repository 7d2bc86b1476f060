//! Memory windows: the two state machines of rules B.0, as steps on table entries.
//!
//! Each step first takes the window by moving its entry to `Changing` in one exchange. So binds and invalidations of
//! one window are serialised, whatever queue pairs they come from (rule ORD-30). If a LOCAL_INV races a SEND_WITH_INV,
//! exactly one succeeds (rule INV-21).

mod bind;

use std::convert::Infallible;

use super::decide::{Bind, Stamp, WindowType, may_invalidate};
use super::entry::{KeyEntry, Kind, Meta, State};
use super::{
    Attempt, Key, KeyTable, Operation, Reason, Refusal, Region, Snapshot, Waiter, Witness,
};
use crate::Access;
use crate::qp::{QpSummary, QpTable};
use crate::sync::Ordering::*;

/// Which windows `ibv_alloc_mw` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// Type 1.
    Type1,
    /// Type 2, checked against the queue pair (2A).
    Type2A,
    /// Type 2, checked against queue pair and protection domain (2B).
    Type2B,
}

impl WindowKind {
    const fn kind(self) -> Kind {
        match self {
            Self::Type1 => Kind::Window1,
            Self::Type2A => Kind::Window2A,
            Self::Type2B => Kind::Window2B,
        }
    }

    /// Makes `key`, freshly taken for `slot`, name an unbound window (rule MWA-08).
    pub fn allocate(self, table: &KeyTable<'_>, slot: u32, key: Key, pd: u32) {
        let entry = table.entry(slot);
        entry.pd.store(pd, Relaxed);
        entry.qp.store(0, Relaxed);
        entry.length.store(0, Relaxed);
        entry.publish(Meta {
            byte: key.byte(),
            state: State::Free,
            kind: self.kind(),
            access: Access::empty(),
        });
    }
}

/// The meta word a snapshot was made of.
fn meta_of(snapshot: &Snapshot) -> Meta {
    Meta {
        byte: snapshot.byte,
        state: snapshot.state,
        kind: snapshot.kind,
        access: snapshot.access,
    }
}

/// Takes the window for a change, if it is still as `window` shows it.
fn take(entry: &KeyEntry, window: &Snapshot) -> bool {
    let meta = meta_of(window);
    meta.state != State::Changing && entry.exchange(meta, Meta { state: State::Changing, ..meta })
}

/// Repeats a change until it is made. `change` returns false if another change of the same window was in its way. It
/// must look at everything again in each call.
fn until_made<E>(
    waiter: &dyn Waiter,
    mut change: impl FnMut() -> Result<bool, E>,
) -> Result<(), E> {
    let mut round = 0;
    while !change()? {
        waiter.pause(round, None);
        round = round.saturating_add(1);
    }
    Ok(())
}

/// Binds or rebinds a window of type 1 (rules C.2, C.3). On an error the old binding stands.
pub fn bind_type1(
    table: &KeyTable<'_>,
    bind: &Bind,
    stamp: &Stamp,
    waiter: &dyn Waiter,
    witness: Option<&dyn Witness>,
) -> Result<(), Refusal> {
    until_made(waiter, || {
        let (slot, entry, window) = bind.window(table, stamp, WindowType::Type1)?;
        let Some((region, place)) = bind.region(table, stamp, WindowType::Type1)? else {
            return Ok(false);
        };
        if !take(entry, &window) {
            Region::release(table, region);
            return Ok(false);
        }
        let old_region = entry.parent.load(Relaxed);
        if window.state == State::Valid {
            table.drain_key(slot, waiter);
            tell_end(witness, slot, Operation::Bind);
        }
        let opens =
            |witness: &dyn Witness| witness.bound(slot, region, &bind.bound(&window, stamp, place));
        let withheld = witness.map_or(Access::empty(), opens);
        bind.write(entry, &window, stamp, (region, place), withheld);
        if window.state == State::Valid {
            Region::release(table, old_region);
        }
        Ok(true)
    })
}

/// Unbinds a window of type 1: a bind of length zero. The region is not looked at (rule T1-47); the
/// window gets its new key all the same (rule T1-48).
pub fn unbind_type1(
    table: &KeyTable<'_>,
    bind: &Bind,
    stamp: &Stamp,
    waiter: &dyn Waiter,
    witness: Option<&dyn Witness>,
) -> Result<(), Refusal> {
    until_made(waiter, || {
        let (slot, entry, window) = bind.window(table, stamp, WindowType::Type1)?;
        if !take(entry, &window) {
            return Ok(false);
        }
        if window.state == State::Valid {
            table.drain_key(slot, waiter);
            tell_end(witness, slot, Operation::Bind);
            Region::release(table, entry.parent.load(Relaxed));
        }
        entry.publish(Meta {
            byte: bind.window.byte(),
            state: State::Free,
            kind: window.kind,
            access: Access::empty(),
        });
        Ok(true)
    })
}

/// Binds a window of type 2, which must be free (rules T2-13, T2-20). `owner` is the summary of the
/// queue pair that executes the bind.
pub fn bind_type2(
    table: &KeyTable<'_>,
    owner: &QpSummary,
    bind: &Bind,
    stamp: &Stamp,
    waiter: &dyn Waiter,
    witness: Option<&dyn Witness>,
) -> Result<(), Refusal> {
    until_made(waiter, || {
        let (slot, entry, window) = bind.window(table, stamp, WindowType::Type2)?;
        let Some((region, place)) = bind.region(table, stamp, WindowType::Type2)? else {
            return Ok(false);
        };
        if !take(entry, &window) {
            Region::release(table, region);
            return Ok(false);
        }
        owner.window_bound();
        let opens =
            |witness: &dyn Witness| witness.bound(slot, region, &bind.bound(&window, stamp, place));
        let withheld = witness.map_or(Access::empty(), opens);
        bind.write(entry, &window, stamp, (region, place), withheld);
        Ok(true)
    })
}

/// Ends the binding of a type 2 window by its key (rules D.3, D.4). `operation` tells a LOCAL_INV from
/// a SEND_WITH_INV. When it returns, no access through the key is under way (rule INV-23).
pub fn invalidate(
    table: &KeyTable<'_>,
    qps: &QpTable<'_>,
    operation: Operation,
    key: Key,
    stamp: &Stamp,
    waiter: &dyn Waiter,
    witness: Option<&dyn Witness>,
) -> Result<(), Refusal> {
    let attempt = Attempt { operation, key, address: 0, length: 0, qp: stamp.qp, pd: stamp.pd };
    let refusal = |reason, object| Refusal { reason, attempt, object };
    until_made(waiter, || {
        let unknown = || refusal(Reason::UnknownIndex, Snapshot::VACANT);
        let slot = table.slot_of(key).ok_or_else(unknown)?;
        let entry = table.entry(slot);
        let window = entry.snapshot();
        may_invalidate(&window, key, stamp).map_err(|reason| refusal(reason, window))?;
        if !take(entry, &window) {
            return Ok(false);
        }
        // Between look and exchange another queue pair may have bound it again with equal rights and key byte. Once
        // taken, it stays as it is, so check again.
        let taken = Snapshot { state: State::Valid, ..entry.snapshot() };
        if may_invalidate(&taken, key, stamp).is_err() {
            entry.publish(meta_of(&window));
            return Ok(false);
        }
        table.drain_key(slot, waiter);
        tell_end(witness, slot, operation);
        end_binding(table, qps, entry);
        entry.publish(Meta { state: State::Free, access: Access::empty(), ..meta_of(&window) });
        Ok(true)
    })
}

/// Nobody gets in through a binding any more.
fn tell_end(witness: Option<&dyn Witness>, slot: u32, by: Operation) {
    if let Some(witness) = witness {
        witness.unbound(slot, by);
    }
}

/// Releases the objects that the binding of a type 2 window held.
fn end_binding(table: &KeyTable<'_>, qps: &QpTable<'_>, entry: &KeyEntry) {
    Region::release(table, entry.parent.load(Relaxed));
    if let Some(owner) = qps.summary(entry.qp.load(Relaxed) as u16) {
        owner.window_unbound();
    }
}

/// Ends the window of `slot`, unbinding it first (rules MWA-13, MWA-14). Returns whether it was bound.
pub fn release_window(
    table: &KeyTable<'_>,
    qps: &QpTable<'_>,
    slot: u32,
    waiter: &dyn Waiter,
) -> bool {
    let entry = table.entry(slot);
    let mut was_bound = false;
    let Ok(()) = until_made(waiter, || {
        let window = entry.snapshot();
        if !take(entry, &window) {
            return Ok::<_, Infallible>(false);
        }
        was_bound = window.state == State::Valid;
        if was_bound {
            table.drain_key(slot, waiter);
            if window.kind == Kind::Window1 {
                Region::release(table, entry.parent.load(Relaxed));
            } else {
                end_binding(table, qps, entry);
            }
        }
        entry.publish(Meta { state: State::Vacant, ..meta_of(&window) });
        Ok(true)
    });
    was_bound
}
