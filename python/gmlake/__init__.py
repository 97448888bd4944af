"""GPU memory allocators for stock PyTorch.

    import gmlake
    gmlake.enable()                      # before anything is put on a GPU

From then on all GPU memory of this process comes from `lake`, or from the allocator that was named: any of those that
`gmlake-sim allocators` lists. `python -m gmlake run train.py` does the same for a script that is left as it is.
"""

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
