//! What is usually meant where a field is not what it may be.

use transom_device::Access;

/// What is wrong with a field that cannot be `value`, if more is known than that.
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

/// Who may write from afar may write from here.
fn missing_local_write(access: Access) -> Option<String> {
    let remote = access & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    let lacks = !remote.is_empty() && !access.contains(Access::LOCAL_WRITE);
    lacks.then(|| format!("access has {remote} without LOCAL_WRITE, which goes with it"))
}
