//! Connections with faults: peers that do not answer, lost messages, a device that goes away. Each test runs in a
//! process of its own, which has the faults. Only the software device has them.

use crate::common::{
    ALONE, TIMEOUT, TOO_EARLY, alone, block_on, bytes_of, has_faults, need, path_of, provider,
    until_the_device_goes,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::time::Duration;
use transom::{
    Access, AsyncEventKind, CompletionQueue, Connection, ConnectionProblem, Connector, Context,
    Error, Initialized, Listener, MemoryRegion, Pending, ProtectionDomain, QueuePair, Result,
};

struct Ends {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    listener: Listener,
}

impl Ends {
    fn new() -> Result<Self> {
        let context = transom::devices(&provider())?.first().expect("a device").open()?;
        let pd = ProtectionDomain::new(&context)?;
        let cq = CompletionQueue::new(&context, 16)?;
        let listener = Listener::bind(&provider(), SocketAddr::from(([127, 0, 0, 1], 0)))?;
        Ok(Self { context, pd, cq, listener })
    }

    fn queue_pair(&self) -> Result<QueuePair<Initialized>> {
        QueuePair::builder(&self.pd, &self.cq).build()
    }

    fn connecting(&self) -> Result<Pending<'static, Connection>> {
        Connector::new(self.listener.local_address()).connect(self.queue_pair()?)
    }

    /// Both ends of a connection that is being made: the client's, and that of the server, which has accepted.
    fn accepted(&self) -> Result<[Pending<'static, Connection>; 2]> {
        let mut client = self.connecting()?;
        let mut accept = self.listener.accept();
        loop {
            assert!(client.try_wait()?.is_none());
            if let Some(request) = accept.wait_timeout(Duration::from_millis(1))? {
                return Ok([client, request.accept(self.queue_pair()?, b"")?]);
            }
        }
    }
}

fn problem<T>(result: Result<T>) -> ConnectionProblem {
    match result.err().expect("no connection") {
        Error::Connection(error) => error.problem,
        other => panic!("{other}"),
    }
}

/// Rules: CM-14, CM-43
#[test]
fn who_does_not_answer_is_unreachable() {
    need!(has_faults(), "no faults can be had");
    let environment = [("TRANSOM_FAULT", "drop,op=req"), ("TRANSOM_CONNECT_TIMEOUT", "100")];
    if let Some(end) = alone(path_of!("who_does_not_answer_is_unreachable"), &environment) {
        return assert_eq!(end, 0);
    }
    let ends = Ends::new().unwrap();
    let ConnectionProblem::Unreachable { after } = problem(ends.connecting().unwrap().wait())
    else {
        panic!("it is reached");
    };
    assert!(Duration::from_millis(100) <= after && after < TIMEOUT, "{after:?}");
}

#[track_caller]
fn is_no_device(error: &Error) {
    assert_eq!(error.errno(), Some(rustix::io::Errno::NODEV.raw_os_error()), "{error}");
}

/// The peer's confirmation is lost, and its message confirms the connection instead.
///
/// Rules: CM-47
#[test]
fn data_that_come_before_the_confirmation_confirm() {
    need!(has_faults(), "no faults can be had");
    const TEST: &str = path_of!("data_that_come_before_the_confirmation_confirm");
    // The confirmation comes only with the peer's data.
    if let Some(end) = alone(TEST, &[("TRANSOM_FAULT", "drop,op=rtu")]) {
        return assert_eq!(end, 0);
    }
    let ends = Ends::new().unwrap();
    let mut client = ends.connecting().unwrap();
    // Only this end can confirm.
    let error = client.data_has_come().unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::INVAL.raw_os_error()), "{error}");
    let mut accept = ends.listener.accept();
    let request = loop {
        assert!(client.try_wait().unwrap().is_none());
        if let Some(request) = accept.wait_timeout(Duration::from_millis(1)).unwrap() {
            break request;
        }
    };
    let queue_pair = ends.queue_pair().unwrap();
    let inbox = MemoryRegion::register(&ends.pd, vec![0; 16], Access::LOCAL_WRITE).unwrap();
    let message = queue_pair.receive(&[inbox.all()]).unwrap();
    let mut server = request.accept(queue_pair, b"").unwrap();
    let client = client.wait().unwrap();
    client.send(b"over the transom").unwrap().wait().unwrap();
    assert_eq!(message.wait().unwrap().length(), 16);
    assert_eq!(bytes_of(&inbox), b"over the transom");
    assert!(server.try_wait().unwrap().is_none());
    server.data_has_come().unwrap();
    // One call is enough, and more do no harm.
    server.data_has_come().unwrap();
    let established = server.try_wait().unwrap().expect("it is there");
    // Nor if a waiting thread was quicker.
    server.data_has_come().unwrap();
    let server = established;
    let empty = client.receive(&[]).unwrap();
    server.send(b"").unwrap().wait().unwrap();
    assert_eq!(empty.wait().unwrap().length(), 0);
}

/// Rules: AE-09, CM-46
#[test]
fn everybody_hears_of_a_device_that_goes() {
    need!(has_faults(), "no faults can be had");
    let test = path_of!("everybody_hears_of_a_device_that_goes");
    if std::env::var_os(ALONE).is_none() {
        return assert_eq!(until_the_device_goes(test), 0);
    }
    let all = || -> Result<_> {
        let ends = Ends::new()?;
        let [mut client, mut server] = ends.accepted()?;
        let connection = loop {
            if let Some(connection) = client.wait_timeout(Duration::from_millis(1))? {
                break [connection, server.wait_timeout(TIMEOUT)?.expect("it is there")];
            }
        };
        let mut asks = ends.connecting()?;
        let request = loop {
            assert!(asks.try_wait()?.is_none());
            if let Some(it) = ends.listener.accept().wait_timeout(Duration::from_millis(1))? {
                break it;
            }
        };
        Ok((ends, connection, asks, request))
    };
    let Ok((ends, connection, asks, request)) = all() else { std::process::exit(TOO_EARLY) };
    assert_eq!(problem(asks.wait()), ConnectionProblem::DeviceRemoved);
    let event = ends.context.async_event(TIMEOUT).unwrap().expect("it is told");
    assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
    for mut end in connection {
        assert_eq!(end.disconnection().wait_timeout(TIMEOUT).unwrap(), Some(()));
        assert!(end.send(b"nobody").is_err());
    }
    assert!(request.reject(b"").is_err());
    for _ in 0..2 {
        is_no_device(&ends.listener.accept().wait().unwrap_err());
    }
    is_no_device(&ends.listener.accept().try_wait().unwrap_err());
}

/// One of several waiters takes the event, and no other may wait in vain.
///
/// Rules: CM-46
#[test]
fn all_who_wait_at_a_listener_hear_of_a_device_that_goes() {
    need!(has_faults(), "no faults can be had");
    let test = path_of!("all_who_wait_at_a_listener_hear_of_a_device_that_goes");
    if std::env::var_os(ALONE).is_none() {
        return assert_eq!(until_the_device_goes(test), 0);
    }
    let Ok(ends) = Ends::new() else { std::process::exit(TOO_EARLY) };
    let listener = &ends.listener;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| is_no_device(&listener.accept().wait().unwrap_err()));
            scope.spawn(|| is_no_device(&block_on(listener.accept()).unwrap_err()));
        }
    });
    // Reactors see it too, whenever they look.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    for _ in 0..2 {
        let mut descriptors = [PollFd::new(listener, PollFlags::IN)];
        assert_eq!(poll(&mut descriptors, Some(&now)), Ok(1));
        is_no_device(&listener.accept().try_wait().unwrap_err());
    }
}
