//! Decides which paths are led elsewhere.

/// Programs look for RDMA devices in these directories. The links in the first two lead into the last. `transom run`
/// has the same list.
const PLACES: [&[u8]; 4] = [
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_verbs",
    b"/dev/infiniband",
    b"/sys/devices/transom-rdma",
];

/// A path without any of these words leads into none of the places, whatever directory it starts from.
pub(crate) const HINTS: [&std::ffi::CStr; 2] = [c"infiniband", c"transom-rdma"];

/// Room for a path and the zero behind it.
pub(crate) const ROOM: usize = libc::PATH_MAX as usize;

/// Room for the target of a link in the tree.
pub(crate) const LINK_ROOM: usize = 256;

/// The most links that are followed for one path.
const MOST_LINKS: usize = 8;

/// Reads a link. It takes the link's path, ended by zero, and room for its target. `None` if there is no link.
pub(crate) type ReadLink = fn(&[u8], &mut [u8; LINK_ROOM]) -> Option<usize>;

/// A path that is being put together. Its functions return `None` if it gets too long.
pub(crate) struct Joined<'a> {
    room: &'a mut [u8; ROOM],
    /// The end of the tree's name. `..` stops there.
    root: usize,
    length: usize,
    read_link: ReadLink,
    /// Links that were followed.
    links: usize,
    /// Whether the path has been in a place. If it has left the place since, the call gets it in its resolved form.
    was_inside: bool,
}

impl<'a> Joined<'a> {
    /// Starts below a tree.
    pub(crate) fn below(
        tree: &[u8],
        room: &'a mut [u8; ROOM],
        read_link: ReadLink,
    ) -> Option<Self> {
        let mut joined = Self { room, root: 0, length: 0, read_link, links: 0, was_inside: false };
        joined.push(tree)?;
        joined.root = joined.length;
        Some(joined)
    }

    /// Goes to the directory that the path starts from. The kernel has given its name.
    pub(crate) fn start(&mut self, directory: &[u8]) -> Option<()> {
        let tree = &self.room[..self.root];
        let below = directory.strip_prefix(tree).filter(|below| below.first() == Some(&b'/'));
        self.push(below.unwrap_or(directory))?;
        if self.length == self.root + 1 {
            self.length = self.root;
        }
        Some(())
    }

