//! Revocation under a model checker: every interleaving (within a bound on preemptions) of accesses
//! with binds, invalidations and deregistrations of the same key.
//!
//! The granted memory is a cell that the checker watches. An access after the revocation has returned, or at the same
//! time, is reported as a race with the owner's reuse of the memory.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p transom-device --test loom --release`.
#![cfg(loom)]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering::*};
use loom::thread;
use transom_device::Access;
use transom_device::execution::{AccessLog, Logged};
use transom_device::protection::*;
use transom_device::qp::{QpSummary, QpTable};

const ME: Announcer = Announcer { slot: 0, generation: 1 };
const OTHER: Announcer = Announcer { slot: 1, generation: 1 };
const PD: u32 = 7;

/// Gives way to the other threads of the model.
struct Yield;

impl Waiter for Yield {
    fn pause(&self, _round: u32, _on: Option<Announcer>) {
        thread::yield_now();
    }

    fn resumed(&self) {}

    fn is_gone(&self, _process: Announcer) -> bool {
        false
    }
}

struct World {
    entries: Vec<KeyEntry>,
    open: AtomicU32,
    scramble: Arc<Scramble>,
    recent: RecentSlots,
    hazards: Hazards,
    qps: Vec<QpSummary>,
    /// The memory that the region covers.
    memory: UnsafeCell<u64>,
    region: Key,
    window: Key,
}

impl World {
    /// A region, and a window of this kind that is not bound.
    fn new(kind: WindowKind, scramble: &Arc<Scramble>) -> Self {
        let mut world = Self {
            entries: (0..2).map(|_| KeyEntry::default()).collect(),
            open: AtomicU32::new(2),
            scramble: scramble.clone(),
            recent: RecentSlots::default(),
            hazards: Hazards::default(),
            qps: (0..2).map(|_| QpSummary::default()).collect(),
            memory: UnsafeCell::new(0),
            region: Key(0),
            window: Key(0),
        };
        world.hazards.attach(ME);
        world.hazards.attach(OTHER);
        let mut owner = KeyOwner::new(2, 2);
        let (slot, region) = owner.take(&world.table(), Kind::Region, 3).unwrap();
        let access = Access::all().difference(Access::ZERO_BASED);
        Region { pd: PD, access, base: 0x1000, length: 4096, place: Place::Memory(0x1000) }
            .register(&world.table(), slot, region, 0);
        let (slot, window) = owner.take(&world.table(), Kind::Window1, 3).unwrap();
        kind.allocate(&world.table(), slot, window, PD);
        (world.region, world.window) = (region, window);
        world
    }

    fn table(&self) -> KeyTable<'_> {
        KeyTable::new(&self.entries, &self.open, &self.scramble, &self.recent, &self.hazards)
    }

    fn region_slot(&self) -> u32 {
        self.table().slot_of(self.region).unwrap()
    }

    /// Changes rights and length of the region.
    fn change(&self, access: Access, length: u64) -> Result<(), InUse> {
        let (table, slot) = (self.table(), self.region_slot());
        let place = Place::Memory(0x1000);
        let region = Region { pd: PD, access, base: 0x1000, length, place };
        region.begin_change(&table, slot, &Yield)?;
        region.reopen(&table, slot, self.region, 0);
        Ok(())
    }

    fn bind(&self, key: Key) -> Bind {
        Bind {
            window: key,
            region: self.region,
            address: 0x1000,
            length: 64,
            access: Access::REMOTE,
        }
    }

    fn bind2(&self, qp: u32, key: Key) -> Result<(), Refusal> {
        bind_type2(&self.table(), &self.qps[qp as usize], &self.bind(key), &stamp(qp), &Yield, None)
    }

    fn invalidate(&self, qp: u32, key: Key) -> Result<(), Refusal> {
        let operation = Operation::Invalidate;
        invalidate(
            &self.table(),
            &QpTable::new(&self.qps),
            operation,
            key,
            &stamp(qp),
            &Yield,
            None,
        )
    }

    /// Reads the memory through a key, if that is granted.
    fn access(&self, who: Announcer, qp: u32, key: Key) -> bool {
        let attempt =
            Attempt { operation: Operation::Read, key, address: 0x1000, length: 8, qp, pd: PD };
        match self.table().grant(attempt, who, &Yield) {
            Ok(_grant) => {
                self.memory.with(|memory| {
                    std::hint::black_box(memory);
                });
                true
            }
            Err(_) => false,
        }
    }

    /// The owner's use of memory it has taken back.
    fn reuse(&self) {
        self.memory.with_mut(|memory| {
            std::hint::black_box(memory);
        });
    }
}

