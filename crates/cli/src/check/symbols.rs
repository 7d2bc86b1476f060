//! The names of places in programs and libraries: function, file and line of a return address.
//!
//! They come from the file's debug information, or from its separate debug file (`.build-id`, `.gnu_debuglink`), or
//! else from the symbol table.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use addr2line::{Loader, demangle_auto};
use object::{Object, ObjectSection, ReadCache};
use transom_check::record::Frame;

/// The directory where distributions install debug information.
const DEBUG: &str = "/usr/lib/debug";

/// A place in the code of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path of the program or library. Empty for code that is in no file.
    pub(crate) module: String,
    /// The return address, as the module's own tables count it.
    pub(crate) offset: u64,
    pub(crate) function: Option<String>,
    pub(crate) source: Option<Source>,
    /// Whether the compiler put the function into its caller.
    pub(crate) inlined: bool,
}

/// A line of source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    pub(crate) line: u32,
    /// Counts from 1.
    pub(crate) column: Option<u32>,
}

impl Place {
    /// The name of the module's file.
    pub(crate) fn module_name(&self) -> &str {
        self.module.rsplit('/').next().unwrap_or_default()
    }
}

/// Looks up places, and opens each module once.
#[derive(Default)]
pub(crate) struct Symbols(HashMap<String, Option<Module>>);

impl Symbols {
    /// The place of a return address, after the functions that the compiler inlined there. Innermost first.
    pub(crate) fn places(&mut self, frame: &Frame) -> Vec<Place> {
        let module = self.0.entry(frame.module.clone()).or_insert_with(|| {
            Some(frame.module.as_str()).filter(|it| it.starts_with('/')).and_then(Module::open)
        });
        // The call is before the address to which it returns.
        let call = frame.offset.saturating_sub(1);
        let mut places = module.as_ref().map_or_else(Vec::new, |module| module.places(call));
        if places.is_empty() {
            places.push(Place::default());
        }
        let last = places.len() - 1;
        for (index, place) in places.iter_mut().enumerate() {
            place.module = frame.module.clone();
            place.offset = frame.offset;
            place.inlined = index < last;
        }
        places
    }
}

/// A program or library.
struct Module {
    code: Loader,
    /// Its debug information, if a separate file has it.
    debug: Option<Loader>,
}

impl Module {
    fn open(path: &str) -> Option<Self> {
        let path = Path::new(path);
        let code = Loader::new(path).ok()?;
        let debug = separate_debug_file(path).and_then(|debug| {
            let supplement = supplement(&debug);
            Loader::new_with_sup(&debug, supplement).ok()
        });
        Some(Self { code, debug })
    }

    fn places(&self, address: u64) -> Vec<Place> {
        let loaders = || self.debug.iter().chain([&self.code]);
        let mut places = loaders()
            .map(|loader| by_debug_information(loader, address))
            .find(|places| !places.is_empty())
            .unwrap_or_default();
        // The last place is the function whose symbol this is.
        if places.last().is_none_or(|place| place.function.is_none()) {
            let symbol = loaders().find_map(|loader| loader.find_symbol(address));
            let function = symbol.map(|name| demangle_auto(Cow::Borrowed(name), None).into_owned());
            match places.last_mut() {
                Some(place) => place.function = function,
                None if function.is_some() => {
                    places.push(Place { function, ..Place::default() });
                }
                None => {}
            }
        }
        places
    }
}

fn by_debug_information(loader: &Loader, address: u64) -> Vec<Place> {
    let mut places = Vec::new();
    let Ok(mut frames) = loader.find_frames(address) else { return places };
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.as_ref().and_then(|name| name.demangle().ok());
        let function = function.map(Cow::into_owned);
        let source = frame.location.and_then(|location| {
            let (file, line) = (location.file?, location.line.filter(|line| *line > 0)?);
            let column = location.column.filter(|column| *column > 0);
            Some(Source { file: without_dots(Path::new(file)), line, column })
        });
        places.push(Place { function, source, ..Place::default() });
    }
    places
}

/// A path without `.` in it. `..` stays, because a link may change its meaning.
fn without_dots(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// The file with a module's debug information, if the module itself has none.
fn separate_debug_file(path: &Path) -> Option<PathBuf> {
    let file = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&file).ok()?;
    if object.section_by_name(".debug_info").is_some_and(|section| section.size() > 0) {
        return None;
    }
    let by_id = object.build_id().ok().flatten().and_then(by_build_id);
    let by_link = || {
        let (name, _) = object.gnu_debuglink().ok()??;
        let name = Path::new(OsStr::from_bytes(name));
        let folder = path.parent()?;
        let all_debug = Path::new(DEBUG).join(folder.strip_prefix("/").ok()?);
        let mut places = [folder.to_owned(), folder.join(".debug"), all_debug].into_iter();
        let is_another = |found: &PathBuf| found != path && found.is_file();
        places.find_map(|folder| Some(folder.join(name)).filter(is_another))
    };
    by_id.or_else(by_link)
}

fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("{DEBUG}/.build-id/{first:02x}/{rest}.debug"));
    path.is_file().then_some(path)
}

