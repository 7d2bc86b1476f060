//! A burst: packets in a row for one address, built in one buffer.

use std::ops::Range;

use arrayvec::ArrayVec;
use transom_device::execution::{CopyError, Sink};
use transom_device::protection::Grant;
use transom_system::memory::Copier;
use transom_wire::packet::{ICRC_BYTES, Packet};
use transom_wire::{Psn, icrc};

/// Most packets of a burst.
pub(super) const PACKETS: usize = 64;
/// Most payload of a burst.
pub(super) const PAYLOAD: u64 = 64 << 10;
/// How much payload fits, with its headers, into the 65,507 bytes that one send takes.
pub(super) const SENT_AT_ONCE: u64 = 62 << 10;
/// Longest headers of a packet.
const HEADERS: usize = 12 + 4 + 28;
const BYTES: usize = PAYLOAD as usize + PACKETS * (HEADERS + 3 + ICRC_BYTES);
/// Longest payload of a packet.
const LONGEST: usize = 4096;

/// Stands for a payload that is not there yet.
static BLANK: [u8; LONGEST] = [0; LONGEST];

/// The place of a packet in the buffer.
#[derive(Clone, Copy, Default)]
struct Extent {
    begin: usize,
    payload: usize,
    length: usize,
    end: usize,
}

/// Packets being built. The buffer is allocated once and used again and again.
pub struct BurstBuffer {
    bytes: Box<[u8]>,
    /// On the heap, because the buffer is moved with each burst.
    extents: Box<[Extent; PACKETS]>,
    count: usize,
    /// Bytes of payload in all packets together.
    payload: u64,
    /// The last packet arrives together with the one before it.
    is_last_behind: bool,
}

/// Packets of one size, of which the last may be shorter. One send takes one run.
pub struct Run<'a> {
    /// All of them.
    pub bytes: &'a [u8],
    /// Bytes of each.
    pub size: usize,
}

/// Parts of the buffer, at most one for each packet.
type Ranges = ArrayVec<Range<usize>, PACKETS>;

impl BurstBuffer {
    pub(super) fn new() -> Self {
        let bytes = vec![0; BYTES].into();
        Self {
            bytes,
            extents: Box::new([Extent::default(); PACKETS]),
            count: 0,
            payload: 0,
            is_last_behind: false,
        }
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        (self.count, self.payload) = (0, 0);
        self.is_last_behind = false;
    }

    /// Adds a packet. Its payload of `length` bytes comes later. False if there is no room for it.
    pub fn add(&mut self, packet: &Packet<'_>, length: u64) -> bool {
        let blank = usize::try_from(length).ok().and_then(|length| BLANK.get(..length));
        let (Some(payload), true) = (blank, self.count < PACKETS) else { return false };
        let packet = Packet { payload, ..*packet };
        let begin = self.end();
        let Some(out) = self.bytes.get_mut(begin..begin + packet.length()) else { return false };
        let header = packet.write_header(out);
        let end = begin + packet.length();
        if packet.pad() > 0 {
            self.bytes[end - ICRC_BYTES - packet.pad()..end - ICRC_BYTES].fill(0);
        }
        self.extents[self.count] =
            Extent { begin, payload: begin + header, length: payload.len(), end };
        self.count += 1;
        self.payload += payload.len() as u64;
        true
    }

    /// Repeats the last packet so many times, numbered from `psn`. Their payloads have the same length and come later.
    /// False if there is no room for all of them.
    pub fn repeat(&mut self, times: u32, psn: Psn) -> bool {
        let Some(&last) = self.extents().last() else { return times == 0 };
        let (times, size) = (times as usize, last.end - last.begin);
        let has_room = times <= PACKETS - self.count && times * size <= self.bytes.len() - last.end;
        if !has_room {
            return false;
        }
        let mut header = [0; Packet::MAX_HEADER];
        let header = &mut header[..last.payload - last.begin];
        header.copy_from_slice(&self.bytes[last.begin..last.payload]);
        let pad = last.payload + last.length - last.begin..size - ICRC_BYTES;
        let room = self.bytes[last.end..].chunks_exact_mut(size);
        for (number, (packet, extent)) in
            (0..).zip(room.zip(&mut self.extents[self.count..])).take(times)
        {
            Packet::renumber(header, psn.plus(number));
            packet[..header.len()].copy_from_slice(header);
            if !pad.is_empty() {
                packet[pad.clone()].fill(0);
            }
            let begin = last.end + number as usize * size;
            let payload = begin + header.len();
            *extent = Extent { begin, payload, length: last.length, end: begin + size };
        }
        self.count += times;
        self.payload += (times * last.length) as u64;
        true
    }

