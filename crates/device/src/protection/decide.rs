//! The functions that decide: whether a queue pair admits a peer's attempt ([`admit`]), an access ([`decide`]), a bind
//! ([`may_bind`], [`bound_place`]) and its end ([`may_invalidate`]).
//!
//! All are pure: who calls sees to it that the object stays as it is while it is used.

use super::{Key, Kind, Place, Reason, SHARED, Snapshot, State};
use crate::Access;
use crate::operation::{Operation, Subject};
use crate::qp::Gate;

/// Longest message, in bytes (rules PS-16, RA-39).
pub const MAX_MESSAGE: u64 = 1 << 31;

/// An access somebody wants to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The operation.
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

/// The two types of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// Usable through every queue pair of its protection domain.
    Type1,
    /// Usable through the queue pair that bound it.
    Type2,
}

/// A bind, as posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window: the index of any of its keys, and the byte it shall have from now on.
    pub window: Key,
    /// The region's L_Key.
    pub region: Key,
    /// First address, as the region names its addresses.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Rights: remote ones, and `ZERO_BASED` for type 2.
    pub access: Access,
}

/// Who binds, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the queue pair that executes the bind.
    pub qp: u32,
    /// That queue pair's protection domain.
    pub pd: u32,
    /// `wr_id` of the bind.
    pub wr_id: u64,
    /// The host's nanoseconds.
    pub now: u64,
}

/// Decides whether a queue pair lets its peer attempt this at all, before any key is looked at
/// (rules RA-06, RA-09, RA-39, AT-02, FL-03). `total` is the length of the whole message.
#[inline(always)]
pub fn admit(gate: &Gate, attempt: &Attempt, total: u64) -> Result<(), Reason> {
    let needs = attempt.operation.needs();
    if !needs.services.include(gate.service) {
        return Err(Reason::WrongService);
    }
    if !gate.access.contains(needs.queue_pair) {
        return Err(Reason::QpRightMissing);
    }
    if needs.responder_resources && gate.read_resources == 0 {
        return Err(Reason::NoReadResources);
    }
    if needs.word.is_some() {
        if !attempt.address.is_multiple_of(8) {
            return Err(Reason::Misaligned);
        }
        if total != 8 {
            return Err(Reason::AtomicLength);
        }
    } else if total > MAX_MESSAGE {
        return Err(Reason::TooLong);
    }
    Ok(())
}

/// Decides whether `attempt` may touch the object, and answers where its range begins.
///
/// Nothing here is skipped for any link or caller; a zero-length access never gets here, because
/// its key is not examined (rules RA-20, LA-15).
#[inline(always)]
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
    let place = behind(object.place, offset)?;
    if needs.word.is_some() && !place.is_multiple_of(8) {
        return Err(Reason::Misaligned);
    }
    Ok(Place::unpack(place))
}

/// The place so many bytes behind another: an address never becomes one in shared memory.
#[inline(always)]
fn behind(place: u64, offset: u64) -> Result<u64, Reason> {
    let behind = place.checked_add(offset).ok_or(Reason::Wraps)?;
    if (behind ^ place) & SHARED == 0 { Ok(behind) } else { Err(Reason::Wraps) }
}

/// Decides whether a window of this type may have these rights (rules T1-05, T1-14).
pub fn may_grant(window: WindowType, access: Access) -> Result<(), Reason> {
    if !Access::REMOTE.union(Access::ZERO_BASED).contains(access) {
        return Err(Reason::UnknownRights);
    }
    if window == WindowType::Type1 && access.contains(Access::ZERO_BASED) {
        return Err(Reason::ZeroBasedWindow);
    }
    Ok(())
}

/// Decides whether a region with these rights may have a window of this type with those
/// (rules T1-06, T1-20 to T1-22).
pub fn may_carry(region: Access, window: WindowType, access: Access) -> Result<(), Reason> {
    if window == WindowType::Type1 && region.contains(Access::ZERO_BASED) {
        return Err(Reason::ZeroBasedRegion);
    }
    if !region.contains(Access::MW_BIND) {
        return Err(Reason::RegionForbidsBinding);
    }
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if access.intersects(writes) && !region.contains(Access::LOCAL_WRITE) {
        return Err(Reason::RegionNotWritable);
    }
    Ok(())
}

/// Decides the part of a bind that does not depend on its region.
pub(super) fn may_bind(
    window: &Snapshot,
    as_type: WindowType,
    bind: &Bind,
    stamp: &Stamp,
) -> Result<(), Reason> {
    if window.state == State::Vacant {
        return Err(Reason::UnknownIndex);
    }
    let its_type = match window.kind {
        Kind::Region | Kind::Null => return Err(Reason::UnknownIndex),
        Kind::Window1 => WindowType::Type1,
        Kind::Window2A | Kind::Window2B => WindowType::Type2,
    };
    if its_type != as_type {
        return Err(Reason::WrongType);
    }
    if window.pd != stamp.pd {
        return Err(Reason::OtherPd);
    }
    if as_type == WindowType::Type2 {
        if window.state == State::Valid {
            return Err(Reason::WindowNotFree);
        }
        if bind.length == 0 {
            return Err(Reason::EmptyWindow);
        }
    }
    may_grant(as_type, bind.access)
}

