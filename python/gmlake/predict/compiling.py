"""The compiler behind torch.compile, which takes a second to import.

Every optimizer imports it, to say what it must not compile. Where no one has imported it to compile something, there is
nobody to be told. So large an import also has Python collect its garbage, tensors in it included; that stays. In a
PyTorch without the functions that are looked for, all is as usual.
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import TYPE_CHECKING, Any, Callable

from .._imports import WhenImported

if TYPE_CHECKING:
    from types import ModuleType


def spare() -> None:
    """Keeps PyTorch, which is not imported yet, from importing the compiler for its own sake."""
    WhenImported("torch._compile", _tell_nobody)
    WhenImported("torch.optim.optimizer", _break_nothing)


def _is_loaded() -> bool:
    """Whether there is somebody to be told."""
    if "torch._dynamo" in sys.modules:
        return True
    _collect()
    return False


@functools.cache
def _collect() -> None:
    """Collects garbage once, as the import would have done."""
    if gc.isenabled():
        gc.collect()


def _tell_nobody(module: ModuleType) -> None:
    """Functions that are not to be compiled are called as they are."""
    usual = getattr(module, "_disable_dynamo", None)
    if usual is None:
        return

    def disable(fn: Callable[..., Any] | None = None, *given: Any, **options: Any) -> Callable[..., Any]:
        if fn is None:
            return lambda fn: disable(fn, *given, **options)
        return _unless_loaded(fn, usual(fn, *given, **options))

    module._disable_dynamo = disable  # type: ignore[attr-defined]


def _break_nothing(module: ModuleType) -> None:
    """Steps of optimizers keep no gradients, and break no graph."""
    usual = getattr(module, "_use_grad_for_differentiable", None)
    if usual is None:
        return

    def decorated(step: Callable[..., Any]) -> Callable[..., Any]:
        def plain(*args: Any, **kwargs: Any) -> Any:
            with sys.modules["torch"].set_grad_enabled(args[0].defaults["differentiable"]):
                return step(*args, **kwargs)

        return _unless_loaded(functools.wraps(step)(plain), usual(step))

    module._use_grad_for_differentiable = decorated  # type: ignore[attr-defined]


def _unless_loaded(plain: Callable[..., Any], told: Callable[..., Any]) -> Callable[..., Any]:
    """Calls `plain` as long as there is nobody to be told."""

    @functools.wraps(plain)
    def own(*args: Any, **kwargs: Any) -> Any:
        return (told if _is_loaded() else plain)(*args, **kwargs)

    return own
