//! Imports, as a graph: in every folder, who uses whom; no file may use one that uses it, over however many others.
//!
//! ```text
//!   src/sim/single.rs:  use super::run::Scenario;       in src/sim:  single ──▶ run ──▶ setup
//!   src/sim/run.rs:     use super::setup::Setup;                        no way back
//! ```
//!
//! The nodes of a folder are its files and its folders. What its own `mod.rs` defines is below them all, and what it
//! passes on (`pub use`) counts as the file that it comes from.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, assert_none, files};

/// A module's path from the root of its crate: `["sim", "plan", "search"]`.
type Place = Vec<String>;

/// One crate's modules, with the text of each.
struct Crate {
    /// The file or folder name that the crate is shown by.
    name: &'static str,
    modules: BTreeMap<Place, String>,
}

impl Crate {
    /// The crate whose root file lies in this folder, without the folders that are crates of their own.
    fn read(name: &'static str, folder: &str, others: &[&str]) -> Self {
        let is_elsewhere = |path: &str| others.iter().any(|other| path.starts_with(other));
        let sources = files(&[folder], &[".rs"]);
        let is_test = |path: &str| path.ends_with("/tests.rs") || path.ends_with("/stories.rs");
        let own = sources.iter().filter(|s| !is_elsewhere(&s.path) && !is_test(&s.path));
        let modules = own.map(|source| (place(&source.path, folder), code(source))).collect();
        Self { name, modules }
    }

