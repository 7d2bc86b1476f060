//! Posted receives whose buffers hold rubbish in a rehearsal, until a message comes for them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use transom_device::execution::{CopyError, LocalBuffers};
use transom_device::protection::{Grant, Operation};
use transom_device::queue::Sge;
use transom_rehearse::Provocation;
use transom_system::ThisProcess;
use transom_system::memory::Source;
use transom_system::rehearsal::Rehearsal;

/// How many bytes of a buffer are scribbled on at most.
pub(super) const SCRIBBLED: usize = 4096;

/// So many bytes that look like the rubbish are the rubbish. Fewer may be data.
const CHANCE: usize = 4;

/// What a rehearsal counts of a receive queue.
#[derive(Debug)]
pub(super) struct Receives {
    /// The number of the queue in this process. Queue pairs and shared receive queues are numbered together, in the
    /// order of their creation.
    queue: u32,
    /// How many elements of lists the program has posted.
    posts: AtomicU64,
    /// How many receives could have held rubbish.
    whole: AtomicU64,
    /// A WRITE with immediate has taken one.
    takes_writes: AtomicBool,
}

impl Receives {
    /// For a new queue.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let [posts, whole] = [const { AtomicU64::new(0) }; 2];
        let queue = NEXT.fetch_add(1, Relaxed);
        Self { queue, posts, whole, takes_writes: AtomicBool::new(false) }
    }

    /// A WRITE with immediate takes one. The next WRITE may lie in a buffer before its receive is posted.
    pub(super) fn note_write(&self) {
        self.takes_writes.store(true, Relaxed);
    }

    /// Whether an element of a list that the program posts is refused.
    pub(super) fn refuse(&self, rehearsal: &Rehearsal) -> bool {
        let nth = self.posts.fetch_add(1, Relaxed);
        rehearsal.provokes(Provocation::RefusedReceives, self.queue, nth).is_some()
    }
}

/// The receives of a device whose buffers hold rubbish. No two of them have a byte in common.
#[derive(Debug, Default)]
pub(crate) struct Scribbled(Mutex<Vec<Held>>);

/// One of them.
#[derive(Debug)]
struct Held {
    queue: u32,
    pd: u32,
    sges: Vec<Sge>,
    /// Where its buffers are: places of grants, and how many bytes are there.
    places: Vec<(u64, u64)>,
    /// What their first bytes held before.
    before: Vec<u8>,
    rubbish: Vec<u8>,
}

impl Held {
    /// Whether it has a byte in common with other places.
    fn meets(&self, places: &[(u64, u64)]) -> bool {
        let meet = |a: &(u64, u64), b: &(u64, u64)| {
            a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1)
        };
        self.places.iter().any(|own| places.iter().any(|other| meet(own, other)))
    }

    /// Gives its bytes back what they held, but for those that somebody has changed. If its key grants them no more, they
    /// stay as they are.
    fn restore(&self, local: LocalBuffers<'_>, process: &ThisProcess) {
        let local = LocalBuffers { sges: &self.sges, pd: self.pd, ..local };
        let Ok(now) = read(local, self.before.len(), process) else { return };
        let is_rubbish: Vec<_> = now.iter().zip(&self.rubbish).map(|(a, b)| a == b).collect();
        let shortest = CHANCE.min(now.len());
        let mut from = 0;
        for run in is_rubbish.chunk_by(|a, b| a == b) {
            let part = self.before.get(from..from + run.len()).unwrap_or_default();
            if run.first() == Some(&true) && run.len() >= shortest {
                let _ = write(local, from as u64, part, process);
            }
            from += run.len();
        }
    }
}

