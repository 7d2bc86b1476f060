//! Extended reliable connections.

use crate::common::{context, failure, need};
use std::fs::File;
use std::sync::Arc;
use transom::{
    Access, CompletionQueue, Context, Endpoint, Error, MemoryRegion, Pages, ProtectionDomain,
    QueuePair, RemoteSlice, Request, SharedReceiveQueue, Status, XrcDomain, XrcInitiator,
    XrcTarget,
};

/// The receiving side: a target, and the objects for its shared receive queues.
struct Server {
    target: QueuePair<XrcTarget>,
    domain: XrcDomain,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

impl Server {
    fn new() -> Self {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64).unwrap();
        let domain = XrcDomain::private(&context).unwrap();
        let target = QueuePair::xrc_target(&domain).build().unwrap();
        Self { target, domain, cq, pd, context }
    }

    fn shared(&self) -> SharedReceiveQueue<XrcTarget> {
        SharedReceiveQueue::xrc(&self.pd, &self.cq, &self.domain, 8, 2).unwrap()
    }

    /// A client that is connected to the target, in a context of its own.
    fn accept(&self) -> (QueuePair<XrcInitiator>, ProtectionDomain) {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let client = connect(&pd, &self.target, &self.target.endpoint());
        (client, pd)
    }

    fn region(&self, bytes: &[u8], access: Access) -> MemoryRegion<Vec<u8>> {
        MemoryRegion::register(&self.pd, bytes.to_vec(), access).unwrap()
    }
}

fn connect(
    pd: &ProtectionDomain,
    target: &QueuePair<XrcTarget>,
    at: &Endpoint,
) -> QueuePair<XrcInitiator> {
    let cq = CompletionQueue::new(&pd.context(), 64).unwrap();
    let initiator = QueuePair::xrc_initiator(pd, &cq).batches().atomic_writes().build().unwrap();
    target.connect(&initiator.endpoint()).unwrap();
    initiator.connect(at).unwrap()
}

#[test]
fn one_connection_reaches_many_shared_queues() {
    need!(context().attributes().unwrap().xrc, "the device has no XRC");
    let server = Server::new();
    assert!(server.context.attributes().unwrap().xrc);
    let (client, _pd) = server.accept();
    let region = server.region(&[0; 64], Access::LOCAL_WRITE);
    let queues: Vec<_> = (0..4).map(|_| server.shared()).collect();
    let part = |index: usize| region.slice(index * 16..index * 16 + 16).unwrap();
    let receive = |(index, queue): (_, &SharedReceiveQueue<XrcTarget>)| {
        queue.receive(&[part(index)]).unwrap()
    };
    let received: Vec<_> = queues.iter().enumerate().map(receive).collect();
    for (index, queue) in queues.iter().enumerate().rev() {
        let text = [b'a' + index as u8; 3];
        client.send(queue.number().unwrap(), &text).unwrap().wait().unwrap();
    }
    for (index, posted) in received.into_iter().enumerate() {
        let completion = posted.wait().unwrap();
        assert_eq!((completion.length(), completion.queue_pair()), (3, server.target.number()));
        let mut bytes = [0; 3];
        part(index).read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [b'a' + index as u8; 3]);
    }
}

#[test]
fn what_consumes_no_receive_uses_the_queues_domain() {
    need!(context().attributes().unwrap().xrc, "the device has no XRC");
    let server = Server::new();
    let (client, pd) = server.accept();
    let number = server.shared();
    let number = number.number().unwrap();
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let region = server.region(&[0; 16], access);
    let local = MemoryRegion::register(&pd, vec![0; 16], Access::LOCAL_WRITE).unwrap();
    client
        .post(number, Request::write(b"\x01\0\0\0\0\0\0\0", region.grant()))
        .unwrap()
        .wait()
        .unwrap();
    let (word, word_local) = (region.grant().slice(0..8).unwrap(), local.slice(0..8).unwrap());
    client.post(number, Request::fetch_add(&word_local, word, 41)).unwrap().wait().unwrap();
    let all = [local.slice(8..16).unwrap()];
    client.post(number, Request::read(&all, word)).unwrap().wait().unwrap();
    let mut bytes = [0; 16];
    local.read_at(0, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[8]), (1, 42));
    let nowhere = RemoteSlice { addr: 1, rkey: region.grant().rkey ^ 1, length: 8 };
    assert_eq!(failure(client.post(number, Request::write(b"x", nowhere))), Status::RemoteAccess);
}

