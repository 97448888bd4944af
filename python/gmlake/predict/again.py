"""The same command again, on the virtual GPU: for what runs in this process, such as our allocators.

    python -m gmlake run --virtual h200 --allocator lake train.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from . import Problem, library, options, pytorch

INSIDE = "GMLAKE_GPU"


def on_virtual_gpu(card: str) -> None:
    """Runs this command in a process that has the card, and ends with its exit code.

    Comes back where this process is the one that has it.
    """
    if os.environ.get(INSIDE) == card:
        return
    try:
        wheel = pytorch.versions()
        options.card(card, library.cards(library.find()), "--virtual")
        with tempfile.TemporaryDirectory(prefix="gmlake-") as folder:
            library.links(library.find(), folder)
            own = library.environment(folder, wheel, card=card)
            command = [sys.executable, "-m", "gmlake", *sys.argv[1:]]
            sys.exit(subprocess.call(command, env=own))
    except Problem as problem:
        print(f"gmlake: {problem}", file=sys.stderr)
        sys.exit(2)
