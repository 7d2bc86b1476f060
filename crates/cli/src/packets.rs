//! The packet counters of a process, for people and for programs.

use crate::lines::Exact;
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use transom_system::registry::{Counters, Dropped};

/// One line for each reason why packets were dropped: `3 packets dropped: wrong ICRC`.
pub(crate) fn dropped(counters: &Counters) -> impl Iterator<Item = String> {
    Dropped::ALL.into_iter().filter_map(|why| {
        let count = counters.dropped(why);
        (count > 0).then(|| format!("{} dropped: {why}", packets(count)))
    })
}

/// All counters as lines. None if the process has neither sent nor received a packet.
pub(crate) fn lines(counters: &Counters) -> Vec<String> {
    let [sent, received] = [&counters.sent, &counters.received].map(|count| count.load(Relaxed));
    let traffic = format!("{} sent, {received} received over the wire", packets(sent));
    let traffic = (sent + received > 0).then_some(traffic);
    traffic.into_iter().chain(dropped(counters)).collect()
}

/// All counters.
pub(crate) fn json(counters: &Counters) -> Value {
    let dropped = Dropped::ALL.map(|why| (why.name().to_owned(), counters.dropped(why).into()));
    json!({
        "packets_sent": counters.sent.load(Relaxed),
        "bytes_sent": Exact(counters.bytes_sent.load(Relaxed)),
        "no_room": counters.no_room.load(Relaxed),
        "packets_received": counters.received.load(Relaxed),
        "bytes_received": Exact(counters.bytes_received.load(Relaxed)),
        "handed_on": counters.handed_on.load(Relaxed),
        "congestion_notifications_sent": counters.notifications_sent.load(Relaxed),
        "congestion_notifications_received": counters.notifications_received.load(Relaxed),
        "dropped": Value::Object(dropped.into_iter().collect()),
    })
}

fn packets(count: u64) -> String {
    if count == 1 { "1 packet".to_owned() } else { format!("{count} packets") }
}
