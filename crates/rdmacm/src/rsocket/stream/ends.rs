//! The ends of a stream's directions, and the readiness of the stream.

use super::super::protocol::Message;
use super::{Ends, Stream};
use crate::wrong::Wrong;

impl Ends {
    /// Whether this end neither sends nor receives any more. The peer is told so.
    pub(super) fn is_over(&self) -> bool {
        self.write && (self.read || self.finished)
    }
}

impl Stream {
    /// Whether a read would not wait.
    pub(crate) fn is_readable(&self) -> bool {
        let Ends { read, finished, gone, .. } = self.ends;
        self.incoming.unread() > 0 || read || finished || gone
    }

    /// Whether a write would not wait.
    pub(crate) fn is_writable(&self) -> bool {
        self.ends.write || self.ends.gone || self.ends.peer || self.room() > 0
    }

    /// Whether both directions have ended. Programs take this for an error, so it is false while there is data to read.
    pub(crate) fn is_hung_up(&self) -> bool {
        let Ends { finished, write, peer, gone, .. } = self.ends;
        self.incoming.unread() == 0 && (gone || peer || finished && write)
    }

    /// Whether the peer has ended its direction, or the connection is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.ends.gone || self.ends.finished || self.ends.read
    }

    /// Whether the connection is gone without an orderly end, and no call has reported that yet.
    pub(crate) fn has_failed(&self) -> bool {
        self.ends.reason.is_some()
    }

    /// Takes the reason for the end.
    pub(crate) fn take_reason(&mut self) -> Option<Wrong> {
        self.ends.reason.take()
    }

    /// Ends directions, as `shutdown(2)`. The peer is told.
    pub(crate) fn shut(&mut self, read: bool, write: bool) {
        self.progress();
        let (had_read, had_write) = (!self.ends.read, !self.ends.write);
        self.ends.read |= read;
        self.ends.write |= write;
        let message = if self.ends.is_over() && (had_read || had_write) {
            Message::Disconnect
        } else if self.ends.write && had_write {
            Message::Shutdown
        } else {
            return;
        };
        if self.ends.gone || self.ends.peer {
            return;
        }
        if !self.can_post(0) || self.post_message(message).is_err() {
            self.ends.unsent = Some(message);
        }
    }

    /// Whether the message about the end is on its way, or never will be.
    pub(crate) fn is_told(&mut self) -> bool {
        if self.ends.unsent.is_some() {
            self.progress();
        }
        // A peer that has ended both directions gets no more messages.
        self.ends.unsent.is_none() || self.ends.peer || self.ends.gone
    }

    /// Whether all sent data has arrived, or never will.
    pub(crate) fn is_flushed(&mut self) -> bool {
        if self.sending.requests > 0 {
            self.progress();
        }
        let is_told = self.is_told();
        self.ends.gone || self.sending.requests == 0 && is_told
    }
}
