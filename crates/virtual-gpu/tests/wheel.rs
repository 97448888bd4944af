//! The virtual GPU's functions against PyTorch: every one of CUDA's libraries that a wheel asks for is there.
//!
//! `GMLAKE_WHEEL=SITE_PACKAGES/torch/lib` names the libraries of an installed wheel; without it, the test looks only at
//! what our own plug-in needs, and says that it skipped the rest.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};

/// Beginnings of the names of CUDA's functions.
const PREFIXES: [&str; 15] = [
    "__cuda",
    "cuda",
    "cublas",
    "cudnn",
    "cufft",
    "curand",
    "cusolver",
    "cusparse",
    "cuFile",
    "cupti",
    "nccl",
    "nvrtc",
    "nvshmem",
    "nvtx",
    "nvJitLink",
];

fn is_of_cuda(name: &str) -> bool {
    let is_driver =
        name.starts_with("cu") && name[2..].starts_with(|c: char| c.is_ascii_uppercase());
    is_driver || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Names of the dynamic symbols of a library that are defined in it, or that are not.
fn symbols(path: &Path, defined: bool) -> BTreeSet<String> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = object::File::parse(&*bytes).expect("a shared library");
    // A weak symbol may be missing: the library asks before it calls.
    let is_wanted = |symbol: &object::Symbol| defined || !symbol.is_weak();
    let named = file.dynamic_symbols().filter(|symbol| symbol.is_undefined() != defined);
    let named = named.filter(is_wanted);
    named.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect()
}

fn libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "so")).collect()
}

/// The sources of all that C calls.
fn exports() -> impl Iterator<Item = String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/exports");
    let entries = fs::read_dir(folder).expect("the exports");
    entries.map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a source"))
}

/// The names of functions, in lists that macros take, read from their texts: the library itself need not be built for
/// a test.
fn names() -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = Vec::new();
    for text in exports() {
        let mut list = "";
        for line in text.lines().map(|line| line.split("//").next().unwrap_or_default()) {
            if let Some((name, begun)) = line.split_once("! {")
                && list.is_empty()
                && name.chars().all(is_part)
            {
                list = if begun.ends_with('}') { "" } else { name };
                names.extend(begun.split(|c| !is_part(c)).map(str::to_owned));
            } else if line == "}" {
                list = "";
            } else if list == "skins" {
                // Bodies stand behind the names.
                let line = line.strip_prefix("    ").and_then(|line| line.split_once('('));
                names.extend(line.map(|(name, _)| name.to_owned()));
            } else if !list.is_empty() {
                names.extend(line.split(|c| !is_part(c)).map(str::to_owned));
            }
        }
    }
    names.retain(|name| is_of_cuda(name));
    names
}

fn all() -> BTreeSet<String> {
    names().into_iter().collect()
}

#[test]
fn no_function_is_there_twice() {
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = names().into_iter().filter(|name| !seen.insert(name.clone())).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn the_driver_has_what_our_plug_in_calls() {
    let all = all();
    for name in
        ["cuInit", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"]
    {
        assert!(all.contains(name), "{name}");
    }
    assert!(all.len() > 800, "{} functions", all.len());
}

#[test]
fn every_function_that_a_wheel_asks_for_is_there() {
    let Some(folder) = std::env::var_os("GMLAKE_WHEEL") else {
        println!("SKIPPED: GMLAKE_WHEEL names no PyTorch");
        return;
    };
    let folder = PathBuf::from(folder);
    let paths = libraries(&folder);
    assert!(!paths.is_empty(), "{}: no libraries", folder.display());
    let own: BTreeSet<String> = paths.iter().flat_map(|path| symbols(path, true)).collect();
    let wanted = paths.iter().flat_map(|path| symbols(path, false)).filter(|name| is_of_cuda(name));
    let wanted: BTreeSet<String> = wanted.filter(|name| !own.contains(name)).collect();
    let all = all();
    let missing: Vec<_> = wanted.iter().filter(|name| !all.contains(*name)).collect();
    println!("{} functions asked for, {} are there", wanted.len(), all.len());
    assert!(wanted.len() > 500 && missing.is_empty(), "not there: {missing:?}");
}
