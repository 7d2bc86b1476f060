//! The events that the devices of a test record.

use std::fmt::Write as _;

use transom_device::execution::{Awaited, Tally};
use transom_device::operation::Operation;
use transom_device::protection::Reason;
use transom_device::queue::Status;
use transom_system::Watched;
use transom_system::registry::Registry;
use transom_system::tools::Tool;
use transom_system::trace::{Event, What};

use crate::harness::until;

/// The devices of a process, watched.
pub struct Events(Vec<Watched>);

impl Events {
    /// Watches those that there are in a process.
    pub fn of(pid: u32) -> Self {
        let registry = Registry::open().expect("a registry");
        let processes = registry.processes();
        let own = processes.iter().filter(|it| it.alive && it.pid == pid);
        let all: Vec<_> = own
            .map(|it| Watched::new(registry, it, &[Tool::Events]).expect("it is here"))
            .collect();
        assert!(!all.is_empty(), "no device of process {pid}");
        until("the devices to record", || all.iter().all(|it| it.turn().is_on()).then_some(()));
        Self(all)
    }

    /// Those of this process.
    pub fn here() -> Self {
        let all = Self::of(std::process::id());
        until("events to be wanted", || transom_system::tools::is_on(Tool::Events).then_some(()));
        all
    }

    /// Asks for more.
    pub fn refresh(&mut self) {
        self.0.iter_mut().for_each(Watched::refresh);
    }

    /// The events since the last time, in order of time.
    pub fn take(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        for watched in &mut self.0 {
            watched.refresh();
            watched.events(|event| all.push(event));
            assert_eq!(watched.missed(), 0);
        }
        all.sort_by_key(|event| event.time);
        all
    }
}

/// An event in a few words: what, the operation or the like, bytes, and how it ended.
pub fn words(event: &Event) -> String {
    let mut words = format!("{:?}", event.what);
    let operation = |code| Operation::from_code(code).map_or("?".into(), |it| format!("{it:?}"));
    let status = Status::from_code(event.more as u8);
    let _ = match event.what {
        What::Posted
        | What::CarriedOut
        | What::Sent
        | What::Came
        | What::Touched
        | What::Reached => {
            write!(words, " {} {}", operation(event.code), event.length)
        }
        What::Ended => write!(words, " {} {} {:?}", operation(event.code), event.length, status),
        What::Received => write!(words, " {} {:?}", event.length, status),
        What::Refused => write!(words, " {:?} {}", Reason::from_code(event.code), event.length),
        What::Counted => write!(words, " {:?}", Tally::from_code(event.code)),
        What::Waits => write!(words, " {:?}", Awaited::from_code(event.code)),
        What::Changed | What::Managed => write!(words, " {}", event.code),
        What::Opened | What::ReceivePosted => write!(words, " {}", event.length),
        What::Closed if event.more == 0 => Ok(()),
        What::Closed => write!(words, " {}", operation(event.more as u8)),
        What::Connects => Ok(()),
    };
    words.replace("Some(", "").replace(')', "")
}
