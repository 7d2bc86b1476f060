//! What a queue pair has carried out for its peer: each packet of RC takes effect once and in order.

use std::collections::{BTreeSet, HashMap, HashSet};

use transom_device::qp::Service;
use transom_device::queue::Body;
use transom_wire::NakCode;

use super::posted::PostedSend;
use super::{End, Verdict, ensure};

/// What a queue pair has carried out of what one other sent it.
#[derive(Debug, Default)]
pub struct Inbound {
    /// Packets before this place have taken effect, those that have one.
    pub next: u64,
    /// The packet taking effect: its arrival, its place, its bytes that were stored.
    current: Option<(u64, u64, u64)>,
    /// Messages whose receive has completed, by the place of their first packet. UC and UD may leave
    /// some out.
    received: HashSet<u64>,
    /// UC: packets that have taken effect.
    seen: HashSet<u64>,
    /// Packets before this place may have been carried out: nothing is missing among what has arrived of
    /// them.
    reach: u64,
    /// READs that may have been carried out, each part that was asked for by itself: by place.
    reads: HashSet<u64>,
    /// FLUSHes that came when they were allowed, by place.
    flushable: HashSet<u64>,
    /// Those that were answered.
    pub flushed: HashSet<u64>,
    /// What READ responses have said, by the place of their number: all versions.
    pub answers: HashMap<u64, Vec<Vec<u8>>>,
    /// Where answers to READs have ended, by place: what comes again of these has been answered whole.
    pub whole: BTreeSet<u64>,
    /// What atomics have found, by place.
    pub found: HashMap<u64, u64>,
    /// Refusals, by the place of their number.
    pub naks: Vec<(u64, NakCode)>,
    /// The refusal of the request that is being carried out, until it is sent.
    pub refusing: Option<NakCode>,
    /// How often each place was answered "not ready".
    pub not_ready: HashMap<u64, u32>,
    /// Places whose packets came last when there may have been no receive for them. What is said of it
    /// may wait for other answers, while receives are posted.
    pub lacked: HashSet<u64>,
    /// Places for which a sequence error was reported, since something took effect.
    pub gaps: HashSet<u64>,
}

/// Whether a packet of a message changes memory at its target, or completes a receive.
fn has_effect(send: &PostedSend, place: u64, mtu: u64) -> bool {
    let index = place - send.first;
    let atomic = send.body().is_some_and(|body| {
        matches!(body, Body::CompareSwap { .. } | Body::FetchAdd { .. } | Body::AtomicWrite { .. })
    });
    let last = index + 1 == send.packets;
    atomic || send.payload(index, mtu) > 0 || last && send.takes_receive()
}

impl Inbound {
    /// A packet of this place takes effect, or goes on to. `from` is the queue pair that sent it.
    pub fn begin(&mut self, from: &End, arrival: u64, place: u64) -> Verdict {
        if self.is_at(arrival, place) {
            return Ok(());
        }
        match from.service {
            Service::Rc => {
                ensure!(place >= self.next, "packet {place} takes effect a second time");
                self.check_through(from, place)?;
                self.next = place + 1;
            }
            Service::Uc => {
                ensure!(self.seen.insert(place), "packet {place} of UC takes effect twice");
            }
            _ => {}
        }
        self.gaps.clear();
        self.current = Some((arrival, place, 0));
        Ok(())
    }

    /// Whether this packet is the one taking effect.
    pub fn is_at(&self, arrival: u64, place: u64) -> bool {
        self.current.is_some_and(|(one, at, _)| (one, at) == (arrival, place))
    }

    /// Whether this packet is next: nothing that has an effect lies between.
    pub fn is_next(&self, from: &End, place: u64) -> bool {
        place >= self.next
            && (self.next..place).all(|before| {
                let message = from.message_at(before).map(|number| &from.sends[number]);
                message.is_ok_and(|send| !has_effect(send, before, from.mtu))
            })
    }

    /// Checks that everything before this place has taken effect, and the last of it as a whole.
    pub fn check_through(&self, from: &End, place: u64) -> Verdict {
        for missing in self.next..place {
            let send = &from.sends[from.message_at(missing)?];
            let skipped = has_effect(send, missing, from.mtu);
            ensure!(!skipped, "packet {missing} has not taken effect, and {place} counts as done");
        }
        let Some((_, place, bytes)) = self.current.filter(|(_, at, _)| *at < place) else {
            return Ok(());
        };
        let send = &from.sends[from.message_at(place)?];
        let whole = send.payload(place - send.first, from.mtu);
        let atomic = send.body().is_some_and(|body| matches!(body, Body::AtomicWrite { .. }));
        ensure!(
            atomic || bytes == whole,
            "packet {place} counts as done with {bytes} of {whole} bytes stored"
        );
        Ok(())
    }

    /// A packet of this place arrives. `flushable`: it is a FLUSH, and allowed at this moment.
    pub fn arrive(&mut self, from: &End, place: u64, flushable: bool) -> Verdict {
        if flushable {
            self.flushable.insert(place);
        }
        let send = &from.sends[from.message_at(place)?];
        // What comes too early is dropped.
        if place <= self.reach {
            let read = matches!(send.body(), Some(Body::Read { .. }));
            if read {
                self.reads.insert(place);
            }
            let end = if read { send.first + send.packets } else { place + 1 };
            self.reach = self.reach.max(end);
        }
        Ok(())
    }

    /// The most messages that may have been completed (rule PSN-20).
    pub fn most_messages(&self, from: &End) -> usize {
        let done = from.sends.iter().take_while(|send| send.first + send.packets <= self.reach);
        let others =
            done.filter(|send| send.packets > 0 && !matches!(send.body(), Some(Body::Read { .. })));
        others.count() + self.reads.len()
    }

    /// A FLUSH of this place is answered.
    pub fn flush(&mut self, place: u64) -> Verdict {
        ensure!(self.flushable.contains(&place), "the FLUSH at {place} was never allowed");
        self.flushed.insert(place);
        Ok(())
    }

    /// Bytes of this packet that have been stored.
    pub fn stored_of(&self, arrival: u64, place: u64) -> u64 {
        let stored = self.current.filter(|(one, at, _)| (*one, *at) == (arrival, place));
        stored.map_or(0, |(_, _, bytes)| bytes)
    }

    /// So many more have been.
    pub fn add_stored(&mut self, more: u64) {
        if let Some((_, _, bytes)) = &mut self.current {
            *bytes += more;
        }
    }

    /// The receive of a message completes.
    pub fn receive(&mut self, from: &End, send: &PostedSend) -> Verdict {
        let first = self.received.insert(send.first);
        if from.service == Service::Ud {
            return Ok(());
        }
        ensure!(first, "message {:#x} has completed two receives", send.wr_id);
        if from.service == Service::Uc {
            let all = send.first..send.first + send.packets;
            let lost = all
                .filter(|place| has_effect(send, *place, from.mtu))
                .find(|place| !self.seen.contains(place));
            ensure!(lost.is_none(), "UC message {:#x} without packet {lost:?}", send.wr_id);
        }
        Ok(())
    }

    /// Whether the receive of a message has completed.
    pub fn has_received(&self, send: &PostedSend) -> bool {
        self.received.contains(&send.first)
    }
}
