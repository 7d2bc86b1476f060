//! The segments of all processes, held while this command runs.
//!
//! The memory of a killed process goes with its last user. While this command is one, the counters in it are not lost.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use transom_device::protection::Announcer;
use transom_system::registry::Registry;
use transom_system::segment::Segment;

/// The segments, by slot and stay. Several threads may use them.
#[derive(Default)]
pub(crate) struct Held(Mutex<Those>);

#[derive(Default)]
struct Those {
    segments: HashMap<(u8, u32), Segment>,
    /// How many were let go, because their processes had ended.
    ended: u64,
}

impl Held {
    /// Takes those of new processes, and puts what ended ones have counted into the sums of the registry. How many have
    /// ended so far.
    pub(crate) fn refresh(&self, registry: &Registry) -> u64 {
        let mut those = self.those();
        let Those { segments, ended } = &mut *those;
        for process in registry.processes() {
            let key = (process.announcer.slot, process.announcer.generation);
            if process.alive && !segments.contains_key(&key) {
                segments.extend(Segment::of(&process).map(|segment| (key, segment)));
            }
        }
        segments.retain(|(slot, generation), segment| {
            let process = Announcer { slot: *slot, generation: *generation };
            let alive = registry.is_alive(process);
            if !alive {
                registry.settle(segment);
                *ended += 1;
            }
            alive
        });
        *ended
    }

    /// Adds something up, and again if a process has ended meanwhile: its counts may have been neither among those of
    /// the living nor among those of the ended. What this returns may be shown: the counts in it are held, so they are
    /// in all later sums, though the processes be killed. Only one that has begun and was killed meanwhile is missed.
    pub(crate) fn whole<T, E>(
        &self,
        registry: &Registry,
        add_up: impl Fn() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut ended = self.refresh(registry);
        loop {
            let sums = add_up()?;
            let before = ended;
            ended = self.refresh(registry);
            if ended == before {
                return Ok(sums);
            }
        }
    }

    /// Looks into the segment of a process, if it is held.
    pub(crate) fn look<T>(&self, of: Announcer, look: impl FnOnce(&Segment) -> T) -> Option<T> {
        self.those().segments.get(&(of.slot, of.generation)).map(look)
    }

    fn those(&self) -> MutexGuard<'_, Those> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
