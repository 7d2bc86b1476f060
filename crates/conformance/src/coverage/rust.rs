//! Tests in Rust sources.

use super::test::ids_in_comment;
use super::{Rules, Test};
use crate::tokens::{Token, lex};

/// Every function in a call of a macro with this prefix is a test.
const LISTING_MACROS: &str = "on_each_";

/// Finds the tests in a Rust source file.
///
/// A test is a function with a `#[test]` attribute (of any path: `#[tokio::test]` counts too), in any place, also in a
/// macro call such as `proptest! { … }`. Every function in a call of a macro named `on_each_…!` is a test too. A
/// function that is `#[ignore]`d is no test: it holds nothing.
pub fn scan_rust(file: &str, source: &str, rules: &Rules) -> Vec<Test> {
    let tokens = lex(source);
    let mut tests = Vec::new();
    walk(&tokens, file, false, rules, &mut tests);
    tests
}

/// The comment and attributes above an item.
#[derive(Default)]
struct Above {
    comment: String,
    test: bool,
    ignored: bool,
}

fn walk(tokens: &[Token<'_>], file: &str, listing: bool, rules: &Rules, to: &mut Vec<Test>) {
    let mut above = Above::default();
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match (token, rest) {
            (Token::Comment(text), _) => {
                above.comment.push_str(text);
                above.comment.push('\n');
            }
            (Token::Other('#'), [Token::Group('[', attribute), after @ ..]) => {
                above.test |= attribute_name(attribute) == Some("test");
                above.ignored |= attribute_name(attribute) == Some("ignore");
                rest = after;
            }
            (Token::Other('#'), [Token::Other('!'), Token::Group('[', _), after @ ..]) => {
                rest = after;
            }
            (Token::Word("fn"), [Token::Word(name), after @ ..]) => {
                let above = std::mem::take(&mut above);
                if (above.test || listing) && !above.ignored {
                    let mut ids = ids_in_comment(&above.comment);
                    ids.extend(rules.ids_in_name(name));
                    to.push(Test { name: format!("{file}::{name}"), ids });
                }
                let body = |t: &Token<'_>| matches!(t, Token::Group('{', _) | Token::Other(';'));
                rest = after.iter().position(body).map_or(&[], |at| &after[at + 1..]);
            }
            (
                Token::Word("macro_rules"),
                [Token::Other('!'), Token::Word(_), Token::Group(..), after @ ..],
            ) => {
                above = Above::default();
                rest = after;
            }
            (Token::Word(name), [Token::Other('!'), Token::Group(_, body), after @ ..]) => {
                walk(body, file, name.starts_with(LISTING_MACROS), rules, to);
                above = Above::default();
                rest = after;
            }
            (Token::Group('{', body), _) => {
                walk(body, file, listing, rules, to);
                above = Above::default();
            }
            (Token::Other(';'), _) => above = Above::default(),
            _ => {}
        }
    }
}

/// The last word of an attribute's path: `test` for `#[test]` and `#[tokio::test(…)]`.
fn attribute_name<'a>(attribute: &[Token<'a>]) -> Option<&'a str> {
    let mut name = None;
    for token in attribute {
        match token {
            Token::Word(word) => name = Some(*word),
            Token::Other(':') => {}
            _ => break,
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::coverage::sample::{ids, rules};

    fn rust(source: &str) -> Vec<(String, BTreeSet<String>)> {
        scan_rust("f", source, &rules()).into_iter().map(|t| (t.name, t.ids)).collect()
    }

    fn found(name: &str, list: &[&str]) -> (String, BTreeSet<String>) {
        (format!("f::{name}"), ids(list))
    }

    #[test]
    fn a_test_carries_the_ids_of_its_rules_line_and_of_its_name() {
        let source = "
            /// Something, as T1-01 has it.
            ///
            /// Rules: PD-01, PD-02
            #[test]
            #[should_panic(expected = \"x\")]
            pub(crate) fn refused() { fn helper() {} }

            // Rules: PD-01,
            // AT-10.
            #[test]
            fn continued() {}

            #[tokio::test(flavor = \"multi_thread\")]
            async fn t1_01_pd_02_name() {}

            #[test]
            fn waits_at_10_ms() {}

            /// Rules: PD-01
            fn helper() {}
        ";
        assert_eq!(
            rust(source),
            [
                found("refused", &["PD-01", "PD-02"]),
                found("continued", &["AT-10", "PD-01"]),
                found("t1_01_pd_02_name", &["PD-02", "T1-01"]),
                found("waits_at_10_ms", &[]),
            ]
        );
    }

    #[test]
    fn a_comment_belongs_to_the_next_item_only() {
        let source = "
            /// Rules: PD-01
            struct S { x: u8 }
            #[test] fn a() {}
            /// Rules: PD-01
            use x::y;
            #[test] fn b() {}
        ";
        assert_eq!(rust(source), [found("a", &[]), found("b", &[])]);
    }

    #[test]
    fn tests_in_modules_and_macros_are_found() {
        let source = "
            mod inner { #[test] fn pd_01_x() {} }
            on_each_link! {
                /// Rules: PD-02
                fn listed(link: Link) { let f = |x| { x }; fn helper() {} }
                fn t1_01_also(link: Link) -> Result<(), E> {}
            }
            proptest! {
                #![proptest_config(Config::with_cases(10))]
                /// Rules: AT-10
                #[test]
                fn random(x in 0..10u8, y in prop_oneof![Just(1), Just(2)]) {}
                fn helper() {}
            }
            macro_rules! on_each_thing { ($(fn $n:ident)*) => { #[test] fn pd_01_no() {} } }
        ";
        assert_eq!(
            rust(source),
            [
                found("pd_01_x", &["PD-01"]),
                found("listed", &["PD-02"]),
                found("t1_01_also", &["T1-01"]),
                found("random", &["AT-10"]),
            ]
        );
    }

    #[test]
    fn what_only_looks_like_a_test_is_none() {
        let source = r##"
            #[ignore = "slow"] #[test] fn pd_01_ignored() {}
            // #[test] fn pd_01_commented() {}
            /* #[test] fn pd_01_block() {} /* nested */ #[test] fn pd_01_again() {} */
            const A: &str = "#[test] fn pd_01_string() {} \" } #[test] fn pd_01_after() {}";
            const B: &str = r#"#[test] fn pd_01_raw() {} " }"#;
            const C: [char; 4] = ['"', '\'', '{', '\u{7b}'];
            #[cfg(test)] fn pd_01_helper<'a>(x: &'a str) {}
            type F = fn(u8) -> u8;
            #[test] fn pd_02_real() {}
        "##;
        assert_eq!(rust(source), [found("pd_02_real", &["PD-02"])]);
    }
}
