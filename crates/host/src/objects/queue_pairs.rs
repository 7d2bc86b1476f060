//! The queue pairs of this process by index. The index is the part of the number that tells them apart.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use transom_device::execution::Unheard;
use transom_system::object_counts::ObjectKind;
use transom_system::registry::Fate;
use transom_system::{ThisProcess, rehearsal};

use super::QueuePair;
use super::qp::Numbers;
use super::seldom::Seldom;
use crate::device::Limits;

/// The queue pairs of a device.
pub(crate) struct QueuePairs {
    process: Arc<ThisProcess>,
    indices: RwLock<Indices>,
    /// Messages for queue pairs that do not exist.
    for_none: Seldom,
}

/// The indices that are taken, and the next one to try.
struct Indices {
    taken: HashMap<u16, Weak<QueuePair>, BuildHasherDefault<IndexHasher>>,
    next: u16,
    /// The index that came free last.
    freed: Option<u16>,
    /// In a rehearsal: those whose numbers rest when they come free.
    resting: BTreeSet<u16>,
    /// The places where queue pairs counted that are gone. There are as many places in all as there were queue pairs
    /// at once, while there are far more indices.
    free_places: Vec<u32>,
}

/// Spreads an index over the bits of a hash. Only this process chooses its indices, so nobody else can make them
/// collide.
#[derive(Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    #[inline]
    fn write_u16(&mut self, index: u16) {
        // By the golden ratio, as Fibonacci hashing does.
        self.0 = u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an index is a u16");
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

impl QueuePairs {
    /// Makes a table without queue pairs; `first` is the first index to try.
    pub(super) fn starting_at(process: Arc<ThisProcess>, first: u16) -> Self {
        let (taken, resting, free_places) = (HashMap::default(), BTreeSet::new(), Vec::new());
        let indices = Indices { taken, next: first, freed: None, resting, free_places };
        let indices = RwLock::new(indices);
        Self { process, indices, for_none: Seldom::default() }
    }

    /// Takes the index that has been unused for longest. A bound window may still name an index; that one is not taken
    /// (rules CR-20, T2-04). A rehearsal takes the one that came free last, or one from anywhere (rules REH-24, REH-29).
    pub(super) fn take_index(&self) -> Option<Numbers> {
        let mut indices = self.indices.write();
        if indices.taken.len() >= Limits::here().queue_pairs as usize {
            return None;
        }
        indices.taken.try_reserve(1).ok()?;
        let segment = self.process.segment();
        let is_free = |indices: &Indices, index: u16| {
            !indices.taken.contains_key(&index)
                && segment.qps().summary(index).is_some_and(|qp| qp.windows() == 0)
        };
        let freed = indices.freed.take().filter(|index| is_free(&indices, *index));
        let again = freed.filter(|_| rehearsal::comes_again());
        let index = again.or_else(|| {
            indices.next = rehearsal::scattered().unwrap_or(indices.next);
            (0..=u16::MAX).find_map(|_| {
                let index = indices.next;
                indices.next = indices.next.wrapping_add(1);
                is_free(&indices, index).then_some(index)
            })
        })?;
        segment.open_qp(index).ok()?;
        let place = match indices.free_places.last() {
            Some(place) => *place,
            // All places are taken, so the next one is behind them.
            None => indices.taken.len() as u32,
        };
        segment.open_place(place).ok()?;
        indices.free_places.pop();
        indices.taken.insert(index, Weak::new());
        self.process.objects().add(ObjectKind::QueuePair);
        Some(Numbers { index, place })
    }

    /// Makes a queue pair findable by its index.
    pub(crate) fn enter(&self, index: u16, qp: &Arc<QueuePair>) {
        self.indices.write().taken.insert(index, Arc::downgrade(qp));
    }

    /// The index and the place are free again.
    pub(super) fn leave(&self, index: u16, place: u32) {
        let mut indices = self.indices.write();
        if indices.taken.remove(&index).is_some() {
            indices.free_places.push(place);
            if !indices.resting.remove(&index) {
                indices.freed = Some(index);
            }
            self.process.objects().remove(ObjectKind::QueuePair);
        }
    }

    /// An id of rdma_cm connects a queue pair. Its number rests afterwards, also in a rehearsal: the peer may still know
    /// the connection, and refuse a new one of that number as stale (rule REH-24).
    pub(super) fn let_rest(&self, index: u16) {
        self.indices.write().resting.insert(index);
    }

    /// The queue pair at an index.
    pub(crate) fn get(&self, index: u16) -> Option<Arc<QueuePair>> {
        self.indices.read().taken.get(&index)?.upgrade()
    }

    /// Notes that a message was dropped because there is no queue pair of this number.
    #[cold]
    pub(crate) fn note_none(&self, from: u32, to: u32) {
        if self.for_none.is_due() {
            self.process.note_work(to, from, None, Fate::Dropped(Unheard::NoQueuePair));
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<QueuePair>> {
        self.indices.read().taken.values().filter_map(Weak::upgrade).collect()
    }
}
