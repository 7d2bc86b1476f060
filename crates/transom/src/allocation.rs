//! Memory in whole pages. The software device has its own, where peers may reach it without the kernel.

#[cfg(not(feature = "software"))]
mod anonymous;

#[cfg(not(feature = "software"))]
pub(crate) use anonymous::Allocation;
#[cfg(feature = "software")]
pub(crate) use transom_ibverbs::Allocation;
