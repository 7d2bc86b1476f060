//! Packages for Debian and RPM, and an archive for all others: one tree of files in three formats, each made by the
//! tool of the format's own makers.

use crate::commands::{Result, cargo, output, run};
use crate::target::Target;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The packages' description of themselves.
const SUMMARY: &str = "RDMA device made of software, for programs of libibverbs and librdmacm";
const DESCRIPTION: &str = "\
Programs written for RDMA run on it unchanged: no RDMA hardware, no kernel module, no root, no daemon.
`transom run` starts them so that they find it. It lives beside the system's libibverbs and leaves that
as it is.";

/// The place where each shell looks for completions, below /usr/share. Debian's zsh looks elsewhere than others.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/transom"),
    ("zsh", ZSH),
    ("fish", "fish/vendor_completions.d/transom.fish"),
];
const ZSH: &str = "zsh/site-functions/_transom";
const ZSH_OF_DEBIAN: &str = "zsh/vendor-completions/_transom";

/// Checks for the tools that make packages, before anything is compiled.
pub(crate) fn check_tools() -> Result {
    for (tool, package) in [("dpkg-deb", "dpkg"), ("rpmbuild", "rpm"), ("tar", "tar")] {
        output(Command::new(tool).arg("--version"))
            .map_err(|error| format!("{error}; it is in Debian's package {package}"))?;
    }
    Ok(())
}

/// The input and output of packages.
pub(crate) struct Packages<'a> {
    pub(crate) target: Target,
    /// The root of the workspace.
    pub(crate) source: &'a Path,
    /// The command and the shared objects.
    pub(crate) parts: &'a Path,
    pub(crate) dist: &'a Path,
    /// The time of all files, in seconds since 1970.
    pub(crate) epoch: &'a str,
}

impl Packages<'_> {
    /// Makes all packages for one kind of machine.
    pub(crate) fn make(&self) -> Result {
        let tree = self.tree("tree");
        let _ = fs::remove_dir_all(&tree);
        lay_out(self.source, self.parts, &tree.join("usr"))?;
        document(self.source, &tree.join("usr/share"))?;
        set_modes(&tree)?;
        self.debian(&tree)?;
        self.rpm(&tree)?;
        self.archive(&tree)
    }

    /// A directory to build a package in.
    fn tree(&self, kind: &str) -> PathBuf {
        self.dist.join("trees").join(format!("{}.{kind}", self.target.architecture()))
    }

    /// Runs a tool that makes a package. It takes the time from its environment.
    fn run(&self, command: &mut Command) -> Result {
        run(command.env("SOURCE_DATE_EPOCH", self.epoch))
    }

    fn debian(&self, tree: &Path) -> Result {
        let description = DESCRIPTION.replace('\n', "\n ");
        let control = format!(
            "Package: transom\n\
         Version: {VERSION}\n\
         Architecture: {}\n\
         Maintainer: Transom's makers <transom@invalid>\n\
         Depends: libc6 (>= 2.28), libgcc-s1 | libgcc1\n\
         Suggests: ibverbs-utils, rdmacm-utils, perftest\n\
         Section: net\n\
         Priority: optional\n\
         Description: {SUMMARY}\n {description}\n",
            self.target.of_debian()
        );
        let copyright = format!(
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n\
         Files: *\n\
         Copyright: Transom's makers\n\
         License: MIT or Apache-2.0\n{}",
            fs::read_to_string(self.source.join("LICENSE-MIT"))?
                .lines()
                .map(|line| if line.is_empty() { " .\n".into() } else { format!(" {line}\n") })
                .collect::<String>()
        );
        let debian = self.tree("deb");
        let _ = fs::remove_dir_all(&debian);
        run(Command::new("cp").arg("-a").args([tree, &debian]))?;
        let share = debian.join("usr/share");
        put(&share.join(ZSH), &share.join(ZSH_OF_DEBIAN), 0o644)?;
        fs::remove_dir_all(share.join("zsh/site-functions"))?;
        fs::create_dir(debian.join("DEBIAN"))?;
        fs::write(debian.join("DEBIAN/control"), control)?;
        fs::write(debian.join("usr/share/doc/transom/copyright"), copyright)?;
        set_modes(&debian)?;
        let package = self.dist.join(format!("transom_{VERSION}_{}.deb", self.target.of_debian()));
        self.run(
            Command::new("dpkg-deb")
                .args(["--root-owner-group", "-Zxz", "--build"])
                .args([&debian, &package]),
        )
    }

    fn rpm(&self, tree: &Path) -> Result {
        let top = self.tree("rpm");
        self.run(
            Command::new("rpmbuild")
                .args(["--quiet", "-bb", "--target", self.target.architecture()])
                .args(["--define", &format!("_topdir {}", top.display())])
                .args(["--define", &format!("tree {}", tree.display())])
                .args(["--define", &format!("dist_version {VERSION}")])
                .args(["--define", &format!("dist_summary {SUMMARY}")])
                .args(["--define", &format!("_rpmdir {}", self.dist.display())])
                .args(["--define", "_rpmfilename transom-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"])
                .arg(self.source.join("crates/xtask/transom.spec")),
        )
    }

    /// The archive, which users unpack below any prefix, such as ~/.local.
    fn archive(&self, tree: &Path) -> Result {
        let name = format!("transom-{VERSION}-{}", self.target.architecture());
        self.run(
            Command::new("tar")
                .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"])
                .arg(format!("--mtime=@{}", self.epoch))
                .arg(format!("--transform=s,^usr,{name},"))
                .args(["--use-compress-program=gzip --no-name -9", "-cf"])
                .arg(self.dist.join(format!("{name}.tar.gz")))
                .arg("-C")
                .args([tree, Path::new("usr")]),
        )
    }
}

