//! `transom demo`: two processes, and a memory window between them.
//!
//! The process that you start is the owner of the memory. It starts a second process, the guest, and tells it what to
//! do. Both use the ordinary API. The guest's standard input and output carry their messages besides RDMA (the address
//! of a queue pair, a grant).

mod checked;
mod exposed;
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

/// The subcommand of the second process.
pub(crate) const GUEST: &str = "demo-guest";

pub(crate) const HELP: &str = "\
Two processes, an owner and a guest, show the life of a memory window. The owner binds it to 64 bytes of
its memory. The guest uses it, and then reads past its end. The owner revokes it. At last the guest makes
a mistake that nobody notices, and `transom check` names it. Another guest opens more than it needs, and
`transom exposure` names that. You need no hardware and no privileges.

Exit status:
  0  every allowed access worked, every other was refused, and the mistake and the region were named
  1  something else happened; the message says what";

/// Far longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The objects that each side has.
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

/// Waits for a request. An error of the request is an answer too.
fn finish(mut posted: Posted) -> Result<std::result::Result<Completion, WorkError>> {
    match posted.wait_timeout(TIMEOUT) {
        Ok(Some(completion)) => Ok(Ok(completion)),
        Ok(None) => Err(Failure::new("a request did not complete in time; is the machine busy?")),
        Err(Error::Work(error)) => Ok(Err(error)),
        Err(error) => Err(error.into()),
    }
}