    /// Goes on from here. No link leads into a place from outside. Links inside are followed, except for the last name
    /// of the path: the call decides what to do with that.
    pub(crate) fn walk(&mut self, path: &[u8]) -> Option<()> {
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            match name {
                b"" | b"." => {}
                b".." => self.leave(),
                _ => {
                    self.push(b"/")?;
                    self.push(name)?;
                    self.was_inside |= self.is_inside();
                    if names.peek().is_some() {
                        self.follow()?;
                    }
                }
            }
        }
        Some(())
    }

    /// If a link is here, goes where it leads.
    fn follow(&mut self) -> Option<()> {
        if !self.is_inside() {
            return Some(());
        }
        let mut target = [0; LINK_ROOM];
        let read_link = self.read_link;
        let Some(length) = read_link(self.path(), &mut target) else { return Some(()) };
        self.links += 1;
        let target = target.get(..length).filter(|_| self.links <= MOST_LINKS)?;
        match target.first() {
            Some(b'/') => self.length = self.root,
            _ => self.leave(),
        }
        self.walk(target)?;
        self.follow()
    }

    /// Goes to the directory above.
    fn leave(&mut self) {
        let walked = &self.room[self.root..self.length];
        let parent = walked.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.length = self.root + parent;
    }

    fn is_inside(&self) -> bool {
        let walked = &self.room[self.root..self.length];
        PLACES.iter().any(|place| {
            walked.strip_prefix(*place).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    /// The path below the tree, ended by zero.
    fn path(&mut self) -> &[u8] {
        self.room[self.length] = 0;
        &self.room[..=self.length]
    }

    /// The path to use instead, ended by zero. It is the same path below the tree if it is in one of the places, or its
    /// resolved form if it led through one. `None` if it has nothing to do with them.
    pub(crate) fn led(mut self) -> Option<&'a [u8]> {
        let inside = self.is_inside();
        if !inside && self.length == self.root {
            self.push(b"/")?;
        }
        self.path();
        let (root, length) = (self.root, self.length);
        match (inside, self.was_inside) {
            (true, _) => Some(&self.room[..=length]),
            (false, true) => Some(&self.room[root..=length]),
            (false, false) => None,
        }
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

    /// The tree's links.
    fn read_link(path: &[u8], target: &mut [u8; LINK_ROOM]) -> Option<usize> {
        let link: &[u8] = match path.strip_suffix(b"\0").expect("it ends in zero") {
            b"/tree/sys/class/infiniband/transom0" => {
                b"../../devices/transom-rdma/infiniband/transom0"
            }
            b"/tree/sys/devices/transom-rdma/infiniband/transom0/device" => {
                b"../../../transom-rdma"
            }
            b"/tree/dev/infiniband/loop" => b"loop",
            b"/tree/dev/infiniband/twice" => b"/sys/class/infiniband/transom0",
            _ => return None,
        };
        target[..link.len()].copy_from_slice(link);
        Some(link.len())
    }

    fn led(base: &str, path: &str) -> Option<String> {
        let mut room = [0; ROOM];
        let mut joined = Joined::below(b"/tree", &mut room, read_link)?;
        if !base.is_empty() {
            joined.start(base.as_bytes())?;
        }
        joined.walk(path.as_bytes())?;
        let path = joined.led()?.strip_suffix(b"\0").expect("it ends in zero");
        Some(String::from_utf8(path.to_vec()).unwrap())
    }

    #[test]
    fn only_the_places_are_led_elsewhere() {
        for path in [
            "/dev/infiniband",
            "/dev/infiniband/uverbs0",
            "/sys/class/infiniband/mlx5_0/ports/1/gids/0",
            "/sys/class/infiniband_verbs/abi_version",
            "/sys/devices/transom-rdma/numa_node",
        ] {
            assert_eq!(led("", path).as_deref(), Some(format!("/tree{path}").as_str()));
        }
        for path in [
            "/",
            "/dev/null",
            "/dev/infiniband2",
            "/sys/class/infiniband_mad",
            "/home/me/infiniband",
            "/tree/sys/class/infiniband",
            "/sys/devices/pci0000:00",
        ] {
            assert_eq!(led("", path), None, "{path}");
        }
    }

    #[test]
    fn a_path_means_the_same_however_it_is_written() {
        let expected = Some("/tree/sys/class/infiniband/mlx5_0".to_owned());
        for (base, path) in [
            ("", "/sys/class/infiniband/mlx5_0/"),
            ("", "//sys/./class//infiniband/mlx5_0/."),
            ("", "/../sys/class/net/../infiniband/mlx5_0"),
            ("", "/dev/infiniband/../../sys/class/infiniband/mlx5_0"),
            ("/", "sys/class/infiniband/mlx5_0"),
            ("/sys/class", "infiniband/mlx5_0"),
            ("/sys/class/net", "../infiniband/mlx5_0"),
            ("/tree/sys/class/infiniband", "../infiniband/mlx5_0"),
        ] {
            assert_eq!(led(base, path), expected, "{path} from {base}");
        }
    }

    #[test]
    fn links_are_followed_as_the_kernel_follows_them() {
        let parent = "/tree/sys/devices/transom-rdma";
        for (path, expected) in [
            ("/sys/class/infiniband/transom0", "/tree/sys/class/infiniband/transom0".to_owned()),
            ("/sys/class/infiniband/transom0/", format!("{parent}/infiniband/transom0")),
            ("/sys/class/infiniband/transom0/..", format!("{parent}/infiniband")),
            ("/sys/class/infiniband/transom0/../..", parent.to_owned()),
            (
                "/sys/class/infiniband/transom0/device",
                format!("{parent}/infiniband/transom0/device"),
            ),
            ("/sys/class/infiniband/transom0/device/numa_node", format!("{parent}/numa_node")),
            ("/dev/infiniband/twice/device/class", format!("{parent}/class")),
        ] {
            assert_eq!(led("", path), Some(expected), "{path}");
        }
        assert_eq!(led("", "/dev/infiniband/loop/x"), None);
    }

    #[test]
    fn a_path_that_leaves_a_place_leads_to_where_it_goes() {
        for (path, expected) in [
            ("/sys/class/infiniband/../net", "/sys/class/net"),
            ("/sys/class/infiniband_verbs/..", "/sys/class"),
            ("/sys/class/infiniband/transom0/../../..", "/sys/devices"),
            ("/dev/infiniband/../..", "/"),
        ] {
            assert_eq!(led("", path).as_deref(), Some(expected), "{path}");
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
