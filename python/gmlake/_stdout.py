"""Standard output, whose reader may go."""

from __future__ import annotations

import os
import sys


def tell(text: str) -> None:
    """Prints a result. Whoever reads it may have had enough; the exit code is what it would have been.

    If it cannot be written, the program ends with the exit code of wrong usage.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"gmlake: standard output: {error.strerror}", file=sys.stderr)
            sys.exit(2)
