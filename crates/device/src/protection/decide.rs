//! The one function that decides an access.

use super::{Key, Kind, Operation, Place, Reason, Snapshot, State, Subject};

/// An access somebody wants to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What it is for.
    pub operation: Operation,
    /// The key that names the object.
    pub key: Key,
    /// First address, as the object names its addresses.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The number of the queue pair on which it arrives (remote) or was posted (local).
    pub qp: u32,
    /// That queue pair's protection domain.
    pub pd: u32,
}

/// Decides whether `attempt` may touch the object, and answers where its range begins. Pure: the caller sees to it that the object stays as it is while it is used.
///
/// Nothing here is skipped for any link or caller; a zero-length access never gets here, because
/// its key is not examined (rules RA-20, LA-15).
#[inline]
pub fn decide(object: &Snapshot, attempt: &Attempt) -> Result<Place, Reason> {
    if object.state == State::Vacant {
        return Err(Reason::UnknownIndex);
    }
    if object.byte != attempt.key.byte() {
        return Err(Reason::StaleKey);
    }
    if object.state != State::Valid {
        return Err(Reason::FreeWindow);
    }
    let needs = attempt.operation.needs();
    let local = matches!(needs.subject, Subject::LocalSource | Subject::LocalDestination);
    if local && !object.kind.is_region() {
        return Err(Reason::NotARegion);
    }
    if object.kind != Kind::Window2A && object.pd != attempt.pd {
        return Err(Reason::OtherPd);
    }
    if matches!(object.kind, Kind::Window2A | Kind::Window2B) && object.qp != attempt.qp {
        return Err(Reason::OtherQp);
    }
    if !object.access.contains(attempt.operation.rights()) {
        return Err(Reason::RightMissing);
    }
    let offset = offset_within(object.base, object.length, attempt.address, attempt.length)?;
    if object.kind == Kind::Null {
        return Ok(Place::Null);
    }
    let place = object.place.checked_add(offset).ok_or(Reason::Wraps)?;
    if needs.word.is_some() && !place.is_multiple_of(8) {
        return Err(Reason::Misaligned);
    }
    Ok(Place::Memory(place))
}

/// Where `[address, +length)` lies within `[base, +extent)` (rules RA-32 to RA-34, T1-26 to T1-29).
#[inline]
pub(super) fn offset_within(
    base: u64,
    extent: u64,
    address: u64,
    length: u64,
) -> Result<u64, Reason> {
    // The last byte may be 2^64 - 1, so the end is not always a u64.
    let end = u128::from(address) + u128::from(length);
    if end > 1 << 64 {
        return Err(Reason::Wraps);
    }
    let offset = address.checked_sub(base).ok_or(Reason::BelowStart)?;
    if end > u128::from(base) + u128::from(extent) {
        return Err(Reason::PastEnd);
    }
    Ok(offset)
}
