//! Regions, and the buffers in use.
//!
//! A buffer is in use from its post until the poll of its request's completion. The device reads a *source* in this
//! time, and writes to a *target*.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::ops::Range;

use super::buffer::PiecesMut;
use super::ring::Ring;
use super::span::{Gone, Spans, overlap};
use super::{Buffer, Ended, Ledger, Posted, SHOWN, Sample, Thing};
use crate::{Call, Kind};

/// A memory region, as it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The context it is in.
    pub context: usize,
    /// The address of its `ibv_mr`.
    pub object: usize,
    /// The address of the memory in the program.
    pub address: u64,
    /// The place of the memory, as the device reads it: a number to which offsets are added.
    pub place: u64,
    /// The first address for requests: the `iova`, or 0 if the region is zero-based.
    pub base: u64,
    /// Its length in bytes.
    pub length: u64,
    /// It has memory of the program: it is no null region, no device memory and no dma-buf.
    pub is_program: bool,
    /// Peers may write to it, or windows may be bound to it.
    pub is_open: bool,
    /// It is paged on demand: each access sees the pages that the program has there at that time.
    pub is_on_demand: bool,
}

impl Region {
    /// The program's address of a buffer. None if the buffer is not completely inside the region.
    pub(super) fn at(&self, buffer: &Buffer) -> Option<u64> {
        let offset = buffer.address.checked_sub(self.base)?;
        let end = offset.checked_add(buffer.length)?;
        let is_inside = self.is_program && end <= self.length;
        self.address.checked_add(offset).filter(|_| is_inside)
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.length)
    }

    /// Whether another registration has the same memory, at the same addresses for requests.
    fn has_memory_of(&self, other: &Self) -> bool {
        let memory = |it: &Self| {
            let is_kept = it.is_program && !it.is_on_demand;
            (it.object, it.address, it.place, it.base, it.length, is_kept)
        };
        memory(self) == memory(other)
    }
}

/// The difference between a sample and the present content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The offset of the first changed byte in the data of the request.
    pub first: u64,
    /// The number of changed bytes in the sample.
    pub count: u64,
}

/// If so many targets are in use, no further receive is compared: each needs room for its sample.
const RECEIVES: usize = 4096;

impl Posted {
    fn names(&self, region: u64) -> bool {
        self.buffers
            .iter()
            .any(|it| it.region.is_some_and(|it| it.get() == region) && it.length > 0)
    }
}

/// The device's counts for a queue pair whose requests name some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// The address of its `ibv_qp`.
    pub pair: usize,
    /// The number of sends that were posted to it before the device counted.
    pub posted: u64,
    /// The number of its sends that the device has not carried out.
    pub sends: usize,
    /// Messages may still arrive.
    pub receives: bool,
}

/// The most written ranges that are remembered.
const LANDED: usize = 1024;

/// A target in use.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// The number of requests that have it.
    count: usize,
    /// The call that posted the first of them.
    call: Call,
    /// The R_Key and remote address of the first, if it is a READ.
    from: Option<(u32, u64)>,
}

/// Regions and targets.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Regions by device and key. Each registration has its own number.
    regions: BTreeMap<(usize, u32), (u64, Region)>,
    last: u64,
    /// Targets in use, by their start and end.
    targets: BTreeMap<(u64, u64), Target>,
    /// The length of the longest target so far, in bytes.
    longest: u64,
    /// The last ranges that the device or a peer may have written to.
    landed: VecDeque<Range<u64>>,
    /// The number of such ranges so far.
    count: u64,
    /// Memory that was given back while a region had it.
    pub(super) gone: Vec<Gone>,
    spans: Spans,
}

impl Memory {
    pub(super) fn forget_context(&mut self, context: usize) {
        let of_context = |(_, region): &&(u64, Region)| region.context == context;
        let ended: Vec<_> = self.regions.values().filter(of_context).copied().collect();
        self.regions.retain(|_, (_, region)| region.context != context);
        ended.iter().for_each(|(number, region)| self.forget(*number, region));
    }

