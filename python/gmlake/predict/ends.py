"""The ends: a recording with other workspaces, as tables that `gmlake-sim` plays again.

The virtual GPU says which workspaces are guesses, between which bytes each lies, how many of a hundred take less and how
many take more, and when each was in use. A workspace is requested and given back around its use, so it is found in the
recording by its bytes and the time. One of no bytes was not requested; it is put in.

    recording   ... alloc 35 MB, free ...      the script runs once
    as it is    ... alloc 35 MB, free ...  ─┐
    drawn       ... alloc  0 MB, free ...   ├─ NAME.0.csv ...  ──▶ gmlake-sim compare --allocators caching
    drawn       ... alloc 80 MB, free ...  ─┘

All uses of one workspace have the same bytes in a drawing, and those of one family, such as a layer of a network whose
batches vary, err alike.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .facts import Guess, LibraryReport

DRAWINGS = 14

# Microseconds that the recorder's clock and the library's may differ by, and how far a request may lie from its use.
APART, NEAR = 50, 20_000

SETTINGS, ROUNDUP = ["max_split_size", "garbage_collection_threshold", "expandable_segments"], "roundup_power2_divisions"

ALLOC, FREES = "alloc", ("free_requested", "free_completed")

OWN, OPEN = -1, "%d"  # in place of a guess, and of its bytes


def write(stem: str, snapshot: Mapping[str, Any], report: LibraryReport) -> list[str]:
    """Writes the tables of the GPU with most entries, the first as it is; none where no workspace is a guess."""
    guesses, uses = report.get("guesses", []), report.get("guesses_used", [])
    if not guesses or not uses:
        return []
    trace = max(snapshot["device_traces"], key=len)
    pieces = list(joined(rows(trace, requests_of(trace, guesses, uses))))
    drawings = drawn(random.Random(0), guesses)
    paths = []
    for number, sizes in enumerate([[guess[1] for guess in guesses], *drawings]):
        paths.append(f"{stem}.{number}.csv")
        with open(paths[-1], "w") as file:
            file.write("action,addr,size,stream,time_us\n")
            file.writelines(settings_of(snapshot))
            file.writelines(filled(pieces, sizes))
    return paths


def filled(pieces: Sequence[tuple[int, str]], sizes: Sequence[int]) -> Iterator[str]:
    """The rows with these bytes for each guess. One of no bytes is not requested."""
    for guess, text in pieces:
        if guess == OWN:
            yield text
        elif sizes[guess]:
            yield text % sizes[guess]


def drawn(draw: random.Random, guesses: Sequence[Guess]) -> list[list[int]]:
    """Bytes of each workspace, as they might be, in each drawing. A family has the same luck in one, and good and bad luck
    as often as its chances say, so that few drawings show both."""
    luck: dict[int, list[tuple[float, float]]] = {}
    for *_, family in guesses:
        if family not in luck:
            places = draw.sample(range(DRAWINGS), DRAWINGS)
            luck[family] = [((place + draw.random()) / DRAWINGS, draw.random()) for place in places]
    return [[one(guess, *luck[guess[-1]][number]) for guess in guesses] for number in range(DRAWINGS)]


def one(guess: Guess, chance: float, share: float) -> int:
    """Bytes of a workspace by its family's luck. Those that are less are mostly the least."""
    _, size, low, high, less, more, _ = guess
    if 100 * chance < less:
        return low + int((size - low) * max(0, share - 0.6) / 0.4)
    return size + int((high - size) * share) if 100 * chance < less + more else size


def settings_of(snapshot: Mapping[str, Any]) -> Iterator[str]:
    """The allocator's settings that decide what is held, as rows."""
    settings = snapshot.get("allocator_settings", {})
    found = {key: settings[key] for key in SETTINGS if key in settings}
    found.update((f"{ROUNDUP}:{mib}", divisions) for mib, divisions in settings.get(ROUNDUP, {}).items())
    return (f"setting,{key}:{value},0,0,0\n" for key, value in found.items())


class Requests(NamedTuple):
    """Which guess each entry of a trace is, and which ones are put in before each entry."""

    served: dict[int, int]
    added: dict[int, list[int]]


def requests_of(trace: Sequence[Mapping[str, Any]], guesses: Sequence[Guess], uses: Sequence[Sequence[int]]) -> Requests:
    """Finds the requests of workspaces that are guesses."""
    times = [entry["time_us"] for entry in trace]
    found = Requests({}, {})
    for at, number in uses:
        size, place = guesses[number][1], bisect_right(times, at)
        if not size:
            found.added.setdefault(place, []).append(number)
            continue
        ways = range(bisect_right(times, at + APART) - 1, -1, -1), range(place, len(trace))
        near = (nearest(trace, way, size, at, found.served) for way in ways)
        request = next((index for index in near if index is not None), None)
        if request is not None:
            found.served[request] = number
    return found


def nearest(
    trace: Sequence[Mapping[str, Any]], way: range, size: int, at: int, taken: Mapping[int, object]
) -> int | None:
    """The first request of this size on the way that is none of those taken."""
    for index in way:
        entry = trace[index]
        if abs(entry["time_us"] - at) > NEAR:
            return None
        if entry["action"] == ALLOC and entry["size"] == size and index not in taken:
            return index
    return None


def rows(trace: Sequence[Mapping[str, Any]], requests: Requests) -> Iterator[tuple[int, str]]:
    """The entries as rows, each with its guess, whose bytes are left open; OWN: none. Each block has an address of its own."""
    live: dict[int, tuple[int, int, object]] = {}  # address: that of the row, guess, bytes
    fresh, stream = 1, 0
    for index, entry in enumerate(trace):
        at, action = entry["time_us"], entry["action"]
        for number in requests.added.get(index, ()):
            fresh += 1
            yield from ((number, row(each, fresh, OPEN, stream, at)) for each in (ALLOC, *FREES))
        if action == ALLOC:
            fresh, stream, number = fresh + 1, entry["stream"], requests.served.get(index, OWN)
            live[entry["addr"]] = fresh, number, entry["size"] if number == OWN else OPEN
        elif action not in FREES or entry["addr"] not in live:
            continue
        address, number, size = live[entry["addr"]]
        if action == FREES[1]:
            del live[entry["addr"]]
        yield number, row(action, address, size, entry["stream"], at)


def joined(found: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The same with rows between two guesses as one text: a drawing changes few of many."""
    for guess, group in groupby(found, key=itemgetter(0)):
        texts = [text for _, text in group]
        yield from [(OWN, "".join(texts))] if guess == OWN else ((guess, text) for text in texts)


def row(action: str, address: int, size: object, stream: int, at: int) -> str:
    """A line of the table."""
    return f"{action},{address << 36:#x},{size},{stream},{at}\n"
