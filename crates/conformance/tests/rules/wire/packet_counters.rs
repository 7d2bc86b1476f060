//! A user who asks why nothing arrives is told what became of packets.

use std::process::Command;

use serde_json::Value;
use transom_abi::*;
use transom_conformance::explained::on_one_line;
use transom_conformance::forger::*;
use transom_conformance::programs::command;
use transom_host::Options;
use transom_system::registry::Dropped;
use transom_wire::packet::{Packet, Transport};

/// What `transom` says.
fn said(arguments: &[&str]) -> String {
    let output = Command::new(&command()[0]).args(arguments).output().expect("it was built");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_command_says_what_became_of_packets() {
    let both = WirePair::new(IBV_QPT_RC, Options::default());
    let stranger = Forger::at(STRANGER);
    let packet = both.packet(Transport::Rc);
    let forged: Vec<_> = (0..12).map(|_| stranger.seal(&packet)).collect();
    both.is_dropped(&stranger, &forged, Dropped::OtherAddress);
    let other = stranger.seal(&Packet { pkey: 5, ..packet });
    both.is_dropped(&stranger, &[other], Dropped::OtherPartition);
    let pid = std::process::id();

    // SAFETY: the queue pair is live.
    let slot = unsafe { (*both.pair.qb).qp_num } >> 16;
    let json: Value = serde_json::from_str(&said(&["devices", "--json"])).expect("JSON");
    let processes = json["processes"].as_array().expect("a list");
    let process = processes.iter().find(|process| process["slot"] == slot).expect("this one");
    assert_eq!(process["pid"], pid);
    let packets = &process["packets"];
    assert!(
        packets["packets_sent"].as_u64() >= Some(1)
            && packets["packets_received"].as_u64() >= Some(1)
    );
    assert!(packets["dropped"]["other_address"].as_u64() >= Some(12), "{packets}");
    assert_eq!(packets["dropped"]["no_queue_pair"], 0, "{packets}");

    let reasons = [
        " packets dropped: from an address that their queue pair is not connected to",
        " dropped: of another partition (P_Key)",
    ];
    let devices = on_one_line(&said(&["devices"]));
    let (_, ours) = devices.split_once(&format!("PID {pid} ")).expect("this process");
    let explained = on_one_line(&said(&["explain", "--pid", &pid.to_string()]));
    for reason in reasons {
        assert!(ours.contains(reason), "{devices}");
        assert!(explained.contains(reason), "{explained}");
    }
    assert!(ours.contains(" received over the wire"), "{devices}");
}
