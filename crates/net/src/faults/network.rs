//! A network with faults, between a link and its socket. It decides which copies of a packet go out, and when.
//!
//! It has no clock, no socket and no thread: time comes in as a number of nanoseconds, packets go out
//! through a function, and [`FaultyNetwork::deadline`] says when to ask again.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::NetworkFaults;
use super::random::Random;

/// How long a packet is held back at most so that later ones pass it, in nanoseconds, if no packet is under way for
/// longer anyway.
const HELD_BACK: u64 = 1_000_000;

/// How many packets may wait. The network loses more, as a full router does.
const ROOM: usize = 1 << 14;

/// A network with faults for packets of the kind `P`.
#[derive(Debug)]
pub struct FaultyNetwork<P> {
    faults: NetworkFaults,
    random: Random,
    /// When the line is free again, if it has a rate.
    free_at: u64,
    waiting: BinaryHeap<Reverse<Waiting<P>>>,
    /// Counts packets, so that packets of the same moment stay in order.
    count: u64,
}

/// A packet under way.
#[derive(Debug)]
struct Waiting<P> {
    at: u64,
    count: u64,
    packet: P,
}

impl<P> Ord for Waiting<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.count).cmp(&(other.at, other.count))
    }
}

impl<P> PartialOrd for Waiting<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Waiting<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P> Eq for Waiting<P> {}

impl<P: Clone + AsMut<[u8]>> FaultyNetwork<P> {
    /// Makes a network for a device's packets. `device` is its number among those that share the seed: each has random
    /// numbers of its own.
    pub fn new(faults: &NetworkFaults, device: u64) -> Self {
        Self {
            faults: *faults,
            random: Random::new(faults.seed.unwrap_or(0), device),
            free_at: 0,
            waiting: BinaryHeap::new(),
            count: 0,
        }
    }

    /// Takes a packet that is sent now. Copies that arrive at once go to `out`; the others wait for
    /// [`FaultyNetwork::due`].
    pub fn pass(&mut self, now: u64, packet: P, out: &mut impl FnMut(P)) {
        self.due(now, out);
        let NetworkFaults { loss, duplicate, .. } = self.faults;
        // Draw for every packet in the same order, whatever its fate.
        let (lost, doubled) = (self.random.happens(loss), self.random.happens(duplicate));
        if lost {
            return;
        }
        if doubled {
            self.carry(now, packet.clone(), out);
        }
        self.carry(now, packet, out);
    }

    /// Hands out the packets that have arrived by now.
    pub fn due(&mut self, now: u64, out: &mut impl FnMut(P)) {
        while self.waiting.peek().is_some_and(|Reverse(first)| first.at <= now) {
            let Some(Reverse(first)) = self.waiting.pop() else { return };
            out(first.packet);
        }
    }

