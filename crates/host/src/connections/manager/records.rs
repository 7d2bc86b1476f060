//! The records of connections for other processes: what to say for this one if it dies, and what its requests wait for.

use std::collections::HashMap;
use std::net::SocketAddr;

use transom_cm::Engine;
use transom_system::clock;
use transom_system::registry::connections::{Connection, Connections, Kept, Waiting};
use transom_wire::cm::CommId;

/// The records that this process keeps in the table of connections.
#[derive(Default)]
pub(super) struct Records {
    /// The records of connections that other processes read if this one dies.
    connections: HashMap<CommId, Kept>,
    /// Requests that wait for an answer, readable for `transom explain` and others.
    requests: HashMap<CommId, Kept>,
    /// Ids whose records may be out of date.
    touched: Vec<CommId>,
}

impl Records {
    /// Something has happened to an id.
    pub(super) fn touch(&mut self, id: CommId) {
        self.touched.push(id);
    }

    /// Something has happened to these ids.
    pub(super) fn touch_all(&mut self, ids: impl IntoIterator<Item = CommId>) {
        self.touched.extend(ids);
    }

    /// Brings the records of all ids that were touched up to date.
    pub(super) fn keep(&mut self, engine: &Engine, table: &Connections) {
        if self.touched.is_empty() {
            return;
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            self.keep_those_of(id, engine, table);
        }
        self.touched = touched;
    }

    fn keep_those_of(&mut self, id: CommId, engine: &Engine, table: &Connections) {
        let (connection, request) = (connection(engine, id), request(engine, id));
        let is_kept = self.connections.contains_key(&id) || self.requests.contains_key(&id);
        if connection.is_none() && request.is_none() && !is_kept {
            return;
        }
        // Without the record the peer hears nothing, as if nobody were left to tell it.
        let Ok(mut table) = table.lock() else { return };
        match (connection, self.connections.get(&id)) {
            (Some(connection), Some(kept)) => table.change(*kept, &connection),
            (Some(connection), None) => {
                self.connections.extend(table.keep(&connection).map(|kept| (id, kept)));
            }
            (None, _) => {
                self.connections.remove(&id).into_iter().for_each(|kept| table.forget(kept));
            }
        }
        match (request, self.requests.get(&id)) {
            (Some(request), Some(kept)) => table.change_waiting(*kept, &request),
            (Some(request), None) => {
                self.requests.extend(table.keep_waiting(&request).map(|kept| (id, kept)));
            }
            (None, _) => {
                self.requests.remove(&id).into_iter().for_each(|kept| table.forget(kept));
            }
        }
    }
}

/// The connection of an id, if its peer has to be told when this process dies.
fn connection(engine: &Engine, id: CommId) -> Option<Connection> {
    let record = engine.record(id)?;
    let port = |it: Option<SocketAddr>| it.map_or(0, |it| it.port());
    let ports = (port(engine.source(id)), port(engine.destination(id)));
    Some(Connection { record, ports })
}

/// The request of an id, if it waits for an answer and had to be repeated.
fn request(engine: &Engine, id: CommId) -> Option<Waiting> {
    let unanswered = engine.unanswered(id)?;
    let (source, destination) = (engine.source(id)?, engine.destination(id)?);
    let since = clock::wall().saturating_sub(clock::steady().saturating_sub(unanswered.since));
    let (sent, in_vain) = (unanswered.sent, unanswered.in_vain);
    Some(Waiting { source, destination, since, sent, in_vain })
}
