//! Transom's libraries: their names, and how programs find one.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name by which programs ask the loader for it.
pub(crate) const SONAME: &str = "libibverbs.so.1";
/// Cargo's name for it. Programs that load the library themselves also ask for this name.
pub(super) const BUILT: &str = "libibverbs.so";
/// The name by which programs that use rdma_cm ask the loader for it.
pub(super) const CONNECTIONS: &str = "librdmacm.so.1";
/// Cargo's name for it. Programs that load the library themselves also ask for this name.
pub(super) const CONNECTIONS_BUILT: &str = "librdmacm.so";
/// The library that shows the device's files where mounting is not allowed.
pub(super) const PATHS: &str = "libtransom_paths.so";
/// The library that makes the program's allocations shared memory.
pub(crate) const MALLOC: &str = "libtransom_malloc.so";
/// The library that tells `transom check` what memory the program gives back.
pub(crate) const FREED: &str = "libtransom_freed.so";

/// A library, and the ways by which programs find it.
pub(crate) struct Library {
    /// A path that the loader takes.
    pub(crate) file: PathBuf,
    /// A directory that has it under all names that programs ask for. `None` if there is no such directory.
    pub(super) directory: Option<PathBuf>,
}

impl Library {
    pub(super) fn in_directory(directory: PathBuf, name: &str) -> Self {
        Self { file: directory.join(name), directory: Some(directory) }
    }
}

/// Whether the loader takes a path unchanged. Some characters end a path for it, and it replaces others.
pub(super) fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| b":;$ \t\n".contains(byte))
}
