//! Connections whose peers are gone in a rehearsal, as if their hosts had died: nothing comes from there any more. What
//! this process sends still leaves it. So a program at the other end, which is there, hears that its connection ends.

use std::collections::HashSet;
use std::net::IpAddr;

use transom_cm::Transmit;
use transom_net::management::ManagementDatagram;
use transom_wire::cm::{CommId, Mad, Message, Receiver};

/// The shortest time until a message is given up that nobody answers, in nanoseconds. It may be doubled [`DOUBLINGS`]
/// times. An adapter takes more than a minute.
const SHORTEST: u64 = 400_000;
const DOUBLINGS: u64 = 8;
/// The most requests that get no answer after the peers have gone.
const REQUESTS: u64 = 2;

/// What is known of them. Empty until the peers are gone.
#[derive(Debug, Default)]
pub(super) struct Gone {
    ids: HashSet<CommId>,
    /// The addresses of the peers, and how they call their ends.
    peers: HashSet<(IpAddr, CommId)>,
    /// How many of the next requests get no answer. Then the hosts are back.
    requests: u64,
    number: u64,
    given_up: Vec<GivenUp>,
}

/// A message that waits for an answer in vain.
#[derive(Debug)]
struct GivenUp {
    id: CommId,
    at: u64,
}

impl Gone {
    /// The peers of these connections are gone, and more is decided by a random number.
    pub(super) fn lose(
        &mut self,
        connections: impl Iterator<Item = (CommId, (IpAddr, CommId))>,
        number: u64,
        now: u64,
    ) {
        self.number = number;
        self.requests = number % (REQUESTS + 1);
        for (id, peer) in connections {
            self.ids.insert(id);
            self.peers.insert(peer);
            self.give_up(id, now);
        }
    }

    /// Whether the peer of an id is gone.
    pub(super) fn has(&self, id: CommId) -> bool {
        self.ids.contains(&id)
    }

    /// Whether an arriving message is from a peer that is gone.
    pub(super) fn sent(&self, datagram: &ManagementDatagram) -> bool {
        if self.ids.is_empty() && self.peers.is_empty() {
            return false;
        }
        let Ok(mad) = Mad::parse(&datagram.mad) else { return false };
        let is_peer = |id| self.peers.contains(&(datagram.source, id));
        match (&mad.message, mad.receiver()) {
            (_, Receiver::Id(id)) => self.ids.contains(&id),
            // Repeated, it would begin a connection anew.
            (Message::Req(req), _) => is_peer(req.local_id),
            (_, Receiver::Peer(_, id)) => is_peer(id),
            (_, Receiver::Service(_)) => false,
        }
    }

    /// A message leaves. If its answer cannot come, it is given up soon.
    pub(super) fn note(&mut self, Transmit { mad, .. }: &Transmit, now: u64) {
        let id = match &mad.message {
            Message::Req(req) => req.local_id,
            Message::Rep(rep) => rep.local_id,
            Message::Dreq(dreq) => dreq.local_id,
            _ => return,
        };
        if matches!(mad.message, Message::Req(_)) && self.requests > 0 && self.ids.insert(id) {
            self.requests -= 1;
        }
        if self.has(id) {
            self.give_up(id, now);
        }
    }

    fn give_up(&mut self, id: CommId, now: u64) {
        if self.given_up.iter().all(|it| it.id != id) {
            let at = now + (SHORTEST << (self.number % (DOUBLINGS + 1)));
            self.given_up.push(GivenUp { id, at });
            self.number = self.number.rotate_right(4);
        }
    }

    /// Takes the ids that give up now.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<CommId> {
        self.given_up.extract_if(.., |it| it.at <= now).map(|it| it.id).collect()
    }

    /// When the next one does.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.given_up.iter().map(|it| it.at).min()
    }

    /// An id ends. What it leaves behind may be answered.
    pub(super) fn forget(&mut self, id: CommId) {
        self.ids.remove(&id);
        self.given_up.retain(|it| it.id != id);
    }
}
