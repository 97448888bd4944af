"""A package that stands in for vLLM: the modules and functions that `predict --serve` reads, and a script that starts it."""

# A token of the cache takes 1 KiB.
VLLM = {
    "__init__": "from types import SimpleNamespace as SamplingParams; from .version import __version__",
    "v1/engine/__init__": "from types import SimpleNamespace as EngineCoreRequest",
    "v1/outputs": "from types import SimpleNamespace as ModelRunnerOutput",
    "version": "__version__ = '0.0.1'",
    "v1/worker/gpu_worker": """
import torch

class Runner:
    model_memory_usage = 3 << 20
    def capture_model(self):
        return 5 << 20

class Snapshot:
    non_torch_memory = 700 << 20

class Worker:
    def __init__(self, config, rank):
        self.vllm_config, self.rank = config, rank
    def init_device(self):
        self.device = torch.device("cuda", self.rank)
        torch.zeros(1, device=self.device)
        self.init_snapshot, self.requested_memory = Snapshot(), 1 << 30
    def load_model(self):
        if self.vllm_config.breaks == "weights":
            torch.empty(1 << 50, device=self.device)
        self.model_runner = Runner()
        # Packed weights are not computed, and read as zeros; few numbers are.
        packed, few = (torch.ones(size, dtype=torch.int32, device=self.device) for size in (1 << 20, 8))
        self.model_runner.model_memory_usage += int(packed.sum()) + int(few.sum()) - 8
    def determine_available_memory(self):
        self.peak_activation_memory, self.non_torch_memory, self.cudagraph_memory_estimate = 2 << 20, 1 << 20, 4 << 20
        if self.vllm_config.breaks == "compiler":
            raise RuntimeError("Could not find nvcc")
        return self.vllm_config.available
    def compile_or_warm_up_model(self):
        if not self.vllm_config.model_config.enforce_eager:
            self.model_runner.capture_model()
""",
    "v1/core/kv_cache_utils": """
class Tensor:
    def __init__(self, size):
        self.size = size

class Config:
    def __init__(self, size):
        self.kv_cache_tensors, self.kv_cache_groups = [Tensor(size // 2), Tensor(size // 2)], ["all layers"]

def get_max_concurrency_for_kv_cache_config(config, cache):
    return sum(each.size for each in cache.kv_cache_tensors) / 1024 / config.model_config.max_model_len

def _estimate_max_model_len_from_groups(config, groups, available):
    return min(available >> 10, config.model_config.max_model_len)

def get_kv_cache_configs(config, specs, available):
    fits, wanted = min(available) >> 10, config.model_config.max_model_len
    if wanted > fits:
        words = f"Based on the available memory, the estimated maximum model length is {fits}. "
        raise ValueError(f"({wanted}), KV cache is needed. {words}")
    return [Config(each) for each in available]
""",
    "v1/engine/core": """
from types import SimpleNamespace
from ..core.kv_cache_utils import get_kv_cache_configs
from ..worker.gpu_worker import Worker

class EngineCore:
    def __init__(self, config):
        workers = [Worker(config, rank) for rank in range(config.ranks)]
        for name in ["init_device", "load_model"]:
            for each in workers:
                getattr(each, name)()
        available = [each.determine_available_memory() for each in workers]
        get_kv_cache_configs(config, [{}] * len(workers), available)
        for each in workers:
            each.compile_or_warm_up_model()
        self.vllm_config, self.model_executor, self.batch_queue = config, None, None
        self.scheduler = Scheduler()
        self.preprocess_add_request = lambda asked: (Request(asked), 0)
        self.add_request = lambda request, wave: self.scheduler.waiting.append(request)

    def step_fn(self):
        scheduled = self.scheduler.schedule()
        out = self.model_executor.execute_model(scheduled, non_block=True).result()
        self.scheduler.update(out or self.model_executor.sample_tokens(None))

class Request:
    def __init__(self, asked):
        self.request_id, self.num_tokens = asked.request_id, len(asked.prompt_token_ids)
        self.ends = self.num_tokens + asked.sampling_params.max_tokens
        self.num_computed_tokens = self.num_preemptions = 0

class Scheduler:
    # Room for 100 tokens, and 40 a step; the last request goes back to the queue when there is none left.
    def __init__(self):
        self.waiting, self.running = [], []

    requests = property(lambda self: {each.request_id: each for each in self.running})
    kv_cache_manager = property(lambda self: SimpleNamespace(usage=self.held() / 100))

    def held(self):
        return sum(each.num_computed_tokens for each in self.running)

    def has_requests(self):
        return bool(self.waiting or self.running)

    def get_request_counts(self):
        return len(self.running), len(self.waiting)

    def schedule(self):
        left, parts = 40, {}
        while self.waiting and sum(each.num_tokens for each in [*self.running, self.waiting[0]]) <= 100:
            self.running.append(self.waiting.pop(0))
        for each in list(self.running):
            if each in self.running:
                part = min(left, each.num_tokens - each.num_computed_tokens)
                while each in self.running and self.held() + part > 100:
                    victim = self.running.pop()
                    victim.num_computed_tokens, victim.num_preemptions = 0, victim.num_preemptions + 1
                    parts.pop(victim.request_id, None)
                    self.waiting.insert(0, victim)
                if each in self.running:
                    parts[each.request_id], left = part, left - part
                    each.num_computed_tokens += part
        return SimpleNamespace(num_scheduled_tokens=parts, total_num_scheduled_tokens=sum(parts.values()))

    def update(self, out):
        for name, tokens in zip(out.req_ids, out.sampled_token_ids):
            self.requests[name].num_tokens += len(tokens)
        self.running = [each for each in self.running if each.num_tokens < each.ends]

def main(config):
    EngineCore(config)
    import time
    print("engine runs", flush=True)
    time.sleep(600)
""",
    "v1/engine/llm_engine": """
import multiprocessing, subprocess, sys

class LLMEngine:
    def __init__(self, config):
        if config.alone:
            from .core import EngineCore
            EngineCore(config)
            return
        code = f"from vllm.config import Config; from vllm.v1.engine.core import main; main(Config({config.given!r}))"
        self.engine = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        if not self.engine.stdout.readline():
            raise RuntimeError("Engine core initialization failed. See root cause above.")
""",
    "config": """
class Part:
    max_model_len, enforce_eager, data_parallel_index, gpu_memory_utilization = 4096, False, 0, 0.9
    data_parallel_size = 1

class Config:
    available, ranks, alone, breaks = 64 << 20, 1, False, ""
    def __init__(self, given):
        self.given = given
        self.model_config = self.parallel_config = self.cache_config = Part()
        self.model_config.max_model_len = given.pop("context", 4096)
        self.model_config.enforce_eager = given.pop("eager", False)
        self.given = dict(given, context=self.model_config.max_model_len, eager=self.model_config.enforce_eager)
        self.__dict__.update(given)
""",
}

SERVER = """
import json, sys
given = {name[2:]: json.loads(value) for name, value in zip(sys.argv[1::2], sys.argv[2::2])}
if "another" in given:
    sys.exit(0)
if "runtime" in given:
    # What a CUDA runtime does first that is linked into a library, such as SGLang's kernels.
    import ctypes, torch
    if given["runtime"]:
        sys.modules[given["runtime"]] = torch
    torch.zeros(1, device="cuda")
    table = ctypes.c_void_p()
    # SGLang asks in another process.
    if given["runtime"] == "sglang" or ctypes.CDLL("libcuda.so.1").cuGetExportTable(ctypes.byref(table), bytes(16)):
        raise RuntimeError("CUDA error: initialization error")
import vllm
if "model" in given:
    sys.exit(f"{given['model']}: no such folder")
from vllm.config import Config
from vllm.v1.engine.llm_engine import LLMEngine
LLMEngine(Config(given))
raise AssertionError("the script runs on behind its server")
"""
