//! What posts answer that an adapter refuses.

/// An errno of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// `EINVAL`
    Invalid,
    /// `ENOMEM`
    NoMemory,
    /// `ENOSPC`
    NoSpace,
}

/// What posts answer, by what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// `ibv_post_send` and `ibv_post_recv` answer the negative of each errno.
    pub negative: bool,
    /// `ibv_post_send` answers so to an operation that it lacks. It is negative for bnxt, whose other answers are not.
    pub lacking_is_negative: bool,
    /// Inline data that are too long: of `ibv_post_send`.
    pub inline: Errno,
    /// The same of `ibv_wr_complete`.
    pub built_inline: Errno,
    /// More SGEs than granted: of `ibv_post_send`.
    pub sges: Errno,
    /// The same of `ibv_wr_complete`.
    pub built_sges: Errno,
    /// The same of `ibv_post_recv`.
    pub receive_sges: Errno,
}

impl Answers {
    /// Most answer `EINVAL` to all of it.
    pub const USUAL: Self = Self {
        negative: false,
        lacking_is_negative: false,
        inline: Errno::Invalid,
        built_inline: Errno::Invalid,
        sges: Errno::Invalid,
        built_sges: Errno::Invalid,
        receive_sges: Errno::Invalid,
    };

    /// The negative of it.
    pub const NEGATIVE: Self = Self { negative: true, lacking_is_negative: true, ..Self::USUAL };
}
