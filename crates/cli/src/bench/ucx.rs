//! UCX between two processes of this host, as `ucx_perftest` measures it, if it is installed.

use std::process::Command;

use super::setup::Side;
use super::{listening, processors};
use crate::failure::Result;

const PROGRAM: &str = "ucx_perftest";

/// One of its tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ucx {
    /// The value of `UCX_TLS`.
    pub(super) transports: &'static str,
    /// The value of option `-t`.
    pub(super) test: &'static str,
    pub(super) size: usize,
}

/// The nanoseconds of each operation. The inner error says why there are none.
pub(super) fn measure(what: Ucx, count: usize) -> Result<std::result::Result<f64, String>> {
    let command = |side, port: u16| {
        let mut command = Command::new(PROGRAM);
        command.env("UCX_TLS", what.transports).env("UCX_NET_DEVICES", "lo");
        command.env("UCX_WARN_UNUSED_ENV_VARS", "n");
        command.args(["-f", "-t", what.test, "-p", &port.to_string()]);
        command.args(["-s", &what.size.to_string(), "-n", &count.to_string()]);
        command.args(["-w", &(count / 10).to_string()]);
        if let Some([near, far]) = processors::two() {
            let processor = if side == Side::Near { near } else { far };
            command.args(["-c", &processor.to_string()]);
        }
        command
    };
    listening::measure((PROGRAM, "ucx-utils"), command, time_of_each)
}

/// The nanoseconds of each operation, from the last column of its last line: messages a second. In a latency test, that
/// is the reciprocal of the time one way.
fn time_of_each(printed: &str) -> Option<f64> {
    let last = printed.lines().rfind(|line| line.starts_with("Final:") || is_numbers(line))?;
    let rate: f64 = last.split_whitespace().last()?.parse().ok()?;
    (rate > 0.0).then(|| 1e9 / rate)
}

fn is_numbers(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    words.peek().is_some() && words.all(|word| word.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_result() {
        let printed = "\
|    Stage     | # iterations | 50.0%ile | average | overall |
Final:                100000      0.055     0.116     0.116       65.82      65.82     8627060     8000000
";
        assert_eq!(time_of_each(printed), Some(125.0));
        assert_eq!(time_of_each("[1] connect() failed: Connection refused\n"), None);
    }
}
