//! Reads the imports of a crate from its sources.

use std::collections::{BTreeMap, BTreeSet};

use super::ROOT;
use crate::tokens::{Token, lex};

/// A path of names: of a module from the root, or as written.
type Names = Vec<String>;

/// An import of one module from a neighbour.
pub(super) struct Import {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) file: String,
    /// The path, as written.
    pub(super) path: String,
}

/// The facts read from all files of a crate.
#[derive(Default)]
pub(super) struct Sources {
    modules: BTreeSet<Names>,
    /// Modules that are compiled only for unit tests.
    tests: BTreeSet<Names>,
    /// The items of each module.
    items: BTreeSet<(Names, String)>,
    paths: Vec<Written>,
}

/// A path, as written somewhere.
struct Written {
    file: String,
    module: Names,
    path: Names,
    /// The module's own name for it.
    alias: Option<String>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `pub use`: another name for an item.
    Export,
    Use,
    /// In a type or an expression.
    Inline,
}

impl Sources {
    pub(super) fn new(root: &str, files: &[(String, String)]) -> Self {
        let mut sources = Self::default();
        for (name, text) in files {
            let module = if name == root { Names::new() } else { module_of(name) };
            sources.modules.insert(module.clone());
            Reader { sources: &mut sources, file: name }.items(&lex(text), &module);
        }
        sources
    }

    /// The names of the modules directly below the root, except those for unit tests.
    pub(super) fn top_level(&self) -> BTreeSet<String> {
        let named = self.modules.iter().filter(|module| !self.is_test(module));
        named.filter_map(|module| module.first().cloned()).collect()
    }

    fn is_test(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|length| self.tests.contains(&module[..length]))
    }

    /// All imports between neighbours, and between the root and a module directly below it.
    pub(super) fn imports(&self) -> Vec<Import> {
        let exports = self.exports();
        let mut imports = Vec::new();
        for written in &self.paths {
            let by_root = written.module.is_empty();
            if self.is_test(&written.module) || by_root && written.kind == Kind::Export {
                continue;
            }
            let Some(meant) = self.resolve(&written.module, &written.path) else { continue };
            let owner = self.owner(meant, &exports);
            let Some((from, to)) = neighbours(&written.module, &owner) else { continue };
            let (file, path) = (written.file.clone(), written.path.join("::"));
            imports.push(Import { from, to, file, path });
        }
        imports
    }

    /// The full path that a path means, from the root. `None` if it leads out of the crate or belongs to an
    /// item.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<Names> {
        let mut at = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" | "super" => {
                while let Some((first, after)) = rest.split_first() {
                    match first.as_str() {
                        "self" => {}
                        "super" => drop(at.pop()),
                        _ => break,
                    }
                    rest = after;
                }
            }
            child => {
                at.push(child.to_owned());
                rest = &path[1..];
                if !self.modules.contains(&at) {
                    return None;
                }
            }
        }
        at.extend(rest.iter().cloned());
        Some(at)
    }

    /// The names that modules give to items of others.
    fn exports(&self) -> Exports {
        let mut exports = Exports::default();
        for written in self.paths.iter().filter(|written| written.kind != Kind::Inline) {
            let Some(mut meant) = self.resolve(&written.module, &written.path) else { continue };
            let last = written.alias.clone().or_else(|| meant.last().cloned());
            match last.as_deref() {
                Some("*") => {
                    meant.pop();
                    exports.whole.entry(written.module.clone()).or_default().push(meant);
                }
                Some(name) => {
                    exports.named.insert((written.module.clone(), name.to_owned()), meant);
                }
                None => {}
            }
        }
        exports
    }

    /// The module that has the item.
    fn owner(&self, mut meant: Names, exports: &Exports) -> Names {
        // A name may stand for another name, but not without end.
        for _ in 0..8 {
            let is_module = |length: &usize| self.modules.contains(&meant[..*length]);
            let length = (1..=meant.len()).take_while(is_module).last().unwrap_or(0);
            let (module, rest) = meant.split_at(length);
            let Some((first, rest)) = rest.split_first() else { break };
            let has = |module: &&Names| self.items.contains(&((*module).clone(), first.clone()));
            let named = exports.named.get(&(module.to_vec(), first.clone()));
            let whole = exports.whole.get(module).and_then(|whole| whole.iter().find(has));
            meant = match (named, whole) {
                (Some(named), _) => named.iter().chain(rest).cloned().collect(),
                (None, Some(module)) => module.clone(),
                (None, None) => return module.to_vec(),
            };
        }
        meant
    }
}

/// The names that each module gives to items of others, and the modules whose items it takes with `*`.
#[derive(Default)]
struct Exports {
    named: BTreeMap<(Names, String), Names>,
    whole: BTreeMap<Names, Vec<Names>>,
}

