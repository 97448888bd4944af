"""vLLM: what it finds out while it starts, read off its own functions.

    LLMEngine, AsyncLLM: ready ─▶ the script ends here
      └─ EngineCore ─▶ get_kv_cache_configs: bytes and tokens of the KV cache, or its refusal
           └─ Worker ─▶ init_device, load_model, determine_available_memory, capture_model: weights, peak, graphs

Each may be in a process of its own. The functions are those of vLLM's V1 engine, seen in 0.26. What a version
does not have leaves its number unknown, and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Callable

from ..._imports import WhenImported
from . import requests
from .record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from ..order import Job, Order

# More tokens than any model reads: for the search of the longest context that memory allows.
ENDLESS = 1 << 31
# Contexts of which the answer says how many requests fit at once.
CONTEXTS = [1 << power for power in range(10, 21)]

# What lives as long as the process: an engine that is given up would end its processes before they are looked at.
KEPT: list[object] = []
WATCHING: list[Record] = []


def watch(job: Job, ready: Callable[[], object]) -> None:
    """Watches vLLM in this process, whenever it imports it. Calls `ready` once the server could serve."""
    if WATCHING:
        return  # what was hooked before a fork still is
    record = Record(job.stem)
    WATCHING.append(record)
    hooks: dict[str, Callable[[Record, ModuleType], object]] = {
        "vllm.version": hook_version,
        "vllm.v1.worker.gpu_worker": hook_worker,
        "vllm.v1.core.kv_cache_utils": hook_cache,
        "vllm.v1.engine.core": functools.partial(hook_engine, job.order),
        "vllm.v1.engine.llm_engine": functools.partial(hook_ready, "LLMEngine", ready),
        "vllm.v1.engine.async_llm": functools.partial(hook_ready, "AsyncLLM", ready),
    }
    for name, hook in hooks.items():
        WhenImported(name, functools.partial(hook, record))


def after(record: Record, owner: Any, name: str, then: Callable[[Any, Any], object]) -> None:
    """Has `then(self, result)` called behind a method. What goes wrong there leaves numbers unknown."""
    usual = getattr(owner, name, None)
    if owner is None or usual is None:
        return

    @functools.wraps(usual)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with record.failures():
            result = usual(self, *args, **kwargs)
        with contextlib.suppress(Exception):
            then(self, result)
        return result

    setattr(owner, name, call)


def hook_version(record: Record, module: ModuleType) -> None:
    """Which vLLM this is."""
    record.of(f"vLLM {getattr(module, '__version__', '?')}")


def hook_ready(name: str, ready: Callable[[], object], record: Record, module: ModuleType) -> None:
    """The front end's engine is there: a server could serve."""

    def then(engine: Any, _result: Any) -> None:
        KEPT.append(engine)
        record.ready()
        ready()

    after(record, getattr(module, name, None), "__init__", then)


def hook_engine(order: Order, record: Record, module: ModuleType) -> None:
    """The engine's process: its failures are the server's words. Once it is there, it serves the user's requests."""

    def then(engine: Any, _result: Any) -> None:
        if order.requests:
            try:
                facts: dict[str, Any] = {"requests": requests.serve(engine, requests.read(order.requests), order.step_ms)}
            except Exception as error:
                facts = {"unserved": str(error) or type(error).__name__}
            record.engine(engine_name(engine.vllm_config), **facts)

    after(record, getattr(module, "EngineCore", None), "__init__", then)


def hook_worker(record: Record, module: ModuleType) -> None:
    """A worker, which has one card."""
    kind = getattr(module, "Worker", None)

    def note(worker: Any, **facts: Any) -> None:
        record.worker(worker_name(worker), **facts)

    after(record, kind, "init_device", lambda worker, _: note(worker, **at_start(worker)))
    after(record, kind, "load_model", lambda worker, _: note(worker, **of_model(worker)))

    def profiled(worker: Any, available: Any) -> None:
        note(worker, **of_model(worker), **of_profile(worker), available_bytes=whole(available))
        runner = worker.model_runner
        capture = runner.capture_model

        def counted(*args: Any, **kwargs: Any) -> Any:
            taken = capture(*args, **kwargs)
            note(worker, graphs_bytes=whole(taken))
            return taken

        runner.capture_model = counted

    after(record, kind, "determine_available_memory", profiled)
    after(record, kind, "compile_or_warm_up_model", lambda worker, _: note(worker))


def worker_name(worker: Any) -> str:
    """The rank of a worker in its engine, behind that of the engine."""
    return f"{engine_name(worker.vllm_config)}.{worker.rank}"


