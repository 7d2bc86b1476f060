//! `programs strangers`: programs from Debian and PyPI that wait for events, start processes of their own, or bring
//! libraries along. Each runs on an idle machine, on one processor, and beside busy loops, because machines for tests
//! are like that.

mod migration;
mod python;
mod sockets;

use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use strum::VariantArray;
use transom_conformance::processes::is_root;
use transom_conformance::programs::{Running, installed};

use crate::installation::Installation;
use crate::meeting::{free_port, meet, wait_for_listener};
use crate::place::Place;
use crate::pyverbs;
use crate::table::{Form, Report, Row, Style, Verdict};
use python::Python;

static FORM: Form = Form {
    script: "strangers",
    title: "programs that sleep, start others or bring libraries along, on idle and busy \
            machines",
    subject: &[("program", 44), ("processors", 10)],
    figures: &[("seconds", 7)],
};

/// How long one of them may take, even on a busy processor.
const LIMIT: Duration = Duration::from_secs(120);
/// Lets UCX use the device and nothing else.
pub(crate) const UCX: [(&str, &str); 2] =
    [("UCX_TLS", "rc_verbs,ud_verbs,self"), ("UCX_NET_DEVICES", "transom0:1")];
/// The tests of `ucx_perftest`, of its layer for programs and of the one below.
const UCP_TESTS: [&str; 14] = [
    "tag_lat",
    "tag_bw",
    "tag_sync_lat",
    "ucp_put_lat",
    "ucp_put_bw",
    "ucp_get",
    "ucp_add",
    "ucp_fadd",
    "ucp_swap",
    "ucp_cswap",
    "stream_bw",
    "stream_lat",
    "ucp_am_lat",
    "ucp_am_bw",
];
const UCT_TESTS: [&str; 9] =
    ["am_lat", "put_lat", "add_lat", "get -D bcopy", "fadd", "cswap", "am_bw", "put_bw", "add_mr"];
const UCT_OVER_RC: [&str; 4] = ["-d", "transom0:1", "-x", "rc_verbs"];
/// UCX's example of processes that connect by address.
const CLIENT_SERVER: &str = "/usr/share/doc/libucx-dev/examples/ucp_client_server.c";
/// The source of the MPI ranks, and their checks.
pub(crate) const EXCHANGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/mpi_exchange.c");
/// The source of the NIXL agents.
const TRANSFER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/nixl_transfer.py");

/// The other load of the processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
enum Processors {
    Idle,
    /// The program has only one.
    One,
    /// On each, a loop that never waits runs beside the program.
    Busy,
}

impl Processors {
    const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::One => "one",
            Self::Busy => "busy",
        }
    }

    /// Starts the load. Dropping the result ends it.
    fn loops(self) -> Vec<Running> {
        let count = match self {
            Self::Busy => available_parallelism().map_or(2, NonZero::get).max(2),
            Self::Idle | Self::One => 0,
        };
        let mut endless = Command::new("sh");
        endless.args(["-c", "while :; do :; done"]);
        (0..count).map(|_| Running::start(&mut endless)).collect()
    }

    /// Makes a program run on them.
    fn bind(self, command: &mut Command) {
        if self == Self::One {
            // SAFETY: between fork and exec this makes two system calls, and allocates nothing.
            unsafe { command.pre_exec(stay_on_one_processor) };
        }
    }
}

/// Restricts this process to the first processor that it may use.
fn stay_on_one_processor() -> std::io::Result<()> {
    // SAFETY: two sets of this function's own, for which any bits are valid, for this process.
    let done = unsafe {
        let (mut allowed, mut one): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed);
        let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &allowed));
        libc::CPU_SET(first.unwrap_or(0), &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &one)
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Runs all of them.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Report, String> {
    let ranks = installation.folder().join("mpi_exchange");
    let python = Python::new(installation.lasting("strangers"));
    let mut report = Report::begin(&FORM, style);
    for (program, run) in PROGRAMS {
        for processors in Processors::VARIANTS.iter().copied() {
            let python = python.as_ref().map_err(Clone::clone);
            let strangers = Strangers { installation, python, ranks: &ranks, processors };
            let busy = processors.loops();
            let begin = Instant::now();
            let came = run(&strangers);
            let seconds = begin.elapsed().as_secs_f64();
            drop(busy);
            report.add(Row {
                subject: vec![program.to_owned(), processors.name().to_owned()],
                figures: vec![format!("{seconds:.1}")],
                verdict: Verdict::of(came.err()),
            });
        }
    }
    Ok(report)
}

