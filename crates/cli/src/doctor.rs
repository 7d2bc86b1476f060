//! `transom doctor`: checks whether the device works on this system, finds what slows it down, and gives
//! advice.

mod limits;
mod loader;

use crate::devices::running;
use crate::failure::{Failure, Result};
use crate::layout;
use crate::registered;
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use transom::Provider;
use transom_ibverbs::Description;
use transom_net::udp;
use transom_system::memory::Copier;
use transom_system::registry::{Process, Registry};

const HELP: &str = "\
Each finding begins with its state:
  ok     it works
  note   it works, and you may want to know something about it
  slow   it works, but slower than it could
  fails  it does not work

With --json there is one object. Its `findings` are a list of objects:
  state     ok, note, slow or fails
  topic     what was looked at, such as kernel, device or port
  sentence  the finding
  fix       what to do about it; null if you need do nothing

Exit status:
  0  everything works
  1  something does not work

Examples:
  transom doctor
  transom doctor --json | jq '.findings[] | select(.state != \"ok\")'";

/// Check this system: does the device work, what makes it slow, and what can you do about it?
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object with `findings`
    #[arg(long)]
    json: bool,
}

/// The oldest kernel with everything that the device uses.
const KERNEL: (u32, u32) = (5, 4);

/// The bit of `CAP_SYS_PTRACE` in a set of capabilities (capabilities(7)).
const SYS_PTRACE: u32 = 19;

/// The state of a thing that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Note,
    Slow,
    Fails,
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Finding {
    state: State,
    topic: &'static str,
    #[serde(rename = "sentence")]
    text: String,
    /// The advice to the user.
    fix: Option<String>,
}

impl Finding {
    fn new(state: State, topic: &'static str, text: impl Into<String>) -> Self {
        Self { state, topic, text: text.into(), fix: None }
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)?;
        self.fix.as_ref().map_or(Ok(()), |fix| write!(to, ": {fix}"))
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result {
    let mut findings = vec![
        kernel(&read("/proc/sys/kernel/osrelease").unwrap_or_default()),
        device(),
        copying(),
        tracing_by_others(read("/proc/sys/kernel/yama/ptrace_scope").as_deref(), may_trace()),
        room(read("/proc/sys/net/core/rmem_max").as_deref()),
    ];
    findings.extend(registry());
    findings.extend(limits::findings());
    findings.extend(registered());
    findings.extend(adapters(&names(Path::new("/sys/class/infiniband"))));
    findings.extend(loader::findings());
    let printed = if args.json { print_json(&findings) } else { print(&findings) };
    match printed {
        // The findings decide the exit status, even if nobody reads all of them.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    if findings.iter().any(|finding| finding.state == State::Fails) {
        return Err(Failure::with_status(1, ""));
    }
    Ok(())
}

fn print(findings: &[Finding]) -> io::Result<()> {
    let mut out = layout::stdout();
    for finding in findings {
        let (color, word) = match finding.state {
            State::Ok => (AnsiColor::Green, "ok"),
            State::Note => (AnsiColor::Cyan, "note"),
            State::Slow => (AnsiColor::Yellow, "slow"),
            State::Fails => (AnsiColor::Red, "fails"),
        };
        let style = Style::new().fg_color(Some(color.into()));
        out.item(format_args!("{style}{word:<5}{style:#}  "), finding)?;
    }
    Ok(())
}

fn print_json(findings: &[Finding]) -> io::Result<()> {
    let all = serde_json::json!({ "findings": findings });
    writeln!(io::stdout(), "{all:#}")
}

/// Processes of this user that have registered private memory.
fn registered() -> Vec<Finding> {
    let Ok(registry) = Registry::open() else { return Vec::new() };
    let processes = running(registry);
    let of = |process: &Process| {
        let (private, advice) = registered::how_to_share(process)?;
        let text = format!("PID {} ({}): {private}", process.pid, process.name);
        Some(Finding::new(State::Note, "registered", text).fix(advice))
    };
    processes.iter().filter_map(of).collect()
}

/// The text of a kernel file.
fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL {
        return Finding::new(State::Ok, "kernel", format!("Linux {release}"));
    }
    let (major, minor) = KERNEL;
    let text =
        format!("Linux {release} is older than {major}.{minor}, the oldest that Transom supports");
    Finding::new(State::Note, "kernel", text)
}

