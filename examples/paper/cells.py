"""Cells: what the paper's figures show, one bar or pair of points each, and the job that stands for it.

`cells.csv` has a row for each of the 56: the paper's own values next to the engine, model, strategy,
GPUs and batch with which `train.py` is run. Of the batch sizes only those of the sweeps are stated.
The values were read off the plots, good to about 0.5 GB and 0.004 of utilization.
"""

import csv
import os
from typing import NamedTuple

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cells.csv")


class Job(NamedTuple):
    """What is run; several cells may show the same job."""

    engine: str
    model: str
    strategy: str
    gpus: int
    batch: int

    @property
    def name(self):
        """A name for files and messages."""
        return f"{self.engine}-{self.model}-{self.strategy}-w{self.gpus}.b{self.batch}"


class Cell(NamedTuple):
    """One place in the paper's figures."""

    figure: str
    label: str
    x: str
    job: Job
    stated: bool
    reserved: list
    use: list

    @property
    def title(self):
        """What a reader of the figure would call it."""
        unit = {"scale-out": " GPUs", "batch sizes": "", "strategies": "", "platforms": ""}
        before = "batch " if self.figure == "batch sizes" else ""
        return f"{self.label}, {before}{self.x}{unit[self.figure]}"


def read():
    """All cells, in the paper's order."""
    with open(FILE, encoding="utf-8") as file:
        return [cell(row) for row in csv.DictReader(file)]


def cell(row):
    """One row of the file; memory that ran out is None."""
    job = Job(row["engine"], row["model"], row["strategy"], int(row["gpus"]), int(row["batch"]))
    reserved = [row["paper_pytorch_gb"], row["paper_gmlake_gb"]]
    reserved = [None if value == "OOM" else float(value) for value in reserved]
    use = [float(row["paper_pytorch_use"]), float(row["paper_gmlake_use"])]
    stated = row["batch_is"] == "stated"
    return Cell(row["figure"], row["label"], row["x"], job, stated, reserved, use)
