//! `programs utils`: the tools of Debian's ibverbs-utils.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use transom_conformance::processes::as_nobody;
use transom_conformance::processes::is_root;
use transom_conformance::programs::Running;
use transom_system::addresses::Addresses;

use crate::extent::Extent;
use crate::installation::{DEVICE, Installation};
use crate::meeting::meet;
use crate::ping_pong::{LIMIT, PACKAGE, PingPong};
use crate::place::Place;
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "utils",
    title: "the tools of ibverbs-utils. Ping-pongs are two processes that check what they \
            receive",
    subject: &[("tool", 17), ("options", 48)],
    figures: &[],
};

/// The ping-pongs, each with its options besides the GID: those of the short form, and those of the long form.
const PING_PONGS: [(&str, &[&str], &[&str]); 5] = [
    (
        "ibv_rc_pingpong",
        &["", "-e", "-e -m 4096", "-t", "-j", "-o", "-O", "-N"],
        &["-m 256 -r 16 -i 1", "-t -e", "-t -N", "-j -N", "-j -t", "-o -P", "-O -e", "-N -e"],
    ),
    ("ibv_uc_pingpong", &["", "-e", "-e -m 4096"], &["-m 256 -r 16 -i 1", "-l 1", "-e -r 16"]),
    ("ibv_ud_pingpong", &["", "-e"], &["-r 16 -i 1", "-l 1"]),
    ("ibv_srq_pingpong", &["", "-e", "-o"], &["-e -m 4096", "-q 1", "-r 16 -i 1"]),
    ("ibv_xsrq_pingpong", &["", "-e", "-o"], &["-e -m 4096", "-l 1"]),
];

/// A way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Usual,
    /// Without straight copies into the other process's memory.
    Rings,
    /// By a user without privileges.
    Nobody,
}

impl Way {
    /// The remark after the options in the table.
    const fn remark(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Rings => "copying through rings",
            Self::Nobody => "as an ordinary user",
        }
    }
}

/// Runs the tools.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Report, String> {
    let tools = Tools { installation, long: extent.is_long() };
    let mut report = Report::begin(&FORM, style);
    let mut add = |tool: &str, options: String, came: Result<(), String>| {
        report.add(Row {
            subject: vec![tool.into(), options],
            figures: vec![],
            verdict: Verdict::of(came.err()),
        });
    };
    // If all programs run as an ordinary user anyway, there is nothing more to show.
    let unprivileged = is_root().then_some(Way::Nobody);
    add("ibv_devices", String::new(), tools.devices());
    for way in [Way::Usual].into_iter().chain(unprivileged) {
        add("ibv_devinfo", described("-v", way), tools.devinfo(way));
    }
    add("ibv_asyncwatch", String::new(), tools.asyncwatch());
    for (tool, short, rest) in PING_PONGS {
        for options in short.iter().chain(rest.iter().filter(|_| extent.is_long())) {
            let options = with_gid(options);
            let came = tools.ping_pong(tool, &options, Way::Usual);
            add(tool, options, came);
        }
        for way in [Way::Rings].into_iter().chain(unprivileged) {
            let options = with_gid("-e");
            add(tool, described(&options, way), tools.ping_pong(tool, &options, way));
        }
    }
    add("ibv_xsrq_pingpong", "two clients".into(), tools.two_clients());
    Ok(report)
}

/// The MTU of the port in bytes. The host's interfaces determine it.
fn mtu() -> Result<u64, String> {
    let addresses = Addresses::read().map_err(|error| format!("the host's addresses: {error}"))?;
    Ok(addresses.path_mtu().into())
}

/// The options of a ping-pong, with the first GID. Over Ethernet a ping-pong needs one.
fn with_gid(options: &str) -> String {
    format!("-g 0 {options}").trim_end().to_owned()
}

/// The text of the column `options`.
fn described(options: &str, way: Way) -> String {
    let remark = way.remark();
    if remark.is_empty() { options.to_owned() } else { format!("{options}, {remark}") }
}

struct Tools<'a> {
    installation: &'a Installation,
    long: bool,
}

