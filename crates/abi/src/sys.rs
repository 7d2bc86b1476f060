//! Stand-ins for the C library's types that the verbs structs embed.

/// A stand-in for glibc's `pthread_mutex_t`; all zero is an unlocked mutex.
#[cfg(target_arch = "x86_64")]
pub type pthread_mutex_t = [u64; 5];

/// A stand-in for glibc's `pthread_mutex_t`; all zero is an unlocked mutex.
#[cfg(target_arch = "aarch64")]
pub type pthread_mutex_t = [u64; 6];

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the verbs ABI is known for x86-64 and aarch64: how long a `pthread_mutex_t` is, is another matter \
     on each architecture"
);

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
