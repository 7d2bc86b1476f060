//! What a network does to packets by chance.

use crate::network::{Network, Place};
use crate::random::Random;

/// What a network does to packets, in thousandths, and how long it takes, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Lost.
    pub loss: u32,
    /// Delivered twice or more.
    pub duplication: u32,
    /// Overtaken by later ones.
    pub reordering: u32,
    /// Delivered with other bytes.
    pub corruption: u32,
    /// Followed by any packet that came before.
    pub replay: u32,
    /// Late by up to `longest_delay`.
    pub delay: u32,
    /// How late a delayed packet is at most.
    pub longest_delay: u64,
    /// How long a packet takes at least.
    pub latency: u64,
    /// When nothing gets through, from and until, and from which devices.
    pub partitions: Vec<Partition>,
}

/// A time in which nothing gets through.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// Its beginning.
    pub from: u64,
    /// Its end.
    pub until: u64,
    /// Whether what this device sends is lost.
    pub cut: [bool; 2],
}

impl Faults {
    /// A network: perfect, or bad in some ways, or in all.
    pub fn draw(random: &mut Random, duration: u64) -> Self {
        let latency = random.one_of(&[0, 1_000, 20_000, 150_000]);
        let mut faults = Self { latency, longest_delay: 1, ..Self::default() };
        if random.chance(100) {
            return faults;
        }
        let severity = random.one_of(&[10, 50, 150]);
        let mut drawn = |likely| if random.chance(likely) { severity } else { 0 };
        faults.loss = drawn(600);
        faults.duplication = drawn(400);
        faults.reordering = drawn(400);
        faults.corruption = drawn(250);
        faults.delay = drawn(300);
        faults.replay = drawn(200);
        faults.longest_delay = random.one_of(&[100_000, 1_000_000, 20_000_000]);
        if random.chance(200) {
            for _ in 0..=random.below(3) {
                let from = random.within(0..=duration);
                let until = from + random.within(1..=duration / 4 + 1);
                let cut = random.one_of(&[[true, true], [true, false], [false, true]]);
                faults.partitions.push(Partition { from, until, cut });
            }
        }
        faults
    }

    /// Whether so little is lost that eight losses one after the other do not happen.
    pub fn are_few(&self) -> bool {
        let most = [self.loss, self.corruption, self.reordering, self.delay];
        most.iter().all(|faults| *faults <= 10) && self.partitions.is_empty()
    }

    /// Whether what `from` sends now is cut off.
    fn is_cut(&self, from: usize, now: u64) -> bool {
        self.partitions
            .iter()
            .any(|part| part.cut.get(from) == Some(&true) && (part.from..part.until).contains(&now))
    }
}

/// One of the packets that are on their way once one has been sent.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// At which end.
    pub to: usize,
    /// Where among what is on its way there.
    pub place: Place,
    /// When it arrives, if not for the network's moments.
    pub at: u64,
    /// It was sent long ago.
    pub replayed: bool,
}

/// Sends packets, to whom something happens by chance.
pub struct FaultInjector {
    faults: Faults,
    random: Random,
    /// When the last packet in order of each end arrives: others do not overtake it.
    last: Vec<u64>,
    /// What each end has sent and to whom, the last of it.
    past: Vec<Vec<(usize, Vec<u8>)>>,
}

/// How many packets of each end can be replayed.
const PAST: usize = 200;

impl FaultInjector {
    /// What injects these faults where so many ends send.
    pub fn new(ends: usize, faults: Faults, random: Random) -> Self {
        Self { faults, random, last: vec![0; ends], past: vec![Vec::new(); ends] }
    }

    /// Sends a packet from one end to another: its arrivals, none or several, and whether anything has
    /// happened to it.
    pub fn send(
        &mut self,
        network: &mut Network,
        from: usize,
        to: usize,
        now: u64,
        bytes: &[u8],
    ) -> (Vec<Arrival>, bool) {
        let Self { faults, random, last, past } = self;
        if faults.is_cut(from, now) || random.chance(faults.loss) {
            return (Vec::new(), true);
        }
        let mut copies = 1;
        while copies < 4 && random.chance(faults.duplication) {
            copies += 1;
        }
        let mut disturbed = copies > 1;
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            let in_order = (now + faults.latency).max(last[from]);
            let at = if random.chance(faults.delay) {
                disturbed = true;
                in_order + random.within(0..=faults.longest_delay)
            } else if random.chance(faults.reordering) {
                disturbed = true;
                in_order + random.within(0..=20_000)
            } else {
                last[from] = in_order;
                in_order
            };
            let place = network.send(from, to, at, bytes.to_vec());
            if random.chance(faults.corruption) {
                disturbed = true;
                network.damage(to, place, |bytes| corrupt(bytes, random));
            }
            arrivals.push(Arrival { to, place, at, replayed: false });
        }
        let past = &mut past[from];
        if random.chance(faults.replay) && !past.is_empty() {
            let ((to, bytes), at) = (past[random.below(past.len())].clone(), now + faults.latency);
            let place = network.send(from, to, at, bytes);
            arrivals.push(Arrival { to, place, at, replayed: true });
        }
        if faults.replay > 0 {
            let place = if past.len() < PAST { past.len() } else { random.below(PAST) };
            past.splice(place..(place + 1).min(past.len()), [(to, bytes.to_vec())]);
        }
        (arrivals, disturbed)
    }
}

/// Changes some bytes, or the length.
fn corrupt(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => bytes.extend((0..=random.below(12)).map(|byte| byte as u8)),
        _ => {
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= random.within(1..=255) as u8;
            }
        }
    }
}