impl Tools<'_> {
    fn command(&self, tool: &str, options: &str, way: Way) -> Result<Command, String> {
        let mut command = self.installation.command(tool, PACKAGE)?;
        command.args(options.split_whitespace());
        match way {
            Way::Usual => {}
            Way::Rings => drop(command.env("TRANSOM_COPY", "rings")),
            Way::Nobody => drop(as_nobody(&mut command)),
        }
        Ok(command)
    }

    fn output(&self, tool: &str, options: &str, way: Way) -> Result<String, String> {
        let command = &mut self.command(tool, options, way)?;
        Ok(Running::start(command).success(LIMIT)?.output)
    }

    /// `ibv_devices` lists our device, with a GUID.
    fn devices(&self) -> Result<(), String> {
        let printed = self.output("ibv_devices", "", Way::Usual)?;
        let device = printed.lines().find(|line| line.contains(DEVICE));
        let guid = device.and_then(|line| line.split_whitespace().last()).unwrap_or_default();
        let good = guid.len() == 16 && u64::from_str_radix(guid, 16).is_ok_and(|guid| guid != 0);
        if good { Ok(()) } else { Err(format!("no {DEVICE} with a GUID in\n{printed}")) }
    }

    /// `ibv_devinfo` describes our device correctly.
    fn devinfo(&self, way: Way) -> Result<(), String> {
        let printed = self.output("ibv_devinfo", &format!("-v -d {DEVICE}"), way)?;
        let value = |name: &str| {
            let line = printed.lines().find(|line| line.trim_start().starts_with(name));
            line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
        };
        let mtu = mtu()?;
        let expected = [
            ("hca_id:", DEVICE),
            ("state:", "PORT_ACTIVE (4)"),
            ("active_mtu:", &format!("{mtu} ({})", mtu.ilog2() - 7)),
            ("link_layer:", "Ethernet"),
            ("atomic_cap:", "ATOMIC_HCA (1)"),
        ];
        let mut wrong: Vec<_> = expected
            .iter()
            .filter(|(name, wanted)| value(name) != *wanted)
            .map(|(n, _)| n)
            .collect();
        let many = |name: &&&str| value(name).parse::<u64>().is_ok_and(|count| count >= 1 << 20);
        wrong.extend(["max_mr:", "max_mw:"].iter().filter(|name| !many(name)));
        let lines = ["MEM_WINDOW", "MEM_WINDOW_TYPE_2B", "MEM_MGT_EXTENSIONS", "GID[  0]:"];
        let there =
            |start: &&&str| printed.lines().any(|line| line.trim_start().starts_with(**start));
        wrong.extend(lines.iter().filter(|start| !there(start)));
        wrong.extend([", RoCE v2"].iter().filter(|gid| !printed.contains(**gid)));
        if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?} in\n{printed}")) }
    }

    /// `ibv_asyncwatch` waits for events until it is interrupted.
    fn asyncwatch(&self) -> Result<(), String> {
        let command = &mut self.command("ibv_asyncwatch", &format!("-d {DEVICE}"), Way::Usual)?;
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let mut watch = Running::start(command);
            watch.wait_until_it_spoke_and_sleeps()?;
            watch.signal(signal);
            let (status, printed) = watch.end(LIMIT)?;
            if status.signal() != Some(signal) || !printed.output.contains("async event FD") {
                return Err(format!("{status} after signal {signal}\n{printed:?}"));
            }
        }
        Ok(())
    }

    /// A ping-pong on this host.
    fn ping_pong(&self, tool: &str, options: &str, way: Way) -> Result<(), String> {
        let command = |_, all: &str| self.command(tool, all, way);
        let address = Place::Here.address();
        let (messages, long) = (if self.long { 1000 } else { 200 }, self.long);
        PingPong { tool, options, datagram: mtu()?, messages, long }.run(&address, command)
    }

    /// One server with clients in two processes.
    fn two_clients(&self) -> Result<(), String> {
        let command = |options: &str| {
            self.command("ibv_xsrq_pingpong", &format!("-d {DEVICE} {options}"), Way::Usual)
        };
        let clients = vec![command("-g 0 -n 100")?, command("-g 0 -n 100")?];
        let address = Place::Here.address();
        meet(command("-g 0 -n 100 -c 2")?, clients, &address, LIMIT).map(drop)
    }
}
