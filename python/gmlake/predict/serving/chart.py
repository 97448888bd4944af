"""The chart of `--serve --vary`: a bar for each configuration, of what its first rank uses, up to the card's edge."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..._sizes import show
from . import answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .verdict import ServerRank, Verdict

# The sizes of `answer`, in their order, in colours that people with any colour vision can tell apart.
COLOURS = {
    "weights": "#0072b2", "activations": "#d55e00", "graphs": "#cc79a7", "non-torch": "#8c8c8c", "KV cache": "#009e73",
}
WIDTH, LEFT, HIGH, TOP = 900, 200, 38, 56
LETTER = 7  # about the width of one
GIB = 1 << 30


def svg(found: Sequence[tuple[Mapping[str, str], Verdict]]) -> str:
    """The picture; empty where no server came to a card."""
    most = max((each.ranks[0].device_memory_bytes or 0 for _, each in found), default=0)
    if not most:
        return ""
    scale = (WIDTH - LEFT - 30) / most
    bottom = TOP + HIGH * len(found)
    parts = [*legend(), *axis(most, scale, bottom), text(LEFT - 10, 25, ", ".join(found[0][0]), 'text-anchor="end"')]
    for row, (values, each) in enumerate(found):
        parts += bar(", ".join(values.values()), each, TOP + HIGH * row, scale)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 44}" font-family="sans-serif" font-size="13">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, more: str = "") -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#282828" {more}>{escape(words)}</text>'


def box(x: float, y: float, width: float, colour: str, more: str = "") -> str:
    """A part of a bar."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HIGH - 16}" fill="{colour}" {more}/>'


def legend() -> Iterator[str]:
    """What the colours are."""
    x = LEFT
    for name, colour in COLOURS.items():
        yield f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>'
        yield text(x + 18, 25, name)
        x += 42 + LETTER * len(name)


def axis(most: int, scale: float, bottom: float) -> Iterator[str]:
    """Lines every few GiB."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if most <= 10 * step * GIB or step == 500)
    for gib in range(0, most // GIB + 1, step):
        x = LEFT + gib * GIB * scale
        yield f'<path d="M{x:.1f} {TOP - 8}V{bottom}" stroke="#e4e4e4"/>'
        yield text(x, bottom + 18, str(gib), 'text-anchor="middle"')
    yield text(LEFT, bottom + 36, "GiB; a dashed line is the card's edge")


def bar(name: str, found: Verdict, y: float, scale: float) -> Iterator[str]:
    """One configuration: its parts, the edge of its card, and how it ends."""
    rank = found.ranks[0]
    yield text(LEFT - 10, y + 16, name, 'text-anchor="end"')
    x, edge = float(LEFT), LEFT + (rank.device_memory_bytes or 0) * scale
    for (part, colour), size in zip(COLOURS.items(), answer.sizes(rank)):
        width = (size or 0) * scale
        if width:
            # A server that refuses would have had so much for its cache.
            yield box(x, y, width, colour, 'fill-opacity="0.3"' if part == "KV cache" and not found.starts else "")
        words = ending(found, rank) if part == "KV cache" else show(size or 0)
        if width > LETTER * len(words) + 10:
            dark = part == "KV cache" and not found.starts
            yield text(x + 6, y + 16, words, "" if dark else 'style="fill:#ffffff"')
        elif part == "KV cache":
            yield text(max(x + width, edge) + 6, y + 16, words)
        x += width
    yield f'<path d="M{edge:.1f} {y - 4}V{y + HIGH - 12}" stroke="#c00000" stroke-dasharray="3 3"/>'


def ending(found: Verdict, rank: ServerRank) -> str:
    """The verdict in a few words."""
    if found.starts:
        return f"{answer.number(rank.server.kv_cache_tokens)} tokens"
    return "failed" if found.starts is None else "does not start"
