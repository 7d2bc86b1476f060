//! Captures of connections: tshark knows every message, and every field of it.

use std::collections::BTreeSet;
use std::process::Command;

use transom_conformance::captured;
use transom_conformance::connections::*;
use transom_conformance::harness::{Link, take_turn};
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::program;
use transom_host::capture;
use transom_wire::cm::{Mad, Message};

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("talker", talker)]);
}

/// Both ends of connections, until each message has been sent.
fn talker(_channel: &mut Channel) {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let at = address.to_string();
    let [active, passive] = file.connected(&at, qpns());
    file.part([active, passive]);
    file.destroy(active).expect("ended");
    file.destroy(passive).expect("ended");
    let [active, passive] = file.ask(&at, qpns()[0]);
    file.reject(passive, b"no").expect("refused");
    file.expect(event::REJECTED, active);

    let service = file.datagram_id();
    file.bind(service, "127.0.0.1:0").expect("bound");
    file.listen(service, 0).expect("it listens");
    let [Some(at), None] = file.addresses(service) else { panic!("it is bound") };
    let active = file.datagram_id();
    file.resolve(active, &at.to_string());
    file.connect(active, 0, b"asks").expect("asked");
    file.accept(file.request(), 2, qpns()[0], b"answers").expect("accepted");
    file.expect(event::ESTABLISHED, active);

    // Who is not answered in time asks again, and is asked to wait, until it does so no longer.
    let [active, _] = file.ask(&address.to_string(), qpns()[0]);
    file.expect(event::UNREACHABLE, active);
}

/// Rules: CM-01, CM-02, CM-16
#[test]
fn every_message_is_dissected() {
    take_turn(Link::Wire);
    for link in [None, Some("TRANSOM_LINK=wire")] {
        let scratch = Scratch::new(&format!("dissected-{link:?}"));
        let path = scratch.path().join("messages.pcapng");
        capture::begin(&path).expect("our own folder");
        let capture = format!("TRANSOM_CAPTURE={}", path.display());
        let mut environment = vec!["env", &capture, "TRANSOM_CONNECT_TIMEOUT=2000"];
        environment.extend(link);
        Child::start_under(path_of!("talker"), &environment).finish();
        let Some(packets) = captured::read(&path) else { return };
        let names = packets.iter().map(|packet| {
            let mad = Mad::parse(packet.packet().payload).expect("a message");
            match mad.message {
                Message::Req(_) => "REQ",
                Message::Mra(_) => "MRA",
                Message::Rej(_) => "REJ",
                Message::Rep(_) => "REP",
                Message::Rtu(_) => "RTU",
                Message::Dreq(_) => "DREQ",
                Message::Drep(_) => "DREP",
                Message::SidrReq(_) => "SIDR_REQ",
                Message::SidrRep(_) => "SIDR_REP",
            }
        });
        let all = ["REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"];
        assert_eq!(names.collect::<BTreeSet<_>>(), BTreeSet::from(all));
        let mut dissect = Command::new(program("tshark", "tshark"));
        dissect.args(["--disable-protocol", "rpcordma", "-V", "-r"]).arg(&path);
        let output = dissect.output().expect("tshark runs");
        let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
        assert_eq!(text.matches("mad header - common management").count(), packets.len(), "{text}");
        for complaint in ["unknown", "malformed", "expert info"] {
            let line = text.lines().find(|line| line.contains(complaint));
            assert!(line.is_none(), "{line:?}");
        }
    }
}
