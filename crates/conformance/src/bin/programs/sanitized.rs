//! `programs sanitized`: rdma-core's examples, built with ThreadSanitizer from Debian's sources. A report is true of the
//! program, and [`KNOWN`] gives the reason, or it is a mistake of Transom.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::{Printed, Running, installed};

use crate::apart::sources::{Shell, Sources};
use crate::connections::own_address;
use crate::installation::{DEVICE, Installation};
use crate::meeting::{end_well, meet, wait_for_listener};
use crate::place::Place;
use crate::program::PORT;
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "sanitized",
    title: "what ThreadSanitizer reports of rdma-core's examples, built from Debian's sources",
    subject: &[("program", 16), ("options", 7)],
    figures: &[("reported functions", 34), ("reason", 60)],
};

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The ping-pongs, and the options that change what they ask of the device.
const PING_PONGS: [(&str, &[&str]); 5] = [
    ("rc_pingpong", &["", "-c", "-e", "-o", "-t"]),
    ("uc_pingpong", &[""]),
    ("ud_pingpong", &[""]),
    ("srq_pingpong", &[""]),
    ("xsrq_pingpong", &[""]),
];

/// Programs that connect by librdmacm: the server and the client, with their options. Debian calls the second one ucmatose.
const CONNECTED: [(&str, &str, &str, &str); 3] = [
    ("rping", "-s -a ADDRESS -C 10 -p 7471", "rping", "-c -a ADDRESS -C 10 -p 7471"),
    ("cmatose", "-b ADDRESS -p 7471 -c 4 -C 10", "cmatose", "-s ADDRESS -p 7471 -c 4 -C 10"),
    ("rdma_server", "-p 7471", "rdma_client", "-s ADDRESS -p 7471"),
];

const ONE_BUFFER: &str = "one buffer serves all receives and the SEND: a message arrives in it before the SEND is polled";

/// A program with reports.
struct Known {
    program: &'static str,
    /// Whether they are about what the device does. Those name the function that posted the request.
    of_device: bool,
    /// What the program does.
    reason: &'static str,
}

const fn by_device(program: &'static str, reason: &'static str) -> Known {
    Known { program, of_device: true, reason }
}

const KNOWN: [Known; 7] = [
    by_device("rc_pingpong", ONE_BUFFER),
    by_device("uc_pingpong", ONE_BUFFER),
    by_device("ud_pingpong", ONE_BUFFER),
    by_device("srq_pingpong", ONE_BUFFER),
    by_device("xsrq_pingpong", ONE_BUFFER),
    by_device("cmatose", "one buffer serves all messages of a connection"),
    Known {
        program: "rping",
        of_device: false,
        reason: "two threads change its state without a lock; the device has no part in it",
    },
];

/// Runs all of them.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Report, String> {
    let folder = Sources::new(installation.lasting("sources")).built("rdma-core", build)?;
    let examples = Examples { installation, folder };
    let mut report = Report::begin(&FORM, style);
    for (program, options) in PING_PONGS {
        for options in options {
            report.add(row(program, options, examples.ping_pong(program, options)));
        }
    }
    for (server, server_options, client, client_options) in CONNECTED {
        let ends = examples.connected([(server, server_options), (client, client_options)]);
        report.add(row(server, "", ends));
    }
    Ok(report)
}

