//! The 40 bytes in front of a received datagram: its IP header, where InfiniBand has the Global Route
//! Header (rules UD-01, UD-02).

/// Bytes of the area.
pub const GRH_BYTES: usize = 40;

/// Bytes of the area before an IPv4 header. They mean nothing (rule UD-02).
pub const UNDEFINED_BYTES: usize = 20;

/// Bytes after the IP header besides the payload: UDP, BTH, DETH, ICRC.
const AROUND_PAYLOAD: u64 = 8 + 12 + 8 + 4;
const UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;

/// The way of a datagram, as the header has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The sender's GID; IPv4 addresses are mapped (`::ffff:a.b.c.d`).
    pub source: [u8; 16],
    /// The GID it was sent to.
    pub destination: [u8; 16],
    /// Traffic class; the TOS byte of IPv4 (rule UD-09).
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Flow label, 20 bits; IPv4 has none.
    pub flow_label: u32,
}

/// The IPv4 address that a GID maps.
pub fn mapped_ipv4(gid: &[u8; 16]) -> Option<[u8; 4]> {
    let (prefix, address) = gid.split_last_chunk()?;
    (prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then_some(*address)
}

/// The GID of an IPv4 address.
pub const fn map_ipv4(address: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = address;
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

impl Route {
    /// The area of a datagram with `payload` bytes. If both ends are IPv4, the IPv4 header is in its last 20 bytes.
    /// Otherwise the IPv6 header fills it.
    pub fn write(&self, payload: u64) -> [u8; GRH_BYTES] {
        let length = payload.next_multiple_of(4) + AROUND_PAYLOAD;
        match (mapped_ipv4(&self.source), mapped_ipv4(&self.destination)) {
            (Some(source), Some(destination)) => self.write_ipv4(source, destination, length),
            _ => self.write_ipv6(length),
        }
    }

    fn write_ipv4(&self, source: [u8; 4], destination: [u8; 4], length: u64) -> [u8; GRH_BYTES] {
        let mut area = [0; GRH_BYTES];
        let header = &mut area[20..];
        header[0] = 0x45;
        header[1] = self.traffic_class;
        header[2..4].copy_from_slice(&(length as u16 + 20).to_be_bytes());
        header[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
        header[8] = self.hop_limit;
        header[9] = UDP;
        header[12..16].copy_from_slice(&source);
        header[16..20].copy_from_slice(&destination);
        let checksum = !ones_sum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        area
    }

    fn write_ipv6(&self, length: u64) -> [u8; GRH_BYTES] {
        let mut area = [0; GRH_BYTES];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        area[..4].copy_from_slice(&first.to_be_bytes());
        area[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        area[6] = UDP;
        area[7] = self.hop_limit;
        area[8..24].copy_from_slice(&self.source);
        area[24..40].copy_from_slice(&self.destination);
        area
    }

    /// Reads the area; `None` if it holds neither header. An IPv6 header between two IPv4 addresses does not count.
    pub fn read(area: &[u8; GRH_BYTES]) -> Option<Self> {
        let (version6, version4) = (area[0] >> 4 == 6, area[20] == 0x45);
        if version4 && ones_sum(&area[20..]) == u16::MAX {
            let word = |at: usize| [area[at], area[at + 1], area[at + 2], area[at + 3]];
            return Some(Self {
                source: map_ipv4(word(32)),
                destination: map_ipv4(word(36)),
                traffic_class: area[21],
                hop_limit: area[28],
                flow_label: 0,
            });
        }
        let first = u32::from_be_bytes(*area.first_chunk()?);
        let route = Self {
            source: *area[8..].first_chunk()?,
            destination: *area[24..].first_chunk()?,
            traffic_class: (first >> 20) as u8,
            hop_limit: area[7],
            flow_label: first & 0xf_ffff,
        };
        let ipv4 = mapped_ipv4(&route.source).and(mapped_ipv4(&route.destination)).is_some();
        (version6 && !ipv4).then_some(route)
    }
}

/// The ones' complement sum of 16-bit words, which is the checksum of IPv4.
fn ones_sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: Route = Route {
        source: map_ipv4([127, 0, 0, 1]),
        destination: map_ipv4([10, 1, 2, 3]),
        traffic_class: 0xff,
        hop_limit: 64,
        flow_label: 0,
    };

    /// Rules: UD-02, UD-09
    #[test]
    fn an_ipv4_header_lies_in_the_last_20_bytes() {
        let area = ROUTE.write(101);
        assert_eq!(area[..20], [0; 20]);
        assert_eq!((area[20], area[21] & 0xfc, area[28], area[29]), (0x45, 0xfc, 64, 17));
        assert_eq!(u16::from_be_bytes([area[22], area[23]]), 20 + 8 + 12 + 8 + 104 + 4);
        assert_eq!(ones_sum(&area[20..]), u16::MAX);
        assert_eq!(Route::read(&area), Some(ROUTE));
    }

    /// Rules: UD-02
    #[test]
    fn an_ipv6_header_takes_all_40_bytes() {
        let mut source = [0; 16];
        source[0] = 0xfe;
        source[1] = 0x80;
        let route = Route { source, flow_label: 0xabcde, ..ROUTE };
        let area = route.write(0);
        assert_eq!(area[0] >> 4, 6);
        assert_eq!(Route::read(&area), Some(route));
    }

    #[test]
    fn nothing_is_read_from_something_else() {
        assert_eq!(Route::read(&[0; GRH_BYTES]), None);
        let mut area = ROUTE.write(0);
        area[30] ^= 1;
        assert_eq!(Route::read(&area), None);
    }

    /// Rules: UD-02
    #[test]
    fn no_ipv6_header_lies_between_ipv4_addresses() {
        let area = ROUTE.write_ipv6(32);
        assert_eq!(Route::read(&area), None);
        let route = Route { source: [0xfe; 16], ..ROUTE };
        assert_eq!(Route::read(&route.write(0)), Some(route));
    }
}
