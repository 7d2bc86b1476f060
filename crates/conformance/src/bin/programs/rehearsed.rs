//! `programs rehearsed`: programs under `transom rehearse`, each for a minute, or an hour in the long run. What fails is a
//! mistake of ours, or one of the program, and then [`Rehearsed::known`] gives the reason.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use transom_conformance::programs::{Running, installed};
use transom_rehearse::Provocation;

use crate::extent::Extent;
use crate::installation::Installation;
use crate::meeting::free_port;
use crate::strangers::{EXCHANGE, UCX, start_over_ucx};
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "rehearsed",
    title: "programs under `transom rehearse`, again and again until the time is over",
    subject: &[("program", 44)],
    figures: &[("runs", 6), ("what is left out, and why", 60)],
};

/// Starts a server and then its client.
const MEET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/meet.sh");
/// How long each run of a program may take.
const LIMIT: &str = "20s";

/// A program that is rehearsed.
struct Rehearsed {
    /// The server and its client, with PORT for a free port. A program that starts all it needs has no client.
    server: &'static str,
    client: Option<&'static str>,
    package: &'static str,
    /// The provocations that it fails by, and what it relies on.
    known: &'static [&'static [(Provocation, &'static str)]],
    /// The findings that it has without any provocation (`programs checked`), as a line of suppressions.
    suppressed: Option<&'static str>,
}

/// A program whose two ends have the same options.
const fn ends(server: &'static str, client: &'static str, package: &'static str) -> Rehearsed {
    Rehearsed { server, client: Some(client), package, known: &[], suppressed: None }
}

/// What a program without time-outs fails by on services that lose messages.
const WAITS_FOR_EVER: &[(Provocation, &str)] = &[
    (
        Provocation::LostMessages,
        "waits for ever for a message that is lost; all adapters may lose one",
    ),
    (Provocation::GonePeers, "waits for ever for a peer that is gone; no adapter tells"),
];

/// What the other end waits for without end when one has given up, or is gone.
const NO_TIME_OUT: &str = "its other end waits for ever, and looks at no time-out and no event";

/// What two ends without time-outs fail by.
const GIVEN_UP: &[(Provocation, &str)] = &[
    (Provocation::RefusedPosts, NO_TIME_OUT),
    (Provocation::RefusedReceives, NO_TIME_OUT),
    (Provocation::FailedRequests, NO_TIME_OUT),
    (Provocation::GonePeers, NO_TIME_OUT),
];

/// UCX 1.13 calls `abort(3)`, unless its program has asked to be told of errors of peers. An adapter may do any of this.
const ENDS_BY_ABORT: &str = "UCX ends its program by abort() when a verb or a request fails";

/// What UCX fails by.
const UCX_ABORTS: &[(Provocation, &str)] = &[
    (Provocation::RefusedPosts, ENDS_BY_ABORT),
    (Provocation::RefusedReceives, ENDS_BY_ABORT),
    (Provocation::FailedRequests, ENDS_BY_ABORT),
    (Provocation::FailedReceives, ENDS_BY_ABORT),
    (Provocation::RemovedDevices, ENDS_BY_ABORT),
    (Provocation::GonePeers, NO_TIME_OUT),
];

/// What it fails by on UD.
const UCX_ON_UD: &[(Provocation, &str)] = &[
    (
        Provocation::ScribbledReceives,
        "UCX's receives of UD are 16 bytes longer than their place, and end in its list of places",
    ),
    (
        Provocation::LostMessages,
        "UCX doubles its pause after each loss, so nine in a row take a minute",
    ),
];

/// What OpenMPI fails by when it uses UCX. Its ranks connect to each other at once. If two requests to connect cross,
/// UCX takes the peer's for the answer to its own, and gives the buffer of its own to another message, though the SEND
/// has no completion yet. So its request, or the answer to it, may have the bytes of that message.
const OPEN_MPI: &[(Provocation, &str)] = &[
    (Provocation::LateWork, REUSES_A_SOURCE),
    (Provocation::StuckWork, REUSES_A_SOURCE),
    (Provocation::TornSources, REUSES_A_SOURCE),
    (Provocation::RefusedObjects, "unmaps a window whose registration was refused"),
];

const REUSES_A_SOURCE: &str =
    "reuses the buffer of a request to connect before its completion (ucx#6040)";

/// What riostream relies on.
const SPINS: &str = "looks only at the last byte of its memory, and at no error";

/// All of them.
const PROGRAMS: &[Rehearsed] = &[
    ping_pong("ibv_rc_pingpong -g 0 -c -p PORT", "ibv_rc_pingpong -g 0 -c -p PORT 127.0.0.1"),
    ping_pong("ibv_rc_pingpong -g 0 -e -p PORT", "ibv_rc_pingpong -g 0 -e -p PORT 127.0.0.1"),
    Rehearsed {
        known: &[WAITS_FOR_EVER],
        ..ping_pong("ibv_uc_pingpong -g 0 -c -p PORT", "ibv_uc_pingpong -g 0 -c -p PORT 127.0.0.1")
    },
    Rehearsed {
        known: &[WAITS_FOR_EVER],
        ..ping_pong("ibv_ud_pingpong -g 0 -c -p PORT", "ibv_ud_pingpong -g 0 -c -p PORT 127.0.0.1")
    },
    Rehearsed {
        suppressed: Some("work-lost ibv_srq_pingpong"),
        ..ping_pong(
            "ibv_srq_pingpong -g 0 -c -p PORT",
            "ibv_srq_pingpong -g 0 -c -p PORT 127.0.0.1",
        )
    },
    Rehearsed {
        known: &[GIVEN_UP],
        ..ping_pong("ibv_xsrq_pingpong -g 0 -p PORT", "ibv_xsrq_pingpong -g 0 -p PORT 127.0.0.1")
    },
    perftest("ib_send_lat -F -n 200 -p PORT", "ib_send_lat -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_write_lat -F -n 200 -p PORT", "ib_write_lat -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_read_lat -F -n 200 -p PORT", "ib_read_lat -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_atomic_lat -F -n 200 -p PORT", "ib_atomic_lat -F -n 200 -p PORT 127.0.0.1"),
    Rehearsed {
        suppressed: Some("left-at-close ib_send_bw"),
        ..perftest("ib_send_bw -F -n 200 -p PORT", "ib_send_bw -F -n 200 -p PORT 127.0.0.1")
    },
    perftest("ib_write_bw -F -n 200 -p PORT", "ib_write_bw -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_read_bw -F -n 200 -p PORT", "ib_read_bw -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_atomic_bw -F -n 200 -p PORT", "ib_atomic_bw -F -n 200 -p PORT 127.0.0.1"),
    Rehearsed {
        suppressed: Some("source-changed rping"),
        ..rdmacm("rping -s -a 127.0.0.1 -C 20 -V -p PORT", "rping -c -a 127.0.0.1 -C 20 -V -p PORT")
    },
    Rehearsed {
        known: &[&[
            (Provocation::RefusedObjects, "frees its buffer twice when its region is refused"),
            (Provocation::RefusedPosts, NO_TIME_OUT),
            (Provocation::FailedRequests, NO_TIME_OUT),
            (
                Provocation::FailedReceives,
                "does not look at the status of completions, and posts after an error",
            ),
            (Provocation::GonePeers, NO_TIME_OUT),
            (
                Provocation::RemovedDevices,
                "takes no notice of DEVICE_REMOVAL, and waits for ever for completions",
            ),
        ]],
        ..rdmacm("ucmatose -p PORT -C 10", "ucmatose -s 127.0.0.1 -p PORT -C 10")
    },
    rdmacm("rstream -p PORT -T v -S 1000 -C 50", "rstream -s 127.0.0.1 -p PORT -T v -S 1000 -C 50"),
    Rehearsed {
        known: &[&[
            (Provocation::ScrambledBytes, SPINS),
            (Provocation::ScrambledMessages, SPINS),
            (Provocation::FailedRequests, SPINS),
            (Provocation::GonePeers, SPINS),
        ]],
        ..rdmacm("riostream -p PORT -S 1000 -C 50", "riostream -s 127.0.0.1 -p PORT -S 1000 -C 50")
    },
    Rehearsed {
        known: &[GIVEN_UP],
        ..rdmacm("rdma_server -p PORT", "rdma_client -s 127.0.0.1 -p PORT")
    },
    Rehearsed {
        known: &[&[
            (
                Provocation::ExactSizes,
                "sends its 16 bytes inline, and asks for no inline data; irdma, bnxt and efa grant none",
            ),
            (Provocation::RefusedObjects, NO_TIME_OUT),
            (Provocation::FailedRequests, NO_TIME_OUT),
            (Provocation::GonePeers, NO_TIME_OUT),
        ]],
        ..rdmacm("rdma_xserver -p PORT", "rdma_xclient -s 127.0.0.1 -p PORT")
    },
    Rehearsed {
        known: &[UCX_ABORTS, UCX_ON_UD],
        ..ends(
            "ucx_perftest -t tag_lat -n 200 -w 20 -p PORT",
            "ucx_perftest -t tag_lat -n 200 -w 20 -p PORT 127.0.0.1",
            "ucx-utils",
        )
    },
    Rehearsed {
        known: &[UCX_ABORTS],
        ..ends(
            "ucx_perftest -t am_bw -n 200 -w 20 -d transom0:1 -x rc_verbs -p PORT",
            "ucx_perftest -t am_bw -n 200 -w 20 -d transom0:1 -x rc_verbs -p PORT 127.0.0.1",
            "ucx-utils",
        )
    },
    ends(
        "fi_pingpong -p verbs -e msg -I 50 -B PORT",
        "fi_pingpong -p verbs -e msg -I 50 -P PORT 127.0.0.1",
        "libfabric-bin",
    ),
    Rehearsed {
        server: "mpirun",
        client: None,
        package: "openmpi-bin",
        known: &[UCX_ABORTS, UCX_ON_UD, OPEN_MPI],
        suppressed: None,
    },
];

const fn ping_pong(server: &'static str, client: &'static str) -> Rehearsed {
    ends(server, client, "ibverbs-utils")
}

const fn perftest(server: &'static str, client: &'static str) -> Rehearsed {
    ends(server, client, "perftest")
}

const fn rdmacm(server: &'static str, client: &'static str) -> Rehearsed {
    ends(server, client, "rdmacm-utils")
}

/// Rehearses all of them.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Report, String> {
    let time = Duration::from_secs(if extent.is_long() { 3600 } else { 60 });
    let mut report = Report::begin(&FORM, style);
    for program in PROGRAMS {
        let came = program.rehearse(installation, time);
        let runs = came.as_ref().map_or(String::new(), u64::to_string);
        let known =
            program.known.concat().into_iter().map(|(it, why)| format!("{}: {why}", it.name()));
        report.add(Row {
            subject: vec![program.client.unwrap_or(program.server).to_owned()],
            figures: vec![runs, known.collect::<Vec<_>>().join("; ")],
            verdict: Verdict::of(came.err()),
        });
    }
    Ok(report)
}

impl Rehearsed {
    /// Rehearses it for so long. Returns the number of runs.
    fn rehearse(&self, installation: &Installation, time: Duration) -> Result<u64, String> {
        let transom = installation.transom()?;
        let mut rehearse = installation.transom()?;
        rehearse.env_remove("TRANSOM_LIB").envs(UCX).current_dir(installation.folder());
        // A pipe would be full some time.
        let told = installation.folder().join("rehearsed.json");
        rehearse.arg("rehearse").arg(format!("--json={}", told.display()));
        rehearse.args(["--limit", LIMIT, "--for", &format!("{}s", time.as_secs())]);
        if !self.known.is_empty() {
            let known: Vec<_> = self.known.concat().iter().map(|(it, _)| it.name()).collect();
            rehearse.args(["--without", &known.join(",")]);
        }
        if let Some(line) = self.suppressed {
            let file = installation.folder().join("suppressions");
            fs::write(&file, line).map_err(|error| format!("{}: {error}", file.display()))?;
            rehearse.arg("--suppressions").arg(file);
        }
        rehearse.arg("--");
        match self.client {
            Some(client) => self.meet(&mut rehearse, transom.get_program().as_ref(), client)?,
            None => ranks(&mut rehearse, installation)?,
        }
        // The last run may fail, and is then cut down.
        let limit = 2 * time + Duration::from_secs(1200);
        let (status, printed) = Running::start(&mut rehearse).end(limit)?;
        let told = fs::read_to_string(told).unwrap_or_default();
        let lines = told.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let lines: Vec<_> = lines.collect();
        let of = |kind: &str| lines.iter().find(|line| line["type"] == kind);
        match (status.success(), of("summary").and_then(|line| line["runs"].as_u64())) {
            (true, Some(runs)) => Ok(runs),
            _ => {
                let failure = of("failure").map_or(printed.complaints.clone(), |it| {
                    format!("{}\n{}\n{}", it["sentence"], it["output"], it["again"])
                });
                Err(format!("{}: {status}\n{failure}", self.server))
            }
        }
    }

