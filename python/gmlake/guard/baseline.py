"""The baseline: what a program needed when somebody last looked at it, as a small file to be reviewed.

    {"schema_version": 1,
     "source": {"script": "train.py", "arguments": [], "gpu": "H200", ...},      what was run
     "versions": {"gmlake": "0.1.0", "torch": "2.11.0+cu130", "python": "3.12"},
     "by": "line",
     "ranks": [{"rank": 0,
                "reserved_peak_bytes": 257949696,       what PyTorch held at most
                "live_peak_bytes": 202423300,           what tensors took of it at most: the sum of the lines
                "lines": {"train.py:5 <module>": [110100480, 13], ...},           bytes and blocks at that peak
                "pinned_peak_bytes": 0}]}               host memory that was pinned at most

There is no time and no absolute path in it: the same program gives the same file.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from ..predict import Problem

SCHEMA = 1


@dataclass(frozen=True)
class Rank:
    """One rank's peaks in bytes, and bytes and blocks of each line at the peak of live bytes."""

    rank: int
    reserved_peak_bytes: int
    live_peak_bytes: int
    lines: dict[str, list[int]]
    pinned_peak_bytes: int | None = None  # not known of a recording
    process: int | None = None  # of those that the script starts, from 1; None: the script's own

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"rank {self.rank}" if self.process is None else f"rank {self.rank}+{self.process}"

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file. Most have no process."""
        return {name: value for name, value in asdict(self).items() if name != "process" or value is not None}


@dataclass(frozen=True)
class Baseline:
    """What was run, with which versions, and what each rank needed; `by` is what its rows are, such as lines."""

    source: dict[str, Any]
    versions: dict[str, str]
    by: str
    ranks: list[Rank]

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {"schema_version": SCHEMA, **asdict(self), "ranks": [rank.to_json() for rank in self.ranks]}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Baseline:
        """The baseline in a file's content."""
        ranks = [Rank(**rank) for rank in found["ranks"]]
        return cls(found["source"], found["versions"], found["by"], ranks)


def read(path: str) -> Baseline | None:
    """The baseline in a file; None if there is no file."""
    try:
        with open(path) as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Problem(f"{path}: cannot be read as a baseline: {error}") from error
    if not isinstance(found, dict) or "schema_version" not in found:
        raise Problem(f"{path}: not a baseline; choose another name, or delete it")
    if found["schema_version"] != SCHEMA:
        raise Problem(f"{path}: it is of version {found['schema_version']}, and this gmlake knows "
                      f"{SCHEMA}; write it again with --update")
    try:
        return Baseline.from_json(found)
    except (KeyError, TypeError) as error:
        raise Problem(f"{path}: an incomplete baseline ({error}); write it again with --update") from error


def check_replaceable(path: str) -> None:
    """Fails where a file is there that is no baseline: --update would replace it."""
    if os.path.isfile(path) and os.path.getsize(path):
        with open(path, "rb") as file:
            if b'"schema_version"' not in file.read(4096):
                raise Problem(f"{path}: not a baseline; choose another name, or delete it")


def write(path: str, found: Baseline) -> None:
    """Writes the baseline, whole or not at all."""
    try:
        with open(path + ".part", "w") as file:
            file.write(text(found))
        os.replace(path + ".part", path)
    except OSError as error:
        raise Problem(f"--baseline {path}: {error.strerror}") from error


def text(found: Baseline) -> str:
    """The file's text: a line for each line of the program."""
    whole = json.dumps(found.to_json(), indent=1, ensure_ascii=False)
    # Two numbers in a row need no lines of their own.
    for rank in found.ranks:
        for pair in {tuple(pair) for pair in rank.lines.values()}:
            whole = whole.replace(json.dumps(pair, indent=1).replace("\n", "\n    "), json.dumps(pair))
    return whole + "\n"


def check_source(path: str, old: Baseline | None, source: dict[str, Any]) -> None:
    """Fails where the old baseline is of another run than this, with which it cannot be compared."""
    if old is None:
        return
    was, now = ("a recording" if "recording" in each else "a run of a script" for each in (old.source, source))
    if was != now:
        raise Problem(f"{path} is of {was}, and this is {now}; compare with the same kind, or write it again with --update")
    names = [name for name in {**old.source, **source} if plain(old.source, name) != plain(source, name)]
    if names:
        changes = ", ".join(f"{name} was {old.source.get(name)} and is {source.get(name)}" for name in names)
        raise Problem(f"{path} is of another run: {changes}; give the same, or write it again with --update")


def plain(source: dict[str, Any], name: str) -> Any:
    """A part of what was run: a script by its path from here, however it was written."""
    value = source.get(name)
    return os.path.relpath(value) if name == "script" and value and not source.get("module") else value


def check_same(path: str, old: Baseline, new: Baseline) -> None:
    """Fails where the two are of different runs, which cannot be compared."""
    check_source(path, old, new.source)
    if old.by != new.by:
        raise Problem(f"{path} is by {old.by} and this recording can tell by {new.by}; "
                      "write it again with --update")
    was, now = ([rank.name for rank in each.ranks] for each in (old, new))
    if was != now:
        raise Problem(f"{path} has {', '.join(was)} and this run {', '.join(now)}; write it again with --update")