/// Runs a program to its end.
type Run = fn(&Strangers) -> Result<(), String>;

const PROGRAMS: [(&str, Run); 13] = [
    ("ucx_perftest -E sleep -t tag_lat -s 65536", |it| it.ucx_asleep()),
    ("ucx_perftest, each test of UCP", |it| it.ucx_tests(&UCP_TESTS, &[])),
    ("ucx_perftest, each test of UCT over RC", |it| it.ucx_tests(&UCT_TESTS, &UCT_OVER_RC)),
    ("ucp_client_server -c tag, by rdmacm", |it| it.ucx_by_address()),
    ("mpirun -np 4, OpenMPI over UCX", |it| it.ranks()),
    // Without -cm 1 qperf addresses the other end by a LID, without GRH, which no RoCE port takes (rule ST-09). With it,
    // each test connects to a new port, and the server names that port before it listens there.
    ("qperf -cm 1 rc_lat rc_bw rc_rdma_read_lat", |it| {
        it.qperf(&["-cm", "1", "rc_lat", "rc_bw", "rc_rdma_read_lat"])
    }),
    ("redis-server and redis-benchmark, rsockets", |it| it.redis()),
    ("memcached and memcslap, rsockets", |it| it.memcached()),
    ("nginx as one process and ab, rsockets", |it| it.nginx()),
    ("qemu moves a machine by rdma", |it| it.migration(false)),
    ("qemu moves a machine by rdma, rdma-pin-all", |it| it.migration(true)),
    ("two agents of NIXL, with its own libibverbs", |it| it.agents()),
    ("tests of pyverbs 59", |it| it.pyverbs()),
];

/// The files of the programs, and the load that they run with.
struct Strangers<'a> {
    installation: &'a Installation,
    python: Result<&'a Python, String>,
    ranks: &'a Path,
    processors: Processors,
}

