//! The rounds: the requests that an end posts, and its checks.

use std::collections::VecDeque;

use transom_abi::*;
use transom_conformance::harness::{atomic_wr, post, rdma_wr, recv, with_sges, wr};

use crate::connection::Connection;
use crate::content::{Content, What};
use crate::meeting::Meeting;
use crate::memory::{Memory, Place, RECEIVES};

/// Set in the immediate data of the client's last message. The other bits are the number of the round.
const LAST: u32 = 1 << 31;
/// A line is printed after this many rounds.
const LINE: u32 = 100;

/// The state of one end between two rounds.
pub(crate) struct Rounds {
    connection: Connection,
    meeting: Meeting,
    memory: Memory,
    ours: Content,
    theirs: Content,
    /// The other end's memory.
    remote: Remote,
    done: u32,
    /// Messages that have not been checked yet.
    messages: VecDeque<ibv_wc>,
    /// The number of bytes and words checked.
    checked: u64,
    /// The values that the words of the two ends must have now.
    their_word: u64,
    our_word: u64,
}

/// The address of the other end's memory, and its key.
struct Remote {
    address: u64,
    key: u32,
}

impl Rounds {
    /// The state before the first round.
    pub(crate) fn new(
        connection: Connection,
        mut meeting: Meeting,
        seed: u64,
        largest: usize,
    ) -> Result<Self, String> {
        let memory = Memory::new(connection.pd, largest);
        for round in 0..RECEIVES {
            receive(&connection, &memory, round);
        }
        let mine = [memory.buffer.addr(), memory.rkey().into()];
        // An end that has received this may send at once.
        let [address, key] = meeting.swap(mine)?;
        let remote = Remote { address, key: key as u32 };
        let is_client = meeting.is_client();
        Ok(Self {
            connection,
            meeting,
            memory,
            ours: Content::new(seed, is_client, largest),
            theirs: Content::new(seed, !is_client, largest),
            remote,
            done: 0,
            messages: VecDeque::new(),
            checked: 0,
            their_word: 0,
            our_word: 0,
        })
    }

    /// Continues until the client says that a round is the last.
    pub(crate) fn run(&mut self, is_last: impl Fn(u32) -> bool) -> Result<(), String> {
        loop {
            let round = self.done;
            let last = self.meeting.is_client() && is_last(round);
            let in_round = |problem| format!("round {round}: {problem}");
            self.send(round, last);
            let last = self.await_message(round).map_err(in_round)? || last;
            self.change_and_read(round).map_err(in_round)?;
            self.done += 1;
            if self.done.is_multiple_of(LINE) {
                println!("{} rounds", self.done);
            }
            if last {
                return Ok(());
            }
        }
    }

    /// Compares notes with the other end. Returns a sentence about all rounds.
    pub(crate) fn finish(mut self) -> Result<String, String> {
        let [done] = self.meeting.swap([self.done.into()])?;
        if done != u64::from(self.done) {
            return Err(format!("{} rounds here, {done} there", self.done));
        }
        let word = self.memory.buffer.word(self.memory.at(Place::Word));
        if word != self.our_word {
            return Err(format!("the word is {word:#x} and not {:#x}", self.our_word));
        }
        Ok(format!("{} rounds, {} bytes checked", self.done, self.checked))
    }

    /// Posts a WRITE in two SGEs, and the message that announces it.
    fn send(&self, round: u32, last: bool) {
        let shelf = self.ours.range(round, What::Shelf).0;
        self.memory.put(Place::Shelf(round), shelf, &self.ours.bytes(round, What::Shelf));

        let (offset, length) = self.ours.range(round, What::Write);
        self.memory.put(Place::Outbox(round), 0, &self.ours.bytes(round, What::Write));
        let half = length / 3;
        let mut sges = [(0, half), (half, length - half)]
            .map(|(from, length)| self.memory.sge(Place::Outbox(round), from, length));
        let target = self.remote.address + (self.memory.at(Place::Inbox(round)) + offset) as u64;
        let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, target, self.remote.key);
        write.wr_id = round.into();

        let (_, length) = self.ours.range(round, What::Message);
        self.memory.put(Place::Message(round), 0, &self.ours.bytes(round, What::Message));
        let mut element = [self.memory.sge(Place::Message(round), 0, length)];
        let mut send = with_sges(wr(IBV_WR_SEND_WITH_IMM), &mut element);
        send.wr_id = round.into();
        send.imm.imm_data = (round | if last { LAST } else { 0 }).to_be();

