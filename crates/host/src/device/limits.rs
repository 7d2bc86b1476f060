//! How much of everything a device has.

/// How many of each a device has. Programs are told these limits, and the device enforces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory regions.
    pub regions: u32,
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
    /// Inline bytes of a work request.
    pub inline: u32,
    /// Completions of a queue.
    pub completions: u32,
    /// Outstanding READs and atomics of a queue pair, in each direction.
    pub read_resources: u8,
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
    /// The limits of every Transom device.
    pub const DEVICE: Self = Self {
        regions: 1 << 20,
        windows: 1 << 20,
        domains: 1 << 16,
        queue_pairs: 60_000,
        completion_queues: 1 << 16,
        completion_counters: 1 << 16,
        work_requests: 1 << 15,
        shared_work_requests: (1 << 15) - 1,
        max_sge: 32,
        inline: 1024,
        completions: (1 << 22) - 1,
        read_resources: 128,
        shared_receive_queues: 1 << 16,
        tags: 1 << 10,
        tag_operations: 1 << 15,
        address_handles: 1 << 20,
        multicast_groups: 1 << 12,
        multicast_members: 1 << 8,
        device_memory: 64 << 20,
    };

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
