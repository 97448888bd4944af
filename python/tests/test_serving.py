"""What `python -m gmlake predict --serve` says of a server that stands in for vLLM: its modules, and the functions that are read.

As `test_predict.py`: without a PyTorch wheel for CUDA it tests only what needs none, and says so. The real one is
`stacks vllm-serve`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gmlake.predict import options
from gmlake.predict.order import Job, Order
from gmlake.predict.serving import answer, chart, record, vllm
from gmlake.predict.serving.verdict import verdict
from test_predict import raises, result, run_all

MIB = 1 << 20

# A token of the cache takes 1 KiB.
VLLM = {
    "__init__": "from .version import __version__",
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


def package(folder):
    """Writes the package that stands in for vLLM."""
    for name, text in VLLM.items():
        path = Path(folder, "vllm", f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def serve(*arguments, before=()):
    """The exit code, the result in JSON, what is printed, and messages."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "serve.py").write_text(SERVER)
        paths = [package(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "gmlake", "predict", "--serve", *before, "--json", "a.json", "serve.py", *arguments]
        done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
        path = Path(folder, "a.json")
        return done.returncode, result(json.loads(path.read_text())) if path.exists() else None, done.stdout, done.stderr


# Without PyTorch.


def worker(**facts):
    return {"device": "H100", "weights_bytes": 3, "outside_bytes": 5, "growth_bytes": 2, "available_bytes": 90, **facts}


def content(**facts):
    return {**record.empty(), "version": "vLLM 1", **facts}


def failure(at, text, is_memory=False):
    return {"at": at, "text": text, "is_memory": is_memory}


def test_ranks_of_all_engines_are_counted_through():
    caches = {"cache_tokens": 8, "context_tokens": 4, "requests_at_once": [[4, 2.0]], "longest_context_tokens": 8}
    found = verdict([
        content(workers={"1.0": worker(), "1.10": worker(weights_bytes=4)}, host_memory_bytes=10),
        content(workers={"0.2": worker()}, engines={"0": {"cache_bytes": [6, 7, 8], **caches}}, host_memory_bytes=5),
        content(workers={"2.0": worker(available_bytes=-7)}),
        content(is_ready=True),
    ], None, 1.0)
    assert found.starts and found.version == "vLLM 1" and found.host_memory_bytes == 15, found
    assert [each.rank for each in found.ranks] == [0, 1, 2, 3] and found.ranks[2].server.weights_bytes == 4, found.ranks
    assert found.ranks[3].server.kv_cache_bytes == 0, "less than nothing is left"
    first, second = found.ranks[0].server, found.ranks[1].server
    assert (first.kv_cache_bytes, first.kv_cache_tokens, first.non_torch_bytes) == (8, 8, 7), first
    assert (second.kv_cache_bytes, second.kv_cache_tokens) == (90, None), second
    assert first.requests_at_once == [{"tokens": 4, "requests": 2.0}], first
    assert "2.0 requests of 4 tokens" in answer.sentence(found)


def test_the_reason_is_the_first_word_on_memory_or_the_first_of_all():
    late, early = failure(2, "ValueError: KV cache is needed", True), failure(1, "RuntimeError: it broke")
    refused = verdict([content(failures=[early]), content(failures=[late])], "the front end's words", 0)
    assert refused.starts is False and refused.reason == late["text"], refused
    broken = verdict([content(failures=[failure(3, "later")]), content(failures=[early])], "the front end's words", 0)
    assert broken.starts is None and broken.reason == early["text"], broken
    alone = verdict([], "it ended by sys.exit(2)", 0)
    assert alone.starts is None and alone.reason == "it ended by sys.exit(2)" and len(alone.ranks) == 1, alone
    compiled = verdict([content(failures=[failure(1, "RuntimeError: Could not find nvcc")])], None, 0)
    assert "VLLM_USE_FLASHINFER_SAMPLER=0" in " ".join(answer.notes(compiled)), list(answer.notes(compiled))


def test_a_number_that_is_not_there_is_unknown_and_nothing_else():
    with tempfile.TemporaryDirectory() as folder:
        own = record.Record(f"{folder}/x")

        class Worker:
            def load_model(self):
                self.vllm_config = None  # another version

            def determine_available_memory(self):
                raise MemoryError("CUDA out of memory")

        class Module:
            pass

        Module.Worker = Worker
        vllm.hook_worker(own, Module)
        vllm.hook_cache(own, Module)
        vllm.hook_engine(own, Module)
        each = Worker()
        each.load_model()
        try:
            each.determine_available_memory()
        except MemoryError:
            pass
        else:
            raise AssertionError("the error is lost")
        (found,) = record.read(f"{folder}/x")
        assert not os.listdir(folder) and not found["workers"], found
        (why,) = found["failures"]
        assert why["is_memory"] and "CUDA out of memory" in why["text"] and why["at"] <= time.time(), why


def test_a_chart_has_a_bar_for_each_configuration_and_says_how_it_ends():
    from xml.etree import ElementTree

    full = {"activation_peak_bytes": 1, "device_memory_bytes": 100 << 30, "weights_bytes": 20 << 30, "available_bytes": 50 << 30}
    starts = verdict([content(workers={"0.0": worker(**full)}, engines={"0": {"cache_tokens": 4096}}, is_ready=True)], None, 0)
    refused = verdict([content(workers={"0.0": worker(**full)}, failures=[failure(1, "cache is needed", True)])], None, 0)
    failed = verdict([], "no such folder", 0)
    assert chart.svg([({"gpu": "x"}, failed)]) == "", "there is no card to draw"
    picture = ElementTree.fromstring(chart.svg([({"gpu": "a<b"}, starts), ({"gpu": "c"}, refused), ({"gpu": "d"}, failed)]))
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    for words in ("a<b", "4,096 tokens", "does not start", "failed"):
        assert words in texts, texts
    boxes = [each.attrib for each in picture.iter("{http://www.w3.org/2000/svg}rect") if each.get("height") == "22"]
    weights, cache = (float(boxes[place]["width"]) for place in (0, 3))
    assert abs(cache / weights - 2.5) < 0.01, boxes
    assert [each.get("fill-opacity") for each in boxes if each["fill"] == chart.COLOURS["KV cache"]] == [None, "0.3"], boxes


def test_a_server_needs_no_options_of_ranks_or_steps():
    import argparse

    parser = argparse.ArgumentParser()
    options.add(parser.add_subparsers())

    def ordered(*words):
        return options.order_of(parser.parse_args(["predict", "--serve", *words, sys.executable]), ["H100 80GB"])

    for words in (["--world", "2"], ["--steps", "3"], ["--ranks", "0"]):
        raises(f"{words[0]} does not work with --serve", ordered, *words)
    order = ordered("--vary", "a=1,2", "--gpu", "h100-80gb")
    assert order.gpus == 8 and order.memory is None and order.serve, order
    assert Job.from_json(Job(order, True, False, "a.pickle", "b").to_json()).order == order
    assert Order.of(parser.parse_args(["predict", "x"])).serve is False


# With PyTorch.


def test_a_server_that_starts_says_what_it_uses():
    code, found, shown, said = serve("--ranks", "2", "--context", "1024")
    assert code == 0 and found["starts"] is True and found["version"] == "vLLM 0.0.1", said
    assert [each["rank"] for each in found["ranks"]] == [0, 1] and "H200" in found["ranks"][0]["device"], found
    server = found["ranks"][1]["server"]
    expected = {
        "weights_bytes": 3 * MIB, "activation_peak_bytes": 2 * MIB, "graphs_bytes": 5 * MIB, "graphs_estimate_bytes": 4 * MIB,
        "non_torch_bytes": 701 * MIB, "kv_cache_bytes": 64 * MIB, "kv_cache_tokens": 65536, "longest_context_tokens": 65536,
    }
    assert {name: server[name] for name in expected} == expected, server
    assert {"tokens": 8192, "requests": 8.0} in server["requests_at_once"], server
    assert "64.0 requests of 1,024 tokens fit at once" in shown and shown.count("64.00 MiB") == 2, shown


def test_a_server_in_one_process_ends_when_it_is_ready():
    code, found, _, said = serve("--alone", "true", "--eager", "true")
    assert code == 0 and found["ranks"][0]["server"]["graphs_bytes"] == 0, said


def test_a_server_that_refuses_to_start_is_an_answer_in_its_own_words():
    code, found, shown, said = serve("--context", "131072")
    server = found["ranks"][0]["server"]
    assert code == 1 and found["starts"] is False and server["longest_context_tokens"] == 65536, said
    assert "the longest context that fits has 65,536 tokens" in shown, shown
    assert "its words: ValueError: (131072), KV cache is needed." in said, said
    code, found, _, said = serve("--breaks", '"weights"')
    assert code == 1 and "OutOfMemoryError" in found["reason"] and found["ranks"][0]["server"]["weights_bytes"] is None, said


def test_what_is_no_question_of_memory_is_wrong_usage():
    code, found, _, said = serve("--model", '"no/model"')
    assert code == 2 and found["starts"] is None and "no/model: no such folder" in said, said
    assert "did not import vLLM" not in said, said
    code, _, _, said = serve("--breaks", '"compiler"')
    assert code == 2 and "Could not find nvcc" in said and "VLLM_USE_FLASHINFER_SAMPLER=0" in said, said


def test_a_script_without_vllm_is_told_so():
    code, found, _, said = serve("--another", "1")
    assert code == 2 and found["reason"] == "the script ended before a server was ready" and "did not import vLLM" in said, said


def test_a_server_with_a_cuda_runtime_of_its_own_is_told_so_in_a_line():
    for module, name in [("sgl_kernel", "SGLang"), ("sglang", "SGLang"), ("", "a library of the script")]:
        code, found, _, said = serve("--runtime", json.dumps(module))
        (line,) = [line for line in said.splitlines() if "CUDA runtime linked into it" in line]
        assert code == 2 and line.startswith(f"gmlake: {name} has a CUDA runtime") and line[8:] == found["hint"], said
        assert "did not import vLLM" not in said and "initialization error" in found["reason"], said


def test_servers_are_varied_over_cards_and_settings():
    code, found, shown, said = serve("--alone", "true", before=["--vary", "context=1024,131072", "--vary", "gpu=h200,rtx-4090"])
    assert code == 0, said
    assert [each["starts"] for each in found["configurations"]] == [True, False, True, False], found
    assert {each["ranks"][0]["device"] for each in found["configurations"]} == {"NVIDIA H200", "NVIDIA GeForce RTX 4090"}, found
    assert len(shown.splitlines()) == 6 and "131072, h200      no" in shown, shown


if __name__ == "__main__":
    run_all(list(globals().items()), "test_a_server_that_starts_says_what_it_uses", "no server was started")
