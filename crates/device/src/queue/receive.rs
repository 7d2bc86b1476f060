//! Posted receives: the queue they wait in, a queue pair's own or shared, and the one a queue pair
//! has taken.

use std::sync::Arc;

use super::{
    Places, PostError, ReceiveRequest, Returned, Sge, SizeError, Work, WorkRing, room_for,
};

/// A receive in its queue.
#[derive(Clone, Copy)]
struct ReceiveWqe {
    wr_id: u64,
    num_sge: usize,
    length: u64,
}

impl Work for ReceiveWqe {
    fn blank() -> &'static Self {
        const { &Self { wr_id: 0, num_sge: 0, length: 0 } }
    }
}

/// A queue of posted receives (rules PS-12, PS-13, SQ-01 to SQ-07).
pub struct ReceiveQueue {
    ring: WorkRing<ReceiveWqe>,
    places: Places,
    /// A shared queue tells when fewer than this are left; zero tells nothing.
    limit: usize,
}

/// The result of [`ReceiveQueue::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The oldest receive, which is out of the queue now.
    Taken,
    /// No receive is posted.
    Empty,
    /// The oldest receive has less room than was asked for, and stays.
    TooSmall {
        /// The room that it has.
        room: u64,
    },
}

impl ReceiveQueue {
    /// A queue pair's own queue for `size` receives of up to `max_sge` scatter/gather entries each.
    pub fn new(size: usize, max_sge: usize) -> Result<Self, SizeError> {
        Self::with_places(Places::new(size, false), max_sge)
    }

    /// A shared one.
    pub fn shared(size: usize, max_sge: usize) -> Result<Self, SizeError> {
        Self::with_places(Places::new(size, true), max_sge)
    }

    fn with_places(places: Places, max_sge: usize) -> Result<Self, SizeError> {
        Ok(Self { ring: WorkRing::new(places.size(), max_sge, 0)?, places, limit: 0 })
    }

    /// Polls give back the places of its receives here.
    pub fn returned(&self) -> &Arc<Returned> {
        self.places.returned()
    }

    /// How many receives it holds at most.
    pub fn size(&self) -> usize {
        self.ring.size()
    }

    /// How many scatter/gather entries a receive may have.
    pub fn max_sge(&self) -> usize {
        self.ring.max_sge()
    }

    /// The limit that is armed; zero if none is.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Adds a receive.
    pub fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        if request.sges.len() > self.ring.max_sge() {
            return Err(PostError::TooManySges);
        }
        if !self.places.has_room_for(1) {
            return Err(PostError::Full);
        }
        self.places.take();
        let length = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
        let wqe = ReceiveWqe { wr_id: request.wr_id, num_sge: request.sges.len(), length };
        self.ring.push(wqe, request.sges, &[]);
        Ok(())
    }

    /// The oldest receive, if it has one scatter/gather entry: its number, and the entry.
    #[inline]
    pub fn oldest_of_one(&self) -> Option<(u64, &Sge)> {
        if self.ring.is_empty() {
            return None;
        }
        let wqe = self.ring.at(self.ring.head());
        match self.ring.sges_at(self.ring.head(), wqe.num_sge) {
            [one] => Some((wqe.wr_id, one)),
            _ => None,
        }
    }

    /// Removes the oldest receive, if there is one.
    #[inline]
    pub fn pop(&mut self) {
        self.ring.pop();
    }

    /// Moves the oldest receive into `receive` if it has room for `least` bytes.
    pub fn take(&mut self, least: u64, receive: &mut Receive) -> Take {
        if self.ring.is_empty() {
            return Take::Empty;
        }
        let wqe = *self.ring.at(self.ring.head());
        if wqe.length < least {
            return Take::TooSmall { room: wqe.length };
        }
        receive.wr_id = wqe.wr_id;
        receive.length = wqe.length;
        receive.sges.clear();
        receive.sges.extend_from_slice(self.ring.sges_at(self.ring.head(), wqe.num_sge));
        self.ring.pop();
        Take::Taken
    }

    /// Whether so few are left that the limit's event is due; it is due once (rules SQ-01 to SQ-03).
    pub fn reached_limit(&mut self) -> bool {
        let reached = self.ring.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// Arms the limit; zero disarms it.
    pub fn arm(&mut self, limit: usize) -> Result<(), SizeError> {
        if limit > self.ring.size() {
            return Err(SizeError::TooSmall { least: limit });
        }
        self.limit = limit;
        Ok(())
    }

    /// Changes the size; what waits is kept.
    pub fn resize(&mut self, size: usize) -> Result<(), SizeError> {
        let least = self.ring.len().max(self.limit);
        if size < least {
            return Err(SizeError::TooSmall { least });
        }
        let mut ring = WorkRing::new(size, self.ring.max_sge(), 0)?;
        while !self.ring.is_empty() {
            let head = self.ring.head();
            let wqe = *self.ring.at(head);
            ring.push(wqe, self.ring.sges_at(head, wqe.num_sge), &[]);
            self.ring.pop();
        }
        self.ring = ring;
        self.places.resize(size);
        Ok(())
    }

    /// Whether no receive waits.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// How many receives wait.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Forgets everything posted, without completions (rule ST-10). None waits to be polled.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.places.clear();
    }
}

