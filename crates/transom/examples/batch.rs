//! Posts requests at once, all or none.
//!
//! ```sh
//! cargo run -p transom --example batch             # on the software device
//! cargo run -p transom --example batch -- system   # on a device of the system's libibverbs
//! ```
//!
//! Three writes make a record, then an atomic write publishes its number. A reader of the number sees the old one or
//! the new one, and never a record that is half written.

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
    // A device without atomic writes also keeps the order of the writes. But a reader may see a part of the
    // number.
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

    // If a batch does not fit, none of it is posted.
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