    /// When to call [`FaultyNetwork::due`] next, if anything is under way.
    pub fn deadline(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse(first)| first.at)
    }

    /// Carries one copy.
    fn carry(&mut self, now: u64, mut packet: P, out: &mut impl FnMut(P)) {
        let NetworkFaults { delay, reorder, corrupt, rate, .. } = self.faults;
        let bytes = packet.as_mut();
        let length = bytes.len() as u64;
        if self.random.happens(corrupt) && length > 0 {
            let bit = self.random.below(length * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let delay = delay.map_or(0, super::Time::nanoseconds);
        let mut at = now;
        if let Some(rate) = rate {
            at = self.free_at.max(now) + rate.time_of(length);
        }
        let sent = at;
        at += delay;
        if self.random.happens(reorder) {
            at += 1 + self.random.below(delay.max(HELD_BACK));
        }
        if at <= now {
            return out(packet);
        }
        if self.waiting.len() < ROOM {
            self.free_at = sent;
            self.count += 1;
            self.waiting.push(Reverse(Waiting { at, count: self.count, packet }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Rate, Share, Time};
    use super::*;

    const MS: u64 = 1_000_000;

    fn percent(percent: u64) -> Option<Share> {
        Share::from_millionths(percent * 10_000)
    }

    /// Sends numbered packets, one each microsecond. Lists the arrivals and their times.
    fn carried(faults: &NetworkFaults, device: u64, packets: u32) -> Vec<(u64, Vec<u8>)> {
        let mut network = FaultyNetwork::new(faults, device);
        let mut arrived = Vec::new();
        let mut now = 0;
        for number in 0..packets {
            now = u64::from(number) * 1_000;
            let packet = number.to_be_bytes().to_vec();
            while let Some(deadline) = network.deadline().filter(|deadline| *deadline < now) {
                network.due(deadline, &mut |packet| arrived.push((deadline, packet)));
            }
            network.pass(now, packet, &mut |packet| arrived.push((now, packet)));
        }
        while let Some(deadline) = network.deadline() {
            assert!(deadline >= now, "time goes forward");
            now = deadline;
            network.due(now, &mut |packet| arrived.push((now, packet)));
        }
        arrived
    }

    fn numbers(arrived: &[(u64, Vec<u8>)]) -> Vec<u32> {
        arrived.iter().map(|(_, bytes)| u32::from_be_bytes(bytes[..].try_into().unwrap())).collect()
    }

    #[test]
    fn without_faults_everything_arrives_at_once() {
        let arrived = carried(&NetworkFaults::default(), 0, 100);
        assert_eq!(numbers(&arrived), (0..100).collect::<Vec<_>>());
        assert!(arrived.iter().zip(0..).all(|((at, _), number)| *at == number * 1_000));
    }

    #[test]
    fn shares_are_kept() {
        let faults =
            NetworkFaults { loss: percent(10), duplicate: percent(5), ..Default::default() };
        let arrived = numbers(&carried(&faults, 3, 100_000));
        let distinct = arrived.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert!((89_000..91_000).contains(&distinct), "{distinct}");
        let doubled = arrived.len() - distinct;
        assert!((4_000..5_000).contains(&doubled), "{doubled}");
    }

    #[test]
    fn everything_may_be_lost() {
        let faults = NetworkFaults { loss: percent(100), ..Default::default() };
        assert!(carried(&faults, 0, 1000).is_empty());
    }

    #[test]
    fn a_delay_keeps_the_order() {
        let delay = Time::from_nanoseconds(2 * MS);
        let arrived = carried(&NetworkFaults { delay, ..Default::default() }, 0, 5_000);
        assert_eq!(numbers(&arrived), (0..5_000).collect::<Vec<_>>());
        assert!(arrived.iter().zip(0..).all(|((at, _), number)| *at == number * 1_000 + 2 * MS));
    }

    #[test]
    fn reordered_packets_come_late_and_are_not_lost() {
        let faults = NetworkFaults { reorder: percent(20), ..Default::default() };
        let arrived = carried(&faults, 0, 5_000);
        let mut numbers = numbers(&arrived);
        assert!(!numbers.is_sorted());
        for ((at, _), number) in arrived.iter().zip(&numbers) {
            assert!(*at <= u64::from(*number) * 1_000 + HELD_BACK);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..5_000).collect::<Vec<_>>());
    }

    #[test]
    fn corruption_turns_one_bit_over() {
        let faults = NetworkFaults { corrupt: percent(100), ..Default::default() };
        for (sent, (_, bytes)) in (0_u32..).zip(carried(&faults, 0, 1_000)) {
            let received = u32::from_be_bytes(bytes[..].try_into().unwrap());
            assert_eq!((sent ^ received).count_ones(), 1);
        }
    }

    #[test]
    fn a_rate_spaces_packets_and_a_full_line_loses() {
        // Four bytes at 16 kbit/s take 2 ms.
        let rate = Rate::from_bits(16_000);
        let arrived = carried(&NetworkFaults { rate, ..Default::default() }, 0, 20_000);
        assert!(arrived.iter().zip(1..).all(|((at, _), count)| *at == count * 2 * MS));
        let lost = 20_000 - arrived.len();
        assert!(
            (3_600..3_620).contains(&lost),
            "all but the line's room and what has passed: {lost}"
        );
    }

    #[test]
    fn chance_is_the_seeds_and_the_devices() {
        let faults = |seed| NetworkFaults {
            loss: percent(10),
            reorder: percent(10),
            corrupt: percent(10),
            seed: Some(seed),
            ..Default::default()
        };
        assert_eq!(carried(&faults(7), 2, 1_000), carried(&faults(7), 2, 1_000));
        assert_ne!(carried(&faults(7), 2, 1_000), carried(&faults(8), 2, 1_000));
        assert_ne!(carried(&faults(7), 2, 1_000), carried(&faults(7), 3, 1_000));
    }
}
