//! The page that leads from symptoms to causes has every symptom.

use std::fs;
use std::path::Path;

use transom_conformance::documents::root;
use transom_system::registry::rejections;

/// The names of an enumeration in a header of rdma-core's.
fn names(header: &str, enumeration: &str) -> Vec<String> {
    let path = Path::new("/usr/include").join(header);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}: apt-get install libibverbs-dev librdmacm-dev", path.display())
    });
    let (_, behind) = text.split_once(&format!("enum {enumeration} {{")).expect("it is there");
    let (inside, _) = behind.split_once('}').expect("it ends");
    let words = inside.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names = words.filter(|word| word.starts_with("IBV_") || word.starts_with("RDMA_CM_EVENT_"));
    let names: Vec<_> = names.map(str::to_owned).collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

#[test]
fn every_status_and_event_leads_to_its_causes() {
    let page = fs::read_to_string(root().join("docs/symptoms.md")).expect("it is there");
    // What is newer than the headers.
    let newer =
        ["RDMA_CM_EVENT_ADDRINFO_RESOLVED", "RDMA_CM_EVENT_ADDRINFO_ERROR", "RDMA_CM_EVENT_USER"];
    let all = [
        names("infiniband/verbs.h", "ibv_wc_status"),
        names("infiniband/verbs.h", "ibv_event_type"),
        names("rdma/rdma_cma.h", "rdma_cm_event_type"),
        newer.map(str::to_owned).to_vec(),
    ];
    let first = |line: &&str| line.starts_with("| `");
    let rows: Vec<_> =
        page.lines().filter(first).filter_map(|line| line.split('|').nth(1)).collect();
    let has = |name: &String| rows.iter().any(|row| row.contains(&format!("`{name}`")));
    let missing: Vec<_> = all.into_iter().flatten().filter(|name| !has(name)).collect();
    assert!(missing.is_empty(), "docs/symptoms.md says nothing of {missing:?}");
}

/// Those that `transom explain` has words for.
#[test]
fn every_reason_of_a_rejection_is_among_them() {
    let page = fs::read_to_string(root().join("docs/symptoms.md")).expect("it is there");
    let (_, behind) = page.split_once("| `RDMA_CM_EVENT_REJECTED`").expect("it is there");
    let (rows, _) = behind.split_once("| `RDMA_CM_EVENT").expect("other events follow");
    let codes = rows.lines().filter_map(|row| {
        row.trim_start_matches("| |").split('|').find(|it| !it.trim().is_empty())
    });
    let numbers =
        |cell: &str| cell.split(", ").filter_map(|it| it.trim().parse().ok()).collect::<Vec<u32>>();
    let told: Vec<u32> = codes.flat_map(numbers).collect();
    let missing: Vec<_> = rejections().filter(|code| !told.contains(code)).collect();
    assert!(missing.is_empty(), "docs/symptoms.md says nothing of reasons {missing:?} ({told:?})");
}