fn stamp(qp: u32) -> Stamp {
    Stamp { qp, pd: PD, wr_id: 0, now: 0 }
}

fn check(model: impl Fn(&Arc<Scramble>) + Send + Sync + 'static) {
    let scramble: Arc<Scramble> = Arc::from(Scramble::for_simulation(1));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 20_000;
    builder.check(move || model(&scramble));
}

/// Rules: INV-23
#[test]
fn after_an_invalidation_nobody_is_in_the_memory() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type2B, scramble));
        world.bind2(0, world.window).unwrap();
        let guest = {
            let world = world.clone();
            thread::spawn(move || world.access(OTHER, 0, world.window))
        };
        world.invalidate(0, world.window).unwrap();
        world.reuse();
        guest.join().unwrap();
        assert!(!world.access(OTHER, 0, world.window));
    });
}

/// Rules: INV-23, DR-15
#[test]
fn threads_of_the_same_process_are_waited_for_as_well() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type2B, scramble));
        world.bind2(0, world.window).unwrap();
        let guests = [ME, OTHER].map(|who| {
            let world = world.clone();
            thread::spawn(move || world.access(who, 0, world.window))
        });
        world.invalidate(0, world.window).unwrap();
        world.reuse();
        for guest in guests {
            guest.join().unwrap();
        }
    });
}

/// Rules: DR-15
#[test]
fn after_a_deregistration_nobody_is_in_the_memory() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type1, scramble));
        let guest = {
            let world = world.clone();
            thread::spawn(move || world.access(OTHER, 0, world.region))
        };
        Region::deregister(&world.table(), world.region_slot(), &Yield).unwrap();
        world.reuse();
        guest.join().unwrap();
    });
}

/// Rules: ORD-14, KEY-12
#[test]
fn after_a_rebind_the_old_key_reaches_nothing() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type1, scramble));
        let (table, old) = (world.table(), world.window);
        bind_type1(&table, &world.bind(old), &stamp(0), &Yield, None).unwrap();
        let guest = {
            let world = world.clone();
            thread::spawn(move || world.access(OTHER, 0, old))
        };
        bind_type1(&table, &world.bind(old.next()), &stamp(0), &Yield, None).unwrap();
        world.reuse();
        guest.join().unwrap();
        assert!(!world.access(OTHER, 0, old));
        assert!(world.access(OTHER, 0, old.next()));
    });
}

/// Rules: MWA-14
#[test]
fn after_a_window_is_freed_nobody_is_in_the_memory() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type2B, scramble));
        world.bind2(0, world.window).unwrap();
        let guest = {
            let world = world.clone();
            thread::spawn(move || world.access(OTHER, 0, world.window))
        };
        let table = world.table();
        let slot = table.slot_of(world.window).unwrap();
        release_window(&table, &QpTable::new(&world.qps), slot, &Yield);
        world.reuse();
        guest.join().unwrap();
        assert!(Region::deregister(&table, world.region_slot(), &Yield).is_ok());
    });
}