impl Strangers<'_> {
    /// A program that finds our device and its files.
    fn command(&self, program: &Path) -> Result<Command, String> {
        let mut command = self.installation.transom_run()?;
        command.arg(program).envs(UCX);
        self.processors.bind(&mut command);
        Ok(command)
    }

    fn python(&self) -> Result<&Python, String> {
        self.python.clone()
    }

    /// Messages of UCX between two processes that sleep while they wait.
    fn ucx_asleep(&self) -> Result<(), String> {
        let command = || {
            let mut command = self.command(&installed("ucx_perftest", "ucx-utils")?)?;
            command
                .args(["-E", "sleep", "-t", "tag_lat", "-s", "65536", "-n", "1000", "-w", "100"]);
            Ok::<_, String>(command)
        };
        let ended = meet(command()?, vec![command()?], "127.0.0.1", LIMIT)?;
        if ended[0].output.contains("Final:") { Ok(()) } else { Err(ended[0].output.clone()) }
    }

    /// Each of these tests of UCX between two processes.
    fn ucx_tests(&self, tests: &[&str], options: &[&str]) -> Result<(), String> {
        let program = installed("ucx_perftest", "ucx-utils")?;
        for test in tests {
            let command = || {
                let mut command = self.command(&program)?;
                command.arg("-t").args(test.split_whitespace());
                command.args(["-n", "1000", "-w", "100"]).args(options);
                Ok::<_, String>(command)
            };
            let ended = meet(command()?, vec![command()?], "127.0.0.1", LIMIT)?;
            if !ended[0].output.contains("Final:") {
                return Err(format!("{test}\n{}", ended[0].output));
            }
        }
        Ok(())
    }

    /// Messages of UCX between two processes that connect by address, as UCX does with rdma_cm.
    fn ucx_by_address(&self) -> Result<(), String> {
        let program = self.installation.folder().join("ucp_client_server");
        if !program.exists() {
            if !Path::new(CLIENT_SERVER).exists() {
                return Err(format!("no {CLIENT_SERVER}: apt-get install libucx-dev"));
            }
            let mut compile = Command::new(installed("cc", "gcc")?);
            compile.args(["-O1", "-w", "-o"]).arg(&program).args([CLIENT_SERVER, "-lucp", "-lucs"]);
            Running::start(&mut compile).success(LIMIT)?;
        }
        let port = free_port()?;
        let command = || {
            let mut command = self.command(&program)?;
            command.env("UCX_SOCKADDR_TLS_PRIORITY", "rdmacm");
            command.args(["-c", "tag", "-i", "100", "-p", &port.to_string()]);
            Ok::<_, String>(command)
        };
        // The server goes on when its client has ended.
        let mut server = Running::start(&mut command()?);
        wait_for_listener(&mut server, self.installation, Place::Here, port)?;
        Running::start(command()?.args(["-a", "127.0.0.1"])).success(LIMIT).map(drop)
    }

    /// OpenMPI starts four processes, which check the data they exchange.
    fn ranks(&self) -> Result<(), String> {
        if !self.ranks.exists() {
            let mut compile = Command::new(installed("mpicc", "libopenmpi-dev")?);
            compile.args(["-O1", "-o"]).arg(self.ranks).arg(EXCHANGE);
            Running::start(&mut compile).success(LIMIT)?;
        }
        let mut command = self.command(&installed("mpirun", "openmpi-bin")?)?;
        start_over_ucx(&mut command, 4);
        let printed = Running::start(command.arg(self.ranks)).success(LIMIT)?;
        if printed.output.contains("4 ranks agree") { Ok(()) } else { Err(printed.output) }
    }

    /// qperf's measurements, one after the other.
    fn qperf(&self, tests: &[&str]) -> Result<(), String> {
        let port = free_port()?;
        let command = || {
            let mut command = self.command(&installed("qperf", "qperf")?)?;
            command.args(["--listen_port", &port.to_string()]);
            Ok::<_, String>(command)
        };
        let mut server = Running::start(&mut command()?);
        server.wait_until_it_listens(port)?;
        let mut client = command()?;
        let client = Running::start(client.args(["--time", "1", "127.0.0.1"]).args(tests));
        let printed = client.success(LIMIT)?;
        let mut measured = tests.iter().filter(|it| it.contains('_'));
        let measured = measured.all(|test| printed.output.contains(&format!("{test}:")));
        if measured { Ok(()) } else { Err(format!("{printed:?}")) }
    }

    /// QEMU moves a machine from one process to another.
    fn migration(&self, pinned: bool) -> Result<(), String> {
        let program = installed("qemu-system-x86_64", "qemu-system-x86")?;
        migration::migrate(|| self.command(&program), self.installation.folder(), pinned, LIMIT)
    }

    /// Two agents of NIXL write and read each other's memory.
    fn agents(&self) -> Result<(), String> {
        let mut command = self.command(&self.python()?.interpreter())?;
        let printed = Running::start(command.arg(TRANSFER)).success(LIMIT)?;
        let all = "bytes written and read";
        if printed.output.contains(all) { Ok(()) } else { Err(format!("{printed:?}")) }
    }

    /// The tests of a newer rdma-core than Debian's.
    fn pyverbs(&self) -> Result<(), String> {
        let python = self.python()?;
        let bind = |command: &mut Command| self.processors.bind(command);
        pyverbs::run_newer(self.installation, &python.pyverbs(), &python.tests(), &bind)
    }
}

/// Makes `mpirun` start this many processes that talk over UCX.
pub(crate) fn start_over_ucx(command: &mut Command, processes: usize) {
    command.args(["--oversubscribe", "--bind-to", "none", "-np", &processes.to_string()]);
    // By default it takes only adapters of known makers.
    for (name, value) in [
        ("pml", "ucx"),
        ("osc", "ucx"),
        ("opal_common_ucx_tls", "any"),
        ("opal_common_ucx_devices", "any"),
    ] {
        command.args(["--mca", name, value]);
    }
    if is_root() {
        command.arg("--allow-run-as-root");
    }
}
