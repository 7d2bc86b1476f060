//! The plan of one run.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::str::FromStr;

use crate::place::NoPlace;
use crate::{Order, Place, Profile, Provocation, Sort};

/// What one run provokes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of all decisions.
    pub seed: u64,
    /// The adapter that the device stands for.
    pub profile: Option<&'static Profile>,
    /// Whose promises of memory order the device keeps.
    pub order: Order,
    /// The provocations that may happen.
    pub kinds: BTreeSet<Provocation>,
    /// If given, a provocation happens at these places only.
    pub places: Option<HashSet<Place>>,
}

/// A text that is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// A line that says nothing known.
    Line(String),
    /// A place that cannot be read.
    Place(NoPlace),
}

impl fmt::Display for NoPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "a plan has no line {line:?}"),
            Self::Place(place) => place.fmt(f),
        }
    }
}

impl std::error::Error for NoPlan {}

impl Plan {
    /// A plan in which nothing is provoked.
    pub fn quiet() -> Self {
        Self { seed: 0, profile: None, order: Order::Verbs, kinds: BTreeSet::new(), places: None }
    }

    /// What the plan decides, made ready to be asked at each operation.
    pub fn decisions(&self) -> Decisions {
        let seed = mixed(self.seed);
        let kinds = Provocation::ALL.iter().map(|kind| Kind {
            chance: if self.kinds.contains(kind) { self.chance(*kind) } else { 0 },
            number: mixed(seed ^ mixed(kind.number())),
        });
        Decisions { kinds: kinds.collect(), places: self.places.clone() }
    }

    /// How often something happens in this run, of 1024 times. Runs differ much: what happens always hides what happens
    /// only after something else went well. With places given, it happens at each of them.
    fn chance(&self, provocation: Provocation) -> u64 {
        let chance = mixed(self.seed ^ provocation.number());
        match provocation.sort() {
            _ if self.places.is_some() => 1024,
            // One of these is felt by all that follows.
            _ if matches!(provocation, Provocation::GonePeers | Provocation::StuckWork) => {
                [0, 0, 0, 4, 16, 64][(chance % 6) as usize]
            }
            // What is not promised is not given.
            Sort::Mercy => 1024,
            Sort::Moment => [0, 16, 128, 512][(chance % 4) as usize],
            // After a failure most programs end. So few runs have any.
            Sort::Failure => [0, 0, 0, 16, 128, 512][(chance % 6) as usize],
        }
    }
}

/// The decisions of a plan.
#[derive(Debug)]
pub struct Decisions {
    /// One for each provocation, in the order of [`Provocation::ALL`].
    kinds: Box<[Kind]>,
    /// If given, a provocation happens at these places only.
    places: Option<HashSet<Place>>,
}

/// What decides about one provocation. Each post asks for several, so all that does not depend on the place is here.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// How often it happens, of 1024 times.
    chance: u64,
    /// The beginning of its random numbers.
    number: u64,
}

impl Decisions {
    /// Whether something may be provoked at all. If not, you need not look whether it could be done. But count the
    /// operation: its number is the same in each run, whatever else may be provoked.
    #[inline]
    pub fn may_provoke(&self, provocation: Provocation) -> bool {
        self.kinds[provocation as usize].chance > 0
    }

    /// Whether something may be provoked at an object, or at any of a process: with places where they are, else at half
    /// of all. It is for what closes the way of something else, which the other half shows.
    pub fn may_provoke_at(
        &self,
        provocation: Provocation,
        process: u32,
        object: Option<u32>,
    ) -> bool {
        let is_there = |place: &Place| {
            (place.provocation, place.process) == (provocation, process)
                && object.is_none_or(|object| place.object == object)
        };
        let kind = self.kinds[provocation as usize];
        let object = u64::from(process) << 32 | u64::from(object.unwrap_or(u32::MAX));
        kind.chance > 0
            && match &self.places {
                Some(places) => places.iter().any(is_there),
                None => mixed(kind.number ^ object).is_multiple_of(2),
            }
    }

