//! Messages with any bytes changed.

use super::network::*;
use transom_cm::{Arrival, Service};
use transom_wire::cm::RejectReason;

/// Messages of any connection with any bytes changed, in any order and at any time.
///
/// Rules: CM-02, CM-13, CM-20
#[test]
fn no_message_whatever_it_says_does_more_than_a_message_may() {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut network = Network::new(2);
    let listeners = [Service::TCP, Service::UDP].map(|service| network.listen(1, service, 4));
    let mut past = Vec::new();
    for number in 0..2_000_u32 {
        match random.random_range(0..8) {
            0 => _ = network.connect(0, 1, Service::TCP, number),
            1 => _ = network.connect(0, 1, Service::UDP, number),
            2 => _ = network.ends[0].engine.poll_timeout().map(|_| network.skip()),
            _ => {}
        }
        if past.is_empty() {
            network.connect(0, 1, Service::TCP, number);
        }
        for end in [0, 1] {
            past.extend(network.outgoing(end));
            let now = network.now;
            let End { engine, host, events, .. } = &mut network.ends[end];
            events.extend(std::iter::from_fn(|| engine.poll_event()));
            for event in std::mem::take(events) {
                // Programs make any calls. Calls that are not allowed are refused.
                _ = engine.fetched(event.id);
                _ = match random.random_range(0..6) {
                    0 => engine.reject(event.id, RejectReason::Consumer, b"no", now),
                    1 => engine.disconnect(event.id, now),
                    2 => engine.destroy(event.id, now, host).map(drop),
                    3 => engine.establish(event.id),
                    _ => engine.accept(event.id, &acceptance(number), now),
                };
            }
        }
        for _ in 0..4 {
            let transmit = &past[random.random_range(past.len().saturating_sub(50)..past.len())];
            let arrival = Arrival { source: transmit.source, destination: transmit.destination };
            let mut bytes = transmit.mad.write();
            for _ in 0..random.random_range(0..3) {
                let at = random.random_range(0..bytes.len());
                bytes[at] ^= 1 << random.random_range(0..8);
            }
            // The message type of another message.
            if random.random_range(0..10) == 0 {
                bytes[17] = random.random_range(0x10..0x1b);
            }
            network.deliver_bytes(arrival, &bytes);
        }
        let ids = network.ends[1].engine.ids().count();
        assert!(network.ends[1].engine.waiting(listeners[0]).unwrap() <= 4, "{ids} ids");
    }
    network.finish();
}
