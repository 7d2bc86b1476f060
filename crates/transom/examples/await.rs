//! Awaits completions without an async runtime.
//!
//! ```sh
//! cargo run -p transom --example await             # on the software device
//! cargo run -p transom --example await -- system   # on a device of the system's libibverbs
//! ```
//!
//! Requests are futures that any executor can poll. Here the executor is the dozen lines at the end, and a `Driver`
//! delivers the completions. A runtime with a reactor can instead watch the completion queue's descriptor and call
//! `handle_events`.

mod device;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use transom::{
    Access, CompletionQueue, Connected, Driver, Grant, MemoryRegion, ProtectionDomain, QueuePair,
    Result, Rights, Type2, Window,
};

fn main() -> Result<()> {
    let context = device::open()?;
    let pd = ProtectionDomain::new(&context)?;
    // Each party has a queue and a thread to drive it.
    let (queue_a, queue_b) =
        (CompletionQueue::new(&context, 64)?, CompletionQueue::new(&context, 64)?);
    let _drivers = [Driver::new(&queue_a)?, Driver::new(&queue_b)?];
    let a = QueuePair::builder(&pd, &queue_a).build()?;
    let b = QueuePair::builder(&pd, &queue_b).build()?;
    let (at_a, at_b) = (a.endpoint(), b.endpoint());
    let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);

    let serving = {
        let pd = pd.clone();
        thread::spawn(move || block_on(serve(&pd, &a)))
    };
    block_on(visit(&pd, &b))?;
    serving.join().expect("serving does not panic")
}

/// Grants a window, and waits until the visitor has used and invalidated it.
async fn serve(pd: &ProtectionDomain, visitor: &QueuePair<Connected>) -> Result<()> {
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = MemoryRegion::register(pd, vec![0; 4096], access)?;
    let window = Window::<Type2>::alloc(pd)?;
    let window = window.bind(visitor, &region.slice(100..119)?, Rights::WRITE)?.await?;

    let farewell = visitor.receive(&[])?;
    visitor.send(&window.grant().to_bytes())?.await?;
    let _window = window.revoked_by(&farewell.await?)?;
    println!("the visitor gave the window back");

    let buffer = region.deregister()?;
    println!("the visitor left {:?}", String::from_utf8_lossy(&buffer[100..119]));
    Ok(())
}

/// Receives a grant, writes through it, and gives it back.
async fn visit(pd: &ProtectionDomain, host: &QueuePair<Connected>) -> Result<()> {
    let inbox = MemoryRegion::register(pd, vec![0; Grant::BYTES], Access::LOCAL_WRITE)?;
    host.receive(&[inbox.all()])?.await?;
    let mut bytes = [0; Grant::BYTES];
    inbox.read_at(0, &mut bytes)?;
    let grant = Grant::from_bytes(&bytes)?;
    println!("granted {grant}");

    host.write(b"I was here, awaited", grant)?.await?;
    host.send_invalidate(b"", grant.rkey)?.await?;
    Ok(())
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
