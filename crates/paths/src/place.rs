//! Which paths are led elsewhere.

/// Programs look for RDMA devices in these directories.
const PLACES: [&[u8]; 3] =
    [b"/sys/class/infiniband", b"/sys/class/infiniband_verbs", b"/dev/infiniband"];

/// Whatever has not this in it is in none of the places, wherever it starts from.
pub(crate) const HINT: &std::ffi::CStr = c"infiniband";

/// Room for a path and the zero behind it.
pub(crate) const ROOM: usize = libc::PATH_MAX as usize;

/// A path as it is put together; complete if it did not get too long.
pub(crate) struct Joined<'a> {
    room: &'a mut [u8; ROOM],
    /// Where the tree's name ends, and `..` with it.
    root: usize,
    length: usize,
}

impl<'a> Joined<'a> {
    /// Starts below a tree.
    pub(crate) fn below(tree: &[u8], room: &'a mut [u8; ROOM]) -> Option<Self> {
        let mut joined = Self { room, root: 0, length: 0 };
        joined.push(tree)?;
        joined.root = joined.length;
        Some(joined)
    }

    /// Goes on from here: what `.` and `..` mean is worked out, as no link leads into a place.
    pub(crate) fn walk(&mut self, path: &[u8]) -> Option<()> {
        for name in path.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => {
                    let walked = &self.room[self.root..self.length];
                    let parent = walked.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    self.length = self.root + parent;
                }
                _ => {
                    self.push(b"/")?;
                    self.push(name)?;
                }
            }
        }
        Some(())
    }

    /// The path below the tree, ended by zero, if it is in one of the places.
    pub(crate) fn in_a_place(self) -> Option<&'a [u8]> {
        let walked = &self.room[self.root..self.length];
        let inside = PLACES.iter().any(|place| {
            walked.strip_prefix(*place).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        });
        self.room[self.length] = 0;
        let length = self.length;
        inside.then(|| &self.room[..=length])
    }

    /// One byte stays free for the zero.
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length + bytes.len();
        self.room[..ROOM - 1].get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(base: &str, path: &str) -> Option<String> {
        let mut room = [0; ROOM];
        let mut joined = Joined::below(b"/tree", &mut room)?;
        joined.walk(base.as_bytes())?;
        joined.walk(path.as_bytes())?;
        let path = joined.in_a_place()?.strip_suffix(b"\0").expect("it ends in zero");
        Some(String::from_utf8(path.to_vec()).unwrap())
    }

    #[test]
    fn only_the_places_are_led_elsewhere() {
        for path in [
            "/dev/infiniband",
            "/dev/infiniband/uverbs0",
            "/sys/class/infiniband/transom0/ports/1/gids/0",
            "/sys/class/infiniband_verbs/abi_version",
        ] {
            assert_eq!(led("", path).as_deref(), Some(format!("/tree{path}").as_str()));
        }
        for path in [
            "/",
            "/dev/null",
            "/dev/infiniband2",
            "/sys/class/infiniband_mad",
            "/home/me/infiniband",
            "/sys/class/infiniband/../net",
            "/sys/class/infiniband_verbs/..",
            "/tree/sys/class/infiniband",
        ] {
            assert_eq!(led("", path), None, "{path}");
        }
    }

    #[test]
    fn a_path_means_the_same_however_it_is_written() {
        let expected = Some("/tree/sys/class/infiniband/transom0".to_owned());
        for (base, path) in [
            ("", "/sys/class/infiniband/transom0/"),
            ("", "//sys/./class//infiniband/transom0/."),
            ("", "/../sys/class/net/../infiniband/transom0"),
            ("", "/dev/infiniband/../../sys/class/infiniband/transom0"),
            ("/", "sys/class/infiniband/transom0"),
            ("/sys/class", "infiniband/transom0"),
            ("/sys/class/net", "../infiniband/transom0"),
        ] {
            assert_eq!(led(base, path), expected, "{path} from {base}");
        }
    }

    #[test]
    fn what_is_too_long_is_left_to_the_kernel() {
        let name = |length| format!("/dev/infiniband/{}", "x".repeat(length));
        let fits = ROOM - "/tree/dev/infiniband/".len() - 1;
        assert!(led("", &name(fits)).is_some());
        assert_eq!(led("", &name(fits + 1)), None);
        assert_eq!(led("", &name(2 * ROOM)), None);
    }
}
