//! Captures of `transom run --capture`, as tshark reads them. Our own parser reads each packet too.

use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use transom_wire::Psn;
use transom_wire::icrc::{self, Verdict};
use transom_wire::packet::{Operation, Packet};

use crate::programs::installed;

/// The fields that tshark prints, in this order.
const FIELDS: [&str; 14] = [
    "frame.interface_name",
    "ip.src",
    "ipv6.src",
    "ip.dst",
    "ipv6.dst",
    "ip.id",
    "udp.srcport",
    "udp.length",
    "udp.payload",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "frame.comment",
    "_ws.malformed",
    "_ws.expert.severity",
];

/// The severities that tshark gives to a comment, and to a remark: ibv_rc_pingpong asks for a TTL of 1. All other
/// severities are complaints.
const HARMLESS: [&str; 2] = ["1048576", "4194304"];

/// Whether tshark 4 has the opcode. It lacks those of XRC, and FLUSH and ATOMIC WRITE.
fn is_known(opcode: u8) -> bool {
    opcode < 0xa0 && !matches!(opcode & 0x1f, 0x1c | 0x1d)
}

/// A packet of a capture.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The link it crossed.
    pub interface: String,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// Its opcode, as tshark reads it.
    pub opcode: u8,
    /// Its PSN, as tshark reads it.
    pub psn: u32,
    /// Its bytes from the BTH to the ICRC.
    pub bytes: Vec<u8>,
    /// The comment, if it has one.
    pub comment: String,
}

impl Captured {
    /// The packet, as our own parser reads it.
    pub fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).unwrap_or_else(|error| panic!("{error:?}: {self:?}"))
    }

    /// Its operation.
    pub fn operation(&self) -> Operation {
        self.packet().operation
    }
}

/// The packets of a capture. `None`, with a line that says so, if tshark is not installed. Both readers must agree.
/// They must find nothing malformed, and nothing unknown except the opcodes that tshark lacks. The ICRC must be right.
pub fn read(file: &Path) -> Option<Vec<Captured>> {
    let tshark = match installed("tshark", "tshark") {
        Ok(tshark) => tshark,
        Err(problem) => {
            eprintln!("skipped: {problem}");
            return None;
        }
    };
    let mut command = Command::new(tshark);
    command.arg("-r").arg(file).args(["-T", "fields", "-E", "occurrence=a"]);
    // Without this, tshark takes small payloads for another protocol's.
    command.args(["--disable-protocol", "rpcordma"]);
    command.args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    for field in FIELDS.iter().chain(&["_ws.col.Info"]) {
        command.args(["-e", field]);
    }
    let output = command.stderr(Stdio::piped()).output().expect("tshark runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("tshark prints text");
    Some(text.lines().map(parse).collect())
}

fn parse(line: &str) -> Captured {
    let fields: Vec<_> = line.split('\t').collect();
    let [interface, v4_source, v6_source, v4_destination, v6_destination, rest @ ..] = &fields[..]
    else {
        panic!("{line}");
    };
    let [identification, port, length, payload, opcode, psn, comment, malformed, expert, info] =
        rest
    else {
        panic!("{line}")
    };
    let opcode: u8 = opcode.parse().unwrap_or_else(|_| panic!("{line}"));
    let complains = |severity: &str| !severity.is_empty() && !HARMLESS.contains(&severity);
    assert!(malformed.is_empty() && !expert.split(',').any(complains), "{line}");
    assert_eq!(info.contains("Unknown"), !is_known(opcode), "{line}");
    let ip = |v4: &str, v6: &str| -> IpAddr {
        let address = if v4.is_empty() { v6 } else { v4 };
        address.parse().unwrap_or_else(|_| panic!("{line}"))
    };
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let captured = Captured {
        interface: (*interface).to_owned(),
        source: ip(v4_source, v6_source),
        destination: ip(v4_destination, v6_destination),
        opcode,
        psn: psn.parse().unwrap_or_else(|_| panic!("{line}")),
        bytes: payload.as_bytes().chunks(2).map(digits).collect(),
        comment: (*comment).to_owned(),
    };
    // From the UDP header to the ICRC (rule NET-03).
    assert_eq!(length.parse(), Ok(8 + captured.bytes.len()), "{line}");
    let port = port.parse().expect("a port is a number");
    let path = icrc::Path::new(captured.source, port, captured.destination).expect("one family");
    // IPv6 has no identification.
    let digits = identification.trim_start_matches("0x");
    let identification = u16::from_str_radix(digits, 16).unwrap_or(0);
    assert_eq!(path.check(identification, &captured.bytes), Verdict::Right, "{line}");
    let packet = captured.packet();
    assert_eq!((packet.opcode(), packet.psn), (captured.opcode, Psn::new(captured.psn)), "{line}");
    captured
}
