//! The place of a program's two ends: on this host, or across a wire.

use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::Running;
use transom_conformance::spaces::{Family, Side, VethPair, may_make_spaces};

use crate::installation::{DEVICE, Installation};
use crate::table::{Form, Report, Style};

/// The place of a program's ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// Both in the network namespace of this process.
    Here,
    /// Each in its namespace.
    Across(&'a Wire<'a>),
}

impl Place<'_> {
    /// The address by which clients find the server. The tools meet over IPv4, whatever their queue pairs use.
    pub(crate) fn address(self) -> String {
        match self {
            Self::Here => "127.0.0.1".to_owned(),
            Self::Across(wire) => wire.pair.address(Side::Far, Family::V4).to_string(),
        }
    }

    /// The client's address, given the server's.
    pub(crate) fn client(self, server: IpAddr) -> IpAddr {
        let family = if server.is_ipv4() { Family::V4 } else { Family::V6 };
        match self {
            Self::Here => server,
            Self::Across(wire) => wire.pair.address(Side::Near, family),
        }
    }

    /// Whether packets are lost on the way.
    pub(crate) fn loses_packets(self) -> bool {
        matches!(self, Self::Across(Wire { faults: Some(_), .. }))
    }

    /// A program for one of the ends, with our library.
    pub(crate) fn command(
        self,
        installation: &Installation,
        side: Side,
        name: &str,
        package: &str,
    ) -> Result<Command, String> {
        let mut command = installation.command(name, package)?;
        if let Self::Across(wire) = self {
            wire.pair.space(side).enter(&mut command);
            command.envs(wire.faults.map(|faults| ("TRANSOM_FAULT", faults)));
        }
        Ok(command)
    }

    /// The options that tell a tool its GID, if it needs them.
    pub(crate) fn gid(self, option: &str, side: Side) -> Vec<String> {
        match self {
            Self::Here => vec![],
            Self::Across(wire) => vec![option.to_owned(), wire.gid(side).to_string()],
        }
    }
}

/// A pair of namespaces whose programs use the addresses of one family.
#[derive(Debug)]
pub(crate) struct Wire<'a> {
    pub(crate) pair: &'a VethPair,
    pub(crate) family: Family,
    /// The faults of packets on the way, as an argument of `transom run --fault`.
    pub(crate) faults: Option<&'static str>,
    /// The indices of the addresses in the GID tables of the near and the far device.
    gids: [usize; 2],
}

impl<'a> Wire<'a> {
    /// Looks up the addresses in the devices' GID tables.
    pub(crate) fn new(
        installation: &Installation,
        pair: &'a VethPair,
        family: Family,
    ) -> Result<Self, String> {
        let look_up = |side| gid_index(installation, pair, side, pair.address(side, family));
        let gids = [look_up(Side::Near)?, look_up(Side::Far)?];
        Ok(Self { pair, family, faults: None, gids })
    }

    /// The same wire with faults.
    pub(crate) fn disturbed(&self, faults: &'static str) -> Self {
        Self { faults: Some(faults), ..*self }
    }

    /// The index of an end's GID.
    pub(crate) fn gid(&self, side: Side) -> usize {
        self.gids[usize::from(side == Side::Far)]
    }
}

/// The index of an address in the GID table of one end's device, as `ibv_devinfo` shows it.
fn gid_index(
    installation: &Installation,
    pair: &VethPair,
    side: Side,
    address: IpAddr,
) -> Result<usize, String> {
    let mut command = installation.command("ibv_devinfo", "ibverbs-utils")?;
    pair.space(side).enter(command.args(["-v", "-d", DEVICE]));
    let printed = Running::start(&mut command).success(Duration::from_secs(20))?.output;
    let wanted = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let gids: Vec<_> = printed.lines().filter_map(gid_line).collect();
    let found = gids.iter().find(|(_, gid)| *gid == wanted);
    found
        .map(|(index, _)| *index)
        .ok_or_else(|| format!("the device has no GID for {address}, but {gids:?}"))
}

/// Reads a line of `ibv_devinfo`: `GID[  1]: ::ffff:10.0.0.1, RoCE v2`.
fn gid_line(line: &str) -> Option<(usize, Ipv6Addr)> {
    let (index, rest) = line.trim().strip_prefix("GID[")?.split_once("]:")?;
    let gid = rest.trim().strip_suffix(", RoCE v2")?;
    Some((index.trim().parse().ok()?, gid.parse().ok()?))
}

/// Fills a report across veth pairs with these MTUs. If this user cannot make namespaces, it prints why and returns
/// nothing.
pub(crate) fn across_pairs(
    form: &'static Form,
    style: Style,
    mtus: &[u32],
    mut fill: impl FnMut(&VethPair, &mut Report) -> Result<(), String>,
) -> Result<Option<Report>, String> {
    if let Err(why) = may_make_spaces() {
        eprintln!("{}: skipped: {why}", form.script);
        return Ok(None);
    }
    let mut report = Report::begin(form, style);
    for mtu in mtus {
        fill(&VethPair::new(*mtu)?, &mut report)?;
    }
    Ok(Some(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_gids_are_read() {
        let line = "\t\t\tGID[ 12]:\t\t::ffff:10.77.0.1, RoCE v2";
        let address: Ipv6Addr = "::ffff:10.77.0.1".parse().unwrap();
        assert_eq!(gid_line(line), Some((12, address)));
        assert_eq!(gid_line("\t\t\tGID[  0]:\t\tfe80::1, RoCE v1"), None);
        assert_eq!(gid_line("\t\t\tlink_layer:\t\tEthernet"), None);
    }
}