    /// Adds a packet without payload behind the last one, so that both arrive together. False if they would not.
    /// Nothing may be added after it.
    pub fn add_behind(&mut self, packet: &Packet<'_>) -> bool {
        let Some(last) = self.extents().last() else { return false };
        self.is_last_behind = packet.length() <= last.end - last.begin && self.add(packet, 0);
        self.is_last_behind
    }

    /// How many packets it has.
    pub fn packets(&self) -> usize {
        self.count
    }

    /// Bytes of payload in all its packets.
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// Whether a message of so many bytes, in packets of at most `mtu` bytes, fits behind the others.
    pub fn has_room(&self, length: u64, mtu: u64) -> bool {
        let packets = length.div_ceil(mtu).max(1);
        self.count as u64 + packets <= PACKETS as u64 && self.payload + length <= PAYLOAD
    }

    /// Forgets all packets but the first few.
    pub fn truncate(&mut self, packets: usize) {
        self.count = self.count.min(packets);
        self.payload = self.extents().iter().map(|extent| extent.length as u64).sum();
    }

    fn end(&self) -> usize {
        self.extents().last().map_or(0, |extent| extent.end)
    }

    fn extents(&self) -> &[Extent] {
        &self.extents[..self.count]
    }

    /// The places of `length` bytes of the burst's payload, from `offset` on.
    fn ranges(&self, offset: u64, length: u64) -> Ranges {
        let (from, to) = (offset as usize, (offset + length) as usize);
        let mut ranges = Ranges::new();
        let mut begin = 0;
        for extent in self.extents() {
            let end = begin + extent.length;
            let (from, to) = (from.max(begin), to.min(end));
            if from < to {
                ranges.push(extent.payload + from - begin..extent.payload + to - begin);
            }
            begin = end;
        }
        ranges
    }

    /// Writes bytes of ours to `offset` of the payload.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for range in &self.ranges(offset, bytes.len() as u64) {
            let (now, later) = rest.split_at(range.len());
            self.bytes[range.clone()].copy_from_slice(now);
            rest = later;
        }
    }

    /// Copies granted memory of this process to `offset` of the payload. False if it is gone.
    pub fn copy_in(&mut self, copier: &Copier, offset: u64, at: &Grant<'_>) -> bool {
        let ranges = self.ranges(offset, at.length());
        if at.is_null() {
            // A null region reads as zeros (rule MR-36).
            for range in &ranges {
                self.bytes[range.clone()].fill(0);
            }
            return true;
        }
        copier.copy_apart(&mut self.bytes, &ranges, at.place()).is_ok()
    }

    /// The runs in which the burst is sent. `limit` gives the most packets for a run of a size. Each packet gets its
    /// ICRC, which depends on its position in its run: segmentation counts up the identification of IPv4.
    pub fn seal(
        &mut self,
        path: icrc::Path,
        identification: impl Fn(usize) -> u16,
        limit: impl Fn(usize) -> usize,
        mut each: impl FnMut(Run<'_>),
    ) {
        let mut icrcs = icrc::Series::new(path);
        let mut first = 0;
        while first < self.count {
            let size = |extent: &Extent| extent.end - extent.begin;
            let extents = &self.extents[first..self.count];
            let whole = size(&extents[0]);
            let limit = limit(whole).max(1);
            let alike = extents.iter().take(limit).take_while(|extent| size(extent) == whole);
            let same = alike.count();
            let shorter =
                same < limit && extents.get(same).is_some_and(|extent| size(extent) < whole);
            let mut length = same + usize::from(shorter);
            // The last two are in one run, if a run may have two.
            if self.is_last_behind && length > 1 && length == extents.len() - 1 {
                length -= 1;
            }
            let run = &extents[..length];
            for (number, extent) in run.iter().enumerate() {
                let icrc_at = extent.end - ICRC_BYTES;
                let icrc = icrcs.icrc(identification(number), &self.bytes[extent.begin..icrc_at]);
                self.bytes[icrc_at..extent.end].copy_from_slice(&icrc);
            }
            let range = run[0].begin..run[run.len() - 1].end;
            first += run.len();
            each(Run { bytes: &self.bytes[range], size: whole });
        }
    }
}

