"""The record: what one process of a server has learned, in a file that is written anew with each thing it learns.

A process may be killed at any time: what is in its file stays.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator

# Words of errors that say that memory was not enough.
SHORT = [
    "out of memory", "less than desired gpu memory utilization", "available memory for the cache blocks",
    "cache is needed", "auto-fit max_model_len",
]


class Failure(TypedDict):
    """An exception: when it was seen, in which words, and whether the card's memory is the reason."""

    at: float
    text: str
    is_memory: bool


class Content(TypedDict):
    """What is in a record's file. Workers and engines go by their names."""

    version: str | None
    is_ready: bool
    host_memory_bytes: int
    workers: dict[str, dict[str, Any]]
    engines: dict[str, dict[str, Any]]
    failures: list[Failure]


def empty() -> Content:
    """A record of nothing."""
    return Content(version=None, is_ready=False, host_memory_bytes=0, workers={}, engines={}, failures=[])


class Record:
    """This process's own, among those whose files begin with `stem`. A forked process begins one of its own."""

    def __init__(self, stem: str) -> None:
        self._stem, self._pid, self._content = stem, os.getpid(), empty()

    @property
    def content(self) -> Content:
        """What this process has learned."""
        if self._pid != os.getpid():
            version = self._content["version"]
            self._pid, self._content = os.getpid(), empty()
            self._content["version"] = version
        return self._content

    def of(self, version: str) -> None:
        """Says which server this is."""
        self.content["version"] = version
        self.write()

    def ready(self) -> None:
        """Says that the server could serve now."""
        self.content["is_ready"] = True
        self.write()

    def worker(self, name: str, **facts: Any) -> None:
        """Adds what is known of a worker."""
        self.content["workers"].setdefault(name, {}).update(facts)
        self.write()

    def engine(self, name: str, **facts: Any) -> None:
        """Adds what is known of an engine."""
        self.content["engines"].setdefault(name, {}).update(facts)
        self.write()

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Notes an exception that comes out of the block, once on its way through this process."""
        try:
            yield
        except Exception as error:
            if not getattr(error, "_gmlake_noted", False):
                error._gmlake_noted = True  # type: ignore[attr-defined]
                text = f"{type(error).__name__}: {error}"
                is_memory = any(words in text.lower() for words in SHORT)
                self.content["failures"].append(Failure(at=time.time(), text=text, is_memory=is_memory))
                self.write()
            raise

    def write(self) -> None:
        """Writes the file, whole or not at all."""
        content = self.content
        content["host_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        path = f"{self._stem}.server.{self._pid}.json"
        with open(path + ".part", "w") as file:
            json.dump(content, file)
        os.replace(path + ".part", path)


def read(stem: str) -> list[Content]:
    """The records that a server's processes left, which are taken away."""
    found: list[Content] = []
    for path in sorted(glob.glob(f"{glob.escape(stem)}.server.*.json")):
        found.append(json.loads(Path(path).read_text()))
        os.unlink(path)
    return found
