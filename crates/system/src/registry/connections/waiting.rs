//! Requests for connections that wait for an answer, readable by other processes.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use transom_device::protection::Announcer;

use super::words::{halves, ip};
use super::{Kept, Kind, Locked, WORDS, live};

/// A request of some process for a connection. It waits for its answer and had to be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The address that it comes from.
    pub source: SocketAddr,
    /// The address that it goes to.
    pub destination: SocketAddr,
    /// Since when, in nanoseconds since 1970.
    pub since: u64,
    /// How often it was sent.
    pub sent: u32,
    /// How often the host there, or the network, has reported that it reached nobody.
    pub in_vain: u32,
}

impl Waiting {
    /// The sentence for a user, at this time.
    pub fn sentence(&self, now: u64) -> String {
        let Self { source, destination, sent, in_vain, .. } = self;
        let times = |number: u32| match number {
            1 => "once".to_owned(),
            2 => "twice".to_owned(),
            number => format!("{number} times"),
        };
        let waited = Duration::from_nanos(now.saturating_sub(self.since));
        let waited = match waited.as_secs() {
            0 => format!("{} ms", waited.as_millis()),
            seconds => format!("{seconds} s"),
        };
        let mut text = format!(
            "a request for a connection from {source} to {destination} is not answered for {waited}, \
             sent {}",
            times(*sent)
        );
        if *in_vain > 0 {
            text += &format!("; its host has said {} that nobody is there", times(*in_vain));
        }
        text
    }
}

impl Locked<'_> {
    /// Keeps a waiting request where others find it. `None` if there is no room.
    pub fn keep_waiting(&mut self, waiting: &Waiting) -> Option<Kept> {
        let index = self.allocate().ok()?;
        let entry = self.of.entry(index)?;
        entry.write(Kind::Request, to_words(waiting));
        entry.own(self.of.me);
        Some(Kept(index))
    }

    /// Changes the record of a request.
    pub fn change_waiting(&mut self, Kept(index): Kept, waiting: &Waiting) {
        let Some(entry) = self.of.entry(index) else { return };
        for (word, value) in entry.words.iter().zip(to_words(waiting)) {
            word.store(value, Relaxed);
        }
    }

    /// All waiting requests of live processes.
    pub fn all_waiting(&mut self) -> Vec<(Announcer, Waiting)> {
        let of = self.of;
        let of_index = |index| {
            let (entry, owner) = live(of, index, Kind::Request)?;
            Some((owner, from_words(&entry.words())))
        };
        (0..of.high()).filter_map(of_index).collect()
    }
}

fn to_words(of: &Waiting) -> [u64; WORDS] {
    let [source, destination] = [of.source, of.destination].map(|end| halves(end.ip()));
    let is_v6 = u64::from(of.source.is_ipv6());
    [
        of.since,
        u64::from(of.sent) | u64::from(of.in_vain) << 32,
        source[0],
        source[1],
        destination[0],
        destination[1],
        u64::from(of.source.port()) | u64::from(of.destination.port()) << 16 | is_v6 << 32,
        0,
    ]
}

fn from_words(words: &[u64; WORDS]) -> Waiting {
    let [since, often, source0, source1, destination0, destination1, small, _] = *words;
    let is_v6 = small >> 32 & 1 == 1;
    let end = |halves, port: u64| SocketAddr::new(ip(is_v6, halves), port as u16);
    Waiting {
        source: end([source0, source1], small),
        destination: end([destination0, destination1], small >> 16),
        since,
        sent: often as u32,
        in_vain: (often >> 32) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_told() {
        const SECOND: u64 = 1_000_000_000;
        let ends = [("10.0.0.1:5", "10.0.0.2:7471"), ("[fd00::1]:65535", "[fd00::2]:1")];
        for (source, destination) in ends {
            let [source, destination] = [source, destination].map(|end| end.parse().unwrap());
            let waiting = Waiting { source, destination, since: 7, sent: 2, in_vain: 0 };
            assert_eq!(from_words(&to_words(&waiting)), waiting);
            assert_eq!(
                waiting.sentence(7 + 9 * SECOND),
                format!(
                    "a request for a connection from {source} to {destination} is not answered for \
                     9 s, sent twice"
                )
            );
            let waiting = Waiting { sent: 3, in_vain: 1, ..waiting };
            assert_eq!(from_words(&to_words(&waiting)), waiting);
            let sentence = waiting.sentence(0);
            assert!(
                sentence.ends_with(
                    "for 0 ms, sent 3 times; its host has said once that nobody is there"
                )
            );
        }
    }
}
