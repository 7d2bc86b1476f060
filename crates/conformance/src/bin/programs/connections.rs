//! `programs connections`: programs that connect by librdmacm, on this host and across wires.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::{Printed, Running};
use transom_conformance::spaces::{Family, Side};

use crate::extent::Extent;
use crate::installation::Installation;
use crate::meeting::{end_well, wait_for_listener};
use crate::place::{Place, Wire, across_pairs};
use crate::program::{
    CMTIME, Listens, Program, RIOSTREAM, RPING, RSTREAM, UCMATOSE, UDADDY, UDPONG,
};
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

/// Where clients find a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Everywhere,
    /// It listens at any address of IPv4, or can be told of no other.
    OfIpv4,
    /// It tells its clients an address that it is not told.
    OnThisHost,
}

impl Reach {
    fn includes(self, place: Place<'_>, address: IpAddr) -> bool {
        match self {
            Self::Everywhere => true,
            Self::OfIpv4 => address.is_ipv4(),
            Self::OnThisHost => matches!(place, Place::Here),
        }
    }
}

/// A program, and how it is tried.
#[derive(Clone, Copy)]
struct Trial {
    program: Program,
    clients: usize,
    /// What of messages is lost is sent again.
    bears_loss: bool,
    reach: Reach,
    /// What each end prints when all went well, if how it ends does not tell.
    prints: Option<&'static str>,
    /// It is not part of the quick look.
    lasts: bool,
}

impl Trial {
    const fn of(program: Program) -> Self {
        Self {
            program,
            clients: 1,
            bears_loss: true,
            reach: Reach::Everywhere,
            prints: None,
            lasts: false,
        }
    }

    const fn bears_no_loss(self) -> Self {
        Self { bears_loss: false, ..self }
    }

    const fn of_ipv4(self) -> Self {
        Self { reach: Reach::OfIpv4, ..self }
    }

    const fn lasts(self) -> Self {
        Self { lasts: true, ..self }
    }
}

/// Both ends of a program told the same, but for where the server is.
macro_rules! told {
    ($program:expr, $options:literal) => {
        Trial::of(Program {
            server_options: concat!("-b ADDRESS ", $options),
            client_options: concat!("-s ADDRESS ", $options),
            ..$program
        })
    };
}

/// A tool of perftest that connects by rdma_cm.
macro_rules! perftest {
    ($tool:literal, $service:literal) => {
        Trial::of(Program {
            server: $tool,
            client: $tool,
            package: "perftest",
            server_options: concat!("-R -d transom0 -F -n 128 -p 7471 -c ", $service),
            client_options: concat!("-R -d transom0 -F -n 128 -p 7471 -c ", $service, " ADDRESS"),
            ..RPING
        })
        .of_ipv4()
        .lasts()
    };
}

/// fio's client writes to its server, by this operation.
macro_rules! fio {
    ($verb:literal) => {
        Trial::of(Program {
            server: "fio",
            client: "fio",
            package: "fio",
            server_options: "--name=server --ioengine=rdma --port=7471 --rw=read --bs=4k --size=4m",
            client_options: concat!(
                "--name=client --ioengine=rdma --hostname=ADDRESS --port=7471 --rw=write --bs=4k --size=4m \
                 --iodepth=16 --verb=",
                $verb
            ),
            ..RPING
        })
        .of_ipv4()
        .lasts()
    };
}

/// libfabric's ping-pong, over verbs, by this kind of endpoint.
macro_rules! fi_pingpong {
    ($endpoint:literal) => {
        Trial {
            reach: Reach::OnThisHost,
            // It takes its queue pair away when the other end disconnects, and with that the completion of
            // its last message if it has not polled it, which is an error to it.
            prints: Some("\n1m "),
            ..Trial::of(Program {
            server: "fi_pingpong",
            client: "fi_pingpong",
            package: "libfabric-bin",
            server_options: concat!("-p verbs -e ", $endpoint),
            client_options: concat!("-p verbs -e ", $endpoint, " ADDRESS"),
            listens: Listens::AtTcp(47592),
            ..RPING
        })
        }
        .lasts()
    };
}

