//! Adapters that a rehearsal stands for (`--as`): what each has and refuses.
//!
//! `spec/adapters.md` has the source of each fact. Facts that it marks "not checked" are not here: there the limits of
//! Transom's own device stay.

mod adapters;
mod answers;
mod inline;
mod least;

use Feature::*;

pub use answers::{Answers, Errno};
pub use inline::{Carries, Inline, Operations, Wanted};

/// Something that an adapter has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// UC queue pairs.
    Uc,
    /// UD queue pairs.
    Ud,
    /// RC queue pairs.
    Rc,
    /// XRC queue pairs, domains and shared receive queues.
    Xrc,
    /// Memory windows that a program can allocate.
    Windows,
    /// Compare and swap, fetch and add.
    Atomics,
    /// Atomic writes.
    AtomicWrites,
    /// FLUSH.
    Flushes,
    /// SENDs that invalidate a key of the peer.
    RemoteInvalidate,
    /// `IBV_WR_LOCAL_INV`.
    LocalInvalidate,
    /// Immediate data.
    Immediates,
    /// READ and WRITE.
    OneSided,
    /// Requests without a completion.
    Unsignaled,
    /// `IBV_SEND_SOLICITED` and `IBV_SEND_FENCE`.
    SolicitedAndFence,
    /// Shared receive queues.
    SharedReceives,
    /// A new size for a shared receive queue.
    SharedResize,
    /// Tag matching.
    TagMatching,
    /// `ibv_create_qp_ex` beyond a protection domain.
    ExtendedQueuePairs,
    /// `ibv_create_cq_ex`.
    ExtendedQueues,
    /// Timestamps of completions, and `ibv_query_rt_values_ex`.
    Timestamps,
    /// `ibv_modify_cq`.
    Moderation,
    /// `ibv_resize_cq`.
    Resize,
    /// `ibv_rereg_mr`.
    Reregistration,
    /// Thread domains and parent domains.
    Domains,
    /// Null regions.
    NullRegions,
    /// Regions whose addresses begin at zero.
    ZeroBased,
    /// Regions of huge pages (`IBV_ACCESS_HUGETLB`).
    HugePages,
    /// Regions for more than LOCAL_WRITE, REMOTE_READ and REMOTE_WRITE.
    OtherRights,
    /// Regions of a dma-buf.
    DmaBuf,
    /// Device memory.
    DeviceMemory,
    /// On-demand paging.
    OnDemandPaging,
    /// Multicast.
    Multicast,
    /// Address handles that a program makes.
    AddressHandles,
    /// Completion counters.
    CompletionCounters,
}

/// What `atomic_cap` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicCap {
    /// No atomics.
    None,
    /// Among the queue pairs of the adapter.
    Hca,
    /// Against the processor too.
    Glob,
}

/// What kind of node an adapter is. The transport follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A channel adapter of InfiniBand or RoCE.
    Ca,
    /// An adapter of iWARP.
    Rnic,
    /// One of its own kind.
    Unspecified,
}

/// The GID table of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gids {
    /// Each address stands in it twice: for RoCE v1, and then for RoCE v2.
    pub both_versions: bool,
    /// `gid_tbl_len`, if it was checked.
    pub most: Option<u16>,
}

