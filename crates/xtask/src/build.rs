//! Builds the command and its shared objects so that they run on other systems than this one, and come
//! out the same wherever they are built.

use crate::commands::{Result, line, output, run};
use crate::packages::Packages;
use crate::target::Target;
use crate::{glibc, packages, sbom, sums};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is shipped: the command first, then the shared objects, as cargo calls them and as programs do.
const COMMAND: &str = "transom-cli";
const LIBRARIES: [(&str, &str, &str); 4] = [
    ("transom-libibverbs", "libibverbs.so", "libibverbs.so.1"),
    ("transom-librdmacm", "librdmacm.so", "librdmacm.so.1"),
    ("transom-paths", "libtransom_paths.so", "libtransom_paths.so"),
    ("transom-rspreload", "librspreload.so", "librspreload.so"),
];

/// The directories of the workspace.
#[derive(Deserialize)]
struct Places {
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

/// What is needed to compile for one kind of machine.
struct Builder {
    target: Target,
    places: Places,
    /// The time that all files carry, in seconds since 1970.
    epoch: String,
    environment: Vec<(String, String)>,
}

/// Makes all that is given to others.
pub(crate) fn dist(target: Target) -> Result {
    let places = Places::of(Path::new("."))?;
    packages::check_tools()?;
    let dist = places.target_directory.join("packages");
    let builder = Builder::new(target, places)?;
    // What packages install, and what the command of one file carries.
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

/// Makes the command twice, from two clones of what is committed in two places, and compares.
pub(crate) fn reproduce(target: Target) -> Result {
    let places = Places::of(Path::new("."))?;
    let scratch = places.target_directory.join("reproduce");
    let _ = fs::remove_dir_all(&scratch);
    let mut sums = Vec::new();
    // Somebody may commit meanwhile.
    let head = line(Command::new("git").args(["rev-parse", "HEAD"]))?;
    for name in ["one", "of/another/length"] {
        let clone = scratch.join(name);
        fs::create_dir_all(&clone)?;
        run(Command::new("git")
            .args(["clone", "--quiet", "--no-hardlinks"])
            .args([&places.workspace_root, &clone]))?;
        run(Command::new("git").arg("-C").arg(&clone).args(["checkout", "--quiet", &head]))?;
        run(Command::new(env!("CARGO"))
            .args(["xtask", "dist", "--target", &target.to_string()])
            .current_dir(&clone)
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
        let mut command = Command::new(env!("CARGO"));
        command.args(["metadata", "--format-version=1", "--no-deps", "--locked"]);
        Ok(serde_json::from_slice(&output(command.current_dir(directory))?)?)
    }

    /// Python, with zig, for linking.
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

    /// Builds crates, the command with what it is to carry. Answers where what is built lies.
    fn cargo_build(&self, crates: &[&str], carry: Option<&Path>) -> Result<PathBuf> {
        let mut command = Command::new(env!("CARGO"));
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
    /// Flags with which no name of a directory of this machine gets into what is built.
    fn compiler_flags(&self, target: Target) -> Result<String> {
        let home = std::env::var("CARGO_HOME");
        let home = home.or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))?;
        let mut flags = vec![
            "-Clinker-flavor=gcc".to_owned(),
            // The last that fits is taken.
            format!("--remap-path-prefix={home}=/cargo"),
            format!("--remap-path-prefix={}=/transom", path(&self.workspace_root)?),
            format!("--remap-path-prefix={}=/target", path(&self.target_directory)?),
        ];
        // Elsewhere the compiler does not link by itself.
        if target == Target::X86_64 {
            flags.push("-Clinker-features=-lld".to_owned());
        }
        Ok(flags.join("\u{1f}"))
    }

    /// The time that packages carry: that of the last commit, unless somebody says otherwise.
    fn epoch(&self) -> Result<String> {
        std::env::var("SOURCE_DATE_EPOCH").or_else(|_| {
            let mut command = Command::new("git");
            line(command.args(["log", "-1", "--format=%ct"]).current_dir(&self.workspace_root))
        })
    }
}

fn path(path: &Path) -> Result<String> {
    Ok(path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}
