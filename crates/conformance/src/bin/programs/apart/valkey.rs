//! valkey as a server over RDMA, with its own test as the client.

use std::path::Path;

use transom_conformance::programs::{Running, installed};
use transom_conformance::spaces::Side;

use super::sources::{Shell, Sources};
use super::{Across, LIMIT, row};
use crate::meeting::wait_for_listener;
use crate::place::Place;
use crate::table::{Report, Verdict};

const PORT: u16 = 6379;

pub(super) fn add(across: &Across<'_>, sources: &Sources, report: &mut Report) {
    let built = sources.built("valkey", build);
    for options in ["", "--thread 4"] {
        let came = built.as_ref().map_err(Clone::clone);
        let came = came.and_then(|built| meet(across, built, options));
        report.add(row("valkey's rdma-test", options, Verdict::of(came.err()), ""));
    }
}

fn build(shell: &Shell<'_>) -> Result<(), String> {
    installed("make", "make")?;
    shell.run("make -s -j$(nproc) BUILD_RDMA=yes MALLOC=libc valkey-server")?;
    shell.run("cc -O1 -w -o rdma-test tests/rdma/rdma-test.c -lrdmacm -libverbs -lpthread")
}

/// The client writes keys, makes the server save them, which forks, and reads them back.
fn meet(across: &Across<'_>, built: &Path, options: &str) -> Result<(), String> {
    let mut server = across.command(Side::Far, &built.join("src/valkey-server"));
    server.args(["--port", "0", "--rdma-bind", &across.address(Side::Far)]);
    server.args(["--rdma-port", &PORT.to_string(), "--protected-mode", "no", "--save", ""]);
    let log = across.installation.folder().join("valkey.log");
    server.arg("--logfile").arg(log);
    let mut server = Running::start(&mut server);
    wait_for_listener(&mut server, across.installation, Place::Across(across.wire), PORT)?;
    let mut client = across.command(Side::Near, &built.join("rdma-test"));
    client.args(["--host", &across.address(Side::Far), "--port", &PORT.to_string()]);
    let printed = Running::start(client.args(options.split_whitespace())).success(LIMIT)?;
    // The last operation of each client.
    let all = printed.output.lines().any(|line| line.contains("] GET ") && line.contains("[OK]"));
    if all { Ok(()) } else { Err(format!("{printed:?}")) }
}