/// Builds the examples with the headers and libraries of this system.
fn build(shell: &Shell<'_>) -> Result<(), String> {
    installed("gcc", "gcc")?;
    // What its configuration finds out about gcc.
    const COMPILE: &str = "gcc -g -O1 -w -fsanitize=thread -D_GNU_SOURCE -DHAVE_STATEMENT_EXPR=1 -DHAVE_TYPEOF=1 \
        -DHAVE_BUILTIN_TYPES_COMPATIBLE_P=1 -I. -Iempty";
    shell.run("mkdir -p empty && touch empty/config.h")?;
    for (program, _) in PING_PONGS {
        let sources =
            format!("libibverbs/examples/{program}.c libibverbs/examples/pingpong.c -libverbs");
        shell.run(&format!("{COMPILE} -Ilibibverbs/examples -o {program} {sources}"))?;
    }
    for program in CONNECTED.iter().flat_map(|(server, _, client, _)| [server, client]) {
        let common = if program.starts_with("rdma_") { "" } else { "librdmacm/examples/common.c" };
        let sources = format!("librdmacm/examples/{program}.c {common}");
        let libraries = "-lrdmacm -libverbs -lpthread";
        shell.run(&format!("{COMPILE} -o {program} {sources} {libraries}"))?;
    }
    Ok(())
}

struct Examples<'a> {
    installation: &'a Installation,
    folder: PathBuf,
}

impl Examples<'_> {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.env("LD_LIBRARY_PATH", self.installation.folder());
        // Reports are no failures here.
        command.env("TSAN_OPTIONS", "exitcode=0").current_dir(self.installation.folder());
        command
    }

    /// Runs both ends of a ping-pong. Returns what they print.
    fn ping_pong(&self, program: &str, options: &str) -> Result<Vec<Printed>, String> {
        let end = || {
            let mut end = self.command(program);
            end.args(["-d", DEVICE, "-g", "0", "-n", "100"]).args(options.split_whitespace());
            end
        };
        meet(end(), vec![end()], &Place::Here.address(), LIMIT)
    }

    /// Runs a server and its client. Returns what they print.
    fn connected(&self, ends: [(&str, &str); 2]) -> Result<Vec<Printed>, String> {
        let address = own_address().to_string();
        let [mut server, mut client] = ends.map(|(program, options)| {
            let mut end = self.command(program);
            end.args(options.split_whitespace().map(|word| word.replace("ADDRESS", &address)));
            end
        });
        let mut server = Running::start(&mut server);
        wait_for_listener(&mut server, self.installation, Place::Here, PORT)?;
        end_well(vec![Running::start(&mut client), server], LIMIT)
    }
}

fn row(program: &str, options: &str, printed: Result<Vec<Printed>, String>) -> Row {
    let functions = printed.as_deref().map(reported).unwrap_or_default();
    let known = KNOWN.iter().find(|known| known.program == program);
    let is_unknown = |function: &String| {
        known.is_none_or(|known| known.of_device != function.starts_with("ibv_post_"))
    };
    let problem = match printed {
        Ok(printed) => functions.iter().any(is_unknown).then(|| format!("{printed:?}")),
        Err(problem) => Some(problem),
    };
    let reason = known.filter(|_| !functions.is_empty()).map_or("", |known| known.reason);
    let functions: Vec<_> = functions.into_iter().collect();
    Row {
        subject: vec![program.to_owned(), options.to_owned()],
        figures: vec![functions.join(", "), reason.to_owned()],
        verdict: Verdict::of(problem),
    }
}

/// The functions that the sanitizer's reports name first.
fn reported(printed: &[Printed]) -> BTreeSet<String> {
    let lines = printed.iter().flat_map(|it| it.complaints.lines().chain(it.output.lines()));
    let summaries = lines.filter(|line| line.starts_with("SUMMARY: ThreadSanitizer: "));
    summaries
        .map(|line| line.rsplit_once(" in ").map_or(line, |(_, function)| function).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_reports_are_read() {
        let complaints = "WARNING: ThreadSanitizer: data race (pid=7)\n\
            SUMMARY: ThreadSanitizer: data race rping.c:3 in rping_cq_event_handler\n\
            ThreadSanitizer: reported 1 warnings\n";
        let printed = Printed { output: "done\n".into(), complaints: complaints.into() };
        let functions = reported(&[printed]);
        assert_eq!(functions.into_iter().collect::<Vec<_>>(), ["rping_cq_event_handler"]);
    }
}
