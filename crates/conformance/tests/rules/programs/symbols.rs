//! The symbols of our `libibverbs.so.1` and their versions: what Debian's library has, what clients
//! ask for, and what newer versions of rdma-core added.
//!
//! The loader ends a program that is linked BIND_NOW, as nearly all clients are, if one is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use object::Endianness;
use object::elf::{FileHeader64, STT_OBJECT, VER_NDX_LOCAL};
use object::read::elf::{FileHeader, Sym};
use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Running, library, program};

const LIMIT: Duration = Duration::from_secs(120);
/// What the nodes of our own begin with.
const OURS: &str = "TRANSOM_";

/// A dynamic symbol that has a version of libibverbs, or of librdmacm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    name: String,
    node: String,
    /// Nothing new can be linked to it.
    hidden: bool,
    /// Data rather than a function; where it is only asked for, nobody knows.
    data: bool,
}

/// The versioned symbols of libibverbs that a file defines, or those it asks for.
fn symbols(file: &Path, defined: bool) -> Vec<Symbol> {
    symbols_of(&["IBVERBS_", OURS], file, defined)
}

/// Those of librdmacm.
fn rdmacm_symbols(file: &Path, defined: bool) -> Vec<Symbol> {
    symbols_of(&["RDMACM_"], file, defined)
}

/// Those whose nodes begin with one of these.
fn symbols_of(nodes: &[&str], file: &Path, defined: bool) -> Vec<Symbol> {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let read = || -> object::read::Result<Vec<Symbol>> {
        let data = &*bytes;
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let table = sections.symbols(endian, data, object::elf::SHT_DYNSYM)?;
        let versions = sections.versions(endian, data)?.expect("versioned symbols");
        let mut found = Vec::new();
        for (index, symbol) in table.enumerate() {
            let version = versions.version_index(endian, index);
            if symbol.is_undefined(endian) == defined || version.index() == VER_NDX_LOCAL {
                continue;
            }
            let name = String::from_utf8_lossy(table.symbol_name(endian, symbol)?).into_owned();
            let Some(node) = versions.version(version.index())? else { continue };
            let node = String::from_utf8_lossy(node.name()).into_owned();
            // Some linkers make a symbol of each node.
            if nodes.iter().any(|begin| node.starts_with(begin)) && name != node {
                let (hidden, data) = (version.is_hidden(), symbol.st_type() == STT_OBJECT);
                found.push(Symbol { name, node, hidden, data });
            }
        }
        Ok(found)
    };
    read().unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Each as `name@node`.
fn named<'s>(symbols: impl IntoIterator<Item = &'s Symbol>) -> BTreeSet<String> {
    symbols.into_iter().map(|symbol| format!("{}@{}", symbol.name, symbol.node)).collect()
}

fn our_folder() -> &'static Path {
    library(env!("CARGO_TARGET_TMPDIR"))
}

fn ours() -> Vec<Symbol> {
    symbols(&our_folder().join("libibverbs.so.1"), true)
}

/// A library of a Debian package.
fn packaged(name: &str, package: &str) -> PathBuf {
    let folder = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let file = folder.join(name);
    assert!(file.exists(), "no {}: apt-get install {package}", file.display());
    file
}

/// `ibverbs.map` says why the hidden symbols of 1.0 are left out.
fn of_1_0_and_hidden(symbol: &Symbol) -> bool {
    symbol.hidden && symbol.node == "IBVERBS_1.0"
}

#[test]
fn every_symbol_of_the_packaged_library_is_there_in_its_version() {
    let ours = ours();
    let theirs = symbols(&packaged("libibverbs.so.1", "libibverbs1"), true);
    let (left_out, theirs): (Vec<_>, Vec<_>) = theirs.into_iter().partition(of_1_0_and_hidden);
    assert!(theirs.len() >= 145, "the packaged library has {} symbols", theirs.len());
    assert_eq!(left_out.len(), 33);
    let missing: Vec<_> = theirs.iter().filter(|symbol| !ours.contains(symbol)).collect();
    assert!(missing.is_empty(), "missing, or of another kind: {missing:#?}");
}

/// A program that is linked with ours runs with Debian's, unless it uses what came later.
#[test]
fn the_nodes_of_the_packaged_library_have_no_symbols_of_our_own() {
    let theirs = symbols(&packaged("libibverbs.so.1", "libibverbs1"), true);
    let nodes: BTreeSet<_> = theirs.iter().map(|symbol| &symbol.node).collect();
    let ours = ours();
    let shared = ours.iter().filter(|symbol| nodes.contains(&symbol.node));
    let strange: Vec<_> = shared.filter(|symbol| !theirs.contains(symbol)).collect();
    // Later versions added these to the node of the private symbols.
    let later = ["ibv_cmd_create_cq_ex2", "ibv_wr_opcode_str"];
    let strange: Vec<_> = strange.iter().filter(|s| !later.contains(&&*s.name)).collect();
    assert!(strange.is_empty(), "{strange:#?}");
}

