//! The sentence for a refused access.

use std::fmt;

use transom_device::Access;
use transom_device::operation::{Operation, Subject};
use transom_device::protection::{Kind as ObjectKind, Reason, Refusal, State};

use super::super::named::{Age, Bytes, InC, Rights};
use super::{Meant, RefusalRecord, Role};

/// The sentence for a person.
impl fmt::Display for RefusalRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempt = &self.refusal.attempt;
        let needs = attempt.operation.needs();
        write!(f, "{}", needs.name)?;
        match needs.subject {
            Subject::RemoteWindow | Subject::LocalWindow => {}
            Subject::Receive => write!(f, " of {}", Bytes(attempt.length))?,
            Subject::RemoteMemory
            | Subject::LocalSource
            | Subject::LocalDestination
            | Subject::Binding => {
                write!(f, " of {} at {:#x}", Bytes(attempt.length), attempt.address)?;
            }
        }
        if needs.subject != Subject::Receive {
            write!(f, " with key {}", attempt.key)?;
        }
        match self.role() {
            Role::Target => write!(f, " from QP {:#x} to QP {:#x}: ", self.peer, attempt.qp)?,
            Role::Origin => write!(f, " by QP {:#x}: ", attempt.qp)?,
        }
        if self.meant == Some(Meant::Rehearsed) {
            return write!(
                f,
                "`transom rehearse` made it fail, as an adapter may at any time (rule REH-35)"
            );
        }
        self.why(f)?;
        let is_own = self.role() == Role::Origin;
        match self.meant {
            None | Some(Meant::Rehearsed) => {}
            Some(Meant::Unregistered) => write!(
                f,
                ". No region has this memory: register it (ibv_reg_mr), and use that region's lkey"
            )?,
            Some(Meant::OtherRegion { base, length }) if is_own => {
                write!(f, ". The region [{base:#x}, +{length}) has this memory: use its lkey")?;
            }
            Some(Meant::OtherRegion { base, length }) => write!(
                f,
                ". The region [{base:#x}, +{length}) there has this memory: is the rkey that of \
                 another region than remote_addr?"
            )?,
            Some(Meant::SwappedKey) => write!(
                f,
                ". The key is right with its bytes swapped: it was sent in the other byte order (htonl, ntohl)"
            )?,
            Some(Meant::SwappedAddress) => write!(
                f,
                ". The address is right with its bytes swapped: it was sent in the other byte order"
            )?,
        }
        write!(f, " (rule {})", self.refusal.rule())
    }
}

/// Atomics have fields of their own in a work request.
const fn is_atomic(operation: Operation) -> bool {
    matches!(operation, Operation::CompareSwap | Operation::FetchAdd)
}

impl RefusalRecord {
    /// Whether the key belonged to an object that has ended, and no other object has its slot yet.
    fn has_ended(&self) -> bool {
        let Refusal { attempt, object, .. } = &self.refusal;
        object.state == State::Vacant && object.since != 0 && object.byte == attempt.key.byte()
    }

    /// Whether so many bytes outside the region or window are no slip: it is other memory.
    fn is_far(&self, outside: u64) -> bool {
        const SLIP: u64 = 1 << 20;
        outside > self.refusal.object.length.saturating_add(SLIP)
    }

