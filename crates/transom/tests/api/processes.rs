//! Two processes: one grants memory, and the other uses it until the grant is revoked.

use crate::common::{
    Departure, Party, TIMEOUT, again, bytes_of, context, departs, failure, path_of, status,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;
use std::time::{Duration, Instant};
use transom::{
    Access, AddressHandle, CompletionQueue, Destination, Endpoint, Grant, Initialized,
    MemoryRegion, ProtectionDomain, QueuePair, Rights, SharedReceiveQueue, Status, Type2, Window,
};

/// The address of the first process. The test runs itself again with this variable.
const SOCKET: &str = "TRANSOM_TEST_SOCKET";

/// Rules: T2-13, INV-01, INV-30, RA-41, RA-44
#[test]
fn a_window_reaches_into_another_process_until_it_is_revoked() {
    match the_other_process() {
        Some(channel) => be_the_peer(channel),
        None => be_the_owner(),
    }
}

#[test]
fn a_killed_peer_is_noticed() {
    if let Some(mut channel) = the_other_process() {
        let owner = connect(&mut channel);
        let region = owner.bindable(&[0; 8]);
        let window = Window::<Type2>::alloc(&owner.pd).unwrap();
        let binding = window.bind(&owner.qp, &region.all(), Rights::WRITE).unwrap();
        let window = binding.wait().unwrap();
        channel.tell(&window.grant());
        channel.hear::<String>();
        return;
    }
    let (mut other, mut channel) = start(path_of!("a_killed_peer_is_noticed"));
    let peer = connect(&mut channel);
    let grant: Grant = channel.hear();
    peer.qp.write(b"alive", grant).unwrap().wait().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(failure(peer.qp.write(b"dead", grant)), Status::RetryExceeded);
    assert!(peer.qp.has_failed().unwrap());
}

/// If a queue pair is destroyed while a message fills its receive of a shared queue, the receive still comes back. Its
/// memory then belongs to the program alone.
#[test]
fn a_shared_receive_in_use_comes_back_when_its_queue_pair_goes() {
    // Long, so that it takes a while.
    let length = (64 << 20).min(context().port(1).unwrap().max_message as usize);
    if let Some(mut channel) = the_other_process() {
        let sender = connect(&mut channel);
        let from = MemoryRegion::register(&sender.pd, vec![1; length], Access::empty()).unwrap();
        assert_eq!(channel.hear::<String>(), "posted");
        let sent = sender.qp.send(&[from.all()]).unwrap();
        let outcome = sent.wait();
        channel.tell(&outcome.is_ok());
        return;
    }
    let (mut other, mut channel) =
        start(path_of!("a_shared_receive_in_use_comes_back_when_its_queue_pair_goes"));
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 64).unwrap();
    let shared = SharedReceiveQueue::new(&pd, &cq, 4, 1).unwrap();
    let qp = QueuePair::builder(&pd, &cq).shared_receives(&shared).build().unwrap();
    let qp = connect_to(&mut channel, qp);
    let region = MemoryRegion::register(&pd, vec![0; length], Access::LOCAL_WRITE).unwrap();
    let mut posted = shared.receive(&[region.all()]).unwrap();
    channel.tell(&"posted");
    // Until the first bytes are there.
    let (mut byte, begun) = ([0], Instant::now());
    while byte == [0] {
        assert!(begun.elapsed() < TIMEOUT, "nothing comes");
        cq.wait(Duration::from_millis(1)).unwrap();
        region.read_at(0, &mut byte).unwrap();
    }
    drop(qp);
    match posted.wait_timeout(TIMEOUT) {
        Ok(None) if departs(&context, Departure::ReceiveGoesWithQueuePair) => return,
        Ok(completion) => assert_eq!(completion.expect("it comes back").length(), length),
        Err(error) => assert_eq!(status(error), Status::Flushed),
    }
    region.deregister().unwrap();
    channel.hear::<bool>();
    assert!(other.wait().unwrap().success());
}

