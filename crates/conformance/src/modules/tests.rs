use super::*;

/// Modules of a crate with these files.
fn modules(files: &[(&str, &str)]) -> Modules {
    let owned = |&(name, text): &(&str, &str)| (name.to_owned(), text.to_owned());
    Modules::of("lib.rs", &files.iter().map(owned).collect::<Vec<_>>())
}

/// The imports of `a` with this text, beside the modules `b`, `c` and `d`.
fn arrows(text: &str) -> Vec<String> {
    let root = "mod a; mod b; mod c; mod d; pub use c::Named; pub use d::*; pub struct OfRoot;";
    let d = "pub fn found_by_glob() {}";
    let modules =
        modules(&[("lib.rs", root), ("a.rs", text), ("b.rs", ""), ("c.rs", ""), ("d.rs", d)]);
    let to = |(from, to): (&String, &BTreeMap<String, String>)| {
        to.keys().map(|to| format!("{from} {to}")).collect::<Vec<_>>()
    };
    modules.imports.iter().flat_map(to).collect()
}

#[test]
fn every_way_to_write_an_import_is_read() {
    for (text, expected) in [
        ("use crate::b;", "a b"),
        ("use crate::b::{self, X};", "a b"),
        ("use crate::b::deep::Thing as Other;", "a b"),
        ("use super::b::X;", "a b"),
        ("pub(crate) use crate::b::X;", "a b"),
        ("mod deep { use super::super::b; }", "a b"),
        ("fn f() -> crate::b::X { todo!() }", "a b"),
        ("fn f() { let x = vec![super::b::f()]; }", "a b"),
        ("type T = Vec<<u8 as crate::b::Trait>::Kind>;", "a b"),
        ("macro_rules! m { () => { $crate::b::f() } }", "a b"),
        ("use crate::Named;", "a c"),
        ("use super::found_by_glob;", "a d"),
        ("use crate::OfRoot;", "a the root"),
    ] {
        assert_eq!(arrows(text), [expected], "{text}");
    }
    assert_eq!(
        arrows("use crate::{b::{X, Y}, /* and */ c::{self}, d as e,};"),
        ["a b", "a c", "a d"]
    );
}

#[test]
fn what_only_looks_like_an_import_is_none() {
    for text in [
        "// use crate::b;\n/* crate::b::X */ /// [`crate::b`]\nfn f() {}",
        "const A: &str = \"use crate::b;\";",
        "use std::{fs, io}; use other::b::X; fn f() { std::fs::read(b::X) }",
        "mod b { pub struct X; } use self::b::X; fn f() { b::X; self::b::X; }",
        "pub(in crate::b) fn f() {}",
        "use crate::a::X;",
        "#[cfg(test)] mod tests { use crate::b; }",
        "#[cfg(test)] mod tests { mod deep { use crate::b; } } fn f() {}",
        "#[cfg(all(test, not(loom)))] use crate::b::{X, Y};",
        "fn f() { #[cfg(test)] crate::b::f(); }",
        "struct S { #[cfg(test)] x: crate::b::X, y: u8 }",
    ] {
        assert_eq!(arrows(text), [""; 0], "{text}");
    }
    let read = [
        "#[cfg(not(test))] use crate::b;",
        "#[cfg(any(test, loom))] use crate::b;",
        "#[cfg(test)] fn f(x: A<u8, u8>) {} use crate::b;",
        "#[cfg(test)] mod tests; use crate::b;",
    ];
    for text in read {
        assert_eq!(arrows(text), ["a b"], "{text}");
    }
}

#[test]
fn a_module_is_all_of_its_files() {
    let files = [
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod fixtures;"),
        ("a/mod.rs", "mod deep; #[cfg(test)] mod tests;"),
        ("a/deep.rs", "use super::super::b::X; use super::Y;"),
        ("a/tests.rs", "use crate::fixtures;"),
        ("b.rs", "mod deep;"),
        ("b/deep/deeper.rs", "use crate::a::Y;"),
        ("fixtures.rs", "use crate::a;"),
    ];
    let modules = modules(&files);
    assert_eq!(modules.top_level, ["a", "b"].map(String::from).into());
    let circle =
        "a imports b (a/deep.rs: super::super::b::X); b imports a (b/deep/deeper.rs: crate::a::Y)";
    assert_eq!(modules.circles(), [circle]);
}

#[test]
fn circles_are_found_the_shortest_first() {
    let chain = modules(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; pub use a::A; pub use c::C;"),
        ("a.rs", "use crate::b; use crate::d;"),
        ("b.rs", "use crate::c; use crate::d;"),
        ("c.rs", "use crate::d;"),
        ("d.rs", ""),
    ]);
    assert_eq!(chain.circles(), [""; 0]);

    let circles = modules(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::c;"),
        ("c.rs", "use crate::{a, d};"),
        ("d.rs", "use crate::e;"),
        ("e.rs", "use crate::d;"),
    ]);
    assert_eq!(
        circles.circles(),
        [
            "d imports e (d.rs: crate::e); e imports d (e.rs: crate::d)",
            "a imports b (a.rs: crate::b); b imports c (b.rs: crate::c); c imports a (c.rs: crate::a)",
        ]
    );

    // A root that has items of its own may be part of a circle.
    let root =
        modules(&[("lib.rs", "mod a; pub struct X; fn f() { a::f() }"), ("a.rs", "use crate::X;")]);
    let circle = "a imports the root (a.rs: crate::X); the root imports a (lib.rs: a::f)";
    assert_eq!(root.circles(), [circle]);
}

#[test]
fn each_folder_is_looked_through() {
    let folder = |x: &str, y: &str| {
        let root = "mod a; mod b; pub use b::B;";
        let a = "mod x; mod y; use self::y::Y; pub use x::X; fn f() { x::f() }";
        modules(&[("lib.rs", root), ("a.rs", a), ("a/x.rs", x), ("a/y.rs", y), ("b.rs", "")])
            .circles()
    };
    let x_and_y = "a::x imports a::y (a/x.rs: super::Y); a::y imports a::x (a/y.rs: crate::a::X)";
    assert_eq!(folder("use super::Y;", "use crate::a::X;"), [x_and_y]);
    // A module may take a neighbour's item through a module further up.
    assert_eq!(folder("mod deep { use super::super::y; }", "use super::x::deep::Z;").len(), 1);
    // A module and everything in it are one.
    assert_eq!(folder("use super::Item;", "use super::x; use crate::B;"), [""; 0]);
}

#[test]
fn layers_forbid_imports_of_what_is_above() {
    let modules = modules(&[
        ("lib.rs", "mod low; mod middle; mod beside; mod high;"),
        ("low.rs", "use crate::high::X;"),
        ("middle.rs", "use crate::{low, beside};"),
        ("beside.rs", ""),
        ("high.rs", "use crate::{low, middle};"),
    ]);
    assert_eq!(modules.circles().len(), 1);
    let upward = "low imports high (low.rs: crate::high::X)";
    assert_eq!(modules.upward(&[&["low"], &["middle", "beside"], &["high"]]), [upward]);
    assert_eq!(modules.upward(&[&["middle", "low", "beside", "high"]]), [""; 0]);
    assert_eq!(
        modules.upward(&[&["low", "high"], &["middle", "gone"]]),
        [
            "gone is no module",
            "beside is in no layer",
            "high imports middle (high.rs: crate::middle)"
        ]
    );
}