    /// Whether something is provoked at a place. If so, the answer is a random number, for what is left to choose.
    #[inline]
    pub fn provokes(&self, place: &Place) -> Option<u64> {
        let kind = self.kinds[place.provocation as usize];
        if kind.chance == 0 { None } else { self.decide(kind, place) }
    }

    /// A random number for the n-th operation of a kind, the same in each process.
    pub fn number(&self, provocation: Provocation, nth: u64) -> u64 {
        mixed(self.kinds[provocation as usize].number ^ mixed(nth))
    }

    fn decide(&self, kind: Kind, place: &Place) -> Option<u64> {
        let object = u64::from(place.process) << 32 | u64::from(place.object);
        let number = [object, place.nth]
            .into_iter()
            .fold(kind.number, |number, part| mixed(number ^ mixed(part)));
        let happens = match &self.places {
            Some(places) => places.contains(place),
            None => number % 1024 < kind.chance && is_drawn(place, number),
        };
        happens.then_some(number >> 10)
    }
}

/// The first operations of an object have the full chance of a moment. The chance of later ones falls with their number, so
/// that a program with a million requests has each moment at every stage of its work, and does not take hours.
fn is_drawn(place: &Place, number: u64) -> bool {
    const FULL: u64 = 64;
    place.provocation.sort() != Sort::Moment
        || place.nth < FULL
        || mixed(number) % (place.nth + 1) < FULL
}

/// Mixes the bits of a number: SplitMix64's last step.
const fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        self.profile.iter().try_for_each(|profile| writeln!(f, "as {}", profile.name))?;
        match self.order {
            Order::Verbs => {}
            order => writeln!(f, "order {}", order.name())?,
        }
        self.kinds.iter().try_for_each(|kind| writeln!(f, "kind {}", kind.name()))?;
        let Some(places) = &self.places else { return Ok(()) };
        writeln!(f, "only")?;
        places.iter().try_for_each(|place| writeln!(f, "place {place}"))
    }
}

impl FromStr for Plan {
    type Err = NoPlan;

