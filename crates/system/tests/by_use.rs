//! Registered pages that are moved to the address-space file when they have been used so often that this pays.

mod common;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use common::{Pages, everything_at_random, in_child};
use transom_system::memory::{
    Accessed, Allocation, Copier, Destination, When, add_user, begin_mapping, enter, is_mapped,
    leave, page_size, take_over_used,
};

/// A process without peers.
struct Alone;

impl Accessed for Alone {
    fn exclusively(&self, act: &mut dyn FnMut()) -> bool {
        act();
        true
    }

    fn wake(&self) {}
}

/// The pages of a process are one thing: one test at a time has them.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let begun = begin_mapping(When::Used).and_then(|_| {
        let memory = Allocation::new(1)?;
        let can = is_mapped(memory.first().as_ptr() as u64, 1);
        if can { Ok(()) } else { Err(io::Error::other("pages are not moved")) }
    });
    match begun {
        Ok(()) => Some(guard),
        Err(error) => {
            println!("skipped: memory cannot be mapped here: {error}");
            None
        }
    }
}

/// More copies than it takes until memory is moved.
const MANY: usize = 1000;

fn use_once(copier: &Copier, at: u64, number: u64) {
    let bytes = number.to_ne_bytes();
    copier.copy(Destination::Program(at), (&bytes[..]).into(), 8).unwrap();
    take_over_used();
}

fn use_often(copier: &Copier, at: u64) {
    (0..MANY as u64).for_each(|number| use_once(copier, at, number));
}

/// How many copies to `used` it takes until the memory at `at` is moved; the last brings zero. On a busy machine threads
/// may not stop in time, and then it takes more.
fn uses_until_mapped(copier: &Copier, used: u64, at: u64) -> usize {
    let is_moved = |_: &usize| {
        use_once(copier, used, 0);
        is_mapped(at, 8)
    };
    (1..100_000_000).find(is_moved).expect("it is moved")
}

/// What is used often is moved, with all that is registered near it; and it is private again when the region ends.
#[test]
fn memory_that_is_used_again_and_again_is_moved() {
    let Some(_alone) = alone() else { return };
    let user: Arc<dyn Accessed> = Arc::new(Alone);
    add_user(Arc::downgrade(&user));
    let (pages, copier) = (Pages::new(3), Copier::best().unwrap());
    pages.word(1, 8).store(7, Relaxed);
    pages.enter(0, 2);
    assert!(!is_mapped(pages.at(0), 8));
    assert!(uses_until_mapped(&copier, pages.at(0), pages.at(0)) < 20 * MANY);
    assert!(is_mapped(pages.at(0), 2 * page_size()) && !is_mapped(pages.at(2), 8));
    let holds = || {
        let word = |page, at| pages.word(page, at).load(Relaxed);
        (word(0, 0), word(1, 8)) == (0, 7)
    };
    assert!(holds());
    // After a fork use decides again, and it takes the more of it the more forks there have been.
    let mut uses = 0;
    for _ in 0..4 {
        assert!(in_child(holds));
        assert!(!is_mapped(pages.at(0), 8) && holds());
        uses = uses_until_mapped(&copier, pages.at(0), pages.at(0));
        assert!(is_mapped(pages.at(0), 2 * page_size()) && holds());
    }
    assert!(uses > 60 * MANY, "{uses}");
    pages.leave(0, 2);
    assert!(!is_mapped(pages.at(0), 8) && holds());
}

/// Notes that it is to look for what to move.
#[derive(Default)]
struct Told(AtomicBool);

impl Accessed for Told {
    fn exclusively(&self, act: &mut dyn FnMut()) -> bool {
        act();
        true
    }

    fn wake(&self) {
        self.0.store(true, Relaxed);
    }
}

/// A forked child that opens a device of its own has its memory moved, whatever it has inherited.
#[test]
fn a_child_is_told_of_what_it_uses() {
    let Some(_alone) = alone() else { return };
    let inherited: Arc<dyn Accessed> = Arc::new(Alone);
    add_user(Arc::downgrade(&inherited));
    let (pages, copier) = (Pages::new(1), Copier::best().unwrap());
    assert!(in_child(|| {
        let own = Arc::new(Told::default());
        let user: Arc<dyn Accessed> = own.clone();
        add_user(Arc::downgrade(&user));
        let begun = begin_mapping(When::Used).is_ok();
        pages.enter(0, 1);
        use_often(&copier, pages.at(0));
        begun && own.0.load(Relaxed)
    }));
}

/// A program that registers its memory anew for each transfer would pay for each move.
#[test]
fn memory_that_is_registered_for_each_use_stays_private() {
    let Some(_alone) = alone() else { return };
    let (pages, copier) = (Pages::new(1), Copier::best().unwrap());
    for number in 0..MANY as u64 {
        pages.enter(0, 1);
        use_once(&copier, pages.at(0), number);
        assert!(!is_mapped(pages.at(0), 8));
        pages.leave(0, 1);
    }
}

/// Of what shares a page with memory that is paged on demand nothing is moved either.
#[test]
fn what_may_not_be_moved_is_not_moved_for_use() {
    let Some(_alone) = alone() else { return };
    let (pages, copier) = (Pages::new(2), Copier::best().unwrap());
    pages.enter(0, 2);
    enter(pages.at(1), 8, true);
    uses_until_mapped(&copier, pages.at(1), pages.at(0));
    assert!(!is_mapped(pages.at(1), 8));
    leave(pages.at(1), 8);
    pages.leave(0, 2);
    let on_stack = 0_u64;
    let at = (&raw const on_stack).addr() as u64;
    enter(at, 8, false);
    use_often(&copier, at);
    assert!(!is_mapped(at, 8), "a stack");
    leave(at, 8);
}

#[test]
fn every_byte_is_what_it_must_be() {
    let Some(_alone) = alone() else { return };
    everything_at_random();
}
