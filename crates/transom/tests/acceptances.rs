//! What comes between a request for a connection and its acceptance.

mod common;

use common::{TIMEOUT, address, bytes_of, context, provider, status};
use std::thread;
use transom::{
    Access, CompletionQueue, Connection, ConnectionProblem, ConnectionRequest, Connector, Error,
    Grant, Listener, MemoryRegion, Pending, ProtectionDomain, QueuePair, QueuePairBuilder, Result,
    Rights, Status, Type2, Window,
};

/// A client's connection on its way, its request, and what both ends make queue pairs by.
struct Asked {
    client: Pending<'static, Connection>,
    request: ConnectionRequest,
    builder: QueuePairBuilder,
    pd: ProtectionDomain,
    _listener: Listener,
}

impl Asked {
    fn new() -> Self {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64).unwrap();
        let builder = QueuePair::builder(&pd, &cq);
        let listener = Listener::bind(&provider(), address()).unwrap();
        let connector = Connector::new(listener.local_address());
        let mut client = connector.connect(builder.build().unwrap()).unwrap();
        let mut accept = listener.accept();
        let begun = std::time::Instant::now();
        let request = loop {
            // It goes on only while somebody asks for it.
            assert!(client.try_wait().unwrap().is_none());
            match accept.try_wait().unwrap() {
                Some(request) => break request,
                None => assert!(begun.elapsed() < TIMEOUT, "no request comes"),
            }
        };
        drop(accept);
        Self { client, request, builder, pd, _listener: listener }
    }
}

fn both(
    client: Pending<'static, Connection>,
    server: Pending<'static, Connection>,
) -> (Connection, Connection) {
    let client = thread::spawn(move || client.wait().unwrap());
    let server = server.wait().unwrap();
    (client.join().unwrap(), server)
}

fn problem<T>(result: Result<T>) -> ConnectionProblem {
    match result.err().expect("no connection") {
        Error::Connection(error) => error.problem,
        other => panic!("{other}"),
    }
}

/// Rules: T2-13
#[test]
fn an_acceptance_carries_the_grant_of_a_window() {
    let Asked { client, request, builder, pd, _listener } = Asked::new();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = MemoryRegion::register(&pd, vec![b'.'; 32], access).unwrap();
    let accepting = request.prepare(builder.build().unwrap()).unwrap();
    let window = Window::<Type2>::alloc(&pd).unwrap();
    let memory = region.slice(8..24).unwrap();
    let binding = window.bind(accepting.queue_pair(), &memory, Rights::WRITE).unwrap();
    let window = binding.wait().unwrap();
    let server = accepting.accept(&window.grant().to_bytes()).unwrap();
    let (client, server) = both(client, server);

    let grant = Grant::from_bytes(client.private_data().first_chunk().unwrap()).unwrap();
    assert_eq!(grant, window.grant());
    client.write(b"over the transom", grant).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&region), b"........over the transom........");
    window.invalidate(&server).unwrap().wait().unwrap();
    let late = client.write(b"late", grant).unwrap().wait().unwrap_err();
    assert_eq!(status(late), Status::RemoteAccess);
}

#[test]
fn a_request_that_is_prepared_and_dropped_is_refused() {
    let Asked { client, request, builder, .. } = Asked::new();
    let accepting = request.prepare(builder.build().unwrap()).unwrap();
    let clone = accepting.queue_pair().clone();
    let expected = clone.receive(&[]).unwrap();
    drop(accepting);
    assert_eq!(status(expected.wait().unwrap_err()), Status::Flushed);
    assert!(clone.has_failed().unwrap());
    assert!(matches!(problem(client.wait()), ConnectionProblem::Rejected(_)));
}

#[test]
fn what_is_too_long_for_an_acceptance_refuses_the_request() {
    let Asked { client, request, builder, .. } = Asked::new();
    let accepting = request.prepare(builder.build().unwrap()).unwrap();
    let refused = accepting.accept(&[0; 195]).unwrap_err();
    assert_eq!(refused, Error::PrivateDataTooLong { length: 195, room: 194 });
    assert!(matches!(problem(client.wait()), ConnectionProblem::Rejected(_)));
}

#[test]
fn a_peer_that_gave_up_is_not_accepted() {
    let Asked { client, request, builder, .. } = Asked::new();
    let accepting = request.prepare(builder.build().unwrap()).unwrap();
    drop(client);
    // Whether that is known already or is only told to who waits.
    let outcome = accepting.accept(b"").and_then(|mut connection| connection.wait_timeout(TIMEOUT));
    let problem = problem(outcome);
    let gave_up = matches!(problem, ConnectionProblem::GaveUp | ConnectionProblem::Rejected(_));
    assert!(gave_up, "{problem:?}");
}
