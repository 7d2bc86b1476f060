#!/bin/sh
# Installs the command `transom` for a job of a CI, into ~/.local/bin, and says what works there.
# docs/ci.md shows how jobs use it. It can be copied into another project: it needs nothing beside it.
#
#   setup.sh FILE SHA256    the one file, by its path or URL, if that is its digest
#   setup.sh                built from the source that this script lies in: Rust, a C compiler, minutes
set -eu

file=${1-} sha256=${2-}
bin=$HOME/.local/bin

fail() {
    echo "setup.sh: $*" >&2
    exit 1
}

build() {
    cd "$(dirname "$0")/.."
    [ -e crates/cli/Cargo.toml ] || fail "no FILE is named, and $PWD has no source to build it from"
    cargo build --locked --release
    # It finds its libraries beside the file that the link leads to.
    mkdir -p "$bin"
    ln -sf "$(realpath "${CARGO_TARGET_DIR:-target}")/release/transom" "$bin/transom"
}

put() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    case $file in
        *://*)
            command -v curl >/dev/null || fail "it takes curl to fetch $file: install curl, or name a path"
            curl --fail --location --silent --show-error --retry 3 --output "$scratch/transom" "$file" ||
                fail "$file cannot be fetched"
            ;;
        *) cp "$file" "$scratch/transom" ;;
    esac
    found=$(sha256sum <"$scratch/transom" | cut -d ' ' -f 1)
    [ "$found" = "$sha256" ] || fail "$file has the SHA-256 $found, not $sha256; it is not installed"
    mkdir -p "$bin"
    install -m 755 "$scratch/transom" "$bin/transom"
}

if [ $# -gt 2 ]; then
    fail 'usage: setup.sh [FILE SHA256]'
elif [ -z "$file$sha256" ]; then
    build
elif [ -z "$file" ] || [ -z "$sha256" ]; then
    fail 'FILE and SHA256 belong together: name both, or none to build it from source'
else
    put
fi

# Where later steps get their PATH from a file, it is told.
[ -z "${GITHUB_PATH-}" ] || echo "$bin" >>"$GITHUB_PATH"
"$bin/transom" --version
"$bin/transom" doctor