fn device() -> Finding {
    let opened = transom::devices(&Provider::software())
        .and_then(|devices| devices.first().map(transom::Device::open).transpose());
    match opened {
        Ok(Some(context)) => {
            Finding::new(State::Ok, "device", format!("the device {} opens", context.name()))
        }
        Ok(None) => Finding::new(State::Fails, "device", "there is no device"),
        Err(error) => {
            Finding::new(State::Fails, "device", format!("the device does not open: {error}"))
        }
    }
}

fn copying() -> Finding {
    match Copier::best() {
        Ok(Copier::Kernel) => {
            let text = "the kernel copies for this process (process_vm_readv)";
            Finding::new(State::Ok, "copying", text)
        }
        Ok(_) => Finding::new(
            State::Slow,
            "copying",
            "process_vm_readv is forbidden, most likely by a seccomp profile, so private memory goes \
             through rings",
        )
        .fix("allow process_vm_readv and process_vm_writev (`docker run --cap-add SYS_PTRACE`)"),
        Err(error) => {
            Finding::new(State::Fails, "copying", format!("memory cannot be copied: {error}"))
        }
    }
}

/// Whether this process may trace all others (`CAP_SYS_PTRACE`).
fn may_trace() -> bool {
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set & (1 << SYS_PTRACE) != 0)
}

fn tracing_by_others(scope: Option<&str>, may_trace: bool) -> Finding {
    const TOPIC: &str = "tracing";
    match scope {
        None | Some("0") => {
            Finding::new(State::Ok, TOPIC, "processes of one user may access each other's memory")
        }
        Some(scope @ ("1" | "2")) if may_trace => {
            let text = format!("kernel.yama.ptrace_scope is {scope}; this user is exempt from it");
            Finding::new(State::Ok, TOPIC, text)
        }
        Some("1") => Finding::new(
            State::Note,
            TOPIC,
            "kernel.yama.ptrace_scope is 1, so the device lets all processes of your user trace your \
             program",
        )
        .fix("set TRANSOM_COPY=rings if you do not want that; it is slower"),
        Some(scope) => {
            let restart = if scope == "3" { ", after a restart: 3 cannot be changed" } else { "" };
            let text =
                format!("kernel.yama.ptrace_scope is {scope}, so private memory goes through rings");
            let fix = format!("`sysctl -w kernel.yama.ptrace_scope=1`{restart}");
            Finding::new(State::Slow, TOPIC, text).fix(fix)
        }
    }
}

/// Checks the directory where processes find each other.
fn registry() -> Vec<Finding> {
    let registry = match Registry::open() {
        Ok(registry) => registry,
        Err(error) => {
            let text = format!("processes cannot find each other: {error}");
            return vec![Finding::new(State::Fails, "processes", text)];
        }
    };
    let directory = registry.directory();
    let mut findings = vec![place(directory), port(registry)];
    findings.extend(numbers(registry));
    findings.extend(limits::room(directory));
    findings
}

fn place(directory: &Path) -> Finding {
    let place = directory.display();
    if directory.starts_with("/dev/shm") {
        return Finding::new(
            State::Ok,
            "processes",
            format!("processes find each other in {place}"),
        );
    }
    let text = format!("processes find each other in {place}, because /dev/shm cannot be used");
    Finding::new(State::Note, "processes", text).fix("share that directory with other containers")
}

