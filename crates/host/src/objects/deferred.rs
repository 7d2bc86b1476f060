//! Work that queue pairs leave until no lock of theirs is held.

use transom_device::execution::QueueSide;

use super::Adapter;

/// One thing of this kind.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// Flush this queue of a queue pair. The other queue brought it into error.
    Flush(u16, QueueSide),
    /// Start the rendezvous that wait for a queue pair.
    Rendezvous(u16),
    /// A completion queue has overrun, so all its queue pairs are in error (rule CQ-05).
    Overrun(u64),
}

/// Work to do as soon as no queue's lock is held, because it takes other locks. The caller that locks first owns the
/// list, hands it down, and does the work at the end. Nobody else does it, so nothing is left over when a call returns.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Deferred(Vec<Task>);

impl Deferred {
    /// Flush this queue of a queue pair that fell into error.
    pub(crate) fn flush(&mut self, qp_index: u16, side: QueueSide) {
        self.0.push(Task::Flush(qp_index, side));
    }

    /// Start the rendezvous that wait for a queue pair.
    pub(crate) fn start_rendezvous(&mut self, qp_index: u16) {
        self.0.push(Task::Rendezvous(qp_index));
    }

    /// The completion queue of this id has overrun.
    pub(crate) fn fail_users(&mut self, cq: u64) {
        self.0.push(Task::Overrun(cq));
    }

    /// Does all of it, and the work that comes from it.
    #[inline]
    pub(crate) fn run(self, adapter: &Adapter) {
        if !self.0.is_empty() {
            self.run_all(adapter);
        }
    }

    #[cold]
    fn run_all(mut self, adapter: &Adapter) {
        let mut done = 0;
        while let Some(task) = self.0.get(done).copied() {
            done += 1;
            match task {
                Task::Flush(index, side) => {
                    if let Some(qp) = adapter.queue_pairs.get(index) {
                        qp.flush(side, &mut self);
                    }
                }
                Task::Rendezvous(index) => {
                    if let Some(qp) = adapter.queue_pairs.get(index) {
                        qp.start_rendezvous(&mut self);
                    }
                }
                Task::Overrun(cq) => {
                    for qp in adapter.queue_pairs.all() {
                        if qp.feeds(cq) {
                            qp.fail_fatally(&mut self);
                        }
                    }
                }
            }
        }
    }
}
