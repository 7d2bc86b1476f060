//! The numbers of this process's protection domains. Keys and queue pairs name their domain by its number.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use transom_system::ThisProcess;
use transom_system::object_counts::ObjectKind;

use super::Limits;

/// The numbers of the domains.
pub(crate) struct Domains {
    process: Arc<ThisProcess>,
    numbers: Mutex<Numbers>,
}

/// The numbers that are taken, and the last one given. Zero stands for a queue pair without a domain.
#[derive(Default)]
struct Numbers {
    taken: HashSet<u32>,
    last: u32,
}

impl Numbers {
    /// Takes the number that has been unused for longest. A program can allocate and free as many domains as there are
    /// numbers within an hour, and keep one of the first. A new domain must not get that one's number: it would open
    /// its memory.
    fn take(&mut self) -> Option<u32> {
        if self.taken.len() >= Limits::here().domains as usize {
            return None;
        }
        self.taken.try_reserve(1).ok()?;
        loop {
            self.last = self.last.wrapping_add(1);
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
    /// None are taken.
    pub(super) fn new(process: Arc<ThisProcess>) -> Self {
        Self { process, numbers: Mutex::default() }
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
        let mut domains = Numbers { last: u32::MAX - 2, ..Numbers::default() };
        let before: Vec<_> = (0..4).map_while(|_| domains.take()).collect();
        assert_eq!(before, [u32::MAX - 1, u32::MAX, 1, 2], "zero is no domain's");
        domains.give_back(1);
        domains.last = u32::MAX - 2;
        let after: Vec<_> = (0..3).map_while(|_| domains.take()).collect();
        assert_eq!(after, [1, 3, 4]);
    }

    /// Rules: PD-11
    #[test]
    fn the_limit_counts_domains_and_not_numbers() {
        let mut domains = Numbers::default();
        for _ in 0..3 {
            let all: Vec<_> = std::iter::from_fn(|| domains.take()).collect();
            assert_eq!(all.len(), Limits::DEVICE.domains as usize);
            all.into_iter().for_each(|number| domains.give_back(number));
        }
    }
}
