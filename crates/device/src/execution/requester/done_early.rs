//! Requests that a rehearsal (`transom rehearse`) has carried out as they were posted, before earlier ones that do not
//! come before them. They complete in their turn.

use super::super::{Context, Process};
use super::{Requester, Step};
use crate::queue::{PostError, SendRequest, Status};

impl Requester {
    /// Posts a request that has been carried out with success.
    pub fn post_done<P: Process>(
        &mut self,
        request: &SendRequest<'_>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), PostError> {
        let position = self.ring.tail();
        self.post_by(false, request, cx)?;
        self.done_early.push_back(position);
        Ok(())
    }

    /// Completes the next request if it has been carried out, and all before it have come to their end.
    #[cold]
    pub(super) fn complete_early<P: Process>(&mut self, cx: &mut Context<'_, P>) -> Option<Step> {
        // Those that were flushed are gone.
        let head = self.ring.head();
        while self.done_early.front().is_some_and(|position| *position < head) {
            self.done_early.pop_front();
        }
        let position = self.under_way.next;
        if self.done_early.front() != Some(&position) {
            return None;
        }
        if position != head {
            return Some(Step::Waits);
        }
        self.done_early.pop_front();
        self.under_way.next += 1;
        self.complete_head(cx, Status::Success, self.ring.at(position).length);
        Some(Step::Done)
    }
}
