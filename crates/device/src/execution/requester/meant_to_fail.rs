//! A request that fails because a rehearsal (`transom rehearse`) wants it to. It fails as others do: in its turn, and
//! with all the consequences.

use super::super::{Context, Process, Why};
use super::{Requester, Step};
use crate::queue::{PostError, SendRequest, Status};

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The status of its completion.
    pub status: Status,
    /// Its target carries it out before. Only the answer is lost.
    pub is_carried_out: bool,
}

/// The request that is meant to fail.
pub(super) struct MeantToFail {
    position: u64,
    ending: Ending,
}

impl Requester {
    /// Posts a request that fails in its turn. If an earlier one is meant to fail, it is flushed with the others.
    pub fn post_to_fail<P: Process>(
        &mut self,
        request: &SendRequest<'_>,
        ending: Ending,
        cx: &mut Context<'_, P>,
    ) -> Result<(), PostError> {
        let position = self.ring.tail();
        self.post_by(false, request, cx)?;
        // In error it has been flushed.
        if self.ring.head() <= position && self.meant_to_fail.is_none() {
            self.meant_to_fail = Some(MeantToFail { position, ending });
        }
        Ok(())
    }

    /// Whether a posted request is meant to fail.
    pub fn is_meant_to_fail(&self) -> bool {
        self.meant_to_fail.is_some()
    }

    /// Lets the next request fail, if it is meant to fail before it begins. All before it come to their end first.
    #[cold]
    pub(super) fn fail_in_turn<P: Process>(&mut self, cx: &mut Context<'_, P>) -> Option<Step> {
        let MeantToFail { position, ending } = self.meant_to_fail.as_ref()?;
        if *position != self.under_way.next || ending.is_carried_out {
            return None;
        }
        if self.under_way.next == self.ring.head() {
            self.fail_head(cx, ending.status, Why::Meant);
        }
        Some(Step::Waits)
    }

    /// Lets the oldest request fail, which would succeed, if it is meant to.
    #[cold]
    pub(super) fn fails_at_end<P: Process>(&mut self, cx: &mut Context<'_, P>) -> bool {
        let Some(MeantToFail { position, ending }) = &self.meant_to_fail else { return false };
        let fails = *position == self.ring.head();
        if fails {
            self.fail_head(cx, ending.status, Why::Meant);
        }
        fails
    }
}
