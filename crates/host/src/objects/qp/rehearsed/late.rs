//! A send queue that begins its requests late in a rehearsal.

use parking_lot::Mutex;
use transom_device::execution::Requester;
use transom_system::clock;
use transom_system::threads::Moment;

use super::Rehearsed;

/// A wait that goes on lasts at least so much longer, in nanoseconds.
const LEAST: u64 = 50_000;
/// A wait goes on for so long at most, in nanoseconds: the thread may get a processor seldom, and no program is to run
/// into a time-out of its own.
const LONGEST: u64 = 100_000_000;

/// The last wait of a send queue.
#[derive(Debug, Default)]
pub(super) struct Late(Mutex<Option<Wait>>);

#[derive(Debug)]
struct Wait {
    /// How long it was to be, in nanoseconds.
    length: u64,
    /// When it ends in any case.
    latest: u64,
    /// When in the life of the posting thread it began.
    moment: Moment,
}

impl Late {
    /// Has the send queue begin no request for so many nanoseconds, unless it waits already.
    pub(super) fn begin(&self, requester: &mut Requester, wait: u64) {
        if !requester.is_held() {
            let now = clock::steady();
            let latest = now + LONGEST;
            *self.0.lock() = Moment::now().map(|moment| Wait { length: wait, latest, moment });
            requester.hold(now + wait);
        }
    }
}

impl Rehearsed {
    /// The end of a wait has come. If the thread that posted waited for a processor meanwhile, what it wants to do
    /// before that end is still to come: the answer is when to look again.
    #[cold]
    pub(in super::super) fn waits_on(&self) -> Option<u64> {
        let mut late = self.late.0.lock();
        let now = clock::steady();
        let goes_on = late.as_ref().filter(|wait| now < wait.latest);
        let end = goes_on.and_then(|wait| {
            let lacks = wait.moment.lacks(wait.length)?;
            Some((now + lacks.max(LEAST)).min(wait.latest))
        });
        if end.is_none() {
            *late = None;
        }
        end
    }
}
