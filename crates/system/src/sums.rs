//! What all processes of a registry have carried together over the devices of a number, those that have ended too. These
//! sums never fall while the registry is there, so a reader can tell a rate from two of them.

use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::registry::{Counters, Dropped, Registry};
use crate::segment::{QP_SLOTS, Segment};
use crate::traffic::{ProcessTotals, Totals, Traffic};

/// The packets of processes over the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Packets sent.
    pub sent: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// How many runs of packets had to wait for room to be sent.
    pub no_room: u64,
    /// How many received packets some queue pair took.
    pub received: u64,
    /// How many of them were for a group.
    pub received_by_groups: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// Congestion notifications sent.
    pub notifications_sent: u64,
    /// Congestion notifications received.
    pub notifications_received: u64,
    /// How many of them came to a queue pair that does not slow down.
    pub notifications_ignored: u64,
    /// Packets that a congested network had marked, for queue pairs that tell their peers.
    pub marked: u64,
    dropped: [u64; Dropped::ALL.len()],
}

impl Packets {
    /// The values now.
    pub fn of(counters: &Counters) -> Self {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Self {
            sent: get(&counters.sent),
            bytes_sent: get(&counters.bytes_sent),
            no_room: get(&counters.no_room),
            received: get(&counters.received),
            received_by_groups: get(&counters.received_by_groups),
            bytes_received: get(&counters.bytes_received),
            notifications_sent: get(&counters.notifications_sent),
            notifications_received: get(&counters.notifications_received),
            notifications_ignored: get(&counters.notifications_ignored),
            marked: get(&counters.marked),
            dropped: Dropped::ALL.map(|why| counters.dropped(why)),
        }
    }

    /// Packets dropped for a reason.
    pub fn dropped(&self, why: Dropped) -> u64 {
        self.dropped[why as usize]
    }

    fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.sent, other.sent),
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.no_room, other.no_room),
            (&mut self.received, other.received),
            (&mut self.received_by_groups, other.received_by_groups),
            (&mut self.bytes_received, other.bytes_received),
            (&mut self.notifications_sent, other.notifications_sent),
            (&mut self.notifications_received, other.notifications_received),
            (&mut self.notifications_ignored, other.notifications_ignored),
            (&mut self.marked, other.marked),
        ];
        let dropped = self.dropped.iter_mut().zip(other.dropped);
        for (sum, more) in sums.into_iter().chain(dropped) {
            *sum = sum.wrapping_add(more);
        }
    }
}

/// All processes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// What their queue pairs have carried.
    pub carried: ProcessTotals,
    /// Their packets over the wire.
    pub packets: Packets,
}

impl Registry {
    /// The sums now, over the devices of this number. Of a process in other namespaces its queue pairs count once it has
    /// ended.
    pub fn sums(&self, device: u8) -> Sums {
        let left = self.left(device);
        left.carried.moves.between(|| {
            let mut sums =
                Sums { carried: left.carried.get(), packets: Packets::of(&left.packets) };
            for process in self.processes().iter().filter(|it| it.device == device) {
                sums.packets.add(&Packets::of(self.counters(process.announcer.slot)));
                let segment = process.alive.then(|| Segment::of(process)).flatten();
                let counts = segment.filter(|segment| !segment.process_traffic().is_settled());
                counts.iter().for_each(|segment| sums.carried.add(&segment.totals()));
            }
            sums
        })
    }

    /// Puts what a process has carried into the sums, because it has ended or is about to. Several may find that out;
    /// it happens once.
    pub fn settle(&self, segment: &Segment) {
        let left = self.left(segment.header().device.load(Relaxed) as u8);
        left.carried.moves.carry_out(|| {
            if segment.process_traffic().settle() {
                left.carried.collect(&segment.totals());
            }
        });
    }
}

impl Segment {
    /// A queue pair ends. What it carried stays in the sum of its process.
    pub fn retire(&self, place: u32) {
        let (traffic, process) = (self.traffic(place), self.process_traffic());
        process.moves.carry_out(|| {
            process.ended.collect(&traffic.get());
            traffic.clear();
        });
    }

    /// The queue pairs that are there, by index, and what each has carried.
    pub fn carried_by_each(&self) -> impl Iterator<Item = (u16, Totals)> {
        self.traffic_of_each().map(|(index, traffic)| (index, traffic.get()))
    }

    /// Where each of its queue pairs counts, by its index.
    pub fn traffic_of_each(&self) -> impl Iterator<Item = (u16, &Traffic)> {
        // Another process has written how many there are, so it may be anything.
        let places = self.process_traffic().places().min(QP_SLOTS as u32);
        let traffic = (0..places).map(|place| self.traffic(place));
        traffic.filter_map(|traffic| Some((traffic.user()?, traffic)))
    }

    /// What the process has carried.
    pub fn totals(&self) -> ProcessTotals {
        let process = self.process_traffic();
        process.moves.between(|| {
            let mut totals = process.get();
            // Another process has written how many there are, so it may be anything.
            let places = process.places().min(QP_SLOTS as u32);
            (0..places).for_each(|place| totals.all.add(&self.traffic(place).get()));
            totals
        })
    }
}

#[cfg(test)]
mod tests {
    use transom_device::execution::Tally;

    use super::*;
    use crate::traffic::{Amount, Carried, Way};

    #[test]
    fn a_queue_pair_that_ends_stays_in_the_sum_of_its_process() {
        let segment = Segment::create().expect("memory");
        let place = 3;
        segment.open_place(place).expect("memory");
        let traffic = segment.traffic(place);
        traffic.begin(7);
        traffic.sent.of(Way::Wire, Carried::Write).add(5000, 2);
        traffic.served[Carried::Read as usize].add(8, 1);
        traffic.received.of(Way::Host, Carried::Read).add(8, 1);
        traffic.tally(Tally::Timeout, 4);
        traffic.sends_wait(9);
        traffic.sends_wait(2);
        let before = segment.totals();
        assert_eq!(segment.carried_by_each().collect::<Vec<_>>(), [(7, before.all)]);
        assert_eq!(
            before.all.sent(Way::Wire, Carried::Write),
            Amount { messages: 1, bytes: 5000, packets: 2 }
        );
        assert_eq!(
            before.all.received(Way::Host, Carried::Read),
            Amount { messages: 2, bytes: 16, packets: 2 }
        );
        assert_eq!((before.all.tally(Tally::Timeout), before.all.most_sends), (4, 9));
        segment.retire(place);
        assert_eq!(segment.totals(), before);
        assert_eq!((traffic.user(), traffic.get()), (None, Totals::default()));
    }

    /// Sums that are read while values move are those from before or after.
    #[test]
    fn who_adds_up_sees_nothing_twice_and_loses_nothing() {
        let segment = Segment::create().expect("memory");
        segment.open_place(0).expect("memory");
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            let counts = scope.spawn(|| {
                for _ in 0..rounds {
                    segment.traffic(0).sent.of(Way::Host, Carried::Send).add(1, 1);
                    segment.retire(0);
                }
            });
            let mut last = 0;
            while !counts.is_finished() {
                let now = segment.totals().all.sent(Way::Host, Carried::Send).messages;
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
        assert_eq!(segment.totals().all.sent(Way::Host, Carried::Send).messages, rounds);
    }
}
