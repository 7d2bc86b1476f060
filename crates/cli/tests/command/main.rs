//! The tests of the command `transom`: one program, so that they run beside each other.

mod check;
mod terminal;
mod user;