impl Scribbled {
    /// A receive has been posted to a queue, which is locked. Its buffers belong to the device from now on, and may be
    /// scribbled on.
    #[cold]
    pub(super) fn scribble(
        &self,
        rehearsal: &Rehearsal,
        queue: &Receives,
        local: LocalBuffers<'_>,
        process: &ThisProcess,
    ) {
        let length = LocalBuffers::length(local.sges).min(SCRIBBLED as u64) as usize;
        if length == 0 || local.check(Operation::LocalWrite).is_err() {
            return;
        }
        let mut all = self.0.lock();
        let Some(places) = clean(&mut all, local, process) else { return };
        if queue.takes_writes.load(Relaxed) {
            return;
        }
        let nth = queue.whole.fetch_add(1, Relaxed);
        let number = rehearsal.provokes(Provocation::ScribbledReceives, queue.queue, nth);
        let Some(number) = number else { return };
        let Ok(before) = read(local, length, process) else { return };
        let rubbish = rubbish(number, length);
        // If only some of it could be written, that is restored too.
        let _ = write(local, 0, &rubbish, process);
        let (queue, pd, sges) = (queue.queue, local.pd, local.sges.to_vec());
        all.push(Held { queue, pd, sges, places, before, rubbish });
    }

    /// A receive with these buffers is taken for a message. What the message leaves of them is as it was before the post.
    #[cold]
    pub(super) fn clean(&self, local: LocalBuffers<'_>, process: &ThisProcess) {
        let mut all = self.0.lock();
        if all.is_empty() {
            return;
        }
        clean(&mut all, local, process);
        // Its key may grant nothing any more.
        all.retain(|held| (held.pd, &*held.sges) != (local.pd, local.sges));
    }

    /// The receives of a queue have ended without a message, or are about to. Their buffers are the program's, and stay
    /// as they are.
    #[cold]
    pub(super) fn forget(&self, queue: &Receives) {
        self.0.lock().retain(|held| held.queue != queue.queue);
    }
}

/// Restores all that has a byte in common with these buffers, and forgets it. Returns their places, or `None` if they
/// may not be written to.
fn clean(
    all: &mut Vec<Held>,
    local: LocalBuffers<'_>,
    process: &ThisProcess,
) -> Option<Vec<(u64, u64)>> {
    let mut places = Vec::new();
    let length = LocalBuffers::length(local.sges);
    let placed = local.each(Operation::LocalWrite, 0, length, |_, grant| {
        // Bytes of a null region are nowhere.
        places.extend((!grant.is_null()).then(|| (grant.place(), grant.length())));
        Ok(())
    });
    placed.ok()?;
    all.extract_if(.., |held| held.meets(&places)).for_each(|held| held.restore(local, process));
    Some(places)
}

/// Bytes that nobody takes for data, from a random number.
fn rubbish(number: u64, length: usize) -> Vec<u8> {
    let next = |state: &u64| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    let states = std::iter::successors(Some(number), next);
    states.skip(1).take(length).map(|state| (state >> 56) as u8).collect()
}

/// The first bytes of buffers.
fn read(
    local: LocalBuffers<'_>,
    length: usize,
    process: &ThisProcess,
) -> Result<Vec<u8>, CopyError> {
    let mut bytes = vec![0; length];
    local.each(Operation::LocalWrite, 0, length as u64, |at, grant| {
        let Some(part) = part_of(&mut bytes, at, grant) else { return Ok(()) };
        let length = part.len() as u64;
        let copied = process.copier().copy(part.into(), Source::Program(grant.place()), length);
        copied.map_err(|_| CopyError::Far)
    })?;
    Ok(bytes)
}

/// Writes bytes to buffers, from an offset on.
fn write(
    local: LocalBuffers<'_>,
    offset: u64,
    bytes: &[u8],
    process: &ThisProcess,
) -> Result<(), CopyError> {
    let mut bytes = bytes.to_vec();
    let length = bytes.len() as u64;
    local.each(Operation::LocalWrite, offset, length, |at, grant| {
        let Some(part) = part_of(&mut bytes, at, grant) else { return Ok(()) };
        process.store(grant, &[part]).map_err(|_| CopyError::Far)
    })
}

/// The bytes at a place that are as many as a grant is long. `None` if it leads nowhere.
fn part_of<'a>(bytes: &'a mut [u8], at: u64, grant: &Grant<'_>) -> Option<&'a mut [u8]> {
    if grant.is_null() {
        return None;
    }
    let (at, length) = (usize::try_from(at).ok()?, usize::try_from(grant.length()).ok()?);
    bytes.get_mut(at..)?.get_mut(..length)
}