/// Rules: RR-10
#[test]
fn after_a_change_of_rights_nobody_is_in_by_the_old_ones() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type1, scramble));
        let guest = {
            let world = world.clone();
            thread::spawn(move || world.access(OTHER, 0, world.region))
        };
        world.change(Access::REMOTE_WRITE | Access::LOCAL_WRITE, 4096).unwrap();
        world.reuse();
        guest.join().unwrap();
        assert!(!world.access(OTHER, 0, world.region));
    });
}

/// Rules: RR-08, RR-10
#[test]
fn what_old_and_new_rights_allow_is_never_refused_during_the_change() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type1, scramble));
        let guest = {
            let world = world.clone();
            thread::spawn(move || assert!(world.access(OTHER, 0, world.region)))
        };
        world.change(Access::REMOTE_READ, 8).unwrap();
        world.change(Access::REMOTE | Access::LOCAL_WRITE, 64).unwrap();
        guest.join().unwrap();
    });
}

/// Rules: RR-12
#[test]
fn a_bind_waits_for_a_change_or_stops_it() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type2B, scramble));
        let binder = {
            let world = world.clone();
            thread::spawn(move || world.bind2(0, world.window).unwrap())
        };
        let changed = world.change(Access::all().difference(Access::ZERO_BASED), 64);
        binder.join().unwrap();
        assert!(world.access(ME, 0, world.window));
        assert_eq!(world.change(Access::MW_BIND, 64), Err(InUse), "{changed:?}");
    });
}

/// A bound window is no region that is just being changed.
/// Rules: T1-31
#[test]
fn a_bind_to_a_window_is_refused_and_waits_for_nothing() {
    check(|scramble| {
        let world = World::new(WindowKind::Type1, scramble);
        let (table, window) = (world.table(), world.window);
        bind_type1(&table, &world.bind(window), &stamp(0), &Yield, None).unwrap();
        let to_itself = Bind { region: window, ..world.bind(window) };
        assert!(bind_type1(&table, &to_itself, &stamp(0), &Yield, None).is_err());
    });
}

/// Rules: INV-21
#[test]
fn of_two_invalidations_exactly_one_succeeds() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type2B, scramble));
        world.bind2(0, world.window).unwrap();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.invalidate(0, world.window).is_ok())
        };
        let here = world.invalidate(0, world.window).is_ok();
        assert!(here ^ other.join().unwrap());
        assert_eq!(world.qps[0].windows(), 0);
    });
}

/// Rules: ORD-30, T2-21
#[test]
fn of_two_binds_of_a_free_window_exactly_one_succeeds() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type2B, scramble));
        let other = {
            let world = world.clone();
            thread::spawn(move || world.bind2(1, world.window).is_ok())
        };
        let here = world.bind2(0, world.window).is_ok();
        assert!(here ^ other.join().unwrap());
        let owner = u32::from(!here);
        assert!(world.access(ME, owner, world.window));
        assert!(!world.access(ME, 1 - owner, world.window));
    });
}

/// A queue pair ends its own binding only: never the next one that another made with the same key
/// byte between its look and its step.
/// Rules: INV-11
#[test]
fn an_invalidation_never_ends_the_binding_of_another_queue_pair() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type2B, scramble));
        world.bind2(1, world.window).unwrap();
        let owner = {
            let world = world.clone();
            thread::spawn(move || {
                // Both may try to end the first binding. Whichever does, queue pair 0 binds next.
                let ended = world.invalidate(1, world.window).is_ok();
                (ended, world.bind2(0, world.window).is_ok())
            })
        };
        let ended_here = world.invalidate(1, world.window).is_ok();
        let (ended_there, bound) = owner.join().unwrap();
        assert!(ended_here ^ ended_there);
        assert!(bound, "the first binding was over");
        assert!(world.access(ME, 0, world.window), "the second binding stands");
    });
}

