//! Connections by the connection manager: made, refused, ended.

use crate::common::{
    Ends, TIMEOUT, address, again, alone, block_on, both, bytes_of, context, path_of, problem,
    provider, status, until,
};
use rustix::event::epoll;
use std::future::Future;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;
use transom::{
    Access, CompletionQueue, Connection, ConnectionProblem, Connector, Destination, Error,
    Listener, MemoryRegion, Pending, ProtectionDomain, QueuePair, Rejection, Result, Rights,
    Service, Status, Type2, Window,
};

/// A task that has given up waiting is not kept until a request comes.
#[test]
fn who_waits_no_more_is_let_go_of() {
    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    let ends = Ends::new();
    let task = Arc::new(Task);
    let waker = Waker::from(task.clone());
    let mut next = ends.listener.accept();
    assert!(Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
    drop((next, waker));
    assert_eq!(Arc::strong_count(&task), 1);
}

fn rejection<T>(result: Result<T>) -> Rejection {
    match problem(result) {
        ConnectionProblem::Rejected(rejection) => rejection,
        other => panic!("{other:?}"),
    }
}

/// Waits for the end of a connection.
fn ends(connection: &mut Connection) {
    assert_eq!(connection.disconnection().wait_timeout(TIMEOUT).unwrap(), Some(()));
    assert!(connection.has_failed().unwrap());
}

/// Sends a message from one end to the other.
fn carries(ends: &Ends, from: &QueuePair, to: &QueuePair) {
    let inbox = MemoryRegion::register(&ends.pd, vec![0; 16], Access::LOCAL_WRITE).unwrap();
    let message = to.receive(&[inbox.all()]).unwrap();
    from.send(b"over the transom").unwrap().wait().unwrap();
    assert_eq!(message.wait().unwrap().length(), 16);
    assert_eq!(bytes_of(&inbox), b"over the transom");
}

#[test]
fn a_connection_carries_messages_both_ways_until_it_ends() {
    let ends_of = Ends::new();
    let (mut client, mut server) = ends_of.connected();
    carries(&ends_of, &client, &server);
    carries(&ends_of, &server, &client);
    assert_eq!(client.peer_address(), ends_of.listener.local_address());
    assert_eq!(Some(server.peer_address()), client.local_address());
    assert_eq!(server.local_address(), Some(ends_of.listener.local_address()));

    // Nobody has ended it yet.
    assert_eq!(client.disconnection().try_wait().unwrap(), None);
    let short = Duration::from_millis(1);
    assert_eq!(client.disconnection().wait_timeout(short).unwrap(), None);

    let outstanding = client.receive(&[]).unwrap();
    client.disconnect().unwrap();
    assert_eq!(status(outstanding.wait().unwrap_err()), Status::Flushed);
    ends(&mut server);
    ends(&mut client);
    // The connection remembers its end.
    ends(&mut server);
}

#[test]
fn a_window_is_used_over_a_connection() {
    let ends = Ends::new();
    let (client, server) = ends.connected();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = MemoryRegion::register(&ends.pd, vec![0; 8], access).unwrap();
    let window = Window::<Type2>::alloc(&ends.pd).unwrap();
    let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
    let window = window.bind(&server, &region.all(), rights).unwrap().wait().unwrap();
    client.write(b"eight by", window.grant()).unwrap().wait().unwrap();
    let local = MemoryRegion::register(&ends.pd, vec![0; 8], Access::LOCAL_WRITE).unwrap();
    client.read(&[local.all()], window.grant()).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&local), b"eight by");
    client.fetch_add(&local.all(), window.grant(), 1).unwrap().wait().unwrap();
}

/// Rules: CM-07, CM-33
#[test]
fn private_data_arrive_as_long_as_they_were_sent() {
    let ends = Ends::new();
    for length in 0..=54 {
        let (there, back) = (vec![b'q'; length], vec![0; length * 194 / 54]);
        let (client, request) = ends.request(&there);
        assert_eq!(&**request.private_data(), there);
        assert!(!request.private_data().is_padded());
        let (client, server) = both(client, request.accept(ends.queue_pair(), &back).unwrap());
        assert_eq!(&**client.private_data(), back);
        assert!(!client.private_data().is_padded());
        assert_eq!(&**server.private_data(), there);
    }
}

