//! A send queue that begins its requests late in a rehearsal.

use parking_lot::Mutex;
use transom_device::execution::Requester;
use transom_system::clock;
use transom_system::threads::Moment;

use super::Rehearsed;

/// A wait is never longer by less than this, in nanoseconds.
const LEAST: u64 = 50_000;

/// The last wait of a send queue: how long it was to be, and when in the life of the posting thread it began.
#[derive(Debug, Default)]
pub(super) struct Late(Mutex<Option<(u64, Moment)>>);

impl Late {
    /// Has the send queue begin no request for so many nanoseconds, unless it waits already.
    pub(super) fn begin(&self, requester: &mut Requester, wait: u64) {
        if !requester.is_held() {
            *self.0.lock() = Moment::now().map(|moment| (wait, moment));
            requester.hold(clock::steady() + wait);
        }
    }
}

impl Rehearsed {
    /// The end of a wait has come. If the thread that posted waited for a processor meanwhile, what it wants to do
    /// before that end is still to come: the answer is when to look again.
    #[cold]
    pub(in super::super) fn waits_on(&self) -> Option<u64> {
        let mut late = self.late.0.lock();
        let lacks = late.as_ref().and_then(|(wait, moment)| moment.lacks(*wait));
        if lacks.is_none() {
            *late = None;
        }
        Some(clock::steady() + lacks?.max(LEAST))
    }
}