    /// Adds the words that start both ends.
    fn meet(&self, to: &mut Command, transom: &Path, client: &str) -> Result<(), String> {
        let port = free_port()?.to_string();
        to.args(["sh", MEET]).arg(transom).arg(&port);
        for (separator, words) in [(None, self.server), (Some("--"), client)] {
            to.args(separator);
            for (at, word) in words.split_whitespace().enumerate() {
                if at == 0 {
                    to.arg(installed(word, self.package)?);
                } else {
                    to.arg(word.replace("PORT", &port));
                }
            }
        }
        Ok(())
    }
}

/// Adds the words that start four ranks, which check the data they exchange.
fn ranks(to: &mut Command, installation: &Installation) -> Result<(), String> {
    let ranks = installation.folder().join("mpi_exchange");
    if !ranks.exists() {
        let mut compile = Command::new(installed("mpicc", "libopenmpi-dev")?);
        compile.args(["-O1", "-o"]).arg(&ranks).arg(EXCHANGE);
        Running::start(&mut compile).success(Duration::from_secs(60))?;
    }
    // After a rank has given up, mpirun crashes in its PMIx library. A rank may give up when a call has failed.
    to.args(["sh", "-c", "\"$@\" || exit 1", "ranks"]);
    to.arg(installed("mpirun", "openmpi-bin")?);
    start_over_ucx(to, 4);
    to.arg(ranks);
    Ok(())
}
