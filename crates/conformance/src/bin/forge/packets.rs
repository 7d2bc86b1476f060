//! Packets that a device must drop, each for its own reason.

use transom_conformance::random::Random;
use transom_wire::Psn;
use transom_wire::icrc::{Path, Verdict};
use transom_wire::packet::{DEFAULT_PKEY, Ending, Operation, Packet, Reth, Transport};

/// The offset of the version in a BTH.
const VERSION_AT: usize = 1;
/// The length of the largest packet in bytes.
const ROOM: usize = 1500;

/// The reason why a device must drop a packet.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It is not a packet at all.
    Noise,
    /// It ends within its headers.
    Truncated,
    /// It comes from the peer, but its ICRC is wrong.
    WrongIcrc,
    /// All is right, but it does not come from the peer (rule NET-10).
    Stranger,
    /// The queue pair does not exist.
    NoQueuePair,
    /// It names queue pair 0, which nobody has (rule NET-12).
    QueuePairZero,
    /// A header version that does not exist (rule PK-13).
    Version,
    /// It names another partition.
    Partition,
    /// It has the opcode of another service than the queue pair's.
    Service,
}

const FAULTS: [Fault; 9] = [
    Fault::Noise,
    Fault::Truncated,
    Fault::WrongIcrc,
    Fault::Stranger,
    Fault::NoQueuePair,
    Fault::QueuePairZero,
    Fault::Version,
    Fault::Partition,
    Fault::Service,
];

/// Makes such packets, one after the other.
pub(crate) struct Forger {
    random: Random,
    qp: u32,
    peer: Path,
    own: Path,
    packet: [u8; ROOM],
}

impl Forger {
    /// A forger that aims at this queue pair, which is connected to the peer.
    pub(crate) fn new(seed: u64, qp: u32, peer: Path, own: Path) -> Self {
        Self { random: Random::new(seed), qp, peer, own, packet: [0; ROOM] }
    }

    /// The next packet, and whether to send it from the peer's address.
    pub(crate) fn next(&mut self) -> (bool, &[u8]) {
        let fault = self.random.one_of(&FAULTS);
        if matches!(fault, Fault::Noise) {
            let length = self.random.below(ROOM);
            for chunk in self.packet[..length].chunks_mut(8) {
                chunk.copy_from_slice(&self.random.number().to_le_bytes()[..chunk.len()]);
            }
            return (true, &self.packet[..length]);
        }
        let length = self.write(fault);
        let as_peer = !matches!(fault, Fault::Stranger);
        let path = if as_peer { &self.peer } else { &self.own };
        let mut icrc = path.icrc(0, &self.packet[..length]);
        let end = length + icrc.len();
        self.packet[length..end].copy_from_slice(&icrc);
        match fault {
            Fault::Truncated => return (as_peer, &self.packet[..self.random.below(length)]),
            Fault::WrongIcrc => {
                // Not an ICRC that would be right for some identification in an IPv4 header.
                while path.check(0, &self.packet[..end]) != Verdict::Wrong {
                    icrc = (self.random.number() as u32).to_le_bytes();
                    self.packet[length..end].copy_from_slice(&icrc);
                }
            }
            _ => {}
        }
        (as_peer, &self.packet[..end])
    }

    /// Writes a packet with this fault, without its ICRC.
    fn write(&mut self, fault: Fault) -> usize {
        let payload = [0xEE; 256];
        let number = self.random.number();
        let reth = Reth { address: number, key: number as u32, length: payload.len() as u32 };
        let transport = match fault {
            Fault::Service => Transport::Ud { qkey: 0x1111_1111, source: 17 },
            _ => Transport::Rc,
        };
        let operation = match fault {
            Fault::Service => Operation::SendOnly(Ending::Plain),
            _ => Operation::WriteOnly { reth, immediate: None },
        };
        let to = match fault {
            // The same process, but a queue pair that does not exist.
            Fault::NoQueuePair => self.qp ^ 0x5A5A,
            Fault::QueuePairZero => 0,
            _ => self.qp,
        };
        let psn = Psn::new(self.random.number() as u32);
        let packet = Packet {
            pkey: if matches!(fault, Fault::Partition) { 0x1234 } else { DEFAULT_PKEY },
            ack_request: true,
            payload: &payload,
            ..Packet::new(transport, operation, to, psn)
        };
        let length = packet.write(&mut self.packet);
        if matches!(fault, Fault::Version) {
            self.packet[VERSION_AT] |= 1;
        }
        length
    }
}
