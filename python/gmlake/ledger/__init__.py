"""The card's memory by owner: `gmlake.card()` inside a program, `python -m gmlake card` beside it.

    NVML: memory of the card in use
    ├─ this process, by NVML's list
    │   ├─ PyTorch's allocator: live, cached, by pool                    PyTorch says
    │   ├─ libraries that asked the driver themselves, NCCL among them   `watch` says, or NCCL
    │   └─ the driver's own: context, kernels, graphs                    what is left, next to what beside.csv expects
    ├─ other processes                                                   by NVML's list
    └─ unexplained                                                       what is more than expected
"""

from .monitor import NoMonitor
from .sheet import Card, Entry, card
from .watching import watch

__all__ = ["Card", "Entry", "NoMonitor", "card", "watch"]
