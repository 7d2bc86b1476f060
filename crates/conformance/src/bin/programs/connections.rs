//! `programs connections`: programs that connect by librdmacm, on this host and across wires.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::Running;
use transom_conformance::spaces::{Family, Side};

use crate::extent::Extent;
use crate::installation::Installation;
use crate::meeting::{end_well, wait_for_listener};
use crate::place::{Place, Wire, across_pairs};
use crate::table::{Form, Report, Row, Style};

static FORM: Form = Form {
    script: "connections",
    title: "programs that connect by librdmacm, server and clients as processes of their own",
    subject: &[("where", 30), ("program", 12), ("options", 44)],
    figures: &[],
};

/// What a bad network does to each packet.
const FAULTS: &str = "loss=1%,seed=7";
/// How long a program may take: a lost message of connections is sent again after four seconds.
const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 7471;
/// As a port: nobody listens, and clients ask until they are answered.
const NONE: u16 = 0;

/// A program whose server and clients meet.
struct Program {
    server: &'static str,
    client: &'static str,
    package: &'static str,
    /// How both are run; ADDRESS is the server's.
    server_options: &'static str,
    client_options: &'static str,
    clients: usize,
    /// The server goes on when its clients have ended.
    persistent: bool,
    /// The port it listens at if it cannot be told.
    port: u16,
    /// What of messages is lost is sent again.
    bears_loss: bool,
    /// The server listens at any address of IPv4, and can be told of no other.
    only_v4: bool,
    /// It is not part of the quick look.
    lasts: bool,
}

const RPING: Program = Program {
    server: "rping",
    client: "rping",
    package: "rdmacm-utils",
    server_options: "-s -a ADDRESS -C 10 -V -p 7471",
    client_options: "-c -a ADDRESS -C 10 -V -p 7471",
    clients: 1,
    persistent: false,
    port: PORT,
    bears_loss: true,
    only_v4: false,
    lasts: false,
};

const RSTREAM: Program = Program {
    server: "rstream",
    client: "rstream",
    server_options: "-b ADDRESS -p 7471 -T v -S 10000 -C 50 -I 10",
    client_options: "-s ADDRESS -p 7471 -T v -S 10000 -C 50 -I 10",
    ..RPING
};

const PROGRAMS: [Program; 16] = [
    RPING,
    Program {
        server_options: "-s -a ADDRESS -C 10 -V -q -p 7471",
        client_options: "-c -a ADDRESS -C 10 -V -q -p 7471",
        ..RPING
    },
    Program {
        server_options: "-s -a ADDRESS -P -p 7471",
        client_options: "-c -a ADDRESS -C 300 -v -V -p 7471",
        clients: 64,
        // One of many clients was seen to wait in vain beside other work, which is not understood yet.
        lasts: true,
        persistent: true,
        // Between the connections of 64 clients too many messages are lost for the time there is.
        bears_loss: false,
        ..RPING
    },
    Program {
        server: "ucmatose",
        client: "ucmatose",
        server_options: "-b ADDRESS -p 7471 -c 4 -C 10 -S 1000",
        client_options: "-s ADDRESS -p 7471 -c 4 -C 10 -S 1000",
        ..RPING
    },
    Program {
        server: "ucmatose",
        client: "ucmatose",
        server_options: "-b ADDRESS -p 7471 -c 4 -C 10 -S 1000 -m",
        client_options: "-s ADDRESS -p 7471 -c 4 -C 10 -S 1000 -m",
        ..RPING
    },
    Program {
        server: "udaddy",
        client: "udaddy",
        server_options: "-b ADDRESS -c 4 -C 10 -S 1000",
        client_options: "-s ADDRESS -c 4 -C 10 -S 1000",
        port: 7174,
        bears_loss: false,
        ..RPING
    },
    Program {
        server: "cmtime",
        client: "cmtime",
        server_options: "-b ADDRESS -p 7471 -c 1000",
        client_options: "-s ADDRESS -p 7471 -c 1000",
        persistent: true,
        bears_loss: false,
        ..RPING
    },
    Program {
        server: "rdma_server",
        client: "rdma_client",
        server_options: "-s ADDRESS -p 7471",
        client_options: "-s ADDRESS -p 7471",
        ..RPING
    },
    Program {
        server: "rdma_xserver",
        client: "rdma_xclient",
        server_options: "-p 7471 -c r",
        only_v4: true,
        client_options: "-s ADDRESS -p 7471 -c r",
        ..RPING
    },
    Program {
        server: "rdma_xserver",
        client: "rdma_xclient",
        server_options: "-p 7471 -c x",
        only_v4: true,
        client_options: "-s ADDRESS -p 7471 -c x",
        ..RPING
    },
    RSTREAM,
    Program {
        server_options: "-b ADDRESS -p 7471 -T v -T a -S 300000 -C 20 -I 10",
        client_options: "-s ADDRESS -p 7471 -T v -T a -S 300000 -C 20 -I 10",
        lasts: true,
        ..RSTREAM
    },
    Program {
        server_options: "-b ADDRESS -p 7471 -T v -T n -S 64 -C 500 -I 10",
        client_options: "-s ADDRESS -p 7471 -T v -T n -S 64 -C 500 -I 10",
        lasts: true,
        ..RSTREAM
    },
    Program { server: "riostream", client: "riostream", ..RSTREAM },
    Program {
        server: "rcopy",
        client: "rcopy",
        server_options: "-p 7471",
        client_options: "librdmacm.so.1 ADDRESS:copied -p 7471",
        persistent: true,
        // An address of IPv6 has colons too.
        only_v4: true,
        lasts: true,
        ..RSTREAM
    },
    Program {
        server: "udpong",
        client: "udpong",
        server_options: "-b ADDRESS -p 7471",
        client_options: "-s ADDRESS -p 7471 -S 500 -C 500",
        persistent: true,
        port: NONE,
        bears_loss: false,
        ..RSTREAM
    },
];

