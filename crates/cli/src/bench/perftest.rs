//! perftest between two processes of this host, as it is, under `transom run`, if it is installed.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};

/// How long its server may take to listen.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One of its programs for latency, with messages of 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Perftest {
    pub(super) program: &'static str,
}

/// A process that ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nanoseconds that it takes for typical; the inner error says why there are none.
pub(super) fn measure(what: Perftest, count: usize) -> Result<std::result::Result<f64, String>> {
    let Perftest { program } = what;
    let failed = |error: std::io::Error| Failure::new(format!("{program}: {error}"));
    let mut asked = Command::new(program);
    let asked = asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(Err("not installed (Debian's perftest)".into()));
    }
    // A port that was free a moment ago.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let port = port.map_err(failed)?.port();
    let command = || {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("transom").args(["run", "--", program, "-F", "-p", &port.to_string()]);
        command.args(["-n", &count.max(100).to_string()]);
        if program != "ib_atomic_lat" {
            command.args(["-s", "8"]);
        }
        command.stdin(Stdio::null());
        command
    };
    let server = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let _server = Server(server);
    let start = Instant::now();
    loop {
        let said = command().arg("localhost").output().map_err(failed)?;
        if let Some(typical) = typical(&String::from_utf8_lossy(&said.stdout)) {
            return Ok(Ok(typical));
        }
        // Its server may not listen yet.
        if start.elapsed() > TIMEOUT {
            let why = String::from_utf8_lossy(&said.stderr);
            let why = why.lines().next().unwrap_or("it prints no result").to_owned();
            return Ok(Err(format!("{program} fails: {why}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Nanoseconds, from the table that it prints: bytes, iterations, and microseconds at least, at most, typical.
fn typical(printed: &str) -> Option<f64> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let last = printed.lines().filter_map(numbers).rfind(|numbers| numbers.len() >= 6)?;
    Some(last[4] * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_time_is_found() {
        let printed = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       1000          0.20           4.51         0.25     \t       0.26        \t0.08   \t\t0.33    \t\t4.51
---------------------------------------------------------------------------------------
";
        assert_eq!(typical(printed), Some(250.0));
        assert_eq!(typical("Couldn't connect to localhost:18515\n"), None);
    }
}
