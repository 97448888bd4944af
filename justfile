# `just` lists what there is; each line works as well when typed by hand.
_default:
    @just --list

# What every change must pass.
check:
    .ci/run

# All tests; `just test conformance` for those with this in their names.
test *suite:
    cargo test {{ suite }}

# Events per second of every allocator, and load times.
bench:
    cargo bench --bench events

# Accepts what the snapshot tests print now; read the difference before committing it.
bless:
    BLESS=1 INSTA_UPDATE=always cargo test
    git diff --stat

# Writes everything in reports/ anew; more folders with recordings give more rows.
reports *folders:
    cargo run --release --bin gmlake-sim -- compare traces/opt-1.3b-LR-var.pickle.xz --export-plot reports/opt-1.3b-LR-var.png --export-markdown reports/opt-1.3b-LR-var.md
    cargo run --release --bin gmlake-sim -- compare traces/*.xz --export-markdown reports/compare.md
    cargo run --release --bin gmlake-sim -- plot traces/opt-1.3b-LR-var.pickle.xz --chart map --out reports/opt-1.3b-LR-var.map.svg
    SCREENSHOTS=reports cargo test --test output page
    cargo run --release --example reports -- traces {{folders}}

# Random request scripts under random options, for this many seconds (nightly toolchain, cargo-fuzz).
fuzz target="allocators" seconds="60":
    cargo +nightly fuzz run {{target}} -- -max_total_time={{seconds}}

# Types and lints of the Python code (mypy, ruff; their settings are in pyproject.toml).
python:
    ruff check
    mypy

# Licences, duplicate and yanked crates, sources (cargo-deny).
deny:
    cargo deny check bans licenses sources
