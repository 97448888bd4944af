"""Spawned processes get the allocator of their parent.

`multiprocessing` hands a new process an object with what it is to run. Ours is handed over with it, as the last of its
attributes, and enables the allocator as it is unpacked: before the process runs anything, and without a GPU being
opened, which a process that only loads data has no use for.
"""

import multiprocessing.context
import sys


class Inherited:
    """The settings of the parent; unpacking it in the child enables them."""

    def __init__(self, configuration):
        self.configuration = configuration

    def __reduce__(self):
        return _enable, (self.configuration,)


def _enable(configuration):
    """Enables the allocator in a new process; later, if PyTorch is not there yet."""
    from . import _plugin

    def now():
        _plugin.enable_configured(configuration)

    if "torch" in sys.modules:
        now()
    else:
        sys.meta_path.insert(0, AfterTorch(now))
    return Inherited(configuration)


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
    for name in ("SpawnProcess", "ForkServerProcess"):
        kind = getattr(multiprocessing.context, name, None)
        if kind is None or hasattr(kind._Popen, "gmlake"):
            continue
        original = kind._Popen

        def start(process, original=original):
            process._gmlake = Inherited(configuration)
            try:
                return original(process)
            finally:
                del process._gmlake

        start.gmlake = True
        kind._Popen = staticmethod(start)
