//! Tells the ledger of regions, and of the memory that requests name. The kernel reads the program's memory, so memory
//! that is gone is an error and no crash.

use std::sync::Arc;

use transom_check::ledger::{
    Change, Ended, Piece, Posted, ProgramMemory, Region, UnderWay, WATCHED,
};
use transom_device::Access;
use transom_device::qp::QpState;
use transom_host::device::Device;
use transom_host::objects::{Backing, MemoryRegion, QueuePair};
use transom_system::memory::Part;

use super::{Checker, given_back, id_of};

/// The most pieces that are compared together: their content has room for a moment.
const TOGETHER: usize = 32;

impl Checker {
    /// A region is registered, or registered anew. `object` and `context` are the addresses of its `ibv_mr` and
    /// context.
    pub(crate) fn registered(
        &self,
        device: &Arc<Device>,
        region: &MemoryRegion,
        object: usize,
        context: usize,
    ) {
        let it = region.registration();
        let opening = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND;
        let entry = Region {
            context,
            object,
            address: it.address,
            place: region.place().pack().unwrap_or(it.address),
            base: if it.access.contains(Access::ZERO_BASED) { 0 } else { it.iova },
            length: it.length,
            is_program: matches!(region.backing(), Backing::Program),
            is_open: it.access.intersects(opening),
            is_on_demand: it.access.contains(Access::ON_DEMAND),
        };
        if entry.is_program && !entry.is_on_demand {
            given_back::look_at(&(entry.address..entry.address.saturating_add(entry.length)));
        }
        self.tell(|ledger| ledger.registered(id_of(device), region.key().0, entry));
        self.opened(device, region.key(), it.access);
    }

    /// A region is about to end.
    pub(crate) fn region_ends(&self, device: &Arc<Device>, key: u32) {
        let under_way = self.work_naming(device, key);
        self.region_ended(device, key, &under_way);
    }

    /// What is under way on the queue pairs whose requests name a region.
    pub(crate) fn work_naming(&self, device: &Arc<Device>, key: u32) -> Vec<UnderWay> {
        let pairs = self.tell(|ledger| ledger.pairs_naming(id_of(device), key));
        self.under_way(pairs)
    }

    /// A region has ended, or moved. Before that so much was under way.
    pub(crate) fn region_ended(&self, device: &Arc<Device>, key: u32, under_way: &[UnderWay]) {
        let call = self.call();
        self.tell_of(device, |ledger| ledger.region_ends(id_of(device), key, under_way, &call));
    }

    /// The work that the device has under way on these queue pairs. Each comes with the number of sends posted to it. A
    /// device that has failed carries out nothing, and no program can poll what it had.
    pub(super) fn under_way(&self, pairs: Vec<(usize, u64)>) -> Vec<UnderWay> {
        let under_way = pairs.into_iter().filter_map(|(address, posted)| {
            let pair = self.pairs.lock().get(&address)?.upgrade()?;
            pair.device().check().ok()?;
            // A peer's answer counts, even if the program has not polled since it came.
            pair.adapter().progress();
            let (sends, receives) = (pair.sends_under_way(), may_receive(&pair));
            Some(UnderWay { pair: address, posted, sends, receives })
        });
        under_way.collect()
    }

    /// Reads memory of the program, by its address or place. Returns whether it could read all of it. At its place,
    /// shared memory is read without the kernel.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.reader.read(at, bytes)
    }

    /// Requests have ended, and the program does not know it yet. Their buffers must be unchanged since the samples.
    pub(super) fn compare(&self, watched: &[Ended]) {
        let pieces: Vec<_> = watched.iter().flat_map(|it| it.posted.pieces()).collect();
        if pieces.chunks(TOGETHER).all(|pieces| self.are_unchanged(pieces)) {
            return;
        }
        for ended in watched {
            let changes = ended.posted.pieces().filter_map(|piece| self.change(&piece));
            let change = changes.reduce(|one, two| Change {
                first: one.first.min(two.first),
                count: one.count + two.count,
            });
            if let Some(change) = change {
                let call = self.call();
                self.tell(|ledger| ledger.changed(ended, change, &call));
            }
        }
    }

    /// Whether all these pieces could be read, and have the content that they had.
    fn are_unchanged(&self, pieces: &[Piece<&[u8]>]) -> bool {
        let mut now = vec![0; pieces.iter().map(|piece| piece.bytes.len()).sum()];
        let mut rest = &mut *now;
        let parts = pieces.iter().map(|piece| {
            let (bytes, others) = std::mem::take(&mut rest).split_at_mut(piece.bytes.len());
            rest = others;
            Part::new(piece.place, bytes)
        });
        let mut parts: Vec<_> = parts.collect();
        self.reader.read_all(&mut parts);
        let are_read = parts.iter().all(|part| part.is_read);
        let mut rest = &*now;
        are_read
            && pieces.iter().all(|piece| {
                let (bytes, others) = rest.split_at(piece.bytes.len());
                rest = others;
                bytes == piece.bytes
            })
    }

    /// The difference between a piece and the present content. None if there is none, or the memory cannot be read any
    /// more.
    fn change(&self, piece: &Piece<&[u8]>) -> Option<Change> {
        let mut room = [0; WATCHED as usize];
        let now = room.get_mut(..piece.bytes.len())?;
        if self.read(piece.place, now) && now == piece.bytes {
            return None;
        }
        // The region may have ended since, and its place may be another's. The address says what the program has there.
        if !self.read(piece.at, now) || now == piece.bytes {
            return None;
        }
        let differs = |at: &usize| now[*at] != piece.bytes[*at];
        let first = (0..now.len()).find(differs)?;
        let count = (first..now.len()).filter(differs).count();
        Some(Change { first: piece.offset + first as u64, count: count as u64 })
    }
}

impl ProgramMemory for Checker {
    fn read_at_once(&self, posted: &mut Posted) -> bool {
        posted.pieces_mut().all(|piece| self.reader.read_shared(piece.place, piece.bytes))
    }

    fn read(&self, mut posted: Vec<&mut Posted>) {
        let pieces = posted.iter_mut().flat_map(|it| it.pieces_mut());
        let mut parts: Vec<_> = pieces.map(|it| Part::new(it.place, it.bytes)).collect();
        self.reader.read_all(&mut parts);
        let mut is_read = parts.iter().map(|part| part.is_read).collect::<Vec<_>>().into_iter();
        for posted in posted {
            // One piece that cannot be read leaves the others of its request out.
            let pieces = posted.pieces().count();
            if is_read.by_ref().take(pieces).filter(|is_read| *is_read).count() < pieces {
                posted.sample.clear();
            }
        }
    }

    fn has(&self, address: u64) -> bool {
        const LOWEST: u64 = 1 << 32;
        address >= LOWEST && self.read(address, &mut [0])
    }

    fn is_unchanged(&self, posted: &Posted) -> bool {
        posted.pieces().all(|piece| self.reader.is_shared_with(piece.place, piece.bytes))
    }
}

/// Whether a queue pair is in a state in which it receives messages.
fn may_receive(pair: &QueuePair) -> bool {
    !matches!(pair.summary().gate().state, QpState::Reset | QpState::Init | QpState::Error)
}
