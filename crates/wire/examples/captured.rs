//! Writes the captured packets as first inputs of the fuzz targets, into a folder for each target:
//! `cargo run -p transom-wire --example captured -- FOLDER`.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::{env, fs};

use transom_wire::cm::GSI_QKEY;
use transom_wire::grh::Route;
use transom_wire::packet::{Packet, Transport};

#[path = "../tests/captures/reader.rs"]
mod reader;

use reader::{Captured, captured};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).ok_or_else(|| io::Error::other("into which folder?"))?;
    for target in ["packet", "icrc", "headers", "cm", "device"] {
        fs::create_dir_all(Path::new(&folder).join(target))?;
    }
    for captured in captured() {
        let write = |target: &str, input: &[u8]| {
            let name = captured.name.replace(' ', "-");
            fs::write(Path::new(&folder).join(target).join(name), input)
        };
        write("packet", &captured.datagram)?;
        write("icrc", &icrc_input(&captured))?;
        write("headers", &route(&captured).write(captured.datagram.len() as u64))?;
        if let Ok(packet) = Packet::parse(&captured.datagram)
            && matches!(packet.transport, Transport::Ud { qkey: GSI_QKEY, .. })
        {
            write("cm", packet.payload)?;
        }
        if let Some(script) = script(&captured.datagram) {
            write("device", &script)?;
        }
    }
    Ok(())
}

fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The parts in the order in which the target takes them.
fn icrc_input(captured: &Captured) -> Vec<u8> {
    let (source, destination) = (gid(captured.source), gid(captured.destination));
    let port = captured.source_port.to_be_bytes();
    let identification = captured.identification.to_be_bytes();
    [&source[..], &destination, &port, &identification, &captured.datagram].concat()
}

/// What `packet_stage::feed` of `transom-simulation` takes: a queue pair of the packet's service posts
/// a receive, and the packet comes twice. Its length is one byte there.
fn script(datagram: &[u8]) -> Option<Vec<u8>> {
    const RECEIVE: [u8; 3] = [0, 1, 0];
    const BYTES: u8 = 11;
    let service = match datagram.first()? >> 5 {
        1 => 0,
        3 => 1,
        _ => 2,
    };
    let packet = [&[BYTES, u8::try_from(datagram.len()).ok()?], datagram].concat();
    Some([&[service][..], &RECEIVE, &packet, &packet].concat())
}

fn route(captured: &Captured) -> Route {
    Route {
        source: gid(captured.source),
        destination: gid(captured.destination),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
    }
}
