//! Connections by the connection manager between both ends: Debian's programs, unmodified, and our program `interop`.
//! Also the costs of connections in the guest, on rxe and on our device.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use transom_conformance::programs::{Printed, Running, installed};

use super::guest::{Guest, Side};
use super::{Outcome, Setting, row};
use crate::installation::Installation;
use crate::meeting::end_well;
use crate::program::{CMTIME, Listens, PORT, Program, RIOSTREAM, RPING, RSTREAM, UCMATOSE, UDADDY};
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "rxe-connections",
    title: "programs of Debian's rdmacm-utils, and our own connections that are refused, end or \
            lose an end, between Transom and the rxe of Debian 12's kernel in a virtual machine",
    subject: &[("program", 16), ("client", 9)],
    figures: &[("IPv4", 8), ("IPv6", 8)],
};

static TIMES: Form = Form {
    script: "rxe-cmtime",
    title: "the time of each step of a connection in that virtual machine, by cmtime: two \
            processes on Transom, by the local link, and two on rxe. The machine is emulated, \
            so only their ratio means something",
    subject: &[("step", 14)],
    figures: &[("Transom", 12), ("rxe", 12)],
};

/// Connection messages have one size, so one MTU is enough.
const SETTINGS: [Setting; 2] = [
    Setting { mtu: 1500, ipv6: false, lossy: false },
    Setting { mtu: 1500, ipv6: true, lossy: false },
];

/// The limit for one of them, without hardware virtualisation. A lost message is resent after 4 s.
const LIMIT: Duration = Duration::from_secs(90);
/// The number of connections in a measurement.
const MANY: u32 = 200;

/// Debian's programs, with a hundred connections. rsockets' udpong is not among them: on rxe it does not connect, not
/// even to itself.
const PROGRAMS: [Program; 6] = [
    RPING,
    UCMATOSE,
    UDADDY,
    Program {
        server_options: "-b ADDRESS -p 7471 -c 100",
        client_options: "-s ADDRESS -p 7471 -c 100",
        ..CMTIME
    },
    RSTREAM,
    RIOSTREAM,
];

/// The fates of the connections that `interop` requests, and of its ends.
const MEETINGS: [&str; 4] = ["nobody-listens", "refused", "client-ends", "server-ends"];
const DEATHS: [&str; 2] = ["server-dies", "client-dies"];

/// Runs all of it.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Vec<Report>, String> {
    let guest = Guest::boot(SETTINGS[0].mtu)?;
    let mut columns = Vec::new();
    for setting in SETTINGS {
        let mut outcomes = Vec::new();
        for client in [Side::Host, Side::Guest] {
            eprintln!("{client} connects, {setting:?}");
            let ends = Ends { installation, guest: &guest, setting, client };
            outcomes.extend(ends.all());
        }
        columns.push(outcomes);
    }
    let mut report = Report::begin(&FORM, style);
    for Outcome { operation, requester, .. } in &columns[0] {
        report.add(row(operation, *requester, &columns, &SETTINGS));
    }
    let mut times = Report::begin(&TIMES, style);
    measure(installation, &guest, &mut times)?;
    Ok(vec![report, times])
}

/// Both ends of a run.
#[derive(Clone, Copy)]
struct Ends<'a> {
    installation: &'a Installation,
    guest: &'a Guest,
    setting: Setting,
    client: Side,
}

