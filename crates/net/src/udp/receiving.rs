//! Receives datagrams, and gives each to its process.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering::*;

use transom_system::clock;
use transom_system::registry::{Counters, Dropped};

use super::arrivals::ROOM;
use super::guest::{self, Door};
use super::undelivered::Notice;
use super::{Arrivals, Datagrams, Port, steering};

/// The shortest time between two notices to senders that nobody is there, in nanoseconds. Packets for a process that
/// has ended must not keep this one busy.
const SELDOM: u64 = 1_000_000;

/// Bytes that each burst takes in a socket's buffer beside its data, at least.
const OVERHEAD: usize = 512;

/// What a burst takes there, at least.
fn cost(burst: Option<Datagrams<'_>>) -> usize {
    OVERHEAD + burst.map_or(0, |it| it.bytes.len())
}

/// The recipient of a datagram, by its destination QP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recipient {
    Me,
    Process(u8),
    /// Queue pair 1, about a connection of the process in this slot. If that process has ended, another one has to say
    /// so.
    Connection(u8),
    /// Queue pair 0: nobody, or a probe.
    Steering,
}

impl Port {
    /// Takes the datagrams that have arrived for this process, about `limit` bursts at most, and no more than were there
    /// at once: others go on sending. Returns the number of bursts.
    pub fn receive(
        &self,
        arrivals: &mut Arrivals,
        limit: usize,
        mut handler: impl FnMut(Datagrams<'_>),
    ) -> io::Result<usize> {
        // One burst is taken from the socket in any case, so a process that hands on a lot does not keep it waiting.
        let handed = self.receive_handed(arrivals, limit.div_ceil(2), &mut handler);
        let limit = limit.saturating_sub(handed).max(1);
        if let Some(door) = self.tenure.door() {
            return Ok(handed + self.receive_as_guest(door, arrivals, limit, &mut handler));
        }
        let (mut bursts, mut bytes) = (0, 0);
        while bursts < limit && self.held_more_than(bytes) {
            let taken = arrivals.receive(&self.socket, limit - bursts, |datagrams, lost| {
                bytes += cost(datagrams);
                if let Some(lost) = lost {
                    self.counters.set_overflow(lost);
                }
                match datagrams {
                    Some(datagrams) => self.sort(datagrams, &mut handler),
                    None => self.counters.drop(Dropped::Cut, 1),
                }
            })?;
            bursts += taken.bursts;
            if taken.all {
                break;
            }
        }
        Ok(handed + bursts)
    }

    /// Whether a socket may have held more than so many bytes.
    fn held_more_than(&self, bytes: usize) -> bool {
        // The kernel looks for room before it adds the last burst.
        bytes <= self.holds + ROOM
    }

    /// Takes the datagrams that other processes have handed on. It costs nothing if there are none.
    fn receive_handed(
        &self,
        arrivals: &mut Arrivals,
        limit: usize,
        handler: &mut impl FnMut(Datagrams<'_>),
    ) -> usize {
        let Some(handed) = self.forward.count(&self.steering) else { return 0 };
        let mut bytes = 0;
        for bursts in 0..limit {
            if !self.held_more_than(bytes) {
                return bursts;
            }
            let datagrams = self.forward.receive(arrivals.room());
            bytes += cost(datagrams.flatten());
            match datagrams {
                Some(Some(datagrams))
                    if matches!(
                        self.recipient(datagrams.to, datagrams.bytes),
                        Recipient::Me | Recipient::Connection(_)
                    ) =>
                {
                    handler(datagrams);
                }
                // Not for this process, or nonsense.
                Some(_) => {}
                None => {
                    self.forward.note_taken(handed);
                    return bursts;
                }
            }
        }
        limit
    }

    /// Takes the datagrams that processes with the port hand on. Those for other processes are dropped: a guest hands
    /// nothing on.
    fn receive_as_guest(
        &self,
        door: &Door,
        arrivals: &mut Arrivals,
        limit: usize,
        handler: &mut impl FnMut(Datagrams<'_>),
    ) -> usize {
        let mut bytes = 0;
        for bursts in 0..limit {
            if !self.held_more_than(bytes) {
                return bursts;
            }
            let datagrams = door.receive(arrivals.room());
            bytes += cost(datagrams.flatten());
            match datagrams {
                Some(Some(datagrams))
                    if self.recipient(datagrams.to, datagrams.bytes) == Recipient::Me =>
                {
                    handler(datagrams);
                }
                Some(_) => self.counters.drop(Dropped::NobodyThere, 1),
                None => return bursts,
            }
        }
        limit
    }

    /// Something has been handed on that may not have been counted.
    pub fn expect_handed(&self) {
        self.forward.expect_more(&self.steering);
    }

    fn recipient(&self, to: IpAddr, datagram: &[u8]) -> Recipient {
        match *datagram.get(5..8).unwrap_or_default() {
            // Each process has its own copy of a packet for a group, whatever queue pair it names.
            _ if to.is_multicast() => Recipient::Me,
            [0, 0, 0] => Recipient::Steering,
            [0, 0, 1] => match steering::connection(datagram) {
                Some(slot) if slot != self.me.slot => Recipient::Connection(slot),
                _ => Recipient::Me,
            },
            // QP 1, and groups.
            [0 | 0xff, _, _] => Recipient::Me,
            [slot, _, _] if slot != self.me.slot => Recipient::Process(slot),
            // A datagram that is too short to name a process stays here.
            _ => Recipient::Me,
        }
    }

    /// Gives each part of a burst to its process. A network card puts datagrams of one flow together, and queue pairs
    /// of several processes may share a flow.
    fn sort(&self, burst: Datagrams<'_>, handler: &mut impl FnMut(Datagrams<'_>)) {
        let mut rest = burst;
        let of = |datagram: &[u8]| self.recipient(burst.to, datagram);
        while let Some(recipient) = rest.iter().next().map(of) {
            let same = |datagram: &&[u8]| of(datagram) == recipient;
            let count = rest.iter().take_while(same).count();
            let middle = (count * rest.segment).min(rest.bytes.len());
            let (bytes, behind) = rest.bytes.split_at(middle);
            let part = Datagrams { bytes, ..rest };
            match recipient {
                Recipient::Me => handler(part),
                Recipient::Connection(slot) => {
                    if !self.hand_to_guest(slot, &part) {
                        handler(part);
                    }
                }
                Recipient::Process(slot) => self.hand_on(slot, part, count),
                Recipient::Steering => {
                    part.iter().for_each(|probe| self.steering.take(probe, &self.socket));
                }
            }
            rest = Datagrams { bytes: behind, first: rest.first + count, ..rest };
        }
    }

    fn hand_on(&self, slot: u8, datagrams: Datagrams<'_>, count: usize) {
        if !self.steering.has_port(slot) {
            if self.hand_to_guest(slot, &datagrams) {
                return Counters::add(&self.counters.handed_on, count);
            }
            self.counters.drop(Dropped::NobodyThere, count);
            self.tell_sender(slot, &datagrams);
            return;
        }
        match self.forward.send(slot, &datagrams, &self.steering) {
            Ok(()) => Counters::add(&self.counters.handed_on, count),
            Err(_) => self.counters.drop(Dropped::NobodyThere, count),
        }
        self.steering.repair(&self.socket);
    }

    /// Hands a datagram for queue pair 1 on to any other process that has the port and room for it.
    pub(super) fn leave_to_others(&self, datagram: &Datagrams<'_>) {
        let mut slots = self.steering.others().map(|other| other.slot);
        let is_taken = slots.any(|slot| {
            let has_port = self.steering.has_port(slot);
            has_port && self.forward.send(slot, datagram, &self.steering).is_ok()
        });
        match is_taken {
            true => Counters::add(&self.counters.handed_on, 1),
            false => self.counters.drop(Dropped::NobodyThere, 1),
        }
    }

    /// Hands datagrams on to the process of another user that has the slot. Anybody can open a door; without the slot
    /// nothing goes there.
    pub fn hand_to_guest(&self, slot: u8, datagrams: &Datagrams<'_>) -> bool {
        let registry = self.steering.registry();
        let is_guests =
            || !registry.was_of_no_other_user(slot) && registry.is_of_another_user(slot);
        !self.tenure.is_guest()
            && is_guests()
            && guest::send(&self.forward, slot, datagrams).is_ok()
    }

    /// Tells the sender of a packet that its process has ended, as the kernel would if nobody had the port. It says
    /// nothing about a living process, which may be about to have the port.
    fn tell_sender(&self, slot: u8, datagrams: &Datagrams<'_>) {
        let lives = || self.steering.registry().process(slot).is_some_and(|it| it.alive);
        let Some(notice) = Notice::of(datagrams.bytes) else { return };
        let now = clock::steady();
        let before = self.told.load(Relaxed);
        if now.saturating_sub(before) >= SELDOM && !lives() {
            self.told.store(now, Relaxed);
            self.sending.tell(datagrams.to, datagrams.from, &notice);
        }
    }
}