/// By these a `librdmacm.so.1` finds the connection manager, says why it refuses, and tells a check of its ids.
#[test]
fn the_node_of_our_own_has_the_file_of_the_connection_manager() {
    let ours = ours();
    let of_our_own = named(ours.iter().filter(|symbol| symbol.node.starts_with(OURS)));
    let manager = ["close", "open", "refused", "why", "write"];
    let check = [
        "event_acked",
        "event_freed",
        "event_got",
        "given",
        "id_ended",
        "id_made",
        "own_work",
        "used",
        "waits",
        "watched",
    ];
    let expected = manager.into_iter().chain(check);
    let expected = expected.map(|it| format!("transom_rdma_cm_{it}@TRANSOM_1"));
    assert_eq!(of_our_own, expected.collect::<BTreeSet<_>>());
}

#[test]
fn every_node_to_version_65_of_rdma_core_is_defined() {
    let ours = ours();
    let nodes: BTreeSet<_> = ours.iter().map(|symbol| symbol.node.as_str()).collect();
    for minor in [0, 1].into_iter().chain(5..=18) {
        let node = format!("IBVERBS_1.{minor}");
        assert!(nodes.contains(&*node), "{node} is missing");
    }
    for version in [34, 57, 59, 64, 65] {
        let node = format!("IBVERBS_PRIVATE_{version}");
        assert!(nodes.contains(&*node), "{node} is missing");
    }
}

#[test]
fn private_symbols_stay_in_later_nodes() {
    let ours = ours();
    let of = |version: u32| {
        let node = format!("IBVERBS_PRIVATE_{version}");
        let of_node = ours.iter().filter(move |symbol| symbol.node == node);
        let names = of_node.map(|symbol| symbol.name.as_str());
        names.filter(|name| !name.starts_with("verbs_register_driver_")).collect::<BTreeSet<_>>()
    };
    assert!(of(34).len() >= 70 && of(34) == of(57));
    assert!(of(57).is_subset(&of(59)) && of(59).is_subset(&of(64)) && of(64).is_subset(&of(65)));
    assert!(of(59).contains("ibv_cmd_reg_mr_ex") && of(64).contains("ibv_dmabuf_heap_alloc"));
    assert!(of(65).contains("ibv_cmd_create_comp_cntr"));
}

#[test]
fn newer_verbs_are_in_the_nodes_of_rdma_core() {
    let ours = named(&ours());
    let newer = [
        ("ibv_alloc_dmah", 15),
        ("ibv_dealloc_dmah", 15),
        ("ibv_reg_mr_ex", 15),
        ("ibv_dm_export_dmabuf_fd", 16),
        ("ibv_query_port_speed", 16),
        ("ibv_alloc_buf", 17),
        ("ibv_free_buf", 17),
        ("ibv_reg_buf_mr", 17),
        ("_ibv_query_comp_cntr_caps", 18),
        ("ibv_create_comp_cntr", 18),
        ("ibv_destroy_comp_cntr", 18),
        ("ibv_export_buf_dmabuf_fd", 18),
        ("ibv_inc_comp_cntr", 18),
        ("ibv_inc_err_comp_cntr", 18),
        ("ibv_qp_attach_comp_cntr", 18),
        ("ibv_read_comp_cntr", 18),
        ("ibv_read_err_comp_cntr", 18),
        ("ibv_set_comp_cntr", 18),
        ("ibv_set_err_comp_cntr", 18),
    ];
    for (name, minor) in newer {
        assert!(ours.contains(&format!("{name}@IBVERBS_1.{minor}")), "{name} is missing");
    }
}

