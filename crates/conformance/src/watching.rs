//! What tools that watch a host see of the device.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::until;
use crate::processes::Scratch;
use crate::programs::{Running, command};
use transom_system::port_counters::{COUNTERS, Counter, HW_COUNTERS};
use transom_system::registry::Registry;

/// The counters of the port, by name. Those of `hw_counters` have a name that begins so: `hw/`.
pub type Counters = BTreeMap<String, u64>;

/// A directory that `transom metrics` keeps up to date.
pub struct Kept {
    scratch: Scratch,
    process: Option<Running>,
}

impl Kept {
    /// One of its own, as soon as everything is in it.
    pub fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let mut transom = Command::new(&command()[0]);
        transom.args(["metrics", "--sysfs"]).arg(scratch.path().join("sys"));
        let process = Some(Running::start(&mut transom));
        let kept = Self { scratch, process };
        // It comes last.
        until("the directory", || kept.path().join("kernel").exists().then_some(()));
        kept
    }

    /// The directory.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("sys")
    }

    /// The counters in it.
    pub fn counters(&self) -> Counters {
        counters_in(&self.path().join("class/infiniband/transom0/ports/1"))
    }

    /// Ends the command, which then removes what is in the directory.
    pub fn end(mut self) {
        let mut process = self.process.take().expect("it runs");
        process.signal(libc::SIGTERM);
        process.success(Duration::from_secs(30)).expect("it ends well");
        assert_eq!(fs::read_dir(self.path()).expect("the directory stays").count(), 0);
    }
}

/// The counters below the directory of a port.
pub fn counters_in(port: &Path) -> Counters {
    let mut counters = Counters::new();
    for (directory, before) in [("counters", ""), ("hw_counters", "hw/")] {
        for entry in fs::read_dir(port.join(directory)).expect("the directory is there") {
            let file = entry.expect("an entry").path();
            let name = file.file_name().and_then(|name| name.to_str()).expect("a plain name");
            let value = fs::read_to_string(&file).expect("a file").trim().parse();
            counters.insert(format!("{before}{name}"), value.expect("a number"));
        }
    }
    counters
}

/// The counters now, as this process adds them up.
pub fn counters() -> Counters {
    let sums = Registry::open().expect("the registry").sums(0);
    let of = |counters: &[Counter], before| {
        let named = counters.iter().map(|(name, value)| (format!("{before}{name}"), value(&sums)));
        named.collect::<Vec<_>>()
    };
    of(&COUNTERS, "").into_iter().chain(of(&HW_COUNTERS, "hw/")).collect()
}

/// The counters that differ, and by how much. None may have fallen.
pub fn grown(before: &Counters, after: &Counters) -> Counters {
    let grown = after.iter().map(|(name, now)| {
        let before = before.get(name).copied().unwrap_or_default();
        (name.clone(), now.checked_sub(before).unwrap_or_else(|| panic!("{name} has fallen")))
    });
    grown.filter(|(_, by)| *by > 0).collect()
}
