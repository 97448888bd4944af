//! Completions and manual pages: a real bash completes every command, and every option has words in its page.

use std::fs;
use std::process::Command;

use crate::common::cli::output;

/// The commands of the program, hidden ones left out.
fn commands() -> Vec<String> {
    let help = output(&["--help"]);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty());
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// What bash offers for the last of these words, as if somebody had pressed Tab behind it.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let last = words.len() - 1;
    let before = &quoted[last - 1];
    let program = format!(
        "{script}\n\
         function_name=$(complete -p gmlake-sim | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n\
         COMP_WORDS=({})\nCOMP_CWORD={last}\n\
         $function_name gmlake-sim {} {before}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        quoted.join(" "),
        quoted[last],
    );
    let ended = Command::new("bash").args(["--norc", "-c", &program]).output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && error.is_empty(), "{words:?}: {error}");
    let text = String::from_utf8(ended.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_every_command_and_its_options() {
    let script = output(&["completions", "bash"]);
    let commands = commands();
    assert!(commands.len() > 12, "{commands:?}");
    assert_eq!(sorted(offered(&script, &["gmlake-sim", ""]), &["completions", "man"]), {
        let mut names = commands.clone();
        names.sort();
        names
    });
    for command in &commands {
        let help = output(&["help", command]);
        let options = offered(&script, &["gmlake-sim", command, "--"]);
        let known: Vec<&str> = help
            .lines()
            .filter_map(|line| line.trim_start().split([' ', '=']).find(|w| w.starts_with("--")))
            .collect();
        assert!(options.contains(&"--json".to_owned()), "{command}: {options:?}");
        for option in known.iter().filter(|option| help.contains(&format!("      {option}"))) {
            assert!(options.contains(&(*option).to_owned()), "{command} {option}: {options:?}");
        }
    }
}

fn sorted(mut names: Vec<String>, without: &[&str]) -> Vec<String> {
    names.retain(|name| !without.contains(&name.as_str()));
    names.sort();
    names
}

#[test]
fn bash_completes_allocators_cards_profiles_and_pages() {
    let script = output(&["completions", "bash"]);
    for (words, expected) in [
        (&["gmlake-sim", "fits", "--card", "RTX-3"][..], &["RTX-3090"][..]),
        (&["gmlake-sim", "plan", "--cards", "V"], &["V100-16GB", "V100-32GB"]),
        (&["gmlake-sim", "compare", "--allocators", "exp"], &["expandable"]),
        (&["gmlake-sim", "blame", "--allocator", "gm"], &["gmlake", "gmlake-released"]),
        (&["gmlake-sim", "compare", "--profile", "h2"], &["h200"]),
        (&["gmlake-sim", "plot", "--chart", "lat"], &["latency"]),
        (&["gmlake-sim", "compare", "--set", "gmlake.frag"], &["gmlake.fragment_limit="]),
        (&["gmlake-sim", "help", "rec"], &["recording"]),
        (&["gmlake-sim", "fleet", "rep"], &["report"]),
        // Where a file is wanted bash offers files, since we offer nothing.
        (&["gmlake-sim", "compare", ""], &[]),
        (&["gmlake-sim", "compare", "--fail-on-oom", ""], &[]),
    ] {
        let expected: Vec<String> = expected.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(offered(&script, words), expected, "{words:?}");
    }
}

#[test]
fn other_shells_have_the_names_too() {
    for shell in ["zsh", "fish"] {
        let script = output(&["completions", shell]);
        for word in ["compare", "fragment_limit", "RTX-3090", "expandable", "a100-paper"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn every_option_has_words_in_the_manual() {
    let folder = tempfile::tempdir().unwrap();
    output(&["man", "--out", folder.path().to_str().unwrap()]);
    let (mut pages, mut options) = (0, 0);
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        pages += 1;
        let entries: Vec<&str> = text.split("\n.TP\n").skip(1).collect();
        for entry in entries.iter().filter(|entry| entry.contains("\\-\\-")) {
            let mut lines = entry.lines();
            let name = lines.next().unwrap();
            let words = lines.next().unwrap_or_default();
            assert!(words.len() > 10, "{}: {name} says {words:?}", path.display());
            options += 1;
        }
    }
    assert!(pages > 16 && options > 150, "{pages} pages, {options} options");
}
