//! The records of connections for other processes: what to say for this one if it dies, and what its requests wait for.

use std::net::SocketAddr;

use transom_system::clock;
use transom_system::registry::connections::{Connection, Waiting};
use transom_wire::cm::CommId;

use super::Manager;

impl Manager {
    /// The request of an id, if it waits for an answer and had to be repeated.
    fn waiting(&self, id: CommId) -> Option<Waiting> {
        let unanswered = self.engine.unanswered(id)?;
        let (source, destination) = (self.engine.source(id)?, self.engine.destination(id)?);
        let since = clock::wall().saturating_sub(clock::steady().saturating_sub(unanswered.since));
        let (sent, in_vain) = (unanswered.sent, unanswered.in_vain);
        Some(Waiting { source, destination, since, sent, in_vain })
    }

    /// Keeps the records that other processes need: what to say for this one if it dies, and what they may want to
    /// know.
    pub(super) fn keep_records(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            let (record, waiting) = (self.engine.record(id), self.waiting(id));
            let is_kept = self.kept.contains_key(&id) || self.waiting.contains_key(&id);
            if record.is_none() && waiting.is_none() && !is_kept {
                continue;
            }
            // Without the record the peer hears nothing, as if nobody were left to tell it.
            let Ok(mut table) = self.ports.table.lock() else { continue };
            match record {
                Some(record) => {
                    let port = |it: Option<SocketAddr>| it.map_or(0, |it| it.port());
                    let ends = (self.engine.source(id), self.engine.destination(id));
                    let connection = Connection { record, ports: (port(ends.0), port(ends.1)) };
                    match self.kept.get(&id) {
                        Some(kept) => table.change(*kept, &connection),
                        None => self.kept.extend(table.keep(&connection).map(|kept| (id, kept))),
                    }
                }
                None => self.kept.remove(&id).into_iter().for_each(|kept| table.forget(kept)),
            }
            match (waiting, self.waiting.get(&id)) {
                (Some(waiting), Some(kept)) => table.change_waiting(*kept, &waiting),
                (Some(waiting), None) => {
                    self.waiting.extend(table.keep_waiting(&waiting).map(|kept| (id, kept)));
                }
                (None, _) => {
                    self.waiting.remove(&id).into_iter().for_each(|kept| table.forget(kept));
                }
            }
        }
        self.touched = touched;
    }
}
