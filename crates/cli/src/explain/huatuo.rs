//! A refusal as a document of [HUATUO](https://github.com/ccfos/huatuo), as it stores what its tracers see.

use std::fs;
use std::io::Write;

use serde::Serialize;
use serde_json::Value;

use super::{Refused, json};
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
    /// The same whenever the refusal is printed, so that it is stored once.
    tracer_id: String,
    tracer_time: String,
    tracer_type: &'static str,
    tracer_data: Value,
}

/// Prints the document of a refusal, in one line.
pub(super) fn print(out: &mut dyn Write, refused: &Refused) -> Result {
    let (pid, at) = (refused.process.pid, refused.record.time());
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
    // A PID of another PID namespace is somebody else's here.
    let has_pid = refused.process.alive && refused.process.shares_pids;
    let cgroups = has_pid.then(|| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
    let time = clock::zoned(at);
    let document = Document {
        region: "",
        uploaded_time: clock::rfc3339(clock::now()),
        time: time.clone(),
        container_id: cgroups.flatten().as_deref().and_then(container),
        tracer_name: "transom",
        tracer_id: format!("transom-{hostname}-{pid}-{at}"),
        tracer_time: time,
        tracer_type: "event",
        tracer_data: json::value(refused),
        hostname,
    };
    writeln!(out, "{}", serde_json::to_string(&document).map_err(Failure::new)?)?;
    Ok(())
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
