//! The sentence for a refused call.

use std::fmt;

use transom_device::qp::Mask;

use super::super::holders::Holders;
use super::super::named::{Age, Attributes, SendOperations, StateNumber};
use super::{CallFault, CallRefusal, Name, SEND_QUEUE, advice};
use crate::addresses::Unreachable;

/// The sentence for a person.
impl fmt::Display for CallRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", advice::called(&self.verb.to_string()))?;
        if self.qp != 0 {
            write!(f, " on QP {:#x}", self.qp)?;
        }
        if self.fault == CallFault::Waits {
            return write!(f, " waits for {}", self.said);
        }
        write!(f, " answered {}", self.errno_name())?;
        let (field, value, limit, more) = (&self.field, self.value, self.limit, self.more);
        match self.fault {
            CallFault::Unnamed if field.is_empty() => {}
            CallFault::Unnamed => write!(f, ": {field}")?,
            CallFault::TooMuch => {
                write!(f, ": {field} is {value}, and may be at most {limit}")?;
                let (verb, field) = (self.verb.to_string(), field.to_string());
                if let Some((create, attribute)) = advice::asked_for(&verb, &field) {
                    write!(f, ", the {attribute} of the queue")?;
                    match more[0] {
                        0 => write!(f, ": ask {create} for more")?,
                        most if most > limit => {
                            write!(f, ": ask {create} for more, the device has {most}")?;
                        }
                        _ => write!(f, " and of the device: use fewer")?,
                    }
                }
            }
            CallFault::TooLittle => {
                write!(f, ": {field} is {value}, and must be {limit} at least")?;
            }
            CallFault::Unsupported => {
                write!(f, ": this device does not do what {field} asks for with {value:#x}")?;
            }
            CallFault::Invalid => match advice::of_invalid(&field.to_string(), value) {
                Some(advice) => write!(f, ": {advice}")?,
                None => write!(f, ": {field} cannot be {value:#x}")?,
            },
            CallFault::Unknown => {
                write!(f, ": {field} names nothing that is there")?;
                if field.as_bytes() != b"fd" {
                    write!(f, ": is it NULL, or destroyed?")?;
                }
            }
            CallFault::NoTransition => {
                write!(
                    f,
                    ": no queue pair goes from {} to {}",
                    StateNumber(value),
                    StateNumber(limit)
                )?;
                if let Some(way) = advice::way(value, limit) {
                    write!(f, ": it goes {way}")?;
                }
            }
            CallFault::Missing => {
                write!(f, ": a change to {} needs {} too", StateNumber(limit), Attributes(value))?;
            }
            CallFault::Excess => {
                write!(
                    f,
                    ": a change to {} does not take {}",
                    StateNumber(limit),
                    Attributes(value)
                )?;
            }
            CallFault::OutOfRange => write_out_of_range(f, value, more)?,
            CallFault::WrongState => {
                write!(f, ": the queue pair is in {}", StateNumber(value))?;
                if let Some(needs) = advice::needed_state(&self.verb.to_string(), value) {
                    write!(f, ", and {needs}")?;
                }
            }
            CallFault::WrongService => {
                write!(f, ": this type of queue pair does not have opcode {value}")?;
            }
            CallFault::Memory => write!(
                f,
                ": not all of the {limit} bytes from {value:#x} on are mapped, or not writable though \
                 the access asks for it"
            )?,
            CallFault::Exhausted => write!(f, ": there are as many as there may be")?,
            CallFault::NoGrh => write!(
                f,
                ": ah_attr.is_global is 0, and RoCE needs a GRH: is_global = 1, grh.dgid, \
                 grh.sgid_index (ping-pongs: -g INDEX, by the GIDs of `transom devices`)"
            )?,
            CallFault::OtherFamily => {
                let (own, other) = if limit == 0 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
                write!(
                    f,
                    ": grh.sgid_index is {value}, a GID of {own}, and grh.dgid is of {other}"
                )?;
                write!(f, ": `transom devices` lists the GIDs")?;
            }
            CallFault::Unreachable => {
                let gid = u128::from(value) << 64 | u128::from(limit);
                write!(f, ": {}", Unreachable::for_errno(gid.to_be_bytes(), self.errno))?;
            }
            CallFault::Full => write_full(f, field, value, more)?,
            CallFault::WindowsBound => write_bound(f, value, limit, more)?,
            CallFault::NotCreatedFor => write!(
                f,
                ": the queue pair was created without {} in its send_ops_flags",
                SendOperations(value)
            )?,
            CallFault::NoEntry if value < limit => {
                write!(f, ": {field} is {value}, and that entry of the table is empty")?;
            }
            CallFault::NoEntry => {
                let entries = if limit == 1 { "entry" } else { "entries" };
                write!(f, ": {field} is {value}, and the table has {limit} {entries}, from 0 on")?;
            }
            CallFault::Held => write!(f, ": {}", Holders::from_numbers(value, limit))?,
            CallFault::Told | CallFault::Waits => write!(f, ": {}", self.said)?,
        }
        if self.rule.is_empty() { Ok(()) } else { write!(f, " (rule {})", self.rule) }
    }
}

