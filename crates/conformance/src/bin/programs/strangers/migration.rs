//! QEMU moves a machine from one process to another. Its monitor gives the order, and RDMA moves the memory.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use transom_conformance::programs::{Printed, Running};

use crate::meeting::free_port;

/// The content of the machine's memory that is not zero, and its address. The machine has no program.
const CONTENT: u32 = 8 << 20;
const AT: u64 = 16 << 20;
const MACHINE: [&str; 9] =
    ["-nodefaults", "-display", "none", "-machine", "q35", "-m", "64", "-S", "-qmp"];

/// Moves a machine from one process to another. With `pinned`, all its memory is registered at once. `qemu` makes a
/// command to start a process.
pub(super) fn migrate(
    qemu: impl Fn() -> Result<Command, String>,
    folder: &Path,
    pinned: bool,
    limit: Duration,
) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let (content, arrived) = (folder.join("content"), folder.join("arrived"));
    let byte = |at: u32| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8;
    let bytes: Vec<u8> = (0..CONTENT).map(byte).collect();
    fs::write(&content, &bytes).map_err(failed)?;
    let start = |name: &str, options: &[String]| {
        let socket = folder.join(name);
        let _ = fs::remove_file(&socket);
        let mut command = qemu()?;
        command.args(MACHINE).arg(format!("unix:{},server=on,wait=off", socket.display()));
        Machine::start(command.args(options), &socket, limit)
    };
    let loaded = format!("loader,file={},addr={AT},force-raw=on", content.display());
    let mut source = start("source", &["-device".into(), loaded])?;
    let mut target = start("target", &["-incoming".into(), "defer".into()])?;
    let saved = json!({ "val": AT, "size": CONTENT, "filename": arrived.display().to_string() });
    let moved = move_machine(&mut source.monitor, &mut target.monitor, pinned, limit)
        .and_then(|()| target.monitor.ask("pmemsave", saved));
    let ended = [source, target].map(|it| it.end(limit));
    if let Err(problem) = moved {
        return Err(format!("{problem}\n{ended:?}"));
    }
    ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    let same = fs::read(&arrived).map_err(failed)? == bytes;
    if same { Ok(()) } else { Err("the machine's memory has not arrived".to_owned()) }
}

fn move_machine(
    source: &mut Monitor,
    target: &mut Monitor,
    pinned: bool,
    limit: Duration,
) -> Result<(), String> {
    for monitor in [&mut *source, &mut *target] {
        let pin = json!([{ "capability": "rdma-pin-all", "state": pinned }]);
        monitor.ask("migrate-set-capabilities", json!({ "capabilities": pin }))?;
    }
    let uri = json!({ "uri": format!("rdma:127.0.0.1:{}", free_port()?) });
    target.ask("migrate-incoming", uri.clone())?;
    source.ask("migrate", uri)?;
    source.until_migrated(limit)?;
    target.until_migrated(limit)
}

/// A process, and its monitor.
struct Machine {
    running: Running,
    monitor: Monitor,
}

impl Machine {
    fn start(command: &mut Command, socket: &Path, limit: Duration) -> Result<Self, String> {
        let mut running = Running::start(command);
        let mut stream = None;
        running.wait_until("opens its monitor", || {
            stream = UnixStream::connect(socket).ok();
            stream.is_some()
        })?;
        let Some(stream) = stream else {
            return Err(format!("QEMU ends without a monitor: {:?}", running.end(limit)));
        };
        let timeout = stream.set_read_timeout(Some(limit));
        timeout.map_err(|error| format!("QEMU's monitor: {error}"))?;
        let mut monitor = Monitor { answers: BufReader::new(stream) };
        monitor.line()?;
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(Self { running, monitor })
    }

    /// Ends the process. Returns its output.
    fn end(mut self, limit: Duration) -> Result<Printed, String> {
        // If this fails, the process has ended, and its status says why.
        let _ = self.monitor.ask("quit", json!({}));
        self.running.success(limit)
    }
}

/// The connection to a process's monitor: a line of JSON for each command and answer.
struct Monitor {
    answers: BufReader<UnixStream>,
}

impl Monitor {
    fn line(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        read.map_err(|error| format!("QEMU's monitor: {error}"))?;
        serde_json::from_str(&line).map_err(|_| format!("QEMU's monitor says {line:?}"))
    }

    /// Sends a command. Returns its answer.
    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        // In one piece: a second write after "quit" might find the connection closed.
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        let written = self.answers.get_mut().write_all(line.as_bytes());
        written.map_err(|error| format!("QEMU's monitor: {error}"))?;
        loop {
            let answer = self.line()?;
            match (answer.get("return"), answer.get("error")) {
                (Some(answer), _) => return Ok(answer.clone()),
                (None, Some(error)) => return Err(format!("{command}: {error}")),
                // It reports events in between.
                (None, None) => {}
            }
        }
    }

    /// Waits until the machine has been moved.
    fn until_migrated(&mut self, limit: Duration) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let state = self.ask("query-migrate", json!({}))?;
            match state["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => return Err(format!("it is not moved: {state}")),
                _ if begun.elapsed() > limit => {
                    return Err(format!("it is not moved yet: {state}"));
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}
