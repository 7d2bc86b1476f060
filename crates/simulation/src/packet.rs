//! Packets that are kept, and as bytes.

use std::ops::{Deref, DerefMut};

use transom_wire::packet::{ICRC_BYTES, Packet};

/// The bytes of a packet, with room for the ICRC at their end.
pub fn encode(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = vec![0; packet.length()];
    let length = packet.write(&mut bytes);
    assert_eq!(length + ICRC_BYTES, bytes.len(), "a packet is as long as it says");
    bytes
}

/// A packet with a payload of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPacket {
    headers: Packet<'static>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl OwnedPacket {
    /// The packet.
    pub fn packet(&self) -> Packet<'_> {
        Packet { payload: &self.payload, ..self.headers }
    }
}

impl From<&Packet<'_>> for OwnedPacket {
    fn from(packet: &Packet<'_>) -> Self {
        Self { headers: packet.headers(), payload: packet.payload.to_vec() }
    }
}

/// Its headers, without the payload.
impl Deref for OwnedPacket {
    type Target = Packet<'static>;

    fn deref(&self) -> &Packet<'static> {
        &self.headers
    }
}

impl DerefMut for OwnedPacket {
    fn deref_mut(&mut self) -> &mut Packet<'static> {
        &mut self.headers
    }
}
