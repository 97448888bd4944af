"""Spawned processes get the allocator of their parent.

`multiprocessing` sends a new process what it needs to prepare itself, and after that what it is to run. Between the two,
the process imports the main module, which may use a GPU at once. So ours travels with the first part: as it is unpacked,
it has the allocator put in place as soon as PyTorch has been imported, whoever imports it. No GPU is opened, which a
process that only loads data has no use for.
"""

import multiprocessing.spawn
import sys
import warnings
from pathlib import Path

HOME = str(Path(__file__).parents[1])

# What the new process runs. Where it cannot find this package, it goes on without.
CODE = """
import sys
sys.path.append({home!r})
try:
    from gmlake import _children
except ImportError:
    pass
else:
    _children.enable({configuration!r})
"""


class Inherited:
    """The settings of the parent; unpacking it in the child enables them."""

    def __init__(self, configuration):
        self.configuration = configuration

    def __reduce__(self):
        return exec, (CODE.format(home=HOME, configuration=self.configuration),)


def enable(configuration):
    """Enables the allocator in a new process; later, if PyTorch is not there yet."""
    inherit(configuration)
    if "torch" in sys.modules:
        enable_or_warn(configuration)
    else:
        sys.meta_path.insert(0, AfterTorch(lambda: enable_or_warn(configuration)))


def enable_or_warn(configuration):
    """Enables the allocator, or goes on with PyTorch's own: what works there must not end here."""
    from . import _plugin

    try:
        _plugin.enable_configured(configuration)
    except _plugin.NotEnabled as problem:
        text = str(problem).removeprefix("gmlake: ")
        warnings.warn(f"gmlake: this process uses PyTorch's own allocator, not its parent's: {text}", stacklevel=2)


class AfterTorch:
    """Runs something once PyTorch has been imported."""

    def __init__(self, run):
        self.run = run

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load, run = spec.loader.exec_module, self.run

            def load_and_run(module):
                load(module)
                run()

            spec.loader.exec_module = load_and_run
        return spec


def inherit(configuration):
    """Lets every process that is spawned from now on have these settings."""
    usual = multiprocessing.spawn.get_preparation_data
    usual = getattr(usual, "usual", usual)

    def get_preparation_data(name):
        return {**usual(name), "gmlake": Inherited(configuration)}

    get_preparation_data.usual = usual
    multiprocessing.spawn.get_preparation_data = get_preparation_data
