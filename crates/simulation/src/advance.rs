//! When queue pairs go on: by themselves, at their alarms, when there is room on the link.

use crate::endpoint::Endpoint;
use crate::model::{At, Cause};
use crate::node::Node;
use crate::port::Port;
use crate::world::{Event, Shared};

impl Shared {
    /// Has a queue pair do what it can, and arranges for the next look at it.
    pub fn advance(&self, at: At) {
        self.go_on(at, |endpoint, port| endpoint.advance(port));
    }

    fn go_on(&self, at: At, step: impl FnOnce(&mut Endpoint, &Port<'_>)) {
        let qp = self.nodes[at.device].qp(at.qp);
        let port = Port { shared: self, at, qp: &qp, cause: &Cause::Itself };
        let mut endpoint = qp.endpoint.borrow_mut();
        step(&mut endpoint, &port);
        let deadline = endpoint.requester.deadline();
        if let Some(deadline) = deadline
            && qp.alarm.replace(Some(deadline)) != Some(deadline)
        {
            let time = self.nodes[at.device].clock.time_of(deadline);
            self.schedule(time.max(self.now() + 1), Event::Alarm(at));
        }
    }

    /// A queue pair's alarm goes off.
    pub fn alarm(&self, at: At) {
        let qp = self.nodes[at.device].qp(at.qp);
        let now = self.nodes[at.device].clock.at(self.now());
        if qp.alarm.get().is_some_and(|alarm| alarm <= now) {
            self.say(|| format!("{at} looks at its clock"));
            qp.alarm.set(None);
            self.go_on(at, |endpoint, port| endpoint.look_at_clock(port));
        }
    }

    /// A packet has left a device's link. Queue pairs that waited for room continue.
    pub fn leave(&self, device: usize) {
        let Node { egress, qps, .. } = &self.nodes[device];
        egress.pending.set(egress.pending.get() - 1);
        if egress.pending.get() <= egress.depth / 2 && egress.was_full.take() {
            let count = qps.borrow().len();
            for qp in 0..count {
                self.advance(At { device, qp });
            }
        }
    }
}
