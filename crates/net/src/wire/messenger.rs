//! Sends packets for a process that has no part in the port.

use std::io;

use transom_wire::packet::Packet;

use super::{BurstBuffer, Path};
use crate::udp::Sending;

/// Sends packets without having the port, so nobody can answer it.
pub struct Messenger {
    sending: Sending,
    buffer: BurstBuffer,
}

impl Messenger {
    /// One that has sent nothing.
    ///
    /// # Errors
    ///
    /// The system's error: no descriptor may be left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { sending: Sending::new()?, buffer: BurstBuffer::new() })
    }

    /// Makes the socket for packets by this path in advance, so that no packet waits for it.
    pub fn prepare(&self, path: &Path) {
        let _ = self.sending.source_port(&path.way());
    }

    /// Sends a packet with this payload. A packet that cannot be sent is lost.
    pub fn send(&mut self, path: &Path, packet: &Packet<'_>, payload: &[u8]) {
        let Self { sending, buffer } = self;
        let way = path.way();
        let icrc = sending.source_port(&way).ok().and_then(|port| path.icrc(port));
        buffer.clear();
        if let (Some(icrc), true) = (icrc, buffer.add(packet, payload.len() as u64)) {
            buffer.put(0, payload);
            let identification = |number| sending.identification(number);
            buffer.seal(
                icrc,
                identification,
                |_| 1,
                |run| {
                    let _ = sending.send(&way, run.bytes, run.size);
                },
            );
        }
    }
}
