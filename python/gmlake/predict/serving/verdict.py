"""The verdict: whether a server starts, and what each of its ranks uses, from the records of its processes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .record import Content, Failure
    from .requests import Served

# The longest context of which vLLM's refusal says that it would fit.
LONGEST = re.compile(r"estimated maximum model length is (\d+)")


class AtOnce(TypedDict):
    """How many requests of so many tokens the KV cache holds at once."""

    tokens: int
    requests: float


@dataclass(frozen=True)
class Server:
    """What the server says of one rank. What is not known is None."""

    starts: bool | None
    reason: str | None = None
    weights_bytes: int | None = None
    activation_peak_bytes: int | None = None
    graphs_bytes: int | None = None
    graphs_estimate_bytes: int | None = None
    non_torch_bytes: int | None = None
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = None
    context_tokens: int | None = None
    longest_context_tokens: int | None = None
    requests_at_once: list[AtOnce] = field(default_factory=list)
    requests: Served | None = None
    unserved: str | None = None


@dataclass(frozen=True)
class ServerRank:
    """One rank, which has one card."""

    rank: int
    device: str | None
    device_memory_bytes: int | None
    server: Server


@dataclass(frozen=True)
class Verdict:
    """The answer for one configuration. `starts` is None where something other than memory ended the server.

    `hint` is what we know of that, if it is not in the server's words.
    """

    version: str | None
    starts: bool | None
    reason: str | None
    ranks: list[ServerRank]
    seconds: float
    host_memory_bytes: int
    hint: str | None = None


# The reason of a script that came to its end.
ENDED = "the script ended before a server was ready"


def verdict(records: Sequence[Content], error: str | None, seconds: float) -> Verdict:
    """What the records say. `error` is how the script ended, if not by itself."""
    starts, reason = decided(records, error)
    workers = sorted(each for record in records for each in record["workers"].items())
    engines = {name: facts for record in records for name, facts in record["engines"].items()}
    ranks = [
        ServerRank(number, facts.get("device"), facts.get("device_memory_bytes"), server(name, facts, engines, starts, reason))
        for number, (name, facts) in enumerate(sorted(workers, key=lambda each: order(each[0])))
    ]
    return Verdict(
        next((record["version"] for record in records if record["version"]), None), starts, reason,
        ranks or [ServerRank(0, None, None, Server(starts, reason))], round(seconds, 2),
        sum(record["host_memory_bytes"] for record in records),
    )


def order(name: str) -> list[int]:
    """Where a worker stands: by its engine, then by its rank there."""
    return [int(part) for part in name.split(".")]


def decided(records: Iterable[Content], error: str | None) -> tuple[bool | None, str | None]:
    """Whether the server starts, and why not: by the first word on memory, else by the first of all."""
    records = list(records)
    if any(record["is_ready"] for record in records):
        return True, None
    failures = sorted((each for record in records for each in record["failures"]), key=lambda each: each["at"])
    short: list[Failure] = [each for each in failures if each["is_memory"]]
    if short:
        return False, short[0]["text"]
    if failures:
        return None, failures[0]["text"]
    return None, error or ENDED


def server(
    name: str, facts: dict[str, Any], engines: dict[str, dict[str, Any]], starts: bool | None, reason: str | None
) -> Server:
    """The numbers of one rank."""
    group, _, rank = name.partition(".")
    engine = engines.get(group, {})
    caches: list[int] = engine.get("cache_bytes", [])
    named, left = LONGEST.search(reason or ""), facts.get("available_bytes")
    held = caches[int(rank)] if int(rank) < len(caches) else left and max(0, left)
    return Server(
        starts, reason,
        **{key: facts.get(key) for key in ("weights_bytes", "activation_peak_bytes", "graphs_bytes", "graphs_estimate_bytes")},
        non_torch_bytes=total([facts.get("outside_bytes"), facts.get("growth_bytes")]),
        kv_cache_bytes=held,
        kv_cache_tokens=engine.get("cache_tokens"),
        context_tokens=engine.get("context_tokens"),
        longest_context_tokens=engine.get("longest_context_tokens", int(named[1]) if named else None),
        requests_at_once=[AtOnce(tokens=tokens, requests=count) for tokens, count in engine.get("requests_at_once", [])],
        requests=served(engine.get("requests"), engine.get("cache_tokens"), held), unserved=engine.get("unserved"),
    )


def served(found: Served | None, tokens: int | None, held: int | None) -> Served | None:
    """What became of the requests, with the peak of the cache in its tokens and bytes."""
    if found is None:
        return None
    share = found["kv_share"]
    found["kv_tokens"], found["kv_bytes"] = (size if size is None else round(share * size) for size in (tokens, held))
    return found


def total(parts: Sequence[int | None]) -> int | None:
    """The sum, if all of it is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def at_once(rank: ServerRank) -> float | None:
    """How many requests fit at once, each as long as the server allows."""
    server = rank.server
    return next((each["requests"] for each in server.requests_at_once if each["tokens"] == server.context_tokens), None)
