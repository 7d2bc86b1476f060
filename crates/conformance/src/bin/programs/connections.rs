//! `programs connections`: programs that connect with librdmacm, on this host and across wires.

mod trials;

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::{Printed, Running};
use transom_conformance::spaces::{Family, Side};
use transom_system::addresses::Addresses;

use crate::extent::Extent;
use crate::installation::Installation;
use crate::meeting::{end_well, wait_for_listener};
use crate::place::{Place, Wire, across_pairs};
use crate::program::{Listens, Program};
use crate::table::{Form, Report, Row, Style, Verdict};
use trials::{TRIALS, Trial};

static FORM: Form = Form {
    script: "connections",
    title: "programs that connect by librdmacm, with server and clients in processes of their \
            own",
    subject: &[("where", 30), ("program", 12), ("options", 44)],
    figures: &[("remark", 48)],
};

/// The faults of a bad network.
const FAULTS: &str = "loss=1%,seed=7";
/// How long a program may take. A lost connection message is resent after 4 s.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs them: on this host, across a wire of each family, and across a bad wire.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Report, String> {
    let few = |trial: &Trial| !trial.lasts || extent > Extent::Quick;
    let here = |report: &mut Report| {
        let address = own_address();
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
            let chosen = |_: &Trial| extent > Extent::Quick;
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

/// An address of this host that is not loopback, if it has one. An id that is bound to loopback has no device.
pub(crate) fn own_address() -> IpAddr {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let Ok(addresses) = Addresses::read() else { return loopback };
    addresses.iter().map(|(_, it)| it.ip()).find(IpAddr::is_ipv4).unwrap_or(loopback)
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
        let (verdict, remark) = match trial.left_out(place) {
            Some(why) => (Verdict::LeftOut, why),
            None => (Verdict::of(trial.meet(installation, place, address).err()), ""),
        };
        report.add(Row {
            subject: vec![name.to_owned(), trial.program.client.to_owned(), trial.describe()],
            figures: vec![remark.to_owned()],
            verdict,
        });
    }
}

impl Trial {
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
        command.args(Program::words(options, address, place.client(address)));
        Ok(command)
    }

    /// Runs the server and its clients until all have succeeded.
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
        if server.has_ended() {
            let printed = server.success(LIMIT)?;
            return Err(format!("the server ends before a client comes\n{}", printed.output));
        }
        let mut ends = Vec::new();
        for _ in 0..self.clients {
            let mut client = self.command(installation, place, Side::Near, address)?;
            let mut client = Running::start(&mut client);
            // rping's server has room for one requested connection, so the next client waits until the one before has
            // its first data.
            if self.clients > 1 {
                client.line(LIMIT)?;
            }
            ends.push(client);
        }
        let goes_on = if self.program.persistent {
            Some(server)
        } else {
            ends.push(server);
            None
        };
        let Some(words) = self.prints else {
            return end_well(ends, LIMIT).map(drop).map_err(|problem| match goes_on {
                Some(server) => format!("{problem}\n{}", told(server)),
                None => problem,
            });
        };
        for end in ends {
            let (status, Printed { output, complaints }) = end.end(LIMIT)?;
            if !output.contains(words) {
                return Err(format!("{status}\n{output}{complaints}"));
            }
        }
        Ok(())
    }
}

/// The state of a server whose clients have failed.
fn told(mut server: Running) -> String {
    if !server.has_ended() {
        return "The server goes on.".to_owned();
    }
    let printed = server.success(LIMIT).map(|Printed { output, complaints }| output + &complaints);
    format!("The server has ended.\n{}", printed.unwrap_or_else(|problem| problem))
}
