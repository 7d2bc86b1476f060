//! The place in a line of source code that names the called verb. Compilers tell only where a macro begins, and the
//! verb is often inside one: `CHECK(!ibv_post_send(…))`.

use std::ops::Range;

use super::found::Call;
use super::shown;

/// The prefixes of the verbs' names.
const PREFIXES: [&str; 2] = ["ibv_", "rdma_"];

/// For each word of a call's label, the part that the names of its verbs have in common.
const DONE: [(&str, &[&str]); 9] = [
    ("posted", &["post", "wr_complete"]),
    ("polled", &["poll"]),
    ("armed", &["req_notify"]),
    ("acknowledged", &["ack"]),
    ("got", &["get"]),
    ("made", &["create", "alloc", "_reg_", "open"]),
    ("destroyed", ENDS),
    ("ended", ENDS),
    ("closed", ENDS),
];
const ENDS: &[&str] = &["destroy", "dealloc", "dereg", "close"];

/// The bytes of a line's text that name the verb of this call. None if no verb, or more than one, may be meant.
pub(super) fn named_in(text: &str, call: &Call) -> Option<Range<usize>> {
    let known = shown::verb(call).map(|name| name.trim_start_matches('_')).filter(|it| is_verb(it));
    let words = || call.what.split(|letter: char| !letter.is_alphabetic());
    let done = words().find_map(|word| DONE.iter().find(|(it, _)| *it == word));
    let is_meant = |name: &str| match (known, done) {
        (Some(known), _) => name == known,
        (None, Some((_, parts))) => parts.iter().any(|part| name.contains(part)),
        (None, None) => true,
    };
    let mut meant = calls(text).filter(|place| is_meant(&text[place.clone()]));
    let first = meant.next();
    first.filter(|_| meant.next().is_none())
}

/// The calls of verbs in a line.
fn calls(text: &str) -> impl Iterator<Item = Range<usize>> {
    let comment = ["/*", "//"].into_iter().filter_map(|begin| text.find(begin)).min();
    let code = &text[..comment.unwrap_or(text.len())];
    let brackets = code.match_indices('(').map(|(at, _)| code[..at].trim_end());
    let names = brackets.map(|before| {
        let start = before.trim_end_matches(|it: char| it.is_alphanumeric() || it == '_').len();
        start..before.len()
    });
    names.filter(|place| is_verb(&code[place.clone()]))
}

/// Whether a name is that of a verb.
pub(super) fn is_verb(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::super::symbols::{Place, Source};
    use super::*;

    fn named<'a>(text: &'a str, call: &Call) -> Option<&'a str> {
        named_in(text, call).map(|place| &text[place])
    }

    fn call(what: &str, places: Vec<Place>) -> Call {
        Call { what: what.into(), thread: 1, places }
    }

    #[test]
    fn a_verb_inside_a_macro_is_told_by_what_was_done() {
        let destroyed = call("destroyed here", vec![]);
        let posted = call("posted here: SEND of 0 bytes, wr_id 0x1", vec![]);
        let both = "CHECK(é && !ibv_post_send(qp, &wr, &bad) && !ibv_destroy_qp (qp));";
        assert_eq!(named(both, &posted), Some("ibv_post_send"));
        assert_eq!(named(both, &destroyed), Some("ibv_destroy_qp"));
        assert_eq!(named("CHECK(!rdma_dereg_mr(mr));", &destroyed), Some("rdma_dereg_mr"));
        // A line may only pass a verb's result on.
        assert_eq!(named("FINISH(ibv_create_qp(pd, &init));", &destroyed), None);
        let used = call("used here", vec![]);
        assert_eq!(named("CHECK(!ibv_query_qp(qp, &a, b, &c));", &used), Some("ibv_query_qp"));
        assert_eq!(named(both, &used), None);
    }

    #[test]
    fn a_verb_that_is_no_call_or_not_alone_is_not_told() {
        let destroyed = call("destroyed here", vec![]);
        for line in [
            "END(qp); /* ibv_destroy_qp(qp) */",
            "END(qp); // ibv_destroy_qp(qp)",
            "END(ibv_destroy_qp, qp);",
            "END(my_ibv_destroy_qp(qp));",
            "CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));",
            "((",
            "",
        ] {
            assert_eq!(named(line, &destroyed), None, "{line}");
        }
    }

    #[test]
    fn a_verb_that_a_place_has_is_the_one() {
        let header = |function: &str| Place {
            module: "/bin/server".into(),
            function: Some(function.into()),
            source: Some(Source {
                file: "/usr/include/infiniband/verbs.h".into(),
                line: 3,
                column: None,
            }),
            ..Place::default()
        };
        let own = || Place { module: "/bin/server".into(), ..Place::default() };
        // A macro of the header has the name without its prefix.
        let made = call("made here", vec![header("__ibv_reg_mr"), own()]);
        let line = "mr = CHECK(ibv_reg_mr(ibv_alloc_pd(c), p, 1, 0));";
        assert_eq!(named(line, &made), Some("ibv_reg_mr"));
        assert_eq!(named(line, &call("made here", vec![own()])), None);
        assert_eq!(
            named(
                "POST(ibv_post_recv(a));",
                &call("posted here", vec![header("ibv_post_send"), own()])
            ),
            None
        );
    }
}