/// Rules: DR-03, DR-04, T1-31
#[test]
fn a_region_is_never_gone_under_a_window_that_was_just_bound() {
    check(|scramble| {
        let world = Arc::new(World::new(WindowKind::Type2B, scramble));
        let binder = {
            let world = world.clone();
            thread::spawn(move || world.bind2(0, world.window).is_ok())
        };
        let gone = Region::deregister(&world.table(), world.region_slot(), &Yield).is_ok();
        let bound = binder.join().unwrap();
        // A bind that is refused may have kept the region busy for a moment; both may fail then.
        assert!(!(gone && bound), "gone: {gone}, bound: {bound}");
    });
}

/// An access of the log's tests, told from others by its address.
fn logged(operation: Operation, address: u64) -> Attempt {
    Attempt { operation, key: Key(9), address, length: 8, qp: 3, pd: 0 }
}

fn drain(log: &AccessLog, found: &mut Vec<u64>) {
    log.drain(|logged| match logged {
        Logged::Access(attempt) => found.push(attempt.address),
        Logged::Gap => found.push(u64::MAX),
    });
}

/// A WRITE is logged, or its initiator knows that it is not. Each comes out once.
#[test]
fn every_logged_access_comes_out_once() {
    loom::model(|| {
        let log = Arc::new(AccessLog::default());
        let writers = [1, 2].map(|address| {
            let log = log.clone();
            thread::spawn(move || log.add(&logged(Operation::Write, address)))
        });
        let mut found = Vec::new();
        drain(&log, &mut found);
        let are_logged = writers.map(|it| it.join().unwrap());
        drain(&log, &mut found);
        found.sort_unstable();
        let expected: Vec<u64> =
            [1, 2].into_iter().zip(are_logged).filter(|it| it.1).map(|it| it.0).collect();
        assert_eq!(found, expected);
    });
}

/// Whoever sees the data of a WRITE finds it in the log.
#[test]
fn a_write_whose_data_is_seen_is_in_the_log() {
    loom::model(|| {
        let log = Arc::new(AccessLog::default());
        let data = Arc::new(AtomicU32::new(0));
        let writer = {
            let (log, data) = (log.clone(), data.clone());
            thread::spawn(move || {
                let is_logged = log.add(&logged(Operation::Write, 1));
                if is_logged {
                    data.store(1, Relaxed);
                }
                is_logged
            })
        };
        let is_seen = data.load(Acquire) == 1;
        let mut found = Vec::new();
        drain(&log, &mut found);
        assert!(!is_seen || found == [1]);
        assert!(writer.join().unwrap() || found.is_empty());
    });
}

/// One peer WRITEs, another READs that and then WRITEs too. If the process finds the second WRITE, then what says that
/// its peer knew of the first lies between the two, or in place of both.
#[test]
fn a_read_stands_between_the_write_that_it_saw_and_those_behind_it() {
    // So that there is room for all, or for some.
    for before in [0, 2, 3] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || reads_and_writes(before));
    }
}

fn reads_and_writes(before: u64) {
    let log = Arc::new(AccessLog::default());
    let data = Arc::new(AtomicU32::new(0));
    assert!((0..before).all(|nth| log.add(&logged(Operation::Write, 10 + nth))));
    let first = {
        let (log, data) = (log.clone(), data.clone());
        thread::spawn(move || {
            if log.add(&logged(Operation::Write, 1)) {
                data.store(1, Release);
            }
        })
    };
    let second = {
        let (log, data) = (log.clone(), data.clone());
        thread::spawn(move || {
            let has_seen = data.load(Acquire) == 1;
            log.add_done(&logged(Operation::Read, 2));
            log.add(&logged(Operation::Write, 3));
            has_seen
        })
    };
    let mut found = Vec::new();
    drain(&log, &mut found);
    drain(&log, &mut found);
    first.join().unwrap();
    let has_seen = second.join().unwrap();
    drain(&log, &mut found);
    let place = |address| found.iter().position(|it| *it == address);
    if has_seen && let (Some(one), Some(three)) = (place(1), place(3)) {
        let between = &found[one..three.max(one)];
        assert!(between.iter().any(|it| [2, u64::MAX].contains(it)), "{found:?}");
    }
}
