//! The machine of the measurement, and its other load.

use std::fmt::{self, Display};
use std::fs;
use std::thread::available_parallelism;

use serde::Serialize;

use super::load::{busy_with_others, is_quiet};

/// This machine at the beginning.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    kernel: String,
    processor: String,
    processors: usize,
    /// How many threads wanted a processor, on average over the last minute.
    load: f64,
    /// The share of the processors that other programs keep busy.
    others: f64,
}

impl Machine {
    pub(super) fn this(others: f64) -> Self {
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
            others,
        }
    }
}

impl Display for Machine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, processor, processors, load, others } = self;
        writeln!(to, "Linux {kernel}, {processors} × {processor}, load {load} before")?;
        if !is_quiet(*others) {
            let busy = busy_with_others(*others);
            writeln!(to, "This machine is busy: {busy}. Targets are not judged while it is.")?;
        }
        Ok(())
    }
}
