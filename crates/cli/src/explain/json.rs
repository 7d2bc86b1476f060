//! A refusal as a line of JSON. `transom explain --help` describes the fields.

use super::{Device, Refused};
use crate::failure::{Failure, Result};
use crate::lines::Exact;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Debug;
use std::io::Write;
use transom_device::Access;
use transom_device::operation::Subject;
use transom_device::protection::{Kind, Reason, Snapshot, State};
use transom_system::registry::{
    CallRecord, ConnectionFault, ConnectionRecord, Fate, Record, RefusalRecord, Role, WorkRecord,
};

#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Access(RefusedAccess<'a>),
    Call(RefusedCall<'a>),
    Connection(RefusedConnection<'a>),
    Work(LostWork<'a>),
}

/// Prints the line of a refusal.
pub(super) fn print(out: &mut dyn Write, refused: &Refused) -> Result {
    let line = serde_json::to_string(&line(refused)).map_err(Failure::new)?;
    writeln!(out, "{line}")?;
    Ok(())
}

impl Refused {
    /// The same as a value.
    pub(crate) fn json(&self) -> Value {
        serde_json::to_value(line(self)).unwrap_or_default()
    }
}

fn line(refused: &Refused) -> Line<'_> {
    let whose = Whose::of(refused);
    match &refused.record {
        Record::Access(record) => Line::Access(RefusedAccess::new(whose, record)),
        Record::Call(record) => Line::Call(RefusedCall::new(whose, record)),
        Record::Connection(record) => Line::Connection(RefusedConnection::new(whose, record)),
        Record::Work(record) => Line::Work(LostWork::new(whose, record)),
    }
}

/// The time, the process, and how many older refusals of it are lost.
#[derive(Serialize)]
struct Whose<'a> {
    time_ns: Exact,
    pid: u32,
    process: &'a str,
    device_state: Device,
    lost: u64,
}

impl<'a> Whose<'a> {
    fn of(refused: &'a Refused) -> Self {
        let Refused { process, record, lost } = refused;
        Self {
            time_ns: Exact(record.time()),
            pid: process.pid,
            process: &process.name,
            device_state: Device::of(process),
            lost: *lost,
        }
    }
}

/// Work that failed.
#[derive(Serialize)]
struct LostWork<'a> {
    #[serde(flatten)]
    whose: Whose<'a>,
    role: &'static str,
    reason: &'static str,
    status: Option<&'static str>,
    wr_id: Option<Exact>,
    qp: Option<u32>,
    peer_qp: Option<u32>,
    sentence: String,
}

impl<'a> LostWork<'a> {
    fn new(whose: Whose<'a>, record: &WorkRecord) -> Self {
        let number = |qp: u32| (qp != 0).then_some(qp);
        Self {
            whose,
            role: if matches!(record.fate, Fate::Dropped(_)) { "target" } else { "origin" },
            reason: record.fate.name(),
            status: record.status(),
            wr_id: record.work.map(|work| Exact(work.wr_id)),
            qp: number(record.qp),
            peer_qp: number(record.peer),
            sentence: record.to_string(),
        }
    }
}

/// A call that was refused.
#[derive(Serialize)]
struct RefusedCall<'a> {
    #[serde(flatten)]
    whose: Whose<'a>,
    role: &'static str,
    reason: String,
    rule: Option<String>,
    verb: String,
    errno: i32,
    field: Option<String>,
    value: Exact,
    limit: Exact,
    qp: Option<u32>,
    sentence: String,
}

impl<'a> RefusedCall<'a> {
    fn new(whose: Whose<'a>, record: &CallRecord) -> Self {
        let call = &record.call;
        Self {
            whose,
            role: "caller",
            reason: snake_case(call.fault),
            rule: (!call.rule.is_empty()).then(|| call.rule.to_string()),
            verb: call.verb.to_string(),
            errno: call.errno,
            field: (!call.field.is_empty()).then(|| call.field.to_string()),
            value: Exact(call.value),
            limit: Exact(call.limit),
            qp: (call.qp != 0).then_some(call.qp),
            sentence: call.to_string(),
        }
    }
}

/// A connection that was not made.
#[derive(Serialize)]
struct RefusedConnection<'a> {
    #[serde(flatten)]
    whose: Whose<'a>,
    role: &'static str,
    reason: String,
    code: u32,
    #[serde(flatten)]
    ends: Ends,
    cause: Option<String>,
    said: Option<String>,
    sentence: String,
}

/// The two ends of a connection.
#[derive(Serialize)]
struct Ends {
    source: String,
    destination: String,
    nearest_port: Option<u16>,
    listens_at: Option<String>,
}

impl<'a> RefusedConnection<'a> {
    fn new(whose: Whose<'a>, record: &ConnectionRecord) -> Self {
        Self {
            whose,
            role: if is_passive(record) { "passive" } else { "active" },
            reason: snake_case(record.fault),
            code: record.code,
            ends: Ends {
                source: record.source.to_string(),
                destination: record.destination.to_string(),
                nearest_port: (record.nearest != 0).then_some(record.nearest),
                listens_at: record.listens_at.map(|address| address.to_string()),
            },
            cause: record.cause.map(snake_case),
            said: (!record.said.is_empty()).then(|| record.said.to_string()),
            sentence: record.to_string(),
        }
    }
}

