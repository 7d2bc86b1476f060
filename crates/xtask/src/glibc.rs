//! Checks the system libraries that a file needs: no newer glibc than promised, and no other libraries.

use crate::commands::Result;
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64, SHT_DYNSYM};
use object::read::elf::{Dyn, FileHeader, Sym};
use std::fs;
use std::path::Path;

/// The oldest glibc on which everything must load.
pub(crate) const OLDEST: [u32; 2] = [2, 28];

/// The libraries that a file may need: parts of glibc, and GCC's unwinder, which all systems with glibc have.
const LIBRARIES: [&str; 6] =
    ["libc.so.6", "libpthread.so.0", "libdl.so.2", "libm.so.6", "ld-linux", "libgcc_s.so.1"];

/// The newest glibc version that a file needs. An error if that is too new, or if it needs other libraries.
pub(crate) fn check(file: &Path) -> Result<[u32; 2]> {
    let bytes = fs::read(file)?;
    let needs = Needs::of(&bytes).map_err(|error| format!("{}: {error}", file.display()))?;
    let known = |library: &String| LIBRARIES.iter().any(|known| library.starts_with(known));
    let others: Vec<_> = needs.libraries.into_iter().filter(|library| !known(library)).collect();
    let too_new = needs.symbols.iter().filter(|(_, version)| *version > OLDEST);
    let too_new: Vec<_> =
        too_new.map(|(name, [major, minor])| format!("{name}@{major}.{minor}")).collect();
    if others.is_empty() && too_new.is_empty() {
        Ok(needs.symbols.into_iter().map(|(_, version)| version).max().unwrap_or_default())
    } else {
        let problem = [others, too_new].concat().join(", ");
        Err(format!("{} asks for what older systems have not: {problem}", file.display()).into())
    }
}

/// The libraries and symbols that a file needs from the loader.
struct Needs {
    libraries: Vec<String>,
    /// glibc symbols, each with the version that introduced it.
    symbols: Vec<(String, [u32; 2])>,
}

impl Needs {
    fn of(data: &[u8]) -> Result<Self> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let mut libraries = Vec::new();
        if let Some((entries, strings)) = sections.dynamic(endian, data)? {
            let strings = sections.strings(endian, data, strings)?;
            for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
                let name = entry.string(endian, strings)?;
                libraries.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        let table = sections.symbols(endian, data, SHT_DYNSYM)?;
        let versions = sections.versions(endian, data)?.ok_or("no versions of symbols")?;
        let mut symbols = Vec::new();
        for (index, symbol) in table.enumerate().filter(|(_, symbol)| symbol.is_undefined(endian)) {
            let version = versions.version_index(endian, index).index();
            let Some(version) = versions.version(version)? else { continue };
            let Some(version) = glibc(version.name()) else { continue };
            let name = table.symbol_name(endian, symbol)?;
            symbols.push((String::from_utf8_lossy(name).into_owned(), version));
        }
        Ok(Self { libraries, symbols })
    }
}

/// The glibc version in a symbol version, if it is one of glibc.
fn glibc(name: &[u8]) -> Option<[u32; 2]> {
    let version = str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
    // glibc's own internal symbols (GLIBC_PRIVATE) belong to no version.
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(u32::MAX));
    Some([numbers.next()?, numbers.next().unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_glibc_are_compared_by_their_numbers() {
        assert_eq!(glibc(b"GLIBC_2.2.5"), Some([2, 2]));
        assert!(glibc(b"GLIBC_2.3.4").unwrap() < OLDEST);
        assert!(glibc(b"GLIBC_2.34").unwrap() > OLDEST);
        assert!(glibc(b"GLIBC_PRIVATE").unwrap() > OLDEST);
        assert_eq!(glibc(b"GCC_3.0"), None);
    }

    #[test]
    fn what_is_built_for_this_machine_alone_is_found_out() {
        let this = std::env::current_exe().unwrap();
        let needs = Needs::of(&fs::read(&this).unwrap()).unwrap();
        assert!(needs.libraries.iter().any(|library| library == "libc.so.6"));
        let newest = needs.symbols.iter().map(|(_, version)| *version).max().unwrap();
        assert_eq!(check(&this).is_ok(), newest <= OLDEST);
    }
}