#[test]
fn private_data_that_are_too_long_are_refused() {
    let ends = Ends::new();
    let too_long = |length, room| Error::PrivateDataTooLong { length, room };
    let connector = Connector::new(ends.listener.local_address()).private_data(&[0; 55]);
    assert_eq!(connector.connect(ends.queue_pair()).unwrap_err(), too_long(55, 54));
    let (client, request) = ends.request(b"");
    assert_eq!(request.accept(ends.queue_pair(), &[0; 195]).unwrap_err(), too_long(195, 194));
    assert!(rejection(client.wait()).is_by_program());
    let (client, request) = ends.request(b"");
    assert_eq!(request.reject(&[0; 147]).unwrap_err(), too_long(147, 146));
    assert!(rejection(client.wait()).is_by_program());
}

/// Rules: CM-28, CM-33
#[test]
fn a_refusal_says_why() {
    let ends = Ends::new();
    for length in [0, 1, 145, 146] {
        let (client, request) = ends.request(b"");
        request.reject(&vec![b'n'; length]).unwrap();
        let rejection = rejection(client.wait());
        assert_eq!((rejection.reason, rejection.name()), (28, "consumer reject"));
        assert_eq!(&*rejection.private_data, vec![b'n'; length]);
    }
    // Dropping a request refuses it, without private data.
    let (client, request) = ends.request(b"");
    drop(request);
    let rejection = rejection(client.wait());
    assert!(rejection.is_by_program());
    assert!(rejection.private_data.iter().all(|byte| *byte == 0));
}

/// Rules: CM-21
#[test]
fn nobody_listens() {
    let ends = Ends::new();
    let address = ends.listener.local_address();
    let connector = Connector::new(address);
    drop(ends.listener);
    let qp = QueuePair::builder(&ends.pd, &ends.cq);
    let error = connector.connect(qp.build().unwrap()).unwrap().wait().unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&address.to_string()), "{text}");
    assert!(text.contains("nobody listens") && text.contains("reason 8"), "{text}");
    assert!(rejection::<()>(Err(error)).is_no_listener());
    assert!(rejection(qp.connect_to(address)).is_no_listener());
}

/// Rules: CM-36
#[test]
fn an_address_is_listened_on_once() {
    let ends = Ends::new();
    let address = ends.listener.local_address();
    let error = Listener::bind(&provider(), address).unwrap_err();
    // If one of the two is a loopback address or the wildcard, Linux answers this.
    let errno = match address.ip().is_loopback() {
        true => rustix::io::Errno::ADDRNOTAVAIL,
        false => rustix::io::Errno::ADDRINUSE,
    };
    assert_eq!(error.errno(), Some(errno.raw_os_error()));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    drop(ends);
    Listener::bind(&provider(), address).unwrap();
}

#[test]
fn a_strangers_address_is_not_listened_on() {
    // An address of a network for documentation.
    let error = Listener::bind(&provider(), "192.0.2.9:0".parse().unwrap()).unwrap_err();
    assert!(error.errno().is_some(), "{error}");
    assert!(error.to_string().contains("192.0.2.9:0"), "{error}");
}

#[test]
fn no_device_leads_from_a_strangers_address() {
    let ends = Ends::new();
    let connector = Connector::new(ends.listener.local_address());
    let connector = connector.source("192.0.2.9:0".parse().unwrap());
    let outcome = connector.connect(ends.queue_pair()).and_then(Pending::wait);
    assert!(matches!(problem(outcome), ConnectionProblem::NoRoute { .. }));
}

#[test]
fn a_connection_that_is_dropped_ends() {
    let ends_of = Ends::new();
    let (client, mut server) = ends_of.connected();
    let clone = client.queue_pair().clone();
    let outstanding = clone.receive(&[]).unwrap();
    drop(client);
    assert_eq!(status(outstanding.wait().unwrap_err()), Status::Flushed);
    ends(&mut server);
    // In the other direction, and by the end that was accepted.
    let (mut client, server) = ends_of.connected();
    drop(server);
    ends(&mut client);
}

