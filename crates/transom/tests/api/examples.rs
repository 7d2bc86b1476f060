//! The examples that tell a story end as they say.

#[expect(dead_code, reason = "its main function is the example's")]
#[path = "../../examples/errors.rs"]
mod errors;
#[expect(dead_code, reason = "its main function is the example's")]
#[path = "../../examples/key_value/main.rs"]
mod key_value;

use transom::{ConnectionProblem, Error, Status};

/// Rules: MWA-13, RA-33, RA-44
#[test]
fn who_oversteps_in_the_store_harms_nobody() {
    let story = key_value::run().unwrap();
    assert_eq!(story.found, "over the transom");
    assert_eq!([story.behind, story.foreign], [Status::RemoteAccess; 2]);
    // On a busy machine the server may end before the last write. That write may still have arrived.
    let over = [Status::RemoteAccess, Status::Flushed, Status::RetryExceeded];
    assert!(over.contains(&story.late), "{story:?}");
    let kept: u64 = story.kept.parse().unwrap_or(0);
    let arrived = u64::from(story.late != Status::RemoteAccess);
    assert!((story.confirmed..=story.confirmed + arrived).contains(&kept), "{story:?}");
}

#[test]
fn a_program_goes_on_after_each_error() {
    let [register, overstep, nobody] = errors::all().unwrap();
    assert_eq!(register.errno(), Some(rustix::io::Errno::INVAL.raw_os_error()));
    assert!(matches!(overstep, Error::Work(error) if error.status == Status::RemoteAccess));
    let Error::Connection(nobody) = nobody else { panic!("{nobody}") };
    assert!(matches!(nobody.problem, ConnectionProblem::Rejected(it) if it.is_no_listener()));
}
