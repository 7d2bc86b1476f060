//! Two devices of this process, one of which loses packets.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_host::Options;
use transom_net::faults::Faults;

/// A pair over the wire, with these faults from the opening of its devices on. What is lost goes again after a second, if
/// nothing shows it before: on a busy machine answers are late, and nothing else is to go again.
pub(super) fn losing(faults: &str, length: usize) -> MemoryPair {
    let faults: Faults = faults.parse().expect("faults");
    let faults = Some(&*Box::leak(Box::new(faults)));
    let (a, b) = ends(Link::Wire, Options { faults, ..Options::default() });
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    connect_with(qa, qb, |attr| attr.timeout = 18);
    MemoryPair::of(Pair { a, b, qa, qb }, length)
}

/// A pair over the wire. The only packet of its first WRITE is lost, so it goes again.
pub(super) fn losing_a_write(length: usize) -> MemoryPair {
    losing("drop,op=write,nth=1", length)
}