#[test]
fn who_gives_up_leaves_the_other_without_a_connection() {
    let ends = Ends::new();
    // Before it is accepted.
    let (client, request) = ends.request(b"");
    drop(client);
    let accepted = request.accept(ends.queue_pair(), b"");
    assert!(matches!(
        problem(accepted.and_then(Pending::wait)),
        ConnectionProblem::Rejected(_) | ConnectionProblem::GaveUp
    ));
    // After it is accepted.
    let (client, request) = ends.request(b"");
    let server = request.accept(ends.queue_pair(), b"").unwrap();
    drop(client);
    assert!(matches!(
        problem(server.wait()),
        ConnectionProblem::Rejected(_) | ConnectionProblem::GaveUp
    ));
    // And the server ends it after it has accepted.
    let (client, request) = ends.request(b"");
    drop(request.accept(ends.queue_pair(), b"").unwrap());
    match client.wait() {
        // It was told first, or was already connected.
        Err(error) => assert!(rejection::<()>(Err(error)).is_by_program()),
        Ok(mut client) => self::ends(&mut client),
    }
}

/// If a queue pair is given up in any way, no message will come, and its waiters learn so.
#[test]
fn what_was_posted_is_flushed_where_no_connection_comes_about() {
    let ends = Ends::new();
    let prepared = || {
        let queue_pair = ends.queue_pair();
        let received = queue_pair.receive(&[]).unwrap();
        (queue_pair, received)
    };
    let is_flushed = |received: transom::Posted| {
        assert_eq!(status(received.wait().unwrap_err()), Status::Flushed);
    };
    let connector = Connector::new(ends.listener.local_address());

    let (queue_pair, received) = prepared();
    drop(connector.clone().private_data(&[0; 55]).connect(queue_pair).unwrap_err());
    is_flushed(received);
    let (queue_pair, received) = prepared();
    drop(connector.connect(queue_pair).unwrap());
    is_flushed(received);
    let (queue_pair, received) = prepared();
    let (client, request) = ends.request(b"");
    drop(request.accept(queue_pair, &[0; 195]).unwrap_err());
    is_flushed(received);
    drop(client);
    let (queue_pair, received) = prepared();
    let (client, request) = ends.request(b"");
    drop(request.accept(queue_pair, b"").unwrap());
    is_flushed(received);
    drop(client);
    let (queue_pair, received) = prepared();
    let nowhere = transom::Endpoint { gid: transom::Gid([0; 16]), ..queue_pair.endpoint() };
    drop(queue_pair.connect(&nowhere).unwrap_err());
    is_flushed(received);
}

#[test]
fn a_request_waits_no_longer_than_is_wanted() {
    let ends = Ends::new();
    let mut accept = ends.listener.accept();
    assert!(accept.try_wait().unwrap().is_none());
    assert!(accept.wait_timeout(Duration::from_millis(1)).unwrap().is_none());
    let (mut client, request) = ends.request(b"");
    // Nobody has accepted it.
    assert!(client.wait_timeout(Duration::from_millis(20)).unwrap().is_none());
    let (client, _server) = both(client, request.accept(ends.queue_pair(), b"").unwrap());
    assert!(!client.has_failed().unwrap());
}

#[test]
fn requests_go_to_many_threads() {
    const MANY: usize = 8;
    let ends = Ends::new();
    thread::scope(|scope| {
        let servers: Vec<_> = (0..MANY)
            .map(|_| {
                scope.spawn(|| {
                    let request = ends.listener.accept().wait().unwrap();
                    let name = request.private_data().to_vec();
                    request.accept(ends.queue_pair(), &name).unwrap().wait().unwrap()
                })
            })
            .collect();
        let clients: Vec<_> = (0..MANY)
            .map(|client| {
                let ends = &ends;
                scope.spawn(move || {
                    let name = format!("client {client}");
                    let connection = ends.connecting(name.as_bytes()).wait().unwrap();
                    assert_eq!(&**connection.private_data(), name.as_bytes());
                    connection
                })
            })
            .collect();
        let clients: Vec<_> = clients.into_iter().map(|thread| thread.join().unwrap()).collect();
        let servers: Vec<_> = servers.into_iter().map(|thread| thread.join().unwrap()).collect();
        drop(clients);
        servers.into_iter().for_each(|mut server| self::ends(&mut server));
    });
}

#[test]
fn connections_are_awaited_without_a_runtime() {
    let ends = Ends::new();
    let connecting = ends.connecting(b"ping");
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            block_on(async {
                let request = ends.listener.accept().await.unwrap();
                assert_eq!(&**request.private_data(), b"ping");
                let mut connection =
                    request.accept(ends.queue_pair(), b"pong").unwrap().await.unwrap();
                connection.disconnection().await.unwrap();
            });
        });
        block_on(async {
            let connection = connecting.await.unwrap();
            assert_eq!(&**connection.private_data(), b"pong");
        });
        server.join().unwrap();
    });
}

