//! The device's name, and the places where programs look for it.

use std::ffi::{CStr, CString};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use transom_abi::{IBV_SYSFS_NAME_MAX, IBV_SYSFS_PATH_MAX};
use transom_system::environment;

/// The name of its character device: that of a host's first device.
pub const DEV_NAME: &CStr = c"uverbs0";
/// The path of its character device in sysfs.
pub const DEV_PATH: &CStr = c"/sys/class/infiniband_verbs/uverbs0";

/// The name of an RDMA device, as the kernel would allow it: a letter, and then letters, digits and `_`, `-`, `.`; 63
/// characters at most.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceName(CString);

impl DeviceName {
    /// The name of this process's device. It is read from the environment once. If the environment has none, it is
    /// [`DeviceName::default`].
    ///
    /// # Errors
    /// The text in the environment is no name.
    pub fn chosen() -> Result<&'static Self, NotAName> {
        static CHOSEN: OnceLock<Result<DeviceName, NotAName>> = OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| match environment::DEVICE_NAME.text() {
            Some(text) => text.to_string_lossy().parse(),
            None => Ok(Self::default()),
        });
        chosen.as_ref().map_err(Clone::clone)
    }

    /// The name as a C string.
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// The path of the device in sysfs.
    pub fn ibdev_path(&self) -> String {
        format!("/sys/class/infiniband/{self}")
    }
}

impl Default for DeviceName {
    /// `transom0`.
    fn default() -> Self {
        Self(c"transom0".to_owned())
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string_lossy())
    }
}

impl FromStr for DeviceName {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let refused = || NotAName(text.to_owned());
        let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let fits = text.len() < IBV_SYSFS_NAME_MAX;
        // It becomes the name of a directory. Tools take a text that begins with a digit for an index.
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        if !(fits && begins && text.bytes().all(of_a_name)) {
            return Err(refused());
        }
        CString::new(text).map(Self).map_err(|_| refused())
    }
}

/// A text that cannot be the name of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name for a device: it begins with a letter and has letters, digits, `_`, `-` and `.`, \
     {most} at most",
    most = IBV_SYSFS_NAME_MAX - 1
)]
pub struct NotAName(String);

const _: () = assert!("/sys/class/infiniband/".len() + IBV_SYSFS_NAME_MAX <= IBV_SYSFS_PATH_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_a_directory_of_sysfs_can_have() {
        let longest = "x".repeat(63);
        for name in ["transom0", "rxe0", "mlx5_0", "bnxt_re-bond.1", &longest] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        let too_long = "x".repeat(64);
        for text in ["", ".", "..", "a/b", "/", "0rxe", "a b", "a\n", "a\0", "ä", &too_long] {
            assert!(text.parse::<DeviceName>().is_err(), "{text:?}");
        }
    }
}
