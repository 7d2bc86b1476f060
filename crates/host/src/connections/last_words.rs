//! Sends the farewells of processes that ended without a word, from a process that has no device itself.

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

use super::farewells::Farewells;
use super::packets::{packet, path};

/// Sends them. The owner is a process that outlives those processes, on a host where it may be the last one. Everything
/// it needs is acquired before they end, because something that ends with them may take it along.
pub struct LastWords {
    registry: &'static Registry,
    /// Their table of connections, once one of them uses connections.
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
    /// The system's error.
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

    /// Takes in the changes of the addresses.
    pub fn refresh(&mut self) {
        let _ = self.addresses.refresh();
    }

    /// Tells the peers of ended processes that their connections have ended, unless another process did.
    ///
    /// # Errors
    ///
    /// The system's error.
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

    /// Repeats the messages that are due, because a packet may be lost. Returns the time until the next one.
    pub fn say_again(&mut self) -> Option<Duration> {
        let now = clock::steady();
        for transmit in self.farewells.take_due(now) {
            send(&self.addresses, &mut self.messenger, &transmit);
        }
        let next = self.farewells.deadline()?;
        Some(Duration::from_nanos(next.saturating_sub(now)))
    }
}

/// Gives a message to the peer's process if that is on this host. Such a process has a pipe, and its communication id
/// names its slot.
fn give(registry: &Registry, addresses: &Addresses, transmit: &Transmit, peer: CommId) -> bool {
    let &Transmit { source, destination, ref mad, .. } = transmit;
    let datagram = ManagementDatagram { source, destination, mad: mad.write() };
    let is_here = addresses.index_of(&gid(destination)).is_some();
    is_here && management::give(registry, (peer.0 >> 24) as u8, datagram)
}

fn send(addresses: &Addresses, messenger: &mut Messenger, transmit: &Transmit) {
    messenger.send(&path(transmit, addresses), &packet(Psn::default()), &transmit.mad.write());
}
