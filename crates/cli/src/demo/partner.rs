//! The owner's side of the guest: a process that follows orders.

use super::talk::{Answer, Order};
use super::{GUEST, Station};
use crate::failure::{Failure, Result};
use crate::talk::{hear, tell};
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use transom::{Grant, QueuePair, RemoteSlice};
use transom_system::environment::Variable;

pub(super) struct Partner {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Partner {
    /// Starts the guest's process. What is seen of it goes into this directory, which the variable names, if there is
    /// one.
    pub(super) fn start(seen: &Variable, directory: Option<&Path>) -> Result<Self> {
        // This program itself, even if its file has been replaced since.
        let mut child = Command::new("/proc/self/exe")
            .arg0("transom")
            .arg(GUEST)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .envs(directory.map(|directory| (seen.name, directory)))
            .spawn()
            .map_err(|error| {
                let message = format!(
                    "cannot start the guest's process: {error}; check that /proc is mounted, and that \
                     you may start another process"
                );
                Failure::new(message)
            })?;
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Self { child, answers })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connects a new queue pair on each side.
    pub(super) fn connect(&mut self, station: &Station) -> Result<QueuePair> {
        let queue_pair = station.queue_pair()?;
        match self.order(&Order::Connect(queue_pair.endpoint()))? {
            Answer::Connected(there) => Ok(queue_pair.connect(&there)?),
            other => Err(unexpected("connect", &other)),
        }
    }

    pub(super) fn read(&mut self, grant: Grant) -> Result<String> {
        match self.order(&Order::Read(grant.into()))? {
            Answer::Read(text) => Ok(text),
            other => Err(unexpected("read what it was granted", &other)),
        }
    }

    pub(super) fn write(&mut self, grant: Grant, text: &str) -> Result {
        match self.order(&Order::Write(grant, text.to_owned()))? {
            Answer::Written => Ok(()),
            other => Err(unexpected("write what it was granted", &other)),
        }
    }

    /// Makes the guest open a region that begins with this text.
    pub(super) fn lend(&mut self, text: &str) -> Result<Grant> {
        match self.order(&Order::Lend(text.to_owned()))? {
            Answer::Lent(grant) => Ok(grant),
            other => Err(unexpected("open a region", &other)),
        }
    }

    /// Makes the guest put another text there.
    pub(super) fn reuse(&mut self, text: &str) -> Result {
        match self.order(&Order::Reuse(text.to_owned()))? {
            Answer::Written => Ok(()),
            other => Err(unexpected("use its region again", &other)),
        }
    }

    /// Makes the guest read memory that must be refused.
    pub(super) fn trespass(&mut self, slice: RemoteSlice) -> Result {
        match self.order(&Order::Read(slice))? {
            Answer::Refused => Ok(()),
            other => Err(unexpected("be refused", &other)),
        }
    }

    /// Makes the guest send itself a message, and end the queue pair before the message has arrived.
    pub(super) fn lose_a_message(&mut self) -> Result {
        match self.order(&Order::Lose)? {
            Answer::Ended => Ok(()),
            other => Err(unexpected("end its queue pair", &other)),
        }
    }

    /// Ends the guest in an orderly way.
    pub(super) fn dismiss(mut self) -> Result {
        drop(self.child.stdin.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::new(format_args!("the guest's process failed: {status}"))),
            Err(error) => Err(Failure::new(format_args!("the guest's process is lost: {error}"))),
        }
    }

    fn order(&mut self, order: &Order) -> Result<Answer> {
        let orders = self.child.stdin.as_mut().expect("it is piped until it is dismissed");
        tell(orders, order)?;
        match hear(&mut self.answers)? {
            Some(Answer::Trouble(message)) => {
                Err(Failure::new(format_args!("the guest failed: {message}")))
            }
            Some(answer) => Ok(answer),
            None => Err(Failure::new("the guest's process ended too early; run the demo again")),
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // Neither does anything after `dismiss`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unexpected(expected: &str, answer: &Answer) -> Failure {
    Failure::new(format_args!("the guest should {expected}, but it answered {answer:?}"))
}
