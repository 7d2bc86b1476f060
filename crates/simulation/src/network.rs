//! The network between some ends: packets on their way, and what can happen to one there. What does
//! happen is decided by others: [`faults`](crate::faults) by chance, a fuzzer's script, a test.

use std::collections::BTreeMap;

/// Where a packet is among those on their way to one end: when it arrives, and among those that arrive
/// together, which it is.
pub type Place = (u64, u64);

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The end that has sent it.
    pub from: usize,
    /// What arrives.
    pub bytes: Vec<u8>,
    /// What was sent, if that is something else.
    pub sent: Option<Vec<u8>>,
}

/// The network.
#[derive(Debug)]
pub struct Network {
    /// What is on its way to each end.
    in_flight: Vec<BTreeMap<Place, InFlight>>,
    /// Packets so far, to keep those of one time in order.
    count: u64,
    moment: u64,
}

impl Network {
    /// A network between so many ends, on which packets arrive at multiples of `moment`, all that are
    /// due together.
    pub fn new(ends: usize, moment: u64) -> Self {
        Self { in_flight: vec![BTreeMap::new(); ends], count: 0, moment }
    }

    /// A packet is on its way from one end to another, where it arrives at this time or at the next
    /// moment.
    pub fn send(&mut self, from: usize, to: usize, at: u64, bytes: Vec<u8>) -> Place {
        self.put(to, at, InFlight { from, bytes, sent: None })
    }

    fn put(&mut self, to: usize, at: u64, packet: InFlight) -> Place {
        let place = (at.next_multiple_of(self.moment), self.count);
        self.count += 1;
        self.in_flight[to].insert(place, packet);
        place
    }

    /// Where the packet is that arrives next at an end.
    pub fn next(&self, to: usize) -> Option<Place> {
        self.in_flight[to].first_key_value().map(|(place, _)| *place)
    }

    /// The packet at a place.
    pub fn packet(&self, to: usize, place: Place) -> Option<&InFlight> {
        self.in_flight[to].get(&place)
    }

    /// The next packet arrives.
    pub fn arrive(&mut self, to: usize) -> Option<InFlight> {
        self.in_flight[to].pop_first().map(|(_, packet)| packet)
    }

    /// A packet never arrives.
    pub fn lose(&mut self, to: usize, place: Place) {
        self.in_flight[to].remove(&place);
    }

    /// A packet arrives once more, at this time, behind what arrives then.
    pub fn duplicate(&mut self, to: usize, place: Place, at: u64) {
        if let Some(packet) = self.in_flight[to].get(&place).cloned() {
            self.put(to, at, packet);
        }
    }

    /// A packet arrives at this time instead, behind what arrives then.
    pub fn delay(&mut self, to: usize, place: Place, at: u64) {
        if let Some(packet) = self.in_flight[to].remove(&place) {
            self.put(to, at, packet);
        }
    }

    /// A packet arrives with other bytes.
    pub fn damage(&mut self, to: usize, place: Place, damage: impl FnOnce(&mut Vec<u8>)) {
        if let Some(InFlight { bytes, sent, .. }) = self.in_flight[to].get_mut(&place) {
            sent.get_or_insert_with(|| bytes.clone());
            damage(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What arrives at an end, in order: when, as what, and whether that is what was sent.
    fn arrivals(network: &mut Network, to: usize) -> Vec<(u64, u8, bool)> {
        let mut all = Vec::new();
        while let Some((at, _)) = network.next(to)
            && let Some(InFlight { bytes, sent, .. }) = network.arrive(to)
        {
            all.push((at, bytes[0], sent.is_none()));
        }
        all
    }

    #[test]
    fn packets_arrive_in_order_but_for_what_happens_to_them() {
        let mut network = Network::new(2, 10);
        let places = [1, 2, 3, 4, 5].map(|byte| network.send(0, 1, 15, vec![byte]));
        network.send(1, 0, 3, vec![6]);
        network.lose(1, places[0]);
        network.duplicate(1, places[1], 31);
        network.delay(1, places[2], 20);
        network.damage(1, places[3], |bytes| bytes[0] = 9);
        let expected = [(20, 2, true), (20, 9, false), (20, 5, true), (20, 3, true), (40, 2, true)];
        assert_eq!(arrivals(&mut network, 1), expected);
        assert_eq!(arrivals(&mut network, 0), [(10, 6, true)]);
        // What has arrived already is beyond reach.
        network.delay(1, places[4], 50);
        network.duplicate(1, places[4], 50);
        assert_eq!(arrivals(&mut network, 1), []);
    }
}