/// The most of everything. `None` is not checked: as many as Transom's own device has. So is more than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// `max_mr`
    pub regions: Option<u32>,
    /// `max_mr_size`
    pub region_bytes: Option<u64>,
    /// `max_mw`
    pub windows: Option<u32>,
    /// `max_pd`
    pub domains: Option<u32>,
    /// `max_qp`
    pub queue_pairs: Option<u32>,
    /// `max_cq`
    pub completion_queues: Option<u32>,
    /// `max_cqe`
    pub completions: Option<u32>,
    /// `max_qp_wr`
    pub work_requests: Option<u32>,
    /// `max_sge`
    pub sges: Option<u32>,
    /// `max_sge_rd`
    pub read_sges: Option<u32>,
    /// Inline bytes of a request. No attribute tells them.
    pub inline: Option<u32>,
    /// The same of UD, if it has another limit.
    pub datagram_inline: Option<u32>,
    /// `max_qp_rd_atom`
    pub responder_reads: Option<u8>,
    /// `max_qp_init_rd_atom`
    pub initiator_reads: Option<u8>,
    /// `max_srq`
    pub shared_queues: Option<u32>,
    /// `max_srq_wr`
    pub shared_work_requests: Option<u32>,
    /// `max_srq_sge`
    pub shared_sges: Option<u32>,
    /// `max_ah`
    pub address_handles: Option<u32>,
    /// `max_mcast_grp`
    pub multicast_groups: Option<u32>,
    /// `max_mcast_qp_attach`
    pub multicast_members: Option<u32>,
}

/// An adapter, by its driver in Linux and its provider in rdma-core.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name for users, such as `mlx5`.
    pub name: &'static str,
    /// The model.
    pub model: &'static str,
    /// The name that the kernel gives its first device.
    pub device: &'static str,
    /// What kind of node it is.
    pub node: Node,
    /// `fw_ver`
    pub firmware: &'static str,
    /// `vendor_id`
    pub vendor_id: u32,
    /// `vendor_part_id`
    pub part_id: u32,
    /// The bits of `device_cap_flags_ex`.
    pub flags: u64,
    /// `page_size_cap`, if it was checked.
    pub page_sizes: Option<u64>,
    /// `atomic_cap`
    pub atomics: AtomicCap,
    /// `local_ca_ack_delay`, if it was checked.
    pub ack_delay: Option<u8>,
    /// The most of everything.
    pub most: Most,
    /// What it lacks.
    pub lacks: &'static [Feature],
    /// The GID table of its port.
    pub gids: Gids,
    /// How much inline data it grants.
    pub inline: Inline,
    /// What posts answer that are refused.
    pub answers: Answers,
}

impl Profile {
    /// Those of one adapter each.
    pub const ALL: &[&Self] = &[
        &adapters::MLX5,
        &adapters::RXE,
        &adapters::IRDMA,
        &adapters::BNXT,
        &adapters::EFA,
        &adapters::HNS,
        &adapters::IONIC,
        &adapters::QEDR,
        &adapters::SIW,
    ];