static TRIALS: [Trial; 30] = [
    Trial::of(RPING),
    Trial::of(Program {
        server_options: "-s -a ADDRESS -C 10 -V -q -p 7471",
        client_options: "-c -a ADDRESS -C 10 -V -q -p 7471",
        ..RPING
    }),
    Trial {
        clients: 64,
        // One of many clients was seen to wait in vain beside other work, which is not understood yet.
        lasts: true,
        // Between the connections of 64 clients too many messages are lost for the time there is.
        bears_loss: false,
        ..Trial::of(Program {
            server_options: "-s -a ADDRESS -P -p 7471",
            client_options: "-c -a ADDRESS -C 300 -v -V -p 7471",
            persistent: true,
            ..RPING
        })
    },
    Trial::of(UCMATOSE),
    told!(UCMATOSE, "-p 7471 -c 4 -C 10 -S 1000 -m"),
    Trial::of(UDADDY).bears_no_loss(),
    Trial::of(CMTIME).bears_no_loss(),
    Trial::of(Program {
        server: "rdma_server",
        client: "rdma_client",
        server_options: "-s ADDRESS -p 7471",
        client_options: "-s ADDRESS -p 7471",
        ..RPING
    }),
    Trial::of(Program { client_options: "-s ADDRESS -p 7471 -c r", ..XSERVER }).of_ipv4(),
    Trial::of(Program {
        server_options: "-p 7471 -c x",
        client_options: "-s ADDRESS -p 7471 -c x",
        ..XSERVER
    })
    .of_ipv4(),
    Trial::of(RSTREAM),
    told!(RSTREAM, "-p 7471 -T v -T a -S 300000 -C 20 -I 10").lasts(),
    told!(RSTREAM, "-p 7471 -T v -T n -S 64 -C 500 -I 10").lasts(),
    Trial::of(RIOSTREAM),
    Trial::of(Program {
        server: "rcopy",
        client: "rcopy",
        server_options: "-p 7471",
        client_options: "librdmacm.so.1 ADDRESS:copied -p 7471",
        persistent: true,
        ..RPING
    })
    // An address of IPv6 has colons too.
    .of_ipv4()
    .lasts(),
    Trial::of(UDPONG).bears_no_loss(),
    perftest!("ib_write_bw", "RC"),
    perftest!("ib_write_lat", "RC"),
    perftest!("ib_read_bw", "RC"),
    perftest!("ib_read_lat", "RC"),
    perftest!("ib_send_bw", "RC"),
    perftest!("ib_send_lat", "RC"),
    perftest!("ib_atomic_bw", "RC"),
    perftest!("ib_atomic_lat", "RC"),
    perftest!("ib_send_bw", "UD").bears_no_loss(),
    perftest!("ib_send_lat", "UD").bears_no_loss(),
    fio!("write"),
    fio!("read"),
    fi_pingpong!("msg"),
    fi_pingpong!("rdm"),
];

const XSERVER: Program = Program {
    server: "rdma_xserver",
    client: "rdma_xclient",
    server_options: "-p 7471 -c r",
    ..RPING
};

/// Runs them: on this host, across a wire of each family, and across a bad one.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Report, String> {
    let few = |trial: &Trial| !trial.lasts || extent > Extent::Quick;
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
            let chosen = |trial: &Trial| trial.bears_loss && extent > Extent::Quick;
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
    chosen: impl Fn(&Trial) -> bool,
) {
    let reached = |trial: &&Trial| trial.reach.includes(place, address);
    for trial in TRIALS.iter().filter(reached).filter(|trial| chosen(trial)) {
        let met = trial.meet(installation, place, address);
        report.add(Row {
            subject: vec![name.to_owned(), trial.program.client.to_owned(), trial.describe()],
            figures: vec![],
            problem: met.err(),
        });
    }
}

impl Trial {
    fn describe(&self) -> String {
        let options = self.program.describe();
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
        let Program { server, client, package, server_options, client_options, .. } = self.program;
        let (name, options) = match side {
            Side::Far => (server, server_options),
            Side::Near => (client, client_options),
        };
        let mut command = place.command(installation, side, name, package)?;
        command.current_dir(installation.folder());
        command.args(Program::words(options, &address.to_string()));
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
        match self.program.listens {
            Listens::At(port) => wait_for_listener(&mut server, installation, place, port)?,
            Listens::AtTcp(port) => server.wait_until_it_listens(port)?,
            Listens::Nowhere => {}
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
        if !self.program.persistent {
            ends.push(server);
        }
        let Some(words) = self.prints else { return end_well(ends, LIMIT).map(drop) };
        for end in ends {
            let (status, Printed { output, complaints }) = end.end(LIMIT)?;
            if !output.contains(words) {
                return Err(format!("{status}\n{output}{complaints}"));
            }
        }
        Ok(())
    }
}
