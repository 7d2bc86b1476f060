//! Processes of other hosts that have ended. Their queue pairs no longer answer, and a program that waits for them
//! learns it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::spaces::{Family, Side, VethPair};

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("asker", asker), ("answerer", answerer), ("bystander", bystander)]);
}

/// What it takes to reach a queue pair of the process at this address, and to wait for it for half a minute.
fn attr_far(address: u64, number: u64) -> ibv_qp_attr {
    let raw = Ipv4Addr::from_bits(address as u32).to_ipv6_mapped().octets();
    // 4.3 seconds, eight times.
    let mut attr = ibv_qp_attr { timeout: 20, retry_cnt: 7, ..attr_to(number) };
    attr.ah_attr.grh.dgid = ibv_gid { raw };
    attr
}

/// Connects a queue pair with what the test tells of the other end's.
fn meet_far(channel: &mut Channel, qp: *mut ibv_qp) {
    channel.tell(&[number(qp)]);
    let [address, number] = channel.hear();
    bring_up(qp, &attr_far(address, number));
    channel.tell(&[]);
}

/// Sends a message each time it is told to, and says how that has ended.
fn asker(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet_far(channel, qp);
    while let [_] = channel.hear_all()[..] {
        post(qp, &mut wr(IBV_WR_SEND));
        channel.tell(&[end.wait().status.into()]);
    }
}

/// Takes what is sent, until it is killed.
fn answerer(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet_far(channel, qp);
    recv(qp, 1, &mut []);
    let [] = channel.hear();
}

/// Has the port of its host, until it is told to end.
fn bystander(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_UD);
    bring_up(qp, &usual_attr(qp));
    channel.tell(&[]);
    let [] = channel.hear();
}

fn start_in(pair: &VethPair, side: Side, role: &str) -> Child {
    let net = format!("--net={}", pair.space(side).path());
    Child::start_under(role, &["nsenter", &net])
}

/// An asker here whose answerer on the other host has answered once.
fn pair_of(pair: &VethPair) -> (Child, Child) {
    let mut children = [(Side::Near, path_of!("asker")), (Side::Far, path_of!("answerer"))]
        .map(|(side, role)| start_in(pair, side, role));
    let numbers = children.each_mut().map(|child| {
        let [number] = child.hear();
        number
    });
    for (child, (side, number)) in
        children.iter_mut().zip([(Side::Far, numbers[1]), (Side::Near, numbers[0])])
    {
        let IpAddr::V4(address) = pair.address(side, Family::V4) else { panic!("of IPv4") };
        child.tell(&[address.to_bits().into(), number]);
        let [] = child.hear();
    }
    let [mut asker, answerer] = children;
    assert_eq!(ask(&mut asker), IBV_WC_SUCCESS);
    (asker, answerer)
}

/// What becomes of a message of the asker's.
fn ask(asker: &mut Child) -> u32 {
    asker.tell(&[0]);
    let [status] = asker.hear();
    status as u32
}

/// By its host, where nobody has the port any more; by another process that has it, else.
///
/// Rules: RN-20
#[test]
fn requests_to_a_process_of_another_host_that_was_killed_end_soon() {
    let pair = match VethPair::new(1500) {
        Ok(pair) if is_root() => pair,
        Ok(_) => return eprintln!("skipped: only root enters the namespaces by nsenter"),
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for is_alone in [true, false] {
        let beside = (!is_alone).then(|| {
            let mut bystander = start_in(&pair, Side::Far, path_of!("bystander"));
            let [] = bystander.hear();
            bystander
        });
        let (mut asker, answerer) = pair_of(&pair);
        answerer.kill();
        let begun = Instant::now();
        assert_eq!(ask(&mut asker), IBV_WC_RETRY_EXC_ERR, "alone: {is_alone}");
        let waited = begun.elapsed();
        assert!(waited.as_secs() < 15, "alone: {is_alone}, {waited:?}");
        asker.tell(&[]);
        asker.finish();
        if let Some(mut bystander) = beside {
            bystander.tell(&[]);
            bystander.finish();
        }
    }
}