/// The two neighbouring modules that contain these two. The root counts as a neighbour of the modules directly below
/// it. Any other module and everything in it are one.
fn neighbours(from: &[String], to: &[String]) -> Option<(String, String)> {
    let shared = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    let name = |module: &[String]| match module.len() {
        0 => Some(ROOT.to_owned()),
        length if length > shared => Some(module[..=shared].join("::")),
        _ => None,
    };
    Some((name(from)?, name(to)?)).filter(|(from, to)| from != to)
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module_of(file: &str) -> Names {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    stem.split('/').map(str::to_owned).collect()
}

/// The keywords before an item's name.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

/// Whether an attribute is `cfg(test)`, alone or with others that must also hold.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let [Token::Word("cfg"), Token::Group('(', condition)] = attribute else { return false };
    match condition.as_slice() {
        [Token::Word("all"), Token::Group('(', all)] => all.contains(&Token::Word("test")),
        [Token::Word("test")] => true,
        _ => false,
    }
}

/// The tokens after an item or a field whose first token is already taken.
fn after_item<'t, 'a>(first: &Token<'a>, rest: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let ends = |token: &Token<'_>| matches!(token, Token::Group('{', _) | Token::Other(';'));
    if ends(first) {
        return rest;
    }
    // A field ends at a comma. A function may have commas among its parameters' types.
    let field = matches!(rest.first(), Some(Token::Other(':')));
    let end = rest.iter().position(|token| ends(token) || field && *token == Token::Other(','));
    end.map_or(&[], |end| &rest[end + 1..])
}

struct Reader<'s> {
    sources: &'s mut Sources,
    file: &'s str,
}

impl Reader<'_> {
    /// Reads the items of a module, or of a group of its tokens.
    fn items(&mut self, tokens: &[Token<'_>], module: &[String]) {
        let (mut test, mut public) = (false, false);
        let mut rest = tokens;
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match (token, rest) {
                (Token::Comment(_), _) => continue,
                (Token::Other('#'), [Token::Group('[', attribute), after @ ..]) => {
                    test |= is_for_tests(attribute);
                    rest = after;
                    continue;
                }
                (Token::Word("pub"), _) => {
                    public = true;
                    if let [Token::Group('(', _), after @ ..] = rest {
                        rest = after;
                    }
                    continue;
                }
                (Token::Word("mod"), [Token::Word(name), after @ ..]) => {
                    let mut child = module.to_vec();
                    child.push((*name).to_owned());
                    if test {
                        self.sources.tests.insert(child.clone());
                    }
                    self.sources.modules.insert(child.clone());
                    rest = after;
                    if let [Token::Group('{', body), after @ ..] = after {
                        self.items(body, &child);
                        rest = after;
                    }
                }
                _ if test => rest = after_item(token, rest),
                (Token::Word("use"), _) => {
                    let kind = if public { Kind::Export } else { Kind::Use };
                    rest = self.tree(rest, module, &[], kind);
                }
                (Token::Word(item), [Token::Word(name), ..]) if ITEMS.contains(item) => {
                    self.sources.items.insert((module.to_vec(), (*name).to_owned()));
                }
                (Token::Word(first), [Token::Other(':'), Token::Other(':'), ..]) => {
                    let mut path = vec![(*first).to_owned()];
                    while let [
                        Token::Other(':'),
                        Token::Other(':'),
                        Token::Word(name),
                        after @ ..,
                    ] = rest
                    {
                        path.push((*name).to_owned());
                        rest = after;
                    }
                    // What follows belongs to no path of ours: `::<T>`.
                    while let [Token::Other(':'), after @ ..] = rest {
                        rest = after;
                    }
                    self.note(module, path, None, Kind::Inline);
                }
                (Token::Group(_, inner), _) => self.items(inner, module),
                _ => {}
            }
            (test, public) = (false, false);
        }
    }

    /// Reads one branch of a `use`. Returns the tokens behind it.
    fn tree<'t, 'a>(
        &mut self,
        tokens: &'t [Token<'a>],
        module: &[String],
        prefix: &[String],
        kind: Kind,
    ) -> &'t [Token<'a>] {
        let mut path = prefix.to_vec();
        let (mut named, mut rest) = (false, tokens);
        loop {
            match rest {
                [Token::Other(':') | Token::Comment(_), after @ ..] => rest = after,
                [Token::Group('{', inner), after @ ..] => {
                    let mut branches = inner.as_slice();
                    while !branches.is_empty() {
                        branches = self.tree(branches, module, &path, kind);
                        if let [Token::Other(','), after @ ..] = branches {
                            branches = after;
                        }
                    }
                    return after;
                }
                [Token::Word("as"), Token::Word(alias), after @ ..] => {
                    self.note(module, path, Some((*alias).to_owned()), kind);
                    return after;
                }
                [Token::Word(name), after @ ..] => {
                    // In braces, `self` stands for the path before them.
                    if *name != "self" || path.is_empty() {
                        path.push((*name).to_owned());
                    }
                    (named, rest) = (true, after);
                }
                [Token::Other('*'), after @ ..] => {
                    path.push("*".to_owned());
                    (named, rest) = (true, after);
                }
                _ => {
                    if named {
                        self.note(module, path, None, kind);
                    }
                    return match rest {
                        [] | [Token::Other(',' | ';'), ..] => rest,
                        [_, after @ ..] => after,
                    };
                }
            }
        }
    }

    fn note(&mut self, module: &[String], path: Names, alias: Option<String>, kind: Kind) {
        let (file, module) = (self.file.to_owned(), module.to_vec());
        self.sources.paths.push(Written { file, module, path, alias, kind });
    }
}
