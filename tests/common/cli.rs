//! The command line, as the tests call it: from the folder of the checkout.

use assert_cmd::Command;

/// The program.
pub(crate) fn gmlake_sim() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// What a command prints, which must succeed.
pub(crate) fn output(arguments: &[&str]) -> String {
    let assert = gmlake_sim().args(arguments).assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("it prints text")
}
