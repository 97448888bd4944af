//! Categories: the rule line by line, and a made-up job from its file on.

use std::fs;

use crate::common::stacks::{Job, snapshot};
use assert_cmd::Command;
use gmlake::blame::{Category, Lifetime, Phases};
use gmlake::sim::Place;
use gmlake::units::MIB;

const NEVER: usize = usize::MAX;

/// Two steps: set-up to 10, forward to 20, backward to 30, optimizer to 40; and again.
fn phases() -> Phases {
    Phases {
        module: (10..20).chain(42..50).collect(),
        backward: (20..30).chain(50..60).collect(),
        steps: vec![(30, 40), (60, 70), (90, 100)],
        parameter_bytes: vec![8],
        ..Phases::default()
    }
}

#[test]
fn every_line_of_the_rule_decides() {
    use Category::{
        Activations, Collectives, Gradients, Inputs, OptimizerState, Parameters, Temporaries,
        Unknown as NotKnown,
    };
    use Place::{Backward, Building, Collective, Module, Optimizer, Program, Recompute, Unknown};
    for (place, asked, freed, bytes, expected) in [
        (Collective, 12, 13, 1, Collectives),
        (Program, 33, 40, 1, OptimizerState),
        (Program, 33, 39, 1, Temporaries),
        (Optimizer, 5, NEVER, 1, OptimizerState),
        (Backward, 22, 31, 1, Gradients),
        (Backward, 22, 29, 1, Temporaries),
        (Backward, 22, NEVER, 8, Gradients),
        (Backward, 22, NEVER, 9, NotKnown),
        (Recompute, 22, 25, 1, Activations),
        (Recompute, 22, 23, 1, Temporaries),
        (Program, 3, NEVER, 1, Parameters),
        (Building, 45, NEVER, 1, Parameters),
        (Program, 3, 5, 1, Temporaries),
        (Module, 15, NEVER, 1, NotKnown),
        (Module, 75, NEVER, 1, Temporaries),
        (Program, 9, 25, 1, Inputs),
        (Program, 41, 55, 1, Inputs),
        (Program, 47, 55, 1, Activations),
        (Module, 15, 25, 1, Activations),
        (Module, 15, 16, 1, Temporaries),
        (Unknown, 15, 16, 1, NotKnown),
    ] {
        let block = Lifetime { place, asked, freed, bytes };
        assert_eq!(phases().category(&block), expected, "{block:?}");
    }
}

#[test]
fn names_are_unlike() {
    for (category, name) in Category::ALL {
        assert_eq!((category.name(), Category::from_name(name)), (name, Some(category)));
    }
    assert_eq!(Category::from_name("gradient"), None);
}

#[test]
fn the_memory_of_a_job_is_told_by_category() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.pickle");
    fs::write(&file, snapshot(&Job::default())).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    command.args(["blame", "--by", "category", "--export-json", "-"]).arg(&file);
    let output = command.assert().success().get_output().stdout.clone();
    let json: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let bytes = |name: &str| {
        let rows = json["result"][0]["rows"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).map_or(0, |row| row["bytes"].as_u64().unwrap())
    };
    assert_eq!(bytes("parameters"), 100 * MIB, "{json}");
    assert_eq!(bytes("activations"), 64 * MIB, "{json}");
    // Given back before the optimizer's step begins.
    assert_eq!(bytes("temporaries"), 20 * MIB, "{json}");
}
