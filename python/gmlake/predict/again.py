"""The same command again, on the virtual GPU: for what runs in this process, such as our allocators.

    python -m gmlake run --virtual h200 --allocator lake train.py
"""

import os
import subprocess
import sys
import tempfile

from . import Problem, library, pytorch

INSIDE = "GMLAKE_GPU"


def on_virtual_gpu(card):
    """Runs this command in a process that has the card, and ends with its exit code.

    Comes back where this process is the one that has it.
    """
    if os.environ.get(INSIDE) == card:
        return
    try:
        _, cuda = pytorch.versions()
        known = library.cards(library.find())
        if known and plain(card) not in map(plain, known):
            raise Problem(f"there is no virtual card {card!r}; there are: {', '.join(known)}")
        with tempfile.TemporaryDirectory(prefix="gmlake-") as folder:
            library.links(library.find(), folder)
            own = library.environment(folder, cuda, card=card)
            command = [sys.executable, "-m", "gmlake", *sys.argv[1:]]
            sys.exit(subprocess.call(command, env=own))
    except Problem as problem:
        sys.exit(f"gmlake: {problem}")


def plain(name):
    """A card's name as the library compares it."""
    return name.lower().replace(" ", "").replace("-", "").replace("_", "")
