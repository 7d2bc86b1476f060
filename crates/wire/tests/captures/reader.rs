//! Reads the captures in this folder: the UDP datagrams that crossed the wire.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use etherparse::{InternetSlice, SlicedPacket, TransportSlice};
use pcap_parser::{LegacyPcapSlice, PcapBlockOwned};

/// A UDP datagram, with those fields of IP and UDP that its ICRC covers.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    /// The capture's file, and the packet's number in it as Wireshark shows it.
    pub(crate) name: String,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    /// That of IPv4; 0 for IPv6.
    pub(crate) identification: u16,
    /// From the BTH to the ICRC.
    pub(crate) datagram: Vec<u8>,
}

/// All datagrams of all captures.
pub(crate) fn captured() -> Vec<Captured> {
    // Another crate's tests read them too.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    files.sort();
    files.iter().flat_map(|file| datagrams(file)).collect()
}

fn datagrams(file: &Path) -> Vec<Captured> {
    let bytes = fs::read(file).unwrap();
    let mut captured = Vec::new();
    for block in LegacyPcapSlice::from_slice(&bytes).unwrap() {
        let PcapBlockOwned::Legacy(frame) = block.unwrap() else { continue };
        let number = captured.len() + 1;
        let name = format!("{} {number}", file.file_name().unwrap().display());
        captured.push(datagram(name, frame.data));
    }
    captured
}

fn datagram(name: String, frame: &[u8]) -> Captured {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (source, destination, identification) = match sliced.net.unwrap() {
        InternetSlice::Ipv4(ip) => {
            let header = ip.header();
            let (source, destination) = (header.source_addr(), header.destination_addr());
            (source.into(), destination.into(), header.identification())
        }
        InternetSlice::Ipv6(ip) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into(), 0)
        }
        InternetSlice::Arp(_) => panic!("{name}: ARP"),
    };
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("{name}: no UDP") };
    let (source_port, datagram) = (udp.source_port(), udp.payload().to_vec());
    Captured { name, source, destination, source_port, identification, datagram }
}
