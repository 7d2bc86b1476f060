//! Messages to a shared receive queue with tag matching (`ibv_post_srq_ops(3)`): their headers, and the part of them
//! that goes into a tagged buffer.
//!
//! A message that is too short for the header of its kind, or of an unknown kind, counts as one without a tag: software
//! gets all of it. So does the end of a rendezvous, which software waits for.

use std::collections::VecDeque;

use transom_wire::tmh::{RVH_BYTES, RendezvousHeader, TMH_BYTES, TagHeader, TagOperation};

use super::super::rendezvous::{MAX_RENDEZVOUS, Rendezvous};
use super::super::{Context, CopyError, Effect, Effects, Request, Source};
use super::Responder;
use crate::protection::Key;
use crate::queue::{Completion, Flags, Opcode, Status, TagPart};

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// Nothing that a tag is matched with.
    NoTag,
    /// The data follows.
    Eager(TagHeader),
    /// The data is to be read.
    Rendezvous(TagHeader, RendezvousHeader),
}

/// The additional state of a responder that matches tags.
pub(super) struct TagMatching {
    /// The header of the message under way.
    message: Message,
    /// The rendezvous to be started, oldest first.
    waiting: VecDeque<Rendezvous>,
}

impl TagMatching {
    pub(super) fn new() -> Self {
        Self { message: Message::NoTag, waiting: VecDeque::with_capacity(MAX_RENDEZVOUS) }
    }

    pub(super) fn reset(&mut self) {
        self.waiting.clear();
    }

    /// Reads the header of a message that begins with this segment.
    fn look(&mut self, request: &Request, source: &mut dyn Source) -> Result<(), CopyError> {
        self.message = Message::NoTag;
        let mut tmh = [0; TMH_BYTES];
        if request.length < TMH_BYTES as u64 {
            return Ok(());
        }
        source.read(0, &mut tmh)?;
        let Some(header) = TagHeader::read(&tmh) else { return Ok(()) };
        self.message = match header.operation {
            TagOperation::NoTag | TagOperation::Finished => Message::NoTag,
            TagOperation::Eager => Message::Eager(header),
            TagOperation::Rendezvous if request.length < (TMH_BYTES + RVH_BYTES) as u64 => {
                Message::NoTag
            }
            TagOperation::Rendezvous => {
                let mut rvh = [0; RVH_BYTES];
                source.read(TMH_BYTES as u64, &mut rvh)?;
                Message::Rendezvous(header, RendezvousHeader::read(&rvh))
            }
        };
        Ok(())
    }

    fn tag(&self) -> Option<u64> {
        match self.message {
            Message::NoTag => None,
            Message::Eager(header) | Message::Rendezvous(header, _) => Some(header.tag),
        }
    }
}

/// How a message and its receive fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Bytes at the front of the message that are not placed.
    pub(super) skip: u64,
    /// Room that the receive must have.
    pub(super) needed: u64,
}

impl Responder {
    /// The tag of a message that is about to take a receive. `None` if it has none, or if tags are not matched here.
    pub(super) fn read_tag(
        &mut self,
        request: &Request,
        source: &mut dyn Source,
    ) -> Result<Option<u64>, CopyError> {
        let Some(matching) = self.receives.matching_mut().filter(|_| !self.message.has_taken)
        else {
            return Ok(None);
        };
        matching.look(request, source)?;
        Ok(matching.tag())
    }

    /// Whether the message asks for a rendezvous and as many as can wait do: it is to come again.
    pub(super) fn is_crowded(&self) -> bool {
        self.receives.matching().is_some_and(|matching| {
            !self.message.has_taken
                && matching.waiting.len() == MAX_RENDEZVOUS
                && matches!(matching.message, Message::Rendezvous(..))
        })
    }

    /// The request of a message that has taken a receive to a tagged buffer.
    fn matched(&self) -> Option<Message> {
        let matching =
            self.receives.matching().filter(|_| self.message.taken.part == TagPart::Matched);
        matching.map(|matching| matching.message)
    }

    /// How a message of `total` bytes goes into the receive it has taken: headers do not go into a tagged buffer, and
    /// nothing of a rendezvous request does. A repeated message need not have its old length.
    pub(super) fn extent(&self, total: u64) -> Extent {
        match self.matched() {
            Some(Message::Eager(_)) => {
                let skip = total.min(TMH_BYTES as u64);
                Extent { skip, needed: total - skip }
            }
            Some(Message::Rendezvous(_, remote)) => {
                Extent { skip: total, needed: u64::from(remote.length) }
            }
            Some(Message::NoTag) | None => Extent { skip: 0, needed: total },
        }
    }

    /// The opcode of the completion of a SEND that has taken a receive.
    pub(super) fn receive_opcode(&self) -> Opcode {
        match self.message.taken.part {
            TagPart::None => Opcode::Receive,
            TagPart::NoTag => Opcode::TagNone,
            TagPart::Unexpected { .. } | TagPart::Matched => Opcode::TagReceive,
        }
    }

    /// Describes in a completion how the message and its receive relate to tags.
    pub(super) fn describe(&self, completion: &mut Completion) {
        match (self.message.taken.part, self.matched()) {
            (TagPart::Unexpected { sync_required: true }, _) => {
                completion.flags |= Flags::TAG_SYNC_REQUIRED;
            }
            (_, Some(Message::Eager(header))) => {
                completion.flags |= Flags::TAG_MATCH | Flags::TAG_DATA_VALID;
                (completion.tag, completion.tag_context) = (header.tag, header.context);
            }
            (_, Some(Message::Rendezvous(header, _))) => {
                completion.flags |= Flags::TAG_MATCH;
                (completion.tag, completion.tag_context) = (header.tag, header.context);
            }
            _ => {}
        }
    }

    /// A rendezvous request is done: its data has to be read into the tagged buffer it took. The caller brings it to
    /// the send queue for that.
    pub(super) fn prepare_rendezvous<P>(&mut self, solicited: bool, cx: &mut Context<'_, P>) {
        let Some(Message::Rendezvous(header, remote)) = self.matched() else { return };
        let Some(matching) = self.receives.matching_mut() else { return };
        let mut rendezvous = Rendezvous {
            wr_id: self.message.taken.wr_id,
            header,
            address: remote.address,
            key: Key(remote.key),
            length: remote.length,
            solicited,
            num_sge: self.message.taken.sges.len(),
            sges: Default::default(),
        };
        rendezvous.sges[..rendezvous.num_sge].copy_from_slice(&self.message.taken.sges);
        matching.waiting.push_back(rendezvous);
        cx.effects.push(Effect::Rendezvous);
    }

    /// The message that had taken a receive failed. Software sees no message and cannot count it,
    /// so it does not count as unexpected.
    pub(super) fn forget_unexpected(&self, effects: &mut Effects) {
        if matches!(self.message.taken.part, TagPart::Unexpected { .. }) {
            effects.push(Effect::ForgetUnexpected);
        }
    }

    /// The next rendezvous to be started.
    pub fn next_rendezvous(&mut self) -> Option<Rendezvous> {
        self.receives.matching_mut()?.waiting.pop_front()
    }

    /// Completes as flushed the rendezvous that were not started.
    pub(super) fn flush_rendezvous<P>(&mut self, cx: &mut Context<'_, P>) {
        while let Some(rendezvous) = self.next_rendezvous() {
            let (status, opcode) = (Status::Flushed, Opcode::TagReceive);
            let completion = Completion::new(rendezvous.wr_id, status, opcode, cx.number.bits());
            cx.effects.complete(completion, false);
        }
    }
}