/// Decides whether a window of this type may be bound to the region so, and answers where its first
/// byte is.
pub(super) fn bound_place(
    region: &Snapshot,
    as_type: WindowType,
    bind: &Bind,
    stamp: &Stamp,
) -> Result<u64, Reason> {
    if region.state != State::Valid || !region.kind.is_region() {
        return Err(Reason::UnknownIndex);
    }
    if region.byte != bind.region.byte() {
        return Err(Reason::StaleKey);
    }
    if region.pd != stamp.pd {
        return Err(Reason::OtherPd);
    }
    may_carry(region.access, as_type, bind.access)?;
    let offset = offset_within(region.base, region.length, bind.address, bind.length)?;
    behind(region.place, offset)
}

/// Decides whether the binding of a type 2 window may be ended by its key, from this queue pair.
pub(super) fn may_invalidate(window: &Snapshot, key: Key, stamp: &Stamp) -> Result<(), Reason> {
    if window.state == State::Vacant {
        return Err(Reason::UnknownIndex);
    }
    let checks_pd = match window.kind {
        Kind::Region | Kind::Null => return Err(Reason::NotAWindow),
        Kind::Window1 => return Err(Reason::WrongType),
        Kind::Window2A => false,
        Kind::Window2B => true,
    };
    if window.byte != key.byte() {
        return Err(Reason::StaleKey);
    }
    match window.state {
        State::Vacant => Err(Reason::UnknownIndex),
        State::Free => Err(Reason::FreeWindow),
        // Which queue pair and domain count is known once the change under way is over.
        State::Changing => Ok(()),
        State::Valid if checks_pd && window.pd != stamp.pd => Err(Reason::OtherPd),
        State::Valid if window.qp != stamp.qp => Err(Reason::OtherQp),
        State::Valid => Ok(()),
    }
}

