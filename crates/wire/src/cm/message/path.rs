//! The primary and the alternate path of a REQ.

use crate::cm::MESSAGE_BYTES;
use crate::cm::body::Body;
use crate::cm::fields::{Bits, TimeCode};

/// A way between two ports, as seen from the sender of a REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The sender's LID; nothing on RoCE (rule CM-05).
    pub local_lid: u16,
    /// The receiver's.
    pub remote_lid: u16,
    /// The sender's GID.
    pub local_gid: [u8; 16],
    /// The receiver's.
    pub remote_gid: [u8; 16],
    /// Flow label.
    pub flow_label: Bits<20>,
    /// Packet rate; 0 is the port's.
    pub rate: Bits<6>,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: Bits<4>,
    /// Both are in one subnet.
    pub subnet_local: bool,
    /// How long the sender waits for an acknowledgement of a packet.
    pub local_ack_timeout: TimeCode,
}

impl Path {
    /// No path: for a REQ without an alternate path.
    pub const ABSENT: Self = Self {
        local_lid: 0,
        remote_lid: 0,
        local_gid: [0; 16],
        remote_gid: [0; 16],
        flow_label: Bits::low(0),
        rate: Bits::low(0),
        traffic_class: 0,
        hop_limit: 0,
        sl: Bits::low(0),
        subnet_local: false,
        local_ack_timeout: TimeCode::of(Bits::low(0)),
    };

    pub(super) fn read(body: &Body<MESSAGE_BYTES>, at: usize) -> Self {
        Self {
            local_lid: body.u16(at),
            remote_lid: body.u16(at + 2),
            local_gid: body.bytes(at + 4),
            remote_gid: body.bytes(at + 20),
            flow_label: Bits::low(body.u32(at + 36) >> 12),
            rate: body.bits(at + 39, 0),
            traffic_class: body.u8(at + 40),
            hop_limit: body.u8(at + 41),
            sl: body.bits(at + 42, 4),
            subnet_local: body.bit(at + 42, 3),
            local_ack_timeout: TimeCode::of(body.bits(at + 43, 3)),
        }
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>, at: usize) {
        body.set(at, self.local_lid.to_be_bytes());
        body.set(at + 2, self.remote_lid.to_be_bytes());
        body.set(at + 4, self.local_gid);
        body.set(at + 20, self.remote_gid);
        body.set(at + 36, (self.flow_label.get() << 12 | self.rate.get()).to_be_bytes());
        body.set(at + 40, [self.traffic_class, self.hop_limit]);
        body.set_bits(at + 42, 4, self.sl);
        body.set_bit(at + 42, 3, self.subnet_local);
        body.set_bits(at + 43, 3, self.local_ack_timeout.bits());
    }
}
