//! The descriptors that reactors watch.

use crate::common::{address, context, provider};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use transom::{CompletionQueue, Listener, ProtectionDomain, QueuePair};

/// Some reactors take one form, some the other.
#[test]
fn all_that_can_be_watched_has_one_descriptor() {
    fn watched(what: &(impl AsFd + AsRawFd)) {
        let number = what.as_raw_fd();
        assert_eq!((number, what.as_raw_fd()), (what.as_fd().as_raw_fd(), number));
        rustix::io::fcntl_getfd(what).expect("it is open");
    }

    let context = context();
    watched(&context);
    let pd = ProtectionDomain::new(&context).unwrap();
    let queue = CompletionQueue::new(&context, 16).unwrap();
    watched(&queue);
    let listener = Listener::bind(&provider(), address()).unwrap();
    watched(&listener);
    let builder = QueuePair::builder(&pd, &queue);
    let (at, queue_pair) = (listener.local_address(), builder.build().unwrap());
    let client = thread::spawn(move || builder.connect_to(at).unwrap());
    let accept = listener.accept();
    watched(&accept);
    let server = accept.wait().unwrap().accept(queue_pair, b"").unwrap();
    watched(&server);
    watched(&server.wait().unwrap());
    watched(&client.join().unwrap());
}
