//! The ping-pongs of ibverbs-utils, as two processes that check the bytes they receive.

use std::process::Command;
use std::time::Duration;

use transom_conformance::spaces::Side;

use crate::installation::DEVICE;
use crate::meeting::meet;

/// The package they are in.
pub(crate) const PACKAGE: &str = "ibverbs-utils";
/// How long one of them may take, even on a bad network and a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A ping-pong with messages of different sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PingPong<'a> {
    pub(crate) tool: &'a str,
    pub(crate) options: &'a str,
    /// The length of the largest datagram in bytes, a power of two.
    pub(crate) datagram: u64,
    /// The number of messages of each size.
    pub(crate) messages: u64,
    /// Whether to use all sizes.
    pub(crate) long: bool,
}

impl PingPong<'_> {
    /// Runs both ends for each size. `command` makes the command of an end from all its options.
    pub(crate) fn run(
        &self,
        address: &str,
        command: impl Fn(Side, &str) -> Result<Command, String>,
    ) -> Result<(), String> {
        let Self { tool, options, messages, .. } = self;
        for size in self.sizes() {
            let total = format!("{} bytes in ", 2 * size * messages);
            // The last tool has other options, and checks its bytes by default.
            let (more, expected) = match *tool {
                "ibv_xsrq_pingpong" => (String::new(), "success"),
                "ibv_srq_pingpong" => (format!("-c -n {messages}"), "iters in "),
                _ => (format!("-c -n {messages}"), total.as_str()),
            };
            let all = format!("-d {DEVICE} -s {size} {more} {options}");
            let client = command(Side::Near, &all)?;
            for end in meet(command(Side::Far, &all)?, vec![client], address, LIMIT)? {
                if end.output.contains("invalid data") || !end.output.contains(expected) {
                    return Err(format!("{tool} {all}:\n{}{}", end.output, end.complaints));
                }
            }
        }
        Ok(())
    }

    fn sizes(&self) -> Vec<u64> {
        // A datagram is one packet. Device memory is small, and copied in whole words.
        let device_memory = self.options.contains("-j");
        let largest: u64 = match self.tool {
            "ibv_ud_pingpong" => self.datagram,
            _ if device_memory => 1 << 12,
            _ => 1 << 20,
        };
        let all: Vec<u64> = if self.long {
            (0..=largest.ilog2()).map(|power| 1 << power).chain([1000]).collect()
        } else {
            vec![1, 1000, largest]
        };
        all.into_iter().filter(|size| !device_memory || size % 4 == 0).collect()
    }
}
