//! What posts answer that are refused: as ever, or as the adapter does that the device stands for (`transom rehearse
//! --as`).

use std::ffi::c_int;

use transom_rehearse::profile::{Answers, Errno};
use transom_system::rehearsal;

/// What posts answer.
fn answers() -> &'static Answers {
    rehearsal::profile().map_or(&Answers::USUAL, |profile| &profile.answers)
}

/// What `ibv_post_send` answers to a request that the adapter does not know.
pub(crate) fn lacking() -> c_int {
    let Answers { negative, lacking_is_negative, .. } = *answers();
    // All answers are made negative where all are.
    if lacking_is_negative && !negative { -libc::EINVAL } else { libc::EINVAL }
}

/// What a post answers that is refused with an errno. Some providers answer with its negative.
pub(crate) fn answer(errno: c_int) -> c_int {
    if answers().negative { -errno } else { errno }
}

/// By which call a request is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// `ibv_post_send`
    Post,
    /// `ibv_wr_complete`
    Batch,
    /// `ibv_post_recv` or `ibv_post_srq_recv`
    Receive,
}

/// The errno of a request with more SGEs than were granted.
pub(crate) fn too_many_sges(by: By) -> c_int {
    let answers = answers();
    errno(match by {
        By::Post => answers.sges,
        By::Batch => answers.built_sges,
        By::Receive => answers.receive_sges,
    })
}

/// The errno of a request with more inline data than were granted.
pub(crate) fn inline_too_long(by: By) -> c_int {
    let answers = answers();
    errno(if by == By::Batch { answers.built_inline } else { answers.inline })
}

fn errno(of: Errno) -> c_int {
    match of {
        Errno::Invalid => libc::EINVAL,
        Errno::NoMemory => libc::ENOMEM,
        Errno::NoSpace => libc::ENOSPC,
    }
}