    /// The module in which a path ends, from the module that it is written in; `None`: not one of ours.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<Place> {
        let mut here: Place = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "super" => from.to_vec().split_last()?.1.to_vec(),
            "self" => from.to_vec(),
            _ => from.to_vec(),
        };
        let is_relative = ["crate", "super", "self"].contains(&path[0].as_str());
        for name in &path[usize::from(is_relative)..] {
            if name == "super" {
                here.pop()?;
                continue;
            }
            let inner: Place = here.iter().cloned().chain([name.clone()]).collect();
            if self.modules.contains_key(&inner) {
                here = inner;
                continue;
            }
            // Not a module: an item, defined here or passed on from elsewhere.
            let passed_on = self.imports(&here).into_iter().find(|(_, bound)| bound == name);
            return match passed_on {
                Some((path, _)) if depth > 0 => self.resolve(&here, &path, depth - 1),
                _ => Some(here),
            };
        }
        Some(here)
    }

    /// Every `use` of a module: the path, and the name that it is bound to.
    fn imports(&self, place: &[String]) -> Vec<(Place, String)> {
        let text = self.modules.get(place).map_or("", String::as_str);
        let starts = text.match_indices("use ").filter(|&(at, _)| {
            let before = text[..at].trim_end_matches(' ');
            before.is_empty()
                || before.ends_with(['\n', ';', '{', '}', ')'])
                || before.ends_with("pub")
        });
        starts.flat_map(|(at, word)| tree(&text[at + word.len()..])).collect()
    }

    /// Modules that a module names, by `use` or by a path in its code.
    fn uses(&self, place: &[String]) -> BTreeSet<Place> {
        let text = &self.modules[place];
        let inline = ["crate::", "super::"].iter().flat_map(|root| {
            let starts = text.match_indices(root).filter(|&(at, _)| !is_name_end(&text[..at]));
            starts.flat_map(|(at, _)| tree(&text[at..]))
        });
        // A `use` that begins with a child's name is a parent's; parents are no nodes, and need none.
        inline.filter_map(|(path, _)| self.resolve(place, &path, 4)).collect()
    }

    /// For each folder, its edges between files, each with a place that shows it.
    fn edges(&self) -> BTreeMap<Place, BTreeMap<String, BTreeSet<String>>> {
        let mut folders: BTreeMap<Place, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for place in self.modules.keys() {
            for used in self.uses(place) {
                let shared = place.iter().zip(&used).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (place.get(shared), used.get(shared)) {
                    let edges = folders.entry(place[..shared].to_vec()).or_default();
                    edges.entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
        folders
    }
}

fn place(path: &str, folder: &str) -> Place {
    let inside = path.strip_prefix(folder).expect("it lies in the folder").trim_matches('/');
    let inside = inside.trim_end_matches(".rs");
    let names = inside.split('/').filter(|name| !["mod", "lib", "main"].contains(name));
    names.map(str::to_owned).collect()
}

/// The text without comments and strings, which may hold anything.
fn code(source: &Source) -> String {
    source
        .code_lines()
        .map(|(_, line)| format!("{}\n", line.split("//").next().unwrap_or("")))
        .collect()
}

fn is_name_end(text: &str) -> bool {
    text.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
}

/// The paths of a `use` tree, each with the name that it binds: `a::{b, c as d}` is `a::b` as `b` and `a::c` as `d`.
fn tree(text: &str) -> Vec<(Place, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    branch(&mut rest, &mut Vec::new(), &mut found);
    found
}

fn branch(rest: &mut &str, path: &mut Place, found: &mut Vec<(Place, String)>) {
    let depth = path.len();
    loop {
        *rest = rest.trim_start();
        if let Some(inside) = rest.strip_prefix('{') {
            *rest = inside;
            while !rest.is_empty() && !rest.starts_with('}') {
                branch(rest, path, found);
                *rest = rest.trim_start().trim_start_matches(',').trim_start();
            }
            *rest = rest.strip_prefix('}').unwrap_or("");
            break;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        // A star, or something that is no path: passed over up to the end of this branch.
        if name.is_empty() {
            let end = rest.find([',', '}', ';']).unwrap_or(rest.len());
            *rest = &rest[end..];
            break;
        }
        path.push(name.to_owned());
        *rest = after;
        if let Some(after) = rest.strip_prefix("::") {
            *rest = after;
            continue;
        }
        let mut bound = name.to_owned();
        if let Some(after) = rest.strip_prefix(" as ") {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
            bound = after[..end].to_owned();
            *rest = &after[end..];
        }
        found.push((path.clone(), bound));
        break;
    }
    path.truncate(depth);
}

/// A way from a node back to itself, shortest first; `None`: there is no circle.
fn circle(edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<&str>> {
    let ways = edges.keys().filter_map(|start| {
        let mut ways = vec![vec![start.as_str()]];
        let mut seen = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                for next in edges.get(*way.last()?).into_iter().flatten() {
                    let mut way = way.clone();
                    way.push(next);
                    if next == start {
                        return Some(way);
                    }
                    if seen.insert(next) {
                        longer.push(way);
                    }
                }
            }
            ways = longer;
        }
        None
    });
    ways.min_by_key(Vec::len)
}

fn crates() -> Vec<Crate> {
    vec![
        Crate::read("gmlake", "src", &["src/bin/"]),
        Crate::read("gmlake-sim", "src/bin/gmlake-sim", &[]),
        Crate::read("gmlake-replay", "src/bin/gmlake-replay", &[]),
        Crate::read("gmlake-core", "crates/core/src", &[]),
        Crate::read("gmlake-allocators", "crates/allocators/src", &[]),
        Crate::read("gmlake-traces", "crates/traces/src", &[]),
        Crate::read("gmlake-remote", "crates/remote/src", &[]),
        Crate::read("gmlake-cuda", "crates/cuda/src", &[]),
        Crate::read("gmlake-torch", "crates/torch/src", &[]),
        Crate::read("gmlake-virtual-gpu", "crates/virtual-gpu/src", &[]),
    ]
}

#[test]
fn imports_go_in_no_circles() {
    let mut circles = Vec::new();
    let mut edges_in_all = 0;
    for krate in crates() {
        for (folder, edges) in krate.edges() {
            edges_in_all += edges.values().map(BTreeSet::len).sum::<usize>();
            let names = std::iter::once(krate.name).chain(folder.iter().map(String::as_str));
            let folder = names.collect::<Vec<_>>().join("::");
            if let Some(way) = circle(&edges) {
                circles.push(format!("{folder}: {}", way.join(" > ")));
            }
        }
    }
    assert!(edges_in_all > 300, "only {edges_in_all} imports were found");
    assert_none("circles of imports", circles);
}

#[test]
fn the_ruler_finds_circles() {
    let module = |path: &str, text: &str| {
        (
            path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            text.to_owned(),
        )
    };
    let modules = |b: &str| {
        BTreeMap::from([
            module("", "mod a;\npub use a::{Ay, Bee as Cee};\nmod b;\n"),
            module("a", "use super::b::{c::{self, D}, E as F};\npub struct Ay;\n"),
            module("b", b),
            module("b::c", "use super::Thing;\n"),
        ])
    };
    let found = |b: &str| {
        let krate = Crate { name: "made up", modules: modules(b) };
        krate.edges().get(&Vec::new()).and_then(|edges| circle(edges).map(|way| way.join(" > ")))
    };
    assert_eq!(found("use crate::Other;\n"), None);
    // By the name under which the root passes it on, and in the middle of the code.
    assert_eq!(found("use crate::{Other, Cee};\n").as_deref(), Some("a > b > a"));
    assert_eq!(found("fn f() { super::Ay; }\n").as_deref(), Some("a > b > a"));
}
