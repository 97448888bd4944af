"""Progress: how far many runs are. A line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time


class Progress:
    """The line."""

    def __init__(self, total: int, what: str = "configurations", shown: bool = True) -> None:
        self._total, self._done, self._failed = total, 0, 0
        self._begin, self._what = time.monotonic(), what
        self._shown = shown and sys.stderr.isatty()
        self._show()

    def advance(self, failed: int) -> None:
        """One more is done; `failed` of all have no answer."""
        self._done, self._failed = self._done + 1, failed
        self._show()

    def end(self) -> None:
        """Wipes the line."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _show(self) -> None:
        if not self._shown:
            return
        text = f"{self._done} of {self._total} {self._what}"
        if self._failed:
            text += f", {self._failed} failed"
        if self._done:
            left = (time.monotonic() - self._begin) / self._done * (self._total - self._done)
            text += f", {left / 60:.0f} min left" if left >= 90 else f", {left:.0f} s left"
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