    fn from_str(text: &str) -> Result<Self, NoPlan> {
        let mut plan = Self::quiet();
        for line in text.lines() {
            let wrong = || NoPlan::Line(line.to_owned());
            match line.split_once(' ').unwrap_or((line, "")) {
                ("seed", seed) => plan.seed = seed.parse().map_err(|_| wrong())?,
                ("kind", name) => {
                    plan.kinds.insert(Provocation::named(name).ok_or_else(wrong)?);
                }
                ("order", name) => plan.order = Order::named(name).ok_or_else(wrong)?,
                ("as", name) => plan.profile = Some(Profile::named(name).ok_or_else(wrong)?),
                ("only", "") => plan.places = Some(HashSet::new()),
                ("place", place) => {
                    let place = place.parse().map_err(NoPlan::Place)?;
                    plan.places.as_mut().ok_or_else(wrong)?.insert(place);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(provocation: Provocation, object: u32, nth: u64) -> Place {
        Place { provocation, process: 0, object, nth }
    }

    fn all(seed: u64) -> Plan {
        Plan { seed, kinds: Provocation::ALL.iter().copied().collect(), ..Plan::quiet() }
    }

    /// Rule: REH-01
    #[test]
    fn a_plan_is_read_as_it_is_written() {
        let mut plan = all(7);
        assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
        plan.profile = Profile::named("mlx5");
        plan.order = Order::Spec;
        assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
        plan.places = Some([place(Provocation::LateWork, 3, 4)].into());
        assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
        plan.places = Some(HashSet::new());
        assert_eq!(plan.to_string().parse(), Ok(plan));
    }

    #[test]
    fn a_text_that_is_no_plan_is_told_with_the_line() {
        for (text, said) in [
            ("seed x", "a plan has no line \"seed x\""),
            ("as mlx", "a plan has no line \"as mlx\""),
            ("order none", "a plan has no line \"order none\""),
            ("place late-work:0.0.0", "a plan has no line \"place late-work:0.0.0\""),
            ("only\nplace late:0", "\"late:0\" is no place; one is like late-work:0.5.12"),
        ] {
            assert_eq!(text.parse::<Plan>().unwrap_err().to_string(), said);
        }
    }

    /// Rule: REH-01
    #[test]
    fn a_place_has_the_same_decision_each_time_and_seeds_differ() {
        let places: Vec<_> = (0..4)
            .flat_map(|object| (0..64).map(move |nth| place(Provocation::LateWork, object, nth)))
            .collect();
        let of = |seed| {
            let plan = all(seed).decisions();
            places.iter().map(|it| plan.provokes(it)).collect::<Vec<_>>()
        };
        let seeds: Vec<_> = (0..32).map(of).collect();
        assert_eq!(of(5), seeds[5]);
        let different: HashSet<_> = seeds.iter().collect();
        // Some runs provoke nothing of one kind.
        assert!(different.len() > 16, "{}", different.len());
        let count = |it: &Vec<Option<u64>>| it.iter().flatten().count();
        assert!(seeds.iter().any(|it| count(it) == 0));
        assert!(seeds.iter().any(|it| count(it) > places.len() / 4));
    }

    /// Each host reads the plan for itself, and places may be given in one process.
    /// Rule: REH-29
    #[test]
    fn the_numbers_of_two_hosts_are_equal_and_scattered() {
        let numbers = |plan: Plan| {
            let read: Plan = plan.to_string().parse().unwrap();
            let decisions = read.decisions();
            let number = |nth| decisions.number(Provocation::ScatteredNumbers, nth) as u16;
            (0..64).map(number).collect::<Vec<_>>()
        };
        let ours = numbers(all(7));
        for process in [0, 1] {
            let here = Place { process, ..place(Provocation::ScatteredNumbers, 0, 3) };
            assert_eq!(numbers(Plan { places: Some([here].into()), ..all(7) }), ours);
        }
        assert!(ours.windows(2).all(|two| two[0].abs_diff(two[1]) > 1));
        assert_ne!(numbers(all(8)), ours);
    }

    /// Rule: REH-01
    #[test]
    fn moments_become_rarer_with_the_number_of_the_operation_and_never_end() {
        let often = (0..32).map(all).max_by_key(|it| it.chance(Provocation::LateWork)).unwrap();
        let often = often.decisions();
        let count = |from: u64, to: u64| {
            let places = (from..to).map(|nth| place(Provocation::LateWork, 0, nth));
            places.filter(|it| often.provokes(it).is_some()).count()
        };
        assert!((20..45).contains(&count(0, 64)), "{}", count(0, 64));
        // Each tenfold has about as many: 64 × ln 10 / 2.
        for from in [100, 1000, 10_000, 100_000] {
            assert!((45..105).contains(&count(from, from * 10)), "{}", count(from, from * 10));
        }
    }

    /// Rule: REH-02
    #[test]
    fn a_plan_with_places_provokes_there_and_nowhere_else() {
        let here = place(Provocation::RefusedObjects, 0, 3);
        let plan = Plan { places: Some([here].into()), ..all(1) };
        assert!(plan.decisions().provokes(&here).is_some());
        for other in
            [place(Provocation::RefusedObjects, 0, 2), place(Provocation::ExactSizes, 0, 3)]
        {
            assert_eq!(plan.decisions().provokes(&other), None);
        }
        let others = Plan { kinds: [Provocation::LateWork].into(), ..plan };
        assert_eq!(others.decisions().provokes(&here), None);
        assert_eq!(Plan::quiet().decisions().provokes(&here), None);
    }
}
