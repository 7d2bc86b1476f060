//! Requests posted at once, all or none.
//!
//! ```sh
//! cargo run -p transom --example batch             # on the software device
//! cargo run -p transom --example batch -- system   # on a device of the system's libibverbs
//! ```
//!
//! A record is written in three parts, then its number is published by an atomic write: who reads
//! the number sees the old one or the new one, and never a record half posted.

mod device;

use transom::{
    Access, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, Request, Result,
};

fn main() -> Result<()> {
    let context = device::open()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 64)?;
    let builder = QueuePair::builder(&pd, &cq).max_sends(4);
    let atomic = context.attributes()?.atomic_writes;
    let builder = if atomic { builder.atomic_writes() } else { builder.batches() };
    let (writer, owner) = (builder.build()?, builder.build()?);
    let (at_writer, at_owner) = (writer.endpoint(), owner.endpoint());
    let (writer, _owner) = (writer.connect(&at_owner)?, owner.connect(&at_writer)?);

    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let board = MemoryRegion::register(&pd, vec![b'.'; 64], access)?;
    let grant = board.grant();

    let number = 1u64.to_be_bytes();
    // A device without atomic writes promises less, but keeps the order of the writes too.
    let publish = match atomic {
        true => Request::atomic_write(&number, grant.slice(0..8)?),
        false => Request::write(&number, grant.slice(0..8)?),
    };
    let record = writer
        .batch()
        .push(Request::write(b"over ", grant.slice(8..64)?))
        .push(Request::write(b"the ", grant.slice(13..64)?))
        .push(Request::write(b"transom", grant.slice(17..64)?))
        .push(publish);
    println!("{} requests go at once", record.len());
    for request in record.post()? {
        request.wait()?;
    }
    let mut bytes = [0; 24];
    board.read_at(0, &mut bytes)?;
    let (number, text) = bytes.split_at(8);
    println!("record {}: {:?}", number[7], String::from_utf8_lossy(text));

    // Of a batch that does not fit, nothing is posted.
    let mut batch = writer.batch();
    let room = writer.max_sends()?;
    for _ in 0..=room {
        batch = batch.push(Request::write(b"never", grant.slice(8..64)?));
    }
    match batch.post() {
        Ok(_) => unreachable!("there is room for {room}"),
        Err(error) => println!("{} at once: {error}", room + 1),
    }
    Ok(())
}
