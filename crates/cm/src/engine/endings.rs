//! The ends of ids: destroyed by their programs, or gone with the device.

use transom_wire::cm::{CommId, ServiceId};

use super::{Engine, MAX_LINGERING, State};
use crate::event::{Group, Happened};
use crate::host::Host;
use crate::refused::Refused;

impl Engine {
    /// Ends an id, and tells its peer (rule CM-28). Requests that wait at a listener are refused. Returns the groups
    /// that the host must leave.
    pub fn destroy(
        &mut self,
        id: CommId,
        now: u64,
        host: &mut impl Host,
    ) -> Result<Vec<Group>, Refused> {
        self.fetched(id)?;
        let Some(entry) = self.ids.remove(&id) else { return Err(Refused::NoSuchId) };
        self.uncount_served(&entry);
        match entry.state {
            State::Connection(mut connection) => {
                connection.destroy(now, &mut self.shared);
                if connection.is_lingering() && self.lingering.len() < MAX_LINGERING {
                    self.lingering.insert(id, connection);
                } else {
                    self.shared.timers.cancel(id);
                }
            }
            State::Resolution(mut resolution) => resolution.destroy(&mut self.shared),
            State::Listening(backlog) => {
                if let Some(claim) = entry.claim {
                    self.listens_no_more(ServiceId::of(claim.space, claim.address.port()), id);
                }
                for waiting in backlog.into_ids() {
                    self.destroy(waiting, now, host)?;
                }
            }
            _ => {}
        }
        if let Some(claim) = entry.claim {
            host.release(claim);
        }
        self.shared.events.retain(|event| event.id != id);
        Ok(entry.groups)
    }

    /// The device is gone. Every id gets one event, and does nothing more. Peers get the same messages as if the ids
    /// were destroyed (rule CM-46). If the program has others, an id without an address belongs to no device (rule
    /// DEVS-15): it is told nothing, keeps its port, and stays as it is. A listener that has left its port to another is
    /// told nothing either.
    pub fn device_removed(&mut self, now: u64, host: &mut impl Host, any_is_left: bool) {
        for (id, entry) in &mut self.ids {
            let belongs_to_none = any_is_left && entry.has_no_address();
            match &mut entry.state {
                State::Removed => continue,
                State::Idle if belongs_to_none => continue,
                State::Listening(_) if entry.claim.is_none() => {
                    entry.state = State::Removed;
                    continue;
                }
                State::Connection(connection) => {
                    connection.destroy(now, &mut self.shared);
                    // Nobody is left to repeat the message.
                    connection.abandon(&mut self.shared);
                }
                State::Resolution(resolution) => resolution.destroy(&mut self.shared),
                _ => {}
            }
            entry.state = State::Removed;
            entry.unbind(host);
            self.shared.happened(*id, Happened::DeviceRemoval);
        }
        self.listeners.clear();
        self.served.clear();
        self.early.clear();
        for (_, mut connection) in std::mem::take(&mut self.lingering) {
            connection.abandon(&mut self.shared);
        }
    }

    /// Whether the device of an id is gone, so that the id gets no events any more.
    pub fn is_removed(&self, id: CommId) -> bool {
        self.ids.get(&id).is_some_and(|entry| matches!(entry.state, State::Removed))
    }

    fn listens_no_more(&mut self, service: ServiceId, id: CommId) {
        if let Some(ids) = self.listeners.get_mut(&service) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.listeners.remove(&service);
            }
        }
    }
}
