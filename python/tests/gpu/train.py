"""One fine-tuning run on one allocator: losses, times, memory as PyTorch, the allocator and the driver see it.

usage: train.py MODE RESULT.json [--model opt-1.3b] [--batch 32] [--length 1024] [--steps 10] [--fixed] [--fraction F]
                [--trace FILE]
MODE: stock, expandable (PyTorch's own with expandable_segments:True), or one of our allocators, also with options, such
as gmlake,chunk=32MiB
"""

import argparse
import json
import os
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("mode")
parser.add_argument("result")
parser.add_argument("--model", default="opt-1.3b")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--fixed", action="store_true", help="all sequences as long as they may be")
parser.add_argument("--fraction", type=float, default=1.0)
parser.add_argument("--trace", help="record, and write a snapshot here (ours only)")
given = parser.parse_args()
if given.mode == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402

OURS = given.mode not in ("stock", "expandable")
if OURS:
    import gmlake

    name, *options = given.mode.split(",")
    gmlake.enable(name, **dict(each.split("=") for each in options), record=bool(given.trace))
# The same order of additions in every run: losses can then be compared digit by digit.
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = False
torch.manual_seed(0)

from model import MODELS, Batches, build  # noqa: E402


class DriverMemory(threading.Thread):
    """The most GPU memory that the driver reports as used, looked at every few milliseconds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.going = 0, True
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.read, self.source = (lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used), "nvml"
        except Exception as error:  # no NVML here: the runtime's numbers, from this thread
            self.read, self.source = self.runtime, f"cudaMemGetInfo ({error})"
        self.before = self.read() if self.source == "nvml" else 0

    @staticmethod
    def runtime():
        free, total = torch.cuda.mem_get_info()
        return total - free

    def run(self):
        while self.going:
            self.peak = max(self.peak, self.read())
            time.sleep(0.005)

    def stop(self):
        self.going = False
        self.join()
        return self.peak - self.before


def main():
    memory = DriverMemory()
    if memory.source != "nvml":
        torch.cuda.init()
    memory.start()
    if given.fraction < 1:
        torch.cuda.set_per_process_memory_fraction(given.fraction, 0)
    result = dict(vars(given), torch=torch.__version__, gpu=torch.cuda.get_device_name(0), losses=[], step_s=[], oom=None)
    try:
        steps(result)
    except torch.OutOfMemoryError as error:
        result["oom"] = str(error)[:600]
    torch.cuda.synchronize()
    result["driver_peak_bytes"], result["driver_source"] = memory.stop(), memory.source
    result["reserved_peak_bytes"] = torch.cuda.max_memory_reserved()
    result["allocated_peak_bytes"] = torch.cuda.max_memory_allocated()
    result["retries"] = torch.cuda.memory_stats().get("num_alloc_retries", 0)
    if OURS:
        result["stats"] = gmlake.stats(0)
        if given.trace:
            gmlake.snapshot(given.trace)
    with open(given.result, "w") as file:
        json.dump(result, file, indent=1)


def steps(result):
    model = build(given.model, "LR")
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5)
    batches = Batches(MODELS[given.model]["vocab_size"], given.batch, given.length, given.fixed)
    for _ in range(given.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        words, mask = batches.next()
        loss = model(input_ids=words, attention_mask=mask, labels=words).loss
        loss.backward()
        del words, mask
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        result["losses"].append(loss.item())
        del loss
        torch.cuda.synchronize()
        result["step_s"].append(round(time.perf_counter() - start, 4))


main()
