//! What counts as an anomaly.

use serde_json::{Value, json};
use transom_system::registry::{Process, Record};

use crate::explain::{Refused, who};
use crate::lines::Exact;

/// Something that went wrong.
pub(super) enum Cause {
    /// An access or a bind was refused, or a request failed: no answer however often it was sent, no receive however
    /// often the peer was asked.
    Record(Box<Refused>),
    /// A process was killed, or ended otherwise without closing its device, while it was connected. The pairs are its
    /// own queue pairs, each with its peer.
    Gone { process: Process, time: u64, pairs: Vec<(u32, u32)> },
    /// The queue pairs of a process were asked to wait for receives for so many nanoseconds, all together, within a span
    /// of so many.
    Waits { process: Process, time: u64, waited: u64, span: u64, pairs: Vec<(u32, u32)> },
}

impl Cause {
    /// A record of `transom explain`, if it is one. Refused calls and connections are answers to a program that asked.
    pub(super) fn of_record(refused: Refused) -> Option<Self> {
        let is_one = match &refused.record {
            Record::Access(_) => true,
            Record::Work(_) => !refused.record.is_ordinary(),
            Record::Call(_) | Record::Connection(_) => false,
        };
        is_one.then(|| Self::Record(Box::new(refused)))
    }

    /// The process in which it happened.
    pub(super) fn process(&self) -> &Process {
        match self {
            Self::Record(refused) => &refused.process,
            Self::Gone { process, .. } | Self::Waits { process, .. } => process,
        }
    }

    /// When, in nanoseconds since 1970.
    pub(super) fn time(&self) -> u64 {
        match self {
            Self::Record(refused) => refused.record.time(),
            Self::Gone { time, .. } | Self::Waits { time, .. } => *time,
        }
    }

    /// The queue pairs of the process that it is about, each with its peer.
    pub(super) fn pairs(&self) -> Vec<(u32, u32)> {
        match self {
            Self::Record(refused) => match &refused.record {
                Record::Access(record) => vec![(record.refusal.attempt.qp, record.peer)],
                Record::Work(record) => vec![(record.qp, record.peer)],
                Record::Call(_) | Record::Connection(_) => Vec::new(),
            },
            Self::Gone { pairs, .. } | Self::Waits { pairs, .. } => pairs.clone(),
        }
    }

    /// For people, with the process.
    pub(super) fn sentence(&self) -> String {
        let who = who(self.process());
        match self {
            Self::Record(refused) => format!("{who}: {}", refused.record),
            Self::Gone { pairs, .. } => format!(
                "{who}: it has gone without closing its device, while {} of its queue pairs were connected.",
                pairs.len()
            ),
            Self::Waits { waited, span, .. } => {
                let [seconds, span] = [*waited, *span].map(|it| it as f64 / 1e9);
                format!(
                    "{who}: its peers had no receives, and asked its queue pairs to wait for {seconds:.3} s in all within {span:.1} s."
                )
            }
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let of = |reason: &str, process: &Process, time: u64| {
            json!({
                "time_ns": Exact(time),
                "pid": process.pid,
                "process": process.name,
                "reason": reason,
                "sentence": self.sentence(),
            })
        };
        match self {
            Self::Record(refused) => refused.json(),
            Self::Gone { process, time, .. } => of("gone", process, *time),
            Self::Waits { process, time, .. } => of("waits_for_receives", process, *time),
        }
    }
}