/// A receive that a queue pair has taken for a message.
#[derive(Clone, Debug)]
pub struct Receive {
    /// The consumer's number.
    pub wr_id: u64,
    /// Bytes that fit.
    pub length: u64,
    /// The protection domain its entries are checked against: a shared queue's own (rule PD-13).
    pub pd: u32,
    /// The shared queue it came from, by number, if its completion goes where that queue says (XRC).
    pub srq: Option<u32>,
    /// Its role in tag matching.
    pub part: TagPart,
    /// Its scatter/gather entries.
    pub sges: Vec<Sge>,
}

/// The role of a receive in tag matching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagPart {
    /// Nothing: its queue matches no tags.
    #[default]
    None,
    /// It received a message without a tag.
    NoTag,
    /// It received a message whose tag no tagged buffer waits for.
    Unexpected {
        /// New tagged buffers wait until software has caught up.
        sync_required: bool,
    },
    /// A tagged buffer.
    Matched,
}

impl Receive {
    /// Nothing taken yet, with room for `max_sge` scatter/gather entries.
    pub fn with_room(max_sge: usize) -> Result<Self, SizeError> {
        let sges = room_for(max_sge)?;
        Ok(Self { wr_id: 0, length: 0, pd: 0, srq: None, part: TagPart::None, sges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(queue: &mut ReceiveQueue, wr_id: u64, lengths: &[u32]) -> Result<(), PostError> {
        let sges: Vec<_> = lengths.iter().map(|&length| Sge { length, ..Sge::default() }).collect();
        queue.post(&ReceiveRequest { wr_id, sges: &sges })
    }

    #[test]
    fn receives_come_out_in_order_through_a_change_of_size() {
        let mut queue = ReceiveQueue::new(3, 2).unwrap();
        let mut receive = Receive::with_room(2).unwrap();
        for wr_id in 0..3 {
            post(&mut queue, wr_id, &[10, wr_id as u32]).unwrap();
        }
        assert_eq!(post(&mut queue, 3, &[1]), Err(PostError::Full));
        assert_eq!(post(&mut queue, 3, &[1, 1, 1]), Err(PostError::TooManySges));
        assert_eq!(queue.take(0, &mut receive), Take::Taken);
        assert_eq!(queue.resize(1), Err(SizeError::TooSmall { least: 2 }));
        assert_eq!(post(&mut queue, 3, &[]), Err(PostError::Full), "the first is not polled");
        queue.resize(5).unwrap();
        post(&mut queue, 3, &[]).unwrap();
        for wr_id in 1..4 {
            assert_eq!(queue.take(0, &mut receive), Take::Taken);
            assert_eq!(receive.wr_id, wr_id);
        }
        assert_eq!(queue.take(0, &mut receive), Take::Empty);
    }

    /// Rules: SQ-01, SQ-02, SQ-03, SQ-04
    #[test]
    fn the_limit_is_reached_once() {
        let mut queue = ReceiveQueue::new(4, 1).unwrap();
        let mut receive = Receive::with_room(1).unwrap();
        for wr_id in 0..4 {
            post(&mut queue, wr_id, &[1]).unwrap();
        }
        assert_eq!(queue.arm(5), Err(SizeError::TooSmall { least: 5 }));
        queue.arm(3).unwrap();
        assert!(!queue.reached_limit());
        queue.take(0, &mut receive);
        assert!(!queue.reached_limit());
        queue.take(0, &mut receive);
        assert!(queue.reached_limit());
        assert_eq!(queue.limit(), 0);
        queue.take(0, &mut receive);
        assert!(!queue.reached_limit());
        queue.arm(4).unwrap();
        assert!(queue.reached_limit());
    }

    /// Rules: UD-04
    #[test]
    fn a_receive_that_is_too_small_stays() {
        let mut queue = ReceiveQueue::new(1, 1).unwrap();
        let mut receive = Receive::with_room(1).unwrap();
        post(&mut queue, 7, &[139]).unwrap();
        assert_eq!(queue.take(140, &mut receive), Take::TooSmall { room: 139 });
        assert_eq!(queue.take(139, &mut receive), Take::Taken);
        assert_eq!(receive.wr_id, 7);
    }
}
