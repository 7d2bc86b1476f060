//! When a user wants the port to be down, or the device to go.

use transom_net::faults::Incident;
use transom_system::clock;

use super::{Device, PortChange};
use crate::events::AsyncEvent;

impl Device {
    /// Sees to it that outages and incidents come. An outage from the beginning is there already.
    pub(crate) fn schedule_faults(&self) {
        let Some(faults) = self.options().faults else { return };
        let now = clock::steady();
        for Incident { kind, at } in &faults.incidents {
            self.work.schedule_incident(now + at.nanoseconds(), *kind);
        }
        for (number, outage) in faults.outages.iter().enumerate() {
            let begins = now + outage.at.nanoseconds();
            let ends = begins + outage.lasts.nanoseconds();
            if begins == now {
                self.change_port(PortChange::Down(number));
            } else {
                self.work.schedule_outage(begins, PortChange::Down(number));
            }
            self.work.schedule_outage(ends, PortChange::Up(number));
        }
    }

    /// An outage begins or is over; the program is told of the first and of the last.
    pub(crate) fn change_port(&self, change: PortChange) {
        match change {
            PortChange::Down(_) if self.port().outages().begin() => {
                self.port_events.raise(AsyncEvent::PortError);
            }
            PortChange::Up(_) if self.port().outages().end() => {
                self.port_events.raise(AsyncEvent::PortActive);
            }
            _ => {}
        }
    }
}
