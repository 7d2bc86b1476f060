//! A window of memory opened to a peer, used, and taken back: `cargo run -p transom --example revoke`.
use transom::*;

fn main() -> Result<()> {
    let context = devices(&Provider::software())?[0].open()?;
    let (pd, cq) = (ProtectionDomain::new(&context)?, CompletionQueue::new(&context, 16)?);

    // Two queue pairs, connected. The peer's could be in another process, or on another host.
    let builder = QueuePair::builder(&pd, &cq);
    let (owner, peer) = (builder.build()?, builder.build()?);
    let (at_owner, at_peer) = (owner.endpoint(), peer.endpoint());
    let (owner, peer) = (owner.connect(&at_peer)?, peer.connect(&at_owner)?);

    // The owner opens 16 of its 64 bytes to the peer, and the peer writes them.
    let region = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE | Access::MW_BIND)?;
    let window = Window::<Type2>::alloc(&pd)?;
    let window = window.bind(&owner, &region.slice(16..32)?, Rights::WRITE)?.wait()?;
    let grant = window.grant();
    peer.write(b"over the transom", grant)?.wait()?;

    // The owner revokes the window. From now on the peer's key opens nothing.
    let _window = window.invalidate(&owner)?.wait()?;
    let refused = peer.write(b"once more, then.", grant)?.wait();
    println!("{}", refused.expect_err("it is revoked"));
    assert_eq!(&region.deregister()?[16..32], b"over the transom");
    Ok(())
}