    /// A registration has ended.
    fn forget(&mut self, number: u64, region: &Region) {
        self.spans.remove(number, &region.range());
        self.gone.retain(|gone| gone.region != number);
    }

    /// The registrations that contain some of these bytes.
    pub(super) fn regions_in(&self, range: &Range<u64>) -> Vec<u64> {
        self.spans.of(range)
    }

    /// Regions that do not fill their first or last page: the key and the `ibv_mr` of each.
    pub(super) fn sharing_pages(&self, page: u64) -> Vec<(u32, usize)> {
        let is_whole = |at: u64| at.is_multiple_of(page);
        let shares = |region: &Region| {
            let range = region.range();
            let is_meant = region.is_program && !region.is_on_demand && region.length > 0;
            is_meant && !(is_whole(range.start) && is_whole(range.end))
        };
        let all = self.regions.iter().filter(|(_, (_, region))| shares(region));
        all.map(|((_, key), (_, region))| (*key, region.object)).collect()
    }

    /// The registration with a key, and its region.
    pub(super) fn region_with(&self, device: usize, key: u32) -> Option<(u64, &Region)> {
        self.regions.get(&(device, key)).map(|(number, region)| (*number, region))
    }

    /// The key and the region of a registration.
    pub(super) fn region(&self, number: u64) -> Option<(u32, &Region)> {
        let mut regions = self.regions.iter();
        let found = regions.find(|(_, (other, _))| *other == number);
        found.map(|((_, key), (_, region))| (*key, region))
    }

    /// Whether peers may write to some of these bytes, or windows may be bound to them.
    fn is_open(&self, range: &Range<u64>) -> bool {
        let mut regions = self.regions.values().filter(|(_, region)| region.is_open);
        regions.any(|(_, region)| overlap(&region.range(), range))
    }

    fn land(&mut self, range: Range<u64>) {
        if self.landed.len() == LANDED {
            self.landed.pop_front();
        }
        self.landed.push_back(range);
        self.count += 1;
    }

    /// One request fewer has this target, if it is known.
    fn take_target(&mut self, range: &Range<u64>) {
        let key = (range.start, range.end);
        if let Some(target) = self.targets.get_mut(&key) {
            target.count -= 1;
            if target.count == 0 {
                self.targets.remove(&key);
            }
        }
    }

    /// These requests were refused, so their targets are not in use.
    pub(super) fn missed(&mut self, refused: &[Posted]) {
        for posted in refused.iter().filter(|it| it.is_target) {
            let ranges = posted.buffers.iter().filter_map(Buffer::range);
            ranges.for_each(|range| self.take_target(&range));
        }
    }

    /// These requests have ended. The device may have written to their targets.
    pub(super) fn landed<'a>(&mut self, ended: impl IntoIterator<Item = &'a mut Posted>) {
        for posted in ended.into_iter().filter(|it| it.is_target) {
            let before = self.count;
            for range in posted.buffers.iter().filter_map(Buffer::range) {
                self.take_target(&range);
                self.land(range);
            }
            let own = before..self.count;
            posted.sample.own = own;
        }
    }

    /// The post of another target that overlaps with this one. A target that begins at the same address does not count:
    /// programs that do not need the data post one buffer many times. But two READs of different memory into the same
    /// target count.
    fn other_target(&self, range: &Range<u64>, from: Option<(u32, u64)>) -> Option<Call> {
        let same = self.targets.get(&(range.start, range.end));
        let differs = |it: &&Target| it.from.zip(from).is_some_and(|(one, other)| one != other);
        if let Some(target) = same.filter(differs) {
            return Some(target.call);
        }
        let first = (range.start.saturating_sub(self.longest), 0);
        let near = self.targets.range(first..(range.start, 0));
        let mut near = near.chain(self.targets.range((range.start + 1, 0)..(range.end, 0)));
        near.find(|&(&(_, end), _)| end > range.start).map(|(_, target)| target.call)
    }

    /// The number of requests that have targets in use there.
    fn aims_at(&self, range: &Range<u64>) -> usize {
        let first = (range.start.saturating_sub(self.longest), 0);
        let near = self.targets.range(first..(range.end, 0));
        near.filter(|(it, _)| it.1 > range.start).map(|(_, target)| target.count).sum()
    }

    /// Whether the device may have written there since a sample was taken, for another request.
    fn was_target(&self, range: &Range<u64>, sample: &Sample) -> bool {
        let past = usize::try_from(self.count.saturating_sub(sample.since)).unwrap_or(usize::MAX);
        let is_known = past <= self.landed.len();
        let mut landed = (0..self.count).rev().zip(self.landed.iter().rev()).take(past);
        let is_other = |at: u64| !sample.own.contains(&at);
        self.aims_at(range) > 0
            || !is_known
            || landed.any(|(at, it)| is_other(at) && overlap(it, range))
    }
}

