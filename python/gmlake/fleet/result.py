"""The result: the Parquet of a fleet, as tables."""

from __future__ import annotations

import os
from typing import Any

from ..predict import Problem
from .engines import optional

PARTITIONS = ("job", "date")
# The columns of the one table that is not written when there is nothing to say.
ERRORS = {"file": "string", "rank": "int64", "problem": "string", "job": "string", "date": "string"}


class Result:
    """The folder that `run` filled; `Result(path)` opens one that is there.

    `path` is the folder; `failed` has a reason for each shard that did not come to its end.
    """

    def __init__(self, path: str | os.PathLike[str], failed: dict[int, str] | None = None) -> None:
        self.path, self.failed = os.fspath(path), failed or {}

    def __repr__(self) -> str:
        more = f", {len(self.failed)} shards failed" if self.failed else ""
        return f"<gmlake.fleet.Result {self.path}{more}>"

    def runs(self) -> Any:
        """One row for each file, GPU, allocator and setting."""
        return self._table("runs")

    def ranks(self) -> Any:
        """One row for each file and GPU: what was recorded."""
        return self._table("ranks")

    def steps(self) -> Any:
        """One row for each step of each run, if they were asked for."""
        return self._table("steps")

    def errors(self) -> Any:
        """One row for each file that could not be used, and why."""
        return self._table("errors")

    def dataset(self, table: str = "runs") -> Any:
        """The table as a Ray Dataset."""
        data = optional("ray.data", "'gmlake[ray]'")
        if not self._has(table):
            return data.from_arrow(self._table(table))
        hive = data.datasource.Partitioning("hive", field_types=dict.fromkeys(PARTITIONS, str))
        return data.read_parquet(self._folder(table), partitioning=hive)

    def _folder(self, table: str) -> str:
        return os.path.join(self.path, table)

    def _has(self, table: str) -> bool:
        """Whether it was written; raises `Problem` where it should have been."""
        if os.path.isdir(self._folder(table)):
            return True
        if table != "errors":
            why = "run with steps=True" if table == "steps" else "nothing was run into this folder"
            raise Problem(f"{self.path}: no table {table}: {why}")
        return False

    def _table(self, table: str) -> Any:
        arrow, dataset = optional("pyarrow"), optional("pyarrow.dataset", "pyarrow")
        if not self._has(table):
            return arrow.table({name: arrow.array([], kind) for name, kind in ERRORS.items()})
        names = arrow.schema([(name, arrow.string()) for name in PARTITIONS])
        hive = dataset.partitioning(names, flavor="hive")
        return dataset.dataset(self._folder(table), format="parquet", partitioning=hive).to_table()
