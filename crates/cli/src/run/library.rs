//! Transom's libraries: their names, and how programs find one.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What programs ask the loader for.
pub(crate) const SONAME: &str = "libibverbs.so.1";
/// What cargo calls it, and programs that ask for the one that others are linked with.
pub(super) const BUILT: &str = "libibverbs.so";
/// What programs that connect by rdma_cm ask the loader for.
pub(super) const CONNECTIONS: &str = "librdmacm.so.1";
/// What cargo calls it, and programs that ask for the one that others are linked with.
pub(super) const CONNECTIONS_BUILT: &str = "librdmacm.so";
/// What shows the device's files where mounting is not allowed.
pub(super) const PATHS: &str = "libtransom_paths.so";
/// What has the program's allocations be shared memory.
pub(crate) const MALLOC: &str = "libtransom_malloc.so";

/// A library, and how programs find it.
pub(crate) struct Library {
    /// A path that the loader takes.
    pub(crate) file: PathBuf,
    /// Where it is under all names that are asked for. None if there is no such directory.
    pub(super) directory: Option<PathBuf>,
}

impl Library {
    pub(super) fn in_directory(directory: PathBuf, name: &str) -> Self {
        Self { file: directory.join(name), directory: Some(directory) }
    }
}

/// Whether the loader takes a path for one: it ends them at some characters, and replaces others.
pub(super) fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| b":;$ \t\n".contains(byte))
}
