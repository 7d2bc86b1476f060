//! The parts of the shipped files as a CycloneDX list: our crates, and other people's crates whose code they contain.
//! `cargo-cyclonedx` writes a list for each crate of a workspace, with tests and build scripts. The shipped files are
//! five crates together.

use crate::commands::{Result, cargo, output};
use crate::target::Target;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// cargo's description of the workspace.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    targets: Vec<PackageTarget>,
}

#[derive(Deserialize)]
struct PackageTarget {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None` for a crate that is linked in.
    kind: Option<String>,
}

/// The list for these crates on a machine.
pub(crate) fn of(crates: &[&str], target: Target) -> Result<String> {
    let mut command = Command::new(cargo());
    command.args(["metadata", "--format-version=1", "--locked", "--filter-platform"]);
    let metadata: Metadata = serde_json::from_slice(&output(command.arg(target.to_string()))?)?;
    let packages: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&*package.id, package)).collect();
    let linked = |id: &str| packages[id].targets.iter().all(|target| target.kind != ["proc-macro"]);
    let uses: BTreeMap<_, Vec<_>> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| {
            let used = node.deps.iter().filter(|used| used.is_linked() && linked(&used.pkg));
            (&*node.id, used.map(|used| &*used.pkg).collect())
        })
        .collect();

    let mut parts = BTreeSet::new();
    let shipped = metadata.packages.iter().filter(|package| crates.contains(&&*package.name));
    let mut rest: Vec<_> = shipped.map(|package| &*package.id).collect();
    while let Some(id) = rest.pop() {
        if parts.insert(id) {
            rest.extend(&uses[id]);
        }
    }
    let mut components: Vec<_> = parts.iter().map(|id| packages[id].component()).collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let mut dependencies: Vec<_> = parts
        .iter()
        .map(|id| {
            let mut on: Vec<_> = uses[id].iter().map(|id| packages[id].reference()).collect();
            on.sort();
            json!({ "ref": packages[id].reference(), "dependsOn": on })
        })
        .collect();
    dependencies.sort_by_key(|dependency| dependency["ref"].to_string());
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "name": "transom",
            "version": env!("CARGO_PKG_VERSION"),
            "licenses": [{ "expression": env!("CARGO_PKG_LICENSE") }],
        } },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

impl Dependency {
    fn is_linked(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.is_none())
    }
}

impl Package {
    /// Its worldwide name, if it comes from the registry.
    fn reference(&self) -> String {
        let kind = if self.source.is_some() { "pkg:cargo/" } else { "transom:" };
        format!("{kind}{}@{}", self.name, self.version)
    }

    fn component(&self) -> Value {
        let mut component = json!({
            "type": "library",
            "bom-ref": self.reference(),
            "name": self.name,
            "version": self.version,
        });
        if self.source.is_some() {
            component["purl"] = json!(self.reference());
        }
        if let Some(license) = &self.license {
            // Old manifests write `/` for OR.
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        component
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_what_is_linked_and_nothing_else() {
        let list = of(&["transom-cli"], Target::default()).unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        let names: Vec<_> = list["components"].as_array().unwrap().iter().collect();
        let has = |name: &str| names.iter().any(|component| component["name"] == name);
        assert!(has("rustix") && has("transom-device") && has("clap"));
        // Crates of a build script, a test and a macro.
        assert!(!has("sha2") && !has("proptest") && !has("clap_derive"));
    }
}
