//! Ids whose addresses change.

use std::time::Duration;

use transom_conformance::connections::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;

/// An id that is bound to an address is told when its interface has another hardware address, as after the fail-over of
/// a bond, and when it is another interface's; no other id is told.
///
/// Rules: CM-55
#[test]
fn ids_hear_that_their_address_belongs_to_other_hardware() {
    alone(
        path_of!("ids_hear_that_their_address_belongs_to_other_hardware"),
        Way::Namespace,
        || {
            for pair in [["near", "far"], ["other", "beyond"]] {
                ip(&format!("link add {} type veth peer name {}", pair[0], pair[1]));
                for name in pair {
                    ip(&format!("link set {name} addrgenmode none up"));
                }
            }
            ip("address add 10.9.0.1/24 dev near");
            ip("address add 10.8.0.1/24 dev other");
            let file = File::open();
            let bound = file.listener("10.9.0.1:0");
            let [Some(address), None] = file.addresses(bound) else { panic!("it is bound") };
            let resolved = file.id();
            file.resolve(resolved, &address.to_string());
            // Who has no address, or another one, does not hear of it.
            let [_unbound, anywhere, elsewhere] = [(); 3].map(|()| file.id());
            file.bind(anywhere, "0.0.0.0:0").expect("bound");
            file.bind(elsewhere, "10.8.0.1:0").expect("bound");
            let both_hear = || {
                let mut heard = [file.event(), file.event()].map(|event| {
                    assert_eq!((event.event, event.status), (event::ADDR_CHANGE, 0));
                    event.id
                });
                heard.sort_unstable();
                let mut both = [bound.0, resolved.0];
                both.sort_unstable();
                assert_eq!(heard, both);
            };
            ip("link set near address 02:00:00:00:00:09");
            both_hear();
            // Nothing has changed of what they look at.
            ip("link set near mtu 1400");
            ip("link set near address 02:00:00:00:00:0a");
            both_hear();
            assert!(!file.is_readable(Duration::ZERO));
            // They go on.
            file.connect(resolved, qpns()[0], b"").expect("asked");
            file.reject(file.request(), b"").expect("refused");
            file.expect(event::REJECTED, resolved);
        },
    );
}