#[test]
fn clients_find_every_symbol_they_ask_for() {
    let perftest = ["atomic", "read", "send", "write"]
        .into_iter()
        .flat_map(|verb| [format!("ib_{verb}_bw"), format!("ib_{verb}_lat")])
        .chain(["bw", "lat", "burst_lat", "fs_rate"].map(|what| format!("raw_ethernet_{what}")));
    let tools = ["devices", "devinfo", "asyncwatch"].into_iter().chain([
        "rc_pingpong",
        "uc_pingpong",
        "ud_pingpong",
        "srq_pingpong",
        "xsrq_pingpong",
    ]);
    let mut clients: Vec<_> = perftest.map(|name| program(&name, "perftest")).collect();
    clients.extend(tools.map(|name| program(&format!("ibv_{name}"), "ibverbs-utils")));
    clients.push(packaged("libmlx5.so.1", "ibverbs-providers"));
    clients.push(packaged("libefa.so.1", "ibverbs-providers"));
    clients.push(packaged("librdmacm.so.1", "librdmacm1"));

    let ours = named(&ours());
    for client in clients {
        let wanted = named(&symbols(&client, false));
        assert!(wanted.len() > 3, "{} asks for {wanted:?}", client.display());
        let missing: Vec<_> = wanted.difference(&ours).collect();
        assert!(missing.is_empty(), "{} asks for {missing:?}", client.display());
    }
}

/// Debian's librdmacm, by which ours is measured.
fn packaged_rdmacm() -> Vec<Symbol> {
    rdmacm_symbols(&packaged("librdmacm.so.1", "librdmacm1"), true)
}

fn our_rdmacm() -> Vec<Symbol> {
    rdmacm_symbols(&our_folder().join("librdmacm.so.1"), true)
}

#[test]
fn every_symbol_of_the_packaged_librdmacm_is_there_in_its_version() {
    let (ours, theirs) = (our_rdmacm(), packaged_rdmacm());
    assert!(theirs.len() >= 68, "the packaged library has {} symbols", theirs.len());
    let missing: Vec<_> = theirs.iter().filter(|symbol| !ours.contains(symbol)).collect();
    assert!(missing.is_empty(), "missing, or of another kind: {missing:#?}");
    let nodes: BTreeSet<_> = theirs.iter().map(|symbol| &symbol.node).collect();
    let shared = ours.iter().filter(|symbol| nodes.contains(&symbol.node));
    let strange: Vec<_> = shared.filter(|symbol| !theirs.contains(symbol)).collect();
    assert!(strange.is_empty(), "{strange:#?}");
}

#[test]
fn newer_functions_of_librdmacm_are_in_the_nodes_of_rdma_core() {
    let ours = named(&our_rdmacm());
    let of_4 = ["rdma_query_addrinfo", "rdma_resolve_addrinfo", "rdma_write_cm_event"];
    let of_5 = ["repoll_create", "repoll_ctl", "repoll_wait"];
    for (minor, names) in [(4, of_4), (5, of_5)] {
        for name in names {
            assert!(ours.contains(&format!("{name}@RDMACM_1.{minor}")), "{name} is missing");
        }
    }
}

#[test]
fn clients_find_every_symbol_of_librdmacm_they_ask_for() {
    let tools = ["rping", "ucmatose", "udaddy", "mckey", "cmtime", "rdma_server", "rdma_client"];
    let tools = tools.iter().chain(&["rdma_xserver", "rdma_xclient", "udpong", "rstream"]);
    let mut clients: Vec<_> = tools.map(|name| program(name, "rdmacm-utils")).collect();
    clients.push(program("ib_write_bw", "perftest"));
    let ours = named(&our_rdmacm());
    for client in clients {
        let wanted = named(&rdmacm_symbols(&client, false));
        assert!(wanted.len() > 3, "{} asks for {wanted:?}", client.display());
        let missing: Vec<_> = wanted.difference(&ours).collect();
        assert!(missing.is_empty(), "{} asks for {missing:?}", client.display());
    }
}

/// The program says itself what it checks: answers of private symbols, of newer verbs, and copies of
/// the kernel's structs.
#[test]
fn a_program_with_symbols_of_other_versions_loads_and_gets_answers() {
    let scratch = Scratch::new("asks");
    let library = our_folder().join("libibverbs.so.1");
    let library = library.to_str().expect("a path of Cargo's");
    let binary = compile(&scratch, "asks.c", "asks", &[library]);

    let wanted = named(&symbols(&binary, false));
    for version in [34, 57, 59, 64, 65] {
        let private = format!("ibv_cmd_alloc_pd@IBVERBS_PRIVATE_{version}");
        assert!(wanted.contains(&private), "{wanted:?}");
    }
    for newer in ["ibv_reg_mr_ex@IBVERBS_1.15", "ibv_create_comp_cntr@IBVERBS_1.18"] {
        assert!(wanted.contains(newer), "{wanted:?}");
    }

    let mut run = Command::new(&binary);
    run.env("LD_BIND_NOW", "1").env("LD_LIBRARY_PATH", our_folder());
    assert_eq!(Running::start(&mut run).finish(LIMIT), "ok\n");
}
