//! Clients of the store.

use super::ENTRY;
use super::error::StoreError;
use std::net::SocketAddr;
use tokio::task::JoinHandle;
use transom::{
    Access, CompletionQueue, Connector, Error, Grant, MemoryRegion, ProtectionDomain, QueuePair,
    RemoteSlice, Result, Status,
};

/// Makes clients, and knows their server.
pub(crate) struct Clients {
    pub(crate) pd: ProtectionDomain,
    pub(crate) queue: CompletionQueue,
    pub(crate) server: SocketAddr,
}

/// A connected client. It leaves when it is dropped.
pub(crate) struct Client {
    queue_pair: QueuePair,
    /// Its page.
    grant: Grant,
    entry: MemoryRegion<Vec<u8>>,
    /// Owns the connection and awaits its end. Only there does the client learn that the server has ended it.
    connection: JoinHandle<Result<()>>,
}

impl Clients {
    pub(crate) async fn connect(&self, name: &str) -> Result<Client, StoreError> {
        let queue_pair = QueuePair::builder(&self.pd, &self.queue).build()?;
        let connector = Connector::new(self.server).private_data(name.as_bytes());
        let mut connection = connector.connect(queue_pair)?.await?;
        let granted = connection.private_data().first_chunk().ok_or(StoreError::NoGrant)?;
        let grant = Grant::from_bytes(granted)?;
        Ok(Client {
            queue_pair: connection.queue_pair().clone(),
            grant,
            entry: MemoryRegion::register(&self.pd, vec![0; ENTRY], Access::LOCAL_WRITE)?,
            connection: tokio::spawn(async move { connection.disconnection().await }),
        })
    }

    /// Connects, does some work, and leaves. If its time was up before the work was done, it connects again.
    pub(crate) async fn visit<T>(
        &self,
        name: &str,
        work: impl AsyncFn(&Client) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            match work(&self.connect(name).await?).await {
                // The access was refused, or the connection ended before.
                Err(StoreError::Device(Error::Work(_))) => {}
                outcome => return outcome,
            }
        }
    }
}

impl Client {
    pub(crate) fn grant(&self) -> Grant {
        self.grant
    }

    /// Writes an entry of its page. The bytes go inline.
    pub(crate) async fn put(&self, entry: usize, text: &str) -> Result<(), StoreError> {
        let mut bytes = [0; ENTRY];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        self.queue_pair.write(&bytes, self.entry(entry)?)?.await?;
        Ok(())
    }

    /// Reads an entry of its page.
    pub(crate) async fn get(&self, entry: usize) -> Result<String, StoreError> {
        self.queue_pair.read(&[self.entry.all()], self.entry(entry)?)?.await?;
        let mut bytes = [0; ENTRY];
        self.entry.read_at(0, &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }

    /// Writes memory that it has no right to. Returns the status of the refusal.
    pub(crate) async fn overstep(&self, there: RemoteSlice) -> Result<Status, StoreError> {
        match self.queue_pair.write(b"mine now", there)?.await {
            Err(Error::Work(error)) if error.status == Status::RemoteAccess => Ok(error.status),
            Err(error) => Err(error.into()),
            Ok(_) => panic!("it is not refused"),
        }
    }

    fn entry(&self, number: usize) -> Result<RemoteSlice> {
        let start = (number * ENTRY) as u64;
        self.grant.slice(start..start + ENTRY as u64)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The task owns the connection, so both end here, and the server is told.
        self.connection.abort();
    }
}