        write.next = &mut send;
        post(self.connection.qp, &mut write);
    }

    /// Waits for the other end's message and the completions of [`Rounds::send`], and checks the bytes that the other
    /// end has sent and written. Returns whether this is the last round.
    fn await_message(&mut self, round: u32) -> Result<bool, String> {
        self.await_completions(2)?;
        while self.messages.is_empty() {
            let wc = self.connection.completion(&self.meeting)?;
            self.messages.push_back(wc);
        }
        let wc = self.messages.pop_front().expect("there is one");
        // SAFETY: four bytes, and any value is valid.
        let immediate = u32::from_be(unsafe { wc.imm.imm_data });
        let bytes = self.theirs.bytes(round, What::Message);
        let expected = (round, IBV_WC_WITH_IMM, bytes.len() as u32);
        let found = (immediate & !LAST, wc.wc_flags & IBV_WC_WITH_IMM, wc.byte_len);
        if found != expected {
            return Err(format!("a message with {found:?} and not {expected:?}"));
        }
        self.take(Place::Received(round), 0, &bytes)?;
        let (offset, _) = self.theirs.range(round, What::Write);
        self.take(Place::Inbox(round), offset, &self.theirs.bytes(round, What::Write))?;
        receive(&self.connection, &self.memory, round + RECEIVES);
        Ok(immediate & LAST != 0)
    }

    /// Waits until this many posted requests are complete. It keeps messages that come meanwhile: the other end may be
    /// a round ahead.
    fn await_completions(&mut self, count: usize) -> Result<(), String> {
        let mut left = count;
        while left > 0 {
            let wc = self.connection.completion(&self.meeting)?;
            if wc.opcode & IBV_WC_RECV == 0 {
                left -= 1;
            } else {
                self.messages.push_back(wc);
            }
        }
        Ok(())
    }

    /// READs from the other end and changes its word twice, and checks the results.
    fn change_and_read(&mut self, round: u32) -> Result<(), String> {
        let Remote { address, key } = self.remote;
        let at = |place| address + self.memory.at(place) as u64;
        let (offset, length) = self.theirs.range(round, What::Shelf);
        let mut landing = [self.memory.sge(Place::Landing, offset, length)];
        let shelf = at(Place::Shelf(round)) + offset as u64;
        let mut read = rdma_wr(IBV_WR_RDMA_READ, &mut landing, shelf, key);

        let added = self.ours.added(round);
        let sum = self.their_word.wrapping_add(added);
        let (compare, swap) = match self.ours.swapped(round) {
            Some(value) => (sum, value),
            None => (!sum, 0),
        };
        let mut before = [0, 8].map(|from| [self.memory.sge(Place::Before, from, 8)]);
        let [first, second] = &mut before;
        let word = at(Place::Word);
        let add = IBV_WR_ATOMIC_FETCH_AND_ADD;
        let mut add = atomic_wr(add, first, word, key, added, 0);
        let swap_if = IBV_WR_ATOMIC_CMP_AND_SWP;
        let mut swap_if = atomic_wr(swap_if, second, word, key, compare, swap);
        for request in [&mut add, &mut read, &mut swap_if] {
            request.wr_id = round.into();
            post(self.connection.qp, request);
        }
        self.await_completions(3)?;
        self.take(Place::Landing, offset, &self.theirs.bytes(round, What::Shelf))?;
        let expected: Vec<u8> =
            [self.their_word, sum].iter().flat_map(|w| w.to_ne_bytes()).collect();
        self.take(Place::Before, 0, &expected)?;
        self.their_word = self.ours.word_after(round, self.their_word);
        self.our_word = self.theirs.word_after(round, self.our_word);
        Ok(())
    }

    fn take(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), String> {
        self.checked += bytes.len() as u64;
        self.memory.take(place, offset, bytes)
    }
}

/// Posts the receive for the message of a round.
fn receive(connection: &Connection, memory: &Memory, round: u32) {
    let mut element = [memory.sge(Place::Received(round), 0, memory.size)];
    recv(connection.qp, round.into(), &mut element);
}
