//! The likely intention behind a field that is out of its range.

use transom_device::Access;

/// The error in a field that cannot be `value`, if we know more about it.
pub(super) fn of_invalid(field: &str, value: u64) -> Option<String> {
    let access = || Access::from_bits_retain(value as u32);
    match field {
        "access" => missing_local_write(access()),
        "ah_attr.port_num" | "port_num" => Some(format!(
            "{field} is {value}, and the device has port 1 only: it is left out easily"
        )),
        _ => None,
    }
}

/// Remote write access requires local write access.
fn missing_local_write(access: Access) -> Option<String> {
    let remote = access & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    let lacks = !remote.is_empty() && !access.contains(Access::LOCAL_WRITE);
    lacks.then(|| format!("access has {remote} without LOCAL_WRITE, which goes with it"))
}