impl Ledger {
    /// The device of the queue pair with a number.
    pub(super) fn device_of(&self, number: u32) -> Option<usize> {
        let pair = self.pairs.get(self.numbers.get(&number)?)?;
        Some(pair.asked.device)
    }

    /// A region is registered on a device. Or it is registered anew: if it has the same memory at the same addresses, the
    /// requests that name it still do.
    pub fn registered(&mut self, device: usize, key: u32, region: Region) {
        let memory = &mut self.memory;
        if let Some((_, same)) = memory.regions.get_mut(&(device, key))
            && same.has_memory_of(&region)
        {
            let was_open = std::mem::replace(same, region).is_open;
            if was_open && !region.is_open {
                // A peer may have written to it.
                memory.land(region.range());
            }
            return;
        }
        memory.last += 1;
        if region.is_program && !region.is_on_demand {
            memory.spans.add(memory.last, &region.range());
        }
        if let Some((number, other)) = memory.regions.insert((device, key), (memory.last, region)) {
            memory.forget(number, &other);
        }
    }

    /// Looks up the regions and addresses of a request's buffers.
    pub fn locate(&self, device: usize, posted: &mut Posted) {
        for buffer in posted.buffers.as_mut() {
            if let Some((number, region)) = self.memory.regions.get(&(device, buffer.key)) {
                buffer.region = NonZeroU64::new(*number);
                if let Some(at) = region.at(buffer) {
                    buffer.is_at(at, region.place + (at - region.address));
                }
            }
        }
    }

    /// Begins the sample of a request that is about to be posted, if it is worth one: the device reads from it, or it is
    /// a receive that has its buffers alone.
    pub(super) fn begin_sample(&self, posted: &mut Posted) {
        let has_room = || self.memory.targets.len() < RECEIVES;
        let is_alone = || posted.is_receive && has_room() && self.aims_of(posted) == 0;
        if !posted.is_target || is_alone() {
            posted.sample.begin(&posted.buffers, self.memory.count);
        } else {
            posted.sample.clear();
        }
    }

    /// The number of requests that have targets in use where this one has its buffers.
    fn aims_of(&self, posted: &Posted) -> usize {
        posted.buffers.iter().filter_map(Buffer::range).map(|it| self.memory.aims_at(&it)).sum()
    }

    /// READs and atomics that were posted to a queue pair are carried out. `read` reads what is in their buffers now:
    /// the device writes nothing there any more. A request is left out if another one has the same target, or if its
    /// completion was polled meanwhile.
    pub fn returned(
        &mut self,
        address: usize,
        posted: &[Posted],
        read: impl Fn(u64, &mut [u8]) -> bool,
    ) {
        for it in posted.iter().filter(|it| it.is_target) {
            let is_alone = self.aims_of(it) == it.buffers.iter().filter_map(Buffer::range).count();
            let mut sample = Sample::default();
            if is_alone {
                sample.begin(&it.buffers, self.memory.count);
            }
            let is_read =
                PiecesMut::of(&it.buffers, &mut sample).all(|it| read(it.place, it.bytes));
            if !sample.is_there() || !is_read {
                continue;
            }
            let Some(pair) = self.pairs.get_mut(&address) else { return };
            // The last one: an earlier one, which the device has not carried out yet, may have the same number and call.
            let mut same = pair.sends.iter_mut().rev().filter(|other| other.is_same(it));
            if let Some(posted) =
                same.find(|other| !other.sample.is_there() && other.buffers == it.buffers)
            {
                posted.sample = sample;
            }
        }
    }

