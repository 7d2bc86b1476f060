//! The size of a queue, and the memory for it.

/// Why a queue does not get its size, or its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The size is below what is waiting (rule CQ-14), or below the limit (rule SQ-04).
    #[error("smaller than {least}: what is waiting, or the limit")]
    TooSmall {
        /// What it must be at least.
        least: usize,
    },
    /// There is no memory for it.
    #[error("there is no memory for it")]
    NoMemory,
}

/// Room for so many values, if there is memory for them: every queue takes all of its memory when it is
/// made, and one that is too large for this machine is refused. It is touched when it is used, so that deep
/// queues are made as fast as others, and take pages of the machine only as deep as they are used.
pub(crate) fn room_for<T>(count: usize) -> Result<Vec<T>, SizeError> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| SizeError::NoMemory)?;
    Ok(room)
}

/// So many copies of a value, if there is memory for them.
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Result<Box<[T]>, SizeError> {
    let mut all = room_for(count)?;
    all.resize(count, value);
    Ok(all.into())
}
