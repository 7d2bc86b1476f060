//! The name of a device.

use std::ffi::{CStr, CString};
use std::fmt;
use std::str::FromStr;

use transom_abi::{IBV_SYSFS_NAME_MAX, IBV_SYSFS_PATH_MAX};

/// The name of an RDMA device, as the kernel would allow it: a letter, and then letters, digits and `_`, `-`, `.`; 63
/// characters at most.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceName(CString);

impl DeviceName {
    /// The name of the device so many places behind the one of this name: the number at its end is so much higher. A name
    /// without a number counts as if it ended in zero.
    ///
    /// # Errors
    /// It would be too long.
    pub fn behind(&self, places: u8) -> Result<Self, NotAName> {
        let name = self.to_string();
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        match name[stem.len()..].parse::<u32>() {
            _ if places == 0 => Ok(self.clone()),
            Ok(number) => format!("{stem}{}", number.saturating_add(places.into())).parse(),
            Err(_) => format!("{name}{places}").parse(),
        }
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
    fn the_numbers_of_names_go_on() {
        for (name, behind, expected) in [
            ("transom0", 0, "transom0"),
            ("transom0", 1, "transom1"),
            ("mlx5_0", 15, "mlx5_15"),
            ("mlx5_9", 1, "mlx5_10"),
            ("ib", 0, "ib"),
            ("ib", 2, "ib2"),
            ("a99999999999999999999", 1, "a999999999999999999991"),
        ] {
            let name: DeviceName = name.parse().unwrap();
            assert_eq!(name.behind(behind).unwrap().to_string(), expected);
        }
        let longest: DeviceName = "x".repeat(63).parse().unwrap();
        assert!(longest.behind(1).is_err());
    }

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