/// Other users may have taken all numbers that processes have in this network namespace.
fn numbers(registry: &Registry) -> Option<Finding> {
    let (users, named) = registry.names_of_others();
    let users: Vec<_> = users.iter().map(|user| format!("user {user}")).collect();
    let text = format!(
        "other users ({}) have taken all numbers of processes in this network namespace; devices open \
         all the same",
        users.join(", ")
    );
    let fix = "`ss -xlp src '@transom-slot-*'` lists the processes";
    (named >= Registry::PROCESSES).then(|| Finding::new(State::Note, "processes", text).fix(fix))
}

fn port(registry: &Registry) -> Finding {
    match udp::taken_by_others(registry) {
        None => Finding::new(State::Ok, "port", "this user can have UDP port 4791"),
        Some(taken) if taken.user().is_some_and(udp::hands_on) => {
            let user = taken.user().unwrap_or_default();
            let text = format!(
                "programs of user {user} have UDP port 4791, and hand on the packets for this user's programs{}",
                if user == 0 { "" } else { "; nothing arrives from other hosts" }
            );
            Finding::new(State::Note, "port", text)
        }
        // Programs that stay within the host never need the port.
        Some(taken) => {
            Finding::new(State::Note, "port", format!("other hosts cannot be reached: {taken}"))
        }
    }
}

fn room(limit: Option<&str>) -> Finding {
    const TOPIC: &str = "receive_buffer";
    let wanted = udp::ROOM;
    match limit.and_then(|limit| limit.parse::<usize>().ok()) {
        // Namespaces of older kernels do not show it.
        None => Finding::new(State::Note, TOPIC, "net.core.rmem_max cannot be read here"),
        Some(limit) if limit >= wanted => {
            Finding::new(State::Ok, TOPIC, format!("net.core.rmem_max is {limit}"))
        }
        Some(limit) => {
            let text = format!(
                "net.core.rmem_max is {limit}, so packets get lost if many processes send to one over \
                 the wire"
            );
            let fix = format!("`sysctl -w net.core.rmem_max={wanted}`");
            Finding::new(State::Slow, TOPIC, text).fix(fix)
        }
    }
}

/// The kernel's own RDMA devices. Under `transom run`, Transom's device is among them.
fn adapters(names: &[String]) -> Option<Finding> {
    let ours = Description::chosen().unwrap_or_default();
    let is_ours = |name: &str| ours.iter().any(|device| device.name.to_string() == name);
    let names: Vec<_> = names.iter().map(String::as_str).filter(|name| !is_ours(name)).collect();
    let text = format!(
        "this system has RDMA devices of its own ({}): programs see only Transom's under `transom \
         run`, and only the system's without it",
        names.join(", ")
    );
    (!names.is_empty()).then(|| Finding::new(State::Note, "adapters", text))
}

#[cfg(test)]
mod tests {
    use super::State::*;
    use super::*;

    #[test]
    fn kernels_are_compared_by_their_numbers() {
        let states = ["6.18.44-fc", "5.4.0", "5.15.0-rc1", "5.3.18-lp152", "4.18.0-553.el8", ""];
        let states = states.map(|release| kernel(release).state);
        assert_eq!(states, [Ok, Ok, Ok, Note, Note, Note]);
    }

    #[test]
    fn what_yama_forbids_is_slow() {
        let cases = [
            (None, false),
            (Some("0"), false),
            (Some("1"), false),
            (Some("2"), false),
            (Some("2"), true),
            (Some("3"), true),
        ];
        let states = cases.map(|(scope, may)| tracing_by_others(scope, may).state);
        assert_eq!(states, [Ok, Ok, Note, Slow, Ok, Slow]);
    }

    #[test]
    fn what_is_too_little_is_told_with_what_is_enough() {
        assert_eq!(room(Some("4194304")).state, Ok);
        let little = room(Some("212992"));
        assert!(little.state == Slow && little.fix.unwrap().contains("rmem_max=4194304"));
        assert!(adapters(&[]).is_none() && adapters(&["transom0".to_owned()]).is_none());
        assert!(adapters(&["mlx5_0".to_owned()]).unwrap().text.contains("mlx5_0"));
    }
}
