"""Standard output, whose reader may go."""

from __future__ import annotations

import os
import sys


def tell(text: str) -> None:
    """Prints a result. Whoever reads it may have had enough; the exit code is what it would have been."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
