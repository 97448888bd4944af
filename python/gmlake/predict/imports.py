"""Imports: a way to be there when the script imports a module, which may be never."""

import importlib.abc
import importlib.util
import sys


class WhenImported(importlib.abc.MetaPathFinder):
    """Calls a function with a module as soon as the script has imported it."""

    def __init__(self, name, then):
        self._name, self._then = name, then
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path, target=None):
        """Finds the module by the usual ways, and has `then` called behind it."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            usual = spec.loader.exec_module

            def exec_module(module):
                usual(module)
                self._then(module)

            spec.loader.exec_module = exec_module
        return spec
