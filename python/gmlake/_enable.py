"""Enabling: the allocator in this process, and in those that it spawns.

`multiprocessing` sends a new process what it needs to prepare itself, and after that what it is to run. Between the two,
the process imports the main module, which may use a GPU at once. So ours travels with the first part: as it is unpacked,
it has the allocator put in place as soon as PyTorch has been imported, whoever imports it. No GPU is opened, which a
process that only loads data has no use for.

    parent   enable ──▶ _plugin: the library in PyTorch
                └─────▶ inherit ─ ─ spawn ─ ─▶ child   enable_in_child ──▶ enable, once PyTorch is there
"""

from __future__ import annotations

import multiprocessing.spawn
import sys
import warnings
from pathlib import Path
from typing import Any, Callable

from . import _plugin
from ._imports import WhenImported

HOME = str(Path(__file__).parents[1])

# What the new process runs. Where it cannot find this package, it goes on without.
CODE = """
import sys
sys.path.append({home!r})
try:
    from gmlake import _enable
except ImportError:
    pass
else:
    _enable.enable_in_child({configuration!r})
"""


class Inherited:
    """The settings of the parent; unpacking it in the child enables them."""

    def __init__(self, configuration: str) -> None:
        self.configuration = configuration

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return exec, (CODE.format(home=HOME, configuration=self.configuration),)


def enable(allocator: str | None = None, **options: object) -> None:
    """Lets all GPU memory of this process come from `allocator` (by default the best that there is).

    To be called before PyTorch puts anything on a GPU. Options are those that `gmlake-sim allocators` lists, and
    `record=True` (keep a history for `snapshot`) and `poison=True` (a slow mode that finds writes to freed memory).
    With `host=True` pinned host memory has the sizes that are requested; `enable("stock", host=True)` leaves the GPU's
    memory to PyTorch. What is not given here is taken from the environment variable GMLAKE_CONF.

    Raises `NotEnabled` if PyTorch or a GPU is missing or it is too late, and ValueError for a wrong name or option.
    """
    enable_configured(_plugin.configuration(allocator, options), check_first=True)


def enable_configured(configuration: str, check_first: bool = False) -> None:
    """The same with settings in the syntax of GMLAKE_CONF. A GPU is opened only to look whether there is one."""
    if _plugin.put_in_place(configuration, check_first):
        inherit(configuration)


def enable_in_child(configuration: str) -> None:
    """Enables the allocator in a new process; later, if PyTorch is not there yet."""
    inherit(configuration)
    if "torch" in sys.modules:
        enable_or_warn(configuration)
    else:
        WhenImported("torch", lambda _torch: enable_or_warn(configuration))


def enable_or_warn(configuration: str) -> None:
    """Enables the allocator, or goes on with PyTorch's own: what works there must not end here."""
    try:
        enable_configured(configuration)
    except _plugin.NotEnabled as problem:
        text = str(problem).removeprefix("gmlake: ")
        warnings.warn(f"gmlake: this process uses PyTorch's own allocator, not its parent's: {text}", stacklevel=2)


def inherit(configuration: str) -> None:
    """Lets every process that is spawned from now on have these settings."""
    found: Any = multiprocessing.spawn.get_preparation_data
    usual = getattr(found, "usual", found)

    def get_preparation_data(name: str) -> dict[str, object]:
        return {**usual(name), "gmlake": Inherited(configuration)}

    get_preparation_data.usual = usual  # type: ignore[attr-defined]
    multiprocessing.spawn.get_preparation_data = get_preparation_data
