//! The segments of all processes, held while this command runs.
//!
//! The memory of a killed process goes with its last user. While this command is one, the counters in it are not lost.

use std::cell::RefCell;
use std::collections::HashMap;
use transom_device::protection::Announcer;
use transom_system::registry::Registry;
use transom_system::segment::Segment;

/// The segments, by slot and stay.
#[derive(Default)]
pub(crate) struct Held(RefCell<HashMap<(u8, u32), Segment>>);

impl Held {
    /// Takes those of new processes, and puts what ended ones have counted into the sums of the registry.
    pub(crate) fn refresh(&self, registry: &Registry) {
        let mut held = self.0.borrow_mut();
        for process in registry.processes() {
            let key = (process.announcer.slot, process.announcer.generation);
            if process.alive && !held.contains_key(&key) {
                held.extend(Segment::of(&process).map(|segment| (key, segment)));
            }
        }
        held.retain(|(slot, generation), segment| {
            let process = Announcer { slot: *slot, generation: *generation };
            let alive = registry.is_alive(process);
            if !alive {
                registry.settle(segment);
            }
            alive
        });
    }

    /// Looks into the segment of a process, if it is held.
    pub(crate) fn look<T>(&self, of: Announcer, look: impl FnOnce(&Segment) -> T) -> Option<T> {
        self.0.borrow().get(&(of.slot, of.generation)).map(look)
    }
}
