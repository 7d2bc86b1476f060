//! Nothing: its dependencies' features are all there is.
//!
//! Cargo gives a dependency the features that all selected packages ask for. A package alone asks for fewer than the
//! whole workspace, so its dependencies, and all that depends on them, would be compiled once more. With this package
//! beside it they are the same. A unit test of `crates/conformance/src/programs.rs` compares them.
