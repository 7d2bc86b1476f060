//! What queue pairs leave to be done until the locks of none are held.

use transom_device::execution::QueueSide;

use super::Adapter;

/// One thing of this kind.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// Flush this queue of a queue pair that fell into error from the other.
    Flush(u16, QueueSide),
    /// Start the rendezvous that wait on a queue pair.
    Rendezvous(u16),
    /// A completion queue has overrun: all its queue pairs are in error (rule CQ-05).
    Overrun(u64),
}

/// What is to be done as soon as the locks of no queue are held, for it takes others: whoever locks first
/// owns the list, hands it down, and does what it says in the end. Nobody else does it for him, so nothing
/// is left lying about when a call returns.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Deferred(Vec<Task>);

impl Deferred {
    /// Flush this queue of a queue pair that fell into error.
    pub(crate) fn flush(&mut self, qp_index: u16, side: QueueSide) {
        self.0.push(Task::Flush(qp_index, side));
    }

    /// Start the rendezvous that wait on a queue pair.
    pub(crate) fn start_rendezvous(&mut self, qp_index: u16) {
        self.0.push(Task::Rendezvous(qp_index));
    }

    /// The completion queue of this id has overrun.
    pub(crate) fn fail_users(&mut self, cq: u64) {
        self.0.push(Task::Overrun(cq));
    }

    /// Does it all, with what comes of it.
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
