"""Files that a command is to write: looked at before it begins, so that no answer is lost in the end, and no input."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable

from .predict import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable


def check(option: str, path: str | None, inputs: Iterable[str | None] = ()) -> None:
    """Fails where an option's file cannot be written, or is one of the inputs. `-` is standard output."""
    if path is None or path == "-":
        return
    if any(each and is_same(path, each) for each in inputs):
        raise Problem(f"{option} {path}: this command reads the file; choose another name")
    why = refusal(path)
    if why:
        raise Problem(f"{option} {path}: {why}")


def is_same(path: str, other: str) -> bool:
    """Whether two paths are one file that is there."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def refusal(path: str) -> str | None:
    """Why a file cannot be written; None if it can. What is in it stays."""
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        return "its folder does not exist"
    if os.path.isdir(path):
        return "it is a folder"
    is_there = os.path.lexists(path)
    if is_there and not os.path.isfile(path):
        return None  # a device or a pipe: to open it may take for ever
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        return error.strerror or str(error)
    if not is_there:
        os.unlink(path)
    return None


def problems_of(works: Iterable[Callable[[], object]]) -> list[Problem]:
    """Does all of them, and returns what went wrong: one file that fails takes no other with it."""
    found = []
    for work in works:
        try:
            work()
        except Problem as problem:
            found.append(problem)
        except OSError as error:
            found.append(Problem(f"{error.filename}: {error.strerror}"))
    return found
