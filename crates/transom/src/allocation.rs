//! Memory in whole pages. The software device allocates its own, which peers may reach without the kernel.

#[cfg(not(feature = "software"))]
mod anonymous;

#[cfg(not(feature = "software"))]
pub(crate) use anonymous::Allocation;
#[cfg(feature = "software")]
pub(crate) use transom_ibverbs::Allocation;
