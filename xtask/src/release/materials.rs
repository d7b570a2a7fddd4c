//! What the binary is made of: every package that is linked into it, from cargo's own graph, and the bill of materials that says so.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Doing, Error, Result};
use crate::workspace;

/// What `cargo metadata` says, as far as it is needed.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

/// A package.
#[derive(Deserialize, Clone)]
pub(super) struct Package {
    id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    pub(super) repository: Option<String>,
    /// Where it came from; nothing for our own.
    source: Option<String>,
    pub(super) manifest_path: PathBuf,
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
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// Nothing for what is linked; `build` and `dev` for what is not.
    kind: Option<String>,
}

/// The packages of others that are linked into the binary, by name.
pub(super) struct Materials(Vec<Package>);

impl Materials {
    /// Those of the command line.
    pub(super) fn of_pteron() -> Result<Materials> {
        let mut command = workspace::cargo();
        command.args(["metadata", "--format-version", "1", "--locked"]);
        let output = command.output().doing("start", "cargo metadata")?;
        if !output.status.success() {
            return Err(Error::message(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Materials::read(&output.stdout, "pteron-cli")
    }

    fn read(metadata: &[u8], of: &str) -> Result<Materials> {
        let read: Metadata = serde_json::from_slice(metadata)
            .map_err(|error| Error::message(format!("cargo metadata cannot be read: {error}")))?;
        let nodes: HashMap<&str, &Node> =
            read.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let root = read.packages.iter().find(|package| package.name == of && package.source.is_none());
        let root = root.ok_or_else(|| Error::message(format!("the workspace has no package {of}")))?;
        let (mut seen, mut open) = (HashSet::from([root.id.as_str()]), vec![root.id.as_str()]);
        while let Some(id) = open.pop() {
            let Some(node) = nodes.get(id) else { continue };
            let linked = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            open.extend(linked.map(|dep| dep.pkg.as_str()).filter(|id| seen.insert(id)));
        }
        let mut packages: Vec<Package> = read
            .packages
            .iter()
            .filter(|package| package.source.is_some() && seen.contains(package.id.as_str()))
            .cloned()
            .collect();
        packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(Materials(packages))
    }

    pub(super) fn packages(&self) -> &[Package] {
        &self.0
    }

    /// A bill of materials as CycloneDX 1.5 has it.
    pub(super) fn cyclonedx(&self, version: &str) -> String {
        let component = |package: &Package| {
            let mut component = json!({
                "type": "library",
                "name": package.name,
                "version": package.version,
                "purl": format!("pkg:cargo/{}@{}", package.name, package.version),
                "bom-ref": format!("{}@{}", package.name, package.version),
            });
            if let Some(license) = &package.license {
                // An older spelling of "or", which is no expression.
                component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
            }
            if let Some(repository) = &package.repository {
                component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
            }
            component
        };
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": {"type": "application", "name": "pteron", "version": version, "bom-ref": "pteron"}},
            "components": self.0.iter().map(component).collect::<Vec<Value>>(),
        });
        format!("{bill:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Vec<u8> {
        let package = |name: &str, source: Option<&str>, license: &str| {
            json!({"id": name, "name": name, "version": "1.0.0", "source": source, "license": license,
                   "repository": null, "manifest_path": "/nowhere/Cargo.toml"})
        };
        let dep = |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let registry = Some("registry+x");
        json!({
            "packages": [
                package("app", None, "MIT"), package("own", None, "MIT"), package("linked", registry, "MIT/Apache-2.0"),
                package("below", registry, "MIT"), package("builds", registry, "MIT"), package("tests", registry, "MIT"),
            ],
            "resolve": {"nodes": [
                {"id": "app", "deps": [dep("own", None), dep("tests", Some("dev"))]},
                {"id": "own", "deps": [dep("linked", None), dep("builds", Some("build"))]},
                {"id": "linked", "deps": [dep("below", None)]},
                {"id": "below", "deps": []}, {"id": "builds", "deps": []}, {"id": "tests", "deps": []},
            ]},
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn what_is_linked_counts_and_nothing_else() {
        let materials = Materials::read(&metadata(), "app").unwrap();
        let names: Vec<&str> = materials.packages().iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["below", "linked"]);
        assert!(Materials::read(&metadata(), "other").is_err());
        let bill: Value = serde_json::from_str(&materials.cyclonedx("2.0.0")).unwrap();
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][0]["purl"], "pkg:cargo/below@1.0.0");
        assert_eq!(bill["metadata"]["component"]["version"], "2.0.0");
    }
}
