//! Some thousand inputs for each parser of bytes from outside, the same ones each time: any bytes, and good ones that
//! are a little changed. `cargo xtask fuzz` looks for others.
#![cfg(debug_assertions)]

mod first;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use first::first;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_conformance::random::Random;

/// Any bytes: mostly numbers that parsers get wrong, of any width.
fn any(random: &mut Random, most: usize) -> Vec<u8> {
    let length = random.below(most);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        let width = random.one_of(&[1, 2, 4, 8]);
        let number = random.garbage();
        if random.once_in(2) {
            bytes.extend_from_slice(&number.to_le_bytes()[..width]);
        } else {
            bytes.extend_from_slice(&number.to_be_bytes()[8 - width..]);
        }
    }
    bytes.truncate(length);
    bytes
}

/// The same with a few bytes changed, left out, put in or repeated.
fn changed(random: &mut Random, good: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(16)).min(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..at, any(random, 16))),
            3 => bytes.extend_from_within(at..end),
            4 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ if at < bytes.len() => bytes[at] = random.garbage() as u8,
            _ => {}
        }
    }
    bytes
}

/// Writes the input down that breaks something.
struct Input<'a> {
    name: &'a str,
    bytes: Vec<u8>,
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.input", self.name));
            let written = fs::write(&file, &self.bytes);
            eprintln!("{} breaks on the input in {} ({written:?})", self.name, file.display());
        }
    }
}

/// Gives a function so many inputs, none longer than `most` unless it is made of a good one.
fn feed(name: &str, function: fn(&[u8]), good: &[&[u8]], most: usize, count: usize) {
    let captured = first().into_iter().filter(|(target, ..)| *target == name);
    let mut inputs: Vec<Vec<u8>> = captured.map(|(.., bytes)| bytes).collect();
    inputs.extend(good.iter().map(|bytes| bytes.to_vec()));
    for bytes in &inputs {
        function(&Input { name, bytes: bytes.clone() }.bytes);
    }
    let mut random = Random::new(1);
    let began = Instant::now();
    for _ in 0..count {
        let bytes = match random.below(4) {
            1.. if !inputs.is_empty() => {
                let good = &inputs[random.below(inputs.len())];
                changed(&mut random, good)
            }
            _ => any(&mut random, most),
        };
        function(&Input { name, bytes }.bytes);
    }
    eprintln!("{count} inputs in {:?}", Duration::from_millis(began.elapsed().as_millis() as u64));
}

#[test]
fn packets() {
    feed("packet", transom_inputs::packet, &[], 200, 20_000);
}

#[test]
fn check_values() {
    feed("icrc", transom_inputs::icrc, &[], 200, 10_000);
}

#[test]
fn headers() {
    feed("headers", transom_inputs::headers, &[], 64, 20_000);
}

#[test]
fn messages_of_connection_management() {
    feed("cm", transom_inputs::cm, &[], 300, 10_000);
}

#[test]
fn connections() {
    feed("connections", transom_inputs::connections, &[], 1200, 300);
}

#[test]
fn a_device() {
    feed("device", transom_inputs::device, &[], 400, 500);
}

#[test]
fn faults() {
    let good: &[&[u8]] =
        &[b"loss=1%,reorder=5%,seed=7", b"loss=0.5%,delay=3ms,corrupt=1%,duplicate=2%"];
    feed("faults", transom_inputs::faults, good, 60, 20_000);
}

#[test]
fn lines_of_maps() {
    let maps = fs::read("/proc/self/maps").expect("this process has some");
    let good: Vec<&[u8]> = maps.split(|byte| *byte == b'\n').collect();
    feed("maps", transom_inputs::maps, &good, 120, 20_000);
}

#[test]
fn answers_of_netlink() {
    // A message of an interface (16) and one of an address (20) with one attribute each, and the last one (3).
    let message = |kind: u16, body: &[u32]| {
        let length = 16 + 4 * body.len() as u32;
        let words = [length, u32::from(kind), 0, 0].into_iter().chain(body.iter().copied());
        words.flat_map(u32::to_ne_bytes).collect::<Vec<u8>>()
    };
    let interface = message(16, &[0, 1, 0x41, 0, 0x0004_0008, 1500]);
    let address = message(20, &[0x0000_0802, 1, 0x0001_0008, 0x0100_007f]);
    let good = [&interface[..], &address, &message(3, &[0])].concat();
    feed("netlink", transom_inputs::netlink, &[&good], 200, 20_000);
}

#[test]
fn what_processes_of_the_port_tell_each_other() {
    feed("port", transom_inputs::port, &[], 100, 20_000);
}

#[test]
fn entries_of_the_file_of_ports() {
    feed("ports", transom_inputs::ports, &[], 80, 20_000);
}

#[test]
fn records_of_the_registry() {
    feed("record", transom_inputs::record, &[], 400, 10_000);
}

#[test]
fn rings() {
    feed("ring", transom_inputs::ring, &[], 800, 1_000);
}

#[test]
fn a_ring_while_it_is_written() {
    feed("ring_while_written", transom_inputs::ring_while_written, &[], 300, 100);
}

#[test]
fn other_rsockets() {
    feed("rsockets", transom_inputs::rsockets, &[], 300, 20_000);
}

#[test]
fn commands_of_rdma_cm() {
    alone(path_of!("commands_of_rdma_cm"), Way::Network, || {
        feed("commands", transom_inputs::commands, &[], 600, 300);
    });
}

/// None is left out here.
#[test]
fn each_target_of_the_fuzzer_has_its_test() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets"));
    let tests = include_str!("main.rs");
    for target in fs::read_dir(folder).expect("the targets") {
        let target = target.expect("a target").path();
        let name = target.file_stem().expect("a name").display().to_string();
        assert!(tests.contains(&format!("feed(\"{name}\", transom_inputs::{name}, ")), "{name}");
    }
}