#[test]
fn a_batch_reaches_several_shared_queues() {
    need!(context().attributes().unwrap().xrc, "the device has no XRC");
    let server = Server::new();
    let (client, _pd) = server.accept();
    let queues = [server.shared(), server.shared()];
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = server.region(&[0; 24], access);
    let parts = [region.slice(0..8).unwrap(), region.slice(8..16).unwrap()];
    let word = region.grant().slice(16..24).unwrap();
    let received: Vec<_> = queues
        .iter()
        .zip(&parts)
        .map(|(queue, part)| queue.receive(std::slice::from_ref(part)).unwrap())
        .collect();
    let numbers = queues.each_ref().map(|queue| queue.number().unwrap());
    let posted = client
        .batch()
        .push(numbers[0], Request::atomic_write(b"all of 8", word))
        .push(numbers[1], Request::send(b"second"))
        .push(numbers[0], Request::send_immediate(b"first", 9))
        .post()
        .unwrap();
    for request in posted {
        request.wait().unwrap();
    }
    let received: Vec<_> = received.into_iter().map(|posted| posted.wait().unwrap()).collect();
    assert_eq!((received[0].length(), received[0].immediate()), (5, Some(9)));
    assert_eq!((received[1].length(), received[1].immediate()), (6, None));
    drop(parts);
    let bytes = region.deregister().unwrap();
    assert_eq!(bytes, b"first\0\0\0second\0\0all of 8");
}

#[test]
fn a_file_names_a_domain_for_several_contexts() {
    need!(context().attributes().unwrap().xrc, "the device has no XRC");
    let path = std::env::temp_dir().join(format!("transom-xrc-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    let (a, b) = (context(), context());
    let domain = XrcDomain::of_file(&a, &file).unwrap();
    let again = XrcDomain::of_file(&b, File::open(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();

    let pd = ProtectionDomain::new(&b).unwrap();
    let cq = CompletionQueue::new(&b, 64).unwrap();
    let shared = SharedReceiveQueue::xrc(&pd, &cq, &again, 8, 2).unwrap();
    let region = MemoryRegion::register(&pd, vec![0; 16], Access::LOCAL_WRITE).unwrap();
    let received = shared.receive(&[region.all()]).unwrap();
    let target = QueuePair::xrc_target(&domain).build().unwrap();
    let client = connect(&pd, &target, &target.endpoint());
    client.send(shared.number().unwrap(), b"by the file").unwrap().wait().unwrap();
    assert_eq!(received.wait().unwrap().length(), 11);
}

#[test]
fn a_shared_queue_of_another_domain_is_not_reached() {
    need!(context().attributes().unwrap().xrc, "the device has no XRC");
    let server = Server::new();
    let (client, _pd) = server.accept();
    let elsewhere = XrcDomain::private(&server.context).unwrap();
    let shared = SharedReceiveQueue::xrc(&server.pd, &server.cq, &elsewhere, 8, 2).unwrap();
    let mut received = shared.receive(&[]).unwrap();
    let sent = client.send(shared.number().unwrap(), b"").unwrap();
    assert!(sent.wait().is_err());
    assert!(received.try_wait().unwrap().is_none());
}

#[test]
fn what_does_not_belong_together_is_refused() {
    need!(context().attributes().unwrap().xrc, "the device has no XRC");
    let (server, other) = (Server::new(), Server::new());
    let error = SharedReceiveQueue::xrc(&server.pd, &server.cq, &other.domain, 8, 2).unwrap_err();
    assert_eq!(error, Error::OtherContext { what: "XRC domain" });
    let (_client, _pd) = server.accept();
    let again = server.target.connect(&server.target.endpoint()).unwrap_err();
    assert!(matches!(again, Error::Verb { verb: "ibv_modify_qp", .. }), "{again}");
}

/// In any order of the handles' drops, a posted buffer stays until its shared queue is gone.
#[test]
fn a_posted_buffer_goes_with_its_shared_queue() {
    need!(context().attributes().unwrap().xrc, "the device has no XRC");
    let server = Server::new();
    let (client, _pd) = server.accept();
    let shared = server.shared();
    let pages = Arc::new(Pages::new(4096).unwrap());
    let region = MemoryRegion::register(&server.pd, pages.clone(), Access::LOCAL_WRITE).unwrap();
    let posted = shared.receive(&[region.all()]).unwrap();
    drop(shared.receive(&[region.all()]).unwrap());
    let Server { target, domain, cq, pd, context } = server;
    drop((region, domain, cq, pd, context));
    client.send(shared.number().unwrap(), b"still").unwrap().wait().unwrap();
    drop(target);
    assert_eq!(posted.wait().unwrap().length(), 5);
    assert_eq!(Arc::strong_count(&pages), 2);
    drop(shared);
    assert_eq!(Arc::strong_count(&pages), 1);
    drop(client);
}