/// The file with the information that several debug files share (`dwz`).
fn supplement(debug: &Path) -> Option<PathBuf> {
    let file = ReadCache::new(File::open(debug).ok()?);
    let object = object::File::parse(&file).ok()?;
    let (name, id) = object.gnu_debugaltlink().ok()??;
    let beside = debug.parent()?.join(OsStr::from_bytes(name));
    Some(beside).filter(|path| path.is_file()).or_else(|| by_build_id(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scratch::Scratch;
    use object::ObjectSymbol;
    use std::fs;
    use std::process::Command;

    const PROGRAM: &str = "\
#include <stdio.h>
static inline __attribute__((always_inline)) void inner(void)
{
    printf(\"%p\\n\", __builtin_extract_return_addr(__builtin_return_address(0)));
    asm volatile(\".globl mark\\nmark:\");
}
__attribute__((noinline)) void finish(void)
{
    int before = 1;
    asm volatile(\"\" : \"+r\"(before)); inner();
}
int main(void) { finish(); return 0; }
";

    /// Compiles the program, and returns the frame of the mark in `inner`, inside `finish`.
    fn compiled(scratch: &Scratch, options: &[&str]) -> Frame {
        let (source, binary) = (scratch.0.join("program.c"), scratch.0.join("program"));
        fs::write(&source, PROGRAM).unwrap();
        let mut compile = Command::new("cc");
        compile.arg("-O1").args(options).arg("-o").arg(&binary).arg("./program.c");
        assert!(compile.current_dir(&scratch.0).status().expect("a C compiler").success());
        let bytes = fs::read(&binary).unwrap();
        let object = object::File::parse(&*bytes).unwrap();
        let mark = object.symbols().find(|it| it.name() == Ok("mark")).unwrap();
        let offset = mark.address();
        Frame { module: binary.to_str().unwrap().to_owned(), offset }
    }

    fn tool(name: &str, arguments: &[&str], scratch: &Scratch) {
        let mut command = Command::new(name);
        let done = command.args(arguments).current_dir(&scratch.0).status();
        assert!(done.expect("binutils").success(), "{name} {arguments:?}");
    }

    /// The functions with their lines, innermost first.
    fn named(frame: &Frame) -> Vec<(Option<String>, Option<u32>, bool)> {
        let places = Symbols::default().places(frame);
        let named = places.into_iter();
        named.map(|it| (it.function, it.source.map(|it| it.line), it.inlined)).collect()
    }

    /// Rules: CHK-94
    #[test]
    fn a_call_has_function_file_and_line_and_the_functions_put_there() {
        let scratch = Scratch::new("symbols-debug");
        let frame = compiled(&scratch, &["-g"]);
        let places = Symbols::default().places(&frame);
        let names: Vec<_> = places.iter().map(|it| it.function.as_deref().unwrap()).collect();
        assert_eq!(names, ["inner", "finish"]);
        let sources: Vec<_> = places.iter().map(|it| it.source.clone().unwrap()).collect();
        assert_eq!((sources[0].line, sources[1].line), (4, 10));
        let file = fs::canonicalize(scratch.0.join("program.c")).unwrap();
        assert!(sources.iter().all(|it| it.file == file), "{sources:?}");
        assert!(places[0].inlined && !places[1].inlined);
    }

    #[test]
    fn compressed_debug_information_is_read_too() {
        let scratch = Scratch::new("symbols-compressed");
        let frame = compiled(&scratch, &["-g", "-gz=zlib"]);
        assert_eq!(named(&frame)[1], (Some("finish".into()), Some(10), false));
    }

    /// Rules: CHK-94
    #[test]
    fn debug_information_may_be_in_a_file_of_its_own() {
        let scratch = Scratch::new("symbols-apart");
        let frame = compiled(&scratch, &["-g"]);
        tool("objcopy", &["--only-keep-debug", "program", "program.debug"], &scratch);
        let link = "--add-gnu-debuglink=program.debug";
        tool("objcopy", &["--strip-all", link, "program"], &scratch);
        assert_eq!(named(&frame)[1], (Some("finish".into()), Some(10), false));
        fs::remove_file(scratch.0.join("program.debug")).unwrap();
        assert_eq!(named(&frame), [(None, None, false)]);
    }

    /// Rules: CHK-94
    #[test]
    fn the_symbol_table_has_the_function_at_least() {
        let scratch = Scratch::new("symbols-table");
        let frame = compiled(&scratch, &[]);
        // The mark is a symbol too, but the call is before it.
        assert_eq!(named(&frame), [(Some("finish".into()), None, false)]);
    }

    /// Rules: CHK-94
    #[test]
    fn a_module_that_is_not_there_or_no_program_leaves_its_name_and_the_offset() {
        let scratch = Scratch::new("symbols-none");
        let text = scratch.file("text").to_str().unwrap().to_owned();
        for module in [text, "/no/such/file".into(), "[vdso]".into(), String::new()] {
            let frame = Frame { module: module.clone(), offset: 0x40 };
            let expected = Place { module, offset: 0x40, ..Place::default() };
            assert_eq!(Symbols::default().places(&frame), [expected]);
        }
        let frame = Frame { module: String::new(), offset: 0 };
        assert_eq!(Symbols::default().places(&frame).len(), 1);
    }
}
