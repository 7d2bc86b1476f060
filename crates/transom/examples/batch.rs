//! Requests posted at once, all or none.
//!
//! ```sh
//! cargo run -p transom --example batch
//! ```
//!
//! A record is written in three parts, then its number is published by an atomic write: who reads
//! the number sees the old one or the new one, and never a record half posted.

use transom::{
    Access, CompletionQueue, MemoryRegion, ProtectionDomain, Provider, QueuePair, Request, Result,
};

fn main() -> Result<()> {
    let context = transom::devices(&Provider::software())?[0].open()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 64)?;
    let builder = QueuePair::builder(&pd, &cq).max_sends(4).atomic_writes();
    let (writer, owner) = (builder.build()?, builder.build()?);
    let (at_writer, at_owner) = (writer.endpoint(), owner.endpoint());
    let (writer, _owner) = (writer.connect(&at_owner)?, owner.connect(&at_writer)?);

    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let board = MemoryRegion::register(&pd, vec![b'.'; 64], access)?;
    let grant = board.grant();

    let number = 1u64.to_be_bytes();
    let record = writer
        .batch()
        .push(Request::write(b"over ", grant.slice(8..64)?))
        .push(Request::write(b"the ", grant.slice(13..64)?))
        .push(Request::write(b"transom", grant.slice(17..64)?))
        .push(Request::atomic_write(&number, grant.slice(0..8)?));
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
    for _ in 0..5 {
        batch = batch.push(Request::write(b"never", grant.slice(8..64)?));
    }
    match batch.post() {
        Ok(_) => unreachable!("there is room for four"),
        Err(error) => println!("five at once: {error}"),
    }
    Ok(())
}
