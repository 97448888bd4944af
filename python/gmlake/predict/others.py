"""Other libraries that use a GPU: what the script has imported that `predict` cannot see, by name.

PyTorch and its extensions call a CUDA runtime that is a library of its own, and find ours. Others carry the runtime in
themselves; it asks the driver by `cuGetExportTable`, which is not documented and which the virtual GPU refuses.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .facts import Imported, Rank

# Modules of libraries that carry the CUDA runtime in themselves.
CARRIES = {
    "cupy": "CuPy", "cutlass": "CuTe DSL", "rmm": "RAPIDS", "pylibraft": "RAPIDS", "cudf": "RAPIDS", "cuml": "RAPIDS",
    "cugraph": "RAPIDS", "sgl_kernel": "SGLang", "sglang": "SGLang",
}

# Modules of frameworks that do not use PyTorch.
FRAMEWORKS = {"jax": "JAX", "tensorflow": "TensorFlow", "mxnet": "MXNet", "paddle": "PaddlePaddle"}

ASKED = "cuGetExportTable"


def facts() -> Imported:
    """The libraries of either kind that this process has imported."""
    return {
        "own_runtimes": sorted({name for module, name in CARRIES.items() if module in sys.modules}),
        "frameworks": sorted({name for module, name in FRAMEWORKS.items() if module in sys.modules}),
    }


def runtime_of(who: str) -> str:
    """The line about a runtime that has asked the driver."""
    return (f"{who} has a CUDA runtime linked into it, which does not run on the virtual GPU; predict sees PyTorch and "
            "libraries that use PyTorch's CUDA runtime")


def notes(rank: Rank) -> Iterator[str]:
    """What to say of them, a line each."""
    if ASKED in rank.unwritten:
        yield runtime_of(" and ".join(rank.own_runtimes or []) or "a library of the script")
    if not rank.requests and rank.frameworks:
        yield f"only PyTorch is predicted; what {' and '.join(rank.frameworks)} asks for is not seen"
