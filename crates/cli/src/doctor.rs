//! `transom doctor`: what of this system is slow for the device or in its way, and what to do about it.

mod limits;
mod loader;

use crate::devices::running;
use crate::failure::{Failure, Result};
use crate::registered;
use anstyle::{AnsiColor, Style};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use transom::Provider;
use transom_ibverbs::DeviceName;
use transom_net::udp;
use transom_system::memory::Copier;
use transom_system::registry::{Process, Registry};

pub(crate) const HELP: &str = "\
Each line begins with how it is:
  ok     nothing is to be done
  note   it works, and you may want to know
  slow   it works, and would be faster otherwise
  fails  something will not work

Exit status:
  0  everything works
  1  something will not work";

/// The kernel from which all that the device uses is there.
const KERNEL: (u32, u32) = (5, 4);

/// The bit of `CAP_SYS_PTRACE` in a set of capabilities (capabilities(7)).
const SYS_PTRACE: u32 = 19;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    Note,
    Slow,
    Fails,
}

/// Something that was looked at.
#[derive(Debug)]
struct Finding {
    state: State,
    text: String,
}

impl Finding {
    fn new(state: State, text: impl Into<String>) -> Self {
        Self { state, text: text.into() }
    }
}

pub(crate) fn run() -> Result {
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
    match print(&findings) {
        // What was found is the status, whether or not somebody reads all of it.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    if findings.iter().any(|finding| finding.state == State::Fails) {
        return Err(Failure::with_status(1, ""));
    }
    Ok(())
}

fn print(findings: &[Finding]) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    for Finding { state, text } in findings {
        let (color, word) = match state {
            State::Ok => (AnsiColor::Green, "ok"),
            State::Note => (AnsiColor::Cyan, "note"),
            State::Slow => (AnsiColor::Yellow, "slow"),
            State::Fails => (AnsiColor::Red, "fails"),
        };
        let style = Style::new().fg_color(Some(color.into()));
        writeln!(out, "{style}{word:<5}{style:#}  {text}")?;
    }
    Ok(())
}

/// What processes of this user have registered that is private.
fn registered() -> Vec<Finding> {
    let Ok(registry) = Registry::open() else { return Vec::new() };
    let processes = running(registry);
    let of = |process: &Process| {
        let how = registered::how_to_share(process)?;
        let text = format!("PID {} ({}): {how}", process.pid, process.name);
        Some(Finding::new(State::Note, text))
    };
    processes.iter().filter_map(of).collect()
}

/// The text of a file of the kernel's.
fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// What is in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL {
        return Finding::new(State::Ok, format!("Linux {release}"));
    }
    let (major, minor) = KERNEL;
    let text =
        format!("Linux {release} is older than {major}.{minor}, from which on Transom is to work");
    Finding::new(State::Note, text)
}

fn device() -> Finding {
    let opened = transom::devices(&Provider::software())
        .and_then(|devices| devices.first().map(transom::Device::open).transpose());
    match opened {
        Ok(Some(context)) => {
            Finding::new(State::Ok, format!("a device can be opened: {}", context.name()))
        }
        Ok(None) => Finding::new(State::Fails, "there is no device"),
        Err(error) => Finding::new(State::Fails, format!("no device can be opened: {error}")),
    }
}

fn copying() -> Finding {
    match Copier::best() {
        Ok(Copier::Kernel) => {
            Finding::new(State::Ok, "the kernel copies for this process (process_vm_readv)")
        }
        Ok(Copier::Pipes(_)) => Finding::new(
            State::Slow,
            "process_vm_readv is forbidden, most likely by a seccomp profile, so private memory goes \
             through rings: allow process_vm_readv and process_vm_writev (docker run --cap-add SYS_PTRACE)",
        ),
        Err(error) => Finding::new(State::Fails, format!("memory cannot be copied: {error}")),
    }
}

/// Whether this process may trace whom it likes (`CAP_SYS_PTRACE`).
fn may_trace() -> bool {
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set & (1 << SYS_PTRACE) != 0)
}