impl Ends<'_> {
    /// The result of each operation.
    fn all(self) -> Vec<Outcome> {
        let row = |operation: &str, problem| {
            let (operation, requester) = (operation.to_owned(), self.client);
            Outcome { operation, requester, problem }
        };
        let mut outcomes = Vec::new();
        for program in &PROGRAMS {
            outcomes.push(row(program.client, self.meet(program).err()));
        }
        match self.ask(&MEETINGS) {
            Ok(told) => outcomes.extend(told.into_iter().map(|(it, problem)| row(&it, problem))),
            Err(problem) => outcomes.extend(MEETINGS.map(|it| row(it, Some(problem.clone())))),
        }
        outcomes.extend(DEATHS.map(|death| row(death, self.part(death).err())));
        outcomes
    }

    fn server(self) -> Side {
        self.client.other()
    }

    /// A Debian program at a side, with these options.
    fn line(self, side: Side, name: &str, package: &str, options: &str) -> Result<String, String> {
        let [server, client] = [self.server(), self.client].map(|it| self.setting.address(it));
        let program = match side {
            Side::Guest | Side::SecondGuest => name.to_owned(),
            Side::Host => on_ours(self.installation.folder(), &installed(name, package)?),
        };
        let words = Program::words(options, server, client);
        Ok(std::iter::once(program).chain(words).collect::<Vec<_>>().join(" "))
    }

    fn meet(self, program: &Program) -> Result<(), String> {
        let Program { server, client, package, server_options, client_options, .. } = *program;
        let (serves, asks) = (self.server(), self.client);
        let serve = self.line(serves, server, package, server_options)?;
        let ask = self.line(asks, client, package, client_options)?;
        // It may have to be built, which takes longer than a server waits.
        let who_listens = self.who_listens(serves)?;
        let serving = Server::start(self.guest, serves, &serve);
        match program.listens {
            Listens::At(port) => serving.wait_until_listening(&who_listens, port)?,
            Listens::AtTcp(port) => self.guest.wait_until_listening(serves, port)?,
            Listens::Nowhere => {}
        }
        let asking = Running::start(&mut self.guest.command(asks, &ask, LIMIT));
        if program.persistent {
            // Its exit status is 0 even if its connections fail.
            let Printed { output, complaints } = asking.success(LIMIT)?;
            serving.stop()?;
            let well = complaints.is_empty() && !output.contains("event:");
            return if well { Ok(()) } else { Err(format!("{output}{complaints}")) };
        }
        end_well(vec![asking, serving.running], LIMIT).map(drop)
    }

    /// A command at a side that prints who listens there.
    fn who_listens(self, side: Side) -> Result<String, String> {
        Ok(match side {
            Side::Guest | Side::SecondGuest => "rdma resource show cm_id".to_owned(),
            Side::Host => {
                format!("{} devices --json", self.installation.transom()?.get_program().display())
            }
        })
    }

    fn interop(self, side: Side) -> Result<String, String> {
        let program = PathBuf::from(self.installation.own("interop")?.get_program());
        self.guest.give(&program, "interop")?;
        Ok(match side {
            Side::Host => program.display().to_string(),
            Side::Guest | Side::SecondGuest => "/share/interop --system".to_owned(),
        })
    }

    fn listen(self, port: u16) -> Result<Running, String> {
        let side = self.server();
        let address = self.setting.address(side);
        let line = format!("{} listen {address} {port}", self.interop(side)?);
        let running = Running::start(&mut self.guest.command(side, &line, LIMIT));
        self.guest.wait_until_listening(side, port)?;
        Ok(running)
    }

    fn asking(self, meetings: &[&str]) -> Result<Running, String> {
        let (here, there) =
            (self.setting.address(self.client), self.setting.address(self.server()));
        let interop = self.interop(self.client)?;
        let line = format!("{interop} ask {here} {there} {PORT} {}", meetings.join(" "));
        Ok(Running::start(&mut self.guest.command(self.client, &line, LIMIT)))
    }

    /// Requests connections with these fates. Returns the problem of each.
    fn ask(self, meetings: &[&str]) -> Result<Vec<(String, Option<String>)>, String> {
        let serving = self.listen(PORT)?;
        let printed = self.asking(&[meetings, &["over"]].concat())?.success(LIMIT)?;
        serving.success(LIMIT)?;
        told(&printed, meetings.len())
    }

    /// One end is killed, and the other must learn it. On our side another process lives on, because the last process
    /// of a host has nobody to speak for it.
    fn part(self, death: &str) -> Result<(), String> {
        let survives = Ends { client: Side::Guest, ..self };
        let bystander = survives.listen(PORT + 10)?;
        let serving = self.listen(PORT)?;
        let asking = self.asking(&[death])?;
        if death == "server-dies" {
            for (_, problem) in told(&asking.success(LIMIT)?, 1)? {
                problem.map_or(Ok(()), Err)?;
            }
            drop(serving);
        } else {
            serving.success(LIMIT)?;
            drop(asking);
        }
        drop(bystander);
        Ok(())
    }
}

