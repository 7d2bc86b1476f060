//! Gives the shared object its name and its symbol versions.

use std::path::Path;

fn main() {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("ibverbs.map");
    print!("{}", transom_exports::link_arguments("libibverbs.so.1", &map));
}
