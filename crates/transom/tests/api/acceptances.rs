//! The time between a request for a connection and its acceptance.

use crate::common::{Ends, TIMEOUT, both, bytes_of, problem, status};
use transom::{
    Access, ConnectionProblem, Error, Grant, MemoryRegion, Rights, Status, Type2, Window,
};

/// Rules: T2-13
#[test]
fn an_acceptance_carries_the_grant_of_a_window() {
    let ends = Ends::new();
    let (client, request) = ends.request(b"");
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = MemoryRegion::register(&ends.pd, vec![b'.'; 32], access).unwrap();
    let accepting = request.prepare(ends.queue_pair()).unwrap();
    let window = Window::<Type2>::alloc(&ends.pd).unwrap();
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
    let ends = Ends::new();
    let (client, request) = ends.request(b"");
    let accepting = request.prepare(ends.queue_pair()).unwrap();
    let clone = accepting.queue_pair().clone();
    let expected = clone.receive(&[]).unwrap();
    drop(accepting);
    assert_eq!(status(expected.wait().unwrap_err()), Status::Flushed);
    assert!(clone.has_failed().unwrap());
    assert!(matches!(problem(client.wait()), ConnectionProblem::Rejected(_)));
}

#[test]
fn what_is_too_long_for_an_acceptance_refuses_the_request() {
    let ends = Ends::new();
    let (client, request) = ends.request(b"");
    let accepting = request.prepare(ends.queue_pair()).unwrap();
    let refused = accepting.accept(&[0; 195]).unwrap_err();
    assert_eq!(refused, Error::PrivateDataTooLong { length: 195, room: 194 });
    assert!(matches!(problem(client.wait()), ConnectionProblem::Rejected(_)));
}

#[test]
fn a_peer_that_gave_up_is_not_accepted() {
    let ends = Ends::new();
    let (client, request) = ends.request(b"");
    let accepting = request.prepare(ends.queue_pair()).unwrap();
    drop(client);
    // The end may be known already, or only when somebody waits for it.
    let outcome = accepting.accept(b"").and_then(|mut connection| connection.wait_timeout(TIMEOUT));
    let problem = problem(outcome);
    let gave_up = matches!(problem, ConnectionProblem::GaveUp | ConnectionProblem::Rejected(_));
    assert!(gave_up, "{problem:?}");
}
