//! The tagged buffers of a shared receive queue, waiting for messages with their tag
//! (`ibv_post_srq_ops(3)`).
//!
//! Software handles the messages that no buffer waited for, and may add a buffer for a message that is already on its
//! way to software. So once a message was unexpected, buffers added later match nothing until software has reported as
//! many unexpected messages as there were. Otherwise a later message would overtake an earlier one.

use std::collections::VecDeque;

use super::{
    Completion, Flags, Opcode, PostError, Receive, Sge, SizeError, Status, TagPart, filled,
    room_for,
};

/// Scatter/gather entries of a tagged buffer.
pub const TAG_MAX_SGE: usize = 4;

/// The queue pair number of list operations: they have no queue pair, and no queue pair has this number.
const NO_QUEUE_PAIR: u32 = 0xff_ffff;

/// A list operation.
#[derive(Clone, Copy, Debug)]
pub enum TagChange<'a> {
    /// Adds a buffer for a message whose tag, under `mask`, is `tag`.
    Add {
        /// The consumer's number of the receive.
        receive: u64,
        /// The tag.
        tag: u64,
        /// The bits of a message's tag that count.
        mask: u64,
        /// The buffer.
        sges: &'a [Sge],
    },
    /// Removes the buffer of this handle.
    Remove(u32),
    /// Changes nothing.
    Sync,
}

/// A list operation.
#[derive(Clone, Copy, Debug)]
pub struct TagRequest<'a> {
    /// The consumer's number.
    pub wr_id: u64,
    /// Report success too.
    pub signaled: bool,
    /// How many unexpected messages software has handled, if it reports that.
    pub unexpected: Option<u32>,
    /// The change.
    pub change: TagChange<'a>,
}

/// The result of a list operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagDone {
    /// The handle of a buffer that was added.
    pub handle: Option<u32>,
    /// The completion to report.
    pub completion: Option<Completion>,
}

/// A tagged buffer.
#[derive(Clone, Copy, Default)]
struct Tagged {
    /// The handle for software: its slot, and how often the slot was used before.
    handle: u32,
    receive: u64,
    tag: u64,
    mask: u64,
    num_sge: usize,
    sges: [Sge; TAG_MAX_SGE],
}

/// The tagged buffers of a queue, in a fixed number of slots.
pub struct TagList {
    slots: Box<[Tagged]>,
    /// The slots in use, in the order of addition.
    order: Vec<u16>,
    /// The handles that come next; a slot is used again as late as possible.
    free: VecDeque<u32>,
    /// How many of `order`, from the first on, match messages.
    matching: usize,
    /// Unexpected messages, modulo 2^32.
    unexpected: u32,
    /// How many of them software has handled, as it said last.
    reported: u32,
}

/// The slot of a handle.
fn slot(handle: u32) -> u16 {
    handle as u16
}

impl TagList {
    /// A list for up to `size` buffers, at most 2^16; their memory is taken now.
    pub fn new(size: usize) -> Result<Self, SizeError> {
        let mut free = room_for(size)?;
        free.extend(0..size as u32);
        Ok(Self {
            slots: filled(Tagged::default(), size)?,
            order: room_for(size)?,
            free: free.into(),
            matching: 0,
            unexpected: 0,
            reported: 0,
        })
    }

    /// Carries out a list operation. A refused one has changed nothing.
    pub fn apply(&mut self, request: &TagRequest<'_>) -> Result<TagDone, PostError> {
        if let TagChange::Add { sges, .. } = request.change {
            if sges.len() > TAG_MAX_SGE {
                return Err(PostError::TooManySges);
            }
            if self.free.is_empty() {
                return Err(PostError::Full);
            }
        }
        if let Some(count) = request.unexpected {
            self.report(count);
        }
        let (mut handle, mut status) = (None, Status::Success);
        let opcode = match request.change {
            TagChange::Add { receive, tag, mask, sges } => {
                handle = self.add(receive, tag, mask, sges);
                Opcode::TagAdd
            }
            TagChange::Remove(handle) => {
                if !self.remove(handle) {
                    status = Status::TagMatching;
                }
                Opcode::TagRemove
            }
            TagChange::Sync => Opcode::TagSync,
        };
        let reported = request.signaled || status != Status::Success;
        let completion = reported.then(|| {
            let flags = if self.is_in_sync() { Flags::empty() } else { Flags::TAG_SYNC_REQUIRED };
            Completion { flags, ..Completion::new(request.wr_id, status, opcode, NO_QUEUE_PAIR) }
        });
        Ok(TagDone { handle, completion })
    }

    /// Moves the buffer that matches a message's tag into `receive`: of several, the one that was
    /// added first. Without one, false.
    pub fn take(&mut self, tag: u64, receive: &mut Receive) -> bool {
        let waiting = &self.order[..self.matching];
        let found = waiting.iter().position(|&slot| {
            let tagged = &self.slots[usize::from(slot)];
            tag & tagged.mask == tagged.tag
        });
        let Some(place) = found else { return false };
        let tagged = self.take_out(place);
        let sges = &tagged.sges[..tagged.num_sge];
        receive.wr_id = tagged.receive;
        receive.length = sges.iter().map(|sge| u64::from(sge.length)).sum();
        receive.part = TagPart::Matched;
        receive.sges.clear();
        receive.sges.extend_from_slice(sges);
        true
    }

    /// Notes that a message with a tag went to an ordinary receive: buffers added from now on have
    /// to wait.
    pub fn note_unexpected(&mut self) -> TagPart {
        self.unexpected = self.unexpected.wrapping_add(1);
        TagPart::Unexpected { sync_required: self.matching < self.order.len() }
    }

    /// A message that was noted as unexpected has failed: software cannot handle it.
    pub fn forget_unexpected(&mut self) {
        self.unexpected = self.unexpected.wrapping_sub(1);
        self.match_all_if_in_sync();
    }

    fn add(&mut self, receive: u64, tag: u64, mask: u64, sges: &[Sge]) -> Option<u32> {
        let handle = self.free.pop_front()?;
        let mut tagged =
            Tagged { handle, receive, tag, mask, num_sge: sges.len(), ..Tagged::default() };
        tagged.sges[..sges.len()].copy_from_slice(sges);
        self.slots[usize::from(slot(handle))] = tagged;
        self.order.push(slot(handle));
        self.match_all_if_in_sync();
        Some(handle)
    }

    /// Removes a buffer. False if it is not there, for example because a message has taken it.
    fn remove(&mut self, handle: u32) -> bool {
        let is_it = |place: &u16| {
            *place == slot(handle) && self.slots[usize::from(*place)].handle == handle
        };
        let place = self.order.iter().position(is_it);
        place.map(|place| self.take_out(place)).is_some()
    }

    /// Software has handled `count` unexpected messages. An old count that comes after the right one
    /// changes nothing.
    fn report(&mut self, count: u32) {
        if !self.is_in_sync() {
            self.reported = count;
            self.match_all_if_in_sync();
        }
    }

    fn is_in_sync(&self) -> bool {
        self.reported == self.unexpected
    }

    fn match_all_if_in_sync(&mut self) {
        if self.is_in_sync() {
            self.matching = self.order.len();
        }
    }

    fn take_out(&mut self, place: usize) -> Tagged {
        let tagged = self.slots[usize::from(self.order.remove(place))];
        self.matching -= usize::from(place < self.matching);
        self.free.push_back(tagged.handle.wrapping_add(1 << 16));
        tagged
    }
}

#[cfg(test)]
mod tests;