    fn why(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { reason, attempt, object } = &self.refusal;
        let end = u128::from(attempt.address) + u128::from(attempt.length);
        let object_end = u128::from(object.base) + u128::from(object.length);
        let thing = Thing::new(self);
        match reason {
            Reason::UnknownIndex | Reason::StaleKey if attempt.key.0 == 0 => {
                let forgotten = match attempt.operation.needs().subject {
                    Subject::RemoteMemory if is_atomic(attempt.operation) => {
                        "was the rkey sent, and set (wr.atomic.rkey)?"
                    }
                    Subject::RemoteMemory => "was the rkey sent, and set (wr.rdma.rkey)?",
                    Subject::RemoteWindow => "was the rkey sent, and set (invalidate_rkey)?",
                    Subject::LocalSource | Subject::LocalDestination => {
                        "was sge.lkey = mr->lkey forgotten?"
                    }
                    Subject::LocalWindow | Subject::Binding | Subject::Receive => {
                        "no region or window has it"
                    }
                };
                write!(f, "the key is 0: {forgotten}")
            }
            Reason::UnknownIndex if self.has_ended() => {
                let ended = if object.kind.is_region() { "deregistered" } else { "deallocated" };
                let what = if object.kind.is_region() { "region" } else { "window" };
                write!(f, "the key was that of the {what}")?;
                if object.length > 0 {
                    write!(f, " [{:#x}, +{})", object.base, object.length)?;
                }
                write!(f, ", which was {ended} {} before", Age(self.age))
            }
            Reason::UnknownIndex => write!(
                f,
                "no region or window has this key; it was never handed out, or the object is gone"
            ),
            Reason::StaleKey if object.kind.is_region() => write!(
                f,
                "no region has this key. The region [{:#x}, +{}) in its place has {}: was the key \
                 changed on its way (ibv_inc_rkey is for windows only), or is it that of an earlier \
                 region, which was deregistered?",
                object.base,
                object.length,
                attempt.key.with_byte(object.byte)
            ),
            Reason::StaleKey => write!(
                f,
                "the key is out of date: the window has been bound or unbound since and its key \
                 now ends in {:#04x}",
                object.byte
            ),
            Reason::FreeWindow if object.state == State::Changing => {
                write!(f, "the key is being revoked or changed at this moment")
            }
            // No queue pair has number zero, so nobody has bound it.
            Reason::FreeWindow if object.qp == 0 => {
                write!(f, "the window is not bound: it was allocated and never bound")
            }
            Reason::FreeWindow => write!(
                f,
                "the window is no longer bound: it was revoked; it had been bound to [{:#x}, +{}) \
                 by QP {:#x} as wr_id {}, {} before",
                object.base,
                object.length,
                object.qp,
                object.wr_id,
                Age(self.age)
            ),
            Reason::OtherPd => {
                write!(
                    f,
                    "{thing}, belongs to another protection domain ({}) than the queue pair ({}): ",
                    object.pd, attempt.pd
                )?;
                match object.kind.is_region() {
                    true => write!(f, "register it with the ibv_pd of the queue pair"),
                    false => write!(f, "allocate it with the ibv_pd of the queue pair"),
                }
            }
            Reason::OtherQp => {
                write!(f, "{thing}, may be used through QP {:#x} only, which bound it", object.qp)
            }
            Reason::RightMissing => self.right_missing(f),
            Reason::BelowStart => {
                let outside = object.base.saturating_sub(attempt.address);
                if attempt.address != 0 && self.is_far(outside) {
                    return write!(f, "the range is not in {thing}");
                }
                let outside = Bytes(outside);
                write!(f, "the range begins {outside} before the start of {thing}")?;
                let forgotten = match (self.role(), attempt.operation) {
                    _ if attempt.address != 0 => return Ok(()),
                    (Role::Origin, Operation::Bind) => "was bind_info.addr forgotten?",
                    (Role::Origin, _) => "was sge.addr forgotten?",
                    (Role::Target, it) if is_atomic(it) => {
                        "was it sent, and set (wr.atomic.remote_addr)?"
                    }
                    (Role::Target, _) => "was it sent, and set (wr.rdma.remote_addr)?",
                };
                write!(f, ". The address is 0: {forgotten}")
            }
            Reason::PastEnd if u128::from(attempt.address) == object_end => {
                write!(f, "the range begins at the end of {thing}")
            }
            Reason::PastEnd if u128::from(attempt.address) > object_end => {
                let behind = (u128::from(attempt.address) - object_end) as u64;
                if self.is_far(behind) {
                    return write!(f, "the range is not in {thing}");
                }
                write!(f, "the range begins {} behind the end of {thing}", Bytes(behind))
            }
            Reason::PastEnd => {
                let outside = Bytes(end.saturating_sub(object_end) as u64);
                write!(f, "the range goes {outside} past the end of {thing}")
            }
            Reason::Wraps => write!(f, "the range goes past the end of the address space"),
            Reason::Misaligned => write!(f, "an atomic needs an address that is a multiple of 8"),
            Reason::NotARegion => write!(f, "a window's key cannot be used for local buffers"),
            Reason::QpRightMissing => write!(
                f,
                "qp_access_flags of QP {:#x} are {}: add {} in its change to INIT",
                attempt.qp,
                InC(self.qp_access),
                InC(attempt.operation.needs().queue_pair.difference(self.qp_access))
            ),
            Reason::NoReadResources => {
                write!(
                    f,
                    "the queue pair serves no READ or atomic now (max_dest_rd_atomic is 0 or used up)"
                )
            }
            Reason::NoReadsSent => {
                write!(f, "the queue pair sends no READ or atomic (its max_rd_atomic is 0)")
            }
            Reason::TooLong => write!(f, "a message has at most 2^31 bytes"),
            Reason::MemoryGone => {
                write!(f, "the key allows it, but the program has unmapped or protected the memory")
            }
            Reason::ReceiveTooSmall => {
                write!(
                    f,
                    "the receive posted for it has room for {}. Post receives as long as the longest \
                     message",
                    Bytes(object.length)
                )
            }
            Reason::RegionForbidsBinding => write!(
                f,
                "the region was registered without MW_BIND: add IBV_ACCESS_MW_BIND to its ibv_reg_mr"
            ),
            Reason::RegionNotWritable => write!(
                f,
                "a window with REMOTE_WRITE or REMOTE_ATOMIC needs a region with LOCAL_WRITE: add \
                 IBV_ACCESS_LOCAL_WRITE to its ibv_reg_mr"
            ),
            Reason::WindowNotFree => write!(
                f,
                "{thing}, is in force; a type 2 window is invalidated before it is bound again"
            ),
            Reason::EmptyWindow => {
                write!(
                    f,
                    "a type 2 window cannot be bound with length 0; use LOCAL_INV to unbind it"
                )
            }
            Reason::WrongType => write!(f, "the window is of the other type"),
            Reason::NotAWindow => {
                write!(f, "the key is that of a region; only a window can be invalidated")
            }
            Reason::UnknownRights => write!(f, "a window cannot have these rights"),
            Reason::ZeroBasedWindow => write!(f, "a type 1 window cannot be zero-based"),
            Reason::ZeroBasedRegion => {
                write!(f, "a type 1 window cannot be bound to a zero-based region")
            }
            Reason::WrongService => {
                write!(f, "this kind of queue pair does not have the operation")
            }
            Reason::AtomicLength => write!(f, "an atomic works on exactly 8 bytes"),
            Reason::UnknownSrq => write!(
                f,
                "the XRC domain has no shared receive queue with the number that the message names"
            ),
            Reason::PacketOrder => {
                write!(f, "the packet is of no known operation, or cannot follow the one before it")
            }
            Reason::PacketLength => write!(
                f,
                "the packet is not as long as its message asks for; both ends need the same path_mtu"
            ),
            Reason::InjectedAccess => write!(f, "{INJECTED} NAK remote access error"),
            Reason::InjectedRequest => write!(f, "{INJECTED} NAK invalid request"),
            Reason::InjectedOperational => write!(f, "{INJECTED} NAK remote operational error"),
        }
    }
}

