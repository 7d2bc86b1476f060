//! `transom demo`: two processes, and a memory window between them.
//!
//! The process that is started is the owner of the memory; it starts a second one, the guest, and
//! tells it what to do. Each does its part with the ordinary API. What travels between them besides
//! RDMA (where a queue pair is, a grant) goes over the guest's standard input and output.

mod guest;
mod narrator;
mod owner;
mod partner;
mod talk;

pub(crate) use guest::run as guest;
pub(crate) use owner::run;

use crate::failure::{Failure, Result};
use std::time::Duration;
use transom::{
    Completion, CompletionQueue, Context, Error, Initialized, Posted, ProtectionDomain, Provider,
    QueuePair, WorkError,
};

/// The subcommand that is the second process.
pub(crate) const GUEST: &str = "demo-guest";

pub(crate) const HELP: &str = "\
Two processes, an owner and a guest, show the life of a memory window. The owner binds it to 64 bytes of
its memory. The guest uses it, and then reads past its end. The owner revokes it. You need no hardware
and no privileges.

Exit status:
  0  every allowed access worked, and every other was refused
  1  something else happened; the message says what";

/// Far longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What each side has for itself.
struct Station {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Station {
    fn open() -> Result<Self> {
        let devices = transom::devices(&Provider::software())?;
        let device = devices.first().ok_or_else(|| Failure::new("there is no Transom device"))?;
        let context = device.open()?;
        let pd = ProtectionDomain::new(&context)?;
        let cq = CompletionQueue::new(&context, 16)?;
        Ok(Self { context, pd, cq })
    }

    fn queue_pair(&self) -> Result<QueuePair<Initialized>> {
        Ok(QueuePair::builder(&self.pd, &self.cq).build()?)
    }
}

/// Waits for a request. What the device says against it is an answer too.
fn finish(mut posted: Posted) -> Result<std::result::Result<Completion, WorkError>> {
    match posted.wait_timeout(TIMEOUT) {
        Ok(Some(completion)) => Ok(Ok(completion)),
        Ok(None) => Err(Failure::new("a request did not complete in time; is the machine busy?")),
        Err(Error::Work(error)) => Ok(Err(error)),
        Err(error) => Err(error.into()),
    }
}