/// Whether the process was asked for the connection.
pub(super) fn is_passive(record: &ConnectionRecord) -> bool {
    matches!(record.fault, ConnectionFault::Refused | ConnectionFault::BacklogFull)
}

/// An access that was refused.
#[derive(Serialize)]
struct RefusedAccess<'a> {
    #[serde(flatten)]
    whose: Whose<'a>,
    role: &'static str,
    reason: String,
    code: u8,
    rule: &'static str,
    operation: &'static str,
    address: Option<Exact>,
    length: Exact,
    key: Option<u32>,
    outside_by: Option<Exact>,
    qp: u32,
    peer_qp: Option<u32>,
    pd: u32,
    qp_access: Vec<&'static str>,
    room: Option<Exact>,
    object: Option<Object>,
    sentence: String,
}

#[derive(Serialize)]
struct Object {
    kind: &'static str,
    state: &'static str,
    base: Exact,
    length: Option<Exact>,
    access: Vec<&'static str>,
    pd: u32,
    qp: Option<u32>,
    wr_id: Option<Exact>,
    age_ns: Exact,
}

impl<'a> RefusedAccess<'a> {
    fn new(whose: Whose<'a>, record: &RefusalRecord) -> Self {
        let reason = record.refusal.reason;
        let (attempt, object) = (&record.refusal.attempt, &record.refusal.object);
        let needs = attempt.operation.needs();
        let (has_key, has_range) = match needs.subject {
            Subject::Receive => (false, false),
            Subject::RemoteWindow | Subject::LocalWindow => (true, false),
            Subject::RemoteMemory
            | Subject::LocalSource
            | Subject::LocalDestination
            | Subject::Binding => (true, true),
        };
        let has_room = reason == Reason::ReceiveTooSmall;
        Self {
            whose,
            role: match record.role() {
                Role::Origin => "origin",
                Role::Target => "target",
            },
            reason: snake_case(reason),
            code: reason.code(),
            rule: record.refusal.rule(),
            operation: needs.label,
            address: has_range.then_some(Exact(attempt.address)),
            length: Exact(attempt.length),
            key: has_key.then_some(attempt.key.0),
            outside_by: outside_by(record).map(Exact),
            qp: attempt.qp,
            peer_qp: (record.peer != 0).then_some(record.peer),
            pd: attempt.pd,
            qp_access: names(record.qp_access),
            room: has_room.then_some(Exact(object.length)),
            object: (!has_room && object.state != State::Vacant)
                .then(|| Object::new(object, record.age)),
            sentence: record.to_string(),
        }
    }
}

impl Object {
    fn new(object: &Snapshot, age: u64) -> Self {
        let is_window = !object.kind.is_region();
        Self {
            kind: kind(object.kind),
            state: match object.state {
                State::Vacant => "vacant",
                State::Free => "free",
                State::Valid => "valid",
                State::Changing => "changing",
            },
            base: Exact(object.base),
            length: length(object.length),
            access: names(object.access),
            pd: object.pd,
            qp: is_window.then_some(object.qp),
            wr_id: is_window.then_some(Exact(object.wr_id)),
            age_ns: Exact(age),
        }
    }
}

/// The bytes of a region or window. None for one of all addresses.
pub(crate) fn length(bytes: u64) -> Option<Exact> {
    (bytes != u64::MAX).then_some(Exact(bytes))
}

/// The kind of a region or window.
pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Region => "region",
        Kind::Window1 => "window_1",
        Kind::Window2A => "window_2a",
        Kind::Window2B => "window_2b",
        Kind::Null => "null_region",
    }
}

/// How many bytes past its end or before its start the range lies.
fn outside_by(record: &RefusalRecord) -> Option<u64> {
    let (attempt, object) = (&record.refusal.attempt, &record.refusal.object);
    let end = |base: u64, length: u64| u128::from(base) + u128::from(length);
    match record.refusal.reason {
        Reason::BelowStart => object.base.checked_sub(attempt.address),
        Reason::PastEnd => {
            let over = end(attempt.address, attempt.length)
                .checked_sub(end(object.base, object.length))?;
            u64::try_from(over).ok()
        }
        _ => None,
    }
}

fn names(access: Access) -> Vec<&'static str> {
    access.iter_names().map(|(name, _)| name).collect()
}

