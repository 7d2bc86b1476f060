//! Documents of [HUATUO](https://github.com/ccfos/huatuo), as it stores what its tracers see: refusals, and what
//! `transom trace --anomalies` writes.

use std::fs;
use std::io::Write;

use serde::Serialize;
use serde_json::Value;

use transom_system::registry::Process;

use super::Refused;
use crate::clock;
use crate::failure::{Failure, Result};

#[derive(Serialize)]
struct Document {
    hostname: String,
    /// The user tells it to HUATUO; nobody tells us.
    region: &'static str,
    uploaded_time: String,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_id: Option<String>,
    tracer_name: &'static str,
    /// The same whenever the document is printed, so that it is stored once.
    tracer_id: String,
    tracer_time: String,
    tracer_type: &'static str,
    tracer_data: Value,
}

/// How HUATUO calls what has made a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It tells what has happened.
    Event,
    /// It was made because something has happened.
    Autotracing,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Autotracing => "autotracing",
        }
    }
}

/// Prints the document of a refusal, in one line.
pub(super) fn print(out: &mut dyn Write, refused: &Refused) -> Result {
    let Refused { process, record, .. } = refused;
    let line = document(process, record.time(), Kind::Event, refused.json())?;
    writeln!(out, "{line}")?;
    Ok(())
}

/// The document of something that happened in a process at a time, in one line.
pub(crate) fn document(process: &Process, at: u64, kind: Kind, data: Value) -> Result<String> {
    let pid = process.pid;
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
    // A PID of another PID namespace is somebody else's here.
    let has_pid = process.alive && process.shares_pids;
    let cgroups = has_pid.then(|| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
    let time = clock::zoned(at);
    let document = Document {
        region: "",
        uploaded_time: clock::rfc3339(clock::now()),
        time: time.clone(),
        container_id: cgroups.flatten().as_deref().and_then(container),
        tracer_name: "transom",
        // What tells of a refusal is not what was made because of it.
        tracer_id: match kind {
            Kind::Event => format!("transom-{hostname}-{pid}-{at}"),
            Kind::Autotracing => format!("transom-trace-{hostname}-{pid}-{at}"),
        },
        tracer_time: time,
        tracer_type: kind.name(),
        tracer_data: data,
        hostname,
    };
    serde_json::to_string(&document).map_err(Failure::new)
}

/// The container of a process with these control groups: runtimes name its group by the 64 digits of its number.
fn container(cgroups: &str) -> Option<String> {
    let words = cgroups.split(|letter: char| !letter.is_ascii_hexdigit());
    words.rev().find(|word| word.len() == 64).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_its_group() {
        let id = "0123456789abcdef".repeat(4);
        for line in [
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope\n"),
            format!("12:cpu:/docker/{id}\n0::/\n"),
        ] {
            assert_eq!(container(&line), Some(id.clone()), "{line}");
        }
        for line in ["0::/\n", "0::/user.slice/user-0.slice/session-1.scope\n", ""] {
            assert_eq!(container(line), None, "{line}");
        }
    }
}
