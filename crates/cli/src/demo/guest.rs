//! The guest: the second process. It carries out orders, and reports the results.

use super::talk::{Answer, Order};
use super::{Station, finish};
use crate::failure::{Failure, Result};
use crate::talk::{hear, tell};
use std::io::IsTerminal;
use transom::{Access, MemoryRegion, QueuePair, RemoteSlice, Status};

/// The length of a region that it opens to the owner.
const LENT: usize = 4096;

/// Follows orders from standard input until there are no more.
pub(crate) fn run() -> Result {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    if input.is_terminal() {
        return Err(Failure::new("this is the second process of the demo; run `transom demo`"));
    }
    let mut guest = Guest::new();
    while let Some(order) = hear(&mut input)? {
        let answer = match &mut guest {
            Ok(guest) => guest.obey(order).unwrap_or_else(|failure| trouble(&failure)),
            Err(failure) => trouble(failure),
        };
        tell(&mut output, &answer)?;
    }
    Ok(())
}

fn trouble(failure: &Failure) -> Answer {
    Answer::Trouble(failure.to_string())
}

struct Guest {
    station: Station,
    /// Where the bytes that it reads arrive.
    inbox: MemoryRegion<Vec<u8>>,
    queue_pair: Option<QueuePair>,
    /// A region that it has opened to the owner.
    lent: Option<MemoryRegion<Vec<u8>>>,
}

impl Guest {
    fn new() -> Result<Self> {
        let station = Station::open()?;
        let inbox = MemoryRegion::register(&station.pd, vec![0; 64], Access::LOCAL_WRITE)
            .map_err(|refused| refused.error)?;
        Ok(Self { station, inbox, queue_pair: None, lent: None })
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        match order {
            Order::Connect(owner) => {
                let queue_pair = self.station.queue_pair()?;
                let here = queue_pair.endpoint();
                self.queue_pair = Some(queue_pair.connect(&owner)?);
                Ok(Answer::Connected(here))
            }
            Order::Read(slice) => self.read(slice),
            Order::Write(grant, text) => {
                let posted = self.queue_pair()?.write(text.as_bytes(), grant)?;
                match finish(posted)? {
                    Ok(_) => Ok(Answer::Written),
                    Err(error) => refusal(error),
                }
            }
            Order::Lose => self.lose_a_message(),
            Order::Lend(text) => {
                let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
                let region = MemoryRegion::register(&self.station.pd, vec![0; LENT], access)
                    .map_err(|refused| refused.error)?;
                region.write_at(0, text.as_bytes())?;
                let grant = region.grant();
                self.lent = Some(region);
                Ok(Answer::Lent(grant))
            }
            Order::Reuse(text) => {
                let region = self.lent.as_ref().ok_or_else(|| Failure::new("it has no region"))?;
                region.write_at(0, text.as_bytes())?;
                Ok(Answer::Written)
            }
        }
    }

    fn read(&self, slice: RemoteSlice) -> Result<Answer> {
        let length = usize::try_from(slice.length).map_err(Failure::new)?;
        let posted = self.queue_pair()?.read(&[self.inbox.slice(0..length)?], slice)?;
        match finish(posted)? {
            Ok(completion) => {
                let mut bytes = vec![0; completion.length()];
                self.inbox.read_at(0, &mut bytes)?;
                Ok(Answer::Read(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Err(error) => refusal(error),
        }
    }

    /// Makes the mistake that `transom check` finds: it sends a message and does not wait for it.
    fn lose_a_message(&self) -> Result<Answer> {
        let (from, to) = (self.station.queue_pair()?, self.station.queue_pair()?);
        let (at_from, at_to) = (from.endpoint(), to.endpoint());
        let (from, _to) = (from.connect(&at_to)?, to.connect(&at_from)?);
        // No receive is posted for it, so it stays under way.
        drop(from.send(b"Farewell.")?);
        drop(from);
        Ok(Answer::Ended)
    }

    fn queue_pair(&self) -> Result<&QueuePair> {
        self.queue_pair.as_ref().ok_or_else(|| Failure::new("the guest is not connected"))
    }
}

/// Only one status means a refusal by the owner's device.
fn refusal(error: transom::WorkError) -> Result<Answer> {
    match error.status {
        Status::RemoteAccess => Ok(Answer::Refused),
        _ => Err(Failure::new(error)),
    }
}
