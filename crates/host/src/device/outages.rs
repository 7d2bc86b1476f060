//! Brings the port down, or removes the device, when a user asked for it or in a rehearsal.

use transom_net::faults::Incident;
use transom_system::clock;

use super::{Device, Due, PortChange};
use crate::events::AsyncEvent;

impl Device {
    /// Schedules outages and incidents. An outage from the beginning is in force already.
    pub(crate) fn schedule_faults(&self) {
        let Some(faults) = self.options().faults else { return };
        let now = clock::steady();
        let is_meant = |device: Option<u8>| device.is_none_or(|it| it == self.options().number);
        for Incident { kind, at, .. } in faults.incidents.iter().filter(|it| is_meant(it.device)) {
            self.work.deadlines.schedule(now + at.nanoseconds(), Due::Incident(*kind));
        }
        let outages = faults.outages.iter().enumerate();
        for (number, outage) in outages.filter(|(_, it)| is_meant(it.device)) {
            let begins = now + outage.at.nanoseconds();
            let ends = begins + outage.lasts.nanoseconds();
            if begins == now {
                self.change_port(PortChange::Down(number));
            } else {
                self.work.deadlines.schedule(begins, Due::Port(PortChange::Down(number)));
            }
            self.work.deadlines.schedule(ends, Due::Port(PortChange::Up(number)));
        }
    }

    /// Takes the port down for so many nanoseconds, in a rehearsal.
    #[cold]
    pub(crate) fn take_port_down(&self, period: u64) {
        self.change_port(PortChange::Down(0));
        let ends = clock::steady() + period;
        self.work.deadlines.schedule(ends, Due::Port(PortChange::Up(0)));
    }

    /// An outage begins or is over. The program is told when the first begins and when the last is over.
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