    /// The targets of these requests are in use from now on.
    pub(super) fn aimed<'a>(&mut self, posted: impl Iterator<Item = &'a Posted>) {
        for posted in posted.filter(|it| it.is_target) {
            for range in posted.buffers.iter().filter_map(Buffer::range) {
                if let Some(other) = self.memory.other_target(&range, posted.remote) {
                    self.tell_overlap(posted, other);
                }
                let memory = &mut self.memory;
                memory.longest = memory.longest.max(range.end - range.start);
                let new = Target { count: 0, call: posted.call, from: posted.remote };
                memory.targets.entry((range.start, range.end)).or_insert(new).count += 1;
            }
        }
    }

    fn tell_overlap(&mut self, posted: &Posted, other: Call) {
        let says = format!(
            "The buffer of a {} overlaps that of another posted request: the later data overwrites the earlier.",
            posted.what
        );
        let mut calls = vec![posted.here(), ("the other was posted here".to_owned(), other)];
        calls.extend(self.region_made(posted));
        self.found(Kind::TargetsOverlap, says, calls);
    }

    /// The call that made the region of a request's first buffer.
    pub(super) fn region_made(&self, posted: &Posted) -> Option<(String, Call)> {
        let region = posted.buffers.iter().find_map(|it| it.region)?;
        let (_, region) = self.memory.region(region.get())?;
        self.made_by(Thing::Region, region.object)
    }

    /// The buffers of a request, which has ended, have changed since its sample.
    pub fn changed(&mut self, ended: &Ended, change: Change, call: &Call) {
        let Ended { pair, number, posted } = ended;
        let ranges: Vec<_> = posted.buffers.iter().filter_map(Buffer::range).collect();
        if ranges.iter().any(|range| self.memory.was_target(range, &posted.sample)) {
            return;
        }
        let is_open = ranges.iter().any(|range| self.memory.is_open(range));
        let (kind, of) = match (posted.is_target, posted.is_receive) {
            (_, false) if self.counts_completions() => return,
            (false, _) if is_open => (Kind::SourceRaced, "of"),
            (false, _) => (Kind::SourceChanged, "of"),
            (true, false) if is_open => (Kind::TargetRaced, "that came by"),
            (true, false) => (Kind::TargetChanged, "that came by"),
            // A peer may have written behind the message.
            (true, true) if is_open || self.counts_completions() => return,
            (true, true) => (Kind::TargetRaced, "behind the message of"),
        };
        let Change { first, count } = change;
        let bytes = if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") };
        let says = format!(
            "{bytes} {of} a {} of queue pair {number:#x} changed before its completion was polled, the first at offset \
             {first}.",
            posted.what
        );
        let mut calls = vec![posted.here(), ("polled here".to_owned(), *call)];
        calls.extend(self.made_by(Thing::QueuePair, *pair));
        self.found(kind, says, calls);
    }

    /// Whether the program may know by a completion counter that a request has ended.
    pub(super) fn counts_completions(&self) -> bool {
        self.objects.keys().any(|(thing, _)| *thing == Thing::CompletionCounter)
    }

    /// The queue pairs whose requests name a region that is about to end, and the number of sends posted to each.
    pub fn pairs_naming(&self, device: usize, key: u32) -> Vec<(usize, u64)> {
        let Some((region, _)) = self.memory.regions.get(&(device, key)) else { return Vec::new() };
        self.pairs_with(|posted| posted.names(*region))
    }

    /// The queue pairs that have such a request, and the number of sends posted to each.
    pub(super) fn pairs_with(&self, is_such: impl Fn(&Posted) -> bool) -> Vec<(usize, u64)> {
        let pairs = self.pairs.iter().filter(|(_, pair)| {
            let shared = self.shared.get(&pair.asked.shared);
            let receives = pair.receives.iter().chain(shared.into_iter().flat_map(Ring::iter));
            let receives = receives.chain(self.tagged.of(pair.asked.shared));
            pair.sends.iter().chain(receives).any(&is_such)
        });
        pairs.map(|(address, pair)| (*address, pair.posted)).collect()
    }

    /// Such requests of those queue pairs, in three lists: sends under way, signaled sends that have ended here without
    /// a poll, and receives for which messages may arrive.
    pub(super) fn under_way(
        &self,
        under_way: &[UnderWay],
        is_such: impl Fn(&Posted) -> bool,
    ) -> [Vec<&Posted>; 3] {
        let (mut in_flight, mut unpolled, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for it in under_way {
            let Some(pair) = self.pairs.get(&it.pair) else { continue };
            let later =
                usize::try_from(pair.posted.saturating_sub(it.posted)).unwrap_or(usize::MAX);
            // The last `later` sends were posted after the device counted.
            let last = pair.sends.len().saturating_sub(later);
            let first = last.saturating_sub(it.sends.saturating_sub(later));
            let (sent, rest) = (pair.sends.range(0..first), pair.sends.range(first..last));
            in_flight.extend(rest.filter(|posted| is_such(posted)));
            unpolled.extend(sent.filter(|posted| posted.is_signaled && is_such(posted)));
            if it.receives {
                let shared = self.shared.get(&pair.asked.shared);
                let receives = pair.receives.iter().chain(shared.into_iter().flat_map(Ring::iter));
                let receives = receives.chain(self.tagged.of(pair.asked.shared));
                waiting.extend(receives.filter(|posted| is_such(posted)));
            }
        }
        [in_flight, unpolled, waiting]
    }

    /// A region ends. `under_way` has the device's counts for the queue pairs whose requests name it.
    pub fn region_ends(&mut self, device: usize, key: u32, under_way: &[UnderWay], call: &Call) {
        let Some((number, region)) = self.memory.regions.remove(&(device, key)) else { return };
        self.memory.forget(number, &region);
        self.arrived.forget();
        self.claims_end(&region.range());
        self.keys.forget(device, key);
        if region.is_open {
            // A peer may have written to it.
            self.memory.land(region.range());
        }
        let [in_flight, unpolled, waiting] =
            self.under_way(under_way, |posted| posted.names(number));
        let named = Thing::Region.called(key);
        let requests = |count: usize| match count {
            1 => "1 request that names it is".to_owned(),
            count => format!("{count} requests that name it are"),
        };
        let (kind, says, posted) = match (in_flight.len(), unpolled.len(), waiting.len()) {
            (0, 0, 0) => return,
            (0, 0, _) => {
                let says = format!(
                    "{named} ends while receives that name it are posted, and messages may arrive."
                );
                (Kind::EndedUnpolled, says, waiting)
            }
            (0, count, _) => {
                let says = format!(
                    "{named} ends while {} not polled. They had ended here; elsewhere they may be under way.",
                    requests(count)
                );
                (Kind::EndedUnpolled, says, unpolled)
            }
            (count, ..) => {
                let says = format!("{named} ends while {} under way.", requests(count));
                (Kind::EndedInFlight, says, in_flight)
            }
        };
        let mut calls = vec![("ended here".to_owned(), *call)];
        calls.extend(posted.into_iter().take(SHOWN).map(Posted::here));
        calls.extend(self.made_by(Thing::Region, region.object));
        self.found(kind, says, calls);
    }
}
