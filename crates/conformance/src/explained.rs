//! What `transom explain` tells of a queue pair.

use transom_device::qp::QpNumber;
use transom_system::registry::{Record, RefusalRecord, Registry};

/// A text for people without its line breaks, which depend on the terminal.
pub fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What has been noted in the slot of a queue pair's process, newest last.
fn noted_by(qp: u32) -> Vec<Record> {
    let registry = Registry::open().expect("the registry");
    registry.records(QpNumber::from_bits(qp).slot())
}

/// Whether a record is of this queue pair, or its peer's of a request of this one. Packets do not say of which queue pair
/// they are.
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

/// What its own process and that of its peer have noted of a queue pair.
pub fn explained(qp: u32, peer: u32) -> Vec<String> {
    let mut records = noted_by(qp);
    if QpNumber::from_bits(peer).slot() != QpNumber::from_bits(qp).slot() {
        records.extend(noted_by(peer));
    }
    let of_it = records.iter().filter(|record| is_of(record, qp, peer));
    of_it.map(Record::to_string).collect()
}

/// Whether a completion of a queue pair that had this status, by its name in C, has a sentence of its own: in the records of
/// its process, or as a refusal in those of its peer's.
pub fn explains(qp: u32, peer: u32, status: &str, wr_id: u64) -> bool {
    let of_status = |record: &Record| match record {
        Record::Work(record) if record.qp == qp => {
            let same = record.work.is_none_or(|work| work.wr_id == wr_id);
            same && record.status() == Some(status)
        }
        // Of what its peer refused, be it the receive that it had for it.
        Record::Access(record) => record.peer == qp || record.refusal.attempt.qp == qp,
        _ => false,
    };
    noted_by(qp).iter().any(of_status) || noted_by(peer).iter().any(of_status)
}
