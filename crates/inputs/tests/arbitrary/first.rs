//! The captured packets as first inputs.

use std::net::IpAddr;

use transom_wire::cm::GSI_QKEY;
use transom_wire::grh::Route;
use transom_wire::packet::{Packet, Transport};

#[path = "../../../wire/tests/captures/reader.rs"]
mod reader;

use reader::{Captured, captured};

/// For each input the function that takes it, and the packet's name.
pub(crate) fn first() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut inputs = Vec::new();
    for captured in captured() {
        let mut add = |function, input: &[u8]| {
            inputs.push((function, captured.name.replace(' ', "-"), input.to_vec()));
        };
        add("packet", &captured.datagram);
        add("icrc", &icrc_input(&captured));
        add("headers", &route(&captured).write(captured.datagram.len() as u64));
        if let Ok(packet) = Packet::parse(&captured.datagram)
            && matches!(packet.transport, Transport::Ud { qkey: GSI_QKEY, .. })
        {
            add("cm", packet.payload);
        }
        if let Some(script) = script(&captured.datagram) {
            add("device", &script);
        }
    }
    inputs
}

fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The parts in the order in which `icrc` takes them.
fn icrc_input(captured: &Captured) -> Vec<u8> {
    let (source, destination) = (gid(captured.source), gid(captured.destination));
    let port = captured.source_port.to_be_bytes();
    let identification = captured.identification.to_be_bytes();
    [&source[..], &destination, &port, &identification, &captured.datagram].concat()
}

/// What `script::feed` of `transom-simulation` takes: a queue pair of the packet's service posts
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
