//! How the identification and the congestion bits change the CRC of a packet, for the usual lengths of packets.

use super::{BTH_BYTES, CONGESTION_AT, FROM_IDENTIFICATION, field};

/// The payloads that path MTUs allow (rule PK-08); packets in the middle of a message have no header
/// but the BTH.
const PAYLOADS: [usize; 5] = [256, 512, 1024, 2048, 4096];

static ALL: [Changes; PAYLOADS.len()] = {
    let mut all = [const { Changes::compute(PAYLOADS[0]) }; PAYLOADS.len()];
    let mut at = 1;
    while at < PAYLOADS.len() {
        all[at] = Changes::compute(PAYLOADS[at]);
        at += 1;
    }
    all
};

/// The changes of one length, for the values of each half byte.
#[derive(Debug)]
pub(super) struct Changes {
    /// Lowest half byte first.
    identification: [[u32; 16]; 4],
    congestion: [[u32; 16]; 2],
}

impl Changes {
    /// The changes of packets with `length` bytes, from the BTH to the pad, if that is a usual length.
    pub(super) fn of(length: usize) -> Option<&'static Self> {
        let at = PAYLOADS.iter().position(|payload| BTH_BYTES + payload == length)?;
        Some(&ALL[at])
    }

    const fn compute(payload: usize) -> Self {
        let packet = BTH_BYTES + payload;
        let first = field::power(field::X, 8 * (FROM_IDENTIFICATION + packet));
        let second = field::power(field::X, 8 * (FROM_IDENTIFICATION + packet - 1));
        let congestion = field::power(field::X, 8 * (packet - CONGESTION_AT));
        Self {
            // The upper byte comes first on the wire.
            identification: [
                of_half(0, second),
                of_half(4, second),
                of_half(0, first),
                of_half(4, first),
            ],
            congestion: [of_half(0, congestion), of_half(4, congestion)],
        }
    }

    /// The change by an identification other than 0.
    pub(super) fn identification(&self, identification: u16) -> u32 {
        let half = |number: usize| usize::from(identification >> (4 * number) & 0xf);
        let [first, second, third, fourth] = &self.identification;
        first[half(0)] ^ second[half(1)] ^ third[half(2)] ^ fourth[half(3)]
    }

    /// The change by `difference` in the byte of the BTH that holds the congestion bits.
    pub(super) fn congestion(&self, difference: u8) -> u32 {
        let [lower, upper] = &self.congestion;
        lower[usize::from(difference & 0xf)] ^ upper[usize::from(difference >> 4)]
    }
}

/// The changes by each value of half a byte. `distance` takes them to the end of the packet.
const fn of_half(shift: u32, distance: u32) -> [u32; 16] {
    let mut changes = [0; 16];
    let mut value = 0;
    while value < changes.len() {
        changes[value] = field::multiply((value as u32) << shift, distance);
        value += 1;
    }
    changes
}
