//! The listeners for events of the port and of the device.

use std::collections::TryReserveError;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::events::{AsyncEvent, EventQueue, EventSource};

/// The listeners.
#[derive(Default)]
pub struct PortEvents(Mutex<Vec<Weak<EventSource<AsyncEvent>>>>);

impl PortEvents {
    /// Adds `events` to the listeners, for as long as the caller keeps the value returned.
    ///
    /// # Errors
    ///
    /// Without memory.
    pub fn tell(
        &self,
        events: &Arc<EventQueue<AsyncEvent>>,
    ) -> Result<Arc<EventSource<AsyncEvent>>, TryReserveError> {
        const PORT: u64 = 1;
        const KINDS: &[AsyncEvent] = &[
            AsyncEvent::PortActive,
            AsyncEvent::PortError,
            AsyncEvent::GidChange,
            AsyncEvent::DeviceFatal,
        ];
        let source = Arc::new(events.attach(PORT, KINDS)?);
        let mut listeners = self.0.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&source));
        Ok(source)
    }

    /// Tells of an event.
    pub(crate) fn raise(&self, event: AsyncEvent) {
        for listener in self.0.lock().iter().filter_map(Weak::upgrade) {
            listener.raise(event);
        }
    }
}
