//! Two processes: what one grants the other uses, until it is revoked.

mod common;

use common::{Party, bytes_of, context, failure};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use transom::{
    CompletionQueue, Endpoint, Grant, ProtectionDomain, QueuePair, Rights, Status, Type2, Window,
};

/// Where the second process finds the first; the test runs itself again with this set.
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
    let (mut other, mut channel) = start("a_killed_peer_is_noticed");
    let peer = connect(&mut channel);
    let grant: Grant = channel.hear();
    peer.qp.write(b"alive", grant).unwrap().wait().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(failure(peer.qp.write(b"dead", grant)), Status::RetryExceeded);
    assert!(peer.qp.has_failed().unwrap());
}

/// Runs a test of this file in another process, connected to this one.
fn start(test: &str) -> (Child, Channel) {
    let path = std::env::temp_dir().join(format!("transom-{test}-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(SOCKET, &path)
        .spawn()
        .unwrap();
    let channel = Channel::new(listener.accept().unwrap().0);
    std::fs::remove_file(&path).unwrap();
    (child, channel)
}

/// In the process that `start` started: the way to the other.
fn the_other_process() -> Option<Channel> {
    std::env::var_os(SOCKET).map(|path| Channel::new(UnixStream::connect(path).unwrap()))
}

fn be_the_owner() {
    let (mut peer, mut channel) =
        start("a_window_reaches_into_another_process_until_it_is_revoked");
    let owner = connect(&mut channel);
    let region = owner.bindable(&[b'.'; 64]);
    let open = |window: Window<Type2>| {
        let memory = region.slice(8..40).unwrap();
        let rights = Rights::READ | Rights::WRITE;
        window.bind(&owner.qp, &memory, rights).unwrap().wait().unwrap()
    };

    // Used, and invalidated by the peer.
    let window = open(Window::alloc(&owner.pd).unwrap());
    let farewell = owner.qp.receive(&[]).unwrap();
    channel.tell(&window.grant());
    let window = window.revoked_by(&farewell.wait().unwrap()).unwrap();
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

/// Connects a queue pair to the one of the other process.
fn connect(channel: &mut Channel) -> Party {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 64).unwrap();
    let qp = QueuePair::builder(&pd, &cq).build().unwrap();
    channel.tell(&qp.endpoint());
    let qp = qp.connect(&channel.hear::<Endpoint>()).unwrap();
    // Both must be connected before either sends.
    channel.tell(&"connected");
    assert_eq!(channel.hear::<String>(), "connected");
    Party { qp, cq, pd, context }
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