/// `PastEnd` as `past_end`.
fn snake_case(name: impl Debug) -> String {
    let mut snake = String::new();
    for letter in format!("{name:?}").chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;
    use transom_device::operation::Operation;
    use transom_device::protection::{Announcer, Attempt, Key, Refusal};
    use transom_system::registry::{CallFault, CallRefusal, Name, Process};

    pub(in crate::explain) fn process() -> Process {
        Process {
            announcer: Announcer { slot: 1, generation: 1 },
            pid: 7,
            alive: false,
            closed: false,
            shares_pids: true,
            is_near: true,
            is_open: true,
            name: "p".into(),
            waits_for: None,
            descriptor: 3,
            device: 0,
        }
    }

    fn line(reason: Reason, attempt: Attempt, object: Snapshot) -> Value {
        let refusal = Refusal { reason, attempt, object };
        let qp_access = Access::REMOTE_READ;
        let (peer, meant) = (0x10_0002, None);
        let record = RefusalRecord { time: 5, refusal, age: 7, peer, qp_access, meant };
        serde_json::to_value(super::line(&Refused {
            process: process(),
            record: Record::Access(record),
            lost: 0,
        }))
        .unwrap()
    }

    fn attempt(operation: Operation) -> Attempt {
        let key = Key(0xdead_be01);
        Attempt { operation, key, address: u64::MAX - 64, length: 32, qp: 0x10_0001, pd: 3 }
    }

    /// Rules: SEE-66
    #[test]
    fn all_numbers_are_there() {
        let object = Snapshot {
            state: State::Valid,
            kind: Kind::Window2B,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
            base: u64::MAX - 112,
            length: 64,
            pd: 3,
            qp: 0x10_0001,
            wr_id: u64::MAX,
            ..Snapshot::VACANT
        };
        let mut line = line(Reason::PastEnd, attempt(Operation::Read), object);
        assert!(line["sentence"].as_str().unwrap().contains("16 bytes"), "{line}");
        line.as_object_mut().unwrap().remove("sentence");
        let expected = json!({
            "time_ns": "5", "pid": 7, "process": "p", "device_state": "ended", "lost": 0, "role": "target",
            "reason": "past_end", "code": 8, "rule": "RA-33", "operation": "read",
            "address": "18446744073709551551", "length": "32", "key": 0xdead_be01_u32, "outside_by": "16",
            "qp": 0x10_0001, "peer_qp": 0x10_0002, "pd": 3, "qp_access": ["REMOTE_READ"],
            "room": null,
            "object": {
                "kind": "window_2b", "state": "valid", "base": "18446744073709551503", "length": "64",
                "access": ["REMOTE_WRITE", "REMOTE_READ"], "pd": 3, "qp": 0x10_0001,
                "wr_id": "18446744073709551615", "age_ns": "7"
            }
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn what_plays_no_part_is_null() {
        let unknown = line(Reason::UnknownIndex, attempt(Operation::Invalidate), Snapshot::VACANT);
        assert_eq!(unknown["object"], Value::Null);
        assert_eq!(unknown["address"], Value::Null);
        assert_eq!(unknown["key"], 0xdead_be01_u32);
        assert_eq!(unknown["role"], "origin");
        let receive = Snapshot { length: 4, ..Snapshot::VACANT };
        let small = line(Reason::ReceiveTooSmall, attempt(Operation::Send), receive);
        assert_eq!((&small["room"], &small["key"]), (&json!("4"), &Value::Null));
    }

    #[test]
    fn a_refused_call_has_its_numbers() {
        let call = CallRefusal {
            verb: Name::new("ibv_create_qp"),
            errno: 22,
            fault: CallFault::TooMuch,
            field: Name::new("cap.max_send_wr"),
            value: 40_000,
            limit: 32_768,
            rule: Name::new("CR-03"),
            ..CallRefusal::default()
        };
        let record = Record::Call(CallRecord { time: 5, call });
        let line =
            serde_json::to_value(super::line(&Refused { process: process(), record, lost: 3 }))
                .unwrap();
        let expected = json!({
            "time_ns": "5", "pid": 7, "process": "p", "device_state": "ended", "lost": 3, "role": "caller",
            "reason": "too_much", "rule": "CR-03", "verb": "ibv_create_qp", "errno": 22,
            "field": "cap.max_send_wr", "value": "40000", "limit": "32768", "qp": null,
            "sentence": "ibv_create_qp answered EINVAL: cap.max_send_wr is 40000, and may be at \
                         most 32768 (rule CR-03)"
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_device_that_was_closed_is_told_from_one_that_ended_with_its_process() {
        for (alive, closed, device, words) in [
            (true, false, json!("open"), "p, PID 7"),
            (false, true, json!("closed"), "p, PID 7 (device closed)"),
            (false, false, json!("ended"), "p, PID 7 (ended)"),
        ] {
            let process = Process { alive, closed, ..process() };
            assert_eq!(json!(Device::of(&process)), device);
            assert_eq!(super::super::who(&process), words);
        }
    }

    /// The help lists only some reasons of accesses and calls, because there are many.
    #[test]
    fn the_help_has_every_reason_of_connections() {
        let words: Vec<_> = super::super::FIELDS.split([' ', '\n', ',', ';', '(']).collect();
        for fault in (0..=u8::MAX).filter_map(ConnectionFault::from_repr) {
            assert!(words.contains(&snake_case(fault).as_str()), "{fault:?}");
        }
    }

    #[test]
    fn names_are_in_snake_case() {
        assert_eq!(snake_case(Reason::NotARegion), "not_a_region");
        assert_eq!(snake_case(Reason::OtherQp), "other_qp");
    }
}
