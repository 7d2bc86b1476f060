//! `librdmacm.so.1`, as programs of C and Debian's own tools use it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use transom_conformance::c_programs::{RDMACM, compile, in_time, run, run_as_nobody};
use transom_conformance::harness::{Link, take_turn};
use transom_conformance::processes::{Scratch, is_long};
use transom_conformance::programs::{Printed, Running, library, tool};

const LIMIT: Duration = Duration::from_secs(120);

fn our_libraries() -> &'static Path {
    library(env!("CARGO_TARGET_TMPDIR"))
}

/// What it shows, the program says itself, with the rules above each part.
#[test]
fn a_c_program_connects_to_itself() {
    let scratch = Scratch::new("connects");
    let program = compile(&scratch, "connects.c", "connects", RDMACM);
    take_turn(Link::Wire);
    run(Command::new(&program).env("LD_LIBRARY_PATH", our_libraries()), 23);
    let mut by_packets = Command::new(&program);
    by_packets.arg("packets").env("TRANSOM_LINK", "wire");
    run(by_packets.env("LD_LIBRARY_PATH", our_libraries()), 22);
}

#[test]
fn an_ordinary_user_connects_as_well() {
    let scratch = Scratch::new("connects-unprivileged");
    let program = compile(&scratch, "connects.c", "connects", RDMACM);
    run_as_nobody(&scratch, &program, our_libraries(), 23);
}

/// A name is looked up in a thread: an id that ends or moves meanwhile takes neither memory nor events with it.
/// Rules: CM-58
#[test]
fn a_c_program_ends_ids_while_names_are_looked_up() {
    let scratch = Scratch::new("lookups");
    let program = compile(&scratch, "lookups.c", "lookups", RDMACM);
    take_turn(Link::Wire);
    run(Command::new(&program).env("LD_LIBRARY_PATH", our_libraries()), 3);
}

/// Channels, ids and queue pairs end in any order; of many connections nothing is left, be it memory or
/// descriptors.
#[test]
fn a_c_program_ends_what_it_has_in_the_wrong_order() {
    let scratch = Scratch::new("endings");
    let binary = compile(&scratch, "endings.c", "endings", RDMACM);
    take_turn(Link::Wire);
    run(Command::new(&binary).env("LD_LIBRARY_PATH", our_libraries()), 6);
    let count = if is_long() { "10000" } else { "400" };
    run(Command::new(&binary).arg(count).env("LD_LIBRARY_PATH", our_libraries()), 1);
}

/// A part of the program about events, by the link that packets are sent on or not.
fn events(binary: &Path, part: &str, link: Link) -> Command {
    let mut command = Command::new(binary);
    command.arg(part).env("LD_LIBRARY_PATH", our_libraries());
    if link == Link::Wire {
        command.env("TRANSOM_LINK", "wire");
    }
    command
}

/// As [`in_time`], with this fault.
fn ready_for(fault: &str, command: &dyn Fn() -> Command) -> Printed {
    in_time(LIMIT, &|at| {
        let mut command = command();
        command.env("TRANSOM_FAULT", format!("{fault},{at}"));
        command
    })
}

/// Rules: CM-39, CM-40, CM-47, CM-57, CM-58
#[test]
fn a_c_program_hears_of_more_than_connections() {
    let scratch = Scratch::new("connection-events");
    let binary = compile(&scratch, "connection_events.c", "connection_events", RDMACM);
    take_turn(Link::Wire);
    for link in [Link::Local, Link::Wire] {
        run(&mut events(&binary, "", link), 8);
        run(events(&binary, "early-data", link).env("TRANSOM_FAULT", "drop,op=rtu"), 1);
    }
}

/// Rules: AE-09, CM-46, CM-55
#[test]
fn a_c_program_hears_of_a_device_that_goes_and_of_addresses_that_change() {
    let scratch = Scratch::new("device-events");
    let binary = compile(&scratch, "connection_events.c", "connection_events", RDMACM);
    take_turn(Link::Wire);
    for (part, fault) in [("removal", "device-removal"), ("address-change", "address-change")] {
        for link in [Link::Local, Link::Wire] {
            let printed = ready_for(fault, &|| events(&binary, part, link));
            assert!(printed.output.starts_with("ok - "), "{printed:?}");
        }
    }
}

/// Rules: AE-09, CM-46, CM-51
#[test]
fn nobody_waits_for_a_device_that_has_gone() {
    let scratch = Scratch::new("device-goes");
    let binary = compile(&scratch, "device_goes.c", "device_goes", RDMACM);
    take_turn(Link::Wire);
    for link in [Link::Local, Link::Wire] {
        let command = || events(&binary, "", link);
        let printed = ready_for("device-removal", &command);
        assert_eq!(printed.output.matches("ok - ").count(), 16, "{printed:?}");
    }
}

/// Runs a server, and clients until one has been served: the first may come too early. What they print.
fn meet(server: &str, client: &str) -> [Printed; 2] {
    let begun = Instant::now();
    let tool = |line| tool(line, "rdmacm-utils", our_libraries());
    let mut serving = Running::start(&mut tool(server));
    loop {
        assert!(begun.elapsed() < LIMIT, "{client} does not reach {server}");
        let served = Running::start(&mut tool(client)).success(LIMIT);
        assert!(!serving.has_ended() || served.is_ok(), "{served:?}");
        if let Ok(printed) = served {
            let server = serving.success(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
            return [server, printed];
        }
    }
}

/// Rules: CM-03, CM-09, CM-21, CM-32
#[test]
fn rping_has_its_answers() {
    take_turn(Link::Wire);
    for (port, address) in [(17471, "127.0.0.1"), (17472, "::1")] {
        let line = |end| format!("rping -{end} -a {address} -p {port} -C 10 -v -V");
        let [server, client] = meet(&line('s'), &line('c'));
        assert_eq!(server.output.matches("server ping data").count(), 10, "{server:?}");
        assert_eq!(client.output.matches("ping data").count(), 10, "{client:?}");
    }
}

/// Rules: CM-03, CM-30, CM-32
#[test]
fn ucmatose_and_udaddy_move_their_data() {
    take_turn(Link::Wire);
    for tool in ["ucmatose -p 17473", "udaddy"] {
        let printed = meet(&format!("{tool} -b 127.0.0.1"), &format!("{tool} -s 127.0.0.1"));
        for printed in printed {
            assert!(printed.output.contains("return status 0"), "{printed:?}");
        }
    }
}

/// Rules: CM-42, CM-51
#[test]
fn the_examples_of_synchronous_ids_end_well() {
    take_turn(Link::Wire);
    let plain = ("rdma_server -p 17475", "rdma_client -s 127.0.0.1 -p 17475");
    let inline = ("rdma_xserver -p 17476", "rdma_xclient -s 127.0.0.1 -p 17476");
    let xrc = ("rdma_xserver -p 17477 -c x", "rdma_xclient -s 127.0.0.1 -p 17477 -c x");
    for (server, client) in [plain, inline, xrc] {
        for printed in meet(server, client) {
            assert!(printed.output.contains(": end 0"), "{printed:?}");
        }
    }
}