/// The attributes that are out of their ranges, the first one's value, and its range.
fn write_out_of_range(f: &mut fmt::Formatter<'_>, mask: u64, [is, most]: [u64; 2]) -> fmt::Result {
    // Of one that has a name in `ibv_qp_attr`, that says it all.
    let one = Mask::from_bits_retain(mask as u32);
    let name = advice::attribute_name(one).filter(|_| (is, most) != (0, 0));
    if let Some(name) = name {
        return write!(f, ": {name} is {is}, and may be at most {most}");
    }
    write!(f, ": out of range: {}", Attributes(mask))?;
    if (is, most) == (0, 0) {
        return Ok(());
    }
    let first = Mask::from_bits_retain(mask as u32).iter().next();
    if let Some(name) = first.and_then(advice::attribute_name) {
        return write!(f, "; {name} is {is}, and may be at most {most}");
    }
    match first {
        Some(Mask::PATH_MTU) => {
            write!(f, "; path_mtu is {is}, and takes an enum ibv_mtu, from 1 to {most}")?;
            let code =
                is.checked_ilog2().filter(|log| is.is_power_of_two() && (8..=12).contains(log));
            code.map_or(Ok(()), |log| write!(f, ": IBV_MTU_{is} is {}", log - 7))
        }
        Some(Mask::ACCESS_FLAGS) => write!(f, "; qp_access_flags are {is:#x}"),
        Some(Mask::PORT) => write!(f, "; port_num is {is}, and the device has port {most} only"),
        Some(_) => write!(f, "; the first of them is {is}, and may be at most {most}"),
        None => Ok(()),
    }
}

/// What to do about a queue that is full, if its queue pair is in ERR.
const IN_ERROR: &str = "The queue pair is in ERR, where nothing is carried out any more: look for what failed on it \
                        first, poll the completions of its work, and take it to RESET";

/// Why a queue is full.
fn write_full(
    f: &mut fmt::Formatter<'_>,
    queue: &Name<24>,
    places: u64,
    [waiting, in_error]: [u64; 2],
) -> fmt::Result {
    let done = places.saturating_sub(waiting);
    write!(
        f,
        ": all {places} places of the {queue} are taken, {waiting} by work that waits, {done} by"
    )?;
    if in_error != 0 {
        // Room for more work does not help then.
        return write!(f, " work that is done. {IN_ERROR}");
    }
    write!(
        f,
        " work that is done. A place is free when a completion at or behind it has been polled"
    )?;
    // Of receives each has a completion.
    if queue.as_bytes() == SEND_QUEUE.as_bytes() {
        write!(f, ": poll, and have one work request signaled now and then")?;
    }
    Ok(())
}

/// The windows that are bound to a region.
fn write_bound(
    f: &mut fmt::Formatter<'_>,
    count: u64,
    first: u64,
    [wr_id, age]: [u64; 2],
) -> fmt::Result {
    let (key, qp) = (first as u32, first >> 32);
    match count {
        0 => return write!(f, ": windows are bound to the region"),
        1 => write!(f, ": a window is bound to the region")?,
        count => write!(f, ": {count} windows are bound to the region; one")?,
    }
    write!(
        f,
        ", with key {key:#010x}, by QP {qp:#x} as wr_id {wr_id}, {} before. Invalidate it, bind it with \
         length 0 (type 1), or deallocate it first",
        Age(age)
    )
}
