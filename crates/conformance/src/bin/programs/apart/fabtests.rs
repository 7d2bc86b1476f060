//! libfabric's own tests, over verbs and over its reliable datagram layer (`ofi_rxm`).

use std::path::Path;

use transom_conformance::programs::{Running, installed};
use transom_conformance::spaces::Side;

use super::sources::{Shell, Sources};
use super::{Across, LIMIT, row};
use crate::meeting::{end_well, wait_for_listener};
use crate::place::Place;
use crate::table::{Report, Verdict};

/// Connected endpoints.
const VERBS: &str = "verbs";
/// Endpoints without connections, on top of connected ones.
const RXM: &str = "verbs;ofi_rxm";

/// The port that all of them listen on.
const PORT: u16 = 9228;
/// The TCP port of those that first exchange addresses.
const MEETING_PORT: u16 = 3000;

/// Provider, program and options. The server gets no address, and the client gets the server's. So the addresses that
/// they then exchange must lead across the wire.
const TESTS: [(&str, &str, &str); 22] = [
    (VERBS, "fi_msg", ""),
    (VERBS, "fi_msg_pingpong", "-I 100"),
    (VERBS, "fi_msg_pingpong", "-I 100 -v"),
    (VERBS, "fi_msg_bw", "-I 100"),
    (VERBS, "fi_msg_epoll", ""),
    (VERBS, "fi_cm_data", ""),
    (VERBS, "fi_cq_data", "-e msg"),
    (VERBS, "fi_rma_bw", "-e msg -o write -I 100"),
    (VERBS, "fi_rma_bw", "-e msg -o read -I 100"),
    (VERBS, "fi_rma_bw", "-e msg -o writedata -I 100"),
    (VERBS, "fi_rma_pingpong", "-e msg -o writedata -I 100"),
    (VERBS, "fi_multi_ep", "-e msg"),
    (RXM, "fi_rdm", ""),
    (RXM, "fi_rdm_pingpong", "-I 100"),
    (RXM, "fi_rdm_tagged_pingpong", "-I 100 -v"),
    (RXM, "fi_rdm_bw", "-I 100"),
    (RXM, "fi_rdm_tagged_bw", "-I 100"),
    (RXM, "fi_rdm_atomic", "-I 10"),
    (RXM, "fi_rma_bw", "-e rdm -o write -I 100"),
    (RXM, "fi_rma_bw", "-e rdm -o read -I 100"),
    (RXM, "fi_rma_bw", "-e rdm -o writedata -I 100"),
    (RXM, "fi_multi_ep", "-e rdm"),
];

pub(super) fn add(across: &Across<'_>, sources: &Sources, report: &mut Report) {
    let built = sources.built("libfabric", build);
    for (provider, test, options) in TESTS {
        let came = built.clone().and_then(|it| meet(across, &it, provider, test, options));
        let (group, test) = (format!("fabtests over {provider}"), format!("{test} {options}"));
        report.add(row(&group, test.trim_end(), Verdict::of(came.err()), ""));
    }
}

/// Builds only the providers under test, and not those that need more from the system.
fn build(shell: &Shell<'_>) -> Result<(), String> {
    for (program, package) in
        [("autoreconf", "autoconf"), ("automake", "automake"), ("libtoolize", "libtool")]
    {
        installed(program, package)?;
    }
    let others = "psm2 psm3 opx efa usnic shm sm2 lpp tcp udp sockets rxd mrail ucx cxi";
    let others: Vec<_> = others.split(' ').map(|it| format!("--disable-{it}")).collect();
    shell.run("./autogen.sh")?;
    shell.run(&format!(
        "./configure --prefix=$PWD/installed --disable-static --enable-verbs --enable-rxm {}",
        others.join(" ")
    ))?;
    shell.run("make -s -j$(nproc) install")?;
    shell.run("cd fabtests && ./autogen.sh")?;
    shell.run(
        "cd fabtests && ./configure --prefix=$PWD/../installed --with-libfabric=$PWD/../installed",
    )?;
    shell.run("cd fabtests && make -s -j$(nproc) install")
}

fn meet(
    across: &Across<'_>,
    built: &Path,
    provider: &str,
    test: &str,
    options: &str,
) -> Result<(), String> {
    let command = |side| {
        let mut command = across.command(side, &built.join("installed/bin").join(test));
        let libraries = [&built.join("installed/lib"), across.installation.folder()];
        command.env("LD_LIBRARY_PATH", libraries.map(|it| it.to_string_lossy()).join(":"));
        command.args(["-p", provider]).args(options.split_whitespace());
        command
    };
    let mut server = Running::start(&mut command(Side::Far));
    // A program with many endpoints first exchanges their addresses over TCP.
    match test {
        "fi_multi_ep" => server.wait_until_it_listens(MEETING_PORT)?,
        _ => wait_for_listener(&mut server, across.installation, Place::Across(across.wire), PORT)?,
    }
    let client = Running::start(command(Side::Near).arg(across.address(Side::Far)));
    end_well(vec![client, server], LIMIT).map(drop)
}
