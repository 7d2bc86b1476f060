//! What programs allocate under `transom run` is shared with their peers, and with nobody else: they and their
//! children find it as if it were private.

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

use transom_conformance::c_programs::{self, compile};
use transom_conformance::processes::{Scratch, is_long};
use transom_conformance::programs::{Running, command};
use transom_conformance::random::Random;

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A program under `transom run`.
fn run(program: &Path, arguments: &[&str]) -> Command {
    let mut run = Command::new(&command()[0]);
    run.args(["run", "--"]).arg(program).args(arguments);
    for variable in ["TRANSOM_LIB", "TRANSOM_MEMORY", "TRANSOM_COPY", "LD_PRELOAD"] {
        run.env_remove(variable);
    }
    run
}

/// The stress, which ends at the first byte that is not as it should be.
struct Stress<'a> {
    program: &'a Path,
    operations: &'a str,
}

impl Stress<'_> {
    fn with(&self, seed: u64, memory: &str, copy: Option<&str>) {
        let mut run = run(self.program, &[&seed.to_string(), self.operations, memory]);
        run.env("TRANSOM_MEMORY", memory);
        copy.map(|copy| run.env("TRANSOM_COPY", copy));
        let printed = Running::start(&mut run).finish(LIMIT);
        assert!(printed.starts_with("ok - "), "{printed}");
    }

    /// As programs have it; where peers copy through rings; and with private memory, where the same holds.
    fn each_way(&self, seed: u64) {
        self.with(seed, "shared", None);
        self.with(seed, "shared", Some("rings"));
        self.with(seed, "private", None);
    }
}

/// What happens by chance, over and over. A failure names its seed, which is tried again by `TRANSOM_SEED=17`; a long
/// run has seeds of its own, for an hour.
#[test]
fn every_byte_of_what_a_program_allocates_is_as_it_was_written() {
    let scratch = Scratch::new("shared-stress");
    let program =
        &compile(&scratch, "shared_stress.c", "shared_stress", &["-libverbs", "-lpthread"]);
    if let Ok(seed) = env::var("TRANSOM_SEED") {
        let stress = Stress { program, operations: "2000" };
        return stress.each_way(seed.parse().expect("a seed is a number"));
    }
    if !is_long() {
        let stress = Stress { program, operations: "500" };
        return (1..=2).for_each(|seed| stress.each_way(seed));
    }
    let (stress, begun) = (Stress { program, operations: "2000" }, Instant::now());
    let mut seeds = Random::new(UNIX_EPOCH.elapsed().expect("a clock").as_secs());
    while begun.elapsed() < Duration::from_secs(3600) {
        stress.each_way(seeds.number() >> 32);
    }
}

/// What the program shows, it says itself.
#[test]
fn a_program_notices_nothing_of_shared_memory() {
    let scratch = Scratch::new("shared-memory");
    let libraries = ["-libverbs", "-lpthread", "-ldl"];
    let program = compile(&scratch, "shared_memory.c", "shared_memory", &libraries);
    let plugin = compile(&scratch, "shared_plugin.c", "plugin.so", &["-shared", "-fPIC"]);
    let plugin = plugin.to_str().expect("a plain name");
    c_programs::run(&mut run(&program, &[plugin]), 33);
}
