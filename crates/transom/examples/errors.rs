//! What goes wrong, how it is told, and what to do about it.
//!
//! ```sh
//! cargo run -p transom --example errors
//! ```
//!
//! A call that fails says so at once, has done nothing, and gives back what it took. A request that was posted and
//! fails says so by its ticket; its queue pair has failed then. A connection that does not come about says why.

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

/// With this, `?` works for calls that give back what they took, too. `#[from]` cannot derive it, since it is for
/// every `T`.
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

/// The errors that this program has met, and has gone on after.
pub(crate) fn all() -> Result<[Error; 3], ProgramError> {
    let provider = Provider::software();
    let context = transom::devices(&provider)?[0].open()?;
    let pd = ProtectionDomain::new(&context)?;
    let queue = CompletionQueue::new(&context, 16)?;
    Ok([give_back(&pd)?, overstep(&pd, &queue)?, find_nobody(&provider, &pd, &queue)?])
}

/// What a call took comes back with its error: here a buffer, which is registered otherwise then.
fn give_back(pd: &ProtectionDomain) -> Result<Error, ProgramError> {
    let Err(refused) = MemoryRegion::register(pd, vec![7; 64], Access::REMOTE_WRITE) else {
        return Err(ProgramError::Allowed);
    };
    let Refused { returned: buffer, error } = refused;
    // What the peer may write must be writable here.
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = MemoryRegion::register(pd, buffer, access)?;
    drop(region.deregister()?);
    Ok(error)
}

/// A peer that oversteps its grant loses its connection, and so does who granted it. The grant is ended all the same,
/// and both go on with new queue pairs.
fn overstep(pd: &ProtectionDomain, queue: &CompletionQueue) -> Result<Error, ProgramError> {
    let (owner, peer) = connected(pd, queue)?;
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = MemoryRegion::register(pd, vec![0; 64], access)?;
    let window = Window::<Type2>::alloc(pd)?;
    let window = window.bind(&owner, &region.slice(0..32)?, Rights::WRITE)?.wait()?;
    let grant = window.grant();

    // `Grant::slice` would not make this.
    let behind = RemoteSlice { addr: grant.addr + grant.length, ..grant.into() };
    let error = match peer.write(b"too far", behind)?.wait() {
        Ok(_) => return Err(ProgramError::Allowed),
        Err(error) => error,
    };
    match &error {
        // The peer's doing, or what was agreed on with it: its program has to know.
        Error::Work(work) if work.status == Status::RemoteAccess => {}
        // Anything else is for who has called this.
        _ => return Err(error.into()),
    }

    // What is posted from now on is flushed, also what would take the window back.
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

/// Who is refused a connection is told why, and what can be done differs.
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
        // It may come yet: a program would try again after a while.
        ConnectionProblem::Rejected(rejection) if rejection.is_no_listener() => Ok(error),
        // It is there, and does not want to: its private data may say why.
        ConnectionProblem::Rejected(_) => Err(error.into()),
        // The network's doing, or a wrong address.
        _ => Err(error.into()),
    }
}

/// Two queue pairs that are each other's peers; in most programs one of them is elsewhere.
fn connected(
    pd: &ProtectionDomain,
    queue: &CompletionQueue,
) -> Result<(QueuePair, QueuePair), ProgramError> {
    let builder = QueuePair::builder(pd, queue);
    let (a, b) = (builder.build()?, builder.build()?);
    let (at_a, at_b) = (a.endpoint(), b.endpoint());
    Ok((a.connect(&at_b)?, b.connect(&at_a)?))
}
