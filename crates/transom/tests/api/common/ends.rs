//! Both ends of connections by the connection manager.

use super::{TIMEOUT, address, context, provider};
use std::thread;
use std::time::{Duration, Instant};
use transom::{
    CompletionQueue, Connection, ConnectionProblem, ConnectionRequest, Connector, Error,
    Initialized, Listener, Pending, ProtectionDomain, QueuePair, Result,
};

/// A server's end and a client's, of one process.
pub(crate) struct Ends {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) listener: Listener,
}

impl Ends {
    pub(crate) fn new() -> Self {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 256).unwrap();
        let listener = Listener::bind(&provider(), address()).unwrap();
        Self { pd, cq, listener }
    }

    pub(crate) fn queue_pair(&self) -> QueuePair<Initialized> {
        QueuePair::builder(&self.pd, &self.cq).build().unwrap()
    }

    pub(crate) fn connecting(&self, private_data: &[u8]) -> Pending<'static, Connection> {
        let connector = Connector::new(self.listener.local_address()).private_data(private_data);
        connector.connect(self.queue_pair()).unwrap()
    }

    /// A client's connection that is being made, and its request.
    pub(crate) fn request(
        &self,
        private_data: &[u8],
    ) -> (Pending<'static, Connection>, ConnectionRequest) {
        let mut client = self.connecting(private_data);
        let mut accept = self.listener.accept();
        let request = until(|| {
            // It makes progress only while somebody polls it.
            assert!(client.wait_timeout(Duration::from_millis(1)).unwrap().is_none());
            accept.try_wait().unwrap()
        });
        (client, request)
    }

    /// Both ends of a connection, the client's first.
    pub(crate) fn connected(&self) -> (Connection, Connection) {
        let (client, request) = self.request(b"");
        both(client, request.accept(self.queue_pair(), b"").unwrap())
    }
}

/// Both ends. Each waits for the other.
pub(crate) fn both(
    client: Pending<'static, Connection>,
    server: Pending<'static, Connection>,
) -> (Connection, Connection) {
    let client = thread::spawn(move || client.wait().unwrap());
    let server = server.wait().unwrap();
    (client.join().unwrap(), server)
}

/// The result, once it is there.
pub(crate) fn until<T>(mut there: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        match there() {
            Some(found) => return found,
            None => assert!(begun.elapsed() < TIMEOUT, "it does not come"),
        }
    }
}

/// The reason why there is no connection.
pub(crate) fn problem<T>(result: Result<T>) -> ConnectionProblem {
    match result.err().expect("no connection") {
        Error::Connection(error) => error.problem,
        other => panic!("{other}"),
    }
}
