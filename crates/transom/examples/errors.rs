//! Errors: how you learn of them, and how you go on.
//!
//! ```sh
//! cargo run -p transom --example errors
//! ```
//!
//! A call that fails returns its error at once, has done nothing, and gives back the object it took. A posted request
//! that fails returns its error through its ticket, and its queue pair has then failed. A connection that is not made
//! returns the reason.

use std::net::SocketAddr;
use transom::{
    Access, CompletionQueue, ConnectionProblem, Error, Listener, MemoryRegion, ProtectionDomain,
    Provider, QueuePair, Refused, RemoteSlice, Rights, Status, Type2, Window,
};

/// The errors of this program: its own, and those of the device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("the device allowed what it should refuse")]
    Allowed,
    #[error(transparent)]
    Device(#[from] Error),
}

/// With this, `?` also works for calls that give back an object. `#[from]` cannot derive it, because it holds for every
/// `T`.
impl<T> From<Refused<T>> for ProgramError {
    fn from(refused: Refused<T>) -> Self {
        Self::Device(refused.error)
    }
}

fn main() -> Result<(), ProgramError> {
    for error in all()? {
        println!("{error}\n");
    }
    Ok(())
}

/// The errors that this program meets and survives.
pub(crate) fn all() -> Result<[Error; 3], ProgramError> {
    let provider = Provider::software();
    let context = transom::devices(&provider)?[0].open()?;
    let pd = ProtectionDomain::new(&context)?;
    let queue = CompletionQueue::new(&context, 16)?;
    Ok([give_back(&pd)?, overstep(&pd, &queue)?, find_nobody(&provider, &pd, &queue)?])
}

/// A failed call gives back the object it took with its error. Here that is a buffer, which is then registered with
/// other rights.
fn give_back(pd: &ProtectionDomain) -> Result<Error, ProgramError> {
    let Err(refused) = MemoryRegion::register(pd, vec![7; 64], Access::REMOTE_WRITE) else {
        return Err(ProgramError::Allowed);
    };
    let Refused { returned: buffer, error } = refused;
    // If the peer may write memory, this side must be able to write it too.
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = MemoryRegion::register(pd, buffer, access)?;
    drop(region.deregister()?);
    Ok(error)
}

/// If a peer oversteps its grant, both ends lose their queue pairs. You can still end the grant, and both go on with
/// new queue pairs.
fn overstep(pd: &ProtectionDomain, queue: &CompletionQueue) -> Result<Error, ProgramError> {
    let (owner, peer) = connected(pd, queue)?;
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = MemoryRegion::register(pd, vec![0; 64], access)?;
    let window = Window::<Type2>::alloc(pd)?;
    let window = window.bind(&owner, &region.slice(0..32)?, Rights::WRITE)?.wait()?;
    let grant = window.grant();

    // `Grant::slice` would refuse to make this.
    let behind = RemoteSlice { addr: grant.addr + grant.length, ..grant.into() };
    let error = match peer.write(b"too far", behind)?.wait() {
        Ok(_) => return Err(ProgramError::Allowed),
        Err(error) => error,
    };
    match &error {
        // The peer's fault, or a disagreement with it: the program must handle it.
        Error::Work(work) if work.status == Status::RemoteAccess => {}
        // Any other error goes to the caller.
        _ => return Err(error.into()),
    }

    // Requests posted from now on are flushed, even the one that would revoke the window.
    match window.invalidate(&owner)?.wait() {
        Ok(_) => return Err(ProgramError::Allowed),
        Err(Refused { returned: Some(window), .. }) => window.revoke()?,
        Err(Refused { returned: None, error }) => return Err(error.into()),
    }
    let (owner, peer) = connected(pd, queue)?;
    let window = Window::<Type2>::alloc(pd)?;
    let window = window.bind(&owner, &region.slice(0..32)?, Rights::WRITE)?.wait()?;
    peer.write(b"as agreed", window.grant())?.wait()?;
    window.revoke()?;
    drop(region.deregister()?);
    Ok(error)
}

/// A refused connection comes with its reason, and the reason decides what you can do.
fn find_nobody(
    provider: &Provider,
    pd: &ProtectionDomain,
    queue: &CompletionQueue,
) -> Result<Error, ProgramError> {
    let nobody: SocketAddr = {
        let listener = Listener::bind(provider, ([127, 0, 0, 1], 0).into())?;
        listener.local_address()
    };
    let error = match QueuePair::builder(pd, queue).connect_to(nobody) {
        Ok(_) => return Err(ProgramError::Allowed),
        Err(error) => error,
    };
    let Error::Connection(why) = &error else { return Err(error.into()) };
    match &why.problem {
        // A server may come later: a program would try again after a while.
        ConnectionProblem::Rejected(rejection) if rejection.is_no_listener() => Ok(error),
        // A server is there and refuses: its private data may say why.
        ConnectionProblem::Rejected(_) => Err(error.into()),
        // A problem of the network, or a wrong address.
        _ => Err(error.into()),
    }
}

/// Two queue pairs that are each other's peers. In most programs one of them is elsewhere.
fn connected(
    pd: &ProtectionDomain,
    queue: &CompletionQueue,
) -> Result<(QueuePair, QueuePair), ProgramError> {
    let builder = QueuePair::builder(pd, queue);
    let (a, b) = (builder.build()?, builder.build()?);
    let (at_a, at_b) = (a.endpoint(), b.endpoint());
    Ok((a.connect(&at_b)?, b.connect(&at_a)?))
}
