"""GPU memory allocators for stock PyTorch.

    import gmlake
    gmlake.enable()                      # before anything is put on a GPU

From then on all GPU memory of this process comes from `lake`, or from the allocator that was named: any of those that
`gmlake-sim allocators` lists. `python -m gmlake run train.py` does the same for a script that is left as it is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._enable import enable
    from ._plugin import (
        NotEnabled,
        check,
        enabled,
        mounted,
        record_history,
        reset_peak,
        snapshot,
        stats,
    )
    from ._record import record
    from ._sleep import free_host, sleep, tag, wake
    from .ledger import NoMonitor, card, watch

__version__ = "0.1.0"
__all__ = [
    "NoMonitor",
    "NotEnabled",
    "card",
    "check",
    "enable",
    "enabled",
    "free_host",
    "mounted",
    "record",
    "record_history",
    "reset_peak",
    "sleep",
    "snapshot",
    "stats",
    "tag",
    "wake",
    "watch",
]

# Where each of these is. They are imported when they are first used, since most programs need few of them.
_PLACES = {
    "_enable": ["enable"],
    "_plugin": [
        "NotEnabled", "check", "enabled", "mounted", "record_history", "reset_peak", "snapshot", "stats",
    ],
    "_record": ["record"],
    "_sleep": ["free_host", "sleep", "tag", "wake"],
    "ledger": ["NoMonitor", "card", "watch"],
}


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f".{place}", __name__), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
