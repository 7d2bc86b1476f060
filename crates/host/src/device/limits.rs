//! How much of everything a device has.

use std::sync::OnceLock;

use transom_rehearse::Profile;
use transom_system::rehearsal;

/// How many of each a device has. Programs are told these limits, and the device enforces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory regions.
    pub regions: u32,
    /// Bytes of a memory region: the user half of the address space.
    pub region_bytes: u64,
    /// Memory windows.
    pub windows: u32,
    /// Protection domains.
    pub domains: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Completion counters.
    pub completion_counters: u32,
    /// Work requests in a queue of a queue pair's own.
    pub work_requests: u32,
    /// Work requests in a shared receive queue.
    pub shared_work_requests: u32,
    /// SGEs of a work request.
    pub max_sge: u32,
    /// SGEs of a READ.
    pub read_sge: u32,
    /// SGEs of a receive in a shared queue.
    pub shared_sge: u32,
    /// Inline bytes of a work request.
    pub inline: u32,
    /// The same of UD.
    pub datagram_inline: u32,
    /// Completions of a queue.
    pub completions: u32,
    /// Outstanding READs and atomics that a queue pair answers.
    pub read_resources: u8,
    /// Outstanding READs and atomics that a queue pair sends.
    pub initiated_reads: u8,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Tagged buffers of a shared receive queue.
    pub tags: u32,
    /// Outstanding list operations of a shared receive queue with tag matching.
    pub tag_operations: u32,
    /// Address handles.
    pub address_handles: u32,
    /// Multicast groups with members in this process.
    pub multicast_groups: u32,
    /// Queue pairs of one multicast group.
    pub multicast_members: u32,
    /// Bytes of device memory that all `ibv_alloc_dm` together may take.
    pub device_memory: u64,
}

impl Limits {
    /// The limits of Transom's device, outside a rehearsal as another adapter.
    pub const DEVICE: Self = Self {
        regions: 1 << 20,
        region_bytes: 1 << 47,
        windows: 1 << 20,
        domains: 1 << 16,
        queue_pairs: 60_000,
        completion_queues: 1 << 16,
        completion_counters: 1 << 16,
        work_requests: 1 << 15,
        shared_work_requests: (1 << 15) - 1,
        max_sge: 32,
        read_sge: 32,
        shared_sge: 32,
        inline: 1024,
        datagram_inline: 1024,
        completions: (1 << 22) - 1,
        read_resources: 128,
        initiated_reads: 128,
        shared_receive_queues: 1 << 16,
        tags: 1 << 10,
        tag_operations: 1 << 15,
        address_handles: 1 << 20,
        multicast_groups: 1 << 12,
        multicast_members: 1 << 8,
        device_memory: 64 << 20,
    };

    /// The limits of this process's devices. They do not change once a device is open.
    #[inline]
    pub fn here() -> &'static Self {
        static OF_PROFILE: OnceLock<Limits> = OnceLock::new();
        match rehearsal::profile() {
            None => &Self::DEVICE,
            Some(profile) => OF_PROFILE.get_or_init(|| Self::of(profile)),
        }
    }

    /// The limits of an adapter, as far as Transom's device reaches them.
    fn of(profile: &Profile) -> Self {
        let (most, own) = (&profile.most, Self::DEVICE);
        let least = |most: Option<u32>, own: u32| most.map_or(own, |most| most.min(own));
        let least_reads = |most: Option<u8>, own: u8| most.map_or(own, |most| most.min(own));
        Self {
            regions: least(most.regions, own.regions),
            region_bytes: most.region_bytes.unwrap_or(u64::MAX).min(own.region_bytes),
            windows: least(most.windows, own.windows),
            domains: least(most.domains, own.domains),
            queue_pairs: least(most.queue_pairs, own.queue_pairs),
            completion_queues: least(most.completion_queues, own.completion_queues),
            work_requests: least(most.work_requests, own.work_requests),
            shared_work_requests: least(most.shared_work_requests, own.shared_work_requests),
            max_sge: least(most.sges, own.max_sge),
            read_sge: least(most.read_sges, own.read_sge),
            shared_sge: least(most.shared_sges, own.shared_sge),
            inline: least(most.inline, own.inline),
            datagram_inline: least(most.datagram_inline.or(most.inline), own.inline),
            completions: least(most.completions, own.completions),
            read_resources: least_reads(most.responder_reads, own.read_resources),
            initiated_reads: least_reads(most.initiator_reads, own.initiated_reads),
            shared_receive_queues: least(most.shared_queues, own.shared_receive_queues),
            address_handles: least(most.address_handles, own.address_handles),
            multicast_groups: least(most.multicast_groups, own.multicast_groups),
            multicast_members: least(most.multicast_members, own.multicast_members),
            ..own
        }
    }

    /// How many work requests each queue of a queue pair gets if you ask for so many: a power of two, as an adapter's
    /// rings have, or none (rule CR-02). At most the limit, unless more was asked for.
    pub fn depth(asked: u32) -> u32 {
        if asked == 0 { 0 } else { asked.next_power_of_two() }
    }

    /// How many entries a completion queue or shared receive queue gets if you ask for so many: one less than a power
    /// of two, because adapters leave one entry of these rings empty (rules CR-14, CR-19). At most the limit, unless
    /// more was asked for.
    pub fn shared_depth(asked: u32) -> u32 {
        (asked + 1).next_power_of_two() - 1
    }
}

const _: () = {
    let limits = Limits::DEVICE;
    assert!(limits.work_requests.is_power_of_two());
    assert!((limits.shared_work_requests + 1).is_power_of_two());
    assert!((limits.completions + 1).is_power_of_two());
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: REH-51
    #[test]
    fn a_profile_has_the_limits_of_its_adapter_and_never_more_than_the_device() {
        let of = |name| Limits::of(Profile::named(name).expect("a profile"));
        let irdma = of("irdma");
        assert_eq!((irdma.work_requests, irdma.max_sge, irdma.inline), (4063, 13, 101));
        assert_eq!((irdma.read_resources, irdma.initiated_reads), (127, 128));
        assert_eq!((irdma.region_bytes, irdma.shared_receive_queues), (1 << 45, 0));
        let mlx5 = of("mlx5");
        assert_eq!((mlx5.max_sge, mlx5.shared_sge, mlx5.read_resources), (30, 31, 16));
        // The adapter has 131072.
        assert_eq!(mlx5.queue_pairs, Limits::DEVICE.queue_pairs);
        let rxe = of("rxe");
        assert_eq!((rxe.completions, rxe.inline, rxe.shared_sge), (32_767, 512, 27));
        assert_eq!(*Limits::here(), Limits::DEVICE);
    }
}