/// A burst that takes the data of a READ.
pub struct Filling<'a> {
    /// The burst.
    pub burst: &'a mut BurstBuffer,
    /// Copies the data.
    pub copier: &'a Copier,
}

impl Sink for Filling<'_> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let copied = self.burst.copy_in(self.copier, offset, at);
        if copied { Ok(()) } else { Err(CopyError::Far) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use transom_wire::packet::{Aeth, Operation, Transport};

    use super::*;

    /// How many packets each run has, for a burst of SEND packets with such payloads and an acknowledgement behind
    /// them. `None` if the acknowledgement has to go alone.
    fn runs(payloads: &[u64], limit: usize) -> Option<Vec<usize>> {
        let mut buffer = BurstBuffer::new();
        let packet = |operation| Packet::new(Transport::Rc, operation, 0, Psn::new(0));
        for length in payloads {
            assert!(buffer.add(&packet(Operation::SendMiddle), *length));
        }
        if !buffer.add_behind(&packet(Operation::Acknowledge(Aeth { byte: 0, msn: 0 }))) {
            return None;
        }
        let address = Ipv4Addr::LOCALHOST.into();
        let path = icrc::Path::new(address, 1, address).expect("they are of one family");
        let mut counts = Vec::new();
        let count = |run: Run<'_>| counts.push(run.bytes.len().div_ceil(run.size));
        buffer.seal(path, |number| number as u16, |_| limit, count);
        Some(counts)
    }

    #[test]
    fn what_is_repeated_is_what_would_have_been_added() {
        let address = Ipv4Addr::LOCALHOST.into();
        let path = icrc::Path::new(address, 1, address).expect("they are of one family");
        let packet = |number| {
            let psn = Psn::new(0xff_fffe).plus(number);
            let transport = Transport::Xrc { srq: 0x12_3456 };
            Packet::new(transport, Operation::SendMiddle, 0x65_4321, psn)
        };
        for length in [0, 1, 3, 4, 1024] {
            for times in [0, 1, 5, 61, 62, 63] {
                let [mut one_by_one, mut repeated] = [(); 2].map(|()| BurstBuffer::new());
                for buffer in [&mut one_by_one, &mut repeated] {
                    // Old content must not show.
                    buffer.bytes.fill(0xee);
                    assert!(buffer.add(&packet(0), length + 4));
                    assert!(buffer.add(&packet(1), length));
                }
                let added =
                    (2..).take(times as usize).all(|psn| one_by_one.add(&packet(psn), length));
                assert_eq!(repeated.repeat(times, packet(2).psn), added, "{length}, {times}");
                assert_eq!(added, times < 63);
                if !added {
                    assert_eq!((repeated.packets(), repeated.payload()), (2, 2 * length + 4));
                    continue;
                }
                let sealed = [&mut one_by_one, &mut repeated].map(|buffer| {
                    let data: Vec<u8> = (0..buffer.payload()).map(|at| at as u8).collect();
                    buffer.put(0, &data);
                    let mut runs = Vec::new();
                    let each = |run: Run<'_>| runs.push((run.size, run.bytes.to_vec()));
                    buffer.seal(path, |number| number as u16, |_| 64, each);
                    runs
                });
                assert_eq!(sealed[0], sealed[1], "{length}, {times}");
            }
        }
    }

    #[test]
    fn an_acknowledgement_arrives_with_the_last_packet() {
        for (payloads, limit, expected) in [
            (&[8][..], 64, Some(vec![2])),
            (&[1024, 1024], 64, Some(vec![3])),
            (&[1024, 8], 64, Some(vec![1, 2])),
            (&[1024, 1024, 4], 64, Some(vec![2, 2])),
            (&[1024, 1024, 1024], 3, Some(vec![2, 2])),
            (&[1024, 1024, 8], 1, Some(vec![1, 1, 1, 1])),
            (&[0], 64, None),
            (&[], 64, None),
            (&[8; PACKETS], 64, None),
        ] {
            assert_eq!(runs(payloads, limit), expected, "{payloads:?}, {limit}");
        }
    }
}
