//! The device the examples run on.

use transom::{Context, Provider, Result};

/// Opens the software device; or, with the argument `system`, the first device that the system's
/// libibverbs drives.
pub(crate) fn open() -> Result<Context> {
    let system = std::env::args().nth(1).is_some_and(|argument| argument == "system");
    let provider = if system { Provider::system()? } else { Provider::software() };
    let devices = transom::devices(&provider)?;
    let device =
        devices.first().expect("a device, as `transom devices` or `ibv_devices` lists them");
    device.open()
}
