//! What `transom explain` says about a queue pair.

use transom_device::qp::QpNumber;
use transom_system::registry::{Record, RefusalRecord, Registry};

/// A text for people without its line breaks, which depend on the terminal.
pub fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The records in the slot of a queue pair's process, newest last.
fn noted_by(qp: u32) -> Vec<Record> {
    let registry = Registry::open().expect("the registry");
    registry.records(QpNumber::from_bits(qp).slot())
}

/// Whether a record is about this queue pair, or is its peer's about a request of it. Packets do not name the queue
/// pair that sent them.
fn is_of(record: &Record, qp: u32, other: u32) -> bool {
    match record {
        Record::Access(RefusalRecord { refusal, peer, .. }) => {
            refusal.attempt.qp == qp || *peer == qp
        }
        Record::Call(record) => record.call.qp == qp,
        Record::Work(record) => {
            record.qp == qp || record.peer == qp || (record.peer, record.qp) == (0, other)
        }
        Record::Connection(_) => false,
    }
}

/// The sentences that a queue pair's own process and its peer's process have noted about it.
pub fn explained(qp: u32, peer: u32) -> Vec<String> {
    let mut records = noted_by(qp);
    if QpNumber::from_bits(peer).slot() != QpNumber::from_bits(qp).slot() {
        records.extend(noted_by(peer));
    }
    let of_it = records.iter().filter(|record| is_of(record, qp, peer));
    of_it.map(Record::to_string).collect()
}

/// Whether a queue pair's completion with this status, by its name in C, has a sentence of its own: in the records of
/// its process, or as a refusal in those of its peer's process.
pub fn explains(qp: u32, peer: u32, status: &str, wr_id: u64) -> bool {
    let of_status = |record: &Record| match record {
        Record::Work(record) if record.qp == qp => {
            let same = record.work.is_none_or(|work| work.wr_id == wr_id);
            same && record.status() == Some(status)
        }
        // Its peer refused this, perhaps because of the peer's own receive.
        Record::Access(record) => record.peer == qp || record.refusal.attempt.qp == qp,
        _ => false,
    };
    noted_by(qp).iter().any(of_status) || noted_by(peer).iter().any(of_status)
}
