//! What every adapter for RoCE has that connects queue pairs (RC): a program that needs no more runs on each of them.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::adapters::{BNXT, HNS, IONIC, IRDMA, MLX5, QEDR, RXE};
use super::{Answers, AtomicCap, Feature, Gids, Inline, Most, Node, Profile};

/// Those that it is the least of.
const OF: [&Profile; 7] = [&MLX5, &RXE, &IRDMA, &BNXT, &HNS, &IONIC, &QEDR];

pub(super) static LEAST: LazyLock<Profile> = LazyLock::new(|| {
    let lacks: HashSet<Feature> = OF.iter().flat_map(|it| it.lacks).copied().collect();
    let atomics = if lacks.contains(&Feature::Atomics) { AtomicCap::None } else { AtomicCap::Hca };
    Profile {
        name: "least",
        model: "the least of seven adapters",
        device: "least0",
        node: Node::Ca,
        firmware: "0.0.0",
        vendor_id: 0,
        part_id: 0,
        flags: OF.iter().fold(u64::MAX, |flags, it| flags & it.flags),
        page_sizes: OF.iter().filter_map(|it| it.page_sizes).reduce(|all, one| all & one),
        atomics,
        // Whoever adds it to a timeout must be ready for the longest.
        ack_delay: OF.iter().filter_map(|it| it.ack_delay).max(),
        most: most(),
        // It lives as long as the process.
        lacks: Vec::leak(lacks.into_iter().collect()),
        // Their tables differ in kind, and none is less than another.
        gids: Gids { both_versions: false, most: OF.iter().filter_map(|it| it.gids.most).min() },
        inline: Inline::AsAsked,
        answers: Answers::USUAL,
    }
});

fn most() -> Most {
    macro_rules! least {
        ($($number:ident)+) => {
            Most {
                $($number: OF.iter().filter_map(|it| it.most.$number).min(),)+
                // That of the other types is less.
                datagram_inline: None,
            }
        };
    }
    least! {
        regions region_bytes windows domains queue_pairs completion_queues completions
        work_requests sges read_sges inline responder_reads initiator_reads
        shared_queues shared_work_requests shared_sges
        address_handles multicast_groups multicast_members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: REH-84
    #[test]
    fn the_least_is_no_more_than_any_and_has_nothing_that_one_lacks() {
        let least = Profile::named("least").unwrap();
        for other in OF {
            assert!(other.lacks.iter().all(|feature| !least.has(*feature)), "{}", other.name);
            assert!(least.most.work_requests <= other.most.work_requests.or(Some(u32::MAX)));
            assert_eq!(least.flags & !other.flags, 0, "{}", other.name);
        }
        assert!(least.has(Feature::Rc) && least.has(Feature::OneSided));
        assert_eq!(least.has(Feature::Atomics), least.atomics != AtomicCap::None);
        assert_eq!(least.has(Feature::SharedReceives), least.most.shared_queues != Some(0));
        assert_eq!(least.has(Feature::Multicast), least.most.multicast_groups != Some(0));
    }
}
