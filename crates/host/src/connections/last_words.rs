//! What is to be said for processes that have ended without a word, by one that has no device itself.

use std::io;
use std::os::fd::BorrowedFd;

use tracing::debug;
use transom_cm::Record;
use transom_device::protection::Announcer;
use transom_device::qp::QpNumber;
use transom_device::queue::Address;
use transom_net::management::{self, ManagementDatagram};
use transom_net::{Messenger, Path};
use transom_system::addresses::{Addresses, gid};
use transom_system::registry::Registry;
use transom_system::registry::connections::Connections;
use transom_wire::Psn;
use transom_wire::cm::{GSI_QPN, MAD_BYTES};

use super::exchange::{packet, path};

/// Says it: a process that outlives them, on a host where no other one may be left. What it needs is at hand before
/// they end, for whoever ends with them may take it along.
pub struct LastWords {
    registry: &'static Registry,
    /// What they leave, once one of them uses connections.
    table: Option<Connections>,
    addresses: Addresses,
    messenger: Messenger,
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
        Ok(Self { registry, table: None, addresses, messenger })
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
        let Self { registry, table: Some(table), addresses, messenger } = self else {
            return Ok(());
        };
        table.lock()?.reap(ended, |connection| {
            debug!(?connection, "its process has died");
            say(registry, addresses, messenger, &connection.record);
        });
        Ok(())
    }
}

/// Tells the peer of a connection that it has ended.
fn say(registry: &Registry, addresses: &Addresses, messenger: &mut Messenger, record: &Record) {
    let transmit = record.final_message();
    let (source, destination) = (transmit.source, transmit.destination);
    let mad = transmit.mad.write();
    // On this host the peer's process has a pipe, whose slot its communication id names.
    let is_here = addresses.index_of(&gid(destination)).is_some();
    let slot = (record.peer_id.0 >> 24) as u8;
    let datagram = ManagementDatagram { source, destination, mad };
    if !(is_here && management::give(registry, slot, datagram)) {
        messenger.send(&path(&transmit, addresses), &packet(Psn::default()), &mad);
    }
}
