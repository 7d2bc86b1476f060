//! What is to be said for processes that have ended without a word, by one that has no device itself.

use std::io;
use std::os::fd::BorrowedFd;

use std::time::Duration;

use tracing::debug;
use transom_cm::Transmit;
use transom_device::protection::Announcer;
use transom_device::qp::QpNumber;
use transom_device::queue::Address;
use transom_net::management::{self, ManagementDatagram};
use transom_net::{Messenger, Path};
use transom_system::addresses::{Addresses, gid};
use transom_system::clock;
use transom_system::registry::Registry;
use transom_system::registry::connections::Connections;
use transom_wire::Psn;
use transom_wire::cm::{CommId, GSI_QPN, MAD_BYTES};

use super::exchange::{packet, path};
use super::farewells::Farewells;

/// Says it: a process that outlives them, on a host where no other one may be left. What it needs is at hand before
/// they end, for whoever ends with them may take it along.
pub struct LastWords {
    registry: &'static Registry,
    /// What they leave, once one of them uses connections.
    table: Option<Connections>,
    addresses: Addresses,
    messenger: Messenger,
    farewells: Farewells,
}

impl LastWords {
    /// Nothing is to be said yet.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn new(registry: &'static Registry) -> io::Result<Self> {
        let (addresses, messenger) = (Addresses::read()?, Messenger::new()?);
        for (_, address) in addresses.iter() {
            let gid = address.gid;
            let to = Address { gid, source: gid, traffic_class: 0, hop_limit: 0, flow_label: 0 };
            let from = QpNumber::from_bits(GSI_QPN);
            messenger.prepare(&Path::from_table(&addresses, &to, from, MAD_BYTES as u64));
        }
        Ok(Self { registry, table: None, addresses, messenger, farewells: Farewells::default() })
    }

    /// Readable when the addresses of this host have changed.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.addresses.descriptor()
    }

    /// Takes in what has changed of them.
    pub fn refresh(&mut self) {
        let _ = self.addresses.refresh();
    }

    /// Tells the peers of processes that have ended that their connections have, unless somebody else did.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn say_for(&mut self, ended: &[Announcer]) -> io::Result<()> {
        if self.table.is_none() {
            self.table = Connections::look(self.registry)?;
        }
        let Self { registry, table: Some(table), addresses, messenger, farewells } = self else {
            return Ok(());
        };
        table.lock()?.reap(ended, |connection| {
            debug!(?connection, "its process has died");
            let (transmit, peer) = (connection.record.final_message(), connection.record.peer_id);
            if !give(registry, addresses, &transmit, peer) {
                send(addresses, messenger, &transmit);
                farewells.said(transmit, clock::steady());
            }
        });
        Ok(())
    }

    /// Says again what is due, for a packet may be lost; how long it is until the next.
    pub fn say_again(&mut self) -> Option<Duration> {
        let now = clock::steady();
        for transmit in self.farewells.take_due(now) {
            send(&self.addresses, &mut self.messenger, &transmit);
        }
        let next = self.farewells.deadline()?;
        Some(Duration::from_nanos(next.saturating_sub(now)))
    }
}

/// Gives a message to the peer's process, if that is on this host: it has a pipe, whose slot its communication id names.
fn give(registry: &Registry, addresses: &Addresses, transmit: &Transmit, peer: CommId) -> bool {
    let &Transmit { source, destination, ref mad, .. } = transmit;
    let datagram = ManagementDatagram { source, destination, mad: mad.write() };
    let is_here = addresses.index_of(&gid(destination)).is_some();
    is_here && management::give(registry, (peer.0 >> 24) as u8, datagram)
}

fn send(addresses: &Addresses, messenger: &mut Messenger, transmit: &Transmit) {
    messenger.send(&path(transmit, addresses), &packet(Psn::default()), &transmit.mad.write());
}
