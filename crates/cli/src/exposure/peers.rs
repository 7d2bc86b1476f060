//! Who a queue pair lets in, in words.

use std::net::{IpAddr, Ipv6Addr};

use transom_exposure::doors::Pair;
use transom_exposure::report::Account;

/// A peer of a queue pair.
pub(super) struct Peer<'a> {
    /// Its process, if that has an account too.
    pub(super) account: Option<&'a Account>,
    /// The queue pair at the other end.
    pub(super) number: u32,
    /// Its address.
    pub(super) address: IpAddr,
}

impl<'a> Peer<'a> {
    /// The peer that a queue pair lets in. Its process is the one that has that queue pair, connected to this one at the
    /// same time.
    pub(super) fn of(pair: &Pair, accounts: &'a [Account]) -> Self {
        let is_other = |it: &Pair| {
            let overlap = (pair.until == 0 || it.since < pair.until)
                && (it.until == 0 || pair.since < it.until);
            (it.number, it.peer) == (pair.peer, pair.number) && overlap
        };
        let account = accounts.iter().find(|account| account.pairs.iter().any(is_other));
        let address = Ipv6Addr::from(pair.gid);
        let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
        Self { account, number: pair.peer, address }
    }

    /// Its name: `client (process 4711)`.
    pub(super) fn name(&self) -> String {
        match self.account {
            Some(account) => process(account),
            None if self.address.is_unspecified() => format!("queue pair {:#x}", self.number),
            None => format!("queue pair {:#x} at {}", self.number, self.address),
        }
    }
}

/// A process: `client (process 4711)`.
pub(super) fn process(account: &Account) -> String {
    format!("{} (process {})", program(account), account.names.pid)
}

/// The name of a process's program.
pub(super) fn program(account: &Account) -> &str {
    account.names.program.rsplit('/').next().unwrap_or_default()
}
