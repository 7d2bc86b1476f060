//! What `transom check` does not look at: what librdmacm makes for itself.

use transom_conformance::checked::Checked;

/// Rule: CHK-10
#[test]
fn queue_pairs_of_sockets_are_none_of_the_programs() {
    let libraries = ["-libverbs", "-lrdmacm"];
    let program = Checked::new("sockets", env!("CARGO_TARGET_TMPDIR"), &libraries);
    for sockets in ["stream", "datagrams"] {
        // It closes them, or leaves them open until it ends.
        for left in ["right", "wrong"] {
            assert_eq!(program.run(&[sockets, left]), [], "{sockets}, {left}");
        }
    }
}
