//! Where it was measured, and what else was going on.

use std::fmt::{self, Display};
use std::fs;
use std::thread::available_parallelism;

use serde::Serialize;

/// This machine at the beginning.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    kernel: String,
    processor: String,
    processors: usize,
    /// How many have wanted a processor, on average over the last minute.
    load: f64,
}

impl Machine {
    pub(super) fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let load = read("/proc/loadavg");
        let load = load.split_whitespace().next().and_then(|load| load.parse().ok());
        let processors = read("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.and_then(|model| model.split_once(": ")).map(|(_, model)| model.trim());
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: model.unwrap_or("processor").to_owned(),
            processors: available_parallelism().map_or(1, Into::into),
            load: load.unwrap_or(0.0),
        }
    }
}

impl Display for Machine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, processor, processors, load } = self;
        writeln!(to, "Linux {kernel}, {processors} × {processor}, load {load} before")
    }
}
