//! Compares every type and constant with what a C compiler makes of the installed header.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const NEEDED: &str = "the layout test needs a C compiler, <infiniband/verbs.h>, <rdma/rdma_cma.h> and \
                      <rdma/rdma_user_cm.h>: apt-get install gcc libc6-dev libibverbs-dev librdmacm-dev";

/// One number that C and Rust must agree on.
struct Check {
    /// What is compared, for the report.
    what: String,
    /// The C expression.
    c: String,
    /// The value in Rust.
    rust: i64,
}

impl Check {
    fn new(what: impl Into<String>, c: impl Into<String>, rust: i64) -> Self {
        Self { what: what.into(), c: c.into(), rust }
    }

    fn size(what: impl Into<String>, c: impl Into<String>, rust: usize) -> Self {
        Self::new(what, c, i64::try_from(rust).expect("a size fits"))
    }
}

/// The size of the field that `_get` points to; it is never called.
fn field_size<T, F>(_get: fn(&T) -> *const F) -> usize {
    size_of::<F>()
}

/// `type = "C type" { fields }`; a field is `path` or `path => "C path"`.
macro_rules! layouts {
    ($($name:ident = $c_type:literal { $($($field:ident).+ $(=> $c_field:literal)?),* $(,)? })*) => {
        use super::{Check, field_size};
        use std::mem::{align_of, offset_of, size_of};

        /// Names of the types that are checked.
        pub(super) const TYPES: &[&str] = &[$(stringify!($name)),*];

        /// Size and alignment of each type, offset and size of each field.
        pub(super) fn checks() -> Vec<Check> {
            let mut checks = Vec::new();
            $({
                type T = transom_abi::$name;
                let name = stringify!($name);
                let c = $c_type;
                checks.push(Check::size(format!("sizeof {name}"), format!("sizeof({c})"), size_of::<T>()));
                checks.push(Check::size(format!("alignof {name}"), format!("_Alignof({c})"), align_of::<T>()));
                $({
                    let path = concat!($(".", stringify!($field)),+);
                    let c_path = [$($c_field,)? &path[1..]][0];
                    checks.push(Check::size(
                        format!("offsetof {name}{path}"),
                        format!("offsetof({c}, {c_path})"),
                        offset_of!(T, $($field).+),
                    ));
                    checks.push(Check::size(
                        format!("sizeof {name}{path}"),
                        format!("sizeof((({c} *)0)->{c_path})"),
                        field_size(|t: &T| &raw const t.$($field).+),
                    ));
                })*
            })*
            checks
        }
    };
}

/// Enums: their size and whether they are signed.
macro_rules! enums {
    ($($name:ident),* $(,)?) => {
        /// Names of the enums that are checked.
        pub(super) const ENUMS: &[&str] = &[$(stringify!($name)),*];

        /// Size and signedness of each enum.
        pub(super) fn enum_checks() -> Vec<super::Check> {
            let mut checks = Vec::new();
            $({
                let name = stringify!($name);
                checks.push(super::Check::size(
                    format!("sizeof {name}"),
                    format!("sizeof(enum {name})"),
                    size_of::<transom_abi::$name>(),
                ));
                checks.push(super::Check::new(
                    format!("{name} is signed"),
                    format!("(enum {name})-1 < 0"),
                    i64::from(transom_abi::$name::MIN != 0),
                ));
            })*
            checks
        }
    };
}

/// Constants: their value.
macro_rules! constants {
    ($($name:ident),* $(,)?) => {
        /// Names of the constants that are checked.
        pub(super) const CONSTANTS: &[&str] = &[$(stringify!($name)),*];

        /// Value of each constant.
        pub(super) fn constant_checks() -> Vec<super::Check> {
            vec![$(super::Check::new(stringify!($name), stringify!($name), transom_abi::$name as i64)),*]
        }
    };
}

#[path = "layout/constants.rs"]
mod constants;
#[path = "layout/rdma_cma.rs"]
mod rdma_cma;
#[path = "layout/rdma_user_cm.rs"]
mod rdma_user_cm;
#[path = "layout/structs.rs"]
mod structs;