fn tracing_by_others(scope: Option<&str>, may_trace: bool) -> Finding {
    match scope {
        None | Some("0") => {
            Finding::new(State::Ok, "processes of one user may reach each other's memory")
        }
        Some(scope @ ("1" | "2")) if may_trace => Finding::new(
            State::Ok,
            format!("kernel.yama.ptrace_scope is {scope}, which this user is exempt from"),
        ),
        Some("1") => Finding::new(
            State::Note,
            "kernel.yama.ptrace_scope is 1, so a device lets every process of its user trace its own; \
             TRANSOM_COPY=rings does without, and is slower",
        ),
        Some(scope) => Finding::new(
            State::Slow,
            format!(
                "kernel.yama.ptrace_scope is {scope}, so private memory goes through rings: sysctl -w \
                 kernel.yama.ptrace_scope=1{}",
                if scope == "3" { ", after a restart, for 3 stays" } else { "" }
            ),
        ),
    }
}

/// Where processes find each other, and what is in their way.
fn registry() -> Vec<Finding> {
    let registry = match Registry::open() {
        Ok(registry) => registry,
        Err(error) => {
            let text = format!("processes cannot find each other: {error}");
            return vec![Finding::new(State::Fails, text)];
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
        return Finding::new(State::Ok, format!("processes find each other in {place}"));
    }
    let text = format!(
        "processes find each other in {place}, for /dev/shm is not to be had: those of other \
         containers must share that directory"
    );
    Finding::new(State::Note, text)
}

/// Another user may have named all numbers that processes have in this network namespace.
fn numbers(registry: &Registry) -> Option<Finding> {
    let (users, named) = registry.names_of_others();
    let users: Vec<_> = users.iter().map(|user| format!("user {user}")).collect();
    let text = format!(
        "others ({}) have taken all numbers of processes in this network namespace: devices open all the same; \
         `ss -xlp src '@transom-slot-*'` names who has them",
        users.join(", ")
    );
    (named >= Registry::PROCESSES).then(|| Finding::new(State::Note, text))
}

fn port(registry: &Registry) -> Finding {
    match udp::taken_by_others(registry) {
        None => Finding::new(State::Ok, "UDP port 4791 is free for this user"),
        Some(taken) if taken.user().is_some_and(udp::hands_on) => {
            let user = taken.user().unwrap_or_default();
            let text = format!(
                "UDP port 4791 is had by programs of user {user}, who hand on what comes for those of this user{}",
                if user == 0 { "" } else { ": from other hosts nothing comes" }
            );
            Finding::new(State::Note, text)
        }
        // Programs that stay within the host never ask for it.
        Some(taken) => Finding::new(State::Note, format!("other hosts cannot be reached: {taken}")),
    }
}

fn room(limit: Option<&str>) -> Finding {
    let wanted = udp::ROOM;
    match limit.and_then(|limit| limit.parse::<usize>().ok()) {
        // Namespaces of older kernels do not show it.
        None => Finding::new(State::Note, "net.core.rmem_max cannot be read here"),
        Some(limit) if limit >= wanted => {
            Finding::new(State::Ok, format!("net.core.rmem_max is {limit}"))
        }
        Some(limit) => Finding::new(
            State::Slow,
            format!(
                "net.core.rmem_max is {limit}, so many who send to one over the wire may lose \
                 packets: sysctl -w net.core.rmem_max={wanted}"
            ),
        ),
    }
}

/// The kernel's own RDMA devices. Ours is there too under `transom run`.
fn adapters(names: &[String]) -> Option<Finding> {
    let ours = DeviceName::chosen().map(ToString::to_string).unwrap_or_default();
    let names: Vec<_> = names.iter().map(String::as_str).filter(|name| *name != ours).collect();
    let text = format!(
        "this system has RDMA devices of its own ({}): under `transom run` programs see Transom's \
         only, and else those only",
        names.join(", ")
    );
    (!names.is_empty()).then(|| Finding::new(State::Note, text))
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
        assert!(little.state == Slow && little.text.contains("rmem_max=4194304"));
        assert!(adapters(&[]).is_none() && adapters(&["transom0".to_owned()]).is_none());
        assert!(adapters(&["mlx5_0".to_owned()]).unwrap().text.contains("mlx5_0"));
    }
}
