//! Gives the shared object its name and its symbol versions.

use std::path::Path;

fn main() {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("rdmacm.map");
    print!("{}", transom_exports::link_arguments("librdmacm.so.1", &map));
}
