//! How long requests took, from post to completion: histograms by operation and size, in the segment of their process,
//! where other processes of its user look. They are taken only while somebody wants them ([`crate::wanted`]).

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use strum::{EnumCount, VariantArray};
use transom_device::operation::Operation;

/// The kinds of requests that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumCount, VariantArray)]
pub enum Timed {
    /// SENDs, datagrams among them.
    Send,
    /// WRITEs and ATOMIC WRITEs.
    Write,
    /// READs.
    Read,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
    /// FLUSHes.
    Flush,
    /// Binds of windows.
    Bind,
    /// Local invalidations.
    Invalidate,
}

impl Timed {
    /// All of them.
    pub const ALL: [Self; Self::COUNT] =
        *Self::VARIANTS.first_chunk().expect("as many as there are");

    /// The kind of an operation.
    pub fn by(operation: Operation) -> Option<Self> {
        Some(match operation {
            Operation::Send => Self::Send,
            Operation::Write | Operation::AtomicWrite => Self::Write,
            Operation::Read => Self::Read,
            Operation::CompareSwap | Operation::FetchAdd => Self::Atomic,
            Operation::Flush | Operation::FlushPersistent => Self::Flush,
            Operation::Bind => Self::Bind,
            Operation::Invalidate => Self::Invalidate,
            Operation::RemoteInvalidate | Operation::LocalRead | Operation::LocalWrite => {
                return None;
            }
        })
    }

    /// Its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
            Self::Flush => "flush",
            Self::Bind => "bind",
            Self::Invalidate => "invalidate",
        }
    }
}

/// The most bytes of a request of each class but the last, which has no limit.
pub const SIZES: [u64; 5] = [64, 1 << 10, 16 << 10, 256 << 10, 4 << 20];

/// Classes of sizes.
pub const CLASSES: usize = SIZES.len() + 1;

/// The first bucket is for times up to two to the power of this, in nanoseconds. Each following one reaches twice as
/// far.
const FIRST: u32 = 7;

/// Buckets. The last one has no limit.
pub const BUCKETS: usize = 29;

/// The longest time of a bucket, in nanoseconds. `None` for the last.
pub fn limit_of(bucket: usize) -> Option<u64> {
    (bucket < BUCKETS - 1).then(|| 1 << (FIRST as usize + bucket))
}

/// The bucket of a time.
fn bucket_of(nanoseconds: u64) -> usize {
    let doublings = nanoseconds.saturating_sub(1).checked_ilog2().map_or(0, |log| log + 1);
    (doublings.saturating_sub(FIRST) as usize).min(BUCKETS - 1)
}

/// The class of a size.
fn class_of(bytes: u64) -> usize {
    SIZES.iter().position(|size| bytes <= *size).unwrap_or(SIZES.len())
}

/// The times of requests of one kind and class.
#[derive(Debug)]
#[repr(C)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    /// All times together, in nanoseconds.
    sum: AtomicU64,
}

/// The times of a process's requests that ended well.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Latencies([[Histogram; CLASSES]; Timed::ALL.len()]);

impl Latencies {
    /// A request of so many bytes has ended well. Several threads may record at once.
    pub fn record(&self, kind: Timed, bytes: u64, nanoseconds: u64) {
        let histogram = &self.0[kind as usize][class_of(bytes)];
        histogram.buckets[bucket_of(nanoseconds)].fetch_add(1, Relaxed);
        histogram.sum.fetch_add(nanoseconds, Relaxed);
    }

    /// The times of a kind and class, as they are now.
    pub fn get(&self, kind: Timed, class: usize) -> Times {
        let Histogram { buckets, sum } = &self.0[kind as usize][class];
        Times { buckets: array::from_fn(|at| buckets[at].load(Relaxed)), sum: sum.load(Relaxed) }
    }
}

/// The times of requests of one kind and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How many there are in each bucket.
    pub buckets: [u64; BUCKETS],
    /// All times together, in nanoseconds.
    pub sum: u64,
}

impl Times {
    /// None yet.
    pub const NONE: Self = Self { buckets: [0; BUCKETS], sum: 0 };

    /// These and others.
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, u64::wrapping_add)
    }

    /// Those that have come since.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, u64::wrapping_sub)
    }

    fn with(&self, other: &Self, each: fn(u64, u64) -> u64) -> Self {
        let buckets = array::from_fn(|at| each(self.buckets[at], other.buckets[at]));
        Self { buckets, sum: each(self.sum, other.sum) }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// The time that so large a share of the requests, of 1, did not exceed: the limit of their bucket, in nanoseconds.
    /// `None` if there is none, or no limit.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).max(1);
        let mut so_far = 0_u64;
        let bucket = self.buckets.iter().position(|count| {
            so_far = so_far.wrapping_add(*count);
            so_far >= wanted
        });
        bucket.and_then(limit_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_reaches_so_far() {
        for (time, limit) in [
            (0, Some(128)),
            (128, Some(128)),
            (129, Some(256)),
            (256, Some(256)),
            (1000, Some(1024)),
            (1 << 34, Some(1 << 34)),
            ((1 << 34) + 1, None),
            (u64::MAX, None),
        ] {
            assert_eq!(limit_of(bucket_of(time)), limit, "{time}");
        }
        for bytes in [0, 1, 64, 65, 4 << 20, (4 << 20) + 1, u64::MAX] {
            let class = class_of(bytes);
            assert!(SIZES.get(class).is_none_or(|size| bytes <= *size), "{bytes}");
            assert!(class == 0 || bytes > SIZES[class - 1], "{bytes}");
        }
    }

    #[test]
    fn what_is_recorded_is_read_by_kind_and_size() {
        let empty: Box<Latencies> = {
            // SAFETY: all zeros is a valid value of atomics.
            Box::new(unsafe { std::mem::zeroed() })
        };
        for time in 1..=100 {
            empty.record(Timed::Read, 100, time * 10);
        }
        empty.record(Timed::Read, 5 << 20, 7);
        let times = empty.get(Timed::Read, 1);
        assert_eq!((times.count(), times.sum), (100, 50_500));
        assert_eq!(times.quantile(0.1), Some(128));
        assert_eq!(times.quantile(0.5), Some(512));
        assert_eq!(times.quantile(0.99), Some(1024));
        assert_eq!(empty.get(Timed::Read, CLASSES - 1).count(), 1);
        assert_eq!(empty.get(Timed::Write, 1).quantile(0.5), None);
        let large = empty.get(Timed::Read, CLASSES - 1);
        let all = times.and(&large);
        assert_eq!((all.count(), all.sum), (101, 50_507));
        assert_eq!((all.since(&times), all.since(&all)), (large, Times::NONE));
    }
}