/// Has the compiler compare the expressions with their values in Rust; what it says of those that differ.
/// `CC` names another than this machine's `cc`, for another architecture.
fn compare(name: &str, headers: &[&str], checks: &[Check]) -> String {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = |ending| dir.join(format!("transom-abi-{name}.{ending}"));
    let (source, object) = (file("c"), file("o"));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());

    let includes: Vec<&str> = headers.iter().flat_map(|header| ["-include", header]).collect();
    let usable = Command::new(&compiler)
        .args(["-E", "-x", "c"])
        .args(&includes)
        .arg("/dev/null")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(usable, "{NEEDED}");

    let mut text = String::from("#include <stddef.h>\n");
    for Check { what, c, rust } in checks {
        writeln!(text, "_Static_assert((long long)({c}) == {rust}LL, \"{what}: {rust} in Rust\");")
            .expect("into a string");
    }
    std::fs::write(&source, text).expect("write the C file");

    let mut compile = Command::new(compiler);
    compile.args(["-w", "-c"]).args(&includes).arg("-o").arg(&object).arg(&source);
    let compiled = compile.output().expect("run the compiler");
    let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success() || !said.is_empty(), "{}", compiled.status);
    said
}

#[test]
fn everything_is_as_in_the_header() {
    let mut checks = structs::checks();
    checks.extend(constants::enum_checks());
    checks.extend(constants::constant_checks());
    let differing = compare("verbs", &["infiniband/verbs.h", "time.h"], &checks);
    assert!(differing.is_empty(), "{differing}");
}

#[test]
fn connection_management_is_as_in_the_header() {
    let mut checks = rdma_cma::checks();
    checks.extend(rdma_cma::enum_checks());
    checks.extend(rdma_cma::constant_checks());
    let differing = compare("rdma_cma", &["rdma/rdma_cma.h", "rdma/rsocket.h"], &checks);
    assert!(differing.is_empty(), "{differing}");
}

/// By itself, since the library's header has some of the same constants.
#[test]
fn the_commands_are_as_in_the_kernels_header() {
    let mut checks = rdma_user_cm::checks();
    checks.extend(rdma_user_cm::constant_checks());
    let differing = compare("rdma_user_cm", &["rdma/rdma_user_cm.h"], &checks);
    assert!(differing.is_empty(), "{differing}");
}

/// Nothing is declared in `src` that the lists of this test leave out.
#[test]
fn everything_is_listed() {
    /// Anonymous in C, so they are checked as members of the struct around them, or opaque.
    const EXEMPT: &[&str] =
        &["ibv_wc_imm", "ibv_send_wr_imm", "ibv_send_wr_op", "rdma_addr_src", "rdma_addr_dst"];
    let types = [structs::TYPES, rdma_cma::TYPES, rdma_user_cm::TYPES].concat();
    let constants = [constants::CONSTANTS, rdma_cma::CONSTANTS, rdma_user_cm::CONSTANTS].concat();
    let enums = [constants::ENUMS, rdma_cma::ENUMS].concat();

    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).expect("read src") {
        let path = entry.expect("read src").path();
        // The packaged header lacks what is newer than itself.
        if path.file_name().is_some_and(|name| name == "lib.rs" || name == "newer.rs") {
            continue;
        }
        for line in std::fs::read_to_string(&path).expect("read a source").lines() {
            let line = line.trim_start();
            let typed = ["pub struct ", "pub union "].iter().find_map(|p| line.strip_prefix(p));
            let (name, list) = if let Some(rest) = typed {
                (word(rest), &types)
            } else if line.starts_with("pub const fn ") {
                continue;
            } else if let Some(rest) = line.strip_prefix("pub const ") {
                (word(rest), &constants)
            } else if (line.starts_with("IBV_") || line.starts_with("RDMA_"))
                && line.contains(" = ")
            {
                (word(line), &constants)
            } else if (line.starts_with("ibv_") || line.starts_with("rdma_"))
                && line.ends_with("int {")
            {
                (word(line), &enums)
            } else {
                continue;
            };
            if !list.contains(&name.as_str()) && !EXEMPT.contains(&name.as_str()) {
                missing.push(name);
            }
        }
    }
    assert!(missing.is_empty(), "not checked: {missing:?}");
}
