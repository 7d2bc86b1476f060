//! Helpers for all tests: a provider, two parties, and an executor.
//!
//! The tests run on the software device, or on the device of another libibverbs:
//! `TRANSOM_TEST_PROVIDER=/path/to/libibverbs.so.1 cargo test -p transom --tests`. With `--no-default-features` they
//! have only that device.

mod device;
mod ends;
mod faults;

pub(crate) use device::{Departure, departs, need};
pub(crate) use ends::{Ends, both, problem, until};
pub(crate) use faults::{ALONE, TOO_EARLY, alone, has_faults, until_the_device_goes};

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use transom::{
    Access, CompletionQueue, Context, Error, Initialized, MemoryRegion, Posted, ProtectionDomain,
    Provider, QueuePair, Service, Status,
};

/// The path of a test of the calling module. The program of the tests finds it by this path.
macro_rules! path_of {
    ($name:literal) => {
        concat!(module_path!(), "::", $name)
    };
}

pub(crate) use path_of;

/// A command that runs the test of this path again, alone in a process.
pub(crate) fn again(test: &str) -> Command {
    let (_crate, name) = test.split_once("::").expect("the path of a test");
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", name]);
    again
}

/// Longer than any step here takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// A thread, by the system's number.
pub(crate) fn this_thread() -> rustix::process::Pid {
    rustix::thread::gettid()
}

/// Waits until a thread of this process sleeps. If it does not, this ends the whole process. Otherwise a thread that
/// waits for a later step, and so the test, would wait forever.
pub(crate) fn until_asleep(thread: rustix::process::Pid) {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let begun = std::time::Instant::now();
    // The state follows the name, which may have any characters.
    let is_asleep = |stat: String| stat.rsplit(") ").next().is_some_and(|it| it.starts_with('S'));
    while !is_asleep(std::fs::read_to_string(&path).unwrap()) {
        if begun.elapsed() > TIMEOUT {
            eprintln!("it does not sleep");
            std::process::abort();
        }
        thread::yield_now();
    }
}

/// The provider that the tests run on.
pub(crate) fn provider() -> Provider {
    match std::env::var_os("TRANSOM_TEST_PROVIDER") {
        // SAFETY: the user who sets the variable names a libibverbs.
        Some(path) => unsafe { Provider::open(path) }.unwrap(),
        #[cfg(feature = "software")]
        None => Provider::software(),
        #[cfg(not(feature = "software"))]
        None => panic!("no device is linked in: have TRANSOM_TEST_PROVIDER name a libibverbs"),
    }
}

/// A context of the provider's first device.
pub(crate) fn context() -> Context {
    transom::devices(&provider()).unwrap().first().expect("a device").open().unwrap()
}

/// An address of the tested device. By default it is the loopback address. The environment can set another for
/// adapters, which have no loopback address.
pub(crate) fn address() -> SocketAddr {
    let text = std::env::var("TRANSOM_TEST_ADDRESS");
    SocketAddr::new(text.map_or([127, 0, 0, 1].into(), |text| text.parse().unwrap()), 0)
}

/// Two connected parties in one process, each with a context, a domain and a queue of its own.
pub(crate) struct Pair {
    pub(crate) owner: Party,
    pub(crate) peer: Party,
}

pub(crate) struct Party {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with_service(Service::ReliableConnection)
    }

    pub(crate) fn with_service(service: Service) -> Self {
        let domain = || ProtectionDomain::new(&context()).unwrap();
        let (owner, peer) = connect(&domain(), &domain(), service);
        Self { owner, peer }
    }

    /// Two more parties, of one domain.
    pub(crate) fn within(pd: &ProtectionDomain) -> (Party, Party) {
        connect(pd, pd, Service::ReliableConnection)
    }
}

fn connect(a: &ProtectionDomain, b: &ProtectionDomain, service: Service) -> (Party, Party) {
    let (queue_a, queue_b) = (queue(&a.context()), queue(&b.context()));
    let qp_a = QueuePair::builder(a, &queue_a).service(service).build().unwrap();
    let qp_b = QueuePair::builder(b, &queue_b).service(service).build().unwrap();
    let (at_a, at_b) = (qp_a.endpoint(), qp_b.endpoint());
    let party = |qp: QueuePair<Initialized>, at, cq, pd: &ProtectionDomain| {
        let (pd, context) = (pd.clone(), pd.context());
        Party { qp: qp.connect(at).unwrap(), cq, pd, context }
    };
    (party(qp_a, &at_b, queue_a, a), party(qp_b, &at_a, queue_b, b))
}

fn queue(context: &Context) -> CompletionQueue {
    CompletionQueue::new(context, 256).unwrap()
}

impl Party {
    /// Registers zeroes for all local uses.
    pub(crate) fn local(&self, length: usize) -> MemoryRegion<Vec<u8>> {
        MemoryRegion::register(&self.pd, vec![0; length], Access::LOCAL_WRITE).unwrap()
    }

    /// Registers the bytes for windows of every right.
    pub(crate) fn bindable(&self, bytes: &[u8]) -> MemoryRegion<Vec<u8>> {
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        MemoryRegion::register(&self.pd, bytes.to_vec(), access).unwrap()
    }
}

/// The bytes of a region.
pub(crate) fn bytes_of(region: &MemoryRegion<Vec<u8>>) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read_at(0, &mut bytes).unwrap();
    bytes
}

/// The error of a failed request.
pub(crate) fn status(error: Error) -> Status {
    match error {
        Error::Work(error) => error.status,
        other => panic!("not a failed request: {other}"),
    }
}

/// The status of a posted request that fails.
pub(crate) fn failure(posted: transom::Result<Posted>) -> Status {
    status(posted.unwrap().wait().expect_err("a failing request"))
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
