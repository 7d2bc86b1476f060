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

/// A type of C, as Rust has it.
struct Layout {
    name: &'static str,
    /// What C calls it.
    c: &'static str,
    size: usize,
    align: usize,
    fields: &'static [Field],
}

/// A field, with the path to it: `.src.addr`.
struct Field {
    path: &'static str,
    /// The path in C, if it is another.
    c: &'static [&'static str],
    offset: usize,
    size: usize,
}

/// Size and alignment of each type, offset and size of each field.
fn layout_checks(layouts: &[Layout]) -> Vec<Check> {
    let mut checks = Vec::new();
    for Layout { name, c, size, align, fields } in layouts {
        checks.push(Check::size(format!("sizeof {name}"), format!("sizeof({c})"), *size));
        checks.push(Check::size(format!("alignof {name}"), format!("_Alignof({c})"), *align));
        for Field { path, c: other, offset, size } in *fields {
            let in_c = other.first().copied().unwrap_or(&path[1..]);
            checks.push(Check::size(
                format!("offsetof {name}{path}"),
                format!("offsetof({c}, {in_c})"),
                *offset,
            ));
            checks.push(Check::size(
                format!("sizeof {name}{path}"),
                format!("sizeof((({c} *)0)->{in_c})"),
                *size,
            ));
        }
    }
    checks
}

/// The size of the field that `_get` points to; it is never called.
const fn field_size<T, F>(_get: fn(&T) -> *const F) -> usize {
    size_of::<F>()
}

/// `type = "C type" { fields }`; a field is `path` or `path => "C path"`.
///
/// Each type is a constant of its own: as one function, they take the compiler ten times as long.
macro_rules! layouts {
    ($($name:ident = $c_type:literal { $($($field:ident).+ $(=> $c_field:literal)?),* $(,)? })*) => {
        /// The types that are checked.
        pub(super) const LAYOUTS: &[super::Layout] = &[$({
            type T = transom_abi::$name;
            const FIELDS: &[super::Field] = &[$(super::Field {
                path: concat!($(".", stringify!($field)),+),
                c: &[$($c_field)?],
                offset: std::mem::offset_of!(T, $($field).+),
                size: super::field_size(|t: &T| &raw const t.$($field).+),
            }),*];
            const LAYOUT: super::Layout = super::Layout {
                name: stringify!($name),
                c: $c_type,
                size: size_of::<T>(),
                align: align_of::<T>(),
                fields: FIELDS,
            };
            LAYOUT
        }),*];
    };
}

/// An enum of C: its size, and whether it is signed.
struct Enum {
    name: &'static str,
    size: usize,
    is_signed: bool,
}

fn enum_checks(enums: &[Enum]) -> Vec<Check> {
    let checks = enums.iter().flat_map(|Enum { name, size, is_signed }| {
        [
            Check::size(format!("sizeof {name}"), format!("sizeof(enum {name})"), *size),
            Check::new(
                format!("{name} is signed"),
                format!("(enum {name})-1 < 0"),
                i64::from(*is_signed),
            ),
        ]
    });
    checks.collect()
}

macro_rules! enums {
    ($($name:ident),* $(,)?) => {
        /// The enums that are checked.
        pub(super) const ENUMS: &[super::Enum] = &[$(super::Enum {
            name: stringify!($name),
            size: size_of::<transom_abi::$name>(),
            is_signed: transom_abi::$name::MIN != 0,
        }),*];
    };
}

fn constant_checks(constants: &[(&str, i64)]) -> Vec<Check> {
    constants.iter().map(|(name, value)| Check::new(*name, *name, *value)).collect()
}

macro_rules! constants {
    ($($name:ident),* $(,)?) => {
        /// The constants that are checked, with their values; pointers have none before the program runs.
        pub(super) fn constants() -> Vec<(&'static str, i64)> {
            vec![$((stringify!($name), transom_abi::$name as i64)),*]
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
    let mut checks = layout_checks(structs::LAYOUTS);
    checks.extend(enum_checks(constants::ENUMS));
    checks.extend(constant_checks(&constants::constants()));
    let differing = compare("verbs", &["infiniband/verbs.h", "time.h"], &checks);
    assert!(differing.is_empty(), "{differing}");
}

#[test]
fn connection_management_is_as_in_the_header() {
    let mut checks = layout_checks(rdma_cma::LAYOUTS);
    checks.extend(enum_checks(rdma_cma::ENUMS));
    checks.extend(constant_checks(&rdma_cma::constants()));
    let differing = compare("rdma_cma", &["rdma/rdma_cma.h", "rdma/rsocket.h"], &checks);
    assert!(differing.is_empty(), "{differing}");
}

/// By itself, since the library's header has some of the same constants.
#[test]
fn the_commands_are_as_in_the_kernels_header() {
    let mut checks = layout_checks(rdma_user_cm::LAYOUTS);
    checks.extend(constant_checks(&rdma_user_cm::constants()));
    let differing = compare("rdma_user_cm", &["rdma/rdma_user_cm.h"], &checks);
    assert!(differing.is_empty(), "{differing}");
}

/// Nothing is declared in `src` that the lists of this test leave out.
#[test]
fn everything_is_listed() {
    /// Anonymous in C, so they are checked as members of the struct around them, or opaque.
    const EXEMPT: &[&str] =
        &["ibv_wc_imm", "ibv_send_wr_imm", "ibv_send_wr_op", "rdma_addr_src", "rdma_addr_dst"];
    let types = [structs::LAYOUTS, rdma_cma::LAYOUTS, rdma_user_cm::LAYOUTS];
    let types: Vec<_> = types.into_iter().flatten().map(|layout| layout.name).collect();
    let constants = [constants::constants(), rdma_cma::constants(), rdma_user_cm::constants()];
    let constants: Vec<_> = constants.into_iter().flatten().map(|(name, _)| name).collect();
    let enums = [constants::ENUMS, rdma_cma::ENUMS];
    let enums: Vec<_> = enums.into_iter().flatten().map(|one| one.name).collect();

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
