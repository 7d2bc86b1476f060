//! The tests of rdma-core that Transom may skip, and the reasons.

/// The list: a reason and a test in each line.
const LIST: &str = include_str!("../../../programs/expected-skips.txt");

/// A reason to skip tests.
#[derive(Debug)]
pub(crate) struct Reason {
    /// Its name in the list.
    name: &'static str,
    /// Messages of the tests, or parts of them.
    says: &'static [&'static str],
    /// Whether the tests can run on another machine.
    pub(crate) machine: bool,
}

/// All reasons.
const REASONS: [Reason; 3] = [
    // Flow steering, receive-side scaling and raw queue pairs send and receive Ethernet frames.
    Reason {
        name: "raw-ethernet",
        says: &["Create QP type 8 is not supported", "Create Raw Packet QP"],
        machine: false,
    },
    // A dma-buf needs a graphics card.
    Reason {
        name: "gpu",
        says: &["Allocating dmabuf is not supported by /dev/dri/"],
        machine: true,
    },
    // The administrator has reserved none.
    Reason { name: "huge-pages", says: &["There are no huge pages of size"], machine: true },
];

impl Reason {
    /// Whether a test that is skipped for this reason prints this.
    pub(crate) fn explains(&self, said: &str) -> bool {
        self.says.iter().any(|part| said.contains(part))
    }
}

/// The reason why this test is expected to be skipped, if it is.
pub(crate) fn expected(test: &str) -> Option<&'static Reason> {
    let (_, reason) = list().find(|(name, _)| *name == test)?;
    Some(reason)
}

/// The tests listed, with their reasons.
pub(crate) fn list() -> impl Iterator<Item = (&'static str, &'static Reason)> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let (reason, test) = line.split_once(' ').expect("a reason and a test");
        (test, REASONS.iter().find(|r| r.name == reason).expect("a reason of this file"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_is_listed_once_with_a_reason() {
        let mut tests: Vec<&str> = list().map(|(test, _)| test).collect();
        let all = tests.len();
        tests.sort_unstable();
        tests.dedup();
        assert_eq!(tests.len(), all);
        assert!(tests.iter().all(|test| test.starts_with("tests.test_")));
    }
}
