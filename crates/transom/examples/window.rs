//! Grants a memory window, uses it, revokes it, and shows a refused access.
//!
//! ```sh
//! cargo run -p transom --example window             # on the software device
//! cargo run -p transom --example window -- system   # on a device of the system's libibverbs
//! ```
//!
//! Two queue pairs of one process stand for two parties, the owner of the memory and its peer. They exchange only plain
//! values (an endpoint, a grant), which could also travel between processes or hosts.

mod device;

use transom::{
    Access, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, Result, Rights, Type2,
    Window,
};

fn main() -> Result<()> {
    let context = device::open()?;
    println!("opened {}", context.name());

    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 64)?;
    let owner = QueuePair::builder(&pd, &cq).build()?;
    let peer = QueuePair::builder(&pd, &cq).build()?;
    let (at_owner, at_peer) = (owner.endpoint(), peer.endpoint());
    let (owner, peer) = (owner.connect(&at_peer)?, peer.connect(&at_owner)?);
    println!("connected queue pairs {:#x} and {:#x}", owner.number(), peer.number());

    // The owner registers memory for windows, and opens a window to the peer.
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = MemoryRegion::register(&pd, vec![b'.'; 64], access)?;
    let window = Window::<Type2>::alloc(&pd)?;
    let memory = region.slice(16..32)?;
    let window = window.bind(&owner, &memory, Rights::READ | Rights::WRITE)?.wait()?;
    let grant = window.grant();
    println!("the owner grants {grant}");

    // The peer writes through the window and reads it back.
    peer.write(b"over the transom", grant)?.wait()?;
    let inbox = MemoryRegion::register(&pd, vec![0; 16], Access::LOCAL_WRITE)?;
    peer.read(&[inbox.all()], grant)?.wait()?;
    let mut bytes = [0; 16];
    inbox.read_at(0, &mut bytes)?;
    println!("the peer wrote and reads back: {:?}", String::from_utf8_lossy(&bytes));

    // While the window is bound, you cannot deregister the region.
    drop(memory);
    let region = match region.deregister() {
        Ok(_) => unreachable!("the window holds it"),
        Err(refused) => {
            println!("the owner wants its memory back: {}", refused.error);
            refused.returned
        }
    };

    // The owner revokes. From now on the key opens nothing.
    let _window = window.invalidate(&owner)?.wait()?;
    println!("the owner has revoked the window");
    match peer.write(b"once more, then.", grant)?.wait() {
        Ok(_) => unreachable!("the window is revoked"),
        Err(error) => println!("the peer writes again: {error}"),
    }

    let buffer = region.deregister()?;
    println!("the owner's memory: {:?}", String::from_utf8_lossy(&buffer));
    Ok(())
}
