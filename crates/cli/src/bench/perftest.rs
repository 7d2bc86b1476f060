//! perftest between two processes of this host, unchanged, under `transom run`, if it is installed.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::listening;
use crate::failure::Result;

/// One of its latency programs, with messages of 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Perftest {
    pub(super) program: &'static str,
}

/// Its typical latency in nanoseconds. The inner error says why there is none.
pub(super) fn measure(what: Perftest, count: usize) -> Result<std::result::Result<f64, String>> {
    let Perftest { program } = what;
    let command = |_, port: u16| {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("transom").args(["run", "--", program, "-F", "-p", &port.to_string()]);
        command.args(["-n", &count.max(100).to_string()]);
        if program != "ib_atomic_lat" {
            command.args(["-s", "8"]);
        }
        command
    };
    listening::measure((program, "perftest"), command, typical)
}

/// The typical latency in nanoseconds, from its table: bytes, iterations, and microseconds at least, at most,
/// typical.
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
