//! Shows a capture the traffic of the links.

use transom_device::execution::one_sided::CHUNK;
use transom_device::execution::{Reply, Request, Source};
use transom_device::protection::Reason;
use transom_device::qp::QpNumber;
use transom_net::Path;
use transom_system::registry::Registry;
use transom_wire::packet::{Operation, Packet};
use transom_wire::{NakCode, Syndrome};

use super::Capture;
use crate::device::{Answered, Direction, Interface, Observer};

/// Writes down everything it is shown.
pub(crate) struct CaptureObserver {
    /// Where to.
    pub(crate) capture: Capture,
    /// Where refusals are noted.
    pub(crate) registry: &'static Registry,
    /// This process's slot there.
    pub(crate) slot: u8,
}

impl transom_net::Observer for CaptureObserver {
    fn sees(&self, path: &Path, identification: u16, datagram: &[u8]) {
        let nak = Packet::parse(datagram).ok();
        let reason = nak.and_then(|it| reason_of_nak(self.registry, self.slot, &it));
        let (outbound, comment) = (Direction::Outbound, reason.as_deref());
        self.capture.record(outbound, path, identification, datagram, comment);
    }
}

impl Observer for CaptureObserver {
    fn connects(&self, from: QpNumber, path: Path) {
        self.capture.streams.lock().connect(from, path);
    }

    fn request(
        &self,
        link: Interface,
        direction: Direction,
        request: &Request,
        data: &mut dyn Source,
    ) {
        // Another process may write anything here, but no segment is longer.
        if request.length > CHUNK {
            return;
        }
        let mut bytes = Vec::new();
        if request.body.carries_data() {
            bytes.resize(request.length as usize, 0);
            // If the data cannot be read, it is not sent either.
            if data.read(0, &mut bytes).is_err() {
                return;
            }
        }
        self.capture.record_packets(link, direction, None, |streams, each| {
            streams.request(request, &bytes, each);
        });
    }

    fn answer(
        &self,
        link: Interface,
        direction: Direction,
        answer: &Answered,
        data: &mut dyn Source,
    ) {
        let mut bytes = Vec::new();
        if let Reply::Data { length } = answer.reply {
            if length > CHUNK {
                return;
            }
            bytes.resize(length as usize, 0);
            if data.read(0, &mut bytes).is_err() {
                return;
            }
        }
        let comment = match answer.reply {
            Reply::Nak { reason, .. } => {
                Some(explain(self.registry, answer.by, reason, answer.from))
            }
            _ => None,
        };
        let comment = comment.as_deref();
        self.capture.record_packets(link, direction, comment, |streams, each| {
            streams.answer(answer, &bytes, each);
        });
    }

    fn management(&self, link: Interface, path: &Path, packet: &Packet<'_>) {
        self.capture.record_packets(link, Direction::Outbound, None, |_, each| each(path, packet));
    }

    fn arrives(&self, path: &Path, identification: u16, datagram: &[u8], dropped: Option<&str>) {
        self.capture.record(Direction::Inbound, path, identification, datagram, dropped);
    }
}

/// The words for a refusal by the process in a slot, as `transom explain` has them.
fn explain(registry: &Registry, slot: u8, reason: u8, of: QpNumber) -> String {
    let records = registry.refusals(slot);
    let found = records
        .iter()
        .rev()
        .find(|record| (record.peer, record.refusal.reason.code()) == (of.bits(), reason));
    match (found, Reason::from_code(reason)) {
        (Some(record), _) => record.to_string(),
        // Others have pushed it out since.
        (None, Some(reason)) => format!("refused: {reason:?}"),
        (None, None) => "refused".to_owned(),
    }
}

/// The words for the refusal that a packet carries, if it is a refusal by the process in a slot.
fn reason_of_nak(registry: &Registry, slot: u8, packet: &Packet<'_>) -> Option<String> {
    let Operation::Acknowledge(aeth) = packet.operation else { return None };
    match aeth.syndrome()? {
        Syndrome::Nak(code) if code != NakCode::SequenceError => {}
        _ => return None,
    }
    let records = registry.refusals(slot);
    let record = records.iter().rev().find(|record| record.peer == packet.to)?;
    Some(record.to_string())
}
