//! A store on tokio. Its clients write into its memory directly.
//!
//! ```sh
//! cargo run -p transom --example key_value
//! ```
//!
//! The server has a page for each client name. A client that connects gets a window of its own page for 100 ms. Then
//! the server revokes the window, and stores the content of the page. Clients that overstep harm nobody: not the store,
//! not each other, and not themselves when they connect again.
//!
//! Everything is awaited on one thread. [`deliver`] wakes the tasks that await requests: it lets tokio watch the
//! completion queue. The crate itself wakes the tasks that await connections.

mod client;
mod error;
mod server;
mod windows;

use client::Clients;
use error::StoreError;
use server::Server;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;
use transom::{CompletionQueue, Listener, ProtectionDomain, Provider, RemoteSlice, Status};

/// The length of an entry in bytes: a text, filled up with zeros.
const ENTRY: usize = 32;

/// The length of a page in bytes.
const PAGE: usize = 8 * ENTRY;

fn main() -> Result<(), StoreError> {
    let Story { found, behind, foreign, late, confirmed, kept } = run()?;
    println!("anna found {found:?} when she came again");
    println!("bert wrote behind his page: {}", behind.reason());
    println!("carl wrote by anna's key: {}", foreign.reason());
    println!("dora wrote until her time was up: {}", late.reason());
    println!("of her {confirmed} writes that were confirmed, the store has number {kept}");
    Ok(())
}

/// The results of some clients.
#[derive(Debug)]
pub(crate) struct Story {
    /// The entry that a client wrote in an earlier connection, and found again.
    pub(crate) found: String,
    /// The status of a write behind one's own page, with another client's key, and after one's time was up.
    pub(crate) behind: Status,
    pub(crate) foreign: Status,
    pub(crate) late: Status,
    /// The last number that was written in time, and the number that the store has.
    pub(crate) confirmed: u64,
    pub(crate) kept: String,
}

/// Runs a server and its clients on this thread.
pub(crate) fn run() -> Result<Story, StoreError> {
    let provider = Provider::software();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // Tasks that still run at the end are dropped with the runtime.
    runtime.block_on(async {
        let context = transom::devices(&provider)?[0].open()?;
        let pd = ProtectionDomain::new(&context)?;
        let queue = CompletionQueue::new(&context, 1024)?;
        tokio::spawn(deliver(queue.clone()));

        let listener = Listener::bind(&provider, ([127, 0, 0, 1], 0).into())?;
        let server = listener.local_address();
        let store = Server::new(&pd, &queue, 8)?;
        tokio::spawn(Arc::new(store).serve(listener));
        visits(&Clients { pd, queue, server }).await
    })
}

/// Delivers the completions of a queue when tokio finds its descriptor readable. That wakes the tasks that await them.
/// If the device fails, those tasks get the error too.
async fn deliver(queue: CompletionQueue) -> Result<Infallible, StoreError> {
    // SAFETY: a queue has the same descriptor as long as it exists.
    let queue = unsafe { AsyncFd::register_with_interest(queue, Interest::READABLE) };
    let queue = queue.map_err(io::Error::from)?;
    loop {
        queue.readable().await?.clear_ready();
        queue.get_ref().handle_events()?;
    }
}

async fn visits(clients: &Clients) -> Result<Story, StoreError> {
    clients.visit("anna", async |anna| anna.put(3, "over the transom").await).await?;

    let behind = clients.visit("bert", async |bert| {
        let grant = bert.grant();
        bert.overstep(RemoteSlice { addr: grant.addr + grant.length, ..grant.into() }).await
    });
    let behind = behind.await?;

    // Carl writes while Anna is connected.
    let foreign = clients.visit("anna", async |anna| {
        let grant = anna.grant();
        let foreign = clients.visit("carl", async |carl| carl.overstep(grant.into()).await).await?;
        anna.get(3).await?;
        Ok(foreign)
    });
    let foreign = foreign.await?;

    let dora = clients.connect("dora").await?;
    let mut confirmed = 0;
    let late = loop {
        match dora.put(0, &format!("{}", confirmed + 1)).await {
            Ok(()) => confirmed += 1,
            Err(error) => break error.status()?,
        }
        // Within a process a write is done at once, so without this the task would never yield to the server.
        tokio::task::yield_now().await;
    };
    drop(dora);
    let kept = clients.visit("dora", async |dora| dora.get(0).await).await?;
    let found = clients.visit("anna", async |anna| anna.get(3).await).await?;
    Ok(Story { found, behind, foreign, late, confirmed, kept })
}