/// Lays out the files as they are installed below a prefix.
fn lay_out(source: &Path, parts: &Path, prefix: &Path) -> Result {
    put(&parts.join("transom"), &prefix.join("bin/transom"), 0o755)?;
    for library in [
        "libibverbs.so.1",
        "librdmacm.so.1",
        "libtransom_malloc.so",
        "libtransom_freed.so",
        "libtransom_paths.so",
        "librspreload.so",
    ] {
        put(&parts.join(library), &prefix.join("lib/transom").join(library), 0o644)?;
    }
    put(&source.join("crates/freed/transom.h"), &prefix.join("include/transom.h"), 0o644)?;
    // Programs ask for these names too.
    for library in ["libibverbs.so", "librdmacm.so"] {
        symlink(format!("{library}.1"), prefix.join("lib/transom").join(library))?;
    }
    for document in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        put(&source.join(document), &prefix.join("share/doc/transom").join(document), 0o644)?;
    }
    Ok(())
}

/// Writes man pages and completions, with a command built for this machine.
fn document(source: &Path, share: &Path) -> Result {
    let command = || {
        let mut command = Command::new(cargo());
        command.args(["run", "--quiet", "--locked", "--package=transom-cli", "--"]);
        command.current_dir(source);
        command
    };
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    run(command().arg("manual").arg(pages))?;
    put(&source.join("crates/cli/transom.7"), &share.join("man/man7/transom.7"), 0o644)?;
    for (shell, path) in COMPLETIONS {
        let path = share.join(path);
        fs::create_dir_all(path.parent().unwrap_or(share))?;
        fs::write(path, output(command().args(["completions", shell]))?)?;
    }
    Ok(())
}

/// Makes files readable for everybody, even if the user's umask forbids that.
fn set_modes(tree: &Path) -> Result {
    run(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(tree))
}

fn put(from: &Path, to: &Path, mode: u32) -> Result {
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/")))?;
    fs::copy(from, to).map_err(|error| format!("{}: {error}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}