/// The offset of `[address, +length)` in `[base, +extent)`, if it lies within (rules RA-32 to RA-34, T1-26 to T1-29).
#[inline(always)]
fn offset_within(base: u64, extent: u64, address: u64, length: u64) -> Result<u64, Reason> {
    // The last byte may be 2^64 - 1, so the end is not always a u64.
    if length.saturating_sub(1) > u64::MAX - address {
        return Err(Reason::Wraps);
    }
    let offset = address.checked_sub(base).ok_or(Reason::BelowStart)?;
    if length > extent || offset > extent - length {
        return Err(Reason::PastEnd);
    }
    Ok(offset)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::qp::Bypass;

    const BASE: u64 = 0x1000;
    const STAMP: Stamp = Stamp { qp: 8, pd: 3, wr_id: 0, now: 0 };
    const BIND: Bind = Bind {
        window: Key(0x101),
        region: Key(0x202),
        address: BASE,
        length: 64,
        access: Access::REMOTE,
    };

    fn object(state: State, kind: Kind, access: Access) -> Snapshot {
        let (base, length, pd, byte) = (BASE, 4096, STAMP.pd, BIND.region.byte());
        Snapshot { byte, state, kind, access, base, length, place: BASE, pd, ..Snapshot::VACANT }
    }

    /// The same as in the rules, in numbers wide enough for every end.
    /// Rules: RA-32, RA-33, RA-34
    #[test]
    fn a_range_is_within_or_not_up_to_the_last_byte() {
        let edges = [0, 1, 2, 8, 1 << 63, u64::MAX - 8, u64::MAX - 1, u64::MAX];
        let all = || edges.into_iter();
        for (base, extent) in all().flat_map(|base| all().map(move |extent| (base, extent))) {
            for (address, length) in all().flat_map(|at| all().map(move |length| (at, length))) {
                let wide = u128::from;
                let end = wide(address) + wide(length);
                let expected = if end > 1 << 64 {
                    Err(Reason::Wraps)
                } else if address < base {
                    Err(Reason::BelowStart)
                } else if end > wide(base) + wide(extent) {
                    Err(Reason::PastEnd)
                } else {
                    Ok(address - base)
                };
                let decided = offset_within(base, extent, address, length);
                assert_eq!(decided, expected, "{address}+{length} within {base}+{extent}");
            }
        }
    }

    /// In a region of all addresses, an address that no program has is not a place in shared memory. Nor does a place
    /// there become an address.
    /// Rules: MR-33
    #[test]
    fn an_address_is_never_a_place_in_shared_memory() {
        let region = Snapshot {
            base: 0,
            length: u64::MAX,
            place: 0,
            ..object(State::Valid, Kind::Region, Access::LOCAL_WRITE)
        };
        let (operation, key, qp, pd) = (Operation::LocalWrite, BIND.region, STAMP.qp, STAMP.pd);
        let at = |region: &Snapshot, address| {
            decide(region, &Attempt { operation, key, address, length: 8, qp, pd })
        };
        assert_eq!(at(&region, SHARED - 8), Ok(Place::Memory(SHARED - 8)));
        assert_eq!(at(&region, SHARED), Err(Reason::Wraps));
        assert_eq!(at(&region, u64::MAX - 8), Err(Reason::Wraps));
        let shared = Snapshot { place: SHARED | 64, length: 4096, base: BASE, ..region };
        assert_eq!(at(&shared, BASE + 8), Ok(Place::Shared(72)));
    }

    /// A window of type 1 is not zero-based, nor is its region; of type 2 both may be.
    /// Rules: T1-05, T1-06, T1-14
    #[test]
    fn only_a_type_2_window_counts_from_zero() {
        let zero_based = Bind { access: Access::REMOTE | Access::ZERO_BASED, ..BIND };
        let local = Bind { access: Access::REMOTE | Access::LOCAL_WRITE, ..BIND };
        let carries = Access::LOCAL_WRITE | Access::MW_BIND;
        for (kind, of, refusal) in [
            (Kind::Window1, WindowType::Type1, Err(Reason::ZeroBasedWindow)),
            (Kind::Window2A, WindowType::Type2, Ok(())),
            (Kind::Window2B, WindowType::Type2, Ok(())),
        ] {
            let window = object(State::Free, kind, Access::empty());
            assert_eq!(may_bind(&window, of, &BIND, &STAMP), Ok(()));
            assert_eq!(may_bind(&window, of, &zero_based, &STAMP), refusal);
            let unknown = Err(Reason::UnknownRights);
            assert_eq!(may_bind(&window, of, &local, &STAMP), unknown);
            let region = |access| object(State::Valid, Kind::Region, access);
            let place = |access| bound_place(&region(access), of, &BIND, &STAMP);
            assert_eq!(place(carries), Ok(BASE));
            let refusal = refusal.map(|()| BASE).map_err(|_| Reason::ZeroBasedRegion);
            assert_eq!(place(carries | Access::ZERO_BASED), refusal);
        }
        // An unbind says what rights the window shall have, and is held to that.
        let window = object(State::Valid, Kind::Window1, Access::REMOTE);
        let unbind = Bind { length: 0, ..zero_based };
        let refusal = may_bind(&window, WindowType::Type1, &unbind, &STAMP);
        assert_eq!(refusal, Err(Reason::ZeroBasedWindow));
        assert_eq!(Reason::ZeroBasedWindow.rule(Operation::Bind), "T1-05");
        assert_eq!(Reason::ZeroBasedRegion.rule(Operation::Bind), "T1-06");
    }

    /// A right of the queue pair, then its resources, then alignment and length: no key is known here.
    /// Rules: RA-06, RA-09, AT-02, AT-16, AT-17, RA-39
    #[test]
    fn the_queue_pair_is_asked_in_order() {
        let gate = Gate {
            state: crate::qp::QpState::Rts,
            service: crate::qp::Service::Rc,
            access: Access::all(),
            read_resources: 1,
            pd: STAMP.pd,
            bypass: Bypass::Free,
        };
        let none = Gate { access: Access::empty(), read_resources: 0, ..gate };
        let unread = Gate { access: Access::all(), ..none };
        let unreliable = Gate { service: crate::qp::Service::Uc, ..gate };
        for operation in Operation::ALL.iter().copied() {
            let needs = operation.needs();
            let key = Key(0);
            let attempt = Attempt { operation, key, address: 1, length: 7, qp: 8, pd: 3 };
            let aligned = Attempt { address: 8, ..attempt };
            assert_eq!(admit(&gate, &aligned, 8), Ok(()));
            if needs.word.is_some() {
                assert_eq!(admit(&gate, &attempt, 7), Err(Reason::Misaligned));
                assert_eq!(admit(&gate, &aligned, 7), Err(Reason::AtomicLength));
            } else {
                assert_eq!(admit(&gate, &attempt, MAX_MESSAGE), Ok(()));
                assert_eq!(admit(&gate, &attempt, MAX_MESSAGE + 1), Err(Reason::TooLong));
            }
            if needs.responder_resources {
                assert_eq!(admit(&unreliable, &attempt, 7), Err(Reason::WrongService));
                assert_eq!(admit(&none, &attempt, 7), Err(Reason::QpRightMissing));
                assert_eq!(admit(&unread, &attempt, 7), Err(Reason::NoReadResources));
            }
            let barred = needs.queue_pair.is_empty();
            assert_eq!(admit(&none, &aligned, 8).is_ok(), barred, "{operation:?}");
        }
    }
}