/// A reactor gets a descriptor, and must release it when the result has come.
#[test]
fn the_descriptor_is_there_until_what_was_waited_for_is_dropped() {
    let ends = Ends::new();
    let reactor = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let watch = |descriptor: BorrowedFd<'_>| {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&reactor, descriptor, data, epoll::EventFlags::IN).unwrap();
        descriptor.as_raw_fd()
    };
    let (mut client, request) = ends.request(b"");
    let mut server = request.accept(ends.queue_pair(), b"").unwrap();
    let watched = [watch(client.as_fd()), watch(server.as_fd())];
    let connection = client.wait_timeout(TIMEOUT).unwrap().expect("it comes");
    drop((connection, server.wait_timeout(TIMEOUT).unwrap().expect("it comes")));
    for (pending, watched) in [client, server].iter().zip(watched) {
        // Reporting data last is not an error either.
        pending.data_has_come().unwrap();
        assert_eq!(pending.as_fd().as_raw_fd(), watched);
        epoll::delete(&reactor, pending).unwrap();
    }
    // A refused request, and a request about datagrams.
    let (mut client, request) = ends.request(b"");
    watch(client.as_fd());
    request.reject(b"").unwrap();
    rejection(client.wait_timeout(TIMEOUT));
    client.data_has_come().unwrap();
    epoll::delete(&reactor, &client).unwrap();
    let nobody = Connector::new(ends.listener.local_address());
    let mut finding = nobody.find_datagrams(&ends.pd).unwrap();
    watch(finding.as_fd());
    assert!(rejection(finding.wait_timeout(TIMEOUT)).is_no_listener());
    epoll::delete(&reactor, &finding).unwrap();
}

#[test]
fn only_reliable_connections_are_made() {
    let ends = Ends::new();
    let builder = QueuePair::builder(&ends.pd, &ends.cq).service(Service::UnreliableConnection);
    let connector = Connector::new(ends.listener.local_address());
    let error = connector.connect(builder.build().unwrap()).unwrap_err();
    assert_eq!(error, Error::UnreliableConnection);
    let (client, request) = ends.request(b"");
    let error = request.accept(builder.build().unwrap(), b"").unwrap_err();
    assert_eq!(error, Error::UnreliableConnection);
    assert!(rejection(client.wait()).is_by_program());
}

/// In a process of its own, because other tests have descriptors too.
#[test]
fn descriptors_are_given_back() {
    if let Some(end) = alone(path_of!("descriptors_are_given_back"), &[]) {
        return assert_eq!(end, 0);
    }
    let ends = Ends::new();
    // The first connection opens these for good.
    drop(ends.connected());
    let before = descriptors();
    for _ in 0..100 {
        let (client, mut server) = ends.connected();
        drop(client);
        self::ends(&mut server);
        let (_client, request) = ends.request(b"");
        request.reject(b"").unwrap();
    }
    assert_eq!(descriptors(), before);
}

/// The descriptors of event channels: event counters of the software device, or files of the kernel. The number of the
/// device's other descriptors depends on processes that come and go.
fn descriptors() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let is_channel = |target: &std::path::PathBuf| {
        let target = target.to_string_lossy();
        target.contains("eventfd") || target.contains("rdma_cm")
    };
    targets.filter(is_channel).count()
}

/// Rules: CM-30, CM-33
#[test]
fn datagrams_find_their_way_by_address() {
    let Ends { pd, cq, .. } = Ends::new();
    let listener = Listener::datagrams(&provider(), address()).unwrap();
    let builder = QueuePair::datagram(&pd, &cq).qkey(Destination::SERVICE_QKEY);
    let (client, server) = (builder.build().unwrap(), builder.build().unwrap());
    for length in [0, 1, 177, 178] {
        let (there, back) = (vec![b'q'; length], vec![b'a'; length * 134 / 178]);
        let connector = Connector::new(listener.local_address()).private_data(&there);
        let mut finding = connector.find_datagrams(&pd).unwrap();
        let mut accept = listener.accept();
        let request = until(|| {
            assert!(finding.wait_timeout(Duration::from_millis(1)).unwrap().is_none());
            accept.try_wait().unwrap()
        });
        assert_eq!(&**request.private_data(), there);
        request.accept(&server, &back).unwrap();
        let service = finding.wait().unwrap();
        assert_eq!(&*service.private_data, back);
        assert_eq!(service.destination.queue_pair, server.number());

        let inbox = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE).unwrap();
        let received = server.receive(&inbox.all()).unwrap();
        client.send(&service.destination, b"ping").unwrap().wait().unwrap();
        assert_eq!(received.wait().unwrap().to_vec(), b"ping");
    }
}

