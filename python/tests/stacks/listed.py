"""The list of stacks: what is installed, and what the answer must be. A program of a few lines is entered by `stack`."""

import importlib
from dataclasses import dataclass
from typing import Callable

# A module for each subject, with the programs of its stacks.
SUBJECTS = ["trainers", "kernels", "language", "vision", "agents", "graphs", "science", "sound", "series", "servers"]

STACKS = {}  # by name


@dataclass(frozen=True)
class Stack:
    """One stack: a program, the packages that it needs, and the peak of reserved memory that was predicted for it."""

    program: Callable[[], None]
    packages: tuple[str, ...]  # pinned; the first is the one that is tried
    subject: str
    mib: int
    arguments: tuple[str, ...] = ()  # of `predict`
    alone: bool = False  # an environment of its own: it pins packages that others need newer

    @property
    def name(self):
        return self.program.__name__.replace("_", "-")

    @property
    def title(self):
        """What the program does, from its first line of documentation."""
        return (self.program.__doc__ or "").strip().splitlines()[0].rstrip(".")


def stack(*packages, **more):
    """Enters a program into the list."""

    def enter(program):
        subject = program.__module__.rpartition(".")[2]
        found = Stack(program, packages, subject, **more)
        STACKS[found.name] = found
        return program

    return enter


def all_stacks():
    """Every stack, in the order of the subjects."""
    for subject in SUBJECTS:
        importlib.import_module(f"stacks.{subject}")
    return list(STACKS.values())


def table():
    """The list in Markdown, for docs/predict.md."""
    lines = ["| | stack | program | PyTorch holds |", "|---|---|---|---:|"]
    before = None
    for each in all_stacks():
        subject = each.subject if each.subject != before else ""
        before = each.subject
        lines.append(f"| {subject} | `{each.packages[0]}` | {each.title} | {each.mib:,} MiB |")
    return "\n".join(lines) + "\n"