    /// All of them, and last the least of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        Self::ALL.iter().copied().chain([&*least::LEAST])
    }

    /// The profile with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|it| it.name == name)
    }

    /// Whether the adapter has something.
    pub fn has(&self, feature: Feature) -> bool {
        // An adapter without a whole has no part of it.
        let whole = match feature {
            SharedResize | TagMatching => Some(SharedReceives),
            _ => None,
        };
        let lacks = |it| self.lacks.contains(&it);
        !lacks(feature) && !whole.is_some_and(lacks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: REH-50
    #[test]
    fn profiles_are_found_by_name_and_agree_with_themselves() {
        for profile in Profile::ALL {
            assert_eq!(Profile::named(profile.name), Some(*profile));
            let has = |feature| profile.has(feature);
            let name = profile.name;
            assert_eq!(has(Atomics), profile.atomics != AtomicCap::None, "{name}");
            assert_eq!(has(SharedReceives), profile.most.shared_queues != Some(0), "{name}");
            assert_eq!(has(Multicast), profile.most.multicast_groups != Some(0), "{name}");
            assert!(has(SharedReceives) || !has(TagMatching) && !has(SharedResize), "{name}");
            // Bits of `device_cap_flags_ex` that say the same.
            for (bit, feature) in [(13, SharedResize), (20, Xrc), (38, Flushes), (40, AtomicWrites)]
            {
                assert_eq!(has(feature), profile.flags & 1 << bit != 0, "{name}: {feature:?}");
            }
        }
        assert_eq!(Profile::named("transom"), None);
    }

    /// Each profile stands in the table of models with its numbers, and each has a section of facts.
    ///
    /// Rule: REH-50
    #[test]
    fn the_table_of_adapters_has_every_profile() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/adapters.md");
        let text = std::fs::read_to_string(path).unwrap();
        for profile in Profile::ALL {
            assert!(text.contains(&format!("\n## {}\n", profile.name)), "{}", profile.name);
            let row = text.lines().find(|it| it.starts_with(&format!("| {} |", profile.name)));
            let row = row.unwrap();
            assert!(row.contains(profile.model), "{row}");
            assert!(row.contains(&format!("{:#x}", profile.vendor_id)) || row.contains("0x02c9"));
            let (part, hex) = (profile.part_id.to_string(), format!("{:#x}", profile.part_id));
            assert!(row.contains(&part) || row.contains(&hex), "{row}");
            let section = text.split(&format!("\n## {}\n", profile.name)).nth(1).unwrap();
            let section = section.split("\n## ").next().unwrap();
            let name = profile.device;
            assert!(section.contains(name), "{name}");
            assert!(section.contains(profile.firmware), "{name}: {}", profile.firmware);
            if let Some(most) = profile.gids.most {
                let says = |how| section.contains(&format!("gid_tbl_len {how}{most}"));
                assert!(says("") || says("at most "), "{name}: {most} GIDs");
            }
            let flags = format!("{:#x}", profile.flags & u64::from(u32::MAX));
            let none = profile.flags == 0 && section.contains("device_cap_flags");
            assert!(none || section.contains(&flags), "{}: {flags}", profile.name);
            for (fact, most) in facts(&profile.most) {
                let row =
                    section.lines().filter_map(|row| row.strip_prefix("| ")).find_map(|row| {
                        let (facts, rest) = row.split_once(" | ")?;
                        let place = facts.split(", ").position(|it| it == fact)?;
                        Some((place, facts.split(", ").count(), rest.split_once(" | ")?.0))
                    });
                match row {
                    Some(row) => assert!(says(row, most), "{name}: {fact} {most}: {row:?}"),
                    // It is of something that the adapter lacks wholly.
                    None => assert_eq!(most, 0, "{name}: {fact}"),
                }
            }
        }
    }

    /// The numbers that are checked, by their names. The most inline data has no name.
    fn facts(most: &Most) -> Vec<(&'static str, u64)> {
        let small = [
            ("max_mr", most.regions),
            ("max_mw", most.windows),
            ("max_pd", most.domains),
            ("max_qp", most.queue_pairs),
            ("max_cq", most.completion_queues),
            ("max_cqe", most.completions),
            ("max_qp_wr", most.work_requests),
            ("max_sge", most.sges),
            ("max_sge_rd", most.read_sges),
            ("max_qp_rd_atom", most.responder_reads.map(u32::from)),
            ("max_qp_init_rd_atom", most.initiator_reads.map(u32::from)),
            ("max_srq", most.shared_queues),
            ("max_srq_wr", most.shared_work_requests),
            ("max_srq_sge", most.shared_sges),
            ("max_ah", most.address_handles),
            ("max_mcast_grp", most.multicast_groups),
            ("max_mcast_qp_attach", most.multicast_members),
        ];
        let small = small.into_iter().filter_map(|(name, most)| Some((name, most?.into())));
        small.chain(most.region_bytes.map(|most| ("max_mr_size", most))).collect()
    }

    /// Whether a row says a number of the fact at this place among so many. If it has one value for each fact, that one
    /// counts. Otherwise it is a text that has the number.
    fn says((place, count, values): (usize, usize, &str), number: u64) -> bool {
        let each: Vec<_> = values.split(", ").collect();
        let are_numbers =
            each.iter().all(|it| it.starts_with(|first: char| first.is_ascii_digit()));
        let text = if each.len() == count && are_numbers { each[place] } else { values };
        let powers = [format!("2^{}", number.trailing_zeros()), number.to_string()];
        let is_power = number.is_power_of_two();
        let mut words = text.split(|it: char| !it.is_ascii_digit() && it != '^');
        words.any(|word| word == powers[1] || is_power && word == powers[0])
    }
}
