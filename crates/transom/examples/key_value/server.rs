//! The store, which serves clients.

use super::PAGE;
use super::error::StoreError;
use super::windows::Windows;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use transom::{
    Access, CompletionQueue, ConnectionRequest, Listener, MemoryRegion, Pages, ProtectionDomain,
    QueuePair, Rights, Slice,
};

/// How long a client may write into its page.
const TIME: Duration = Duration::from_millis(100);

type Page = [u8; PAGE];

pub(crate) struct Server {
    pd: ProtectionDomain,
    queue: CompletionQueue,
    windows: Windows,
    /// Memory for the pages of connected clients. Its length limits their number.
    free: Mutex<Vec<Slice>>,
    /// The stored page of each client, by its name. Locked while the client is connected.
    pages: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Page>>>>,
}

impl Server {
    pub(crate) fn new(
        pd: &ProtectionDomain,
        queue: &CompletionQueue,
        visitors: usize,
    ) -> Result<Self, StoreError> {
        // Windows are the only way to this memory.
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        let memory = MemoryRegion::register(pd, Pages::new(visitors * PAGE)?, access)?;
        let slices = (0..visitors).map(|at| memory.slice(at * PAGE..(at + 1) * PAGE));
        Ok(Self {
            pd: pd.clone(),
            queue: queue.clone(),
            windows: Windows::new(pd),
            free: Mutex::new(slices.collect::<Result<_, _>>()?),
            pages: Mutex::default(),
        })
    }

    /// Serves every client that connects, each in a task of its own.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: Listener,
    ) -> Result<Infallible, StoreError> {
        loop {
            let request = listener.accept().await?;
            let server = Arc::clone(&self);
            tokio::spawn(async move {
                // The error of one client does not concern the others.
                if let Err(error) = server.visit(request).await {
                    eprintln!("{error}");
                }
            });
        }
    }

    async fn visit(&self, request: ConnectionRequest) -> Result<(), StoreError> {
        let name = String::from_utf8_lossy(request.private_data()).into_owned();
        let page = {
            let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(pages.entry(name).or_insert_with(|| Arc::new([0; PAGE].into())))
        };
        let mut page = page.lock().await;
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(memory) = free().pop() else {
            return Ok(request.reject(b"too many are here")?);
        };
        let outcome = self.host(request, &memory, &mut page).await;
        // However the visit ended, its window has been revoked.
        free().push(memory);
        outcome
    }

    async fn host(
        &self,
        request: ConnectionRequest,
        memory: &Slice,
        page: &mut Page,
    ) -> Result<(), StoreError> {
        memory.write_at(0, page)?;
        // The acceptance carries the grant, so the window comes before it.
        let accepting = request.prepare(QueuePair::builder(&self.pd, &self.queue).build()?)?;
        let window = self.windows.take()?;
        let rights = Rights::READ | Rights::WRITE;
        let window = window.bind(accepting.queue_pair(), memory, rights)?.await?;
        let mut connection = accepting.accept(&window.grant().to_bytes())?.await?;

        // Until its time is up, or it leaves, or it has overstepped and lost the connection.
        let _in_time = timeout(TIME, connection.disconnection()).await;
        self.windows.end(window, &connection).await?;
        // Nobody writes there any more.
        memory.read_at(0, page)?;

        // A client that goes on writing is refused, and then leaves. If it does not leave, the server ends
        // the connection.
        let _in_time = timeout(TIME, connection.disconnection()).await;
        Ok(())
    }
}
