//! Stand-ins for the C library's types that the verbs structs embed.

/// A stand-in for glibc's `pthread_mutex_t`; all zero is an unlocked mutex.
pub type pthread_mutex_t = [u64; 5];

/// A stand-in for glibc's `pthread_cond_t`; all zero is an initialised condition variable.
pub type pthread_cond_t = [u64; 6];

/// A point in time, as in `clock_gettime(2)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct timespec {
    /// Whole seconds.
    pub tv_sec: i64,
    /// Nanoseconds within the second.
    pub tv_nsec: i64,
}
