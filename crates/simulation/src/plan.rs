//! What a seed stands for: two devices, a network, connections, and when the programs do something.

use transom_device::Access;
use transom_device::qp::Service;

use crate::clock::Clock;
use crate::faults::Faults;
use crate::random::Random;

/// A connection, or for UD two queue pairs that know each other.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Transport service.
    pub service: Service,
    /// Path MTU.
    pub mtu: u64,
    /// First PSN that each end sends.
    pub first: [u32; 2],
    /// Exponent of the timeout; zero for none.
    pub timeout: u8,
    /// `retry_cnt`.
    pub retries: u8,
    /// `rnr_retry`.
    pub rnr_retries: u8,
    /// Code of the RNR timer.
    pub rnr_timer: u8,
    /// `max_rd_atomic` and `max_dest_rd_atomic`.
    pub reads: u8,
    /// `qp_access_flags` of each end.
    pub access: [Access; 2],
    /// Protection domain of each end.
    pub pd: [u32; 2],
    /// Work requests that each queue takes.
    pub size: usize,
    /// Most bytes on their way.
    pub window: u64,
}

/// Something a program does.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its number in the seed's plan.
    pub number: usize,
    /// When.
    pub at: u64,
    /// On which connection.
    pub connection: usize,
    /// At which device.
    pub device: usize,
    /// The seed of all that is chosen while it is done.
    pub draw: u64,
}

/// All that a seed stands for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Each device's clock.
    pub clocks: [Clock; 2],
    /// What the network does.
    pub faults: Faults,
    /// Packets go over IPv6.
    pub ipv6: bool,
    /// Most packets of a burst; a link takes at least that many.
    pub burst: u64,
    /// Arrivals come at multiples of this many nanoseconds, all that are due together.
    pub moment: u64,
    /// How many packets each device's link holds, and nanoseconds for each.
    pub links: [(usize, u64); 2],
    /// So many of a thousand choices are such as a program should not make.
    pub wildness: u32,
    /// Connections at the beginning.
    pub connections: Vec<Connection>,
    /// What the programs do.
    pub steps: Vec<Step>,
    /// When the last of that is over.
    pub duration: u64,
}

impl Connection {
    /// A connection, by chance.
    pub fn draw(random: &mut Random, wildness: u32) -> Self {
        use Service::{Rc, Uc, Ud};
        let all = Access::REMOTE | Access::FLUSH_GLOBAL;
        let mut end = |usual: Access| {
            if random.chance(wildness) {
                usual & Access::from_bits_retain(random.number() as u32)
            } else {
                usual
            }
        };
        let access = [end(all), end(all)];
        Self {
            service: random.one_of(&[Rc, Rc, Rc, Rc, Uc, Ud]),
            mtu: random.one_of(&[256, 256, 512, 1024, 2048, 4096]),
            first: [(); 2].map(|()| match random.below(3) {
                0 => 0xff_ffff - random.below(20) as u32,
                _ => random.below(1 << 24) as u32,
            }),
            timeout: if random.chance(20) { 0 } else { random.within(7..=13) as u8 },
            retries: random.one_of(&[0, 1, 3, 7, 7, 7]),
            rnr_retries: random.one_of(&[0, 1, 6, 7, 7]),
            rnr_timer: random.within(1..=16) as u8,
            reads: random.one_of(&[1, 1, 2, 4, 16]),
            access,
            pd: [(); 2].map(|()| if random.chance(wildness) { 2 } else { 1 }),
            size: random.one_of(&[1, 4, 16, 64]),
            window: random.one_of(&[0, 1 << 17, 1 << 20]),
        }
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let duration = random.one_of(&[200_000, 2_000_000, 20_000_000]);
        let wildness = random.one_of(&[0, 0, 10, 50]);
        let count = random.within(1..=4) as usize;
        let connections: Vec<_> =
            (0..count).map(|_| Connection::draw(&mut random, wildness)).collect();
        let number = random.within(10..=90);
        let mut steps: Vec<_> = (0..number)
            .map(|_| Step {
                number: 0,
                at: random.within(0..=duration),
                connection: random.below(count),
                device: random.below(2),
                draw: random.number(),
            })
            .collect();
        steps.sort_by_key(|step| step.at);
        for number in 0..steps.len() {
            // Some are posted one right after the other.
            if number > 0 && random.chance(300) {
                let Step { at, connection, device, .. } = steps[number - 1];
                steps[number] = Step { at, connection, device, ..steps[number] };
            }
            steps[number].number = number;
        }
        let burst = random.one_of(&[1, 2, 5, 64]);
        let mut link = || {
            let depth = burst + random.one_of(&[0, 3, 60, 4_000]);
            (depth as usize, random.one_of(&[0, 100, 700, 3_000]))
        };
        let links = [link(), link()];
        Self {
            seed,
            clocks: [(); 2].map(|()| Clock::draw(&mut random)),
            faults: Faults::draw(&mut random, duration),
            ipv6: random.chance(500),
            burst,
            moment: random.one_of(&[1, 1, 5_000, 50_000]),
            links,
            wildness,
            connections,
            steps,
            duration,
        }
    }

    /// The same with these steps only.
    pub fn only(mut self, steps: &[usize]) -> Self {
        self.steps.retain(|step| steps.contains(&step.number));
        self
    }
}
