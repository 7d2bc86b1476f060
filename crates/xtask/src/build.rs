//! Builds the command and its shared objects so that they run on other systems than this one, and are the same wherever
//! they are built.

use crate::commands::{Result, cargo, line, output, run};
use crate::packages::Packages;
use crate::target::Target;
use crate::{glibc, packages, sbom, sums};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shipped files: the command first, then the shared objects, with cargo's names and the names that programs use.
const COMMAND: &str = "transom-cli";
const LIBRARIES: [(&str, &str, &str); 6] = [
    ("transom-libibverbs", "libibverbs.so", "libibverbs.so.1"),
    ("transom-librdmacm", "librdmacm.so", "librdmacm.so.1"),
    ("transom-malloc", "libtransom_malloc.so", "libtransom_malloc.so"),
    ("transom-freed", "libtransom_freed.so", "libtransom_freed.so"),
    ("transom-paths", "libtransom_paths.so", "libtransom_paths.so"),
    ("transom-rspreload", "librspreload.so", "librspreload.so"),
];

/// The directories of the workspace.
#[derive(Deserialize)]
struct Places {
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

/// The packages that everything is compiled from.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    /// `None` for our own packages.
    source: Option<String>,
    manifest_path: PathBuf,
}

/// The tools and settings to compile for one kind of machine.
struct Builder {
    target: Target,
    places: Places,
    /// The time of all files, in seconds since 1970.
    epoch: String,
    environment: Vec<(String, String)>,
}

/// Makes everything that is shipped.
pub(crate) fn dist(target: Target) -> Result {
    let places = Places::of(Path::new("."))?;
    packages::check_tools()?;
    let dist = places.target_directory.join("packages");
    let builder = Builder::new(target, places)?;
    // The files that packages install, and those that the one-file command carries.
    let parts = dist.join("parts").join(target.architecture());
    let _ = fs::remove_dir_all(&parts);
    fs::create_dir_all(&parts)?;
    let crates: Vec<_> =
        [COMMAND].into_iter().chain(LIBRARIES.iter().map(|library| library.0)).collect();

    let built = builder.cargo_build(&crates, None)?;
    fs::copy(built.join("transom"), parts.join("transom"))?;
    for (_, name, asked_for) in LIBRARIES {
        fs::copy(built.join(name), parts.join(asked_for))?;
    }
    for entry in fs::read_dir(&parts)? {
        let path = entry?.path();
        let [major, minor] = glibc::check(&path)?;
        let name = path.file_name().unwrap_or_default().display();
        println!("{name}: {} bytes, glibc {major}.{minor}", fs::metadata(&path)?.len());
    }

    let alone = dist.join(format!("transom-{}", target.architecture()));
    let built = builder.cargo_build(&[COMMAND], Some(&parts))?;
    fs::copy(built.join("transom"), &alone)?;
    let [major, minor] = glibc::check(&alone)?;
    println!("{}: {} bytes, glibc {major}.{minor}", alone.display(), fs::metadata(&alone)?.len());

    let list = dist.join(format!("transom-{}.cdx.json", target.architecture()));
    fs::write(list, sbom::of(&crates, target)?)?;
    let source = &builder.places.workspace_root;
    Packages { target, source, parts: &parts, dist: &dist, epoch: &builder.epoch }.make()?;
    sums::write(&dist)
}

/// Makes everything twice, from two clones of the last commit, in different surroundings, and compares.
pub(crate) fn reproduce(target: Target) -> Result {
    let places = Places::of(Path::new("."))?;
    let scratch = places.target_directory.join("reproduce");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    // The same crates have two paths.
    let [cargo_home, other] = [cargo_home()?, scratch.join("cargo")];
    symlink(&cargo_home, &other)?;
    let surroundings =
        [("one", "022", "UTC0", cargo_home), ("of/another/length", "077", "IST-5:30", other)];
    let mut sums = Vec::new();
    // Somebody may commit meanwhile.
    let head = line(Command::new("git").args(["rev-parse", "HEAD"]))?;
    for (name, umask, time_zone, cargo_home) in surroundings {
        let clone = scratch.join(name);
        fs::create_dir_all(&clone)?;
        let there = |program: &OsStr| {
            let mut command = Command::new("sh");
            command.args(["-euc", "umask \"$0\"; exec \"$@\"", umask]).arg(program);
            command.env("TZ", time_zone).env("CARGO_HOME", &cargo_home).current_dir(&clone);
            command
        };
        run(there("git".as_ref())
            .args(["clone", "--quiet", "--no-hardlinks"])
            .args([&places.workspace_root, Path::new(".")]))?;
        run(there("git".as_ref()).args(["checkout", "--quiet", &head]))?;
        run(there(&cargo())
            .args(["xtask", "dist", "--target", &target.to_string()])
            .env("CARGO_TARGET_DIR", clone.join("target")))?;
        sums.push(fs::read_to_string(clone.join("target/packages/SHA256SUMS"))?);
    }
    if sums[0] != sums[1] {
        return Err(format!("two builds differ:\n{}\n{}", sums[0], sums[1]).into());
    }
    println!("{}Two builds in two directories came out the same.", sums[0]);
    Ok(fs::remove_dir_all(&scratch)?)
}