impl RefusalRecord {
    /// The rights that a region or a window grants, and those to add.
    fn right_missing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { attempt, object, .. } = &self.refusal;
        let mut lacks = attempt.operation.rights().difference(object.access);
        // Rights of peers to write go with it (rule MR-04).
        if object.kind.is_region() && lacks.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        {
            lacks |= Access::LOCAL_WRITE.difference(object.access);
        }
        write!(f, "{}, grants {}", Thing::without_rights(self), Rights(object.access))?;
        let only = if Rights(object.access).is_empty() { "" } else { " only" };
        match object.kind {
            kind if !kind.is_region() && lacks.contains(Access::FLUSH_GLOBAL) => {
                write!(f, "{only}, and a FLUSH needs the key of a region with {}", InC(lacks))
            }
            ObjectKind::Null => write!(f, ", and the operation needs {lacks}"),
            ObjectKind::Region => write!(f, "{only}: add {} to its ibv_reg_mr", InC(lacks)),
            _ => write!(f, "{only}: add {} to its bind", InC(lacks)),
        }
    }
}

/// For a refusal that is not the program's fault.
const INJECTED: &str = "injected by `transom run --fault`, not carried out and answered with";

/// The region or window: its bounds, its rights, who bound it and when. A comma belongs behind it if words follow.
struct Thing<'a> {
    of: &'a RefusalRecord,
    has_rights: bool,
}

impl<'a> Thing<'a> {
    fn new(of: &'a RefusalRecord) -> Self {
        Self { of, has_rights: true }
    }

    /// The same, where its rights are told otherwise.
    fn without_rights(of: &'a RefusalRecord) -> Self {
        Self { of, has_rights: false }
    }
}

impl fmt::Display for Thing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = &self.of.refusal.object;
        if object.state == State::Free && !object.kind.is_region() {
            return write!(f, "the window, which is not bound");
        }
        let age = Age(self.of.age);
        if object.kind == ObjectKind::Null {
            return write!(f, "the null region, allocated {age} before");
        }
        let what = if object.kind == ObjectKind::Region { "region" } else { "window" };
        write!(f, "the {what} [{:#x}, +{})", object.base, object.length)?;
        if self.has_rights {
            write!(f, " with {}", Rights(object.access))?;
        }
        match object.kind {
            ObjectKind::Region => write!(f, ", registered {age} before"),
            _ => {
                write!(f, ", bound by QP {:#x} as wr_id {}, {age} before", object.qp, object.wr_id)
            }
        }
    }
}
