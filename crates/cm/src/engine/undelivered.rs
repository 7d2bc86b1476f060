//! Messages that have reached nobody (rule CM-70).

use std::net::IpAddr;

use transom_wire::cm::{CommId, Mad, Message};

use super::{Engine, Handled, State};
use crate::event::Nobody;

impl Engine {
    /// The host at this address, or the network, reports that a message has reached nobody. The report is believed only
    /// for a message that still waits for its answer, and only if it contains the whole message. Nobody who has not
    /// seen the message can know it.
    ///
    /// Hosts limit the rate of such reports. So one report counts for all requests to that address that wait for an
    /// answer.
    pub fn undelivered(&mut self, now: u64, to: IpAddr, bytes: &[u8], why: Nobody) -> Handled {
        let Ok(mad) = Mad::parse(bytes) else { return Handled::Unknown };
        let Some(id) = sender(&mad).filter(|id| self.waits_for_answer(*id, to, &mad)) else {
            return Handled::Unknown;
        };
        self.came_to_nobody(id, now, why);
        if matches!(mad.message, Message::Req(_) | Message::SidrReq(_)) {
            let others: Vec<CommId> = self.ids.keys().copied().filter(|it| *it != id).collect();
            for other in others {
                if self.requests_from(other, to) {
                    self.came_to_nobody(other, now, why);
                }
            }
        }
        Handled::Taken(id)
    }

    /// Gives up the message of an id that waits for an answer, as after the last of its tries.
    pub fn give_up(&mut self, id: CommId, now: u64) {
        let Self { ids, shared, .. } = self;
        match ids.get_mut(&id).map(|entry| &mut entry.state) {
            Some(State::Connection(connection)) => connection.give_up(now, shared),
            Some(State::Resolution(resolution)) => resolution.give_up(shared),
            _ => {}
        }
    }

    /// Whether an id, or its lingering connection, has sent this message to this address and waits for its answer.
    fn waits_for_answer(&self, id: CommId, to: IpAddr, mad: &Mad) -> bool {
        match self.ids.get(&id).map(|entry| &entry.state) {
            Some(State::Connection(connection)) => connection.waits_for_answer(to, mad),
            Some(State::Resolution(resolution)) => resolution.waits_for_answer(to, mad),
            Some(_) => false,
            None => self.lingering.get(&id).is_some_and(|it| it.waits_for_answer(to, mad)),
        }
    }

    /// Whether an id has sent a request to this address and has no answer yet.
    fn requests_from(&self, id: CommId, to: IpAddr) -> bool {
        match self.ids.get(&id).map(|entry| &entry.state) {
            Some(State::Connection(connection)) => connection.requests_from(to),
            Some(State::Resolution(resolution)) => resolution.requests_from(to),
            _ => false,
        }
    }

    fn came_to_nobody(&mut self, id: CommId, now: u64, why: Nobody) {
        let Self { ids, lingering, shared, .. } = self;
        match ids.get_mut(&id).map(|entry| &mut entry.state) {
            Some(State::Connection(connection)) => connection.on_nobody(now, why, shared),
            Some(State::Resolution(resolution)) => resolution.on_nobody(now, why, shared),
            Some(_) => {}
            None => {
                if let Some(connection) = lingering.get_mut(&id) {
                    connection.on_nobody(now, why, shared);
                }
                self.forget_lingered(id);
            }
        }
    }
}

/// The id that has sent a message, if such a message waits for an answer.
fn sender(mad: &Mad) -> Option<CommId> {
    match &mad.message {
        Message::Req(req) => Some(req.local_id),
        Message::Rep(rep) => Some(rep.local_id),
        Message::Dreq(dreq) => Some(dreq.local_id),
        Message::SidrReq(request) => Some(request.request_id),
        _ => None,
    }
}
