//! A server whose clients share their receives.
//!
//! ```sh
//! cargo run -p transom --example shared_receives             # on the software device
//! cargo run -p transom --example shared_receives -- system   # on a device of the system's libibverbs
//! ```
//!
//! Eight clients share four buffers. If each client had its own receive queue, each would need its own buffers, even
//! while it is idle.

mod device;

use std::collections::{HashMap, VecDeque};
use transom::{
    Access, CompletionQueue, Context, Initialized, MemoryRegion, Posted, ProtectionDomain,
    QueuePair, Result, SharedReceiveQueue, Slice,
};

const CLIENTS: usize = 8;
const BUFFERS: usize = 4;
const LENGTH: usize = 32;

fn main() -> Result<()> {
    let context = device::open()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 256)?;
    let shared = SharedReceiveQueue::new(&pd, &cq, BUFFERS as u32, 1)?;
    let memory = MemoryRegion::register(&pd, vec![0; BUFFERS * LENGTH], Access::LOCAL_WRITE)?;

    // The receives complete in the order in which they were posted, whichever queue pair takes them.
    let post = |buffer: Slice| Ok((shared.receive(std::slice::from_ref(&buffer))?, buffer));
    let mut posted: VecDeque<(Posted, Slice)> = (0..BUFFERS)
        .map(|index| post(memory.slice(index * LENGTH..(index + 1) * LENGTH)?))
        .collect::<Result<_>>()?;

    let mut clients = Vec::new();
    let mut ends = HashMap::new();
    for _ in 0..CLIENTS {
        let end = QueuePair::builder(&pd, &cq).shared_receives(&shared).build()?;
        let client = client(&context)?;
        let at_server = end.endpoint();
        let end = end.connect(&client.endpoint())?;
        clients.push(client.connect(&at_server)?);
        ends.insert(end.number(), end);
    }

    for (index, client) in clients.iter().enumerate() {
        client.send(format!("request {index}").as_bytes())?.wait()?;

        let (receive, buffer) = posted.pop_front().expect("one is posted for each that came");
        let message = receive.wait()?;
        let mut request = vec![0; message.length()];
        buffer.read_at(0, &mut request)?;
        // The completion names the queue pair, so the server knows where to answer.
        let end = &ends[&message.queue_pair()];
        println!("{:#x}: {:?}", end.number(), String::from_utf8_lossy(&request));
        posted.push_back(post(buffer)?);
    }
    Ok(())
}

/// A client. In a real program it would be another process.
fn client(context: &Context) -> Result<QueuePair<Initialized>> {
    let pd = ProtectionDomain::new(context)?;
    let cq = CompletionQueue::new(context, 16)?;
    QueuePair::builder(&pd, &cq).build()
}
