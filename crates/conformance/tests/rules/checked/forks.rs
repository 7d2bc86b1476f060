//! What `transom check` finds of forks.

use std::sync::LazyLock;

use transom_check::Kind;
use transom_conformance::checked::Checked;

static PROGRAM: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("forks", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]));

/// Rule: CHK-70
#[test]
fn a_child_posts_to_a_queue_pair_of_its_parent() {
    PROGRAM.shows(Kind::ParentsObjects, &["made", "forked", "used"]);
}

/// Rule: CHK-70
#[test]
fn a_child_makes_arms_and_destroys_at_its_parents_device() {
    let found = PROGRAM.run(&["parents-device", "wrong"]);
    for verb in ["ibv_alloc_pd", "ibv_destroy_qp", "ibv_req_notify_cq"] {
        let is_told = found.iter().any(|it| it.says.starts_with(verb));
        assert!(is_told, "{verb}: {found:#?}");
    }
    assert!(found.iter().all(|it| it.kind == Kind::ParentsObjects), "{found:#?}");
    // A verb may look at its object several times, and that counts once.
    assert!(!PROGRAM.repeats(&["parents-device", "wrong"]));
    assert_eq!(PROGRAM.run(&["parents-device", "right"]), []);
}

/// Rule: CHK-70
#[test]
fn a_child_uses_its_parents_queues_and_channel() {
    let found = PROGRAM.run(&["parents-queues", "wrong"]);
    for verb in [
        "ibv_wr_start",
        "ibv_wr_complete",
        "ibv_start_poll",
        "ibv_get_cq_event",
        "ibv_ack_cq_events",
        "ibv_destroy_comp_channel",
    ] {
        let is_told = found.iter().any(|it| it.says.starts_with(verb));
        assert!(is_told, "{verb}: {found:#?}");
    }
    assert!(found.iter().all(|it| it.kind == Kind::ParentsObjects), "{found:#?}");
    assert_eq!(PROGRAM.run(&["parents-queues", "right"]), []);
}

/// Rule: CHK-71
#[test]
fn a_child_is_made_while_a_region_shares_a_page() {
    let found = PROGRAM.shows(Kind::ForkSharesPage, &["forks"]);
    assert!(found.says.ends_with("shares a page with other data."), "{found:#?}");
    let made: Vec<_> = found.sites.iter().map(|site| site.what.as_str()).collect();
    assert_eq!(made, ["the child is made here", "made here"]);
}

/// Rule: CHK-71
#[test]
fn a_child_lacks_a_page_after_ibv_fork_init() {
    let found = PROGRAM.run(&["page-is-missing", "wrong"]);
    let [missing] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(missing.kind, Kind::ForkSharesPage);
    assert!(missing.says.contains("which the child lacks"), "{missing:#?}");
    assert_eq!(PROGRAM.run(&["page-is-missing", "right"]), []);
}