/// The result of each connection, from the output of `interop`.
fn told(printed: &Printed, count: usize) -> Result<Vec<(String, Option<String>)>, String> {
    let strange = || format!("interop prints {}", printed.output);
    let row = |line: &str| {
        let value: Value = serde_json::from_str(line).ok()?;
        let problem = value["problem"].as_str().map(str::to_owned);
        Some((value["operation"].as_str()?.to_owned(), problem))
    };
    let rows: Option<Vec<_>> = printed.output.lines().take(count).map(row).collect();
    rows.filter(|rows| rows.len() == count).ok_or_else(strange)
}

fn on_ours(folder: &Path, program: &Path) -> String {
    format!("env LD_LIBRARY_PATH={} {}", folder.display(), program.display())
}

/// A server on either side that can be stopped.
struct Server<'a> {
    running: Running,
    guest: &'a Guest,
    side: Side,
}

impl<'a> Server<'a> {
    /// Starts it. The PID in the file is that of the server itself, because the shell calls `exec`.
    fn start(guest: &'a Guest, side: Side, line: &str) -> Self {
        let file = Self::file(guest, side);
        let line = format!("bash -c \"echo \\$\\$ >{file}; exec {line}\"");
        Self { running: Running::start(&mut guest.command(side, &line, LIMIT)), guest, side }
    }

    fn file(guest: &Guest, side: Side) -> String {
        match side {
            Side::Host => guest.share().join("server").display().to_string(),
            Side::Guest | Side::SecondGuest => "/share/server".to_owned(),
        }
    }

    /// Waits until a server listens on a port of the connection manager, according to a command there.
    fn wait_until_listening(&self, who_listens: &str, port: u16) -> Result<(), String> {
        let line = format!("bash -c \"until {who_listens} | grep -q :{port}; do sleep 0.1; done\"");
        let command = &mut self.guest.command(self.side, &line, LIMIT);
        Running::start(command).success(LIMIT).map(drop)
    }

    fn stop(self) -> Result<(), String> {
        let line = format!("bash -c \"kill \\$(cat {})\"", Self::file(self.guest, self.side));
        let command = &mut self.guest.command(self.side, &line, LIMIT);
        Running::start(command).success(LIMIT).map(drop)
    }
}

/// The measurements of `cmtime` in the guest between two processes, on our device and on rxe.
fn measure(installation: &Installation, guest: &Guest, report: &mut Report) -> Result<(), String> {
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        guest.give(&installation.folder().join(library), library)?;
    }
    guest.give(Path::new(installation.transom()?.get_program()), "transom")?;
    let shared_memory = "bash -c 'mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm'";
    Running::start(&mut guest.command(Side::Guest, shared_memory, LIMIT)).success(LIMIT)?;
    let ours = "env LD_LIBRARY_PATH=/share cmtime";
    let ours = times(guest, ours, "127.0.0.1", "/share/transom devices --json")?;
    let address = Side::Guest.address(false).to_string();
    let rxe = times(guest, "cmtime", &address, "rdma resource show cm_id")?;
    for ((step, ours), (_, rxe)) in ours.into_iter().zip(rxe) {
        let figures = [ours, rxe].map(|time| format!("{time} us")).to_vec();
        report.add(Row { subject: vec![step], figures, verdict: Verdict::Ok });
    }
    Ok(())
}

/// The steps of a connection, with the microseconds of each.
fn times(
    guest: &Guest,
    cmtime: &str,
    address: &str,
    who_listens: &str,
) -> Result<Vec<(String, String)>, String> {
    let options = format!("{address} -p {PORT} -c {MANY}");
    let serving = Server::start(guest, Side::Guest, &format!("{cmtime} -b {options}"));
    serving.wait_until_listening(who_listens, PORT)?;
    let line = format!("{cmtime} -s {options}");
    let printed = Running::start(&mut guest.command(Side::Guest, &line, LIMIT)).success(LIMIT)?;
    serving.stop()?;
    let row = |line: &str| {
        let (step, figures) = line.split_once(':')?;
        let each = figures.split_whitespace().last()?.parse::<f64>().ok()?;
        Some((step.trim().to_owned(), format!("{each:.0}")))
    };
    let rows: Vec<_> = printed.output.lines().filter_map(row).collect();
    if rows.is_empty() { Err(format!("cmtime prints {}", printed.output)) } else { Ok(rows) }
}
