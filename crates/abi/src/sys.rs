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

/// A stand-in for C's `struct sockaddr`: an address of any family, told by its first field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct sockaddr {
    /// Address family, one of `AF_…`.
    pub sa_family: u16,
    /// What the family makes of it; most are longer.
    pub sa_data: [u8; 14],
}

/// A stand-in for C's `struct sockaddr_in`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct sockaddr_in {
    /// `AF_INET`.
    pub sin_family: u16,
    /// Port, network byte order.
    pub sin_port: u16,
    /// Address, network byte order.
    pub sin_addr: u32,
    /// Nothing.
    pub sin_zero: [u8; 8],
}

/// A stand-in for C's `struct sockaddr_in6`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct sockaddr_in6 {
    /// `AF_INET6`.
    pub sin6_family: u16,
    /// Port, network byte order.
    pub sin6_port: u16,
    /// Traffic class and flow label, network byte order.
    pub sin6_flowinfo: u32,
    /// Address, in the order it travels.
    pub sin6_addr: [u8; 16],
    /// Index of the network interface that a link-local address belongs to.
    pub sin6_scope_id: u32,
}

/// A stand-in for C's `struct sockaddr_storage`, and the kernel's: room for an address of any family.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sockaddr_storage {
    /// Address family, one of `AF_…`.
    pub ss_family: u16,
    /// What the family makes of it.
    pub ss_data: [u8; 126],
}

impl Default for sockaddr_storage {
    fn default() -> Self {
        Self { ss_family: 0, ss_data: [0; 126] }
    }
}
