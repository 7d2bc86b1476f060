use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::*;

const ALL: u64 = u64::MAX;

fn request(change: TagChange<'_>) -> TagRequest<'_> {
    TagRequest { wr_id: 7, signaled: true, unexpected: None, change }
}

fn add(list: &mut TagList, receive: u64, tag: u64, mask: u64) -> u32 {
    let sges = [Sge { address: receive, length: 8, key: 1 }];
    let change = TagChange::Add { receive, tag, mask, sges: &sges };
    list.apply(&request(change)).unwrap().handle.unwrap()
}

fn report(list: &mut TagList, count: u32) -> Flags {
    let request = TagRequest { unexpected: Some(count), ..request(TagChange::Sync) };
    let completion = list.apply(&request).unwrap().completion.unwrap();
    assert_eq!((completion.wr_id, completion.opcode), (7, Opcode::TagSync));
    completion.flags
}

fn take(list: &mut TagList, tag: u64) -> Option<u64> {
    let mut receive = Receive::with_room(TAG_MAX_SGE).unwrap();
    list.take(tag, &mut receive).then(|| {
        assert_eq!((receive.part, receive.length), (TagPart::Matched, 8));
        assert_eq!(receive.sges[0].address, receive.wr_id);
        receive.wr_id
    })
}

fn remove(list: &mut TagList, handle: u32) -> Status {
    let request = TagRequest { signaled: false, ..request(TagChange::Remove(handle)) };
    let completion = list.apply(&request).unwrap().completion;
    completion.map_or(Status::Success, |completion| completion.status)
}

#[test]
fn the_first_buffer_added_that_matches_is_taken() {
    let mut list = TagList::new(8).unwrap();
    add(&mut list, 1, 0x10, 0xf0);
    add(&mut list, 2, 0x12, ALL);
    add(&mut list, 3, 0x10, 0xf0);
    assert_eq!(take(&mut list, 0x22), None);
    assert_eq!(take(&mut list, 0xf12), Some(1));
    assert_eq!(take(&mut list, 0x12), Some(2));
    assert_eq!(take(&mut list, 0x12), Some(3));
    assert_eq!(take(&mut list, 0x12), None);
}

#[test]
fn a_tag_beyond_its_mask_matches_nothing() {
    let mut list = TagList::new(1).unwrap();
    add(&mut list, 1, 0x11, 0xf0);
    assert_eq!(take(&mut list, 0x11), None);
}

/// Rules: WC-22
#[test]
fn only_a_buffer_that_waits_can_be_removed() {
    let mut list = TagList::new(2).unwrap();
    let (first, second) = (add(&mut list, 1, 1, ALL), add(&mut list, 2, 2, ALL));
    assert_eq!(take(&mut list, 1), Some(1));
    assert_eq!(remove(&mut list, first), Status::TagMatching);
    assert_eq!(remove(&mut list, second), Status::Success);
    assert_eq!(remove(&mut list, second), Status::TagMatching);
    let third = add(&mut list, 3, 3, ALL);
    assert_eq!(slot(third), slot(first));
    assert_eq!(remove(&mut list, first), Status::TagMatching, "an old handle of the slot");
    assert_eq!(remove(&mut list, 77), Status::TagMatching);
    assert_eq!(take(&mut list, 3), Some(3));
}

#[test]
fn a_full_list_takes_no_more() {
    let mut list = TagList::new(2).unwrap();
    let first = add(&mut list, 1, 1, ALL);
    add(&mut list, 2, 2, ALL);
    let change = |sges| TagChange::Add { receive: 3, tag: 3, mask: ALL, sges };
    assert_eq!(list.apply(&request(change(&[]))), Err(PostError::Full));
    let sges = [Sge::default(); TAG_MAX_SGE + 1];
    assert_eq!(list.apply(&request(change(&sges))), Err(PostError::TooManySges));
    assert_eq!(remove(&mut list, first), Status::Success);
    assert!(list.apply(&request(change(&[]))).is_ok());
}

#[test]
fn buffers_added_after_an_unexpected_message_wait_for_the_count() {
    let mut list = TagList::new(8).unwrap();
    add(&mut list, 1, 1, ALL);
    assert_eq!(list.note_unexpected(), TagPart::Unexpected { sync_required: false });
    add(&mut list, 2, 2, ALL);
    assert_eq!(take(&mut list, 2), None, "it waits");
    assert_eq!(take(&mut list, 1), Some(1), "it was there before");
    assert_eq!(list.note_unexpected(), TagPart::Unexpected { sync_required: true });
    for stale in [0, 1, 3] {
        assert_eq!(report(&mut list, stale), Flags::TAG_SYNC_REQUIRED);
        assert_eq!(take(&mut list, 2), None);
    }
    assert_eq!(report(&mut list, 2), Flags::empty());
    assert_eq!(take(&mut list, 2), Some(2));
}

#[test]
fn an_unexpected_message_that_fails_does_not_count() {
    let mut list = TagList::new(8).unwrap();
    list.note_unexpected();
    add(&mut list, 1, 1, ALL);
    assert_eq!(take(&mut list, 1), None);
    list.forget_unexpected();
    assert_eq!(take(&mut list, 1), Some(1));
}

/// A program's view of the list: what must hold after any sequence of operations.
#[derive(Default)]
struct Model {
    /// Handle, receive, tag, mask and whether it matches, in the order of addition.
    buffers: Vec<(u32, u64, u64, u64, bool)>,
    unexpected: u32,
    in_sync: bool,
}

#[test]
fn any_sequence_does_what_a_plain_list_does() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
    let mut next = |below: u64| random.random_range(0..below);
    let mut list = TagList::new(16).unwrap();
    let mut model = Model { in_sync: true, ..Model::default() };
    for step in 0..if cfg!(miri) { 300 } else { 20_000 } {
        match next(8) {
            0..3 if model.buffers.len() < 16 => {
                let mask = [ALL, 3, 1, 0][next(4) as usize];
                let tag = next(4) & mask;
                let handle = add(&mut list, step, tag, mask);
                assert!(model.buffers.iter().all(|buffer| buffer.0 != handle));
                model.buffers.push((handle, step, tag, mask, model.in_sync));
            }
            3..6 => {
                let tag = next(4);
                let matches = |b: &(u32, u64, u64, u64, bool)| b.4 && tag & b.3 == b.2;
                let found = model.buffers.iter().position(matches);
                let expected = found.map(|place| model.buffers.remove(place).1);
                assert_eq!(take(&mut list, tag), expected);
                if expected.is_none() {
                    let sync_required = model.buffers.iter().any(|buffer| !buffer.4);
                    assert_eq!(list.note_unexpected(), TagPart::Unexpected { sync_required });
                    model.unexpected += 1;
                    model.in_sync = false;
                }
            }
            6 if !model.buffers.is_empty() => {
                let place = next(model.buffers.len() as u64) as usize;
                let handle = model.buffers.remove(place).0;
                assert_eq!(remove(&mut list, handle), Status::Success);
                assert_eq!(remove(&mut list, handle), Status::TagMatching);
            }
            _ => {
                let count = model.unexpected.saturating_sub(next(2) as u32);
                if count == model.unexpected {
                    model.in_sync = true;
                    model.buffers.iter_mut().for_each(|buffer| buffer.4 = true);
                }
                assert_eq!(report(&mut list, count).is_empty(), model.in_sync);
            }
        }
    }
}
