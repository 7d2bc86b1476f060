//! The numbers of this process's protection domains. Keys and queue pairs name their domain by its number.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use transom_system::ThisProcess;
use transom_system::object_counts::ObjectKind;
use transom_system::registry::DEVICES;

use super::Limits;

/// The numbers of the domains of a device.
pub(crate) struct Domains {
    process: Arc<ThisProcess>,
    numbers: Mutex<Numbers>,
}

/// The numbers that are taken, and the last one given. Zero stands for a queue pair without a domain. No number is one
/// of two devices of a program: each steps over those of the others.
struct Numbers {
    taken: HashSet<u32>,
    last: u32,
}

/// From one number of a device to the next.
const STEP: u32 = DEVICES as u32;

impl Numbers {
    fn of(device: u8) -> Self {
        Self { taken: HashSet::new(), last: device.into() }
    }

    /// Takes the number that has been unused for longest. A program can allocate and free as many domains as there are
    /// numbers within an hour, and keep one of the first. A new domain must not get that one's number: it would open
    /// its memory.
    fn take(&mut self) -> Option<u32> {
        if self.taken.len() >= Limits::here().domains as usize {
            return None;
        }
        self.taken.try_reserve(1).ok()?;
        loop {
            self.last = self.last.wrapping_add(STEP);
            if self.last != 0 && self.taken.insert(self.last) {
                return Some(self.last);
            }
        }
    }

    fn give_back(&mut self, number: u32) {
        self.taken.remove(&number);
    }
}

impl Domains {
    /// None are taken of the device of this number.
    pub(super) fn new(process: Arc<ThisProcess>, device: u8) -> Self {
        Self { process, numbers: Mutex::new(Numbers::of(device)) }
    }

    /// Takes a number for a domain; `None` at the limit (rule PD-11), or without memory.
    pub(crate) fn take(&self) -> Option<u32> {
        let number = self.numbers.lock().take()?;
        self.process.objects().add(ObjectKind::Domain);
        Some(number)
    }

    /// The domain with this number has ended.
    pub(crate) fn give_back(&self, number: u32) {
        self.numbers.lock().give_back(number);
        self.process.objects().remove(ObjectKind::Domain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: PD-17
    #[test]
    fn a_number_that_a_domain_has_is_not_given_again() {
        let last = 0_u32.wrapping_sub(3 * STEP);
        let mut domains = Numbers { last, ..Numbers::of(0) };
        let before: Vec<_> = (0..4).map_while(|_| domains.take()).collect();
        assert_eq!(before, [last + STEP, last + 2 * STEP, STEP, 2 * STEP], "zero is no domain's");
        domains.give_back(STEP);
        domains.last = last + STEP;
        let after: Vec<_> = (0..3).map_while(|_| domains.take()).collect();
        assert_eq!(after, [STEP, 3 * STEP, 4 * STEP]);
    }

    /// An address handle of one device is in no domain of another.
    /// Rules: DEVS-04, PD-16
    #[test]
    fn devices_have_no_number_in_common() {
        let mut devices = [0, 1, u8::try_from(DEVICES - 1).expect("few")].map(Numbers::of);
        let mut all = HashSet::new();
        for _ in 0..100 {
            for domains in &mut devices {
                assert!(all.insert(domains.take().expect("few are taken")));
            }
        }
    }

    /// Rules: PD-11
    #[test]
    fn the_limit_counts_domains_and_not_numbers() {
        let mut domains = Numbers::of(0);
        for _ in 0..3 {
            let all: Vec<_> = std::iter::from_fn(|| domains.take()).collect();
            assert_eq!(all.len(), Limits::DEVICE.domains as usize);
            all.into_iter().for_each(|number| domains.give_back(number));
        }
    }
}
