"""Requests to a started server, served by vLLM's own scheduler: a model stands in that knows how many tokens it says.

    FILE: arrival_s,prompt_tokens,output_tokens
      ▼
    engine.add_request ─▶ engine.step_fn ─▶ scheduler: admits, cuts prompts into chunks, preempts
              ▲                 │ tokens of each request
              └──── tokens ── Model     a step takes as long as the user says, or requests arrive all at once

Blocks of the KV cache, budgets and the queue are the server's. What a step takes is not known without a GPU.
"""

from __future__ import annotations

import csv
import math
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypedDict

from .. import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = ["arrival_s", "prompt_tokens", "output_tokens"]
ROUNDING = 1e-9  # seconds
IDLE = 1000  # steps without a token after which nothing more is expected


class Request(NamedTuple):
    """A request: when it comes, in seconds, how many tokens it has, and how many the model says."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


class Served(TypedDict):
    """What became of the requests, and the most that were running, waited, and took of the KV cache at a time.

    `seconds` is None where no time of a step was given, `kv_share` a part of 1; the last two are of one rank.
    """

    requests: int
    too_long: int
    preemptions: int
    steps: int
    seconds: float | None
    running: int
    queue: int
    kv_share: float
    kv_tokens: int | None
    kv_bytes: int | None


def read(path: str) -> list[Request]:
    """The requests in a file, the earliest first."""
    try:
        with open(path, newline="") as file:
            lines = csv.DictReader(file)
            if sorted(lines.fieldnames or []) != sorted(COLUMNS):
                raise Problem(f"{path}, line 1: invalid header; expected {','.join(COLUMNS)}")
            found = [request(line, f"{path}, line {lines.line_num}") for line in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Problem(f"--requests {path}: {getattr(error, 'strerror', None) or error}") from error
    if not found:
        raise Problem(f"{path}: no requests; expected a line for each")
    return sorted(found)


def request(line: dict[str, str], where: str) -> Request:
    """The request in a line."""
    def number(name: str, is_valid: Callable[[float], bool], expected: str) -> float:
        text = line[name]
        try:
            if is_valid(found := float(text)):
                return found
        except (TypeError, ValueError):
            pass
        raise Problem(f'{where}: invalid {name} "{text or ""}"; expected {expected}')

    if None in line:
        raise Problem(f"{where}: too many columns; expected {','.join(COLUMNS)}")
    arrival = number(COLUMNS[0], lambda found: 0 <= found < math.inf, "seconds, at least 0")
    prompt, output = (
        int(number(name, lambda found: found >= 1 and found.is_integer(), "a whole number, at least 1"))
        for name in COLUMNS[1:]
    )
    return Request(arrival, prompt, output)


class Model:
    """Stands in for the executor of the model, and looks at the scheduler whenever it is called."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._said: Any = None
        self.steps = self.running = self.queue = 0
        self.kv_share = 0.0

    def execute_model(self, scheduled: Any, non_block: bool = False) -> Any:
        """A step; the tokens come by `sample_tokens`, if there are any."""
        it = self._scheduler
        self.steps += bool(scheduled.total_num_scheduled_tokens)
        running, queue = it.get_request_counts()
        self.running, self.queue = max(self.running, running), max(self.queue, queue)
        self.kv_share = max(self.kv_share, it.kv_cache_manager.usage)
        self._said = output([it.requests[name] for name in scheduled.num_scheduled_tokens])
        return given(None if scheduled.total_num_scheduled_tokens else self._said, non_block)

    def sample_tokens(self, _grammar: Any, non_block: bool = False) -> Any:
        """The tokens of the last step."""
        return given(self._said, non_block)


def given(result: Any, non_block: bool) -> Any:
    """A result, as vLLM asks for it."""
    if not non_block:
        return result
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def output(requests: list[Any]) -> Any:
    """A token of each request whose prompt is read, whatever token it is."""
    from vllm.v1.outputs import ModelRunnerOutput

    return ModelRunnerOutput(
        req_ids=[each.request_id for each in requests],
        req_id_to_index={each.request_id: place for place, each in enumerate(requests)},
        sampled_token_ids=[[0] if each.num_computed_tokens >= each.num_tokens else [] for each in requests],
    )


def serve(engine: Any, requests: Iterable[Request], step_ms: float | None) -> Served:
    """Serves the requests with the scheduler of a vLLM engine, which keeps none of them."""
    if engine.vllm_config.parallel_config.data_parallel_size > 1:
        raise Problem("requests are not shared out between data-parallel engines")
    coming = deque(enumerate(requests))
    total, kept = len(coming), []
    longest = engine.vllm_config.model_config.max_model_len
    own, engine.model_executor = engine.model_executor, Model(engine.scheduler)
    model, idle, waited = engine.model_executor, 0, 0.0

    def now() -> float:
        return math.inf if step_ms is None else waited + model.steps * step_ms / 1000

    try:
        while coming or engine.scheduler.has_requests() or engine.batch_queue:
            while coming and coming[0][1].arrival_s <= now() + ROUNDING:
                number, each = coming.popleft()
                if each.prompt_tokens < longest:
                    kept.append(added(engine, number, each))
            if coming and not engine.scheduler.has_requests() and not engine.batch_queue:
                waited += coming[0][1].arrival_s - now()
                continue
            before = model.steps
            engine.step_fn()
            idle = idle + 1 if model.steps == before else 0
            if idle == IDLE:
                raise RuntimeError("the scheduler holds requests, and runs none")
    finally:
        engine.model_executor = own
    return Served(
        requests=total, too_long=total - len(kept), preemptions=sum(each.num_preemptions for each in kept), steps=model.steps,
        seconds=None if step_ms is None else round(now(), 3), running=model.running, queue=model.queue,
        kv_share=model.kv_share, kv_tokens=None, kv_bytes=None,
    )


def added(engine: Any, number: int, request: Request) -> Any:
    """Hands a request to the engine; no two begin alike, so that none has its prompt in the cache."""
    from vllm import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    asked = EngineCoreRequest(
        request_id=f"gmlake-{number}", prompt_token_ids=[number, *[0] * (request.prompt_tokens - 1)], mm_features=None,
        sampling_params=SamplingParams(max_tokens=request.output_tokens, ignore_eos=True), pooling_params=None,
        arrival_time=request.arrival_s, lora_request=None, cache_salt=None, data_parallel_rank=None,
    )
    found, wave = engine.preprocess_add_request(asked)
    engine.add_request(found, wave)
    return found
