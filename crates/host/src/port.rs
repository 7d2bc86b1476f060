//! The port: whether it is up, and who is told when that changes.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::objects::{AsyncEvent, EventPipe};

/// The number of the port; there is one.
pub const PORT_NUMBER: u8 = 1;

/// The state of the port of a device.
#[derive(Debug, Default)]
pub struct Port {
    /// For how many reasons it is down.
    down: AtomicU32,
    listeners: Mutex<Vec<Weak<EventPipe>>>,
}

impl Port {
    /// Whether it carries packets.
    #[inline]
    pub fn is_up(&self) -> bool {
        self.down.load(Acquire) == 0
    }

    /// Has events about the port raised there as long as the pipe exists.
    pub fn tell(&self, events: &Arc<EventPipe>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(Arc::downgrade(events));
    }

    /// It goes down, for one reason more.
    pub(crate) fn lose(&self) {
        if self.down.fetch_add(1, AcqRel) == 0 {
            self.raise(AsyncEvent::PortError);
        }
    }

    /// One reason less; after the last it is up.
    pub(crate) fn regain(&self) {
        if self.down.fetch_sub(1, AcqRel) == 1 {
            self.raise(AsyncEvent::PortActive);
        }
    }

    fn raise(&self, event: AsyncEvent) {
        for events in self.listeners.lock().iter().filter_map(Weak::upgrade) {
            events.raise(event as u64, PORT_NUMBER.into());
        }
    }
}
