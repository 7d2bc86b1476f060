//! The devices of a provider.

use crate::error::non_null;
use crate::process::Process;
use crate::{Context, Provider, Result};
use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;
use transom_abi::ibv_device;

/// Lists the devices of a provider; see `ibv_get_device_list(3)`.
///
/// ```
/// let devices = transom::devices(&transom::Provider::software())?;
/// assert!(devices.iter().any(|device| device.name() == "transom0"));
/// # Ok::<(), transom::Error>(())
/// ```
///
/// The software device is one, unless your program is started with several: by `transom run --devices 2`, or with
/// `TRANSOM_DEVICES='transom0;transom1'` in its environment. Open one by its name:
///
/// ```
/// # fn second() -> transom::Result<()> {
/// let all = transom::devices(&transom::Provider::software())?;
/// let second = all.iter().find(|device| device.name() == "transom1").expect("there are two");
/// let context = second.open()?;
/// # Ok(())
/// # }
/// ```
///
/// Objects belong to the device of their context, and one made of objects of two devices is refused.
///
/// # Errors
/// [`crate::Error::Verb`] if the list is not available: EPERM, ENOMEM, or ENOSYS if the provider needs RDMA in the
/// kernel and the kernel has none.
pub fn devices(provider: &Provider) -> Result<Vec<Device>> {
    let (process, mut count) = (Process::this()?, 0);
    // SAFETY: the count is a valid place to write.
    let list = unsafe { (provider.verbs.ibv_get_device_list)(&raw mut count) };
    let list = non_null("ibv_get_device_list", "listing the devices", list)?.as_ptr();
    let list = Arc::new(List { list, provider: *provider, process });
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the verb returned an array of this many devices.
    let device = |index| unsafe { *list.list.add(index) };
    Ok((0..count).map(|index| Device { device: device(index), list: list.clone() }).collect())
}

/// A device that can be opened.
#[derive(Clone)]
pub struct Device {
    device: *mut ibv_device,
    list: Arc<List>,
}

// SAFETY: a listed device is only read and opened, and libibverbs is thread-safe.
unsafe impl Send for Device {}
// SAFETY: as for `Send`.
unsafe impl Sync for Device {}

impl Device {
    /// Its name, such as `transom0` or `mlx5_0`.
    pub fn name(&self) -> String {
        // SAFETY: the device lives as long as the list does.
        let name = unsafe { &(*self.device).name };
        // SAFETY: libibverbs ends the name with a NUL.
        unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
    }

    /// Opens the device; see `ibv_open_device(3)`.
    ///
    /// # Errors
    /// [`crate::Error::Verb`], for example EACCES if this user may not use the device.
    pub fn open(&self) -> Result<Context> {
        let process = Process::this()?;
        // SAFETY: the device lives as long as the list does.
        let context = unsafe { (self.list.provider.verbs.ibv_open_device)(self.device) };
        let context =
            non_null("ibv_open_device", format_args!("opening {}", self.name()), context)?;
        // SAFETY: the context was opened just now, and nobody else has it.
        Ok(unsafe { Context::from_raw(context.as_ptr(), self.list.provider, self.name(), process) })
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

/// The list that libibverbs made. It is freed with its last device.
struct List {
    list: *mut *mut ibv_device,
    provider: Provider,
    process: Process,
}

// SAFETY: as for `Device`; any thread may free the list.
unsafe impl Send for List {}
// SAFETY: as for `Send`.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        if self.process.is_parent() {
            return;
        }
        // SAFETY: the list came from `ibv_get_device_list`, and no `Device` refers to it any more. Opened contexts keep
        // their device themselves.
        unsafe { (self.provider.verbs.ibv_free_device_list)(self.list) }
    }
}
