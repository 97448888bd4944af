"""FSDP2 through accelerate, lengths that vary: how long the steps of a 3-billion-parameter Llama take, on GPUS GPUs (2).

usage: varied.py OUT SECONDS      with MODES, such as "stock lake lake:waits=off", in that order
       varied.py --rank FILE [lengths]   one rank, under torchrun; "fixed" has one length

Each mode is a process of its own. OUT/varied.json has the seconds of each step, what was reserved, and what the
allocator counted in the first four steps and after them.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS, GPUS = int(os.environ.get("STEPS", "16")), os.environ.get("GPUS", "2")
LONGEST, SHORTEST, BATCH = 1400, 128, int(os.environ.get("BATCH", "8"))


def model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2560, intermediate_size=8960, num_hidden_layers=32, num_attention_heads=20,
        num_key_value_heads=20, vocab_size=32000, max_position_embeddings=2048, use_cache=False,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config)


def prepared():
    import torch
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"], activation_checkpointing=True, reshard_after_forward=True,
    )
    accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin)
    with torch.device(accelerator.device):
        llama = model()
    optimizer = torch.optim.AdamW(llama.parameters(), lr=1e-5)
    return (accelerator, *accelerator.prepare(llama, optimizer))


def counted():
    """What the allocator under test has counted; nothing for stock PyTorch."""
    try:
        import torch

        import gmlake

        return gmlake.stats(torch.cuda.current_device()) if gmlake.enabled() else {}
    except Exception as error:
        return {"error": str(error)}


def rank(file, lengths="varied"):
    import torch

    accelerator, llama, optimizer = prepared()
    draw = random.Random(7 + accelerator.process_index)
    seconds, losses, counts = [], [], []
    for _ in range(STEPS):
        length = draw.randint(SHORTEST, LONGEST) // 8 * 8 if lengths == "varied" else LONGEST // 2
        batch = torch.randint(0, 32000, (BATCH, length), device=accelerator.device)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = llama(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - begin, 4))
        losses.append(loss.item())
        counts.append(counted())
    peak = counts[-1]["peak"]["reserved"] if counts[-1] else torch.cuda.max_memory_reserved()
    Path(f"{file}.{accelerator.process_index}").write_text(json.dumps({
        "seconds": seconds, "losses": losses, "reserved": peak, "counts": [counts[3], counts[-2], counts[-1]],
    }))


def run(mode, limit):
    allocator, _, conf = mode.partition(":")
    allocator, lengths = allocator.removesuffix("-fixed"), "fixed" if allocator.endswith("-fixed") else "varied"
    ours = ["-m", "gmlake", "run", "--allocator", allocator] if allocator not in ("stock", "expandable") else []
    ours += ["--conf", conf] if conf else []
    environment = dict(os.environ)
    if allocator == "expandable":
        environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", GPUS, "--master-port", "29611"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rank")
        command = [*torchrun, *ours, __file__, "--rank", str(file), lengths]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
            errors = done.stderr
        except subprocess.TimeoutExpired:
            errors = "out of time"
        parts = [json.loads(each.read_text()) for each in sorted(Path(folder).glob("rank.*"))]
    if len(parts) < int(GPUS):
        return {"mode": mode, "failed": errors[-3000:]}
    return {"mode": mode, "ranks": parts}


def verdict(result):
    if "failed" in result:
        return "FAILED: " + result["failed"][-1500:]
    seconds = result["ranks"][0]["seconds"][4:]
    total, reserved = sum(seconds), max(part["reserved"] for part in result["ranks"])
    return f"{total:.3f} s in steps 5 to {STEPS}, median {statistics.median(seconds):.4f}, {reserved / 2**30:.2f} GiB"


def main(out, limit):
    begin, results = time.time(), []
    for mode in os.environ.get("MODES", "stock lake").split():
        left = limit - (time.time() - begin)
        if left < 25:
            print(f"{mode}: no time left")
            continue
        results.append(run(mode, min(left, 100)))
        print(f"{mode:24} {verdict(results[-1])}", flush=True)
        Path(out, "varied.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank(*sys.argv[2:])
    else:
        main(sys.argv[1], float(sys.argv[2]))
