//! C++ for tests: the mock driver, and clients of our C interface.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder with the compiled mock driver; `None` without a compiler.
pub(crate) fn mock() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(build_mock).as_deref()
}

/// Compiles a source below `tests` to `output`, with more arguments; says whether there is a compiler.
///
/// # Panics
/// If it does not compile.
pub(crate) fn compile(source: &str, output: &Path, more: &[&str]) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let compile = |compiler: &str| {
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        command.arg(output).arg(&source).args(more).status()
    };
    let Some(status) = ["c++", "g++", "clang++"].into_iter().find_map(|name| compile(name).ok())
    else {
        eprintln!("skipped: there is no C++ compiler");
        return false;
    };
    assert!(status.success(), "{} does not compile", source.display());
    true
}

/// Each test binary has a folder of its own: they run side by side.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME")).join(name);
    fs::create_dir_all(&folder).expect("the folder for tests can be written to");
    folder
}

fn build_mock() -> Option<PathBuf> {
    let folder = folder("mock_libcuda");
    let library = folder.join("libcuda.so.1");
    compile("mock_libcuda/mock.cpp", &library, &["-shared", "-fPIC"]).then_some(())?;
    // Of the names that are looked for, this is the first.
    fs::copy(&library, folder.join("libcuda.so")).expect("so can one in it");
    Some(folder)
}
