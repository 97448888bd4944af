"""The queries of docs/engines.md, as they stand there, in DuckDB and pandas; both against `gmlake-sim compare`.

    python python/tests/test_fleet_queries.py FOLDER      FOLDER/jobs was run into FOLDER/results
"""

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from fleet_of_copies import UNLIKE
from gmlake.predict import simulator

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
GIB = 2**30


def queries():
    """Pairs of SQL and Python, in the order of the page."""
    _, text = PAGE.read_text().split("## What the tables answer")
    blocks = {language: re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) for language in ["sql", "python"]}
    assert len(blocks["sql"]) == len(blocks["python"]) == 3
    return list(zip(blocks["sql"], blocks["python"]))


def in_duckdb(text, names):
    import duckdb

    found = duckdb.sql(text)
    columns = [found.columns.index(name) for name in names]
    return [tuple(row[column] for column in columns) for row in found.fetchall()]


def in_pandas(text, names):
    own = {}
    exec(text.replace("print(answer)", ""), own)
    return list(own["answer"][names].itertuples(index=False, name=None))


def compared():
    """The runs of all recordings, by our own command, one file after the other."""
    files = sorted(str(path) for path in Path("jobs").rglob("*.pickle.xz") if "damaged" not in path.name)
    words = [simulator.find(), "compare", *files, "--allocators", "caching,expandable,lake", "--json"]
    runs = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["result"]["runs"]
    assert len(runs) == 4 * len(files) and len({run["file"] for run in runs}) == len(files)
    for run in runs:
        run["job"] = re.sub(r"\.r\d+\.", ".r*.", run["file"].removeprefix("jobs/")).removesuffix(".pickle.xz")
    return runs


def jobs_that_lose(runs):
    found = {}
    for run in runs:
        if run["allocator"] == "recorded":
            one = found.setdefault(run["job"], [0, 0, 0])
            for index, value in enumerate([1, run["reserved_peak_bytes"], run["active_peak_bytes"]]):
                one[index] += value
    rows = [(job, ranks, (held - used) / GIB, 1 - used / held) for job, (ranks, held, used) in found.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))[:10]


def allocators_that_save(runs):
    held = {run["file"]: run["reserved_peak_bytes"] for run in runs if run["allocator"] == "recorded"}
    rows = []
    for name in ["caching", "expandable", "lake"]:
        own = [run for run in runs if run["allocator"] == name]
        peaks, before = sum(run["reserved_peak_bytes"] for run in own), sum(held[run["file"]] for run in own)
        ran_out = sum(run["oom_count"] > 0 for run in own)
        rows.append((name, "", len(own), (before - peaks) / GIB, 1 - peaks / before, ran_out))
    return sorted(rows, key=lambda row: -row[3])


def ranks_unlike_their_peers(runs):
    jobs = {}
    for run in runs:
        if run["allocator"] == "recorded":
            jobs.setdefault(run["job"], []).append(run)
    rows = []
    for job, own in jobs.items():
        usual = statistics.median(run["reserved_peak_bytes"] for run in own)
        for run in own:
            more = run["reserved_peak_bytes"] / usual - 1
            if abs(more) > 0.1:
                rows.append((job, int(re.search(r"\.r(\d+)\.", run["file"])[1]), run["device"], run["file"], more))
    return sorted(rows, key=lambda row: (-abs(row[4]), row[3]))


EXPECTED = [
    (jobs_that_lose, ["job", "ranks", "lost_gib", "lost_share"]),
    (allocators_that_save, ["allocator", "settings", "ranks", "saved_gib", "saved_share", "ran_out"]),
    (ranks_unlike_their_peers, ["job", "rank", "device", "file", "more"]),
]


def same(found, expected):
    """Whether rows are equal; shares and GiB to the last digits."""
    def equal(a, b):
        return abs(a - b) <= 1e-9 if isinstance(b, float) else a == b

    return len(found) == len(expected) and all(
        len(a) == len(b) and all(map(equal, a, b)) for a, b in zip(found, expected)
    )


def main(folder):
    os.chdir(folder)
    runs = compared()
    for (sql, python), (expect, names) in zip(queries(), EXPECTED):
        expected = expect(runs)
        assert same(in_duckdb(sql, names), expected), (expect.__name__, in_duckdb(sql, names), expected)
        assert same(in_pandas(python, names), expected), (expect.__name__, in_pandas(python, names), expected)
        print("ok", expect.__name__, f"{len(expected)} rows, in DuckDB and pandas as from compare", flush=True)
    unlike = {(row[0].split("/", 1)[1].removesuffix(".r*"), row[1]) for row in ranks_unlike_their_peers(runs)}
    assert unlike == {(job, rank) for job, (rank, _) in UNLIKE.items()}, unlike


if __name__ == "__main__":
    main(*sys.argv[1:])