/// Runs them: on this host, across a wire of each family, and across a bad one.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Report, String> {
    let few = |program: &Program| !program.lasts || extent > Extent::Quick;
    let here = |report: &mut Report| {
        let address = IpAddr::from([127, 0, 0, 1]);
        add(report, installation, Place::Here, address, "this host", few);
    };
    let across = across_pairs(&FORM, style, &[1500], |pair, report| {
        here(report);
        for family in Family::ALL {
            let wire = Wire::new(installation, pair, family)?;
            let address = pair.address(Side::Far, family);
            let name = family.to_string();
            add(report, installation, Place::Across(&wire), address, &name, few);
            let disturbed = wire.disturbed(FAULTS);
            let name = format!("{family}, {FAULTS}");
            let chosen = |program: &Program| program.bears_loss && extent > Extent::Quick;
            add(report, installation, Place::Across(&disturbed), address, &name, chosen);
        }
        Ok(())
    })?;
    Ok(across.unwrap_or_else(|| {
        let mut report = Report::begin(&FORM, style);
        here(&mut report);
        report
    }))
}

/// Adds a row for each of the chosen programs.
fn add(
    report: &mut Report,
    installation: &Installation,
    place: Place<'_>,
    address: IpAddr,
    name: &str,
    chosen: impl Fn(&Program) -> bool,
) {
    let family = |program: &&Program| address.is_ipv4() || !program.only_v4;
    for program in PROGRAMS.iter().filter(family).filter(|program| chosen(program)) {
        let met = program.meet(installation, place, address);
        report.add(Row {
            subject: vec![name.to_owned(), program.client.to_owned(), program.describe()],
            figures: vec![],
            problem: met.err(),
        });
    }
}

impl Program {
    fn describe(&self) -> String {
        let options = self.client_options.replace("-s ADDRESS ", "").replace("-a ADDRESS ", "");
        match self.clients {
            1 => options,
            clients => format!("{options}, {clients} clients"),
        }
    }

    fn command(
        &self,
        installation: &Installation,
        place: Place<'_>,
        side: Side,
        address: IpAddr,
    ) -> Result<Command, String> {
        let (name, options) = match side {
            Side::Far => (self.server, self.server_options),
            Side::Near => (self.client, self.client_options),
        };
        let mut command = place.command(installation, side, name, self.package)?;
        command.current_dir(installation.folder());
        let address = address.to_string();
        command.args(options.split_whitespace().map(|word| word.replace("ADDRESS", &address)));
        Ok(command)
    }

    /// Runs the server and its clients until they have ended, and well.
    fn meet(
        &self,
        installation: &Installation,
        place: Place<'_>,
        address: IpAddr,
    ) -> Result<(), String> {
        let mut server =
            Running::start(&mut self.command(installation, place, Side::Far, address)?);
        if self.port != NONE {
            wait_for_listener(&mut server, installation, place, self.port)?;
        }
        let mut ends = Vec::new();
        for _ in 0..self.clients {
            let mut client = self.command(installation, place, Side::Near, address)?;
            let mut client = Running::start(&mut client);
            // rping's server has one place for a connection that is requested: the next client comes when
            // the one before it has its first data.
            if self.clients > 1 {
                client.line(LIMIT)?;
            }
            ends.push(client);
        }
        if !self.persistent {
            ends.push(server);
        }
        end_well(ends, LIMIT).map(drop)
    }
}