impl Places {
    fn of(directory: &Path) -> Result<Self> {
        let mut command = Command::new(cargo());
        command.args(["metadata", "--format-version=1", "--no-deps", "--locked"]);
        Ok(serde_json::from_slice(&output(command.current_dir(directory))?)?)
    }

    /// Python with zig, for linking.
    fn zig(&self) -> Result<PathBuf> {
        let venv = self.target_directory.join("zig");
        let python = venv.join("bin/python");
        let works = Command::new(&python).args(["-m", "ziglang", "version"]).output();
        if !works.is_ok_and(|works| works.status.success()) {
            run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            let list = self.workspace_root.join("crates/xtask/zig.txt");
            run(Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--require-hashes", "-r"])
                .arg(list))?;
        }
        Ok(python)
    }
}

impl Builder {
    fn new(target: Target, places: Places) -> Result<Self> {
        let zig = places.zig()?;
        let [major, minor] = glibc::OLDEST;
        let link_for = format!("{}-linux-gnu.{major}.{minor}", target.architecture());
        let linker = places.workspace_root.join("crates/xtask/linker");
        let caches = places.target_directory.join("zig/cache");
        let variable = target.to_string().replace('-', "_").to_uppercase();
        let epoch = places.epoch()?;
        let environment = [
            (format!("CARGO_TARGET_{variable}_LINKER"), path(&linker)?),
            ("CARGO_ENCODED_RUSTFLAGS".to_owned(), places.compiler_flags(target)?),
            ("SOURCE_DATE_EPOCH".to_owned(), epoch.clone()),
            ("TRANSOM_ZIG".to_owned(), path(&zig)?),
            ("TRANSOM_LIBGCC".to_owned(), target.libgcc()?),
            ("TRANSOM_LINK_FOR".to_owned(), link_for),
            ("ZIG_GLOBAL_CACHE_DIR".to_owned(), path(&caches)?),
            ("ZIG_LOCAL_CACHE_DIR".to_owned(), path(&caches)?),
        ];
        Ok(Self { target, places, epoch, environment: environment.into() })
    }

    /// Builds crates, and the command with the objects that it carries. Returns the folder of the output.
    fn cargo_build(&self, crates: &[&str], carry: Option<&Path>) -> Result<PathBuf> {
        let mut command = Command::new(cargo());
        command.current_dir(&self.places.workspace_root);
        command.args(["build", "--locked", "--profile=dist", "--target", &self.target.to_string()]);
        command.args(crates.iter().flat_map(|name| ["--package", name]));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env_remove("TRANSOM_CARRY");
        command.envs(carry.map(|directory| ("TRANSOM_CARRY", directory)));
        run(&mut command)?;
        Ok(self.places.target_directory.join(self.target.to_string()).join("dist"))
    }
}

impl Places {
    /// Flags that keep the names of this machine's directories out of the output.
    fn compiler_flags(&self, target: Target) -> Result<String> {
        let mut flags = vec!["-Clinker-flavor=gcc".to_owned()];
        // The compiler takes the last prefix that matches.
        let mut name = |directory: &Path, to| {
            flags.push(format!("--remap-path-prefix={}={to}", path(directory)?));
            Result::Ok(())
        };
        for directory in sources(target)? {
            name(&directory, "/crates")?;
        }
        name(&self.workspace_root, "/transom")?;
        name(&self.target_directory, "/target")?;
        // On other machines the compiler does not link with lld by default.
        if target == Target::X86_64 {
            flags.push("-Clinker-features=-lld".to_owned());
        }
        Ok(flags.join("\u{1f}"))
    }

    /// The time in packages: that of the last commit, unless `SOURCE_DATE_EPOCH` gives another.
    fn epoch(&self) -> Result<String> {
        std::env::var("SOURCE_DATE_EPOCH").or_else(|_| {
            let mut command = Command::new("git");
            line(command.args(["log", "-1", "--format=%ct"]).current_dir(&self.workspace_root))
        })
    }
}

/// The directories of other people's crates. cargo names them by their source.
fn sources(target: Target) -> Result<BTreeSet<PathBuf>> {
    let mut command = Command::new(cargo());
    command.args(["metadata", "--format-version=1", "--locked", "--filter-platform"]);
    let metadata: Metadata = serde_json::from_slice(&output(command.arg(target.to_string()))?)?;
    let others = metadata.packages.iter().filter(|package| package.source.is_some());
    Ok(others
        .filter_map(|package| package.manifest_path.ancestors().nth(2))
        .map(Path::to_owned)
        .collect())
}

/// The directory where cargo keeps fetched crates.
fn cargo_home() -> Result<PathBuf> {
    let home = std::env::var("CARGO_HOME");
    Ok(home.or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))?.into())
}

fn path(path: &Path) -> Result<String> {
    Ok(path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}