def engine_name(config: Any) -> str:
    """The rank of an engine among those that serve the same model."""
    parallel = config.parallel_config
    return str(getattr(parallel, "data_parallel_index", None) or getattr(parallel, "data_parallel_rank", 0) or 0)


def whole(number: Any) -> int | None:
    """Bytes, where there is a number."""
    return int(number) if isinstance(number, (int, float)) else None


def at_start(worker: Any) -> dict[str, Any]:
    """The card before the model is there."""
    import torch

    card = torch.cuda.get_device_properties(worker.device)
    snapshot = getattr(worker, "init_snapshot", None)
    is_eager = getattr(worker.vllm_config.model_config, "enforce_eager", False)
    return {
        "device": card.name,
        "device_memory_bytes": card.total_memory,
        "outside_bytes": whole(getattr(snapshot, "non_torch_memory", None)),
        "requested_bytes": whole(getattr(worker, "requested_memory", None)),
        "graphs_bytes": 0 if is_eager else None,
    }


def of_model(worker: Any) -> dict[str, Any]:
    """The weights."""
    return {"weights_bytes": whole(getattr(worker.model_runner, "model_memory_usage", None))}


def of_profile(worker: Any) -> dict[str, Any]:
    """What the largest batch took, and what grew outside PyTorch meanwhile."""
    return {
        "activation_peak_bytes": whole(getattr(worker, "peak_activation_memory", None)),
        "growth_bytes": whole(getattr(worker, "non_torch_memory", None)),
        "graphs_estimate_bytes": whole(getattr(worker, "cudagraph_memory_estimate", None)),
    }


def hook_cache(record: Record, module: ModuleType) -> None:
    """The KV cache: what vLLM makes of the memory that is left."""
    usual = getattr(module, "get_kv_cache_configs", None)
    if usual is None:
        return

    def call(config: Any, specs: Any, available: Any, *args: Any, **kwargs: Any) -> Any:
        name = engine_name(config)
        with contextlib.suppress(Exception):
            record.engine(name, **of_settings(config))
        with record.failures():
            configs = usual(config, specs, available, *args, **kwargs)
        with contextlib.suppress(Exception):
            record.engine(name, **of_settings(config), cache_bytes=[cache_bytes(each) for each in configs])
        with contextlib.suppress(Exception):
            record.engine(name, **of_contexts(module, config, configs[0]))
        with contextlib.suppress(Exception):
            record.engine(name, longest_context_tokens=longest(module, config, configs, available))
        return configs

    module.get_kv_cache_configs = call  # type: ignore[attr-defined]


def of_settings(config: Any) -> dict[str, Any]:
    """The context that a request may have, and the part of the card that vLLM takes."""
    return {
        "context_tokens": whole(config.model_config.max_model_len),
        "gpu_memory_utilization": getattr(config.cache_config, "gpu_memory_utilization", None),
    }


def cache_bytes(config: Any) -> int:
    """Bytes of the tensors of a worker's KV cache."""
    return sum(tensor.size for tensor in config.kv_cache_tensors)


@contextlib.contextmanager
def context_of(config: Any, tokens: int) -> Any:
    """The server's settings with another length of the context, for the time of a question."""
    model = config.model_config
    own = model.max_model_len
    model.max_model_len = tokens
    try:
        yield
    finally:
        model.max_model_len = own


def of_contexts(module: Any, config: Any, cache: Any) -> dict[str, Any]:
    """Tokens in the cache, and how many requests of each length fit at once, as vLLM counts them."""
    if not cache.kv_cache_groups:
        return {}
    count = module.get_max_concurrency_for_kv_cache_config
    own = config.model_config.max_model_len
    at_once = []
    for tokens in sorted({*CONTEXTS, own}):
        with context_of(config, tokens):
            at_once.append((tokens, round(count(config, cache), 2)))
    return {
        "cache_tokens": int(count(config, cache) * own),
        "requests_at_once": [(tokens, count) for tokens, count in at_once if count >= 1],
    }


def longest(module: Any, config: Any, configs: Iterable[Any], available: Iterable[int]) -> int | None:
    """The longest context for which the memory is enough, whatever the model reads; None where memory sets no limit."""
    estimate = module._estimate_max_model_len_from_groups
    with context_of(config, ENDLESS):
        found = min(
            estimate(config, each.kv_cache_groups, bytes_) for each, bytes_ in zip(configs, available) if each.kv_cache_groups
        )
    return int(found) if found < ENDLESS else None
