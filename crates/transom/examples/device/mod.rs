//! The device that the examples use.

use transom::{Context, Provider, Result};

/// Opens the software device. With the argument `system`, it opens the first device of the system's
/// libibverbs.
pub(crate) fn open() -> Result<Context> {
    let system = std::env::args().nth(1).is_some_and(|argument| argument == "system");
    let provider = if system { Provider::system()? } else { Provider::software() };
    let devices = transom::devices(&provider)?;
    let device =
        devices.first().expect("a device, as `transom devices` or `ibv_devices` lists them");
    device.open()
}