#[test]
fn datagrams_pass_between_processes() {
    const QKEY: u32 = 0x77;
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 64).unwrap();
    let qp = QueuePair::datagram(&pd, &cq).qkey(QKEY).build().unwrap();
    let inbox = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE).unwrap();
    let mut received = qp.receive(&inbox.all()).unwrap();
    // Both waits have a limit: the other may have failed.
    let mut next = || received.wait_timeout(TIMEOUT).unwrap().expect("a datagram");
    if let Some(mut channel) = the_other_process() {
        channel.tell(&qp.endpoint());
        let ping = next();
        assert_eq!(ping.to_vec(), b"ping");
        qp.send(&ping.sender(&qp, QKEY).unwrap(), b"pong").unwrap().wait().unwrap();
        channel.hear::<String>();
        return;
    }
    let (mut other, mut channel) = start(path_of!("datagrams_pass_between_processes"));
    let at_other: Endpoint = channel.hear();
    let address = AddressHandle::new(&pd, at_other).unwrap();
    let to = Destination { address, queue_pair: at_other.qpn, qkey: QKEY };
    qp.send(&to, b"ping").unwrap().wait().unwrap();
    let pong = next();
    assert_eq!((pong.to_vec(), pong.source().queue_pair), (b"pong".into(), at_other.qpn));
    channel.tell(&"got it");
    assert!(other.wait().unwrap().success());
}

/// Runs a test of this file in another process, connected to this one.
fn start(test: &str) -> (Child, Channel) {
    let name = test.rsplit("::").next().expect("a name");
    let path = std::env::temp_dir().join(format!("transom-{name}-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let child = again(test).env(SOCKET, &path).spawn().unwrap();
    let channel = Channel::new(listener.accept().unwrap().0);
    std::fs::remove_file(&path).unwrap();
    (child, channel)
}

/// In the process that `start` started: the connection to the other.
fn the_other_process() -> Option<Channel> {
    std::env::var_os(SOCKET).map(|path| Channel::new(UnixStream::connect(path).unwrap()))
}

fn be_the_owner() {
    let (mut peer, mut channel) =
        start(path_of!("a_window_reaches_into_another_process_until_it_is_revoked"));
    let owner = connect(&mut channel);
    let region = owner.bindable(&[b'.'; 64]);
    let open = |window: Window<Type2>| {
        let memory = region.slice(8..40).unwrap();
        let rights = Rights::READ | Rights::WRITE;
        window.bind(&owner.qp, &memory, rights).unwrap().wait().unwrap()
    };

    // Used, and invalidated by the peer.
    let window = open(Window::alloc(&owner.pd).unwrap());
    let mut farewell = owner.qp.receive(&[]).unwrap();
    channel.tell(&window.grant());
    // With a limit: the peer may have failed.
    let farewell = farewell.wait_timeout(TIMEOUT).unwrap().expect("a farewell");
    let window = match departs(&owner.context, Departure::InvalidatedKeyUnnamed) {
        true => Window::alloc(&owner.pd).unwrap(),
        false => window.revoked_by(&farewell).unwrap(),
    };
    assert_eq!(&bytes_of(&region)[..32], b"........over the transom........");

    // Granted once more, and invalidated here.
    let window = open(window);
    let grant = window.grant();
    let window = window.invalidate(&owner.qp).unwrap().wait().unwrap();
    channel.tell(&grant);
    assert_eq!(channel.hear::<String>(), "refused");
    assert_eq!(&bytes_of(&region)[..32], b"........over the transom........");
    drop(window);
    assert!(peer.wait().unwrap().success());
}

fn be_the_peer(mut channel: Channel) {
    let peer = connect(&mut channel);
    let local = peer.local(16);

    let grant: Grant = channel.hear();
    peer.qp.write(b"over the transom", grant).unwrap().wait().unwrap();
    peer.qp.read(&[local.all()], grant).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&local), b"over the transom");
    peer.qp.send_invalidate(b"", grant.rkey).unwrap().wait().unwrap();

    let stale: Grant = channel.hear();
    assert_eq!(failure(peer.qp.write(b"under the carpet", stale)), Status::RemoteAccess);
    channel.tell(&"refused");
}

/// Connects a queue pair to that of the other process.
fn connect(channel: &mut Channel) -> Party {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 64).unwrap();
    let qp = QueuePair::builder(&pd, &cq).build().unwrap();
    Party { qp: connect_to(channel, qp), cq, pd, context }
}

fn connect_to(channel: &mut Channel, qp: QueuePair<Initialized>) -> QueuePair {
    channel.tell(&qp.endpoint());
    let qp = qp.connect(&channel.hear::<Endpoint>()).unwrap();
    // Both must be connected before either sends.
    channel.tell(&"connected");
    assert_eq!(channel.hear::<String>(), "connected");
    qp
}

/// Plain values, one a line, as JSON.
struct Channel {
    stream: BufReader<UnixStream>,
}

impl Channel {
    fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    fn tell<T: Serialize>(&mut self, value: &T) {
        let line = serde_json::to_string(value).unwrap() + "\n";
        self.stream.get_mut().write_all(line.as_bytes()).unwrap();
    }

    fn hear<T: DeserializeOwned>(&mut self) -> T {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}
