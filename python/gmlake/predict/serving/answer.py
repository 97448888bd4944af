"""The answer about a server: for people, a table and the verdict in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._sizes import show
from .verdict import ENDED, at_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .verdict import ServerRank, Verdict

HEAD = ["rank", "weights", "activations", "graphs", "non-torch", "KV cache", "tokens"]
ROW = "{:>4} {:>10} {:>11} {:>10} {:>10} {:>10} {:>12}"

VARIED = ["starts", "weights", "graphs", "KV cache", "tokens", "at once", "longest"]
VARIED_ROW = "{:>{wide}} {:>7} {:>10} {:>10} {:>10} {:>11} {:>8} {:>11}"

SERVED = ["requests", "too long", "preempted", "steps", "seconds", "running", "queue", "peak", "of it", "tokens"]
SERVED_ROW = "{:>{wide}} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7} {:>7} {:>10} {:>7} {:>11}"

WORDS = {True: "yes", False: "no", None: "failed"}


def table(found: Verdict) -> str:
    """A line for each rank; empty where the server came to no card."""
    rows = [line(rank) for rank in found.ranks if rank.device]
    rule = ROW.format("-" * 4, "-" * 10, "-" * 11, *["-" * 10] * 3, "-" * 12)
    return "\n".join([ROW.format(*HEAD), rule, *rows, "", ""]) if rows else ""


def requests(found: Iterable[tuple[str, Verdict]]) -> str:
    """What became of the requests, a line for each configuration; empty where none were served."""
    served = [(name, it) for name, each in found if (it := each.ranks[0].server.requests)]
    wide = max((len(name) for name, _ in served), default=0)
    rows = [SERVED_ROW.format("", *SERVED, wide=wide)]
    for name, it in served:
        counts = [it[key] for key in ("requests", "too_long", "preemptions", "steps", "seconds", "running", "queue")]
        peak = [show(it["kv_bytes"]), f"{it['kv_share']:.1%}", number(it["kv_tokens"])]
        rows.append(SERVED_ROW.format(name, *map(number, counts), *peak, wide=wide))
    return "\n".join(["", *rows, ""]) if served else ""


def line(rank: ServerRank) -> str:
    """What one rank uses."""
    return ROW.format(rank.rank, *map(show, sizes(rank)), number(rank.server.kv_cache_tokens))


def number(count: float | None) -> str:
    """A number with its thousands; a dash where it is not known."""
    if count is None:
        return "-"
    return f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"


def sentence(found: Verdict) -> str:
    """The verdict."""
    first = found.ranks[0]
    who, where = found.version or "the server", f" on {first.device}" if first.device else ""
    if found.starts is None:
        return f"{who} failed before it could say whether it fits{where}"
    if not found.starts:
        longest = first.server.longest_context_tokens
        hint = f"; the longest context that fits has {number(longest)} tokens" if longest else ""
        return f"{who} does not start{where}{hint}"
    it = first.server
    texts = [f"{who} starts{where}"]
    if at_once(first) is not None:
        texts.append(f"{number(at_once(first))} requests of {number(it.context_tokens)} tokens fit at once")
    if it.longest_context_tokens:
        texts.append(f"the KV cache would hold a context of {number(it.longest_context_tokens)} tokens")
    return "; ".join(texts)


def notes(found: Verdict) -> Iterator[str]:
    """The server's own words, and what must be known about the numbers."""
    if found.reason:
        yield f"{'' if is_dead(found) else 'its words: '}{' '.join(found.reason.split())}"
    if is_dead(found):
        return
    if found.starts is None:
        yield from advice(found)
    elif unserved := found.ranks[0].server.unserved:
        yield f"the requests were not served: {unserved}"
    elif any(None in numbers(rank) for rank in found.ranks) and found.starts:
        yield f"some numbers are unknown: predict cannot read them off {found.version}"
    if found.starts is not None:
        yield "kernels compute nothing here; how near a real card this comes: reports/serving.md"


def is_dead(found: Verdict) -> bool:
    """Whether the script's process was killed or ended at once, so that it could say nothing: `run.death`."""
    return found.starts is None and (found.reason or "").startswith("its process ")


def numbers(rank: ServerRank) -> list[int | None]:
    """The numbers that every server that starts should have."""
    it = rank.server
    return [*sizes(rank), it.kv_cache_tokens]


def sizes(rank: ServerRank) -> list[int | None]:
    """Bytes of the rank's card, by use."""
    it = rank.server
    return [it.weights_bytes, it.activation_peak_bytes, it.graphs_bytes, it.non_torch_bytes, it.kv_cache_bytes]


def advice(found: Verdict) -> Iterator[str]:
    """What to do where something other than memory ended a server, in a line."""
    reason = found.reason or ""
    if found.hint:
        yield found.hint
    elif found.version is None and reason == ENDED:
        yield "the script did not import vLLM, the one server that --serve knows"
    elif "nvcc" in reason or "cuda_home" in reason.lower():
        yield ("a kernel would have to be compiled with nvcc, which is not here; install CUDA's toolkit, or, for vLLM's "
               "sampler, set VLLM_USE_FLASHINFER_SAMPLER=0")
    else:
        who = "server" if found.version else "script"
        yield f"the {who} ended by itself; put right what it says above, and run again"


def varied(found: Sequence[tuple[Mapping[str, str], Verdict]]) -> str:
    """A line for each configuration, of its first rank."""
    texts = [", ".join(values.values()) for values, _ in found]
    wide = max(map(len, texts))
    head = VARIED_ROW.format("", *VARIED, wide=wide).rstrip()
    rows = []
    for text, (_, each) in zip(texts, found):
        rank = each.ranks[0]
        it = rank.server
        held = map(show, [it.weights_bytes, it.graphs_bytes, it.kv_cache_bytes])
        counts = map(number, [it.kv_cache_tokens, at_once(rank), it.longest_context_tokens])
        rows.append(VARIED_ROW.format(text, WORDS[each.starts], *held, *counts, wide=wide))
    return "\n".join([", ".join(found[0][0]), head, *rows])
