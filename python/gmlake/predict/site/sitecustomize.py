"""What Python runs at the start of each process that a predicted script starts: the process is watched, too.

The job puts this folder in front of PYTHONPATH (`children`). A `sitecustomize` that would have run without it runs as well.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def usual() -> None:
    """Runs the `sitecustomize` of this Python, if it has one."""
    others = [path for path in sys.path if os.path.abspath(path) != HERE]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


try:
    from gmlake.predict import children
except ImportError:
    pass
else:
    children.watch()
usual()
