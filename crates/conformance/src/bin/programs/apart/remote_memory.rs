//! A program of ours over Debian's librpma: one end offers memory, the other writes, flushes and reads it.

use std::path::Path;
use std::process::Command;

use transom_conformance::programs::{Running, installed};
use transom_conformance::spaces::Side;

use super::{Across, LIMIT, row};
use crate::meeting::{end_well, wait_for_listener};
use crate::place::Place;
use crate::table::{Report, Verdict};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/rpma_flush.c");
const PORT: u16 = 7204;

pub(super) fn add(across: &Across<'_>, report: &mut Report) {
    let options = "writes, flushes, reads back";
    report.add(row("a program over librpma", options, Verdict::of(meet(across).err()), ""));
}

fn meet(across: &Across<'_>) -> Result<(), String> {
    if !Path::new("/usr/include/librpma.h").exists() {
        return Err("no librpma.h: apt-get install librpma-dev".to_owned());
    }
    let program = across.installation.folder().join("rpma_flush");
    let mut compile = Command::new(installed("cc", "gcc")?);
    compile.args(["-O1", "-o"]).arg(&program).args([PROGRAM, "-lrpma", "-libverbs"]);
    Running::start(&mut compile).success(LIMIT)?;
    let command = |side, role: &str| {
        let mut command = across.command(side, &program);
        command.args([role, &across.address(Side::Far), &PORT.to_string()]);
        command
    };
    let mut server = Running::start(&mut command(Side::Far, "server"));
    wait_for_listener(&mut server, across.installation, Place::Across(across.wire), PORT)?;
    let client = Running::start(&mut command(Side::Near, "client"));
    let ended = end_well(vec![client, server], LIMIT)?;
    let both = ended.iter().all(|it| it.output.contains("1048576 bytes were"));
    if both { Ok(()) } else { Err(format!("{ended:?}")) }
}