/// Rules: CM-30, CM-33
#[test]
fn datagrams_are_refused_as_connections_are() {
    let Ends { pd, cq, .. } = Ends::new();
    let listener = Listener::datagrams(&provider(), address()).unwrap();
    let connector = Connector::new(listener.local_address());
    let request = || {
        let mut finding = connector.find_datagrams(&pd).unwrap();
        let mut accept = listener.accept();
        let request = until(|| {
            assert!(finding.wait_timeout(Duration::from_millis(1)).unwrap().is_none());
            accept.try_wait().unwrap()
        });
        (finding, request)
    };
    let (finding, asked) = request();
    asked.reject(b"not now").unwrap();
    let refused = rejection(finding.wait());
    assert!(refused.is_by_program());
    assert_eq!(*refused.private_data, *b"not now");
    let (finding, asked) = request();
    drop(asked);
    assert!(rejection(finding.wait()).is_by_program());
    // With a key that a peer who finds it would not use.
    let (finding, asked) = request();
    let other_key = QueuePair::datagram(&pd, &cq).qkey(1).build().unwrap();
    assert_eq!(asked.accept(&other_key, b"").unwrap_err(), Error::ServiceQkey { given: 1 });
    assert!(rejection(finding.wait()).is_by_program());
    drop(listener);
    assert!(rejection(connector.find_datagrams(&pd).unwrap().wait()).is_no_listener());
}

/// The address of the first process. The test runs itself again with this variable.
const SERVER: &str = "TRANSOM_TEST_SERVER";

#[test]
fn two_processes_connect() {
    if let Some(server) = server() {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 16).unwrap();
        let mut connection = QueuePair::builder(&pd, &cq).connect_to(server).unwrap();
        connection.send(b"hello").unwrap().wait().unwrap();
        ends(&mut connection);
        return;
    }
    let ends_of = Ends::new();
    let mut other = start(path_of!("two_processes_connect"), &ends_of.listener);
    let (connection, inbox, mut message) = serve(&ends_of);
    let message = message.wait_timeout(TIMEOUT).unwrap().expect("a message");
    assert_eq!(message.length(), 5);
    assert_eq!(&bytes_of(&inbox)[..5], b"hello");
    drop(connection);
    assert!(other.wait().unwrap().success());
}

#[test]
fn the_death_of_a_process_ends_its_connections() {
    if let Some(server) = server() {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 16).unwrap();
        let connection = QueuePair::builder(&pd, &cq).connect_to(server).unwrap();
        connection.send(b"hello").unwrap().wait().unwrap();
        // Until it is killed.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    let ends_of = Ends::new();
    let mut other =
        start(path_of!("the_death_of_a_process_ends_its_connections"), &ends_of.listener);
    let (mut connection, _inbox, mut message) = serve(&ends_of);
    message.wait_timeout(TIMEOUT).unwrap().expect("a message");
    assert_eq!(connection.disconnection().try_wait().unwrap(), None);
    other.kill().unwrap();
    other.wait().unwrap();
    ends(&mut connection);
}

/// The connection of the other process, and its first message.
fn serve(ends: &Ends) -> (Connection, MemoryRegion<Vec<u8>>, transom::Posted) {
    let request = ends.listener.accept().wait_timeout(TIMEOUT).unwrap().expect("a request");
    let queue_pair = ends.queue_pair();
    let inbox = MemoryRegion::register(&ends.pd, vec![0; 16], Access::LOCAL_WRITE).unwrap();
    let message = queue_pair.receive(&[inbox.all()]).unwrap();
    let connection = request.accept(queue_pair, b"").unwrap().wait().unwrap();
    (connection, inbox, message)
}

/// Runs a test of this file in another process, as a client of this one.
fn start(test: &str, server: &Listener) -> Child {
    again(test)
        .env(SERVER, server.local_address().to_string())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

/// In the process that `start` started: the address of the other.
fn server() -> Option<SocketAddr> {
    std::env::var(SERVER).ok().map(|address| address.parse().unwrap())
}
