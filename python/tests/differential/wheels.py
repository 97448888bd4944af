"""Which PyTorch a Python has."""

import os
import runpy
import subprocess
from pathlib import Path

from gmlake.predict import pytorch


def versions(python):
    """What the wheel of this Python says of itself."""
    find = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    place = subprocess.check_output([python, "-c", find], text=True).strip()
    found = runpy.run_path(os.path.join(place, "version.py"))
    cudnn = pytorch.cudnn(Path(place).parent)
    return pytorch.Wheel(str(found["__version__"]), found["cuda"], cudnn)
