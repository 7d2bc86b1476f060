//! Two other programs on this host: one listens on a port, and the other connects to it and measures.

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::setup::Side;
use crate::failure::{Failure, Result};

/// How long the listener may take to begin.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A process that ends when this is dropped.
struct Listener(Child);

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The result that `found` finds in the output of the near program. The inner error says why there is none. `package`
/// is the Debian package with the program.
pub(super) fn measure(
    (program, package): (&str, &str),
    command: impl Fn(Side, u16) -> Command,
    found: impl Fn(&str) -> Option<f64>,
) -> Result<std::result::Result<f64, String>> {
    let failed = |error: Error| Failure::new(format!("{program}: {error}"));
    if !is_there(program) {
        return Ok(Err(format!("not installed (Debian's {package})")));
    }
    // A port that was free a moment ago.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let port = port.map_err(failed)?.port();
    let mut far = command(Side::Far, port);
    let far = far.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _listener = Listener(far.map_err(failed)?);
    let start = Instant::now();
    loop {
        let mut near = command(Side::Near, port);
        let said = near.arg("localhost").stdin(Stdio::null()).output().map_err(failed)?;
        if let Some(found) = found(&String::from_utf8_lossy(&said.stdout)) {
            return Ok(Ok(found));
        }
        // The other may not listen yet.
        if start.elapsed() > TIMEOUT {
            let why = String::from_utf8_lossy(&said.stderr);
            let why = why.lines().next().unwrap_or("it prints no result").to_owned();
            return Ok(Err(format!("{program} fails: {why}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_there(program: &str) -> bool {
    let mut asked = Command::new(program);
    let asked = asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
    let asked = asked.stderr(Stdio::null()).status();
    !asked.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}
