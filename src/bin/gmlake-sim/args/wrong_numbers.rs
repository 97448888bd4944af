//! Numbers that are typed wrongly, in both programs: what clap says by itself names neither what is expected nor the
//! range.

use clap::error::ErrorKind;

const WRONG: [&str; 7] = ["x", "3..1", "1e400", "-5", "nan", "", "99999999999999999999"];

/// Tries every option whose value has one of these names, in every command. Each answer has one of `words`; `typed` is
/// what is typed of an option and its value. How many were tried.
pub(crate) fn try_all(
    program: &clap::Command,
    names: &[&str],
    words: &[&str],
    typed: fn(&str, &str) -> Vec<String>,
) -> usize {
    let is_number = |argument: &&clap::Arg| {
        let own = argument.get_value_names().unwrap_or_default();
        let is_named = own.iter().any(|name| names.contains(&name.as_str()));
        is_named && argument.get_action().takes_values()
    };
    let mut tried = 0;
    for command in program.get_subcommands() {
        for argument in command.get_arguments().filter(is_number) {
            let long = argument.get_long().expect("it is an option");
            for wrong in WRONG {
                let mut line = vec![program.get_name().to_owned(), command.get_name().to_owned()];
                line.extend(typed(long, wrong));
                let error = program.clone().try_get_matches_from(&line).unwrap_err();
                let said = format!("{line:?}: {error}");
                assert!(error.kind() == ErrorKind::ValueValidation, "{said}");
                let error = error.to_string();
                assert!(words.iter().any(|word| error.contains(word)), "{said}");
                tried += 1;
            }
        }
    }
    tried
}
